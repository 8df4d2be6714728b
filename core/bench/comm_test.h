/*
 * comm_test.h - `dpbench comm`: a communicator alone, for a series of layouts, many exchanges each,
 * without data and optimizer. There is no device but for strategies that work in its memory
 * (dpb_comm_needs.runtime). The launcher plans the layouts and reads the journals, the ranks do the
 * rest.
 *
 * Before each exchange every worker writes a new pattern (pattern.h) into its gradients, and the
 * workers meet. Afterwards each worker checks all elements. Only the time between belongs to a
 * sample. Where the strategy reduces in place (the workers' own gradient arenas hold the sum) the
 * optimizer's stand-in does nothing, else it copies the sum to the weights. So the timed part ends
 * when every worker has the sum.
 */
#ifndef DPB_CORE_BENCH_COMM_TEST_H
#define DPB_CORE_BENCH_COMM_TEST_H

#include "machine/load.h"
#include "plan/experiment.h"

enum {
    DPB_COMM_POINTS = 128,      /* layouts */
    DPB_COMM_LEAST = 5,         /* timed exchanges of a layout, whatever comm_test.seconds is */
    DPB_COMM_SAMPLES = 1 << 17, /* at most */
};

/* A layout: n_elements of the exchange's type. */
struct dpb_comm_point {
    uint64_t n_elements, bytes;
    bool model; /* the layout of model.name; else one of the sizes */
};

/* CLOCK_MONOTONIC of the rank: comparable within a machine. */
struct dpb_comm_sample {
    int64_t begin_ns, end_ns;
};

/* A worker's results for a point. The worker raises n_samples (release) after a sample is
 * complete. */
struct dpb_comm_record {
    uint64_t n_samples, n_buckets;
    uint64_t n_exchanges; /* warm-up included: all are checked */
    uint64_t n_wrong;     /* elements, over all exchanges */
    bool in_place;
};

/* The journal of a worker; sparse memory. */
struct dpb_comm_journal {
    uint64_t capacity; /* samples of a point */
    bool opened;       /* the fields below hold */
    bool by_memory;    /* the workers meet by flags: samples of all ranks have one clock */
    bool oversubscribed;
    uint32_t threads;
    struct dpb_load load; /* rank 0 */
    struct dpb_comm_record records[DPB_COMM_POINTS];
    struct dpb_comm_sample samples[]; /* [point * capacity + i] */
};

/* The points of a built experiment: sizes, then the model's layout if model.name was given.
 * DPB_USAGE for malformed sizes, too many sizes, and sizes that the pattern cannot check. */
dpb_status dpb_comm_points(const struct dpb_experiment *experiment,
                           struct dpb_comm_point points[DPB_COMM_POINTS], uint32_t *n);
/* The largest number of the pattern (pattern.h) with which all sums and, where the workers meet by
 * exchanges, sums of sums are exact; DPB_UNSUPPORTED if no number is. */
dpb_status dpb_comm_largest(const struct dpb_experiment *experiment, bool by_memory,
                            uint32_t *largest);
/* Bytes of the arenas of a rank, on the largest layout. */
uint64_t dpb_comm_memory(const struct dpb_experiment *experiment, uint32_t rank);
size_t dpb_comm_journal_bytes(const struct dpb_experiment *experiment);

/* The life of a rank of `dpbench comm`, instead of dpb_rank_run. After a point with a wrong
 * element, the rank that found the element returns DPB_VERIFICATION; after a signal,
 * DPB_INTERRUPTED. */
dpb_status dpb_comm_test_run(struct dpb_experiment *experiment);

#endif
