/*
 * idx - the format of MNIST and its relatives: one file of images and one of labels for each split,
 * gzipped or not. An idx file is big-endian:
 *
 *     0, 0, 8 (unsigned byte), number of dimensions; each dimension in 4 bytes; the elements
 *
 * All four files are decoded and checked in open, then held in memory: fetch is a copy. Samples are
 * uint8 with one channel, normalised to mean 0 and standard deviation 1 over the training set.
 *
 * LeCun, Cortes, Burges: The MNIST database of handwritten digits.
 * Xiao, Rasul, Vollgraf: Fashion-MNIST. arXiv:1708.07747.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "dpbench/plugin.h"
#include "moments.h"

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

#define DEFAULT_PATH "/usr/share/datasets/fashion-mnist"
#define DEFAULT_PACKAGE "dataset-fashion-mnist"

struct options {
    const char *path;
};

static const struct dpb_option option_table[] = {
    {"path", DPB_OPT_STRING, "directory", DEFAULT_PATH, 0, 0, NULL, offsetof(struct options, path),
     "Directory with {train,t10k}-{images-idx3,labels-idx1}-ubyte, each with .gz or without, and "
     "with '-idx' or '.idx'.",
     NULL},
    {NULL, DPB_OPT_STRING, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

/* ---- state --------------------------------------------------------------------------------- */

struct set {
    uint8_t *images, *labels; /* n * image_bytes, n */
    uint64_t n;
    uint32_t h, w;
};

struct idx {
    struct set sets[2]; /* by dpb_split */
    size_t image_bytes; /* the same in both */
};

/* ---- reader: the content of one file, inflated where it is gzipped ------------------------- */

enum { INPUT_BYTES = 1 << 16, PATH_BYTES = 4096 };

/* Deflate never makes more than 1032 bytes of one (zlib's technical notes). */
enum { MAX_INFLATION = 1032 };

struct reader {
    char path[PATH_BYTES];
    int fd;
    bool gzipped;
    bool member_over;    /* gzipped: at least one member was read to its end */
    uint64_t file_bytes; /* its size */
    uint64_t read_bytes; /* of the file, so far */
    uint64_t offset;     /* of the content, so far */
    z_stream zlib;       /* its next and avail members serve files that are not gzipped as well */
    uint8_t input[INPUT_BYTES];
};

static void reader_close(struct reader *reader)
{
    if (reader->gzipped)
        inflateEnd(&reader->zlib);
    close(reader->fd);
}

