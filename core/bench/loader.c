/* loader.c - see loader.h. */
#include "bench/loader.h"

#include "base/log.h"
#include "feed/feed.h"
#include "machine/cores.h"
#include "machine/usage.h"
#include "world/world.h"

/* At least both, and a whole number of groups of batches. */
struct length {
    int64_t ns;
    uint64_t batches, group;
};

dpb_status dpb_loader_refuse(const struct dpb_experiment *experiment)
{
    return experiment->settings.data.place == DPB_PLACE_DEVICE
               ? dpb_fail(DPB_USAGE, "data.place = device leaves nothing to load; leave it out to "
                                     "measure the loader")
               : DPB_OK;
}

dpb_status dpb_loader_init(const struct dpb_experiment *experiment, struct dpb_loader_point *points,
                           bool (*stopped)(void), struct dpb_loader *loader)
{
    uint32_t n_cores;
    *loader = (struct dpb_loader){.experiment = experiment, .stopped = stopped, .points = points};
    if (dpb_config_get(experiment->config, "data", "threads")) {
        loader->points[loader->n_points++].threads = (uint32_t)experiment->settings.data.threads;
        return DPB_OK;
    }
    DPB_TRY(dpb_cores_available(&n_cores));
    for (uint32_t n = 1; n < n_cores && loader->n_points + 1 < DPB_LOADER_POINTS; n *= 2)
        loader->points[loader->n_points++].threads = n;
    loader->points[loader->n_points++].threads = n_cores;
    return DPB_OK;
}

/* Takes batches until `length` is reached; adds to the window. */
static dpb_status take(const struct dpb_loader *loader, struct dpb_feed *feed,
                       const struct length *length, struct dpb_loader_window *window)
{
    int64_t begin_ns = dpb_now_ns();
    while (window->ns < length->ns || window->batches < length->batches ||
           window->batches % length->group != 0) {
        struct dpb_feed_batch batch;
        if (loader->stopped())
            return DPB_INTERRUPTED;
        DPB_TRY(dpb_feed_next(feed, &batch));
        window->ns = dpb_now_ns() - begin_ns;
        window->batches++;
        window->samples += batch.valid;
    }
    return DPB_OK;
}

static struct dpb_data_counts count(const struct dpb_experiment *experiment)
{
    const struct dpb_data_ops *ops = experiment->plugins[DPB_PLUGIN_DATA]->ops;
    struct dpb_data_counts counts = {0};
    if (ops->count)
        ops->count(experiment->data, &counts);
    return counts;
}

/* Helpers that run side by side finish their batches in bursts: over the clock a window is made of
 * whole bursts, and of two at least. */
static struct length window_length(const struct dpb_experiment *experiment, uint32_t threads)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    uint64_t group = threads > 0 ? threads : 1;
    if (run->epochs > 0)
        return (struct length){
            0, (uint64_t)run->epochs * experiment->steps_per_epoch * experiment->accumulate, 1};
    if (run->steps > 0)
        return (struct length){0, (uint64_t)run->steps * experiment->accumulate, 1};
    return (struct length){run->seconds_ns, 2 * group, group};
}

/* Of all ranks; one that was interrupted comes, too, and continues until all end. */
static dpb_status meet(struct dpb_loader *loader, dpb_status status, bool *more)
{
    *more = status == DPB_OK;
    if (status != DPB_OK && status != DPB_INTERRUPTED)
        return status;
    return loader->meet ? loader->meet(loader, more) : DPB_OK;
}

static dpb_status measure_window(struct dpb_loader *loader, struct dpb_feed *feed,
                                 struct dpb_loader_point *point)
{
    const struct dpb_experiment *experiment = loader->experiment;
    const struct length length = window_length(experiment, point->threads);
    const struct length warmup = {length.ns / 10, point->threads > 0 ? point->threads : 1, 1};
    const struct length held = {0, loader->meet && point->threads > 0 ? point->threads + 1 : 0, 1};
    struct dpb_loader_window warm = {0}, timed = {0}, old = {0};
    bool more;
    dpb_status status = take(loader, feed, &warmup, &warm);
    DPB_TRY(meet(loader, status, &more));
    if (!more)
        return DPB_INTERRUPTED;
    DPB_THEN(status, take(loader, feed, &held, &old)); /* fetched while this rank waited */
    struct dpb_data_counts before = count(experiment);
    const int64_t stored = dpb_usage_storage_bytes();
    DPB_THEN(status, take(loader, feed, &length, &timed));
    struct dpb_data_counts after = count(experiment);
    timed.storage_bytes = stored < 0 ? -1 : dpb_usage_storage_bytes() - stored;
    DPB_TRY(meet(loader, status, &more));
    timed.counts.bytes_read = after.bytes_read - before.bytes_read;
    timed.counts.bytes_decoded = after.bytes_decoded - before.bytes_decoded;
    timed.counts.skipped = after.skipped; /* the source counts each sample once: no difference */
    loader->place =
        dpb_feed_progress(feed, loader->place.step + (warm.batches + old.batches + timed.batches +
                                                      experiment->accumulate - 1) /
                                                         experiment->accumulate);
    if (status == DPB_OK)
        point->windows[point->n_windows++] = timed;
    return more ? DPB_OK : DPB_INTERRUPTED;
}

static dpb_status measure_point(struct dpb_loader *loader, struct dpb_loader_point *point)
{
    const struct dpb_experiment *experiment = loader->experiment;
    struct dpb_feed_args args = dpb_experiment_feed(experiment);
    args.rank = dpb_world.rank; /* outside a job: 0, and no board */
    args.board = dpb_world.board;
    args.threads = point->threads;
    args.start = loader->place;
    struct dpb_feed *feed;
    DPB_TRY(dpb_feed_create(&args, &feed));
    dpb_status status = measure_window(loader, feed, point);
    dpb_feed_destroy(feed);
    return status;
}

dpb_status dpb_loader_measure(struct dpb_loader *loader)
{
    for (int window = 0; window < DPB_LOADER_WINDOWS; window++)
        for (uint32_t i = 0; i < loader->n_points; i++)
            DPB_TRY(measure_point(loader, &loader->points[i]));
    return DPB_OK;
}
