/*
 * test_cifar10.c - data cifar10 and cifar100: records as they are, the augmentation against a
 * padded image and its distribution, the same samples for any thread, all damage refused.
 */
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_source.h"
#include "dpbench/random.h"
#include "lib/capture.h"
#include "lib/command.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, IMAGE = 3 * PLANE, RECORD = 1 + IMAGE };
enum { FILES = 6, TEST_FILE = 5, MOST = 8 /* records in a file here */ };

static const char *const names[FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                         "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
static const char *const directory = own_directory;
static struct dpb_data_request request = {.shape = {3, SIDE, SIDE}, .nclass = 10, .seed = 77};

/* ---- making files -------------------------------------------------------------------------- */

static char *path_of(const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", directory, name);
    return path;
}

static void put(const char *name, const uint8_t *bytes, size_t n)
{
    char path[512];
    FILE *stream = fopen(path_of(name, path), "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
    assert_int_equal(fclose(stream), 0);
}

/* Record `i` of file `f`: noise whose mean differs by channel. */
static void make_record(int f, int i, uint8_t record[RECORD])
{
    uint32_t state = (uint32_t)(1000 * f + i + 1);
    record[0] = (uint8_t)((3 * f + i) % 10);
    for (int k = 0; k < IMAGE; k++) {
        state = state * 1664525 + 1013904223;
        record[1 + k] = (uint8_t)((state >> 24) / (k / PLANE + 1));
    }
}

/* f + 1 records in file f, so that a sample's file shows in its number. */
static void put_file(int f)
{
    uint8_t records[MOST][RECORD];
    for (int i = 0; i <= f; i++)
        make_record(f, i, records[i]);
    put(names[f], records[0], (size_t)(f + 1) * RECORD);
}

static void remove_all(void)
{
    static const char *const others[] = {"data_batch_1", "cifar-10-batches-bin"};
    char path[512];
    for (int f = 0; f < FILES; f++)
        remove(path_of(names[f], path));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        remove(path_of(others[i], path));
}

static void put_good(void)
{
    remove_all();
    for (int f = 0; f < FILES; f++)
        put_file(f);
}

static dpb_status open_path(const char *path, const char *more, struct source *source)
{
    char assignment[512];
    snprintf(assignment, sizeof assignment, "data.path=%s", path);
    const char *const assignments[] = {assignment, more, NULL};
    return source_open("cifar10", &request, assignments, source);
}

static struct source open_good(const char *more)
{
    struct source source;
    assert_int_equal(open_path(directory, more, &source), DPB_OK);
    return source;
}

/* ---- records ------------------------------------------------------------------------------- */

/* Training sample `sample` is record *i of file *f. */
static void find(uint64_t sample, int *f, int *i)
{
    for (*f = 0; sample > (uint64_t)*f; (*f)++)
        sample -= (uint64_t)*f + 1;
    *i = (int)sample;
}

static void assert_record(const struct source *source, dpb_split split, uint64_t sample, int f,
                          int i)
{
    uint8_t record[RECORD], image[IMAGE];
    int32_t label;
    make_record(f, i, record);
    assert_int_equal(source->ops->fetch(source->handle, split, 4, &sample, 1, image, &label),
                     DPB_OK);
    assert_int_equal(label, record[0]);
    assert_memory_equal(image, record + 1, IMAGE);
}

TEST(test_records_as_they_are)
{
    put_good();
    struct source source = open_good(NULL);
    const struct dpb_sample_format *format = &source.info.format;
    assert_true(format->shape.c == 3 && format->shape.h == SIDE && format->shape.w == SIDE);
    assert_true(format->type == DPB_UINT8 && format->order == DPB_CHW);
    assert_int_equal(source.info.nclass, 10);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 15);
    assert_int_equal(source.info.n_samples[DPB_TEST], 6);
    for (uint64_t sample = 0; sample < 15; sample++) {
        int f, i;
        find(sample, &f, &i);
        assert_record(&source, DPB_TRAIN, sample, f, i);
    }
    for (int i = 0; i < 6; i++)
        assert_record(&source, DPB_TEST, (uint64_t)i, TEST_FILE, i);
    source_close(&source);
}

/* Mean 0 and standard deviation 1 in each channel of the training set. */
TEST(test_normalised_by_channel)
{
    put_good();
    struct source source = open_good(NULL);
    for (int c = 0; c < 3; c++) {
        double sum = 0, squares = 0;
        for (uint64_t sample = 0; sample < 15; sample++) {
            uint8_t image[IMAGE];
            int32_t label;
            source.ops->fetch(source.handle, DPB_TRAIN, 0, &sample, 1, image, &label);
            for (int k = 0; k < PLANE; k++) {
                double value = (double)image[c * PLANE + k] * source.info.format.scale[c] +
                               source.info.format.offset[c];
                sum += value;
                squares += value * value;
            }
        }
        assert_true(fabs(sum / (15 * PLANE)) < 1e-5);
        assert_true(fabs(squares / (15 * PLANE) - 1) < 1e-5);
    }
    source_close(&source);
}

TEST(test_a_subset_is_a_warning)
{
    char path[512];
    const char *code, *text;
    put_good();
    remove(path_of(names[2], path));
    dpb_warnings_clear();
    struct source source = open_good(NULL);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 12);
    assert_record(&source, DPB_TRAIN, 3, 3, 0); /* the file behind the missing one */
    source_close(&source);
    assert_true(dpb_warning_at(0, &code, &text));
    assert_string_equal(code, "subset");
    assert_non_null(strstr(text, "12 training and 6 test samples, not CIFAR-10's 50000 and 10000"));
    assert_non_null(strstr(text, "there is no data_batch_3.bin"));
    assert_false(dpb_warning_at(1, &code, &text));
    dpb_warnings_clear();
}

