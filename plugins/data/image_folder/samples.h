/*
 * samples.h - the interfaces between the plugin's parts, in the order of the data's flow:
 *
 *   list.c     list of all files, their numbers and labels
 *   file.c     one file, read whole
 *   store.c    the bytes of a file: from the file, from memory, or out of a pack (pack.c)
 *   crop.c     choice of the part of a picture that becomes the sample
 *   decode.c   rows of that part out of a JPEG file
 *   resize.c   rows to a sample
 *   damage.c   count of unreadable files, and refusal of too many
 *
 * Options and hooks are in image_folder.c.
 */
#ifndef DPB_PLUGINS_IMAGE_FOLDER_SAMPLES_H
#define DPB_PLUGINS_IMAGE_FOLDER_SAMPLES_H

#include <pthread.h>
#include <stdatomic.h>

#include "dpbench/plugin.h"

extern const struct dpb_host *folder_host;

enum { PATH_BYTES = 4096, REASON_BYTES = 256 };

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
/* Returns `name` for messages: control characters and non-UTF-8 bytes as \xNN. Cuts long names. */
const char *printable(const char *name, char text[PATH_BYTES]);

/* ---- file.c -------------------------------------------------------------------------------- */

/* Memory that grows and is used again. */
struct buffer {
    uint8_t *bytes;
    size_t capacity;
};

/* Grows the buffer to at least `bytes`; drops its content. False: no memory (message written). */
bool buffer_reserve(struct buffer *buffer, size_t bytes);
void buffer_release(struct buffer *buffer);

/* The result of reading a file or a sample. */
typedef enum verdict {
    GOOD,
    BAD,   /* unreadable: `reason` says why; another sample takes its place */
    BROKEN /* something else failed: message written, the run ends */
} verdict;

/* Reads all bytes of a file, at most max_bytes, into `buffer`. */
verdict read_image_file(const char *path, uint64_t max_bytes, struct buffer *buffer, size_t *n,
                        char reason[REASON_BYTES]);

/* ---- store.c, pack.c ----------------------------------------------------------------------- */

typedef enum preload { PRELOAD_NONE, PRELOAD_MEMORY, PRELOAD_FILE } preload;

/* Where the bytes of a sample are kept; `offset` may be one of the next two constants. */
struct place {
    uint64_t offset, bytes;
};
#define PLACE_NONE UINT64_MAX             /* not kept: the file is read */
#define PLACE_UNREADABLE (UINT64_MAX - 1) /* the file could not be read */

struct store {
    const struct listing *listing;
    preload preload;
    uint64_t max_bytes;      /* of one file */
    struct place *places[2]; /* by split; NULL: none is kept */
    uint8_t *memory;         /* PRELOAD_MEMORY */
    uint64_t memory_bytes;
    int pack; /* PRELOAD_FILE: its descriptor, else -1 */
    _Atomic uint64_t bytes_read;
};

struct store_args {
    const struct listing *listing;
    preload preload;
    const char *shard_file;
    uint64_t max_bytes;
    const struct dpb_data_request *request;
};

dpb_status store_open(const struct store_args *args, struct store *store);
void store_close(struct store *store);
/* The bytes of a sample's file, @borrowed until the next call with this buffer. */
verdict store_read(struct store *store, dpb_split split, uint64_t sample, struct buffer *buffer,
                   const uint8_t **bytes, size_t *n, char reason[REASON_BYTES]);
/* Opens the pack of a listing; with `make`, makes a missing pack. Refuses a pack of another state
 * of the files. Sets the store's pack and places. */
dpb_status pack_open(const char *path, bool make, struct store *store);

/* ---- crop.c -------------------------------------------------------------------------------- */

/* A part of a picture in its own pixels; fractions of a pixel count. */
struct box {
    double x, y, w, h;
};

struct crop_options {
    double area_min, area_max, aspect_min, aspect_max, flip;
    double eval_ratio;
};

/* The part of a picture for a sample: `inner` is stretched over the sample. Pixels beyond `outer`
 * are never read. */
struct crop {
    struct box inner, outer;
    bool flip;
};

/* The numbers that decide on a crop. */
struct crop_key {
    uint64_t seed, sample, epoch;
};

void crop_random(const struct crop_options *options, const struct crop_key *key, uint32_t w,
                 uint32_t h, struct crop *crop);
void crop_centre(const struct crop_options *options, struct dpb_shape to, uint32_t w, uint32_t h,
                 struct crop *crop);

/* ---- decode.c ------------------------------------------------------------------------------ */

enum { DECODED_CHANNELS = 4 /* red, green, blue, unused: a pixel is one load */ };

struct decoder; /* a decompressor of libjpeg and its memory */

struct decoder *decoder_create(void); /* NULL: no memory (message written) */
void decoder_destroy(struct decoder *decoder);

/* Reads the header. BAD: not a whole JPEG file, or more than max_pixels. */
verdict decoder_begin(struct decoder *decoder, const uint8_t *bytes, size_t n, uint64_t max_pixels,
                      uint32_t *w, uint32_t *h, char reason[REASON_BYTES]);
/* Ends the decoding of a file after decoder_begin. */
void decoder_abandon(struct decoder *decoder);

/* Pixels [x0, x1) of the rows [y0, y1) of the picture at scale / 8 of its size. */
struct region {
    uint32_t scale, x0, x1, y0, y1;
};

/* The smallest scale with a fast transform at which the part `inner` still has the size `to`. */
uint32_t decoder_scale(const struct box *inner, struct dpb_shape to);
/* Decodes the region, and hands its rows in order to `take`: DECODED_CHANNELS bytes a pixel,
 * @borrowed for the call. Without `partial` it decodes all other pixels, too. */
verdict decoder_rows(struct decoder *decoder, const struct region *region, bool partial,
                     void (*take)(void *context, const uint8_t *row), void *context,
                     uint64_t *bytes_decoded, char reason[REASON_BYTES]);

/* ---- resize.c ------------------------------------------------------------------------------ */

struct resizer; /* the state between the rows of a sample, and its memory */

struct resizer *resizer_create(struct dpb_shape to); /* NULL: no memory (message written) */
void resizer_destroy(struct resizer *resizer);

/* Prepares for a crop, all of it at `scale` / 8, into `sample`: to.h rows of to.w pixels of 3
 * bytes. Sets *region to the needed region. */
dpb_status resizer_begin(struct resizer *resizer, const struct crop *crop, uint32_t scale,
                         uint32_t w, uint32_t h, uint8_t *sample, struct region *region);
void resizer_take(void *resizer, const uint8_t *row); /* the next row of the region */

/* ---- damage.c ------------------------------------------------------------------------------ */

struct damage {
    const struct listing *listing;
    double max_share;
    _Atomic uint64_t *seen[2]; /* a bit a sample */
    _Atomic uint64_t skipped[2];
    struct first_damage *first; /* for the message */
    pthread_mutex_t lock;       /* of `first` */
};

dpb_status damage_create(const struct listing *listing, double max_share, struct damage *damage);
void damage_destroy(struct damage *damage);
/* Counts an unreadable sample; fails if there are too many. Any thread may call it. */
dpb_status damage_note(struct damage *damage, dpb_split split, uint64_t sample, const char *reason);

#endif
