/* shards.c - see shards.h. */
#include "shards.h"

#include <dirent.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- the files ----------------------------------------------------------------------------- */

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool fits(const char *pattern, const char *name)
{
    return pattern[0] != '\0' && fnmatch(pattern, name, 0) == 0;
}

static const char *pattern_of(const struct shard_source *source, int split)
{
    return split == DPB_TRAIN ? source->shards.train : source->shards.val;
}

static void path_of(const struct shard_source *source, uint32_t shard, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", source->shards.path, source->files[shard]->d_name);
}

static dpb_status check_options(const char *name, const struct shard_options *options)
{
    if (!options->path[0])
        return image_host->fail(DPB_USAGE, "data '%s' needs data.path, the directory of the shards",
                                name);
    if (!options->train[0])
        return image_host->fail(DPB_USAGE, "data.train must not be empty: it says which files in "
                                           "data.path are the training set's, as *train*");
    return DPB_OK;
}

static dpb_status list_files(struct shard_source *source)
{
    const char *path = source->shards.path;
    char a[PATH_BYTES], b[PATH_BYTES];
    source->n_files = scandir(path, &source->files, is_visible, by_bytes);
    if (source->n_files < 0) {
        const int error = errno;
        return image_host->fail(DPB_DATA,
                                "%s: data.path, the directory of the shards, cannot be "
                                "read: %s",
                                printable(path, a), strerror(error));
    }
    for (int i = 0; i < source->n_files; i++) {
        const char *name = source->files[i]->d_name;
        if (strlen(path) + strlen(name) + 2 > PATH_BYTES)
            return image_host->fail(DPB_USAGE, "data.path is longer than %d bytes",
                                    PATH_BYTES - 256);
        if (fits(source->shards.train, name) && fits(source->shards.val, name))
            return image_host->fail(DPB_USAGE,
                                    "%s/%s: data.train = %s and data.val = %s both take this file; "
                                    "give patterns that tell the splits apart",
                                    printable(path, a), printable(name, b), source->shards.train,
                                    source->shards.val);
    }
    return DPB_OK;
}

/* ---- the index ----------------------------------------------------------------------------- */

dpb_status shards_add(struct shard_source *source, const struct shard *shard, uint64_t offset,
                      uint64_t bytes, int32_t label)
{
    const dpb_split split = shard->split;
    void *memory = source->records[split];
    const dpb_status status = grow_memory(&memory, &source->capacity[split], source->n[split] + 1,
                                          sizeof *source->records[split]);
    source->records[split] = memory;
    if (status == DPB_OK)
        source->records[split][source->n[split]++] =
            (struct record){offset, bytes, shard->number, label};
    return status;
}

static dpb_status check_direct(const char *path)
{
    const int fd = open_to_read(path, true);
    if (fd < 0)
        return lacks_direct(image_host, path, true, errno) ? DPB_UNSUPPORTED : DPB_OK;
    close(fd);
    return DPB_OK;
}

static dpb_status index_shard(struct shard_source *source, int split, uint32_t number)
{
    struct shard shard = {.split = (dpb_split)split, .number = number};
    char text[PATH_BYTES];
    struct stat status;
    path_of(source, number, shard.path);
    if (source->shards.direct) /* now, not when a sample is fetched */
        DPB_TRY(check_direct(shard.path));
    shard.fd = open_to_read(shard.path, false);
    if (shard.fd < 0) {
        const int error = errno;
        return image_host->fail(DPB_DATA, "%s: cannot be opened: %s", printable(shard.path, text),
                                strerror(error));
    }
    dpb_status result = DPB_OK;
    if (fstat(shard.fd, &status) != 0 || !S_ISREG(status.st_mode))
        result =
            image_host->fail(DPB_DATA, "%s: is not a regular file", printable(shard.path, text));
    shard.bytes = result == DPB_OK ? (uint64_t)status.st_size : 0;
    DPB_THEN(result, source->format->index(source, &shard));
    close(shard.fd);
    return result;
}

static dpb_status index_split(struct shard_source *source, int split)
{
    const char *pattern = pattern_of(source, split);
    char text[PATH_BYTES];
    uint32_t n_shards = 0;
    for (int i = 0; i < source->n_files; i++) {
        if (!fits(pattern, source->files[i]->d_name))
            continue;
        n_shards++;
        DPB_TRY(index_shard(source, split, (uint32_t)i));
    }
    if (source->n[split] > UINT32_MAX)
        return image_host->fail(DPB_UNSUPPORTED, "%s: more than 2^32 samples",
                                printable(source->shards.path, text));
    if (source->n[split] > 0 || pattern[0] == '\0')
        return DPB_OK;
    return image_host->fail(DPB_DATA, "%s: %s data.%s = %s%s", printable(source->shards.path, text),
                            n_shards > 0 ? "there is no sample in the files of"
                                         : "no file has a name that fits",
                            split == DPB_TRAIN ? "train" : "val", pattern,
                            split == DPB_TRAIN ? "" : "; without a test set leave data.val empty");
}

