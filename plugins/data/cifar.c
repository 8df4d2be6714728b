/*
 * cifar - CIFAR-10 and CIFAR-100 in their binary versions: data_batch_1.bin to data_batch_5.bin and
 * test_batch.bin, 10,000 records each, or train.bin and test.bin, 50,000 and 10,000. A record is a
 * label of one byte (CIFAR-100: of the coarse classes, then of the 100 fine ones, which count) and
 * an image of 3 x 32 x 32: all of red row by row, then green, then blue.
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
#include "lib/files/read_at.h"

enum { SIDE = 32, CHANNELS = 3, PLANE = SIDE * SIDE, IMAGE_BYTES = CHANNELS * PLANE };
enum { MOST_FILES = 6, PATH_BYTES = 4096 };
enum { TRAIN_SAMPLES = 50000, TEST_SAMPLES = 10000 }; /* of a whole set */

/* crop_flip adds PAD pixels at each side; a window then has PLACES places each way. */
enum { PAD = 4, PLACES = 2 * PAD + 1 };

static const struct dpb_host *host;

/* ---- the two sets -------------------------------------------------------------------------- */

struct set {
    const char *name, *title;
    const char *files[MOST_FILES]; /* the last of n_files is the test set's */
    int n_files;
    int label_bytes; /* before an image; the last of them counts */
    uint32_t classes;
    const char *python;   /* a file that the Python version has in the place of files[0] */
    const char *unpacked; /* the directory that unpacking makes */
    const char *where;    /* the archive to get, in messages */
};

#define UNPACKED_FROM(ARCHIVE) \
    ", unpacked from " ARCHIVE " of https://www.cs.toronto.edu/~kriz/cifar.html"

static const struct set ten = {
    .name = "cifar10",
    .title = "CIFAR-10",
    .files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
              "data_batch_5.bin", "test_batch.bin"},
    .n_files = 6,
    .label_bytes = 1,
    .classes = 10,
    .python = "data_batch_1",
    .unpacked = "cifar-10-batches-bin",
    .where = "the binary version of CIFAR-10: data_batch_1.bin to data_batch_5.bin and "
             "test_batch.bin" UNPACKED_FROM("cifar-10-binary.tar.gz")};

static const struct set hundred = {
    .name = "cifar100",
    .title = "CIFAR-100",
    .files = {"train.bin", "test.bin"},
    .n_files = 2,
    .label_bytes = 2,
    .classes = 100,
    .python = "train",
    .unpacked = "cifar-100-binary",
    .where = "the binary version of CIFAR-100: train.bin and test.bin" UNPACKED_FROM(
        "cifar-100-binary.tar.gz")};

/* ---- options ------------------------------------------------------------------------------- */

enum { AUGMENT_NONE, AUGMENT_CROP_FLIP };

struct options {
    const char *path;
    int augment;
};

static const char *const augments[] = {"none", "crop_flip", NULL};

