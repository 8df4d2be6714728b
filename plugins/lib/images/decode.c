/*
 * decode.c - rows of a part of a JPEG file, by libjpeg-turbo.
 *
 * Before a file is decoded its markers are walked to the end of the image. The walk finds a
 * truncated file, whichever part is wanted. It refuses a file with more scans than any real file
 * before the work is done: a few bytes can ask for a pass over all of a large picture.
 *
 * A warning of libjpeg is an error here when it means that a part of the picture is lost.
 */
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>
#include <jerror.h> /* needs jpeglib.h */

#include "images.h"

enum { MAX_SCANS = 100 }; /* progressive files have about 10, the most inventive optimisers 64 */

struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf failed;
    char *reason;
    struct buffer row;
};

/* ---- errors -------------------------------------------------------------------------------- */

/* Both come from libjpeg while a function of this file waits in setjmp. */
static void stop(j_common_ptr jpeg)
{
    struct decoder *decoder = jpeg->client_data;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    snprintf(decoder->reason, REASON_BYTES, "%s", text);
    longjmp(decoder->failed, 1);
}

static void take_message(j_common_ptr jpeg, int level)
{
    if (level >= 0)
        return; /* traces */
    switch (jpeg->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
        return; /* the picture is all there */
    default:
        stop(jpeg);
    }
}

/* ---- markers ------------------------------------------------------------------------------- */

enum { RST0 = 0xd0, RST7 = 0xd7, SOI = 0xd8, EOI = 0xd9, SOS = 0xda, TEM = 0x01 };

/* Past the entropy-coded data at `at`: where the next marker's 0xff is, or n. */
static size_t skip_scan(const uint8_t *bytes, size_t n, size_t at)
{
    while (at + 1 < n) {
        const uint8_t *ff = memchr(bytes + at, 0xff, n - 1 - at);
        if (!ff)
            return n;
        at = (size_t)(ff - bytes);
        uint8_t next = ff[1];
        if (next == 0xff)
            at++; /* fill */
        else if (next == 0 || (next >= RST0 && next <= RST7))
            at += 2;
        else
            return at;
    }
    return n;
}

/* NULL: the file is complete from the first marker to the end of the image. Else the defect. */
static const char *walk_markers(const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return "the file is empty";
    if (n < 4 || bytes[0] != 0xff || bytes[1] != SOI)
        return "not a JPEG file";
    int scans = 0;
    for (size_t at = 2;;) {
        const uint8_t *ff = at < n ? memchr(bytes + at, 0xff, n - at) : NULL;
        at = ff ? (size_t)(ff - bytes) : n;
        while (at < n && bytes[at] == 0xff)
            at++;
        if (at >= n)
            return "truncated: there is no end of the image";
        uint8_t marker = bytes[at++];
        if (marker == EOI)
            return scans > 0 ? NULL : "there is no image in it";
        if (marker == 0 || marker == TEM || (marker >= RST0 && marker <= SOI))
            continue; /* without a length */
        if (n - at < 2)
            return "truncated: there is no end of the image";
        at += (size_t)bytes[at] << 8 | bytes[at + 1];
        if (marker != SOS)
            continue;
        if (++scans > MAX_SCANS)
            return "more than 100 scans";
        at = skip_scan(bytes, n, at);
    }
}

/* ---- a decompressor ------------------------------------------------------------------------ */

struct decoder *decoder_create(void)
{
    struct decoder *decoder = image_host->alloc(sizeof *decoder);
    if (!decoder)
        return NULL;
    decoder->jpeg.err = jpeg_std_error(&decoder->errors);
    decoder->jpeg.client_data = decoder;
    decoder->errors.error_exit = stop;
    decoder->errors.emit_message = take_message;
    return decoder;
}

void decoder_destroy(struct decoder *decoder)
{
    if (!decoder)
        return;
    jpeg_destroy_decompress(&decoder->jpeg);
    buffer_release(&decoder->row);
    image_host->release(decoder, sizeof *decoder);
}

void decoder_abandon(struct decoder *decoder)
{
    jpeg_abort_decompress(&decoder->jpeg);
}

/* After a longjmp: the verdict for `reason`. */
static verdict give_up(struct decoder *decoder)
{
    bool memory = decoder->errors.msg_code == JERR_OUT_OF_MEMORY;
    jpeg_destroy_decompress(&decoder->jpeg);
    if (!memory)
        return BAD;
    image_host->fail(DPB_NO_MEMORY, "libjpeg: %s", decoder->reason);
    return BROKEN;
}

