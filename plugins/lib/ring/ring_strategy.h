/*
 * ring_strategy.h - replicated training over a ring all-reduce: everything but the transport, for
 * ring_tcp and ring_verbs. Every worker keeps weights and, unless sharded, optimizer state. A
 * bucket passes round the ring (ring.h), then every rank updates its weights from the sum.
 *
 * Bytes moved per step and rank, W workers, M bytes of gradients: 2 (W - 1)/W M sent. With a codec
 * of two rounds its messages replace gradients (coded_sums.h): 2 (W - 1)/W m, m bytes a rank.
 *
 * With comm.shard = optimizer (shard.h) a rank owns the slice of each bucket whose sum the rank
 * completes. It updates each chunk as soon as the chunk is summed, and sends weights in place of
 * sums. If updates need norms of whole tensors, ranks send all buckets' partial sums, then sums of
 * squares (squares.h). Then each rank updates its slices and sends their weights.
 *
 * With comm.shard = parameters partial sums go round, and owners keep their new weights. A bucket
 * that is needed goes round as all-gather. All ranks announce and need buckets in one order, so one
 * ring carries both.
 *
 * The ring's order is machine by machine, so that the ring enters and leaves each machine once.
 *
 * Of the other operations of `dpbench comm` a ring has the halves of the all-reduce: reduce_scatter
 * and all_gather, (W - 1)/W M sent each. Their ring's order is that of the ranks.
 */
#ifndef DPB_PLUGINS_LIB_RING_STRATEGY_H
#define DPB_PLUGINS_LIB_RING_STRATEGY_H

#include <stddef.h>

#include "dpbench/option.h"
#include "coded.h"
#include "mesh_transport.h"
#include "ring.h"
#include "shard.h"
#include "strategy.h"

/* Options that every ring has: the first member of a plugin's options. */
struct dpb_ring_options {
    uint64_t chunk; /* bytes */
    uint64_t inbox; /* bytes */
    int shard;      /* for a ring of all workers: DPB_SHARD_OPTION_ROW */
};

/* The options' rows, for a struct with a member `ring` of this type. `NEEDS`: what the
 * ring needs. */
#define DPB_RING_OPTION_ROWS(STRUCT, NEEDS)                                                       \
    DPB_OPTION_ROW(                                                                               \
        "chunk", SIZE, "bytes", "256KiB", DPB_CACHE_LINE, 64 << 20, NULL, STRUCT, ring.chunk,     \
        "bytes that travel in one message: small ones overlap better, large ones cost less each", \
        NEEDS),                                                                                   \
        DPB_OPTION_ROW("inbox", SIZE, "bytes", "4MiB", 4 * DPB_CACHE_LINE, 1 << 30, NULL, STRUCT, \
                       ring.inbox, "memory for partial sums that arrive; at least 4 chunks",      \
                       NEEDS)

/* The place of a ring's inbox in the scratch. */
struct dpb_ring_inbox {
    uint64_t at, slot_bytes;
    uint32_t n_slots;
};

/* Refuses an inbox that is too small. */
dpb_status dpb_ring_inbox_check(const struct dpb_host *host,
                                const struct dpb_ring_options *options);
/* Puts the inbox behind the scratch that `want` has so far, after dpb_ring_inbox_check. */
dpb_status dpb_ring_inbox_plan(const struct dpb_host *host, const struct dpb_ring_options *options,
                               struct dpb_comm_plan *want, struct dpb_ring_inbox *inbox);
/* A ring's memory: the gradient arena, and this inbox. */
struct dpb_ring_memory dpb_ring_inbox_memory(const struct dpb_ring_inbox *inbox,
                                             const struct dpb_arenas *arenas);

struct dpb_gather;

struct dpb_ring_strategy {
    struct dpb_strategy base;
    struct dpb_ring_options options;
    int shard;                            /* dpb_shard_wanted */
    struct dpb_mesh_transport *transport; /* NULL once the ring or the gather owns the transport */
    struct dpb_sums *ring;     /* of gradients, or of messages of a codec of two rounds */
    struct dpb_gather *gather; /* with a codec of one round */
    uint32_t *order;           /* of the members */
    uint32_t position;
    uint64_t n_given; /* buckets of this exchange whose weights are sent behind all sums */
    uint64_t n_begun; /* exchanges */
    struct dpb_ring_inbox inbox;
    /* comm.shard = parameters: buckets to be summed and buckets whose weights are needed, in the
     * order in which they go onto the ring; by number modulo 2 n_buckets. */
    struct dpb_ring_order {
        uint64_t bucket;
        bool needed;
    } * orders;
    /* Since bind: ordered, on the ring, back from it; when this exchange began; and its sums. */
    uint64_t n_ordered, n_posted, n_back, n_before, n_summed;
};

/* `open`: a struct dpb_ring_strategy; the transport is @owned by it, also when this fails. */
dpb_status dpb_ring_strategy_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                                  const struct dpb_ring_options *options,
                                  struct dpb_mesh_transport *transport, void **comm);
dpb_status dpb_ring_strategy_plan(void *comm, const struct dpb_layout *layout,
                                  struct dpb_comm_plan *want);
dpb_status dpb_ring_strategy_bind(void *comm, const struct dpb_arenas *arenas);
dpb_status dpb_ring_strategy_begin(void *comm, const struct dpb_step *step);
dpb_status dpb_ring_strategy_ready(void *comm, uint64_t bucket, struct dpb_event *event);
void dpb_ring_strategy_need(void *comm, uint64_t bucket);
void dpb_ring_strategy_close(void *comm);

/* The memory of a codec, and of optimizer state with shards. The plugin's options begin with a
 * struct dpb_ring_options. */
void dpb_ring_strategy_memory(const void *options, const struct dpb_comm_args *args,
                              const struct dpb_layout *layout, uint64_t bucket_elements,
                              struct dpb_comm_memory *memory);

/* For the hook `contract`: refuses before the run options that `plan` refuses. */
dpb_status dpb_ring_strategy_check(const struct dpb_host *host,
                                   const struct dpb_ring_options *options,
                                   const struct dpb_comm_args *args);

/* All hooks but `open` and `contract`, for a plugin's table. */
#define DPB_RING_STRATEGY_HOOKS                                                                   \
    .memory = dpb_ring_strategy_memory, DPB_CODED_HOOKS, .plan = dpb_ring_strategy_plan,          \
    .bind = dpb_ring_strategy_bind, .load = dpb_strategy_load, .begin = dpb_ring_strategy_begin,  \
    .ready = dpb_ring_strategy_ready, .progress = dpb_strategy_progress, .end = dpb_strategy_end, \
    .publish = dpb_strategy_publish, .taken = dpb_strategy_taken, .need = dpb_ring_strategy_need, \
    .met = dpb_strategy_met, .close = dpb_ring_strategy_close

#define DPB_RING_STRATEGY_COLLECTIVES (1u << DPB_REDUCE_SCATTER | 1u << DPB_ALL_GATHER)

#define DPB_RING_STRATEGY_CAPABILITIES \
    (DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE | DPB_COMM_WHOLE | DPB_COMM_CODECS | DPB_COMM_ROUNDS)

#endif
