/* needs: jpeg native */
/*
 * test_image_folder.c - the image_folder data plugin: numbers and labels, pixels against an
 * independent resize in floating point, crops and flips, the same bytes by every way of reading.
 * What is damaged is in test_image_damage.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data_source.h"
#include "jpeg_files.h"
#include "lib/sandbox.h"
#include "lib/says.h"

enum { SIDE = 64, BYTES = SIDE * SIDE * 3 };

static const struct jpeg_form plain_form = {.quality = 100};

static struct dpb_data_request request_of(uint32_t side)
{
    return (struct dpb_data_request){
        .shape = {3, side, side}, .nclass = 10, .seed = 7, .n_workers = 1};
}

/* Opens `path` with up to four more assignments, or fails. */
static struct source open_set(const char *path, const struct dpb_data_request *request,
                              const char *const more[4])
{
    struct source source;
    char text[256];
    snprintf(text, sizeof text, "data.path=%s", path);
    const char *assignments[6] = {text};
    for (int i = 0; more && i < 4 && more[i]; i++)
        assignments[1 + i] = more[i];
    if (source_open("image_folder", request, assignments, &source) != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
    return source;
}

static void fetch(const struct source *source, dpb_split split, uint64_t epoch, uint64_t index,
                  uint8_t *sample, int32_t *label)
{
    if (source->ops->fetch(source->handle, split, epoch, &index, 1, sample, label) != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
}

static void make_directory(const char *path)
{
    if (mkdir(path, 0777) != 0)
        fail_msg("%s cannot be made", path);
}

/* SET/{train,val}/CLASS for both classes a and b. */
static void make_set(const char *set)
{
    static const char *const parts[] = {"",     "/train", "/train/a", "/train/b",
                                        "/val", "/val/a", "/val/b"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s%s", set, parts[i]);
        make_directory(path);
    }
}

static void put(const char *set, const char *name, struct picture picture, struct jpeg_form form)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", set, name);
    put_picture(path, picture, form);
}

/* The smallest good set around one training image. */
static void make_set_of(const char *set, struct picture picture, struct jpeg_form form)
{
    make_set(set);
    put(set, "train/a/1.jpg", picture, form);
    put(set, "train/b/1.jpg", picture_plain(8, 8, 0, 0, 255), plain_form);
    put(set, "val/a/1.jpg", picture_plain(8, 8, 255, 0, 0), plain_form);
    put(set, "val/b/1.jpg", picture_plain(8, 8, 0, 255, 0), plain_form);
}

/* ---- the plugin opens and locks files by these ----------------------------------------------- */

static bool part_vanishes;        /* after the plugin has met it */
static bool no_direct;            /* as on some file systems */
static _Atomic unsigned n_direct; /* files that were opened for direct reads, by any thread */

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (part_vanishes && strstr(path, ".part") && !(flags & O_CREAT)) {
        part_vanishes = false;
        unlink(path);
    }
    n_direct += (flags & O_DIRECT) != 0;
    if (no_direct && (flags & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return openat(AT_FDCWD, path, flags, mode);
}

static bool no_locks;

/* As on NFS: for an exclusive lock the file must be open for writing. */
int flock(int fd, int operation)
{
    if (no_locks) { /* as on Lustre */
        errno = ENOSYS;
        return -1;
    }
    if ((operation & LOCK_EX) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        errno = EBADF;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

/* ---- what there is ------------------------------------------------------------------------- */

/* Names in the order of their numbers; the colour of image i is 20 + 20 i. */
static const char *const numbered[] = {
    "train/B/x.jpg",   "train/a/B.JPEG",        "train/a/a1.jpg",  "train/a/a10.JpG",
    "train/a/a2.jpeg", "train/b\xc3\xa9/1.jpg", "train/\xff/1.jpg"};
static const int32_t numbered_labels[] = {0, 1, 1, 1, 1, 2, 3};

TEST(test_numbers_and_labels)
{
    static const char *const directories[] = {"n",         "n/train",           "n/train/a",
                                              "n/train/B", "n/train/b\xc3\xa9", "n/train/\xff",
                                              "n/.more",   "n/train/.hidden",   "n/train/a/.x"};
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        make_directory(directories[i]);
    enum { N = sizeof numbered / sizeof *numbered };
    for (int i = N - 1; i >= 0; i--) {
        uint8_t grey = (uint8_t)(20 + 20 * i);
        put("n", numbered[i], picture_plain(30, 20, grey, grey, grey), plain_form);
    }
    put_bytes("n/train/a/notes.txt", "text", 4);
    put_bytes("n/train/a/._a1.jpg", "text", 4);
    put_bytes("n/train/README", "text", 4);
    dpb_warnings_clear();
    struct dpb_data_request request = request_of(16);
    struct source source = open_set("n", &request, (const char *const[4]){"data.val="});
    assert_int_equal(source.info.nclass, 4);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], N);
    assert_int_equal(source.info.n_samples[DPB_TEST], 0);
    assert_int_equal(source.info.format.order, DPB_HWC);
    const char *code, *text;
    assert_true(dpb_warning_at(0, &code, &text));
    assert_string_equal(code, "ignored_files");
    assert_non_null(strstr(text, "n/train/a/notes.txt"));
    for (uint64_t i = 0; i < N; i++) {
        uint8_t sample[16 * 16 * 3];
        int32_t label;
        fetch(&source, DPB_TRAIN, 0, i, sample, &label);
        assert_int_equal(label, numbered_labels[i]);
        for (size_t k = 0; k < sizeof sample; k++)
            assert_in_range(sample[k], 20 + 20 * i - 1, 20 + 20 * i + 1);
    }
    source_close(&source);
}

TEST(test_normalised_as_imagenet)
{
    make_set_of("norm", picture_plain(8, 8, 1, 2, 3), plain_form);
    struct dpb_data_request request = request_of(8);
    struct source source = open_set("norm", &request, NULL);
    const struct dpb_sample_format *format = &source.info.format;
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    for (int c = 0; c < 3; c++) {
        double white = 255 * (double)format->scale[c] + (double)format->offset[c];
        assert_true(fabs(white - (1 - mean[c]) / deviation[c]) < 1e-5);
        assert_true(fabs((double)format->offset[c] + mean[c] / deviation[c]) < 1e-5);
    }
    source_close(&source);
}

/* ---- pixels -------------------------------------------------------------------------------- */

/* One line of n values, `stride` apart, to `to` values: the triangle filter, in floating point. */
static void resize_line(const double *from, size_t stride, uint32_t n, double *out,
                        size_t out_stride, uint32_t to)
{
    double step = (double)n / to, support = step > 1 ? step : 1;
    for (uint32_t i = 0; i < to; i++) {
        double centre = (i + 0.5) * step, sum = 0, weights = 0;
        for (uint32_t k = 0; k < n; k++) {
            double weight = 1 - fabs(k + 0.5 - centre) / support;
            if (weight > 0) {
                sum += weight * from[k * stride];
                weights += weight;
            }
        }
        out[i * out_stride] = sum / weights;
    }
}

/* The whole picture at w x h, channels interleaved. @owned. */
static double *resize_whole(const struct picture *picture, uint32_t w, uint32_t h)
{
    double *whole = malloc((size_t)picture->w * picture->h * 3 * sizeof *whole);
    double *wide = malloc((size_t)w * picture->h * 3 * sizeof *wide);
    double *out = malloc((size_t)w * h * 3 * sizeof *out);
    assert_true(whole && wide && out);
    for (size_t i = 0; i < (size_t)picture->w * picture->h * 3; i++)
        whole[i] = picture->pixels[i];
    for (uint32_t c = 0; c < 3; c++) {
        for (uint32_t y = 0; y < picture->h; y++)
            resize_line(whole + (size_t)y * picture->w * 3 + c, 3, picture->w,
                        wide + (size_t)y * w * 3 + c, 3, w);
        for (uint32_t x = 0; x < w; x++)
            resize_line(wide + (size_t)x * 3 + c, (size_t)w * 3, picture->h,
                        out + (size_t)x * 3 + c, (size_t)w * 3, h);
    }
    free(whole);
    free(wide);
    return out;
}

/* Resize(shorter side), then CenterCrop, as torchvision has them; the largest difference. */
static double worst_difference(const struct picture *picture, uint32_t side, double ratio,
                               const uint8_t *sample)
{
    double target = rint(side / ratio), worst = 0;
    bool wide = picture->w > picture->h;
    uint32_t w = (uint32_t)(wide ? floor(target * picture->w / picture->h) : target);
    uint32_t h = (uint32_t)(wide ? target : floor(target * picture->h / picture->w));
    double *resized = resize_whole(picture, w, h);
    uint32_t left = (uint32_t)rint((w - side) / 2.0), top = (uint32_t)rint((h - side) / 2.0);
    for (uint32_t y = 0; y < side; y++) {
        for (uint32_t i = 0; i < side * 3; i++) {
            double expected = resized[((size_t)(top + y) * w + left) * 3 + i];
            worst = fmax(worst, fabs(expected - sample[(size_t)y * side * 3 + i]));
        }
    }
    free(resized);
    return worst;
}

static void check_test_image(uint32_t w, uint32_t h, uint32_t side, double ratio)
{
    char set[64], text[64];
    snprintf(set, sizeof set, "eval-%u-%u-%u", w, h, side);
    snprintf(text, sizeof text, "data.eval_ratio=%.17g", ratio);
    make_set_of(set, picture_plain(8, 8, 0, 0, 0), plain_form);
    put(set, "val/a/1.jpg", picture_gradient(w, h), (struct jpeg_form){.quality = 100});
    char path[128];
    snprintf(path, sizeof path, "%s/val/a/1.jpg", set);
    struct picture picture = jpeg_decode(path);
    struct dpb_data_request request = request_of(side);
    static const char *const decodes[] = {"data.decode=full", "data.decode=scaled"};
    for (int i = 0; i < 2; i++) {
        struct source source = open_set(set, &request, (const char *const[4]){decodes[i], text});
        uint8_t *sample = malloc((size_t)side * side * 3);
        int32_t label;
        fetch(&source, DPB_TEST, 5, 0, sample, &label);
        double worst = worst_difference(&picture, side, ratio, sample);
        /* Scaled decoding is another filter: smooth parts agree, the edges of the waves less. */
        if (worst > (i == 0 ? 1.0 : 12.0))
            fail_msg("%s, %s: off by %g", set, decodes[i], worst);
        free(sample);
        source_close(&source);
    }
    free(picture.pixels);
}

TEST(test_test_images_are_central)
{
    check_test_image(100, 75, 32, 0.875);
    check_test_image(75, 100, 32, 0.875);
    check_test_image(500, 375, 224, 0.875);
    check_test_image(333, 501, 96, 0.875);
    check_test_image(256, 256, 224, 0.875);
    check_test_image(20, 31, 64, 0.875); /* made larger */
    check_test_image(640, 480, 32, 1);
    check_test_image(1, 1, 8, 0.875);
    check_test_image(3, 500, 8, 0.5);
}

/* At full scale a part that is decoded alone has the pixels that it has in the whole. */
TEST(test_a_part_is_decoded_as_in_the_whole)
{
    static const struct jpeg_form forms[] = {
        {0, false, 1, 1}, {0, false, 2, 1}, {0, false, 1, 2}, {0, false, 2, 2},
        {0, false, 4, 1}, {0, true, 1, 1},  {0, true, 2, 2},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char set[32];
        snprintf(set, sizeof set, "part-%zu", i);
        make_set_of(set, picture_gradient(125, 117), forms[i]);
        struct dpb_data_request request = request_of(SIDE); /* more than half: at full scale */
        struct source scaled =
            open_set(set, &request, (const char *const[4]){"data.decode=scaled"});
        struct source full = open_set(set, &request, (const char *const[4]){"data.decode=full"});
        for (uint64_t epoch = 0; epoch < 200; epoch++) {
            uint8_t a[BYTES], b[BYTES];
            int32_t label;
            fetch(&scaled, DPB_TRAIN, epoch, 0, a, &label);
            fetch(&full, DPB_TRAIN, epoch, 0, b, &label);
            if (memcmp(a, b, BYTES) != 0)
                fail_msg("form %zu, epoch %d: a part differs from the whole", i, (int)epoch);
        }
        source_close(&scaled);
        source_close(&full);
    }
}

/* Grey and CMYK (as libjpeg writes it: without Adobe's marker, so 0 is no ink) become RGB. */
TEST(test_other_colours)
{
    struct picture grey = picture_create(40, 40, 1), ink = picture_create(40, 40, 4);
    for (size_t i = 0; i < 40 * 40; i++) {
        grey.pixels[i] = 77;
        memcpy(ink.pixels + 4 * i, (const uint8_t[]){255, 55, 155, 255}, 4);
    }
    make_set_of("grey", grey, plain_form);
    put("grey", "train/b/1.jpg", ink, plain_form);
    struct dpb_data_request request = request_of(16);
    struct source source = open_set("grey", &request, NULL);
    static const uint8_t expected[2][3] = {{77, 77, 77}, {255, 55, 155}};
    for (uint64_t i = 0; i < 2; i++) {
        uint8_t sample[16 * 16 * 3];
        int32_t label;
        fetch(&source, DPB_TRAIN, 0, i, sample, &label);
        for (size_t k = 0; k < sizeof sample; k++)
            assert_in_range(sample[k], expected[i][k % 3] - (expected[i][k % 3] > 2 ? 2 : 0),
                            expected[i][k % 3] + 2);
    }
    source_close(&source);
}

/* ---- crops --------------------------------------------------------------------------------- */

/* Of the picture_gradient: where the sample's left and right, upper and lower ends came from. */
struct found {
    double area, aspect; /* area: share */
    bool flip;
};

static struct found find_crop(const uint8_t *sample, uint32_t side, uint32_t w, uint32_t h)
{
    size_t middle = side / 2;
    double left = sample[middle * side * 3], right = sample[(middle * side + side - 1) * 3];
    double upper = sample[middle * 3 + 1], lower = sample[((side - 1) * side + middle) * 3 + 1];
    double stretch = (double)side / (side - 1); /* from centres of pixels to their edges */
    double box_w = fabs(right - left) / 255 * (w - 1) * stretch;
    double box_h = (lower - upper) / 255 * (h - 1) * stretch;
    return (struct found){box_w * box_h / ((double)w * h), box_w / box_h, left > right};
}

TEST(test_crops_are_spread_as_promised)
{
    enum { N = 2000, W = 300, H = 300 };
    make_set_of("crops", picture_gradient(W, H), plain_form);
    struct dpb_data_request request = request_of(32);
    struct source source = open_set("crops", &request, NULL);
    double areas = 0, logs = 0, least = 1, most = 0;
    int flips = 0, small = 0;
    for (uint64_t epoch = 0; epoch < N; epoch++) {
        uint8_t sample[32 * 32 * 3];
        int32_t label;
        fetch(&source, DPB_TRAIN, epoch, 0, sample, &label);
        struct found found = find_crop(sample, 32, W, H);
        assert_true(found.area > 0.08 * 0.9 && found.area < 1.03);
        assert_true(found.aspect > 0.75 * 0.92 && found.aspect < 4.0 / 3 * 1.08);
        areas += found.area;
        logs += log(found.aspect);
        flips += found.flip;
        small += found.area < 0.31; /* a quarter of the range */
        least = fmin(least, found.area);
        most = fmax(most, found.area);
    }
    source_close(&source);
    /* Large parts of odd aspect do not fit: a mean of 0.48 rather than 0.54. */
    if (areas / N < 0.44 || areas / N > 0.52)
        fail_msg("mean area %g", areas / N);
    assert_true(fabs(logs / N) < 0.02);
    assert_in_range(flips, N / 2 - 100, N / 2 + 100); /* 4.5 deviations */
    assert_in_range(small, N * 22 / 100, N * 34 / 100);
    assert_true(least < 0.1 && most > 0.9);
}

TEST(test_ranges_are_the_users)
{
    make_set_of("ranges", picture_gradient(200, 100), plain_form);
    struct dpb_data_request request = request_of(32);
    static const char *const options[4] = {"data.area_min=0.25", "data.area_max=0.25",
                                           "data.flip=1", "data.aspect_min=1.3"};
    struct source source = open_set("ranges", &request, options);
    uint8_t sample[32 * 32 * 3];
    int32_t label;
    for (uint64_t epoch = 0; epoch < 100; epoch++) {
        fetch(&source, DPB_TRAIN, epoch, 0, sample, &label);
        struct found found = find_crop(sample, 32, 200, 100);
        assert_true(found.flip && fabs(found.area - 0.25) < 0.02);
        assert_true(found.aspect > 1.3 * 0.93 && found.aspect < 4.0 / 3 * 1.07);
    }
    source_close(&source);

    source = open_set("ranges", &request,
                      (const char *const[4]){"data.area_min=0.25", "data.area_max=0.25",
                                             "data.flip=0", "data.aspect_max=0.8"});
    for (uint64_t epoch = 0; epoch < 100; epoch++) {
        fetch(&source, DPB_TRAIN, epoch, 0, sample, &label);
        struct found found = find_crop(sample, 32, 200, 100);
        assert_true(!found.flip && found.aspect > 0.75 * 0.93 && found.aspect < 0.8 * 1.07);
    }
    source_close(&source);

    /* No tenth of this one is square enough: the middle, as wide as may be. */
    make_set_of("long", picture_gradient(900, 30), plain_form);
    source = open_set("long", &request, (const char *const[4]){"data.flip=0", "data.area_min=0.9"});
    uint8_t again[sizeof sample];
    fetch(&source, DPB_TRAIN, 0, 0, sample, &label);
    fetch(&source, DPB_TRAIN, 1, 0, again, &label);
    assert_memory_equal(sample, again, sizeof sample);
    struct found found = find_crop(sample, 32, 900, 30);
    assert_true(fabs(found.aspect - 40.0 / 30) < 0.2);
    assert_in_range(sample[16 * 32 * 3 + 16 * 3], 126, 130);
    source_close(&source);
}

/* ---- the same bytes ------------------------------------------------------------------------ */

enum { IMAGES = 24 /* in training */ };

/* Different sizes, forms and colours. */
static void make_mixed_set(const char *set)
{
    make_set(set);
    for (uint32_t i = 0; i < IMAGES + 6; i++) {
        char name[64];
        bool train = i < IMAGES;
        snprintf(name, sizeof name, "%s/%s/%02u.jpg", train ? "train" : "val", i % 3 ? "a" : "b",
                 i);
        put(set, name, picture_gradient(40 + 37 * (i % 7), 300 - 23 * (i % 11)),
            (struct jpeg_form){(int)(70 + i), i % 4 == 0, 1 + (int)i % 2, 1 + (int)(i / 2) % 2});
    }
}

struct fetched {
    uint8_t samples[IMAGES][BYTES];
    int32_t labels[IMAGES];
};

struct helper {
    const struct source *source;
    struct fetched *fetched;
    uint64_t epoch, first, step;
};

static void *help(void *argument)
{
    struct helper *helper = argument;
    for (uint64_t i = helper->first; i < IMAGES; i += helper->step) {
        uint64_t index = IMAGES - 1 - i;
        helper->source->ops->fetch(helper->source->handle, DPB_TRAIN, helper->epoch, &index, 1,
                                   helper->fetched->samples[index],
                                   &helper->fetched->labels[index]);
    }
    return NULL;
}

static void fetch_by_threads(const struct source *source, uint64_t epoch, uint64_t n,
                             struct fetched *fetched)
{
    pthread_t threads[4];
    struct helper helpers[4];
    for (uint64_t i = 0; i < n; i++) {
        helpers[i] = (struct helper){source, fetched, epoch, i, n};
        assert_int_equal(pthread_create(&threads[i], NULL, help, &helpers[i]), 0);
    }
    for (uint64_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

static void fetch_in_one(const struct source *source, uint64_t epoch, struct fetched *fetched)
{
    uint64_t indices[IMAGES];
    for (uint64_t i = 0; i < IMAGES; i++)
        indices[i] = i;
    if (source->ops->fetch(source->handle, DPB_TRAIN, epoch, indices, IMAGES, fetched->samples,
                           fetched->labels) != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
}

static struct fetched expected, actual;

TEST(test_threads_and_order_do_not_matter)
{
    make_mixed_set("same");
    struct dpb_data_request request = request_of(SIDE), other = request;
    other.seed = 8;
    size_t before = allocated_bytes;
    struct source source = open_set("same", &request, NULL);
    struct source other_seed = open_set("same", &other, NULL);
    fetch_in_one(&source, 3, &expected);
    for (uint64_t n = 1; n <= 4; n++) {
        memset(&actual, 0, sizeof actual);
        fetch_by_threads(&source, 3, n, &actual);
        assert_memory_equal(&actual, &expected, sizeof expected);
    }
    fetch_in_one(&other_seed, 3, &actual);
    for (int i = 0; i < IMAGES; i++)
        assert_memory_not_equal(actual.samples[i], expected.samples[i], BYTES);
    fetch_in_one(&source, 4, &actual);
    for (int i = 0; i < IMAGES; i++)
        assert_memory_not_equal(actual.samples[i], expected.samples[i], BYTES);

    /* A test image is the same in every epoch. */
    uint8_t a[BYTES], b[BYTES];
    int32_t label;
    fetch(&source, DPB_TEST, 0, 2, a, &label);
    fetch(&source, DPB_TEST, 1, 2, b, &label);
    assert_memory_equal(a, b, BYTES);
    source_close(&source);
    source_close(&other_seed);
    assert_int_equal(allocated_bytes, before);
}

/* Fetching allocates while buffers grow, then no more. */
TEST(test_memory_settles)
{
    struct dpb_data_request request = request_of(SIDE);
    struct source source = open_set("same", &request, NULL);
    for (uint64_t epoch = 0; epoch < 20; epoch++)
        fetch_in_one(&source, epoch, &actual);
    size_t settled = allocated_bytes;
    for (uint64_t epoch = 0; epoch < 20; epoch++)
        fetch_in_one(&source, epoch, &actual);
    assert_int_equal(allocated_bytes, settled);
    source_close(&source);
}

static uint64_t bytes_of_files(const char *set, const char *split)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < IMAGES + 6; i++) {
        char path[256];
        struct stat status;
        snprintf(path, sizeof path, "%s/%s/%s/%02u.jpg", set, split, i % 3 ? "a" : "b", i);
        if (stat(path, &status) == 0)
            sum += (uint64_t)status.st_size;
    }
    return sum;
}

TEST(test_kept_files_are_the_same)
{
    static const char *const memory[4] = {"data.preload=memory"};
    static const char *const file[4] = {"data.preload=file", "data.shard_file=same.pack"};
    struct dpb_data_request request = request_of(SIDE);
    struct source plain = open_set("same", &request, NULL);
    fetch_in_one(&plain, 1, &expected);
    struct dpb_data_counts counts;
    plain.ops->count(plain.handle, &counts);
    uint64_t train_bytes = bytes_of_files("same", "train");
    assert_int_equal(counts.bytes_read, train_bytes);
    assert_int_equal(counts.skipped, 0);
    assert_true(counts.bytes_decoded > train_bytes);
    for (int i = 0; i < 3; i++) { /* 1 makes the pack, 2 finds it */
        struct source kept = open_set("same", &request, i == 0 ? memory : file);
        fetch_in_one(&kept, 1, &actual);
        assert_memory_equal(&actual, &expected, sizeof expected);
        uint8_t a[BYTES], b[BYTES];
        int32_t label;
        fetch(&plain, DPB_TEST, 0, 5, a, &label);
        fetch(&kept, DPB_TEST, 0, 5, b, &label);
        assert_memory_equal(a, b, BYTES);
        kept.ops->count(kept.handle, &counts);
        if (i == 0) /* all once at the start, none since */
            assert_int_equal(counts.bytes_read, train_bytes + bytes_of_files("same", "val"));
        source_close(&kept);
    }
    assert_int_equal(access("same.pack.part", F_OK), -1);
    source_close(&plain);
}

/* What lies in the place of NAME.part is not written to: a link is refused, a file that a process
 * left is put away. */
TEST(test_part_is_made_anew)
{
    static const char *const file[4] = {"data.preload=file", "data.shard_file=linked.pack"};
    struct dpb_data_request request = request_of(SIDE);
    struct stat info;
    FILE *victim = fopen("victim", "w");
    assert_non_null(victim);
    fputs("precious", victim);
    assert_int_equal(fclose(victim), 0);
    assert_int_equal(symlink("victim", "linked.pack.part"), 0);
    const char *const assignments[] = {"data.path=same", file[0], file[1], NULL};
    struct source source;
    assert_int_equal(source_open("image_folder", &request, assignments, &source), DPB_IO);
    source_close(&source);
    dpb_first_error_clear();
    assert_true(stat("victim", &info) == 0 && info.st_size == 8);
    unlink("linked.pack.part");
    assert_int_equal(link("victim", "linked.pack.part"), 0);
    source = open_set("same", &request, file);
    source_close(&source);
    assert_true(stat("victim", &info) == 0 && info.st_size == 8);
    assert_int_equal(access("linked.pack.part", F_OK), -1);
    unlink("linked.pack");
    unlink("victim");
}

/* Another process may remove NAME.part at any moment, without leaving a pack. */
TEST(test_part_vanishes)
{
    static const char *const file[4] = {"data.preload=file", "data.shard_file=alone.pack"};
    struct dpb_data_request request = request_of(SIDE);
    FILE *part = fopen("alone.pack.part", "w");
    assert_non_null(part);
    assert_int_equal(fclose(part), 0);
    part_vanishes = true;
    struct source source = open_set("same", &request, file);
    assert_false(part_vanishes);
    source_close(&source);
    unlink("alone.pack");
}

static void make_part(time_t age_s)
{
    const struct timespec times[2] = {{.tv_sec = time(NULL) - age_s},
                                      {.tv_sec = time(NULL) - age_s}};
    FILE *part = fopen("free.pack.part", "w");
    assert_non_null(part);
    assert_int_equal(fclose(part), 0);
    assert_int_equal(utimensat(AT_FDCWD, "free.pack.part", times, 0), 0);
}

/* The first process packs, a second waits until NAME.part is gone, and a file that was left is
 * named. */
TEST(test_without_locks)
{
    static const char *const file[4] = {"data.preload=file", "data.shard_file=free.pack"};
    struct dpb_data_request request = request_of(SIDE);
    const char *const assignments[] = {"data.path=same", file[0], file[1], NULL};
    no_locks = true;
    make_part(0);
    const pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        _exit(unlink("free.pack.part") != 0);
    }
    struct source source = open_set("same", &request, file);
    source_close(&source);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(access("free.pack", F_OK), 0);
    assert_int_equal(access("free.pack.part", F_OK), -1);
    unlink("free.pack");
    make_part(3600);
    assert_int_equal(source_open("image_folder", &request, assignments, &source), DPB_IO);
    expect_part(dpb_first_error(NULL), "free.pack.part: the process that writes it has written");
    source_close(&source);
    dpb_first_error_clear();
    unlink("free.pack.part");
    no_locks = false;
}

/* Files, memory that is filled from them, and packs, which lie between the blocks of a disk. */
TEST(test_direct_reads)
{
    static const char *const ways[][4] = {
        {"data.direct=yes"},
        {"data.direct=yes", "data.preload=memory"},
        {"data.direct=yes", "data.preload=file", "data.shard_file=direct.pack"}};
    struct dpb_data_request request = request_of(SIDE);
    const int fd = openat(AT_FDCWD, "same/train/b/00.jpg", O_RDONLY | O_DIRECT);
    if (fd < 0)
        skip(); /* the tests' directory is on such a file system */
    close(fd);
    struct source plain = open_set("same", &request, NULL), source;
    fetch_in_one(&plain, 1, &expected);
    for (int i = 0; i < 3; i++) {
        n_direct = 0;
        source = open_set("same", &request, ways[i]);
        fetch_in_one(&source, 1, &actual);
        assert_memory_equal(&actual, &expected, sizeof expected);
        assert_in_range(n_direct, i == 2 ? 1 : IMAGES, 2 * IMAGES);
        source_close(&source);
    }
    no_direct = true;
    const char *const assignments[] = {"data.path=same", "data.direct=yes", NULL};
    assert_int_equal(source_open("image_folder", &request, assignments, &source), DPB_UNSUPPORTED);
    expect_part(dpb_first_error(NULL), "data.direct = yes, and this file system has no direct");
    source_close(&source);
    dpb_first_error_clear();
    no_direct = false;
    source_close(&plain);
    unlink("direct.pack");
}

static uint64_t bytes_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return (uint64_t)status.st_size;
}

/* Each of three ranks packs its training images, and reads them back. */
TEST(test_own_shards)
{
    static const char *const ways[4] = {"data.preload=shard", "data.shard_file=own"};
    struct dpb_data_request request = request_of(SIDE);
    struct source plain = open_set("same", &request, NULL), source;
    uint8_t sample[BYTES], other[BYTES];
    int32_t label;
    uint64_t sum = 0;
    fetch_in_one(&plain, 2, &expected);
    fetch(&plain, DPB_TEST, 0, 4, other, &label);
    for (uint32_t rank = 0; rank < 6; rank++) { /* the second three find them */
        struct dpb_data_counts counts;
        char path[32];
        request.rank = rank % 3;
        request.n_workers = 3;
        request.sharded = true;
        source = open_set("same", &request, ways);
        for (uint64_t i = request.rank; i < IMAGES; i += 3) {
            fetch(&source, DPB_TRAIN, 2, i, sample, &label);
            assert_memory_equal(sample, expected.samples[i], BYTES);
        }
        source.ops->count(source.handle, &counts);
        snprintf(path, sizeof path, "own.%u-of-3", request.rank);
        sum += counts.bytes_read;
        assert_true(bytes_of(path) > counts.bytes_read);
        fetch(&source, DPB_TEST, 0, 4, sample, &label); /* where it lies */
        assert_memory_equal(sample, other, BYTES);
        source_close(&source);
    }
    assert_int_equal(sum, 2 * bytes_of_files("same", "train"));
    assert_int_equal(rename("own.0-of-3", "own.1-of-3"), 0);
    request.rank = 1;
    const char *const assignments[] = {"data.path=same", ways[0], ways[1], NULL};
    assert_int_equal(source_open("image_folder", &request, assignments, &source), DPB_DATA);
    expect_part(dpb_first_error(NULL), "own.1-of-3: it has the images of another worker");
    source_close(&source);
    dpb_first_error_clear();
    source_close(&plain);
}

/* A rank of three keeps its third, and gives what one that keeps all gives. */
TEST(test_a_shard_keeps_its_part)
{
    static const char *const memory[4] = {"data.preload=memory"};
    struct dpb_data_request request = request_of(SIDE);
    struct source plain = open_set("same", &request, NULL);
    fetch_in_one(&plain, 2, &expected);
    uint64_t test_bytes = bytes_of_files("same", "val"), sum = 0;
    for (uint32_t rank = 0; rank < 3; rank++) {
        request.rank = rank;
        request.n_workers = 3;
        request.sharded = true;
        struct source shard = open_set("same", &request, memory);
        struct dpb_data_counts counts;
        shard.ops->count(shard.handle, &counts);
        sum += counts.bytes_read - test_bytes;
        for (uint64_t i = rank; i < IMAGES; i += 3) {
            uint8_t sample[BYTES];
            int32_t label;
            fetch(&shard, DPB_TRAIN, 2, i, sample, &label);
            assert_memory_equal(sample, expected.samples[i], BYTES);
        }
        source_close(&shard);
    }
    assert_int_equal(sum, bytes_of_files("same", "train"));
    source_close(&plain);

    /* Who fetches nothing keeps nothing. */
    request.info_only = true;
    size_t before = allocated_bytes;
    struct source server = open_set("same", &request, memory);
    assert_int_equal(server.info.n_samples[DPB_TRAIN], IMAGES);
    assert_true(allocated_bytes - before < 100000);
    source_close(&server);
}

int main(void)
{
    dpb_log_set_hooks(&(struct dpb_log_hooks){.silent = true});
    dpb_log_set_level(DPB_LOG_WARNING);
    return test_main(sandbox_setup, sandbox_teardown);
}
