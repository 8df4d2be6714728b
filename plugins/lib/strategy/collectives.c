/* collectives.c - see collectives.h. */
#include "lib/strategy/collectives.h"

#include "lib/strategy/slices.h"

/* ---- pieces -------------------------------------------------------------------------------- */

/* Copies n elements of a worker's gradients from arena element `from` on. */
static void take(const struct dpb_strategy *comm, uint64_t bucket, uint32_t rank, uint64_t from,
                 void *to, uint64_t n)
{
    const struct dpb_host *host = comm->host;
    const dpb_dtype type = comm->arenas.layout.gradient_type;
    const int64_t began_ns = host->now_ns();
    host->vec->copy(type, to, dpb_strategy_gradients(comm, rank, from), n);
    if (rank != comm->args.rank)
        host->count_bytes(n * dpb_dtype_size(type));
    host->span(bucket, DPB_PHASE_TRANSFER, began_ns, host->now_ns());
}

static void sum_own(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    void *own = dpb_strategy_own_gradients(comm, piece.begin);
    dpb_strategy_sum(comm, bucket, piece, &own, 1);
}

static void take_first(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    if (comm->args.rank != 0)
        take(comm, bucket, 0, piece.begin, dpb_strategy_own_gradients(comm, piece.begin), piece.n);
}

/* The part of a piece that lies in slice q of its bucket, by elements of the arena. */
static struct dpb_range within(const struct dpb_strategy *comm, uint64_t bucket,
                               struct dpb_piece piece, uint32_t q)
{
    const uint64_t begin = bucket * comm->arenas.bucket_elements;
    const struct dpb_range slice =
        dpb_slice_of(dpb_pipeline_bucket_length(&comm->pipeline, bucket), q, comm->args.n_workers);
    const uint64_t from = begin + slice.begin, to = begin + slice.end, end = piece.begin + piece.n;
    return (struct dpb_range){piece.begin > from ? piece.begin : from, end < to ? end : to};
}

static void take_slices(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    for (uint32_t q = 0; q < comm->args.n_workers; q++) {
        const struct dpb_range part = within(comm, bucket, piece, q);
        if (part.begin < part.end && q != comm->args.rank)
            take(comm, bucket, q, part.begin, dpb_strategy_own_gradients(comm, part.begin),
                 part.end - part.begin);
    }
}

/* Slice q of the own weights is the own slice of worker q's gradients. */
static void take_own_slices(const struct dpb_strategy *comm, uint64_t bucket,
                            struct dpb_piece piece)
{
    const uint64_t length = dpb_pipeline_bucket_length(&comm->pipeline, bucket);
    const uint32_t n = comm->args.n_workers;
    const uint64_t own = dpb_slice_of(length, comm->args.rank, n).begin;
    for (uint32_t q = 0; q < n; q++) {
        const struct dpb_range part = within(comm, bucket, piece, q);
        if (part.begin < part.end)
            take(comm, bucket, q, part.begin - dpb_slice_of(length, q, n).begin + own,
                 dpb_strategy_own_weights(comm, part.begin), part.end - part.begin);
    }
}

/* ---- stages -------------------------------------------------------------------------------- */

static void reduce_scatter(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_slices_reduce(strategy, bucket, turn, sum_own);
}

static void work_on_all(const struct dpb_strategy *comm, uint64_t bucket,
                        struct dpb_stage_turn *turn, dpb_slices_work work)
{
    const struct dpb_range all = {0, turn->length};
    if (turn->at == 0)
        dpb_signals_span_late_peer(&comm->signals, dpb_strategy_workers(comm), bucket);
    if (dpb_slices_work_on(comm, bucket, all, comm->arenas.layout.gradient_type, turn, work))
        dpb_signals_raise(&comm->signals, DPB_SIGNAL_REDUCED, bucket);
}

static void all_gather(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    work_on_all(strategy, bucket, turn, take_slices);
}

static void broadcast(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    work_on_all(strategy, bucket, turn, take_first);
}

static void all_to_all(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    work_on_all(strategy, bucket, turn, take_own_slices);
}

static bool taken_due(void *strategy, uint64_t bucket)
{
    return dpb_strategy_all_reached(strategy, DPB_SIGNAL_REDUCED, bucket);
}

static dpb_status taken_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    return dpb_strategy_wait(comm, DPB_SIGNAL_REDUCED, dpb_strategy_workers(comm), bucket,
                             comm->arenas.layout.gradient_type, "the peer's reads of the bucket");
}

dpb_status dpb_collectives_bind_shared(struct dpb_strategy *strategy,
                                       const struct dpb_arenas *arenas)
{
    enum { STAGES = 2 };
#define STAGES_OF(WORK)                          \
    {                                            \
        {dpb_slices_due, WORK, dpb_slices_wait}, \
        {                                        \
            .due = taken_due, .wait = taken_wait \
        }                                        \
    }
    static const struct dpb_stage stages[][STAGES] = {[DPB_REDUCE_SCATTER] =
                                                          STAGES_OF(reduce_scatter),
                                                      [DPB_ALL_GATHER] = STAGES_OF(all_gather),
                                                      [DPB_BROADCAST] = STAGES_OF(broadcast),
                                                      [DPB_ALL_TO_ALL] = STAGES_OF(all_to_all)};
    return dpb_strategy_bind(strategy, arenas, stages[strategy->args.operation], STAGES);
}
