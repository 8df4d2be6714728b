/*
 * strategy.h - the common part of strategies over shared memory: members, arenas, signals, the
 * pipeline, and the hooks that are the same for all. A strategy's own struct begins with a
 * struct dpb_strategy, and its file holds its plan and its stages.
 */
#ifndef DPB_PLUGINS_LIB_STRATEGY_H
#define DPB_PLUGINS_LIB_STRATEGY_H

#include "pipeline.h"
#include "signals.h"

enum {
    DPB_CHUNK_BYTES = 128 * 1024
}; /* a piece of work: several sources of this size fit into a cache */

enum { DPB_STRATEGY_WORKERS = 1024 }; /* at most */

struct dpb_strategy;

/* What stands on a strategy, as a codec does (coded.h), has a part in the strategy's hooks. A
 * client's own struct begins with this one. */
struct dpb_strategy_client {
    void (*load)(struct dpb_strategy *strategy);
    dpb_status (*begin)(struct dpb_strategy *strategy);
    void (*close)(struct dpb_strategy *strategy); /* frees the client */
};

/* Sums of squares (squares.h): how the entries of all owners come here. */
struct dpb_squares_carrier {
    /* Those of this owner are in their place in `all`, and go to all others. */
    void (*give)(struct dpb_strategy *strategy);
    /* Whether those of all owners are here. Then `take`, unless NULL, puts them into `all`. */
    bool (*here)(const struct dpb_strategy *strategy);
    void (*take)(struct dpb_strategy *strategy);
};

struct dpb_strategy_squares {
    const struct dpb_squares_carrier *carrier;
    struct dpb_squares *all; /* by owner and tensor */
    uint32_t n_owners, own;  /* this rank's place among the owners */
    uint32_t round;          /* of this exchange; 0: none has begun */
};

/* Elements of a bucket of `length` that belong to this rank. */
typedef struct dpb_range (*dpb_strategy_part)(const struct dpb_strategy *strategy, uint64_t bucket,
                                              uint64_t length);

struct dpb_strategy {
    const struct dpb_host *host;
    struct dpb_comm_args args;
    struct dpb_arenas arenas;
    struct dpb_step step;
    struct dpb_rank_signals signals;
    struct dpb_pipeline pipeline;
    struct dpb_strategy_client *client; /* NULL: none; set after dpb_strategy_open */
    dpb_strategy_part part;             /* that this rank sums (slices.h); NULL: an even slice */
    void *room;       /* for a piece of work, DPB_CHUNK_BYTES; NULL: none was needed */
    uint64_t *needed; /* with weights on need: by the need's number modulo n_buckets; NULL */
    struct dpb_strategy_squares squares; /* squares.h; zeroed: none are exchanged */
};

/* Arena elements [begin, begin + n): one piece of work on a bucket. */
struct dpb_piece {
    uint64_t begin, n;
};

/* `open`: a zeroed struct of `bytes` that begins with a struct dpb_strategy. */
dpb_status dpb_strategy_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                             size_t bytes, void **comm);
/* The part of `bind` that is the same; the rank's scratch begins with its signal page. */
dpb_status dpb_strategy_bind(struct dpb_strategy *strategy, const struct dpb_arenas *arenas,
                             const struct dpb_stage *stages, uint32_t n_stages);

/* An array of stages and their number. */
#define DPB_STRATEGY_STAGES(ARRAY) (ARRAY), sizeof(ARRAY) / sizeof *(ARRAY)

/* In `bind` of a strategy that waits for the network: its signals end that wait. Closed with the
 * strategy. `name` as for dpb_doorbell_open. */
dpb_status dpb_strategy_open_doorbell(struct dpb_strategy *strategy, const char *name);

/* The `plan` of a strategy whose workers have private weights, gradients and optimizer state, and
 * need no signals. */
dpb_status dpb_strategy_plan_own(void *comm, const struct dpb_layout *layout,
                                 struct dpb_comm_plan *want);
/* The same with signals. Signals and gradients are in memory of kind `shared`. */
dpb_status dpb_strategy_plan_replica(struct dpb_strategy *strategy, const struct dpb_layout *layout,
                                     dpb_memory shared, struct dpb_comm_plan *want);

/* In `plan`: these parts replace the owned ranges planned before. */
dpb_status dpb_strategy_plan_parts(const struct dpb_strategy *strategy,
                                   const struct dpb_layout *layout, dpb_strategy_part part,
                                   struct dpb_comm_plan *want);
bool dpb_strategy_is_last(const struct dpb_strategy *strategy, uint64_t bucket);

/* ---- sizes, for `plan` and `memory` --------------------------------------------------------- */

static inline uint64_t dpb_strategy_count_buckets(const struct dpb_layout *layout,
                                                  uint64_t bucket_elements)
{
    return (layout->n_elements + bucket_elements - 1) / bucket_elements;
}

static inline uint64_t dpb_strategy_bucket_length(const struct dpb_layout *layout,
                                                  uint64_t bucket_elements, uint64_t bucket)
{
    return dpb_pipeline_length_of(layout->n_elements, bucket_elements, bucket);
}

/* The first bucket is the longest; comm.bucket may be larger than the model. */
static inline uint64_t dpb_strategy_longest_bucket(const struct dpb_layout *layout,
                                                   uint64_t bucket_elements)
{
    return dpb_strategy_bucket_length(layout, bucket_elements, 0);
}