static const struct dpb_option option_table[] = {
    {"path", DPB_OPT_STRING, "directory", "", 0, 0, NULL, offsetof(struct options, path),
     "Directory with the files of the binary version, which end in .bin.", NULL},
    {"augment", DPB_OPT_CHOICE, NULL, "none", 0, 0, augments, offsetof(struct options, augment),
     "Of training samples; crop_flip: 4 pixels of the mean colour added at each side, a random "
     "window of 32 x 32 out of that, mirrored half of the time.",
     NULL},
    {NULL, DPB_OPT_STRING, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

/* ---- state --------------------------------------------------------------------------------- */

struct file {
    uint8_t *records; /* n of them, @owned; NULL: not there */
    uint64_t n;
};

struct cifar {
    const struct set *set;
    struct file files[MOST_FILES];
    uint64_t seed;
    bool crops;                /* augment = crop_flip */
    uint8_t padding[CHANNELS]; /* the values nearest to the mean: 0 for the network */
};

static uint64_t record_bytes(const struct set *set)
{
    return (uint64_t)set->label_bytes + IMAGE_BYTES;
}

/* The image of a record; the label stands before it. */
static const uint8_t *image_of(const struct cifar *source, dpb_split split, uint64_t sample)
{
    const struct file *file = &source->files[split == DPB_TEST ? source->set->n_files - 1 : 0];
    for (; sample >= file->n; file++)
        sample -= file->n;
    return file->records + sample * record_bytes(source->set) + source->set->label_bytes;
}

/* ---- reading ------------------------------------------------------------------------------- */

static bool is_there(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    struct stat status;
    return snprintf(path, sizeof path, "%s/%s", directory, name) < PATH_BYTES &&
           stat(path, &status) == 0;
}

/* The first or the last file is missing: names the file or directory found instead. */
static dpb_status refuse_missing(const struct set *set, const char *directory, const char *name)
{
    if (is_there(directory, set->python))
        return host->fail(DPB_DATA,
                          "%s: %s without .bin is the Python version of %s, which is not read "
                          "here; get %s",
                          directory, set->python, set->title, set->where);
    if (is_there(directory, set->unpacked))
        return host->fail(DPB_DATA, "%s: there is no %s, but a directory %s: data.path=%s/%s",
                          directory, name, set->unpacked, directory, set->unpacked);
    return host->fail(DPB_DATA, "%s: there is no %s in it; data.path must be a directory with %s",
                      directory, name, set->where);
}

/* The file's bytes are no multiple of a record: its first bytes show if it has another format. */
static dpb_status refuse_size(const struct set *set, const char *path, const uint8_t first[2],
                              uint64_t bytes)
{
    const uint64_t record = record_bytes(set);
    bool gzipped = first[0] == 0x1f && first[1] == 0x8b;
    bool pickle = first[0] == 0x80 && first[1] >= 2 && first[1] <= 5;
    return host->fail(DPB_DATA,
                      "%s: expected records of %" PRIu64
                      " bytes (%s and 3 x 32 x 32), found %" PRIu64 " bytes, %" PRIu64
                      " records and %" PRIu64 " bytes: %s",
                      path, record, set->label_bytes == 1 ? "a label" : "two labels", bytes,
                      bytes / record, bytes % record,
                      gzipped  ? "it is gzipped, unpack it"
                      : pickle ? "it is a pickle of the Python version, get the binary one"
                      : bytes  ? "the file is truncated or damaged, get it again"
                               : "the file is empty");
}

/* `n` bytes, all there are. */
static dpb_status read_bytes(int fd, const char *path, uint8_t *to, uint64_t n)
{
    size_t got;
    if (!read_at(fd, to, (size_t)n, 0, &got))
        return host->fail(DPB_IO, "%s: byte %zu: cannot be read: %s", path, got, strerror(errno));
    if (got < n)
        return host->fail(DPB_DATA,
                          "%s: byte %zu: expected %" PRIu64
                          " more bytes, found the end: the file became shorter while it was read",
                          path, got, n - got);
    return DPB_OK;
}

static dpb_status check_labels(const struct set *set, const struct file *file, const char *path)
{
    for (uint64_t i = 0; i < file->n; i++) {
        const uint64_t at = i * record_bytes(set) + (uint64_t)set->label_bytes - 1;
        const uint8_t label = file->records[at];
        if (label >= set->classes)
            return host->fail(DPB_DATA,
                              "%s: byte %" PRIu64 ": expected a label from 0 to %u, found %u: the "
                              "file is damaged or not of %s",
                              path, at, set->classes - 1, label, set->title);
    }
    return DPB_OK;
}

/* The owner of `file` releases the records, also after a failure. */
static dpb_status read_records(const struct set *set, int fd, const char *path, struct file *file)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return host->fail(DPB_DATA, "%s: is not a regular file", path);
    uint64_t bytes = (uint64_t)status.st_size;
    if (bytes == 0 || bytes % record_bytes(set) != 0) {
        uint8_t first[2] = {0};
        DPB_TRY(read_bytes(fd, path, first, bytes < 2 ? bytes : 2));
        return refuse_size(set, path, first, bytes);
    }
    file->records = host->alloc((size_t)bytes);
    if (!file->records)
        return DPB_NO_MEMORY;
    file->n = bytes / record_bytes(set);
    DPB_TRY(read_bytes(fd, path, file->records, bytes));
    return check_labels(set, file, path);
}

/* The first and the last file have to be there; the others make a subset if they are not. */
static dpb_status read_file(const struct set *set, const char *directory, int number,
                            struct file *file)
{
    char path[PATH_BYTES];
    const char *name = set->files[number];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= PATH_BYTES)
        return host->fail(DPB_USAGE, "data.path is longer than %d bytes", PATH_BYTES - 32);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return number == 0 || number == set->n_files - 1 ? refuse_missing(set, directory, name)
                                                         : DPB_OK;
    if (fd < 0)
        return host->fail(DPB_DATA, "%s: cannot be opened: %s", path, strerror(errno));
    dpb_status status = read_records(set, fd, path, file);
    close(fd);
    return status;
}

/* ---- the set ------------------------------------------------------------------------------- */

static dpb_status check_path(const struct set *set, const char *path)
{
    struct stat status;
    if (path[0] == '\0')
        return host->fail(DPB_USAGE, "data '%s' needs data.path, a directory with %s", set->name,
                          set->where);
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return DPB_OK;
    return host->fail(DPB_DATA, "%s: there is no such directory; data.path wants one with %s", path,
                      set->where);
}

