/*
 * data_test.h - `dpbench data` under a launcher: all workers load their shares of the data at once,
 * each by loader.h on its own cores. No device computes, and no communicator is opened. The
 * launcher reads the journals.
 */
#ifndef DPB_CORE_BENCH_DATA_TEST_H
#define DPB_CORE_BENCH_DATA_TEST_H

#include "bench/loader.h"

/* Of a rank; zeroed memory. */
struct dpb_data_journal {
    int64_t open_ns;           /* 0: the source is not open; the rest is missing */
    struct dpb_data_info info; /* the source's */
    uint32_t n_points;         /* the same on all ranks */
    struct dpb_loader_point points[DPB_LOADER_POINTS];
};

/* What all ranks do together: a window's time is the longest rank's, its samples and bytes are the
 * sums. `total` has no points before the call. */
void dpb_data_test_total(const struct dpb_data_journal *const *journals, uint32_t n_ranks,
                         struct dpb_loader *total);

/* The life of a rank, instead of dpb_rank_run. After a signal returns DPB_INTERRUPTED. */
dpb_status dpb_data_test_run(struct dpb_experiment *experiment);

#endif