dpb_status shards_refuse(const struct shard *shard, uint64_t at, const char *what)
{
    char text[PATH_BYTES];
    return image_host->fail(DPB_DATA, "%s: byte %" PRIu64 ": %s", printable(shard->path, text), at,
                            what);
}

/* ---- a sample ------------------------------------------------------------------------------ */

static verdict fail_read(const struct shard_source *source, const struct record *record,
                         uint64_t at, const char *what)
{
    char path[PATH_BYTES], text[PATH_BYTES];
    path_of(source, record->shard, path);
    image_host->fail(DPB_IO, "%s: byte %" PRIu64 ": cannot be read: %s", printable(path, text),
                     record->offset + at, what);
    return BROKEN;
}

verdict shards_read(struct shard_source *source, const struct record *record, size_t more,
                    struct buffer *buffer, char reason[REASON_BYTES])
{
    char path[PATH_BYTES];
    size_t got = 0;
    if (record->bytes > source->max_bytes) {
        snprintf(reason, REASON_BYTES, "%" PRIu64 " bytes are more than data.max_pixels make",
                 record->bytes);
        return BAD;
    }
    const size_t n = (size_t)record->bytes + more;
    if (!buffer_reserve(buffer, n + 1))
        return BROKEN;
    path_of(source, record->shard, path);
    const int fd = open_to_read(path, source->shards.direct);
    if (fd < 0)
        return fail_read(source, record, 0, strerror(errno));
    const bool read = read_at(fd, buffer->bytes, n, record->offset, &got);
    const int error = errno;
    close(fd);
    atomic_fetch_add(&source->bytes_read, got);
    if (read && got == n)
        return GOOD;
    return fail_read(source, record, got, read ? "the file has been cut" : strerror(error));
}

void shards_name(const void *source_, dpb_split split, uint64_t sample, char name[PATH_BYTES])
{
    const struct shard_source *source = source_;
    const struct record *record = &source->records[split][sample];
    snprintf(name, PATH_BYTES, "%.255s, byte %" PRIu64, source->files[record->shard]->d_name,
             record->offset);
}

/* ---- hooks --------------------------------------------------------------------------------- */

dpb_status shards_fetch(void *source_, dpb_split split, uint64_t epoch, const uint64_t *indices,
                        uint32_t n, void *samples, int32_t *labels)
{
    struct shard_source *source = source_;
    return images_fetch(&source->images, split, epoch, indices, n, samples, labels);
}

void shards_count(void *source_, struct dpb_data_counts *counts)
{
    struct shard_source *source = source_;
    counts->bytes_read = atomic_load(&source->bytes_read);
    images_count(&source->images, counts);
}

void shards_close(void *source_)
{
    struct shard_source *source = source_;
    if (!source)
        return;
    images_close(&source->images);
    for (int i = 0; i < source->n_files; i++)
        free(source->files[i]);
    free(source->files);
    for (int split = 0; split < 2; split++)
        image_host->release(source->records[split],
                            (size_t)source->capacity[split] * sizeof *source->records[split]);
    image_host->release(source->options, source->format->options_size);
    image_host->release(source, sizeof *source);
}

static verdict read_sample(void *context, dpb_split split, uint64_t sample, struct buffer *buffer,
                           const uint8_t **bytes, size_t *n, int32_t *label,
                           char reason[REASON_BYTES])
{
    struct shard_source *source = context;
    return source->format->read(source, split, sample, buffer, bytes, n, label, reason);
}

static dpb_status open_all(struct shard_source *source, const struct dpb_data_request *request)
{
    const struct shard_format *format = source->format;
    const struct image_options *image =
        (const void *)((const char *)source->options + format->image_options);
    struct image_set set = {.n_classes = request->nclass,
                            .context = source,
                            .read = read_sample,
                            .name_of = shards_name};
    memcpy(&source->shards, (const char *)source->options + format->shard_options,
           sizeof source->shards);
    source->max_bytes = images_max_bytes(image);
    source->images.set.n_classes = request->nclass; /* for the index */
    DPB_TRY(check_options(format->name, &source->shards));
    DPB_TRY(images_check(format->name, image, request));
    DPB_TRY(list_files(source));
    DPB_TRY(index_split(source, DPB_TRAIN));
    DPB_TRY(index_split(source, DPB_TEST));
    set.path = source->shards.path;
    for (int split = 0; split < 2; split++) {
        set.n[split] = source->n[split];
        set.splits[split] = pattern_of(source, split);
    }
    return images_open(image, request, &set, &source->images);
}

dpb_status shards_open(const struct shard_format *format, const void *options,
                       const struct dpb_data_request *request, void **handle,
                       struct dpb_data_info *info)
{
    struct shard_source *source = image_host->alloc(sizeof *source);
    if (!source)
        return DPB_NO_MEMORY;
    source->format = format;
    source->options = image_host->alloc(format->options_size);
    dpb_status status = source->options ? DPB_OK : DPB_NO_MEMORY;
    if (source->options)
        memcpy(source->options, options, format->options_size);
    DPB_THEN(status, open_all(source, request));
    if (status != DPB_OK) {
        shards_close(source);
        return status;
    }
    *handle = source;
    *info = source->images.info;
    return DPB_OK;
}
