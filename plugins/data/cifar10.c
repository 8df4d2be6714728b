/*
 * cifar10 - CIFAR-10 in its binary version: data_batch_1.bin to data_batch_5.bin and
 * test_batch.bin, 10,000 records each. A record is a label of one byte and an image of 3 x 32 x 32:
 * all of red row by row, then green, then blue.
 *
 * All files are read and checked in open, then held in memory as they are: fetch is a copy, or,
 * with `augment = crop_flip`, a copy of a window and perhaps its mirror image. Samples are uint8,
 * normalised to mean 0 and standard deviation 1 a channel over the training set.
 *
 * Krizhevsky: Learning multiple layers of features from tiny images. 2009.
 * He, Zhang, Ren, Sun: Deep residual learning for image recognition. CVPR 2016, section 4.2 (the
 * augmentation).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpbench/plugin.h"
#include "dpbench/random.h"
#include "moments.h"

enum { SIDE = 32, CHANNELS = 3, PLANE = SIDE * SIDE, IMAGE_BYTES = CHANNELS * PLANE };
enum { RECORD_BYTES = 1 + IMAGE_BYTES, CLASSES = 10, TRAIN_FILES = 5, PATH_BYTES = 4096 };
enum { TRAIN_SAMPLES = 50000, TEST_SAMPLES = 10000 }; /* of the whole set */

/* Of crop_flip: pixels added at each side, and how many places a window then has each way. */
enum { PAD = 4, PLACES = 2 * PAD + 1 };

#define WHERE_FROM                                                              \
    "the binary version of CIFAR-10: data_batch_1.bin to data_batch_5.bin and " \
    "test_batch.bin, unpacked from cifar-10-binary.tar.gz of "                  \
    "https://www.cs.toronto.edu/~kriz/cifar.html"

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

enum { AUGMENT_NONE, AUGMENT_CROP_FLIP };

struct options {
    const char *path;
    int augment;
};

static const char *const augments[] = {"none", "crop_flip", NULL};

static const struct dpb_option option_table[] = {
    {"path", DPB_OPT_STRING, NULL, "", 0, 0, NULL, offsetof(struct options, path),
     "Directory with data_batch_1.bin to data_batch_5.bin and test_batch.bin."},
    {"augment", DPB_OPT_CHOICE, NULL, "none", 0, 0, augments, offsetof(struct options, augment),
     "Of training samples; crop_flip: 4 pixels of the mean colour added at each side, a random "
     "window of 32 x 32 out of that, mirrored half of the time."},
    {NULL, DPB_OPT_STRING, NULL, NULL, 0, 0, NULL, 0, NULL}};

/* ---- state --------------------------------------------------------------------------------- */

struct file {
    uint8_t *records; /* n of them, @owned; NULL: not there */
    uint64_t n;
};

struct cifar10 {
    struct file files[TRAIN_FILES + 1]; /* the last one is the test set's */
    uint64_t seed;
    bool crops;                /* augment = crop_flip */
    uint8_t padding[CHANNELS]; /* what comes nearest to the mean: 0 for the network */
};

static const char *name_of(int file)
{
    static const char *const names[TRAIN_FILES + 1] = {"data_batch_1.bin", "data_batch_2.bin",
                                                       "data_batch_3.bin", "data_batch_4.bin",
                                                       "data_batch_5.bin", "test_batch.bin"};
    return names[file];
}

static const uint8_t *record_of(const struct cifar10 *source, dpb_split split, uint64_t sample)
{
    const struct file *file = &source->files[split == DPB_TEST ? TRAIN_FILES : 0];
    for (; sample >= file->n; file++)
        sample -= file->n;
    return file->records + sample * RECORD_BYTES;
}

/* ---- reading ------------------------------------------------------------------------------- */

static bool is_there(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    struct stat status;
    return snprintf(path, sizeof path, "%s/%s", directory, name) < PATH_BYTES &&
           stat(path, &status) == 0;
}

/* The first or the last file is missing: what is there instead? */
static dpb_status refuse_missing(const char *directory, const char *name)
{
    if (is_there(directory, "data_batch_1"))
        return host->fail(DPB_DATA,
                          "%s: data_batch_1 without .bin is the Python version of CIFAR-10, which "
                          "is not read here; get " WHERE_FROM,
                          directory);
    if (is_there(directory, "cifar-10-batches-bin"))
        return host->fail(DPB_DATA,
                          "%s: there is no %s, but a directory cifar-10-batches-bin: "
                          "data.path=%s/cifar-10-batches-bin",
                          directory, name, directory);
    return host->fail(DPB_DATA,
                      "%s: there is no %s in it; data.path must be a directory with " WHERE_FROM,
                      directory, name);
}

