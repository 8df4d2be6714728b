/* slices.c - see slices.h. */
#include "lib/slices.h"

/* ---- stage: reduce the own slice ----------------------------------------------------------- */

bool slices_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_READY, strategy_workers(comm), bucket);
}

dpb_status slices_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait_ready(comm, strategy_workers(comm), bucket);
}

static void reduce(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct strategy *comm = strategy;
    struct dpb_range slice = slice_of(length, comm->args.rank, comm->args.n_workers);
    dpb_dtype type = comm->arenas.layout.gradient_type;
    if (*at == 0) {
        signals_span_late_peer(&comm->signals, strategy_workers(comm), bucket);
        *at = slice.begin;
    }
    while (*at < slice.end && comm->host->now_ns() < until_ns) {
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
    if (*at == 0)
        strategy_span_others(comm, SIGNAL_REDUCED, SIGNAL_REDUCED, strategy_workers(comm), bucket);
    strategy_update_bucket(strategy, bucket, length, at, until_ns);
}

const struct stage slices_stages[SLICES_STAGES] = {{slices_due, reduce, slices_wait},
                                                   {update_due, update, update_wait}};
