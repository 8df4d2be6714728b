/*
 * image_folder - JPEG files in directories that are their classes, as ImageNet is kept:
 *
 *     PATH/train/CLASS/NAME.jpg    PATH/val/CLASS/NAME.jpg
 *
 * A training sample is a random part of its picture, flipped or not; a test sample its centre. Both
 * are red, green and blue of one byte each, row by row, in the size that the model takes; the
 * device normalises them by ImageNet's means and deviations. A sample depends on its file, the
 * seed, the sample's number and the epoch alone, so it is the same for any number of workers and
 * threads.
 *
 * An unreadable file is not the end of a run: the next readable one takes its place (damage.c).
 */
#include <inttypes.h>
#include <stdio.h>

#include <jpeglib.h>

#include "samples.h"

/* ---- options ------------------------------------------------------------------------------- */

enum { DECODE_SCALED, DECODE_FULL };

struct options {
    const char *path, *train, *val, *shard_file;
    int preload, decode;
    struct crop_options crop;
    int64_t max_pixels;
    double max_corrupt;
};

static const char *const preloads[] = {"none", "memory", "file", NULL};
static const char *const decodes[] = {"scaled", "full", NULL};

#define AT(member) offsetof(struct options, member)

static const struct dpb_option option_table[] = {
    {"path", DPB_OPT_STRING, "directory", NULL, 0, 0, NULL, AT(path),
     "Directory of the images; a split is a directory in it, and a class a directory in that.",
     NULL},
    {"train", DPB_OPT_STRING, NULL, "train", 0, 0, NULL, AT(train),
     "Directory of the training images in path.", NULL},
    {"val", DPB_OPT_STRING, NULL, "val", 0, 0, NULL, AT(val),
     "Directory of the test images in path, with the same classes; empty: there are none.", NULL},
    {"preload", DPB_OPT_CHOICE, NULL, "none", 0, 0, preloads, AT(preload),
     "Where files are read from: where they lie, memory that each rank fills at the start, or one "
     "file that holds them all (shard_file).",
     NULL},
    {"shard_file", DPB_OPT_STRING, "path", "", 0, 0, NULL, AT(shard_file),
     "For preload = file: the file that holds all images; made at the first use.",
     "data.preload = file"},
    {"decode", DPB_OPT_CHOICE, NULL, "scaled", 0, 0, decodes, AT(decode),
     "scaled: no more than a sample needs, in the smallest size that is enough; full: all of the "
     "picture in its own size.",
     NULL},
    {"area_min", DPB_OPT_REAL, NULL, "0.08", 1e-6, 1, NULL, AT(crop.area_min),
     "Training: least share of a picture's area that becomes a sample.", NULL},
    {"area_max", DPB_OPT_REAL, NULL, "1", 1e-6, 1, NULL, AT(crop.area_max),
     "Training: largest share of a picture's area that becomes a sample.", NULL},
    {"aspect_min", DPB_OPT_REAL, NULL, "0.75", 0.01, 100, NULL, AT(crop.aspect_min),
     "Training: least width / height of the part that becomes a sample.", NULL},
    {"aspect_max", DPB_OPT_REAL, NULL, "1.3333333333333333", 0.01, 100, NULL, AT(crop.aspect_max),
     "Training: largest width / height of the part that becomes a sample.", NULL},
    {"flip", DPB_OPT_REAL, NULL, "0.5", 0, 1, NULL, AT(crop.flip),
     "Training: how probable it is that left and right are exchanged.", NULL},
    {"eval_ratio", DPB_OPT_REAL, NULL, "0.875", 0.1, 1, NULL, AT(crop.eval_ratio),
     "Test: side of the central part / shorter side of the picture (224 / 256).", NULL},
    {"max_pixels", DPB_OPT_INT, "pixels", "67108864", 1, 1 << 30, NULL, AT(max_pixels),
     "Pictures of more pixels are unreadable.", NULL},
    {"max_corrupt", DPB_OPT_REAL, NULL, "0.01", 0, 1, NULL, AT(max_corrupt),
     "Share of a split that may be unreadable; at least one image may, unless it is 0.", NULL},
    {NULL, DPB_OPT_STRING, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

/* Mean and standard deviation of ImageNet's training images, as PyTorch has them. */
static const double mean[3] = {0.485, 0.456, 0.406}, deviation[3] = {0.229, 0.224, 0.225};

/* ---- state --------------------------------------------------------------------------------- */

/* One thread makes its samples with these. */
struct worker {
    struct worker *next;
    struct decoder *decoder;
    struct resizer *resizer;
    struct buffer file;
};

struct folder {
    struct options options;
    struct dpb_data_request request;
    struct dpb_data_info info;
    struct listing listing;
    struct store store;
    struct damage damage;
    _Atomic uint64_t bytes_decoded;
    pthread_mutex_t lock; /* of `idle` */
    struct worker *idle;  /* those that no fetch uses now */
};

/* ---- workers ------------------------------------------------------------------------------- */

static void worker_destroy(struct worker *worker)
{
    decoder_destroy(worker->decoder);
    resizer_destroy(worker->resizer);
    buffer_release(&worker->file);
    folder_host->release(worker, sizeof *worker);
}

static struct worker *worker_create(struct dpb_shape shape)
{
    struct worker *worker = folder_host->alloc(sizeof *worker);
    if (!worker)
        return NULL;
    worker->decoder = decoder_create();
    worker->resizer = worker->decoder ? resizer_create(shape) : NULL;
    if (!worker->resizer) {
        worker_destroy(worker);
        return NULL;
    }
    return worker;
}

/* There are as many workers as there ever were fetches at once. NULL: no memory. */
static struct worker *worker_take(struct folder *folder)
{
    pthread_mutex_lock(&folder->lock);
    struct worker *worker = folder->idle;
    if (worker)
        folder->idle = worker->next;
    pthread_mutex_unlock(&folder->lock);
    return worker ? worker : worker_create(folder->info.format.shape);
}

static void worker_give_back(struct folder *folder, struct worker *worker)
{
    pthread_mutex_lock(&folder->lock);
    worker->next = folder->idle;
    folder->idle = worker;
    pthread_mutex_unlock(&folder->lock);
}

/* ---- a sample ------------------------------------------------------------------------------ */

/* Which sample of which epoch, and where to. */
struct wish {
    dpb_split split;
    uint64_t sample, epoch;
    uint8_t *to;
};

static verdict make_sample(struct folder *folder, struct worker *worker, const struct wish *wish,
                           char reason[REASON_BYTES])
{
    const struct options *options = &folder->options;
    struct dpb_shape shape = folder->info.format.shape;
    const uint8_t *bytes;
    size_t n;
    verdict result =
        store_read(&folder->store, wish->split, wish->sample, &worker->file, &bytes, &n, reason);
    if (result != GOOD)
        return result;
    uint32_t w, h;
    result =
        decoder_begin(worker->decoder, bytes, n, (uint64_t)options->max_pixels, &w, &h, reason);
    if (result != GOOD)
        return result;
    struct crop crop;
    struct region region;
    if (wish->split == DPB_TRAIN)
        crop_random(&options->crop,
                    &(struct crop_key){folder->request.seed, wish->sample, wish->epoch}, w, h,
                    &crop);
    else
        crop_centre(&options->crop, shape, w, h, &crop);
    bool partial = options->decode == DECODE_SCALED;
    uint32_t scale = partial ? decoder_scale(&crop.inner, shape) : 8;
    if (resizer_begin(worker->resizer, &crop, scale, w, h, wish->to, &region) != DPB_OK) {
        decoder_abandon(worker->decoder);
        return BROKEN;
    }
    uint64_t decoded = 0;
    result = decoder_rows(worker->decoder, &region, partial, resizer_take, worker->resizer,
                          &decoded, reason);
    atomic_fetch_add(&folder->bytes_decoded, decoded);
    return result;
}

/* The sample in the place of an unreadable one: the next of the split, or of the shard, by number;
 * after the last comes the first. */
static uint64_t next_sample(const struct folder *folder, dpb_split split, uint64_t sample)
{
    bool sharded = split == DPB_TRAIN && folder->request.sharded;
    uint64_t step = sharded ? folder->request.n_workers : 1;
    uint64_t next = sample + step;
    return next < folder->listing.splits[split].n ? next : sample % step;
}

static dpb_status fetch_one(struct folder *folder, struct worker *worker, const struct wish *wanted,
                            int32_t *label)
{
    struct wish wish = *wanted;
    char reason[REASON_BYTES];
    do {
        verdict result = make_sample(folder, worker, &wish, reason);
        if (result == BROKEN)
            return DPB_IO;
        if (result == GOOD) {
            *label = (int32_t)listing_label(&folder->listing, wish.split, wish.sample);
            return DPB_OK;
        }
        DPB_TRY(damage_note(&folder->damage, wish.split, wish.sample, reason));
        wish.sample = next_sample(folder, wish.split, wish.sample);
    } while (wish.sample != wanted->sample);
    return folder_host->fail(DPB_DATA, "%s: no image of %s can be read, the last because: %s",
                             folder->options.path, folder->listing.splits[wish.split].directory,
                             reason);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status folder_fetch(void *handle, dpb_split split, uint64_t epoch,
                               const uint64_t *indices, uint32_t n, void *samples, int32_t *labels)
{
    struct folder *folder = handle;
    size_t sample_bytes = dpb_sample_bytes(&folder->info.format);
    struct worker *worker = worker_take(folder);
    if (!worker)
        return DPB_NO_MEMORY;
    dpb_status status = DPB_OK;
    for (uint32_t i = 0; i < n && status == DPB_OK; i++) {
        struct wish wish = {split, indices[i], epoch, (uint8_t *)samples + i * sample_bytes};
        status = fetch_one(folder, worker, &wish, &labels[i]);
    }
    worker_give_back(folder, worker);
    return status;
}

static void folder_count(void *handle, struct dpb_data_counts *counts)
{
    struct folder *folder = handle;
    *counts = (struct dpb_data_counts){.bytes_read = atomic_load(&folder->store.bytes_read),
                                       .bytes_decoded = atomic_load(&folder->bytes_decoded),
                                       .skipped = atomic_load(&folder->damage.skipped[DPB_TRAIN]) +
                                                  atomic_load(&folder->damage.skipped[DPB_TEST])};
}

static void folder_close(void *handle)
{
    struct folder *folder = handle;
    if (!folder)
        return;
    while (folder->idle) {
        struct worker *worker = folder->idle;
        folder->idle = worker->next;
        worker_destroy(worker);
    }
    store_close(&folder->store);
    damage_destroy(&folder->damage);
    listing_destroy(&folder->listing);
    pthread_mutex_destroy(&folder->lock);
    folder_host->release(folder, sizeof *folder);
}

static dpb_status check_options(const struct options *options)
{
    if (!options->path[0])
        return folder_host->fail(DPB_USAGE, "data 'image_folder' needs data.path, the directory "
                                            "with train/CLASS/NAME.jpg and val/CLASS/NAME.jpg");
    if (!options->train[0])
        return folder_host->fail(DPB_USAGE, "data.train must not be empty: it is the directory of "
                                            "the training images in data.path");
    if (options->crop.area_min > options->crop.area_max)
        return folder_host->fail(DPB_USAGE, "data.area_min = %g is more than data.area_max = %g",
                                 options->crop.area_min, options->crop.area_max);
    if (options->crop.aspect_min > options->crop.aspect_max)
        return folder_host->fail(DPB_USAGE,
                                 "data.aspect_min = %g is more than data.aspect_max = %g",
                                 options->crop.aspect_min, options->crop.aspect_max);
    if (options->preload == PRELOAD_FILE && !options->shard_file[0])
        return folder_host->fail(DPB_USAGE, "data.preload = file needs data.shard_file, the file "
                                            "that shall hold the images");
    if (options->preload != PRELOAD_FILE && options->shard_file[0])
        return folder_host->fail(DPB_USAGE, "data.shard_file is used by data.preload = file only: "
                                            "leave it out, or set that");
    return DPB_OK;
}

static dpb_status check_shape(struct dpb_shape shape)
{
    enum { MAX_SIDE = 16384 };
    if (shape.h > 0 && shape.w > 0 && shape.h <= MAX_SIDE && shape.w <= MAX_SIDE)
        return DPB_OK;
    return folder_host->fail(DPB_UNSUPPORTED,
                             "data 'image_folder' makes images of 1 to %d pixels a side; the model "
                             "asks for %" PRIu32 " x %" PRIu32 " (height x width)",
                             MAX_SIDE, shape.h, shape.w);
}

static void describe(struct folder *folder)
{
    struct dpb_data_info *info = &folder->info;
    struct dpb_shape shape = folder->request.shape;
    info->nclass = folder->listing.n_classes;
    for (int split = 0; split < 2; split++)
        info->n_samples[split] = folder->listing.splits[split].n;
    info->format = (struct dpb_sample_format){
        .shape = {3, shape.h, shape.w}, .type = DPB_UINT8, .order = DPB_HWC};
    for (int c = 0; c < 3; c++) {
        info->format.scale[c] = (float)(1 / (255 * deviation[c]));
        info->format.offset[c] = (float)(-mean[c] / deviation[c]);
    }
}

static dpb_status open_all(struct folder *folder)
{
    const struct options *options = &folder->options;
    const char *const directories[2] = {[DPB_TRAIN] = options->train, [DPB_TEST] = options->val};
    DPB_TRY(check_options(options));
    DPB_TRY(check_shape(folder->request.shape));
    DPB_TRY(listing_create(options->path, directories, &folder->listing));
    describe(folder);
    DPB_TRY(damage_create(&folder->listing, options->max_corrupt, &folder->damage));
    /* No picture takes more bytes than its pixels would. */
    const struct store_args args = {.listing = &folder->listing,
                                    .preload = (preload)options->preload,
                                    .shard_file = options->shard_file,
                                    .max_bytes = 4 * (uint64_t)options->max_pixels + (1 << 20),
                                    .request = &folder->request};
    return store_open(&args, &folder->store);
}

static dpb_status folder_open(const void *options, const struct dpb_data_request *request,
                              void **handle, struct dpb_data_info *info)
{
    struct folder *folder = folder_host->alloc(sizeof *folder);
    if (!folder)
        return DPB_NO_MEMORY;
    folder->options = *(const struct options *)options;
    folder->request = *request;
    pthread_mutex_init(&folder->lock, NULL);
    dpb_status status = open_all(folder);
    if (status != DPB_OK) {
        folder_close(folder);
        return status;
    }
    *handle = folder;
    *info = folder->info;
    return DPB_OK;
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops folder_ops = {
    .open = folder_open, .fetch = folder_fetch, .close = folder_close, .count = folder_count};

#define TEXT_OF(x) #x
#define VALUE_OF(x) TEXT_OF(x)

static const struct dpb_library libraries[] = {
    {"libjpeg-turbo", VALUE_OF(LIBJPEG_TURBO_VERSION), NULL}, {NULL, NULL, NULL}};

static const struct dpb_plugin folder_plugin = {
    DPB_PLUGIN_HEAD(DATA, folder_ops),
    .name = "image_folder",
    .version = "1",
    .summary = "JPEG files in directories that are their classes, as ImageNet; crops and flips",
    .options = option_table,
    .options_size = sizeof(struct options),
    .libraries = libraries};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    folder_host = given;
    return &folder_plugin;
}