TEST(test_nothing_is_kept_where_nothing_is_fetched)
{
    put_good();
    request.info_only = true;
    size_t before = allocated_bytes;
    struct source source = open_good(NULL);
    request.info_only = false;
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 15);
    assert_true(allocated_bytes < before + RECORD);
    source_close(&source);
    assert_int_equal(allocated_bytes, before);
}

/* ---- augmentation -------------------------------------------------------------------------- */

/* A record's padded image of 40 x 40, cut and mirrored as the paper says. */
static void padded_crop(const uint8_t *image, const uint8_t padding[3], int left, int top,
                        bool mirrored, uint8_t out[IMAGE])
{
    static uint8_t padded[3][40][40];
    for (int c = 0; c < 3; c++) {
        memset(padded[c], padding[c], sizeof padded[c]);
        for (int y = 0; y < SIDE; y++)
            memcpy(&padded[c][4 + y][4], image + c * PLANE + y * SIDE, SIDE);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                out[c * PLANE + y * SIDE + x] =
                    padded[c][top + y][left + (mirrored ? SIDE - 1 - x : x)];
    }
}

TEST(test_crops_are_windows_of_the_padded_image)
{
    put_good();
    struct source source = open_good("data.augment=crop_flip");
    uint8_t padding[3];
    for (int c = 0; c < 3; c++)
        padding[c] = (uint8_t)lround(-source.info.format.offset[c] / source.info.format.scale[c]);
    for (uint64_t epoch = 0; epoch < 20; epoch++)
        for (uint64_t sample = 0; sample < 15; sample++) {
            uint8_t record[RECORD], image[IMAGE], expected[IMAGE];
            int32_t label;
            int f, i;
            find(sample, &f, &i);
            make_record(f, i, record);
            struct dpb_random4 r = dpb_random(request.seed, DPB_STREAM_AUGMENT, (uint32_t)sample,
                                              (uint32_t)epoch, 0, 0);
            padded_crop(record + 1, padding, (int)(r.v[0] / 0x1p32 * 9), (int)(r.v[1] / 0x1p32 * 9),
                        r.v[2] >= 0x80000000u, expected);
            source.ops->fetch(source.handle, DPB_TRAIN, epoch, &sample, 1, image, &label);
            assert_memory_equal(image, expected, IMAGE);
            assert_int_equal(label, record[0]);
        }
    for (int i = 0; i < 6; i++) /* the test set stays as it is */
        assert_record(&source, DPB_TEST, (uint64_t)i, TEST_FILE, i);
    source_close(&source);
}

