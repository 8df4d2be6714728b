/*
 * loader.h - a data source measured alone: batches are taken from the feed (feed.h) as a training
 * would take them, as fast as they come, and thrown away. No device and no other rank is involved.
 */
#ifndef DPB_CORE_BENCH_LOADER_H
#define DPB_CORE_BENCH_LOADER_H

#include <signal.h>

#include "plan/experiment.h"

enum { DPB_LOADER_WINDOWS = 5, DPB_LOADER_POINTS = 16 };

/* A window of time without a pause, and the data loaded in it. */
struct dpb_loader_window {
    int64_t ns;
    uint64_t batches, samples;
    struct dpb_data_counts counts; /* within it; zeros where the source does not count */
};

/* One number of helper threads. */
struct dpb_loader_point {
    uint32_t threads;
    uint32_t n_windows; /* measured so far */
    struct dpb_loader_window windows[DPB_LOADER_WINDOWS];
};

struct dpb_loader {
    const struct dpb_experiment *experiment; /* built as rank 0; @borrowed */
    const volatile sig_atomic_t *stop;       /* not 0: end soon, with DPB_INTERRUPTED */
    struct dpb_progress place; /* where the next window continues, with other samples */
    uint32_t n_points;
    struct dpb_loader_point points[DPB_LOADER_POINTS];
};

/*
 * The points to measure: data.threads alone where the user gave it, else 1, 2, 4, ... threads and
 * as many as there are cores.
 */
dpb_status dpb_loader_init(const struct dpb_experiment *experiment,
                           const volatile sig_atomic_t *stop, struct dpb_loader *loader);

/*
 * Every point DPB_LOADER_WINDOWS times, in turn, so that a slow change of the machine touches all
 * alike. A window has helpers of its own, begins once each of them is at work, and lasts as
 * run.seconds, run.steps or run.epochs says. Measurements before a failure stay. Blocks and
 * allocates.
 */
dpb_status dpb_loader_measure(struct dpb_loader *loader);

#endif
