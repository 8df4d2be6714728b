/* fetch.c - options of samples of pictures, and the hooks of a data plugin: see images.h. */
#include <inttypes.h>
#include <stdio.h>

#include "images.h"

enum { DECODE_SCALED, DECODE_FULL };
const char *const image_decodes[] = {"scaled", "full", NULL};

/* Mean and standard deviation of ImageNet's training images, as PyTorch has them. */
static const double mean[3] = {0.485, 0.456, 0.406}, deviation[3] = {0.229, 0.224, 0.225};

/* One thread makes its samples with these. */
struct image_worker {
    struct image_worker *next;
    struct decoder *decoder;
    struct resizer *resizer;
    struct buffer file;
};

/* ---- workers ------------------------------------------------------------------------------- */

static void worker_destroy(struct image_worker *worker)
{
    decoder_destroy(worker->decoder);
    resizer_destroy(worker->resizer);
    buffer_release(&worker->file);
    image_host->release(worker, sizeof *worker);
}

static struct image_worker *worker_create(struct dpb_shape shape)
{
    struct image_worker *worker = image_host->alloc(sizeof *worker);
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
static struct image_worker *worker_take(struct images *images)
{
    pthread_mutex_lock(&images->lock);
    struct image_worker *worker = images->idle;
    if (worker)
        images->idle = worker->next;
    pthread_mutex_unlock(&images->lock);
    return worker ? worker : worker_create(images->info.format.shape);
}

static void worker_give_back(struct images *images, struct image_worker *worker)
{
    pthread_mutex_lock(&images->lock);
    worker->next = images->idle;
    images->idle = worker;
    pthread_mutex_unlock(&images->lock);
}

/* ---- a sample ------------------------------------------------------------------------------ */

/* Which sample of which epoch, and where to. */
struct wish {
    dpb_split split;
    uint64_t sample, epoch;
    uint8_t *to;
};

static verdict make_sample(struct images *images, struct image_worker *worker,
                           const struct wish *wish, int32_t *label, char reason[REASON_BYTES])
{
    const struct image_options *options = &images->options;
    struct dpb_shape shape = images->info.format.shape;
    const uint8_t *bytes;
    size_t n;
    verdict result = images->set.read(images->set.context, wish->split, wish->sample, &worker->file,
                                      &bytes, &n, label, reason);
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
                    &(struct crop_key){images->request.seed, wish->sample, wish->epoch}, w, h,
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
    atomic_fetch_add(&images->bytes_decoded, decoded);
    return result;
}

/* The sample in the place of an unreadable one: the next of the split, or of the shard, by number;
 * after the last comes the first. */
static uint64_t next_sample(const struct images *images, dpb_split split, uint64_t sample)
{
    bool sharded = split == DPB_TRAIN && images->request.sharded;
    uint64_t step = sharded ? images->request.n_workers : 1;
    uint64_t next = sample + step;
    return next < images->set.n[split] ? next : sample % step;
}

static dpb_status fetch_one(struct images *images, struct image_worker *worker,
                            const struct wish *wanted, int32_t *label)
{
    struct wish wish = *wanted;
    char reason[REASON_BYTES];
    do {
        verdict result = make_sample(images, worker, &wish, label, reason);
        if (result == BROKEN)
            return DPB_IO;
        if (result == GOOD)
            return DPB_OK;
        DPB_TRY(damage_note(&images->damage, wish.split, wish.sample, reason));
        wish.sample = next_sample(images, wish.split, wish.sample);
    } while (wish.sample != wanted->sample);
    return image_host->fail(DPB_DATA, "%s: no image of %s can be read, the last because: %s",
                            images->set.path, images->set.splits[wish.split], reason);
}

/* ---- hooks --------------------------------------------------------------------------------- */

dpb_status images_fetch(struct images *images, dpb_split split, uint64_t epoch,
                        const uint64_t *indices, uint32_t n, void *samples, int32_t *labels)
{
    size_t sample_bytes = dpb_sample_bytes(&images->info.format);
    struct image_worker *worker = worker_take(images);
    if (!worker)
        return DPB_NO_MEMORY;
    dpb_status status = DPB_OK;
    for (uint32_t i = 0; i < n && status == DPB_OK; i++) {
        struct wish wish = {split, indices[i], epoch, (uint8_t *)samples + i * sample_bytes};
        status = fetch_one(images, worker, &wish, &labels[i]);
    }
    worker_give_back(images, worker);
    return status;
}

void images_count(struct images *images, struct dpb_data_counts *counts)
{
    counts->bytes_decoded = atomic_load(&images->bytes_decoded);
    counts->skipped = atomic_load(&images->damage.skipped[DPB_TRAIN]) +
                      atomic_load(&images->damage.skipped[DPB_TEST]);
}

void images_close(struct images *images)
{
    if (!images->damage.set)
        return;
    while (images->idle) {
        struct image_worker *worker = images->idle;
        images->idle = worker->next;
        worker_destroy(worker);
    }
    damage_destroy(&images->damage);
    pthread_mutex_destroy(&images->lock);
}

static dpb_status check_shape(const char *name, struct dpb_shape shape)
{
    enum { MAX_SIDE = 16384 };
    if (shape.h > 0 && shape.w > 0 && shape.h <= MAX_SIDE && shape.w <= MAX_SIDE)
        return DPB_OK;
    return image_host->fail(DPB_UNSUPPORTED,
                            "data '%s' makes images of 1 to %d pixels a side; the model "
                            "asks for %" PRIu32 " x %" PRIu32 " (height x width)",
                            name, MAX_SIDE, shape.h, shape.w);
}

dpb_status images_check(const char *name, const struct image_options *options,
                        const struct dpb_data_request *request)
{
    if (options->crop.area_min > options->crop.area_max)
        return image_host->fail(DPB_USAGE, "data.area_min = %g is more than data.area_max = %g",
                                options->crop.area_min, options->crop.area_max);
    if (options->crop.aspect_min > options->crop.aspect_max)
        return image_host->fail(DPB_USAGE, "data.aspect_min = %g is more than data.aspect_max = %g",
                                options->crop.aspect_min, options->crop.aspect_max);
    return check_shape(name, request->shape);
}

uint64_t images_max_bytes(const struct image_options *options)
{
    return 4 * (uint64_t)options->max_pixels + (1 << 20);
}

static void describe(struct images *images)
{
    struct dpb_data_info *info = &images->info;
    struct dpb_shape shape = images->request.shape;
    info->nclass = images->set.n_classes;
    for (int split = 0; split < 2; split++)
        info->n_samples[split] = images->set.n[split];
    info->format = (struct dpb_sample_format){
        .shape = {3, shape.h, shape.w}, .type = DPB_UINT8, .order = DPB_HWC};
    for (int c = 0; c < 3; c++) {
        info->format.scale[c] = (float)(1 / (255 * deviation[c]));
        info->format.offset[c] = (float)(-mean[c] / deviation[c]);
    }
}

dpb_status images_open(const struct image_options *options, const struct dpb_data_request *request,
                       const struct image_set *set, struct images *images)
{
    images->options = *options;
    images->request = *request;
    images->set = *set;
    DPB_TRY(damage_create(&images->set, options->max_corrupt, &images->damage));
    pthread_mutex_init(&images->lock, NULL);
    describe(images);
    return DPB_OK;
}