/* Red says in which column of the image a pixel was, green in which row: where every window lies
 * can be read off it. Each of 9 x 9 x 2 should come equally often. */
TEST(test_crops_are_uniform)
{
    enum { EPOCHS = 1000, SAMPLES = 16, CELLS = 9 * 9 * 2 };
    uint8_t records[SAMPLES][RECORD];
    uint64_t indices[SAMPLES], count[CELLS] = {0};
    static uint8_t images[SAMPLES][IMAGE];
    int32_t labels[SAMPLES];
    put_good();
    for (int i = 0; i < SAMPLES; i++) {
        indices[i] = (uint64_t)i;
        records[i][0] = 0;
        for (int k = 0; k < PLANE; k++) {
            records[i][1 + k] = (uint8_t)(7 * (k % SIDE));
            records[i][1 + PLANE + k] = (uint8_t)(7 * (k / SIDE));
            records[i][1 + 2 * PLANE + k] = (uint8_t)i;
        }
    }
    put(names[0], records[0], sizeof records);
    struct source source = open_good("data.augment=crop_flip");
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        source.ops->fetch(source.handle, DPB_TRAIN, epoch, indices, SAMPLES, images[0], labels);
        for (int i = 0; i < SAMPLES; i++) {
            const uint8_t *red = images[i], *green = images[i] + PLANE;
            const int at = 15 * SIDE + 15; /* within the image in every window */
            bool mirrored = red[at + 1] < red[at];
            int right = red[at] / 7 - (mirrored ? 16 : 15), down = green[at] / 7 - 15;
            assert_true(right >= -4 && right <= 4 && down >= -4 && down <= 4);
            count[((right + 4) * 9 + down + 4) * 2 + mirrored]++;
        }
    }
    source_close(&source);
    double expected = (double)EPOCHS * SAMPLES / CELLS, chi_square = 0;
    for (int i = 0; i < CELLS; i++)
        chi_square += pow((double)count[i] - expected, 2) / expected;
    /* 161 degrees of freedom: mean 161, standard deviation 18. */
    if (chi_square < 90 || chi_square > 240)
        fail_msg("chi square %.1f of 161 degrees of freedom", chi_square);
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { THREADS = 4, EPOCHS = 30 };

struct reading {
    const struct source *source;
    bool backwards;
    uint8_t *images; /* EPOCHS * 15 */
};

static void *read_all(void *argument)
{
    const struct reading *reading = argument;
    for (int k = 0; k < EPOCHS * 15; k++) {
        int number = reading->backwards ? EPOCHS * 15 - 1 - k : k;
        uint64_t sample = (uint64_t)(number % 15);
        int32_t label;
        reading->source->ops->fetch(reading->source->handle, DPB_TRAIN, (uint64_t)(number / 15),
                                    &sample, 1, reading->images + (size_t)number * IMAGE, &label);
    }
    return NULL;
}

TEST(test_the_same_for_any_thread_and_order)
{
    put_good();
    struct source source = open_good("data.augment=crop_flip");
    struct reading readings[THREADS];
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) {
        readings[t] = (struct reading){&source, t % 2, malloc((size_t)EPOCHS * 15 * IMAGE)};
        assert_non_null(readings[t].images);
        assert_int_equal(pthread_create(&threads[t], NULL, read_all, &readings[t]), 0);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int t = 1; t < THREADS; t++)
        assert_memory_equal(readings[t].images, readings[0].images, (size_t)EPOCHS * 15 * IMAGE);
    /* Another epoch or seed is another window for nearly all. */
    assert_memory_not_equal(readings[0].images, readings[0].images + 15 * IMAGE, 15 * IMAGE);
    source_close(&source);
    request.seed++;
    source = open_good("data.augment=crop_flip");
    struct reading other = {&source, false, readings[1].images};
    read_all(&other);
    assert_memory_not_equal(readings[0].images, other.images, 15 * IMAGE);
    request.seed--;
    source_close(&source);
    for (int t = 0; t < THREADS; t++)
        free(readings[t].images);
}

