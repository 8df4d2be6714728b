/*
 * shm - replicated training on one machine, exchanged through shared memory.
 *
 * Every worker keeps weights and optimizer state. Of every bucket rank r owns the r-th of W slices:
 * it sums the slice straight out of all W gradient arenas and writes the sum back into all of them;
 * then every rank updates its weights from its own, now summed, gradients.
 *
 * Bytes moved per step and rank, M bytes of gradients: (W - 1)/W M read out of other ranks' arenas
 * and (W - 1)/W M written into them: what a ring all-reduce sends, in two passes instead of 2 (W -
 * 1).
 *
 * Three fences keep it right:
 *   1. a slice is read when every rank has announced its bucket (READY);
 *   2. a bucket is used when every rank has written its slice into all arenas (REDUCED);
 *   3. a gradient arena is written again when all reads of it are over. The only other rank that
 *      touches a slice of an arena is the slice's owner, before it raises REDUCED, and a rank
 * begins no step before it has seen REDUCED of every rank for every bucket: fence 2 gives fence 3.
 */
#include "dpbench/plugin.h"
#include "lib/strategy.h"

static const struct dpb_host *host;

/* The part of a bucket that this rank sums. */
static struct dpb_range own_slice(const struct strategy *comm, uint64_t length)
{
    uint64_t rank = comm->args.rank, n = comm->args.n_workers;
    return (struct dpb_range){length * rank / n, length * (rank + 1) / n};
}

/* ---- stage: reduce the own slice ----------------------------------------------------------- */

static bool reduce_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_READY, strategy_workers(comm), bucket);
}

static dpb_status reduce_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait_ready(comm, strategy_workers(comm), bucket);
}

static void reduce(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct strategy *comm = strategy;
    struct dpb_range slice = own_slice(comm, length);
    dpb_dtype type = comm->arenas.layout.gradient_type;
    if (*at == 0) {
        signals_span_late_peer(&comm->signals, strategy_workers(comm), bucket);
        *at = slice.begin;
    }
    while (*at < slice.end && host->now_ns() < until_ns) {
        struct piece piece = strategy_piece(comm, bucket, slice.end, *at, type);
        strategy_sum_everywhere(comm, bucket, piece);
        *at += piece.n;
    }
    if (*at < slice.end)
        return;
    signals_raise(&comm->signals, SIGNAL_REDUCED, bucket);
    *at = length;
}

/* ---- stage: update all of the bucket ------------------------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_REDUCED, strategy_workers(comm), bucket);
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait(comm, SIGNAL_REDUCED, strategy_workers(comm), bucket,
                         comm->arenas.layout.gradient_type, "the peer's slice of the sum");
}

/* Between the own slice and the last of the others', others worked for this rank. */
static void update(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct strategy *comm = strategy;
    if (*at == 0) {
        int64_t own =
            signals_latest_ns(&comm->signals, SIGNAL_REDUCED, strategy_self(comm), bucket);
        int64_t last =
            signals_latest_ns(&comm->signals, SIGNAL_REDUCED, strategy_workers(comm), bucket);
        if (last > own)
            host->span(0, bucket, DPB_PHASE_TRANSFER, own, last);
    }
    strategy_update_bucket(strategy, bucket, length, at, until_ns);
}

static const struct stage stages[] = {{reduce_due, reduce, reduce_wait},
                                      {update_due, update, update_wait}};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status shm_comm_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    (void)options;
    return strategy_open(host, args, sizeof(struct strategy), comm);
}

static dpb_status shm_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    return strategy_plan_replica(comm, layout, DPB_MEMORY_SHARED, want);
}

static dpb_status shm_bind(void *comm, const struct dpb_arenas *arenas)
{
    return strategy_bind(comm, arenas, stages, 2);
}

static const struct dpb_comm_ops shm_ops = {.open = shm_comm_open,
                                            .plan = shm_plan,
                                            .bind = shm_bind,
                                            .load = strategy_load,
                                            .begin = strategy_begin,
                                            STRATEGY_HOOKS,
                                            .close = strategy_close};

static const struct dpb_plugin shm = {
    DPB_PLUGIN_HEAD(COMM, shm_ops),
    .capabilities = DPB_COMM_SYNC | DPB_COMM_BITWISE | DPB_COMM_OVERLAP,
    .name = "shm",
    .version = DPB_VERSION,
    .summary = "replicated, one machine: each rank sums its slice out of all arenas",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &shm;
}
