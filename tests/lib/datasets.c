/* datasets.c - see datasets.h. */
#include "lib/datasets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/command.h"
#include "lib/test.h"

enum { CLASSES = 10 };

static void make_noise(uint8_t *bytes, size_t n, uint32_t seed)
{
    uint32_t state = seed + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(state >> 24);
    }
}

/* A file of `n` records of `label_bytes` (0 or 1) and `sample_bytes` behind a header. */
static void make_file(const char *directory, const char *name, const uint8_t *header,
                      size_t header_bytes, uint32_t n, size_t label_bytes, size_t sample_bytes)
{
    char path[512];
    size_t record = label_bytes + sample_bytes, bytes = header_bytes + n * record;
    uint8_t *content = malloc(bytes);
    assert_non_null(content);
    if (header_bytes > 0)
        memcpy(content, header, header_bytes);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *at = content + header_bytes + i * record;
        if (label_bytes > 0)
            at[0] = (uint8_t)(i % CLASSES);
        make_noise(at + label_bytes, sample_bytes, i);
    }
    snprintf(path, sizeof path, "%s/%s", directory, name);
    write_file(path, content, bytes);
    free(content);
}

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void make_idx_split(const char *directory, const char *prefix, uint32_t n, uint32_t side)
{
    char name[64];
    uint8_t header[16];
    put32(header, 0x803);
    put32(header + 4, n);
    put32(header + 8, side);
    put32(header + 12, side);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    make_file(directory, name, header, 16, n, 0, (size_t)side * side);
    put32(header, 0x801);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    make_file(directory, name, header, 8, n, 1, 0);
}

void dataset_idx(const char *directory, uint32_t n_train, uint32_t n_test, uint32_t side)
{
    assert_int_equal(mkdir(directory, 0777), 0);
    make_idx_split(directory, "train", n_train, side);
    make_idx_split(directory, "t10k", n_test, side);
}

void dataset_cifar10(const char *directory, uint32_t n_each, uint32_t n_test)
{
    enum { PIXELS = 3 * 32 * 32 };
    assert_int_equal(mkdir(directory, 0777), 0);
    for (int i = 1; i <= 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        make_file(directory, name, NULL, 0, n_each, 1, PIXELS);
    }
    make_file(directory, "test_batch.bin", NULL, 0, n_test, 1, PIXELS);
}

/* By libjpeg, quality 30: grey, 16 x 16. */
static const uint8_t picture[] = {
    0xff, 0xd8, 0xff, 0xe0, 0x00, 0x10, 0x4a, 0x46, 0x49, 0x46, 0x00, 0x01, 0x01, 0x00, 0x00,
    0x01, 0x00, 0x01, 0x00, 0x00, 0xff, 0xdb, 0x00, 0x43, 0x00, 0x1b, 0x12, 0x14, 0x17, 0x14,
    0x11, 0x1b, 0x17, 0x16, 0x17, 0x1e, 0x1c, 0x1b, 0x20, 0x28, 0x42, 0x2b, 0x28, 0x25, 0x25,
    0x28, 0x51, 0x3a, 0x3d, 0x30, 0x42, 0x60, 0x55, 0x65, 0x64, 0x5f, 0x55, 0x5d, 0x5b, 0x6a,
    0x78, 0x99, 0x81, 0x6a, 0x71, 0x90, 0x73, 0x5b, 0x5d, 0x85, 0xb5, 0x86, 0x90, 0x9e, 0xa3,
    0xab, 0xad, 0xab, 0x67, 0x80, 0xbc, 0xc9, 0xba, 0xa6, 0xc7, 0x99, 0xa8, 0xab, 0xa4, 0xff,
    0xc0, 0x00, 0x0b, 0x08, 0x00, 0x10, 0x00, 0x10, 0x01, 0x01, 0x11, 0x00, 0xff, 0xc4, 0x00,
    0x15, 0x00, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x05, 0x06, 0xff, 0xc4, 0x00, 0x1f, 0x10, 0x00, 0x00, 0x06, 0x02, 0x03,
    0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x03, 0x04,
    0x11, 0x12, 0x00, 0x13, 0x31, 0x62, 0xa1, 0x81, 0xff, 0xda, 0x00, 0x08, 0x01, 0x01, 0x00,
    0x00, 0x3f, 0x00, 0x31, 0x90, 0x56, 0xfd, 0x23, 0xdc, 0xa6, 0x64, 0x15, 0xbf, 0x48, 0xf7,
    0x27, 0x9d, 0x35, 0x5c, 0xf5, 0xd4, 0x8a, 0x87, 0xac, 0xc5, 0x4a, 0x23, 0xce, 0x38, 0xe9,
    0xc2, 0x07, 0xae, 0xa5, 0xd3, 0x3d, 0x66, 0x2a, 0x70, 0x1e, 0x7e, 0xe7, 0xff, 0xd9};

static void make_pictures(const char *directory, const char *split, uint32_t n_each)
{
    static const char *const classes[] = {"cat", "dog"};
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, split);
    assert_int_equal(mkdir(path, 0777), 0);
    for (size_t c = 0; c < 2; c++) {
        snprintf(path, sizeof path, "%s/%s/%s", directory, split, classes[c]);
        assert_int_equal(mkdir(path, 0777), 0);
        for (uint32_t i = 0; i < n_each; i++) {
            snprintf(path, sizeof path, "%s/%s/%s/%u.jpg", directory, split, classes[c], i);
            write_file(path, picture, sizeof picture);
        }
    }
}

void dataset_image_folder(const char *directory, uint32_t n_train, uint32_t n_val)
{
    assert_int_equal(mkdir(directory, 0777), 0);
    make_pictures(directory, "train", n_train);
    make_pictures(directory, "val", n_val);
}
