/*
 * order.h - the order of samples in an epoch, and the epoch's split into steps, workers and
 * micro-batches. Pure functions: no state, no memory, any thread, any position. So helper threads
 * share no table, and a run can begin at any step.
 */
#ifndef DPB_CORE_FEED_ORDER_H
#define DPB_CORE_FEED_ORDER_H

#include "checkpoint/checkpoint.h"
#include "dpbench/status.h"
#include "dpbench/types.h"

/* The order in which an epoch goes through the samples [0, n), or through n samples of a larger set
 * that is dealt out to n_shards: shard, shard + n_shards, shard + 2 n_shards, ... */
struct dpb_order {
    uint64_t n, seed;
    bool shuffle;             /* false: rising, in every epoch */
    uint32_t shard, n_shards; /* n_shards = 0 or 1: not dealt out */
};

/*
 * The sample at a position in [0, n) of an epoch: for every (seed, shard, epoch) a permutation.
 * Only the lower 32 bits of `epoch` count.
 *
 * A Feistel network over the smallest 2^k >= n, its round function Philox, applied again until the
 * result falls below n (less than twice on average; a set smaller than 2^8 is walked as one of
 * 2^8).
 *
 * Luby, Rackoff: How to construct pseudorandom permutations. SIAM J. Comput. 17(2), 1988.
 * Black, Rogaway: Ciphers with arbitrary finite domains. CT-RSA 2002 (cycle walking).
 */
uint64_t dpb_order_at(const struct dpb_order *order, uint64_t epoch, uint64_t position);

/*
 * How an epoch is split. Micro-batch m covers the positions [m * batch, (m + 1) * batch); step s
 * consists of the micro-batches s * W * A + r * A + a, of rank r in [0, W), a in [0, A). So W
 * workers go through the same samples in the same order as one with accumulate = W * A. The last
 * global batch of an epoch is dropped where it is incomplete.
 *
 * A run that continues another begins behind the last sample taken, in the middle of an epoch. The
 * earlier global batch does not matter.
 */
struct dpb_shards {
    uint64_t n_samples;
    uint32_t batch, n_workers, accumulate; /* batch: per worker and micro-batch */
    uint64_t global_batch;                 /* batch * accumulate * n_workers */
    uint64_t steps_per_epoch, dropped;     /* dropped: samples of each epoch */
    struct dpb_progress start;             /* all zero: a training from its beginning */
    uint64_t first_steps;                  /* left of the epoch in which the run begins; may be 0 */
};

/* DPB_USAGE when the global batch is larger than the set; `data` names the source in the message.
 * The start lies within the set. Neither batch, n_workers nor accumulate is 0. */
dpb_status dpb_shards_init(const char *data, uint64_t n_samples, uint32_t batch, uint32_t n_workers,
                           uint32_t accumulate, const struct dpb_progress *start,
                           struct dpb_shards *shards);

/* Where a micro-batch stands in the run. */
struct dpb_place {
    uint64_t step;         /* since the start of training */
    uint64_t epoch;        /* from 0 */
    uint32_t micro;        /* in [0, accumulate): the rank's own micro-batch of the step */
    uint64_t first_sample; /* number of its first sample in the global batch */
    uint64_t position;     /* of its first sample in the epoch */
};

/* The place of the rank's micro-batch `number`, counted from 0 since shards->start. */
struct dpb_place dpb_shards_place(const struct dpb_shards *shards, uint32_t rank, uint64_t number);

/* The progress of the training at the begin of `step` (not before shards->start.step), without
 * times.
 */
struct dpb_progress dpb_shards_progress(const struct dpb_shards *shards, uint64_t step);
/* The first step that begins with `epochs` epochs done, but not before shards->start.step. */
uint64_t dpb_shards_epochs_end(const struct dpb_shards *shards, uint64_t epochs);

/* The part of [0, n) that rank of n_workers evaluates: contiguous, sizes differ by 1 at most. */
struct dpb_range dpb_shards_evaluate(uint64_t n, uint32_t rank, uint32_t n_workers);

#endif
