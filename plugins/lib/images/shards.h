/*
 * shards.h - samples that lie one behind the other in a few large files, the shards: data.path has
 * those of both splits. When a source is opened, its plugin goes through all shards and tells where
 * each sample is. A sample is one read later, in any order. This costs 24 bytes of memory a sample.
 */
#ifndef DPB_PLUGINS_IMAGES_SHARDS_H
#define DPB_PLUGINS_IMAGES_SHARDS_H

#include "lib/files/read_at.h"
#include "lib/images/images.h"

struct shard_options {
    const char *path, *train, *val;
    bool direct;
};

/* Rows for the member `shards` of a plugin's options. */
#define SHARD_OPTIONS(STRUCT)                                                                     \
    DPB_OPTION_ROW("path", STRING, "directory", NULL, 0, 0, NULL, STRUCT, shards.path,            \
                   "Directory of the shards.", NULL),                                             \
        DPB_OPTION_ROW("train", STRING, NULL, "*train*", 0, 0, NULL, STRUCT, shards.train,        \
                       "Training: the names of its shards in path, as a shell's pattern.", NULL), \
        DPB_OPTION_ROW("val", STRING, NULL, "*val*", 0, 0, NULL, STRUCT, shards.val,              \
                       "Test: the names of its shards in path; empty: there is no test set.",     \
                       NULL),                                                                     \
        DIRECT_OPTION(STRUCT, shards.direct)

/* Where a sample is; the label belongs to the plugin. */
struct record {
    uint64_t offset, bytes;
    uint32_t shard;
    int32_t label;
};

/* A shard that the plugin goes through. */
struct shard {
    dpb_split split;
    uint32_t number;
    int fd; /* @borrowed */
    uint64_t bytes;
    char path[PATH_BYTES];
};

/* A source of shards, which a data plugin's hooks get as their handle. */
struct shard_source {
    const struct shard_format *format;
    void *options; /* a copy of the plugin's, @owned */
    struct shard_options shards;
    struct dirent **files; /* of data.path; a shard's number is its place */
    int n_files;
    struct record *records[2]; /* by split; in the order of the shards' names */
    uint64_t n[2], capacity[2];
    _Atomic uint64_t bytes_read;
    uint64_t max_bytes; /* of a picture */
    struct images images;
};

/* The format of a plugin's shards. */
struct shard_format {
    const char *name;                                  /* the plugin's */
    size_t options_size, shard_options, image_options; /* of the plugin, and where in it these are
                                                        */
    /* Calls shards_add for each sample of a shard. */
    dpb_status (*index)(struct shard_source *source, const struct shard *shard);
    /* As struct image_set's. */
    verdict (*read)(struct shard_source *source, dpb_split split, uint64_t sample,
                    struct buffer *buffer, const uint8_t **bytes, size_t *n, int32_t *label,
                    char reason[REASON_BYTES]);
};

/* The hooks of a plugin: its `open` names the format. */
dpb_status shards_open(const struct shard_format *format, const void *options,
                       const struct dpb_data_request *request, void **handle,
                       struct dpb_data_info *info);
dpb_status shards_fetch(void *source, dpb_split split, uint64_t epoch, const uint64_t *indices,
                        uint32_t n, void *samples, int32_t *labels);
void shards_close(void *source);
void shards_count(void *source, struct dpb_data_counts *counts);

dpb_status shards_add(struct shard_source *source, const struct shard *shard, uint64_t offset,
                      uint64_t bytes, int32_t label);
/* The bytes of a sample, and `more` behind it, into `buffer`. */
verdict shards_read(struct shard_source *source, const struct record *record, size_t more,
                    struct buffer *buffer, char reason[REASON_BYTES]);
/* "SHARD, byte N": the sample's name in messages, relative to data.path. */
void shards_name(const void *source, dpb_split split, uint64_t sample, char name[PATH_BYTES]);
/* Fails: "SHARD: byte N: ...". */
dpb_status shards_refuse(const struct shard *shard, uint64_t at, const char *what);

#endif