/* ---- what is refused ----------------------------------------------------------------------- */

static void assert_refused_as(dpb_status expected, const char *path, const char *title,
                              const char *first, const char *second)
{
    struct source source;
    size_t before = allocated_bytes;
    dpb_status status = open_path(path, NULL, &source);
    if (status != expected)
        fail_msg("%s: %s", title, dpb_status_name(status));
    if (!strstr(dpb_first_error(NULL), first) || !strstr(dpb_first_error(NULL), second))
        fail_msg("%s: '%s' or '%s' is not in '%s'", title, first, second, dpb_first_error(NULL));
    source_close(&source);
    assert_int_equal(allocated_bytes, before);
}

static const struct damage {
    const char *title;
    int file;
    size_t bytes; /* the file is as long as that */
    int at;       /* this byte becomes `value`; -1: none */
    uint8_t value;
    const char *first, *second;
} damages[] = {
    /* clang-format off */
    {"truncated", 1, 2 * RECORD - 1, -1, 0,
     "data_batch_2.bin: expected records of 3073 bytes",
     "found 6145 bytes, 1 records and 3072 bytes: "
     "the file is truncated"},
    {"a byte too many", TEST_FILE, 6 * RECORD + 1, -1, 0, "test_batch.bin: expected records",
     "6 records and 1 bytes"},
    {"empty", 0, 0, -1, 0, "data_batch_1.bin", "the file is empty"},
    {"one byte", 0, 1, -1, 0, "data_batch_1.bin", "found 1 bytes"},
    {"gzipped", 0, 700, 0, 0x1f, "data_batch_1.bin", "it is gzipped"},
    {"a pickle", 0, 700, 0, 0x80, "data_batch_1.bin", "pickle of the Python version"},
    {"label 10", 3, 4 * RECORD, 2 * RECORD, 10,
     "data_batch_4.bin: byte 6146: expected a label from 0 to 9, found 10", ""},
    {"label 255 in the test set", TEST_FILE, 6 * RECORD, 5 * RECORD, 255,
     "test_batch.bin: byte 15365: expected a label", "found 255"},
    /* clang-format on */
};

TEST(test_damage_is_refused)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *damage = &damages[i];
        static uint8_t bytes[MOST * RECORD];
        put_good();
        memset(bytes, 0, sizeof bytes);
        for (int k = 0; k <= damage->file; k++)
            make_record(damage->file, k, bytes + (size_t)k * RECORD);
        if (damage->at >= 0)
            bytes[damage->at] = damage->value;
        if (damage->at == 0)
            bytes[1] = damage->value == 0x1f ? 0x8b : 2;
        put(names[damage->file], bytes, damage->bytes);
        assert_refused_as(DPB_DATA, directory, damage->title, damage->first, damage->second);
    }
}

TEST(test_equal_pixels_are_refused)
{
    static uint8_t bytes[2 * RECORD];
    put_good();
    memset(bytes, 7, sizeof bytes);
    for (int k = 0; k < PLANE; k++) /* red alone differs */
        bytes[1 + k] = (uint8_t)k;
    char path[512];
    for (int f = 1; f < TEST_FILE; f++)
        remove(path_of(names[f], path));
    put(names[0], bytes, sizeof bytes);
    assert_refused_as(DPB_DATA, directory, "equal pixels", "found 7 for green", "nothing to learn");
}

