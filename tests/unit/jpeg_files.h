/*
 * jpeg_files.h - for tests: pictures that are known pixel by pixel, written as JPEG files and read
 * back by libjpeg alone.
 */
#ifndef DPB_TESTS_JPEG_FILES_H
#define DPB_TESTS_JPEG_FILES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "lib/test.h"

struct picture {
    uint32_t w, h;
    int channels; /* 1: grey, 3: RGB, 4: CMYK */
    uint8_t *pixels;
};

struct jpeg_form {
    int quality; /* 0: 95 */
    bool progressive;
    int across, down; /* luma samples for one of chroma; 0: 1 */
};

static struct picture picture_create(uint32_t w, uint32_t h, int channels)
{
    struct picture picture = {w, h, channels, calloc((size_t)w * h, (size_t)channels)};
    assert_non_null(picture.pixels);
    return picture;
}

/* Red says how far to the right, green how far down, blue waves. */
static struct picture picture_gradient(uint32_t w, uint32_t h)
{
    struct picture picture = picture_create(w, h, 3);
    for (uint32_t i = 0; i < w * h; i++) {
        uint32_t x = i % w, y = i / w;
        picture.pixels[3 * i] = (uint8_t)(w > 1 ? x * 255 / (w - 1) : 0);
        picture.pixels[3 * i + 1] = (uint8_t)(h > 1 ? y * 255 / (h - 1) : 0);
        picture.pixels[3 * i + 2] = (uint8_t)(128 + (int)((x * 3 + y * 5) % 64));
    }
    return picture;
}

static __attribute__((unused)) struct picture picture_plain(uint32_t w, uint32_t h, uint8_t r,
                                                            uint8_t g, uint8_t b)
{
    struct picture picture = picture_create(w, h, 3);
    for (size_t i = 0; i < (size_t)w * h; i++)
        memcpy(picture.pixels + 3 * i, (const uint8_t[]){r, g, b}, 3);
    return picture;
}

/* *bytes is @owned by the caller (free). */
static size_t jpeg_encode(const struct picture *picture, struct jpeg_form form, uint8_t **bytes)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned long n = 0;
    *bytes = NULL;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, bytes, &n);
    jpeg.image_width = picture->w;
    jpeg.image_height = picture->h;
    jpeg.input_components = picture->channels;
    jpeg.in_color_space = picture->channels == 1   ? JCS_GRAYSCALE
                          : picture->channels == 3 ? JCS_RGB
                                                   : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, form.quality ? form.quality : 95, TRUE);
    jpeg.comp_info[0].h_samp_factor = form.across ? form.across : 1;
    jpeg.comp_info[0].v_samp_factor = form.down ? form.down : 1;
    if (form.progressive)
        jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row =
            picture->pixels + (size_t)jpeg.next_scanline * picture->w * (size_t)picture->channels;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return n;
}

static void put_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *stream = fopen(path, "wb");
    if (!stream)
        fail_msg("%s cannot be written", path);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
    assert_int_equal(fclose(stream), 0);
}

/* Writes and frees the picture. */
static void put_picture(const char *path, struct picture picture, struct jpeg_form form)
{
    uint8_t *bytes;
    size_t n = jpeg_encode(&picture, form, &bytes);
    put_bytes(path, bytes, n);
    free(bytes);
    free(picture.pixels);
}

/* As libjpeg decodes it, to RGB. `pixels` is @owned by the caller. */
static __attribute__((unused)) struct picture jpeg_decode(const char *path)
{
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_stdio_src(&jpeg, stream);
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg);
    struct picture picture = picture_create(jpeg.output_width, jpeg.output_height, 3);
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW row = picture.pixels + (size_t)jpeg.output_scanline * picture.w * 3;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
    fclose(stream);
    return picture;
}

#endif
