/*
 * test_idx.c - the idx data plugin: good files in all forms, every kind of damage refused with
 * file, place and expectation, and the real Fashion-MNIST where it is installed.
 */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "data_source.h"
#include "lib/capture.h"
#include "lib/command.h"

#define FASHION "/usr/share/datasets/fashion-mnist"

enum { IMAGES, LABELS, TEST_IMAGES, TEST_LABELS, FILES };

static const char *const names[FILES] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

static const char *const directory = own_directory;

/* ---- making files -------------------------------------------------------------------------- */

struct blob {
    uint8_t bytes[8192];
    size_t n;
};

static void set32(struct blob *blob, size_t at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        blob->bytes[at + (size_t)i] = (uint8_t)(value >> (24 - 8 * i));
    blob->n = blob->n < at + 4 ? at + 4 : blob->n;
}

/* Three training and two test images of 2 x 4; training labels 0, 1, 2, test labels 2, 0. */
static struct blob good(int file)
{
    struct blob blob = {.n = 0};
    bool images = file == IMAGES || file == TEST_IMAGES;
    uint32_t n = file == IMAGES || file == LABELS ? 3 : 2;
    set32(&blob, 0, images ? 0x803 : 0x801);
    set32(&blob, 4, n);
    if (images) {
        set32(&blob, 8, 2);
        set32(&blob, 12, 4);
    }
    for (uint32_t i = 0; i < (images ? n * 8 : n); i++)
        blob.bytes[blob.n++] = (uint8_t)(images ? 7 * i + 1 : file == LABELS ? i : 2 - 2 * i);
    return blob;
}

static struct blob gzipped(const struct blob *content)
{
    struct blob result;
    z_stream zlib = {.next_in = (Bytef *)(uintptr_t)content->bytes,
                     .avail_in = (uInt)content->n,
                     .next_out = result.bytes,
                     .avail_out = sizeof result.bytes};
    assert_int_equal(deflateInit2(&zlib, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    result.n = zlib.total_out;
    deflateEnd(&zlib);
    return result;
}

/* Writes file number `file` and takes away its other form. */
static void put(int file, const struct blob *blob, bool gz_name)
{
    char path[512], other[512];
    snprintf(path, sizeof path, "%s/%s%s", directory, names[file], gz_name ? ".gz" : "");
    snprintf(other, sizeof other, "%s/%s%s", directory, names[file], gz_name ? "" : ".gz");
    unlink(other);
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(blob->bytes, 1, blob->n, stream), blob->n);
    assert_int_equal(fclose(stream), 0);
}

static void put_good(bool gzip)
{
    for (int file = 0; file < FILES; file++) {
        struct blob blob = good(file);
        if (gzip)
            blob = gzipped(&blob);
        put(file, &blob, gzip);
    }
}

static void remove_all(void)
{
    for (int file = 0; file < FILES; file++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", directory, names[file]);
        unlink(path);
        snprintf(path, sizeof path, "%s/%s.gz", directory, names[file]);
        unlink(path);
    }
}

static dpb_status open_path(const char *path, struct source *source)
{
    static const struct dpb_data_request request = {.shape = {1, 28, 28}, .nclass = 10};
    char assignment[512];
    snprintf(assignment, sizeof assignment, "data.path=%s", path);
    const char *const assignments[] = {assignment, NULL};
    return source_open("idx", &request, assignments, source);
}

static void assert_refused(const char *path, const char *title, const char *const *messages)
{
    struct source source;
    size_t before = allocated_bytes;
    dpb_status status = open_path(path, &source);
    if (status != DPB_DATA)
        fail_msg("%s: %s", title, dpb_status_name(status));
    for (int i = 0; i < 2 && messages[i]; i++) {
        if (!strstr(dpb_first_error(NULL), messages[i]))
            fail_msg("%s: '%s' is not in '%s'", title, messages[i], dpb_first_error(NULL));
    }
    source_close(&source);
    assert_int_equal(allocated_bytes, before);
}

/* ---- good files ---------------------------------------------------------------------------- */

static void assert_good(void)
{
    struct source source;
    assert_int_equal(open_path(directory, &source), DPB_OK);
    const struct dpb_sample_format *format = &source.info.format;
    assert_int_equal(source.info.nclass, 3);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 3);
    assert_int_equal(source.info.n_samples[DPB_TEST], 2);
    assert_int_equal(format->type, DPB_UINT8);
    assert_true(format->shape.c == 1 && format->shape.h == 2 && format->shape.w == 4);