/* `bytes`, rounded up to whole cache lines. */
static inline uint64_t dpb_strategy_lines(uint64_t bytes)
{
    return (bytes + DPB_CACHE_LINE - 1) / DPB_CACHE_LINE * DPB_CACHE_LINE;
}

/* ---- hooks --------------------------------------------------------------------------------- */

dpb_status dpb_strategy_load(void *comm);
dpb_status dpb_strategy_begin(void *comm, const struct dpb_step *step);
dpb_status dpb_strategy_ready(void *comm, uint64_t bucket, struct dpb_event *event);
dpb_status dpb_strategy_progress(void *comm, int64_t budget_ns);
dpb_status dpb_strategy_end(void *comm, struct dpb_event **done);
dpb_status dpb_strategy_publish(void *comm, struct dpb_view *view);
uint64_t dpb_strategy_taken(void *comm);
uint64_t dpb_strategy_met(void *comm);
void dpb_strategy_close(void *comm);

/* The hooks that are the same in every strategy, for its table of ops. */
#define DPB_STRATEGY_HOOKS                                                                   \
    .ready = dpb_strategy_ready, .progress = dpb_strategy_progress, .end = dpb_strategy_end, \
    .publish = dpb_strategy_publish, .taken = dpb_strategy_taken

/* ---- for stages ---------------------------------------------------------------------------- */

struct dpb_rank_set dpb_strategy_self(const struct dpb_strategy *strategy);
uint32_t dpb_strategy_local_rank(const struct dpb_comm_args *args); /* among its machine's ranks */
/* The workers machine by machine: a ring in this order enters and leaves each machine once. *order
 * is @owned: free. *position: this rank's index in *order. */
dpb_status dpb_strategy_order(const struct dpb_strategy *strategy, uint32_t **order,
                              uint32_t *position);
struct dpb_rank_set dpb_strategy_workers(const struct dpb_strategy *strategy);

struct dpb_piece dpb_strategy_piece(const struct dpb_strategy *strategy, uint64_t bucket,
                                    uint64_t length, uint64_t at, dpb_dtype type);
/* A rank's weights or gradients from arena element `at` on. */
void *dpb_strategy_weights(const struct dpb_strategy *strategy, uint32_t rank, uint64_t at);
void *dpb_strategy_gradients(const struct dpb_strategy *strategy, uint32_t rank, uint64_t at);
void *dpb_strategy_own_weights(const struct dpb_strategy *strategy, uint64_t at);
void *dpb_strategy_own_gradients(const struct dpb_strategy *strategy, uint64_t at);
/* The same of the own sums: arenas.sums, or the own gradients. */
void *dpb_strategy_own_sums(const struct dpb_strategy *strategy, uint64_t at);

/* `due` and `wait` of a stage that a bucket enters when this rank's backward gets there. */
bool dpb_strategy_own_ready(void *strategy, uint64_t bucket);
dpb_status dpb_strategy_own_wait(void *strategy, uint64_t bucket);
/* Whether all workers have raised the signal for a bucket. */
bool dpb_strategy_all_reached(const struct dpb_strategy *strategy, enum dpb_signal_kind kind,
                              uint64_t bucket);
/* Waits for READY of a bucket: first this rank's own, without a deadline, because its own backward
 * raises it; then the signals of `ranks`. */
dpb_status dpb_strategy_wait_ready(const struct dpb_strategy *strategy, struct dpb_rank_set ranks,
                                   uint64_t bucket);
/* Waits for another signal of `ranks`, for a bucket of elements of `type`. */
dpb_status dpb_strategy_wait(const struct dpb_strategy *strategy, enum dpb_signal_kind kind,
                             struct dpb_rank_set ranks, uint64_t bucket, dpb_dtype type,
                             const char *purpose);

/* Sums the workers' gradients of a piece into each `dst`, reports the span, and counts the bytes
 * read from other ranks' memory. */
void dpb_strategy_sum(const struct dpb_strategy *strategy, uint64_t bucket, struct dpb_piece piece,
                      void *const *dst, uint32_t n_dst);
/* The same for n_workers `sources`, which need not be in the workers' arenas; counts no bytes. */
void dpb_strategy_sum_sources(const struct dpb_strategy *strategy, uint64_t bucket,
                              struct dpb_piece piece, const void *const *sources, void *const *dst,
                              uint32_t n_dst);
/* Updates [begin, begin + n) of the own weights from `gradients`, which points at element begin; by
 * a device's queue (the host's is NULL). */
dpb_status dpb_strategy_enqueue_update(const struct dpb_strategy *strategy, struct dpb_queue *queue,
                                       uint64_t bucket, struct dpb_piece piece,
                                       const void *gradients);
void dpb_strategy_update(const struct dpb_strategy *strategy, uint64_t bucket,
                         struct dpb_piece piece, const void *gradients);
/* The same from the own sums, as dpb_ring_shards.make (ring.h). */
void dpb_strategy_make_weights(void *strategy, uint64_t bucket, uint64_t begin, uint64_t n);

/* Reports that others worked for this rank, between its own signal `own` and the last `theirs` of
 * `ranks`. Reports nothing if their times are overwritten. */
void dpb_strategy_span_others(const struct dpb_strategy *strategy, enum dpb_signal_kind own,
                              enum dpb_signal_kind theirs, struct dpb_rank_set ranks,
                              uint64_t bucket);

/* The last stage of most strategies: updates the whole bucket from the own, now summed,
 * gradients. */
void dpb_strategy_update_bucket(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn);

#endif