static dpb_status normalise(struct cifar *source, const char *directory, uint64_t n_samples,
                            struct dpb_sample_format *format)
{
    struct moments moments[CHANNELS] = {{0}};
    for (uint64_t i = 0; i < n_samples; i++)
        for (int c = 0; c < CHANNELS; c++)
            moments_add(&moments[c], image_of(source, DPB_TRAIN, i) + c * PLANE, PLANE);
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

static void warn_of_subset(const struct cifar *source, const char *directory,
                           const uint64_t n_samples[2])
{
    const struct set *set = source->set;
    char missing[MOST_FILES * 24] = "";
    size_t length = 0;
    if (n_samples[DPB_TRAIN] == TRAIN_SAMPLES && n_samples[DPB_TEST] == TEST_SAMPLES)
        return;
    for (int f = 0; f < set->n_files - 1; f++)
        if (!source->files[f].records)
            length += (size_t)snprintf(missing + length, sizeof missing - length, "%s%s",
                                       length ? ", " : ": there is no ", set->files[f]);
    host->warn("subset",
               "%s has %" PRIu64 " training and %" PRIu64 " test samples, not %s's %d and %d%s",
               directory, n_samples[DPB_TRAIN], n_samples[DPB_TEST], set->title, TRAIN_SAMPLES,
               TEST_SAMPLES, missing);
}

static dpb_status read_all(struct cifar *source, const char *directory, struct dpb_data_info *info)
{
    const struct set *set = source->set;
    *info = (struct dpb_data_info){
        .format = {.shape = {CHANNELS, SIDE, SIDE}, .type = DPB_UINT8, .order = DPB_CHW},
        .nclass = set->classes};
    DPB_TRY(check_path(set, directory));
    for (int f = 0; f < set->n_files; f++) {
        DPB_TRY(read_file(set, directory, f, &source->files[f]));
        info->n_samples[f == set->n_files - 1 ? DPB_TEST : DPB_TRAIN] += source->files[f].n;
    }
    DPB_TRY(normalise(source, directory, info->n_samples[DPB_TRAIN], &info->format));
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

static void crop_at_random(const struct cifar *source, uint64_t epoch, uint64_t sample,
                           const uint8_t *image, uint8_t *to)
{
    struct dpb_random4 r =
        dpb_random(source->seed, DPB_STREAM_AUGMENT, (uint32_t)sample, (uint32_t)epoch, 0, 0);
    int right = (int)((uint64_t)r.v[0] * PLACES >> 32) - PAD;
    int down = (int)((uint64_t)r.v[1] * PLACES >> 32) - PAD;
    crop(image, source->padding, right, down, r.v[2] >> 31, to);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static void release_files(struct cifar *source)
{
    for (int f = 0; f < source->set->n_files; f++) {
        host->release(source->files[f].records,
                      (size_t)(source->files[f].n * record_bytes(source->set)));
        source->files[f].records = NULL;
    }
}

static void cifar_close(void *handle)
{
    struct cifar *source = handle;
    if (!source)
        return;
    release_files(source);
    host->release(source, sizeof *source);
}

static dpb_status cifar_open(const struct set *set, const struct options *options,
                             const struct dpb_data_request *request, void **handle,
                             struct dpb_data_info *info)
{
    struct cifar *source = host->alloc(sizeof *source);
    if (!source)
        return DPB_NO_MEMORY;
    source->set = set;
    source->seed = request->seed;
    source->crops = options->augment == AUGMENT_CROP_FLIP;
    struct dpb_data_info found;
    dpb_status status = read_all(source, options->path, &found);
    if (status != DPB_OK) {
        cifar_close(source);
        return status;
    }
    if (request->info_only)
        release_files(source);
    *handle = source;
    *info = found;
    return DPB_OK;
}

static dpb_status open_ten(const void *options, const struct dpb_data_request *request,
                           void **handle, struct dpb_data_info *info)
{
    return cifar_open(&ten, options, request, handle, info);
}

static dpb_status open_hundred(const void *options, const struct dpb_data_request *request,
                               void **handle, struct dpb_data_info *info)
{
    return cifar_open(&hundred, options, request, handle, info);
}

static dpb_status cifar_fetch(void *handle, dpb_split split, uint64_t epoch,
                              const uint64_t *indices, uint32_t n, void *samples, int32_t *labels)
{
    const struct cifar *source = handle;
    uint8_t *to = samples;
    for (uint32_t i = 0; i < n; i++, to += IMAGE_BYTES) {
        const uint8_t *image = image_of(source, split, indices[i]);
        labels[i] = image[-1];
        if (source->crops && split == DPB_TRAIN)
            crop_at_random(source, epoch, indices[i], image, to);
        else
            memcpy(to, image, IMAGE_BYTES);
    }
    return DPB_OK;
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops hundred_ops = {
    .open = open_hundred, .fetch = cifar_fetch, .close = cifar_close};

static const struct dpb_plugin hundred_plugin = {
    DPB_PLUGIN_HEAD(DATA, hundred_ops),
    .name = "cifar100",
    .version = "1",
    .summary = "CIFAR-100, fine labels, from the files of its binary version",
    .options = option_table,
    .options_size = sizeof(struct options)};

static const struct dpb_data_ops ten_ops = {
    .open = open_ten, .fetch = cifar_fetch, .close = cifar_close};

static const struct dpb_plugin ten_plugin = {DPB_PLUGIN_HEAD(DATA, ten_ops),
                                             .name = "cifar10",
                                             .version = "1",
                                             .summary =
                                                 "CIFAR-10 from the files of its binary version",
                                             .options = option_table,
                                             .options_size = sizeof(struct options),
                                             .next = &hundred_plugin};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &ten_plugin;
}