TEST(test_what_is_not_there)
{
    char path[512], place[512];
    assert_refused_as(DPB_USAGE, "", "no path", "needs data.path", "cifar-10-binary.tar.gz");
    snprintf(path, sizeof path, "%s/nowhere", directory);
    assert_refused_as(DPB_DATA, path, "no directory", path, "cifar-10-binary.tar.gz");

    put_good();
    path_of(names[TEST_FILE], path);
    remove(path);
    assert_refused_as(DPB_DATA, directory, "no test set", "there is no test_batch.bin",
                      "data_batch_1.bin to data_batch_5.bin");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused_as(DPB_DATA, directory, "a directory", "test_batch.bin: is not a regular file",
                      "");
    put_good();
    path_of(names[0], path);
    remove(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused_as(DPB_DATA, directory, "a pipe", "data_batch_1.bin: is not a regular file", "");
    remove(path);
    assert_refused_as(DPB_DATA, directory, "no first file", "there is no data_batch_1.bin", "");
    mkdir(path_of("cifar-10-batches-bin", place), 0700);
    assert_refused_as(DPB_DATA, directory, "a level too high", "a directory cifar-10-batches-bin",
                      "/cifar-10-batches-bin");
    put("data_batch_1", (const uint8_t *)"\x80\x02", 2);
    assert_refused_as(DPB_DATA, directory, "Python", "is the Python version",
                      "cifar-10-binary.tar.gz");
}

/* ---- CIFAR-100 ----------------------------------------------------------------------------- */

static const char *const both[] = {"train.bin", "test.bin"};

/* Records of one byte more than CIFAR-10's: a coarse label and a fine one. */
static void put_hundred(int f, int n)
{
    uint8_t records[MOST][1 + RECORD];
    for (int i = 0; i < n; i++) {
        make_record(f, i, records[i] + 1);
        records[i][0] = 19;
        records[i][1] = (uint8_t)(99 - i);
    }
    put(both[f], records[0], (size_t)n * sizeof records[0]);
}

static void expect_hundred_refused(const char *part, const char *other)
{
    char assignment[512];
    struct source source;
    snprintf(assignment, sizeof assignment, "data.path=%s", directory);
    const char *const assignments[] = {assignment, NULL};
    dpb_first_error_clear();
    assert_int_equal(source_open("cifar100", &request, assignments, &source), DPB_DATA);
    const char *message = dpb_first_error(NULL);
    if (!strstr(message, part) || !strstr(message, other))
        fail_msg("'%s' lacks '%s' or '%s'", message, part, other);
    source_close(&source);
}

TEST(test_hundred)
{
    char assignment[512], path[512];
    struct source source;
    const char *const assignments[] = {assignment, NULL};
    remove_all();
    snprintf(assignment, sizeof assignment, "data.path=%s", directory);
    put_hundred(0, 5);
    put_hundred(1, 3);
    request.nclass = 100;
    assert_int_equal(source_open("cifar100", &request, assignments, &source), DPB_OK);
    assert_int_equal(source.info.nclass, 100);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 5);
    assert_int_equal(source.info.n_samples[DPB_TEST], 3);
    for (uint64_t i = 0; i < 8; i++) {
        const int f = i >= 5, number = (int)i - (f ? 5 : 0);
        const uint64_t sample = (uint64_t)number;
        uint8_t record[RECORD], image[IMAGE];
        int32_t label;
        make_record(f, number, record);
        assert_int_equal(source.ops->fetch(source.handle, f ? DPB_TEST : DPB_TRAIN, 0, &sample, 1,
                                           image, &label),
                         DPB_OK);
        assert_int_equal(label, 99 - number);
        assert_memory_equal(image, record + 1, IMAGE);
    }
    source_close(&source);

    uint8_t wrong[1 + RECORD] = {200, 100};
    put(both[1], wrong, sizeof wrong);
    expect_hundred_refused("test.bin: byte 1: expected a label from 0 to 99, found 100",
                           "not of CIFAR-100");
    put(both[1], wrong, RECORD);
    expect_hundred_refused("expected records of 3074 bytes (two labels", "found 3073 bytes");
    remove(path_of(both[1], path));
    expect_hundred_refused("there is no test.bin", "cifar-100-binary.tar.gz");
    put("train", wrong, 2);
    expect_hundred_refused("train without .bin is the Python version of CIFAR-100", "get the");
    remove(path_of("train", path));
    remove(path_of(both[0], path));
    request.nclass = 10;
}

static int setup(void **state)
{
    silence(state);
    return own_directory_setup(state);
}

TEST_MAIN(setup, own_directory_teardown)
