/*
 * shm - replicated training on one machine, exchanged through shared memory.
 *
 * Every worker keeps weights and, unless sharded, optimizer state. Rank r owns the r-th of W slices
 * of every bucket. It sums the slice directly from all W gradient arenas and writes the sum back
 * into all arenas. Then every rank updates its weights from its own, now summed, gradients.
 *
 * Bytes moved per step and rank, M bytes of gradients: (W - 1)/W M read from other ranks' arenas
 * and (W - 1)/W M written into them. A ring all-reduce sends as many, in 2 (W - 1) passes instead
 * of two.
 *
 * Fences:
 *   1. a slice is read when every rank has announced its bucket (READY);
 *   2. a bucket is used when every rank has written its slice into all arenas (REDUCED);
 *   3. a gradient arena is written again when all reads of it are over. Fence 2 gives fence 3: the
 *      only other rank that touches a slice of an arena is the slice's owner, before it raises
 *      REDUCED. A rank begins a step after it has seen REDUCED of every rank for every bucket.
 *
 * With comm.shard = optimizer (shard.h) weights are shared, too. The owner of a slice sums it
 * into memory of its own, updates its own weights of the slice, and writes them into all arenas.
 * Bytes are as many, with weights in place of sums. Fence 1 holds for weights, too: no device reads
 * them once their bucket is announced. After fence 2 the new weights of a bucket are here.
 *
 * With comm.shard = parameters owners keep their new weights. A worker copies a bucket's slices out
 * of their owners' arenas when it needs them, in forward and again in backward: (W - 1)/W of the
 * weights each time. Fence 2 says that the owners have updated, fence 1 that all have read.
 *
 * If updates need norms of whole tensors, owners sum all their slices, then exchange sums of
 * squares (squares.h), a few numbers a tensor. Then each owner updates its slices and writes their
 * weights into all arenas.
 *
 * Other operations of `dpbench comm` are in lib/strategy/collectives.h.
 *
 * With a codec each rank reads the messages of all others instead (coded.h): (W - 1) m bytes,
 * for messages of m bytes a rank.
 */
#include "dpbench/plugin.h"
#include "lib/coded/coded.h"
#include "lib/strategy/collectives.h"
#include "lib/strategy/shard.h"
#include "lib/strategy/slices.h"

static const struct dpb_host *host;

struct shm {
    struct dpb_strategy base;
    int shard; /* dpb_shard_wanted */
};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status shm_comm_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    const struct dpb_shard_options *given = options;
    DPB_TRY(dpb_coded_open(host, args, sizeof(struct shm), comm));
    ((struct shm *)*comm)->shard = dpb_shard_wanted(args, given->shard);
    return DPB_OK;
}

static dpb_status shm_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    const int shard = ((const struct shm *)comm)->shard;
    struct dpb_strategy *strategy = comm;
    dpb_shard_plan_slots(&strategy->args, layout, shard, want);
    DPB_TRY(dpb_strategy_plan_replica(comm, layout, DPB_MEMORY_SHARED, want));
    if (strategy->args.codec)
        return dpb_coded_plan(strategy, layout, DPB_CODED_SHARED, want);
    if (shard == DPB_SHARD_NONE)
        return DPB_OK;
    return dpb_slices_plan_shards(strategy, layout, dpb_slices_own, want);
}

static dpb_status shm_bind(void *comm, const struct dpb_arenas *arenas)
{
    const int shard = ((const struct shm *)comm)->shard;
    struct dpb_strategy *strategy = comm;
    if (strategy->args.operation != DPB_ALL_REDUCE)
        return dpb_collectives_bind_shared(strategy, arenas);
    if (strategy->args.codec)
        return dpb_coded_bind_stages(strategy, arenas, &dpb_coded_shared);
    if (shard == DPB_SHARD_NONE)
        return dpb_strategy_bind(strategy, arenas, dpb_slices_stages, DPB_SLICES_STAGES);
    if (shard == DPB_SHARD_PARAMETERS)
        DPB_TRY(dpb_slices_bind_parameters(strategy, arenas));
    else
        DPB_TRY(dpb_slices_bind_shards(strategy, arenas));
    dpb_shard_bind_slots(strategy, shard);
    return DPB_OK;
}

static void shm_memory(const void *options, const struct dpb_comm_args *args,
                       const struct dpb_layout *layout, uint64_t bucket_elements,
                       struct dpb_comm_memory *memory)
{
    const struct dpb_shard_options *given = options;
    dpb_shard_memory(args, given->shard, layout, bucket_elements, memory);
    dpb_coded_memory(args, layout, bucket_elements, DPB_CODED_SHARED, memory);
}

static const struct dpb_comm_ops shm_ops = {.memory = shm_memory,
                                            .open = shm_comm_open,
                                            .plan = shm_plan,
                                            .bind = shm_bind,
                                            .load = dpb_strategy_load,
                                            .begin = dpb_strategy_begin,
                                            DPB_STRATEGY_HOOKS,
                                            .need = dpb_slices_need,
                                            .met = dpb_strategy_met,
                                            DPB_CODED_HOOKS,
                                            .collectives = DPB_COLLECTIVES_ALL,
                                            .close = dpb_strategy_close};

static const struct dpb_plugin shm = {
    DPB_PLUGIN_HEAD(COMM, shm_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_CODECS | DPB_COMM_ROUNDS | DPB_COMM_WHOLE |
                    DPB_COMM_WHOLE_SHARDS,
    .name = "shm",
    .version = DPB_VERSION,
    .summary = "replicated, one machine: each rank sums its slice out of all arenas",
    .options = dpb_shard_all_option_rows,
    .options_size = sizeof(struct dpb_shard_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &shm;
}
