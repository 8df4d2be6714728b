/*
 * tokens - ids of tokens from files: the bytes of any text, nanoGPT's files of uint16, or llm.c's,
 * which have a header of 256 little-endian words:
 *
 *     20240520, 1, number of tokens    then uint16          (GPT-2's vocabulary)
 *     20240801, 7, number of tokens    then uint32          (Llama 3's)
 *
 * A sample is a window of T ids; its labels are the ids that follow each. Windows lie one after the
 * other and never cross files. Files are opened, and ids checked, when a window is fetched: opening
 * a source reads headers alone.
 *
 * github.com/karpathy/llm.c, github.com/karpathy/nanoGPT: the formats.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpbench/plugin.h"
#include "lib/files/read_at.h"

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

enum type { BYTES, UINT16, LLMC };

struct options {
    const char *path, *test_path;
    int type; /* enum type */
    int64_t length, vocabulary;
    bool direct;
};

static const char *const types[] = {"bytes", "uint16", "llmc", NULL};

static const struct dpb_option option_table[] = {
    {"path", DPB_OPT_STRING, "file", "", 0, 0, NULL, offsetof(struct options, path),
     "A file, or a directory all of whose files are read in the order of their names.", NULL},
    {"test_path", DPB_OPT_STRING, "file", "", 0, 0, NULL, offsetof(struct options, test_path),
     "The test set's; empty: the last tenth of the windows of data.path.", NULL},
    {"type", DPB_OPT_CHOICE, NULL, "bytes", 0, 0, types, offsetof(struct options, type),
     "bytes: each byte is a token, of 256; uint16: nothing but ids (nanoGPT); llmc: with llm.c's "
     "header.",
     NULL},
    {"length", DPB_OPT_INT, "tokens", "0", 0, 1 << 20, NULL, offsetof(struct options, length),
     "Tokens of a sample; 0: the model's.", NULL},
    {"vocabulary", DPB_OPT_INT, "ids", "50257", 2, 1 << 24, NULL,
     offsetof(struct options, vocabulary), "Ids are below it; of bytes it is 256.",
     "data.type = uint16, llmc"},
    DIRECT_OPTION(struct options, direct),
    {NULL, DPB_OPT_STRING, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

/* ---- state --------------------------------------------------------------------------------- */

struct file {
    char *path;
    uint64_t header, bytes; /* of the header, and of an id */
    uint64_t n_tokens;
    uint64_t first; /* number of its first window in the set */
};

struct set {
    struct file *files;
    size_t n_files;
    uint64_t n_windows;
};

struct tokens {
    struct set sets[2]; /* by dpb_split; the second has no files where it is a part of the first */
    uint64_t n_train;   /* windows of the training set */
    uint32_t length, vocabulary;
    bool direct;
    uint64_t bytes_read;
};

/* ---- files --------------------------------------------------------------------------------- */

static uint32_t word_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static dpb_status read_ids_at(int fd, const char *path, uint64_t offset, void *to, size_t n)
{
    size_t got;
    if (!read_at(fd, to, n, offset, &got))
        return host->fail(DPB_IO, "%s: byte %" PRIu64 ": cannot be read: %s", path, offset + got,
                          strerror(errno));
    if (got < n)
        return host->fail(DPB_DATA,
                          "%s: byte %" PRIu64 ": expected more ids, found the end: the file "
                          "has become shorter",
                          path, offset + got);
    return DPB_OK;
}

static dpb_status read_header(int fd, struct file *file, uint64_t size)
{
    enum { WORDS = 256, GPT2 = 20240520, LLAMA3 = 20240801, EVALUATION = 20240522 };
    uint8_t raw[12];
    file->header = WORDS * sizeof(uint32_t);
    if (size < file->header)
        return host->fail(DPB_DATA,
                          "%s: expected llm.c's header of 1,024 bytes, found a file of %" PRIu64
                          " bytes; is it data.type = uint16?",
                          file->path, size);
    DPB_TRY(read_ids_at(fd, file->path, 0, raw, sizeof raw));
    const uint32_t magic = word_at(raw), version = word_at(raw + 4), n = word_at(raw + 8);
    if (magic == EVALUATION)
        return host->fail(DPB_UNSUPPORTED,
                          "%s: is a file of llm.c's multiple-choice evaluations (%d), not of text",
                          file->path, EVALUATION);
    if (!(magic == GPT2 && version == 1) && !(magic == LLAMA3 && version == 7))
        return host->fail(DPB_DATA,
                          "%s: byte 0: expected 20240520 version 1 or 20240801 version 7, found "
                          "%" PRIu32 " version %" PRIu32 "; is it data.type = uint16?",
                          file->path, magic, version);
    file->bytes = magic == GPT2 ? sizeof(uint16_t) : sizeof(uint32_t);
    file->n_tokens = n;
    if (size != file->header + n * file->bytes)
        return host->fail(DPB_DATA,
                          "%s: byte 8: expected %" PRIu64 " tokens, as the file's %" PRIu64
                          " bytes have, found %" PRIu32 ": the file is damaged",
                          file->path, (size - file->header) / file->bytes, size, n);
    return DPB_OK;
}

/* What the file has, by its size and its header. */
static dpb_status look_into(struct file *file, enum type type, bool direct)
{
    struct stat status;
    const int fd = open_to_read(file->path, direct);
    if (fd < 0 && lacks_direct(host, file->path, direct, errno))
        return DPB_UNSUPPORTED;
    if (fd < 0)
        return host->fail(DPB_DATA, "%s: cannot be opened: %s", file->path, strerror(errno));
    dpb_status result = DPB_OK;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        result = host->fail(DPB_DATA, "%s: is not a regular file", file->path);
    } else if (type == LLMC) {
        result = read_header(fd, file, (uint64_t)status.st_size);
    } else {
        file->bytes = type == BYTES ? 1 : sizeof(uint16_t);
        file->n_tokens = (uint64_t)status.st_size / file->bytes;
        if ((uint64_t)status.st_size % file->bytes != 0)
            result =
                host->fail(DPB_DATA, "%s: expected ids of 2 bytes, found an odd size of %lld bytes",
                           file->path, (long long)status.st_size);
    }
    close(fd);
    return result;
}

static dpb_status add_file(struct set *set, const char *path)
{
    struct file *files = realloc(set->files, (set->n_files + 1) * sizeof *files);
    if (files)
        set->files = files;
    char *copy = files ? strdup(path) : NULL;
    if (!copy)
        return host->fail(DPB_NO_MEMORY, "data 'tokens': no memory for names of files");
    set->files[set->n_files++] = (struct file){.path = copy};
    return DPB_OK;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static dpb_status add_directory(struct set *set, const char *path)
{
    struct dirent **entries;
    const int n = scandir(path, &entries, is_visible, alphasort);
    dpb_status result = DPB_OK;
    if (n < 0)
        return host->fail(DPB_DATA, "%s: cannot be read: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char whole[4096];
        struct stat status;
        const int length = snprintf(whole, sizeof whole, "%s/%s", path, entries[i]->d_name);
        const bool fits = length > 0 && (size_t)length < sizeof whole;
        if (result == DPB_OK && !fits)
            result = host->fail(DPB_USAGE, "%s: a name in it is too long", path);
        if (result == DPB_OK && stat(whole, &status) != 0)
            result = host->fail(DPB_DATA, "%s: cannot be opened: %s", whole, strerror(errno));
        else if (result == DPB_OK && S_ISREG(status.st_mode))
            result = add_file(set, whole);
        free(entries[i]);
    }
    free(entries);
    return result;
}

static dpb_status open_set(const struct options *options, const char *path, uint32_t length,
                           struct set *set)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return host->fail(DPB_DATA, "%s: cannot be opened: %s", path, strerror(errno));
    DPB_TRY(S_ISDIR(status.st_mode) ? add_directory(set, path) : add_file(set, path));
    for (size_t i = 0; i < set->n_files; i++) {
        struct file *file = &set->files[i];
        DPB_TRY(look_into(file, (enum type)options->type, options->direct));
        file->first = set->n_windows;
        set->n_windows += file->n_tokens > 0 ? (file->n_tokens - 1) / length : 0;
    }
    if (set->n_windows == 0)
        return host->fail(DPB_DATA,
                          "%s: no file has the %" PRIu32 " + 1 tokens of a sample; take a smaller "
                          "data.length or other files",
                          path, length);
    return DPB_OK;
}

static void release_set(struct set *set)
{
    for (size_t i = 0; i < set->n_files; i++)
        free(set->files[i].path);
    free(set->files);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static void tokens_close(void *handle)
{
    struct tokens *source = handle;
    if (!source)
        return;
    release_set(&source->sets[DPB_TRAIN]);
    release_set(&source->sets[DPB_TEST]);
    host->release(source, sizeof *source);
}

static dpb_status check_request(const struct options *options,
                                const struct dpb_data_request *request)
{
    if (!request->ids)
        return host->fail(DPB_UNSUPPORTED,
                          "data 'tokens' has ids of tokens, and the model reads images: take "
                          "model.name = gpt, or other data");
    if (options->path[0] == '\0')
        return host->fail(DPB_USAGE, "data.path is empty: give a file, or a directory of files, as "
                                     "data.path = /usr/share/common-licenses");
    return DPB_OK;
}

/* Without files of its own the test set is the last tenth. */
static void divide(struct tokens *source, struct dpb_data_info *info)
{
    const uint64_t all = source->sets[DPB_TRAIN].n_windows;
    const bool own = source->sets[DPB_TEST].n_files > 0;
    source->n_train = own ? all : all - all / 10;
    info->n_samples[DPB_TRAIN] = source->n_train;
    info->n_samples[DPB_TEST] = own ? source->sets[DPB_TEST].n_windows : all - source->n_train;
}

static dpb_status tokens_open(const void *given, const struct dpb_data_request *request,
                              void **handle, struct dpb_data_info *info)
{
    const struct options *options = given;
    DPB_TRY(check_request(options, request));
    struct tokens *source = host->alloc(sizeof *source);
    if (!source)
        return DPB_NO_MEMORY;
    source->length = options->length ? (uint32_t)options->length : request->shape.w;
    source->direct = options->direct;
    source->vocabulary = options->type == BYTES ? 256 : (uint32_t)options->vocabulary;
    dpb_status status = open_set(options, options->path, source->length, &source->sets[DPB_TRAIN]);
    if (options->test_path[0] != '\0')
        DPB_THEN(status,
                 open_set(options, options->test_path, source->length, &source->sets[DPB_TEST]));
    if (status != DPB_OK) {
        tokens_close(source);
        return status;
    }
    *info = (struct dpb_data_info){
        .format = {.shape = {1, 1, source->length}, .type = DPB_INT32, .scale = {1, 1, 1, 1}},
        .nclass = source->vocabulary};
    divide(source, info);
    *handle = source;
    return DPB_OK;
}

static const struct file *file_of(const struct set *set, uint64_t window)
{
    size_t low = 0, high = set->n_files; /* files[low] begins at or before it */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (set->files[middle].first <= window)
            low = middle;
        else
            high = middle;
    }
    return &set->files[low];
}

/* Reads n ids from the first on. They are read to the end of their room and widened from its begin,
 * which no id reaches before it is read. */
static dpb_status read_ids(struct tokens *source, const struct file *file, int fd, uint64_t first,
                           int32_t *ids)
{
    const uint64_t n = source->length, bytes = file->bytes;
    const uint64_t offset = file->header + first * bytes;
    uint8_t *raw = (uint8_t *)ids + n * (sizeof *ids - bytes);
    DPB_TRY(read_ids_at(fd, file->path, offset, raw, n * bytes));
    __atomic_add_fetch(&source->bytes_read, n * bytes, __ATOMIC_RELAXED);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t id = 0;
        for (uint64_t k = 0; k < bytes; k++)
            id |= (uint32_t)raw[i * bytes + k] << (8 * k);
        if (id >= source->vocabulary)
            return host->fail(DPB_DATA,
                              "%s: byte %" PRIu64 ": expected an id below data.vocabulary = "
                              "%" PRIu32 ", found %" PRIu32,
                              file->path, offset + i * bytes, source->vocabulary, id);
        ids[i] = (int32_t)id;
    }
    return DPB_OK;
}

