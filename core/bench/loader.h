/*
 * loader.h - a data source measured alone: batches are taken from the feed (feed.h) as a training
 * would take them, as fast as they come, and thrown away. No device is involved.
 */
#ifndef DPB_CORE_BENCH_LOADER_H
#define DPB_CORE_BENCH_LOADER_H

#include "plan/experiment.h"

enum { DPB_LOADER_WINDOWS = 5, DPB_LOADER_POINTS = 16 };

/* A window of time without a pause, and the data loaded in it. */
struct dpb_loader_window {
    int64_t ns;
    uint64_t batches, samples;
    struct dpb_data_counts counts; /* within it; zeros where the source does not count */
    int64_t storage_bytes;         /* within it: dpb_usage_storage_bytes; -1: not counted */
};

/* One number of helper threads. */
struct dpb_loader_point {
    uint32_t threads;
    uint32_t n_windows; /* measured so far */
    struct dpb_loader_window windows[DPB_LOADER_WINDOWS];
};

struct dpb_loader {
    const struct dpb_experiment *experiment; /* built as this rank; @borrowed */
    bool (*stopped)(void);                   /* true: end soon, with DPB_INTERRUPTED */
    /* In a job all ranks meet before and after each window. False in *more: they end. NULL: this
     * process is alone. */
    dpb_status (*meet)(struct dpb_loader *loader, bool *more);
    uint32_t n_met;
    struct dpb_progress place; /* where the next window continues, with other samples */
    uint32_t n_points;
    struct dpb_loader_point *points; /* DPB_LOADER_POINTS; @borrowed */
};

/* Refuses data.place = device. */
dpb_status dpb_loader_refuse(const struct dpb_experiment *experiment);

/*
 * The points to measure: data.threads alone where the user gave it, else 1, 2, 4, ... threads and
 * as many as there are cores. `points` is zeroed.
 */
dpb_status dpb_loader_init(const struct dpb_experiment *experiment, struct dpb_loader_point *points,
                           bool (*stopped)(void), struct dpb_loader *loader);

/*
 * Every point DPB_LOADER_WINDOWS times, in turn, so that a slow change of the machine touches all
 * alike. A window has helpers of its own, begins once each of them is at work, and lasts as
 * run.seconds, run.steps or run.epochs says. Measurements before a failure stay. Blocks and
 * allocates.
 */
dpb_status dpb_loader_measure(struct dpb_loader *loader);

#endif
