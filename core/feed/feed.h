/*
 * feed.h - hands batches to the loop: decoded ahead of time by helper threads into a ring of slots,
 * in the order of order.h. The feed knows samples only as bytes; a data plugin brings them.
 *
 * One thread (the loop's) calls next. Helpers fill whole slots, each helper any batch, so the
 * batches do not depend on the number of helpers. All memory is taken at creation. Waits sleep.
 */
#ifndef DPB_CORE_FEED_FEED_H
#define DPB_CORE_FEED_FEED_H

#include "dpbench/data.h"
#include "feed/order.h"

struct dpb_board; /* world/board.h */
struct dpb_feed;

struct dpb_feed_args {
    const struct dpb_data_ops *ops;
    void *source;              /* @borrowed until destroy */
    const char *name;          /* of the data plugin, for messages; @borrowed likewise */
    struct dpb_data_info info; /* from the source's open */
    dpb_split split;
    /* The split's pool: batches are numbers of its samples, and nothing is fetched. No samples: no
     * pool. */
    struct dpb_sample_pool pool;
    uint32_t batch; /* per worker and micro-batch */
    uint32_t rank, n_workers;
    uint32_t threads;        /* helpers; 0: `next` fetches itself, on the loop's thread */
    int64_t timeout_ns;      /* of a wait in `next`; DPB_FOREVER: none. Not of its own fetch */
    struct dpb_board *board; /* the end of its job ends waits; NULL: none */
    /* Training only. */
    uint32_t accumulate;
    bool shuffle;
    bool sharded; /* the rank reads samples of its own: see struct dpb_data_request */
    uint64_t seed;
    struct dpb_progress start; /* all zero, or where a checkpoint continues */
};

/* A batch from `next`. Memory is @borrowed until the following `next`. */
struct dpb_feed_batch {
    struct dpb_batch batch;
    uint32_t valid; /* samples that count, from the first: batch.n in training; 0: the end of
                       an evaluation. The rest is readable, with labels in range */
    struct dpb_place place; /* training; of an evaluation's batch only `position` is set */
};

/* Endless batches for training; helpers begin at once. DPB_USAGE when the global batch is larger
 * than the split, DPB_NO_MEMORY. *feed is @owned. */
dpb_status dpb_feed_create(const struct dpb_feed_args *args, struct dpb_feed **feed);

/* A contiguous share of a split in sample order, once through for every dpb_feed_eval_begin.
 * Helpers sleep between the passes. DPB_USAGE when the split is empty. *feed is @owned. */
dpb_status dpb_feed_eval_create(const struct dpb_feed_args *args, struct dpb_feed **feed);
/* Starts a pass over the share of the index-th of n ranks: over all of them each sample comes
 * exactly once, and a share may be empty. The pass before was read to its end (valid = 0). */
void dpb_feed_eval_begin(struct dpb_feed *feed, uint32_t index, uint32_t n);

/*
 * The next batch of the rank. Blocks while it is not ready: DPB_TIMEOUT or DPB_PEER with a message
 * when the deadline passes or the job ends. If the source's fetch of a batch failed, this call and
 * every later one return the fetch's status.
 */
dpb_status dpb_feed_next(struct dpb_feed *feed, struct dpb_feed_batch *batch);

/* How the epochs of a training feed are split; if args.sharded, the epochs of the rank's own
 * samples. @borrowed until destroy. */
const struct dpb_shards *dpb_feed_shards(const struct dpb_feed *feed);
/* How far the training, of all workers, has come at the begin of `step`; without times. */
struct dpb_progress dpb_feed_progress(const struct dpb_feed *feed, uint64_t step);

/* Joins the helpers, each after its current fetch. Accepts NULL. */
void dpb_feed_destroy(struct dpb_feed *feed);

#endif
