/*
 * samples.h - the interfaces between the plugin's parts, in the order of the data's flow:
 *
 *   list.c     list of all files, their numbers and labels
 *   store.c    the bytes of a file: from the file, from memory, or out of a pack (pack.c)
 *
 * Options and hooks are in image_folder.c; samples are made of files in lib/images.
 */
#ifndef DPB_PLUGINS_IMAGE_FOLDER_SAMPLES_H
#define DPB_PLUGINS_IMAGE_FOLDER_SAMPLES_H

#include "lib/images/images.h"

/* ---- list.c -------------------------------------------------------------------------------- */

/* The samples of a split, class after class from 0; a class has its names in bytewise order. */
struct split_list {
    uint64_t n;
    uint64_t *names;        /* n: where the name of a sample's file begins in `text` */
    uint64_t *first;        /* n_classes + 1: the samples of class c are [first[c], first[c + 1]) */
    const char *directory;  /* within `path`; @borrowed */
    uint64_t name_capacity; /* elements for which `names` has room */
};

struct listing {
    const char *path; /* @borrowed */
    uint32_t n_classes;
    uint64_t *classes;           /* where their names begin in `text`, in bytewise order */
    struct split_list splits[2]; /* by dpb_split */
    char *text;                  /* all names, each ended by 0 */
    uint64_t text_bytes, text_capacity;
};

/* `directories`, by dpb_split; an empty name for DPB_TEST: no such split. On failure it releases
 * all its memory. */
dpb_status listing_create(const char *path, const char *const directories[2],
                          struct listing *listing);
void listing_destroy(struct listing *listing);
uint32_t listing_label(const struct listing *listing, dpb_split split, uint64_t sample);
/* Write SPLIT/CLASS/FILE; listing_path puts `path` before it. Longer names were refused before. */
void listing_name(const struct listing *listing, dpb_split split, uint64_t sample,
                  char name[PATH_BYTES]);
void listing_path(const struct listing *listing, dpb_split split, uint64_t sample,
                  char path[PATH_BYTES]);

/* ---- store.c, pack.c ----------------------------------------------------------------------- */

typedef enum preload { PRELOAD_NONE, PRELOAD_MEMORY, PRELOAD_FILE, PRELOAD_SHARD } preload;

/* Where the bytes of a sample are kept; `offset` may be one of the next two constants. */
struct place {
    uint64_t offset, bytes;
};
#define PLACE_NONE UINT64_MAX             /* not kept: the file is read */
#define PLACE_UNREADABLE (UINT64_MAX - 1) /* the file could not be read */

struct store {
    const struct listing *listing;
    preload preload;
    bool direct;             /* files and packs are read past the system's cache */
    uint64_t max_bytes;      /* of one file */
    struct place *places[2]; /* by split; NULL: none is kept */
    uint8_t *memory;         /* PRELOAD_MEMORY */
    uint64_t memory_bytes;
    int pack; /* PRELOAD_FILE, PRELOAD_SHARD: its descriptor, else -1 */
    _Atomic uint64_t bytes_read;
};

struct store_args {
    const struct listing *listing;
    preload preload;
    bool direct;
    const char *shard_file;
    uint64_t max_bytes;
    const struct dpb_data_request *request;
};

dpb_status store_open(const struct store_args *args, struct store *store);
void store_close(struct store *store);
/* The bytes of a sample's file, @borrowed until the next call with this buffer. */
verdict store_read(struct store *store, dpb_split split, uint64_t sample, struct buffer *buffer,
                   const uint8_t **bytes, size_t *n, char reason[REASON_BYTES]);
/* Opens the pack of a listing; makes a missing one, but where the request is for info only. Refuses
 * a pack of another state of the files. Sets the store's pack and places. PRELOAD_SHARD: the pack
 * of the request's worker, of its training samples, is at PATH.RANK-of-WORKERS. */
dpb_status pack_open(const char *path, const struct dpb_data_request *request, struct store *store);

#endif
