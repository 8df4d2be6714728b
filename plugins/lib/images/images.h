/*
 * images.h - samples of JPEG files, for data plugins. A plugin says where the bytes and the label
 * of a sample are (struct image_set); all else is here, in the order of the data's flow:
 *
 *   file.c     one file, read whole
 *   crop.c     choice of the part of a picture that becomes the sample
 *   decode.c   rows of that part out of a JPEG file
 *   resize.c   rows to a sample
 *   damage.c   count of unreadable files, and refusal of too many
 *   fetch.c    options, and the hooks of a data plugin
 *
 * A training sample is a random part of its picture, flipped or not; a test sample its centre. Both
 * are red, green and blue of one byte each, row by row, in the size that the model takes; the
 * device normalises them by ImageNet's means and deviations. A sample depends on its file, the
 * seed, the sample's number and the epoch alone, so it is the same for any number of workers and
 * threads.
 *
 * An unreadable file is not the end of a run: the next readable one takes its place (damage.c).
 */
#ifndef DPB_PLUGINS_IMAGES_H
#define DPB_PLUGINS_IMAGES_H

#include <pthread.h>
#include <stdatomic.h>

#include "dpbench/plugin.h"

extern const struct dpb_host *image_host; /* the plugin's entry sets it */

enum { PATH_BYTES = 4096, REASON_BYTES = 256 };

/* ---- printable.c --------------------------------------------------------------------------- */

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

/* Makes room for `wanted` units, which keep what is in them; capacities double. */
dpb_status grow_memory(void **memory, uint64_t *capacity, uint64_t wanted, size_t unit);

/* The result of reading a file or a sample. */
typedef enum verdict {
    GOOD,
    BAD,   /* unreadable: `reason` says why; another sample takes its place */
    BROKEN /* something else failed: message written, the run ends */
} verdict;

/* Reads all bytes of a file, at most max_bytes, into `buffer`. `direct`: past the system's cache.
 */
verdict read_image_file(const char *path, bool direct, uint64_t max_bytes, struct buffer *buffer,
                        size_t *n, char reason[REASON_BYTES]);

/* ---- the source of files ------------------------------------------------------------------- */

/* A set of numbered files in two splits. @borrowed for as long as the images are open. */
struct image_set {
    const char *path;      /* data.path */
    const char *splits[2]; /* what messages call them */
    uint64_t n[2];         /* by dpb_split */
    uint32_t n_classes;
    void *context;
    /* The bytes of a sample's file, @borrowed until the next call with this buffer, and its label.
     * Any thread calls it. */
    verdict (*read)(void *context, dpb_split split, uint64_t sample, struct buffer *buffer,
                    const uint8_t **bytes, size_t *n, int32_t *label, char reason[REASON_BYTES]);
    /* The sample's name in messages, relative to `path`. */
    void (*name_of)(const void *context, dpb_split split, uint64_t sample, char name[PATH_BYTES]);
};

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
    const struct image_set *set;
    double max_share;
    _Atomic uint64_t *seen[2]; /* a bit a sample */
    _Atomic uint64_t skipped[2];
    struct first_damage *first; /* for the message */
    pthread_mutex_t lock;       /* of `first` */
};

dpb_status damage_create(const struct image_set *set, double max_share, struct damage *damage);
void damage_destroy(struct damage *damage);
/* Counts an unreadable sample; fails if there are too many. Any thread may call it. */
dpb_status damage_note(struct damage *damage, dpb_split split, uint64_t sample, const char *reason);

/* ---- fetch.c ------------------------------------------------------------------------------- */

struct image_options {
    int decode;
    struct crop_options crop;
    int64_t max_pixels;
    double max_corrupt;
};

extern const char *const image_decodes[];

/* Rows for the member `image` of a plugin's options. */
#define IMAGE_OPTIONS(STRUCT)                                                                      \
    DPB_OPTION_ROW("decode", CHOICE, NULL, "scaled", 0, 0, image_decodes, STRUCT, image.decode,    \
                   "scaled: no more than a sample needs, in the smallest size that is enough; "    \
                   "full: all of the picture in its own size.",                                    \
                   NULL),                                                                          \
        DPB_OPTION_ROW("area_min", REAL, NULL, "0.08", 1e-6, 1, NULL, STRUCT, image.crop.area_min, \
                       "Training: least share of a picture's area that becomes a sample.", NULL),  \
        DPB_OPTION_ROW("area_max", REAL, NULL, "1", 1e-6, 1, NULL, STRUCT, image.crop.area_max,    \
                       "Training: largest share of a picture's area that becomes a sample.",       \
                       NULL),                                                                      \
        DPB_OPTION_ROW("aspect_min", REAL, NULL, "0.75", 0.01, 100, NULL, STRUCT,                  \
                       image.crop.aspect_min,                                                      \
                       "Training: least width / height of the part that becomes a sample.", NULL), \
        DPB_OPTION_ROW("aspect_max", REAL, NULL, "1.3333333333333333", 0.01, 100, NULL, STRUCT,    \
                       image.crop.aspect_max,                                                      \
                       "Training: largest width / height of the part that becomes a sample.",      \
                       NULL),                                                                      \
        DPB_OPTION_ROW("flip", REAL, NULL, "0.5", 0, 1, NULL, STRUCT, image.crop.flip,             \
                       "Training: how probable it is that left and right are exchanged.", NULL),   \
        DPB_OPTION_ROW(                                                                            \
            "eval_ratio", REAL, NULL, "0.875", 0.1, 1, NULL, STRUCT, image.crop.eval_ratio,        \
            "Test: side of the central part / shorter side of the picture (224 / 256).", NULL),    \
        DPB_OPTION_ROW("max_pixels", INT, "pixels", "67108864", 1, 1 << 30, NULL, STRUCT,          \
                       image.max_pixels, "Pictures of more pixels are unreadable.", NULL),         \
        DPB_OPTION_ROW(                                                                            \
            "max_corrupt", REAL, NULL, "0.01", 0, 1, NULL, STRUCT, image.max_corrupt,              \
            "Share of a split that may be unreadable; at least one image may, unless it is 0.",    \
            NULL)

struct images {
    struct image_options options;
    struct dpb_data_request request;
    struct dpb_data_info info;
    struct image_set set;
    struct damage damage;
    _Atomic uint64_t bytes_decoded;
    pthread_mutex_t lock; /* of `idle` */
    struct image_worker *idle;
};

/* Before files are looked at: what the options and the model's shape rule out. */
dpb_status images_check(const char *name, const struct image_options *options,
                        const struct dpb_data_request *request);
/* No picture takes more bytes than its pixels would. */
uint64_t images_max_bytes(const struct image_options *options);
/* Sets images->info. images_close also after a failure. */
dpb_status images_open(const struct image_options *options, const struct dpb_data_request *request,
                       const struct image_set *set, struct images *images);
void images_close(struct images *images); /* accepts zeroed ones */
/* The hook `fetch`. */
dpb_status images_fetch(struct images *images, dpb_split split, uint64_t epoch,
                        const uint64_t *indices, uint32_t n, void *samples, int32_t *labels);
/* The hook `count`, but for bytes_read. */
void images_count(struct images *images, struct dpb_data_counts *counts);

#endif