/* The bytes that are no multiple of a record: what else could the file be? */
static dpb_status refuse_size(const char *path, const uint8_t first[2], uint64_t bytes)
{
    bool gzipped = first[0] == 0x1f && first[1] == 0x8b;
    bool pickle = first[0] == 0x80 && first[1] >= 2 && first[1] <= 5;
    return host->fail(DPB_DATA,
                      "%s: expected records of %d bytes (a label and 3 x 32 x 32), found %" PRIu64
                      " bytes, %" PRIu64 " records and %" PRIu64 " bytes: %s",
                      path, RECORD_BYTES, bytes, bytes / RECORD_BYTES, bytes % RECORD_BYTES,
                      gzipped  ? "it is gzipped, unpack it"
                      : pickle ? "it is a pickle of the Python version, get the binary one"
                      : bytes  ? "the file is truncated or damaged, get it again"
                               : "the file is empty");
}

/* `n` bytes, all there are. */
static dpb_status read_bytes(int fd, const char *path, uint8_t *to, uint64_t n)
{
    uint64_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, to + done, (size_t)(n - done), (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return host->fail(DPB_IO, "%s: byte %" PRIu64 ": cannot be read: %s", path, done,
                              strerror(errno));
        if (got == 0)
            return host->fail(DPB_DATA,
                              "%s: byte %" PRIu64 ": expected %" PRIu64
                              " more bytes, found the end: the file became shorter while it was "
                              "read",
                              path, done, n - done);
        done += (uint64_t)got;
    }
    return DPB_OK;
}

static dpb_status check_labels(const struct file *file, const char *path)
{
    for (uint64_t i = 0; i < file->n; i++) {
        uint8_t label = file->records[i * RECORD_BYTES];
        if (label >= CLASSES)
            return host->fail(DPB_DATA,
                              "%s: byte %" PRIu64 ": expected a label from 0 to %d, found %u: the "
                              "file is damaged or not of CIFAR-10",
                              path, i * RECORD_BYTES, CLASSES - 1, label);
    }
    return DPB_OK;
}

/* What is decoded is released by the owner of `file` also after a failure. */
static dpb_status read_records(int fd, const char *path, struct file *file)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return host->fail(DPB_DATA, "%s: is not a regular file", path);
    uint64_t bytes = (uint64_t)status.st_size;
    if (bytes == 0 || bytes % RECORD_BYTES != 0) {
        uint8_t first[2] = {0};
        DPB_TRY(read_bytes(fd, path, first, bytes < 2 ? bytes : 2));
        return refuse_size(path, first, bytes);
    }
    file->records = host->alloc((size_t)bytes);
    if (!file->records)
        return DPB_NO_MEMORY;
    file->n = bytes / RECORD_BYTES;
    DPB_TRY(read_bytes(fd, path, file->records, bytes));
    return check_labels(file, path);
}

/* The first and the last file have to be there; the others make a subset if they are not. */
static dpb_status read_file(const char *directory, int number, struct file *file)
{
    char path[PATH_BYTES];
    const char *name = name_of(number);
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= PATH_BYTES)
        return host->fail(DPB_USAGE, "data.path is longer than %d bytes", PATH_BYTES - 32);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return number == 0 || number == TRAIN_FILES ? refuse_missing(directory, name) : DPB_OK;
    if (fd < 0)
        return host->fail(DPB_DATA, "%s: cannot be opened: %s", path, strerror(errno));
    dpb_status status = read_records(fd, path, file);
    close(fd);
    return status;
}

/* ---- the set ------------------------------------------------------------------------------- */

static dpb_status check_path(const char *path)
{
    struct stat status;
    if (path[0] == '\0')
        return host->fail(DPB_USAGE,
                          "data 'cifar10' needs data.path, a directory with " WHERE_FROM);
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return DPB_OK;
    return host->fail(DPB_DATA,
                      "%s: there is no such directory; data.path wants one with " WHERE_FROM, path);
}

static dpb_status normalise(struct cifar10 *source, const char *directory,
                            struct dpb_sample_format *format)
{
    struct moments moments[CHANNELS] = {{0}};
    for (int f = 0; f < TRAIN_FILES; f++)
        for (uint64_t i = 0; i < source->files[f].n; i++)
            for (int c = 0; c < CHANNELS; c++)
                moments_add(&moments[c],
                            source->files[f].records + i * RECORD_BYTES + 1 + c * PLANE, PLANE);
    for (int c = 0; c < CHANNELS; c++) {
        static const char *const names[CHANNELS] = {"red", "green", "blue"};
        double mean = moments_mean(&moments[c]);
        if (!moments_normalise(&moments[c], &format->scale[c], &format->offset[c]))
            return host->fail(DPB_DATA,
                              "%s: expected different pixels, found %.0f for %s in all training "
                              "images: there is nothing to learn",
                              directory, mean, names[c]);
        source->padding[c] = (uint8_t)lround(mean);
    }
    return DPB_OK;
}