static dpb_status tokens_fetch(void *handle, dpb_split split, uint64_t epoch,
                               const uint64_t *indices, uint32_t n, void *samples, int32_t *labels)
{
    (void)epoch;
    struct tokens *source = handle;
    const bool part = split == DPB_TEST && source->sets[DPB_TEST].n_files == 0;
    const struct set *set = &source->sets[part ? DPB_TRAIN : split];
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t window = indices[i] + (part ? source->n_train : 0);
        const struct file *file = file_of(set, window);
        const uint64_t first = (window - file->first) * source->length;
        const size_t at = (size_t)i * source->length;
        const int fd = open_to_read(file->path, source->direct);
        if (fd < 0)
            return host->fail(DPB_IO, "%s: cannot be opened: %s", file->path, strerror(errno));
        dpb_status status = read_ids(source, file, fd, first, (int32_t *)samples + at);
        DPB_THEN(status, read_ids(source, file, fd, first + 1, labels + at));
        close(fd);
        DPB_TRY(status);
    }
    return DPB_OK;
}

static void tokens_count(void *handle, struct dpb_data_counts *counts)
{
    struct tokens *source = handle;
    const uint64_t bytes = __atomic_load_n(&source->bytes_read, __ATOMIC_RELAXED);
    *counts = (struct dpb_data_counts){.bytes_read = bytes, .bytes_decoded = bytes};
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops tokens_ops = {
    .open = tokens_open, .fetch = tokens_fetch, .close = tokens_close, .count = tokens_count};

static const struct dpb_plugin tokens_plugin = {
    DPB_PLUGIN_HEAD(DATA, tokens_ops),
    .name = "tokens",
    .version = DPB_VERSION,
    .summary = "ids of tokens: the bytes of any text, or files of llm.c and nanoGPT",
    .options = option_table,
    .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &tokens_plugin;
}