    const uint64_t order[] = {2, 0, 2, 1}, test_order[] = {1, 0};
    uint8_t samples[4][8];
    int32_t labels[4];
    source.ops->fetch(source.handle, DPB_TRAIN, 9, order, 4, samples, labels);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(labels[i], order[i]);
        for (uint32_t k = 0; k < 8; k++)
            assert_int_equal(samples[i][k], 7 * (8 * order[i] + k) + 1);
    }
    source.ops->fetch(source.handle, DPB_TEST, 0, test_order, 2, samples, labels);
    assert_int_equal(labels[0], 0);
    assert_int_equal(labels[1], 2);
    assert_int_equal(samples[0][0], 7 * 8 + 1);
    assert_int_equal(samples[1][0], 1);
    source_close(&source);
}

TEST(test_raw_gzipped_and_mixed)
{
    put_good(false);
    assert_good();
    put_good(true);
    assert_good();
    struct blob raw = good(IMAGES);
    put(IMAGES, &raw, false);
    assert_good();
    put(IMAGES, &raw, true); /* inflated on the way here, the name kept */
    assert_good();
}

TEST(test_gzip_of_several_members)
{
    put_good(false);
    struct blob all = good(IMAGES), part = {.n = 5}, joined, rest;
    memcpy(part.bytes, all.bytes, part.n);
    rest = (struct blob){.n = all.n - part.n};
    memcpy(rest.bytes, all.bytes + part.n, rest.n);
    joined = gzipped(&part);
    rest = gzipped(&rest);
    memcpy(joined.bytes + joined.n, rest.bytes, rest.n);
    joined.n += rest.n;
    put(IMAGES, &joined, true);
    assert_good();
    for (size_t n = 1; n < 100; n *= 7) { /* padded, as gzip -t accepts */
        memset(joined.bytes + joined.n, 0, n);
        joined.n += n;
        put(IMAGES, &joined, true);
        assert_good();
    }
}

/* ---- damaged files ------------------------------------------------------------------------- */

enum operation {
    SET,    /* 32 bits at `at` to value */
    DIMS,   /* all three dimensions to value */
    CUT,    /* value bytes from the end */
    APPEND, /* a byte */
    FLIP,   /* all bits of the byte at `at`, from the end where negative */
    KEEP    /* value bytes from the start */
};

enum form {
    RAW,
    INSIDE, /* gzipped after the damage */
    GZIP    /* gzipped before it */
};