static void warn_of_subset(const struct cifar10 *source, const char *directory,
                           const uint64_t n_samples[2])
{
    char missing[TRAIN_FILES * 24] = "";
    size_t length = 0;
    if (n_samples[DPB_TRAIN] == TRAIN_SAMPLES && n_samples[DPB_TEST] == TEST_SAMPLES)
        return;
    for (int f = 0; f < TRAIN_FILES; f++)
        if (!source->files[f].records)
            length += (size_t)snprintf(missing + length, sizeof missing - length, "%s%s",
                                       length ? ", " : ": there is no ", name_of(f));
    host->warn(
        "subset",
        "%s has %" PRIu64 " training and %" PRIu64 " test samples, not CIFAR-10's %d and %d%s",
        directory, n_samples[DPB_TRAIN], n_samples[DPB_TEST], TRAIN_SAMPLES, TEST_SAMPLES, missing);
}

static dpb_status read_all(struct cifar10 *source, const char *directory,
                           struct dpb_data_info *info)
{
    *info = (struct dpb_data_info){
        .format = {.shape = {CHANNELS, SIDE, SIDE}, .type = DPB_UINT8, .order = DPB_CHW},
        .nclass = CLASSES};
    DPB_TRY(check_path(directory));
    for (int f = 0; f <= TRAIN_FILES; f++) {
        DPB_TRY(read_file(directory, f, &source->files[f]));
        info->n_samples[f == TRAIN_FILES ? DPB_TEST : DPB_TRAIN] += source->files[f].n;
    }
    DPB_TRY(normalise(source, directory, &info->format));
    warn_of_subset(source, directory, info->n_samples);
    return DPB_OK;
}

/* ---- augmentation -------------------------------------------------------------------------- */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The window that lies `right` and `down` of the image's own place, mirrored or not. */
static void crop(const uint8_t *image, const uint8_t padding[CHANNELS], int right, int down,
                 bool mirrored, uint8_t *to)
{
    int x0 = -least(0, right), x1 = least(SIDE, SIDE - right); /* of the window, in the image */
    int y0 = -least(0, down), y1 = least(SIDE, SIDE - down);
    for (int c = 0; c < CHANNELS; c++) {
        memset(to + c * PLANE, padding[c], PLANE);
        for (int y = y0; y < y1; y++) {
            const uint8_t *from = image + c * PLANE + (y + down) * SIDE + right;
            uint8_t *row = to + c * PLANE + y * SIDE;
            for (int x = x0; x < x1; x++)
                row[mirrored ? SIDE - 1 - x : x] = from[x];
        }
    }
}

static void crop_at_random(const struct cifar10 *source, uint64_t epoch, uint64_t sample,
                           const uint8_t *image, uint8_t *to)
{
    struct dpb_random4 r =
        dpb_random(source->seed, DPB_STREAM_AUGMENT, (uint32_t)sample, (uint32_t)epoch, 0, 0);
    int right = (int)((uint64_t)r.v[0] * PLACES >> 32) - PAD;
    int down = (int)((uint64_t)r.v[1] * PLACES >> 32) - PAD;
    crop(image, source->padding, right, down, r.v[2] >> 31, to);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static void release_files(struct cifar10 *source)
{
    for (int f = 0; f <= TRAIN_FILES; f++) {
        host->release(source->files[f].records, (size_t)(source->files[f].n * RECORD_BYTES));
        source->files[f].records = NULL;
    }
}

static void cifar10_close(void *handle)
{
    struct cifar10 *source = handle;
    if (!source)
        return;
    release_files(source);
    host->release(source, sizeof *source);
}

static dpb_status cifar10_open(const void *given, const struct dpb_data_request *request,
                               void **handle, struct dpb_data_info *info)
{
    const struct options *options = given;
    struct cifar10 *source = host->alloc(sizeof *source);
    if (!source)
        return DPB_NO_MEMORY;
    source->seed = request->seed;
    source->crops = options->augment == AUGMENT_CROP_FLIP;
    struct dpb_data_info found;
    dpb_status status = read_all(source, options->path, &found);
    if (status != DPB_OK) {
        cifar10_close(source);
        return status;
    }
    if (request->info_only)
        release_files(source);
    *handle = source;
    *info = found;
    return DPB_OK;
}

static dpb_status cifar10_fetch(void *handle, dpb_split split, uint64_t epoch,
                                const uint64_t *indices, uint32_t n, void *samples, int32_t *labels)
{
    const struct cifar10 *source = handle;
    uint8_t *to = samples;
    for (uint32_t i = 0; i < n; i++, to += IMAGE_BYTES) {
        const uint8_t *record = record_of(source, split, indices[i]);
        labels[i] = record[0];
        if (source->crops && split == DPB_TRAIN)
            crop_at_random(source, epoch, indices[i], record + 1, to);
        else
            memcpy(to, record + 1, IMAGE_BYTES);
    }
    return DPB_OK;
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops cifar10_ops = {
    .open = cifar10_open, .fetch = cifar10_fetch, .close = cifar10_close};

static const struct dpb_plugin cifar10_plugin = {
    DPB_PLUGIN_HEAD(DATA, cifar10_ops),
    .name = "cifar10",
    .version = "1",
    .summary = "CIFAR-10 from the files of its binary version",
    .options = option_table,
    .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &cifar10_plugin;
}
