/*
 * data.h - a data plugin: where samples come from.
 *
 * Start here for a data source of your own.
 *
 * A source is a set of numbered samples in two splits. Core shuffles, shards by rank, calls `fetch`
 * ahead of time from helper threads into staging memory, and hands batches to the device. A sample
 * is a pure function of its index, the epoch and the seed: never of the rank, thread or order. A
 * source draws its random choices (crops, flips) by dpb_random from these three.
 */
#ifndef DPBENCH_DATA_H
#define DPBENCH_DATA_H

#include "status.h"
#include "types.h"

typedef enum dpb_split { DPB_TRAIN, DPB_TEST } dpb_split;
typedef enum dpb_sample_order { DPB_CHW, DPB_HWC } dpb_sample_order;

/* How a sample lies in memory. The device computes value * scale[c] + offset[c]; no scale
 * is 0. A sample of DPB_INT32 is {1, 1, length}: ids of tokens in [0, nclass). There each position
 * has a label. Scale and offset mean nothing there. */
struct dpb_sample_format {
    struct dpb_shape shape;
    dpb_dtype type; /* DPB_UINT8, DPB_FP32 or DPB_INT32 */
    dpb_sample_order order;
    float scale[DPB_MAX_CHANNELS], offset[DPB_MAX_CHANNELS];
};

static inline size_t dpb_sample_bytes(const struct dpb_sample_format *format)
{
    return (size_t)dpb_shape_elements(format->shape) * dpb_dtype_size(format->type);
}

static inline uint32_t dpb_sample_labels(const struct dpb_sample_format *format)
{
    return format->type == DPB_INT32 ? format->shape.w : 1;
}

/* The run's wishes of a source, for `open`. */
struct dpb_data_request {
    struct dpb_shape shape; /* the model's input: for sources that can make any */
    uint32_t nclass;        /* the model's, likewise */
    bool fixed_shape;       /* the model takes no other height and width */
    bool ids;               /* the model reads ids of tokens (DPB_INT32), and no images */
    uint64_t seed;
    /* This worker, and their number. If `sharded`, this worker fetches the training samples i with
     * i % n_workers == rank only, and any test sample: a source that keeps samples need keep no
     * others. */
    uint32_t rank, n_workers;
    bool sharded;
    bool info_only; /* nothing will be fetched (a parameter server): *info is all that is needed */
};

struct dpb_data_info {
    struct dpb_sample_format format;
    uint32_t nclass;
    uint64_t n_samples[2]; /* by dpb_split; 0: no such split */
};

/* A batch as the device gets it. All memory is @borrowed until the pass that uses it ends. */
struct dpb_batch {
    const struct dpb_sample_format *format;
    const void *samples;   /* n samples, one after the other */
    const int32_t *labels; /* in [0, nclass): dpb_sample_labels of each sample */
    uint32_t n;
    /* Not NULL: the n samples are those of the program's pool with these numbers,
     * and `samples` is NULL. */
    const uint32_t *numbers;
};

/* Samples in memory, one after the other in the source's format, with their labels:
 * sample i of the split is number i % n, in every epoch. @borrowed until the source's close. */
struct dpb_sample_pool {
    const void *samples; /* NULL: there is no pool */
    const int32_t *labels;
    uint32_t n;
};

/* Counts since the source was opened. */
struct dpb_data_counts {
    uint64_t bytes_read;    /* from files, before decoding */
    uint64_t bytes_decoded; /* after decoding, before crops and scaling */
    uint64_t skipped;       /* samples that were unreadable and replaced by others; each once */
};

struct dpb_data_ops {
    /* Opens, decodes and checks all that can be checked; bad data is refused here (DPB_DATA) with
     * file and offset. Sets *source (@owned until close) and *info on success only. */
    dpb_status (*open)(const void *options, const struct dpb_data_request *request, void **source,
                       struct dpb_data_info *info);
    /* Writes `n` samples, those of `indices`, to `samples` (tight, in the format of info) and their
     * labels (dpb_sample_labels of each). Called by several threads at once; may block on input;
     * must not allocate by habit. */
    dpb_status (*fetch)(void *source, dpb_split split, uint64_t epoch, const uint64_t *indices,
                        uint32_t n, void *samples, int32_t *labels);
    void (*close)(void *source); /* accepts NULL */
    /* Optional, as all below. May be called while other threads fetch. */
    void (*count)(void *source, struct dpb_data_counts *counts);
    /* For a source that makes its samples and keeps them. For setting up. */
    dpb_status (*pool)(void *source, dpb_split split, struct dpb_sample_pool *pool);
};

#endif