static const struct damage {
    const char *title;
    int file;
    enum form form;
    enum operation operation;
    int at;
    uint32_t value;
    const char *messages[2];
} damages[] = {
    /* clang-format off */
    {"labels for images", IMAGES, RAW, SET, 0, 0x801,
     {"train-images-idx3-ubyte: byte 0: expected magic number 0x00000803", "found 0x00000801"}},
    {"images for labels", TEST_LABELS, INSIDE, SET, 0, 0x803,
     {"t10k-labels-idx1-ubyte.gz: byte 0 of the uncompressed content: expected magic",
      "found 0x00000803"}},
    {"floats", IMAGES, RAW, SET, 0, 0xd03,
     {"byte 0: expected magic", "0x00000d03"}},
    {"no image", IMAGES, RAW, SET, 4, 0,
     {"byte 4: expected a dimension", "set is empty"}},
    {"no column", IMAGES, INSIDE, SET, 12, 0,
     {"byte 12 of", "set is empty"}},
    {"hostile", IMAGES, RAW, DIMS, 0, UINT32_MAX,
     {"byte 4: expected dimensions that fit into a file of 40 bytes",
      "4294967295 x 4294967295 x 4294967295"}},
    {"hostile, gzipped", IMAGES, INSIDE, DIMS, 0, UINT32_MAX,
     {"expected dimensions that fit into a file of", "4294967295 x 4294967295 x 4294967295"}},
    {"hostile within 64 bits", IMAGES, INSIDE, SET, 4, 1u << 28,
     {"expected dimensions that fit", "268435456 x 2 x 4"}},
    {"hostile beyond 64 bits", IMAGES, RAW, DIMS, 0, 1u << 22, /* 2^66: 0 when cut off */
     {"expected dimensions that fit", "4194304 x 4194304 x 4194304"}},
    {"hostile labels", LABELS, RAW, SET, 4, UINT32_MAX,
     {"train-labels-idx1-ubyte: byte 4: expected dimensions", "4294967295"}},
    {"fewer labels", LABELS, RAW, SET, 4, 2,
     {"train-labels-idx1-ubyte: byte 4: expected 3 labels, one for each image", "found 2"}},
    {"other size in test", TEST_IMAGES, RAW, SET, 8, 1,
     {"t10k-images-idx3-ubyte: byte 8: expected images of 2 x 4", "found 1 x 4"}},
    {"unknown class in test", TEST_LABELS, RAW, SET, 6, 0x00020203, /* labels 2, 3 */
     {"t10k-labels-idx1-ubyte: byte 9: expected a label from 0 to 2", "found 3"}},
    {"truncated", IMAGES, RAW, CUT, 0, 17,
     {"fit into a file of 23 bytes", "3 x 2 x 4: the file is truncated"}},
    {"truncated by one", LABELS, RAW, CUT, 0, 1,
     {"byte 10: expected 1 more bytes of labels", "truncated"}},
    {"truncated header", IMAGES, RAW, KEEP, 0, 9,
     {"byte 9: expected 7 more bytes of an idx header", "truncated"}},
    {"empty file", IMAGES, RAW, KEEP, 0, 0,
     {"byte 0: expected 16 more bytes"}},
    {"short inside gzip", IMAGES, INSIDE, CUT, 0, 2,
     {"byte 38 of the uncompressed content: expected 2 more bytes of images"}},
    {"trailing byte", IMAGES, RAW, APPEND, 0, 0,
     {"train-images-idx3-ubyte: byte 40: expected the end", "trailing"}},
    {"trailing inside gzip", LABELS, INSIDE, APPEND, 0, 0,
     {"byte 11 of the uncompressed content: expected the end", "trailing"}},
    {"trailing after gzip", LABELS, GZIP, APPEND, 0, 'x',
     {"of the gzip file: expected the end or another gzip member"}},
    {"gzip cut", IMAGES, GZIP, CUT, 0, 12,
     {"of the gzip file: expected more compressed data", "the end of the file"}},
    {"gzip cut in its checksum", IMAGES, GZIP, CUT, 0, 5,
     {"the end of the file"}},
    {"gzip cut to its magic", IMAGES, GZIP, KEEP, 0, 2,
     {"of the gzip file"}},
    {"gzip with a wrong checksum", IMAGES, GZIP, FLIP, -8, 0,
     {"of the gzip file", "incorrect data check"}},
    {"gzip with a wrong length", IMAGES, GZIP, FLIP, -4, 0,
     {"incorrect length check"}},
    {"gzip with a damaged block", IMAGES, GZIP, FLIP, 10, 0,
     {"of the gzip file", "invalid"}},
    /* clang-format on */
};

static void apply(const struct damage *damage, struct blob *blob)
{
    size_t at = damage->at < 0 ? blob->n - (size_t)-damage->at : (size_t)damage->at;
    switch (damage->operation) {
    case SET:
        set32(blob, at, damage->value);
        break;
    case DIMS:
        for (size_t i = 4; i < 16; i += 4)
            set32(blob, i, damage->value);
        break;
    case CUT:
        blob->n -= damage->value;
        break;
    case APPEND:
        blob->bytes[blob->n++] = (uint8_t)damage->value;
        break;
    case FLIP:
        blob->bytes[at] ^= 0xff;
        break;
    case KEEP:
        blob->n = damage->value;
        break;
    }
}

TEST(test_damage_is_refused)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *damage = &damages[i];
        put_good(false);
        struct blob blob = good(damage->file);
        if (damage->form != GZIP)
            apply(damage, &blob);
        if (damage->form != RAW)
            blob = gzipped(&blob);
        if (damage->form == GZIP)
            apply(damage, &blob);
        put(damage->file, &blob, damage->form != RAW);
        largest_bytes = 0;
        assert_refused(directory, damage->title, damage->messages);
        assert_true(largest_bytes < 4096); /* nothing of what a header claims is allocated */
    }
}

TEST(test_equal_pixels_are_refused)
{
    put_good(false);
    struct blob blob = good(IMAGES);
    memset(blob.bytes + 16, 9, blob.n - 16);
    put(IMAGES, &blob, false);
    const char *const messages[] = {"found 9 in all", "nothing to learn"};
    assert_refused(directory, "equal pixels", messages);
}