/* Reads on in the file when `input` is used up; at the end of the file avail_in stays 0. */
static dpb_status refill(struct reader *reader)
{
    if (reader->zlib.avail_in > 0)
        return DPB_OK;
    ssize_t n;
    do {
        n = read(reader->fd, reader->input, sizeof reader->input);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return host->fail(DPB_IO, "%s: byte %" PRIu64 ": cannot be read: %s", reader->path,
                          reader->read_bytes, strerror(errno));
    reader->zlib.next_in = reader->input;
    reader->zlib.avail_in = (uInt)n;
    reader->read_bytes += (uint64_t)n;
    return DPB_OK;
}

/* Both of these fill next_out until avail_out is 0 or the content ends. */
static dpb_status copy_some(struct reader *reader)
{
    z_stream *zlib = &reader->zlib;
    while (zlib->avail_out > 0) {
        DPB_TRY(refill(reader));
        if (zlib->avail_in == 0)
            return DPB_OK;
        uInt n = zlib->avail_in < zlib->avail_out ? zlib->avail_in : zlib->avail_out;
        memcpy(zlib->next_out, zlib->next_in, n);
        zlib->next_out += n;
        zlib->avail_out -= n;
        zlib->next_in += n;
        zlib->avail_in -= n;
    }
    return DPB_OK;
}

/* Zeros behind the last member fill a block of a tape or a pipe, as gzip knows. */
static dpb_status skip_padding(struct reader *reader)
{
    z_stream *zlib = &reader->zlib;
    for (;;) {
        DPB_TRY(refill(reader));
        const bool ends = zlib->avail_in == 0;
        for (; zlib->avail_in > 0 && *zlib->next_in == 0; zlib->avail_in--)
            zlib->next_in++;
        if (ends || zlib->avail_in > 0)
            return DPB_OK;
    }
}

static dpb_status inflate_some(struct reader *reader)
{
    z_stream *zlib = &reader->zlib;
    while (zlib->avail_out > 0) {
        DPB_TRY(reader->member_over && zlib->total_in == 0 ? skip_padding(reader) : refill(reader));
        if (zlib->avail_in == 0 && zlib->total_in == 0 && reader->member_over)
            return DPB_OK;
        int result = inflate(zlib, Z_NO_FLUSH);
        if (result == Z_STREAM_END) {
            inflateReset(zlib); /* total_in, total_out = 0 */
            reader->member_over = true;
        } else if (result != Z_OK) {
            const char *found = result == Z_BUF_ERROR ? "the end of the file"
                                : zlib->msg           ? zlib->msg
                                                      : zError(result);
            return host->fail(DPB_DATA,
                              "%s: byte %" PRIu64 " of the gzip file: expected %s, found: %s; the "
                              "file is damaged, get it again",
                              reader->path, reader->read_bytes - zlib->avail_in,
                              reader->member_over && zlib->total_out == 0
                                  ? "the end or another gzip member"
                                  : "more compressed data",
                              found);
        }
    }
    return DPB_OK;
}

/* Gives out up to n bytes; *got is less at the end of the content only. */
static dpb_status reader_read(struct reader *reader, uint8_t *to, uint64_t n, uint64_t *got)
{
    const uint64_t at_once = 1 << 30; /* zlib counts in unsigned int */
    uint64_t done = 0;
    while (done < n) {
        uInt part = (uInt)(n - done < at_once ? n - done : at_once);
        reader->zlib.next_out = to + done;
        reader->zlib.avail_out = part;
        DPB_TRY(reader->gzipped ? inflate_some(reader) : copy_some(reader));
        done += part - reader->zlib.avail_out;
        if (reader->zlib.avail_out > 0)
            break;
    }
    reader->offset += done;
    *got = done;
    return DPB_OK;
}

/* "FILE: byte N: expected WHAT, found WHAT" */
static dpb_status refuse(const struct reader *reader, uint64_t offset, const char *expected,
                         const char *found)
{
    return host->fail(DPB_DATA, "%s: byte %" PRIu64 "%s: expected %s, found %s", reader->path,
                      offset, reader->gzipped ? " of the uncompressed content" : "", expected,
                      found);
}

static dpb_status reader_read_all(struct reader *reader, uint8_t *to, uint64_t n, const char *what)
{
    uint64_t got;
    DPB_TRY(reader_read(reader, to, n, &got));
    if (got == n)
        return DPB_OK;
    char expected[80];
    snprintf(expected, sizeof expected, "%" PRIu64 " more bytes of %s", n - got, what);
    return refuse(reader, reader->offset, expected, "the end: the file is truncated");
}

static dpb_status reader_expect_end(struct reader *reader)
{
    uint8_t byte;
    uint64_t got, at = reader->offset;
    DPB_TRY(reader_read(reader, &byte, 1, &got));
    if (got == 0)
        return DPB_OK;
    return refuse(reader, at, "the end, as the dimensions say", "trailing bytes");
}

/* The directory's file of the same part of an idx data set, as EMNIST names it; "": there is none.
 */
static void find_near(const char *directory, const char *name, char near[256])
{
    const char *what = strstr(name, "images") ? "images" : "labels";
    const bool train = strncmp(name, "train", strlen("train")) == 0;
    near[0] = '\0';
    DIR *files = opendir(directory);
    for (const struct dirent *file; files && !near[0] && (file = readdir(files));) {
        const char *at = file->d_name;
        if (strstr(at, what) && strstr(at, "idx") && (strstr(at, "train") != NULL) == train)
            snprintf(near, 256, "%s", at);
    }
    if (files)
        closedir(files);
}

static dpb_status refuse_missing(const char *directory, const char *name)
{
    char near[256];
    find_near(directory, name, near);
    if (near[0])
        return host->fail(DPB_DATA,
                          "%s: there is neither %s nor %s.gz, but %s: give the four files of this "
                          "set such names, or links to them",
                          directory, name, name, near);
    return host->fail(DPB_DATA,
                      "%s: there is neither %s nor %s.gz: data.path must be a directory with "
                      "the four files of an idx data set",
                      directory, name, name);
}

/* Opens DIRECTORY/NAME, its form with a dot (train-images.idx3-ubyte), or one of them with .gz. The
 * first bytes show whether the file is gzipped: downloaders inflate files and leave their names. */
static dpb_status reader_open(struct reader *reader, const char *directory, const char *name)
{
    *reader = (struct reader){.fd = -1};
    for (int i = 0; i < 4 && reader->fd < 0; i++) {
        const char *suffix = i % 2 ? ".gz" : "", *number = strstr(name, "idx") - 1;
        int length = snprintf(reader->path, PATH_BYTES, "%s/%.*s%c%s%s", directory,
                              (int)(number - name), name, i < 2 ? '-' : '.', number + 1, suffix);
        if (length >= PATH_BYTES)
            return host->fail(DPB_USAGE, "data.path is longer than %d bytes", PATH_BYTES - 64);
        reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (reader->fd < 0 && errno != ENOENT)
            return host->fail(DPB_DATA, "%s: cannot be opened: %s", reader->path, strerror(errno));
    }
    if (reader->fd < 0)
        return refuse_missing(directory, name);
    struct stat status;
    dpb_status result = DPB_OK;
    if (fstat(reader->fd, &status) != 0 || !S_ISREG(status.st_mode))
        result = host->fail(DPB_DATA, "%s: is not a regular file", reader->path);
    else
        result = refill(reader);
    if (result != DPB_OK) {
        close(reader->fd);
        return result;
    }
    reader->file_bytes = (uint64_t)status.st_size;
    if (reader->zlib.avail_in >= 2 && reader->input[0] == 0x1f && reader->input[1] == 0x8b) {
        if (inflateInit2(&reader->zlib, 16 + MAX_WBITS) != Z_OK) { /* 16: gzip only */
            close(reader->fd);
            return host->fail(DPB_NO_MEMORY, "%s: zlib cannot start: out of memory", reader->path);
        }
        reader->gzipped = true;
    }
    return DPB_OK;
}

/* ---- decoding ------------------------------------------------------------------------------ */

enum { MAX_DIMENSIONS = 3 };

/* Reads the header of a file with `n` dimensions, and refuses dimensions whose elements cannot be
 * in the file, before anybody allocates memory for them. */
static dpb_status read_header(struct reader *reader, uint32_t n, uint32_t size[MAX_DIMENSIONS])
{
    uint8_t raw[4 + 4 * MAX_DIMENSIONS];
    DPB_TRY(reader_read_all(reader, raw, 4 + 4 * n, "an idx header"));
    uint32_t words[1 + MAX_DIMENSIONS];
    for (uint32_t i = 0; i <= n; i++)
        words[i] = (uint32_t)raw[4 * i] << 24 | (uint32_t)raw[4 * i + 1] << 16 |
                   (uint32_t)raw[4 * i + 2] << 8 | raw[4 * i + 3];
    char expected[160], found[80];
    if (words[0] != (0x800 | n)) {
        snprintf(expected, sizeof expected,
                 "magic number 0x%08x (unsigned bytes, %" PRIu32 " dimensions)", 0x800 | n, n);
        snprintf(found, sizeof found, "0x%08" PRIx32, words[0]);
        return refuse(reader, 0, expected, found);
    }
    uint64_t elements = 1, most = reader->file_bytes;
    bool fits = !reader->gzipped || !__builtin_mul_overflow(most, (uint64_t)MAX_INFLATION, &most);
    int length = 0;
    for (uint32_t i = 0; i < n; i++) {
        size[i] = words[1 + i];
        if (size[i] == 0)
            return refuse(reader, 4 + 4 * i, "a dimension of at least 1", "0: the set is empty");
        fits = fits && !__builtin_mul_overflow(elements, (uint64_t)size[i], &elements);
        length += snprintf(found + length, sizeof found - (size_t)length, "%s%" PRIu32,
                           i ? " x " : "", size[i]);
    }
    if (fits && elements <= most)
        return DPB_OK;
    snprintf(expected, sizeof expected, "dimensions that fit into a file of %" PRIu64 " bytes",
             reader->file_bytes);
    snprintf(found + length, sizeof found - (size_t)length, ": the file is truncated or damaged");
    return refuse(reader, 4, expected, found);
}

/* The elements after the header, and nothing after them. *elements is @owned. */
static dpb_status read_elements(struct reader *reader, uint64_t n, const char *what,
                                uint8_t **elements)
{
    *elements = host->alloc((size_t)n);
    if (!*elements)
        return DPB_NO_MEMORY;
    DPB_TRY(reader_read_all(reader, *elements, n, what));
    return reader_expect_end(reader);
}

/* How many images of which size follow. */
static dpb_status read_image_header(struct reader *reader, struct set *set, const struct set *like)
{
    uint32_t size[MAX_DIMENSIONS];
    DPB_TRY(read_header(reader, 3, size));
    if (like && (size[1] != like->h || size[2] != like->w)) {
        char expected[80], found[40];
        snprintf(expected, sizeof expected,
                 "images of %" PRIu32 " x %" PRIu32 " as in the training set", like->h, like->w);
        snprintf(found, sizeof found, "%" PRIu32 " x %" PRIu32, size[1], size[2]);
        return refuse(reader, 8, expected, found);
    }
    set->n = size[0];
    set->h = size[1];
    set->w = size[2];
    return DPB_OK;
}

/* The owner of `set` releases the decoded labels, also after a failure. nclass: all labels must be
 * below it; 0: any. */
static dpb_status decode_labels(struct reader *reader, struct set *set, uint32_t nclass)
{
    uint32_t size[MAX_DIMENSIONS];
    char expected[80], found[40];
    DPB_TRY(read_header(reader, 1, size));
    if (size[0] != set->n) {
        snprintf(expected, sizeof expected, "%" PRIu64 " labels, one for each image", set->n);
        snprintf(found, sizeof found, "%" PRIu32, size[0]);
        return refuse(reader, 4, expected, found);
    }
    DPB_TRY(read_elements(reader, set->n, "labels", &set->labels));
    for (uint64_t i = 0; nclass > 0 && i < set->n; i++) {
        if (set->labels[i] >= nclass) {
            snprintf(expected, sizeof expected, "a label from 0 to %" PRIu32 " as in training",
                     nclass - 1);
            snprintf(found, sizeof found, "%u", set->labels[i]);
            return refuse(reader, 8 + i, expected, found);
        }
    }
    return DPB_OK;
}

static uint32_t classes_of(const struct set *set)
{
    uint8_t largest = 0;
    for (uint64_t i = 0; i < set->n; i++)
        largest = set->labels[i] > largest ? set->labels[i] : largest;
    return largest + 1u;
}

static dpb_status decode_label_file(const char *directory, const char *prefix, struct set *set,
                                    const struct set *train)
{
    char name[32];
    struct reader reader;
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    DPB_TRY(reader_open(&reader, directory, name));
    dpb_status status = decode_labels(&reader, set, train ? classes_of(train) : 0);
    reader_close(&reader);
    return status;
}

/* Decodes both files of a split; test: like the training set, with its classes. The images come
 * last: a few compressed bytes may make gigabytes, and labels that do not fit save that work. */
static dpb_status decode_split(const char *directory, const char *prefix, struct set *set,
                               const struct set *train)
{
    char name[32];
    struct reader reader;
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    DPB_TRY(reader_open(&reader, directory, name));
    dpb_status status = read_image_header(&reader, set, train);
    DPB_THEN(status, decode_label_file(directory, prefix, set, train));
    DPB_THEN(status, read_elements(&reader, set->n * set->h * set->w, "images", &set->images));
    reader_close(&reader);
    return status;
}

/* Scale and offset that give the training set mean 0 and standard deviation 1. */
static dpb_status normalise(const char *directory, const struct set *train, float *scale,
                            float *offset)
{
    struct moments moments = {0};
    moments_add(&moments, train->images, train->n * train->h * train->w);
    if (!moments_normalise(&moments, scale, offset))
        return host->fail(DPB_DATA,
                          "%s: train-images-idx3-ubyte: expected different pixels, found %u in "
                          "all from byte 16 on: there is nothing to learn",
                          directory, train->images[0]);
    return DPB_OK;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static void release_sets(struct idx *source)
{
    for (int split = 0; split < 2; split++) {
        struct set *set = &source->sets[split];
        host->release(set->images, (size_t)(set->n * set->h * set->w));
        host->release(set->labels, (size_t)set->n);
        set->images = set->labels = NULL;
    }
}

static void idx_close(void *handle)
{
    struct idx *source = handle;
    if (!source)
        return;
    release_sets(source);
    host->release(source, sizeof *source);
}

static dpb_status check_directory(const char *path)
{
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return DPB_OK;
    return host->fail(DPB_DATA,
                      "data.path = %s: there is no such directory with idx data; Debian's "
                      "package " DEFAULT_PACKAGE " brings " DEFAULT_PATH
                      " (apt-get install " DEFAULT_PACKAGE "), any other goes into data.path",
                      path);
}

static dpb_status decode(struct idx *source, const char *directory, struct dpb_data_info *info)
{
    struct set *train = &source->sets[DPB_TRAIN], *test = &source->sets[DPB_TEST];
    DPB_TRY(check_directory(directory));
    DPB_TRY(decode_split(directory, "train", train, NULL));
    DPB_TRY(decode_split(directory, "t10k", test, train));
    source->image_bytes = (size_t)train->h * train->w;
    *info = (struct dpb_data_info){
        .format = {.shape = {1, train->h, train->w}, .type = DPB_UINT8, .order = DPB_CHW},
        .nclass = classes_of(train),
        .n_samples = {[DPB_TRAIN] = train->n, [DPB_TEST] = test->n}};
    return normalise(directory, train, &info->format.scale[0], &info->format.offset[0]);
}

static dpb_status idx_open(const void *given, const struct dpb_data_request *request, void **handle,
                           struct dpb_data_info *info)
{
    const struct options *options = given;
    struct idx *source = host->alloc(sizeof *source);
    if (!source)
        return DPB_NO_MEMORY;
    struct dpb_data_info found;
    dpb_status status = decode(source, options->path, &found);
    if (status != DPB_OK) {
        idx_close(source);
        return status;
    }
    if (request->info_only)
        release_sets(source); /* the launcher and servers read no samples */
    *handle = source;
    *info = found;
    return DPB_OK;
}

static dpb_status idx_fetch(void *handle, dpb_split split, uint64_t epoch, const uint64_t *indices,
                            uint32_t n, void *samples, int32_t *labels)
{
    (void)epoch;
    const struct idx *source = handle;
    const struct set *set = &source->sets[split];
    for (uint32_t i = 0; i < n; i++) {
        memcpy((uint8_t *)samples + i * source->image_bytes,
               set->images + indices[i] * source->image_bytes, source->image_bytes);
        labels[i] = set->labels[indices[i]];
    }
    return DPB_OK;
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops idx_ops = {
    .open = idx_open, .fetch = idx_fetch, .close = idx_close};

static struct dpb_library libraries[] = {{"zlib", ZLIB_VERSION, NULL}, {NULL, NULL, NULL}};

static const struct dpb_plugin idx_plugin = {
    DPB_PLUGIN_HEAD(DATA, idx_ops),
    .name = "idx",
    .version = "1",
    .summary = "MNIST, Fashion-MNIST and other images in idx files, gzipped or not",
    .options = option_table,
    .options_size = sizeof(struct options),
    .libraries = libraries};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    libraries[0].loaded = zlibVersion();
    return &idx_plugin;
}