verdict decoder_begin(struct decoder *decoder, const uint8_t *bytes, size_t n, uint64_t max_pixels,
                      uint32_t *w, uint32_t *h, char reason[REASON_BYTES])
{
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    decoder->reason = reason;
    const char *missing = walk_markers(bytes, n);
    if (missing) {
        snprintf(reason, REASON_BYTES, "%s", missing);
        return BAD;
    }
    if (setjmp(decoder->failed))
        return give_up(decoder);
    /* A new one each time: tables of the last file would serve in a file that lacks its own. */
    jpeg_destroy_decompress(jpeg);
    jpeg_create_decompress(jpeg); /* keeps err and client_data */
    jpeg_mem_src(jpeg, bytes, (unsigned long)n);
    jpeg_read_header(jpeg, TRUE);
    *w = jpeg->image_width;
    *h = jpeg->image_height;
    if ((uint64_t)*w * *h <= max_pixels)
        return GOOD;
    snprintf(reason, REASON_BYTES, "%u x %u pixels are more than data.max_pixels", *w, *h);
    jpeg_abort_decompress(jpeg);
    return BAD;
}

uint32_t decoder_scale(const struct box *inner, struct dpb_shape to)
{
    for (uint32_t scale = 1; scale < 8; scale *= 2) {
        if (inner->w * scale >= to.w * 8.0 && inner->h * scale >= to.h * 8.0)
            return scale;
    }
    return 8;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* libjpeg leaves the last step to us. Adobe's files hold the inverse; with K inverted, a channel is
 * C K / 255. */
static void cmyk_to_rgb(uint8_t *row, uint32_t n, bool inverted)
{
    for (uint32_t i = 0; i < n * 4; i += 4) {
        uint32_t k = inverted ? row[i + 3] : 255u - row[i + 3];
        for (uint32_t c = 0; c < 3; c++) {
            uint32_t value = inverted ? row[i + c] : 255u - row[i + c];
            row[i + c] = (uint8_t)((value * k + 127) / 255);
        }
    }
}

static void start(struct jpeg_decompress_struct *jpeg, uint32_t scale)
{
    bool cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = cmyk ? JCS_CMYK : JCS_EXT_RGBX;
    jpeg->scale_num = scale;
    jpeg->scale_denom = 8;
    jpeg_start_decompress(jpeg);
}

/* Makes rows shorter where their ends are not needed: by whole blocks, and not by the block beside
 * the region, for the colours of its last pixels are interpolated from there. Returns the pixel
 * that rows then begin with. */
static uint32_t crop_rows(struct jpeg_decompress_struct *jpeg, const struct region *region)
{
    JDIMENSION x = region->x0 > 2 ? region->x0 - 2 : 0;
    JDIMENSION end = region->x1 + 2 < jpeg->output_width ? region->x1 + 2 : jpeg->output_width;
    JDIMENSION w = end - x;
    if (w < jpeg->output_width)
        jpeg_crop_scanline(jpeg, &x, &w);
    return x;
}

verdict decoder_rows(struct decoder *decoder, const struct region *region, bool partial,
                     void (*take)(void *context, const uint8_t *row), void *context,
                     uint64_t *bytes_decoded, char reason[REASON_BYTES])
{
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    decoder->reason = reason;
    if (setjmp(decoder->failed))
        return give_up(decoder);
    start(jpeg, region->scale);
    if (!buffer_reserve(&decoder->row, (size_t)jpeg->output_width * DECODED_CHANNELS)) {
        jpeg_abort_decompress(jpeg);
        return BROKEN;
    }
    JSAMPROW row = decoder->row.bytes;
    uint32_t first = 0, end = partial ? region->y1 : jpeg->output_height;
    if (partial) {
        first = crop_rows(jpeg, region);
        if (region->y0 > 0)
            jpeg_skip_scanlines(jpeg, region->y0);
    }
    while (jpeg->output_scanline < end) {
        uint32_t y = jpeg->output_scanline;
        jpeg_read_scanlines(jpeg, &row, 1);
        *bytes_decoded += (uint64_t)jpeg->output_width * 3;
        if (y < region->y0 || y >= region->y1)
            continue;
        uint8_t *begin = row + (size_t)(region->x0 - first) * DECODED_CHANNELS;
        if (jpeg->out_color_space == JCS_CMYK)
            cmyk_to_rgb(begin, region->x1 - region->x0, jpeg->saw_Adobe_marker);
        take(context, begin);
    }
    if (partial)
        jpeg_abort_decompress(jpeg);
    else
        jpeg_finish_decompress(jpeg);
    return GOOD;
}