/* Names with a dot are taken; another name is said. */
TEST(test_other_names)
{
    char path[512], dotted[512], other[512];
    put_good(false);
    snprintf(path, sizeof path, "%s/%s", directory, names[TEST_LABELS]);
    snprintf(dotted, sizeof dotted, "%s/t10k-labels.idx1-ubyte", directory);
    snprintf(other, sizeof other, "%s/emnist-mnist-test-labels-idx1-ubyte", directory);
    assert_int_equal(rename(path, dotted), 0);
    assert_good();
    assert_int_equal(rename(dotted, other), 0);
    const char *const near[] = {"but emnist-mnist-test-labels-idx1-ubyte: give the four files",
                                NULL};
    assert_refused(directory, "EMNIST", near);
    unlink(other);
}

TEST(test_missing_files)
{
    put_good(false);
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, names[TEST_LABELS]);
    unlink(path);
    const char *const file[] = {"neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte.gz"};
    assert_refused(directory, "missing file", (const char *const[]){file[0], NULL});
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused(directory, "directory", (const char *const[]){"not a regular file", NULL});
    rmdir(path);

    snprintf(path, sizeof path, "%s/nowhere", directory);
    const char *const nowhere[] = {path, "Debian's package dataset-fashion-mnist"};
    assert_refused(path, "missing directory", nowhere);
}

/* ---- the real thing ------------------------------------------------------------------------ */

static void check_split(const struct source *source, dpb_split split, uint64_t each, bool unit)
{
    const struct dpb_sample_format *format = &source->info.format;
    uint64_t n = source->info.n_samples[split], count[10] = {0};
    assert_int_equal(n, 10 * each);
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t sample[28 * 28];
        int32_t label;
        source->ops->fetch(source->handle, split, 0, &i, 1, sample, &label);
        assert_in_range(label, 0, 9);
        count[label]++;
        for (int k = 0; k < 28 * 28; k++) {
            double value = sample[k] * format->scale[0] + format->offset[0];
            sum += value;
            squares += value * value;
        }
    }
    for (int c = 0; c < 10; c++)
        assert_int_equal(count[c], each);
    double elements = (double)n * 28 * 28;
    assert_true(fabs(sum / elements) < (unit ? 1e-5 : 0.01));
    assert_true(fabs(squares / elements - 1) < (unit ? 1e-5 : 0.01));
}

/* Labels that do not fit are found before the images, which may be gigabytes, are inflated. */
TEST(test_labels_come_first)
{
    static const char *const messages[] = {"byte 4: expected 3 labels", "found 2"};
    remove_all();
    put_good(false);
    struct blob images = good(IMAGES), labels = good(LABELS);
    images.n--; /* what would be found in them */
    set32(&labels, 4, 2);
    labels.n--;
    put(IMAGES, &images, false);
    put(LABELS, &labels, false);
    assert_refused(directory, "labels", messages);
    put_good(false);
}

TEST(test_fashion_mnist)
{
    if (access(FASHION, R_OK) != 0) {
        print_message("%s is not there (package dataset-fashion-mnist)\n", FASHION);
        skip();
    }
    const struct dpb_data_request request = {.shape = {1, 28, 28}, .nclass = 10};
    const char *const defaults[] = {NULL};
    struct source source;
    int64_t begin_ns = dpb_now_ns();
    assert_int_equal(source_open("idx", &request, defaults, &source), DPB_OK);
    print_message("opened in %.2f s\n", (double)(dpb_now_ns() - begin_ns) * 1e-9);
    assert_true(source.info.format.shape.h == 28 && source.info.format.shape.w == 28);
    assert_int_equal(source.info.nclass, 10);
    /* Published: mean 0.2860, standard deviation 0.3530, of pixels from 0 to 1. */
    assert_true(fabs(1 / source.info.format.scale[0] - 0.3530 * 255) < 0.0001 * 255);
    assert_true(fabs(-source.info.format.offset[0] / source.info.format.scale[0] - 0.2860 * 255) <
                0.0001 * 255);
    check_split(&source, DPB_TRAIN, 6000, true);
    check_split(&source, DPB_TEST, 1000, false);
    source_close(&source);
}

static int setup(void **state)
{
    silence(state);
    return own_directory_setup(state);
}

TEST_MAIN(setup, own_directory_teardown)
