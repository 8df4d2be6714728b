/* slices.c - see slices.h. */
#include "lib/strategy/slices.h"

void dpb_slices_count_all_reduce(const struct dpb_strategy *strategy, uint64_t bucket,
                                 dpb_dtype back)
{
    const uint64_t n = dpb_pipeline_bucket_length(&strategy->pipeline, bucket);
    strategy->host->count_bytes(
        dpb_slices_sent(n, strategy->args.rank, strategy->args.n_workers) *
        (dpb_dtype_size(strategy->arenas.layout.gradient_type) + dpb_dtype_size(back)));
}

/* ---- stage: reduce the own slice ----------------------------------------------------------- */

bool dpb_slices_due(void *strategy, uint64_t bucket)
{
    return dpb_strategy_all_reached(strategy, DPB_SIGNAL_READY, bucket);
}

dpb_status dpb_slices_wait(void *strategy, uint64_t bucket)
{
    return dpb_strategy_wait_ready(strategy, dpb_strategy_workers(strategy), bucket);
}

bool dpb_slices_work_on(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_range range,
                        dpb_dtype type, struct dpb_stage_turn *turn, dpb_slices_work work)
{
    if (turn->at < range.begin)
        turn->at = range.begin;
    while (turn->at < range.end && comm->host->now_ns() < turn->until_ns) {
        const struct dpb_piece piece = dpb_strategy_piece(comm, bucket, range.end, turn->at, type);
        work(comm, bucket, piece);
        turn->at += piece.n;
    }
    return turn->at >= range.end;
}

bool dpb_slices_work_on_own(const struct dpb_strategy *comm, uint64_t bucket,
                            struct dpb_stage_turn *turn, dpb_slices_work work)
{
    const struct dpb_range slice =
        dpb_slice_of(turn->length, comm->args.rank, comm->args.n_workers);
    if (!dpb_slices_work_on(comm, bucket, slice, comm->arenas.layout.gradient_type, turn, work))
        return false;
    turn->at = turn->length;
    return true;
}

void dpb_slices_reduce(const struct dpb_strategy *comm, uint64_t bucket,
                       struct dpb_stage_turn *turn, dpb_slices_work work)
{
    if (turn->at == 0)
        dpb_signals_span_late_peer(&comm->signals, dpb_strategy_workers(comm), bucket);
    if (dpb_slices_work_on_own(comm, bucket, turn, work))
        dpb_signals_raise(&comm->signals, DPB_SIGNAL_REDUCED, bucket);
}

/* Sums into the gradients of all workers; counts the bytes written there, too. */
static void sum_everywhere(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    const struct dpb_comm_args *args = &comm->args;
    void *all[DPB_STRATEGY_WORKERS];
    for (uint32_t rank = 0; rank < args->n_workers; rank++)
        all[rank] = dpb_strategy_gradients(comm, rank, piece.begin);
    dpb_strategy_sum(comm, bucket, piece, all, args->n_workers);
    comm->host->count_bytes((args->n_workers - 1) * piece.n *
                            dpb_dtype_size(comm->arenas.layout.gradient_type));
}

static void reduce(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_slices_reduce(strategy, bucket, turn, sum_everywhere);
}

/* ---- stage: update all of the bucket ------------------------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    return dpb_strategy_all_reached(strategy, DPB_SIGNAL_REDUCED, bucket);
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    return dpb_strategy_wait(comm, DPB_SIGNAL_REDUCED, dpb_strategy_workers(comm), bucket,
                             comm->arenas.layout.gradient_type, "the peer's slice of the sum");
}

/* Between the own slice and the last of the others', others worked for this rank. */
static void span_slices(const struct dpb_strategy *comm, uint64_t bucket)
{
    dpb_strategy_span_others(comm, DPB_SIGNAL_REDUCED, DPB_SIGNAL_REDUCED,
                             dpb_strategy_workers(comm), bucket);
}

static void update(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    if (turn->at == 0)
        span_slices(strategy, bucket);
    dpb_strategy_update_bucket(strategy, bucket, turn);
}

const struct dpb_stage dpb_slices_stages[DPB_SLICES_STAGES] = {
    {dpb_slices_due, reduce, dpb_slices_wait}, {update_due, update, update_wait}};

/* ---- with shards --------------------------------------------------------------------------- */

struct dpb_range dpb_slices_own(const struct dpb_strategy *strategy, uint64_t bucket,
                                uint64_t length)
{
    (void)bucket;
    return dpb_slice_of(length, strategy->args.rank, strategy->args.n_workers);
}

/* Every rank has announced the bucket, so no device reads its weights. */
static void give_weights(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    const struct dpb_host *host = comm->host;
    const struct dpb_comm_args *args = &comm->args;
    const dpb_dtype type = comm->arenas.layout.weight_type;
    const void *own = dpb_strategy_weights(comm, args->rank, piece.begin);
    const int64_t began_ns = host->now_ns();
    for (uint32_t i = 1; i < args->n_workers; i++) /* not all to the same arena at once */
        host->vec->copy(type,
                        dpb_strategy_weights(comm, (args->rank + i) % args->n_workers, piece.begin),
                        own, piece.n);
    host->count_bytes((args->n_workers - 1) * piece.n * dpb_dtype_size(type));
    host->span(bucket, DPB_PHASE_TRANSFER, began_ns, host->now_ns());
}

static void sum_and_update(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    dpb_strategy_sum(comm, bucket, piece, &comm->room, 1);
    dpb_strategy_update(comm, bucket, piece, comm->room);
    give_weights(comm, bucket, piece);
}

static void reduce_shard(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_slices_reduce(strategy, bucket, turn, sum_and_update);
}

static dpb_status dpb_gather_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    return dpb_strategy_wait(comm, DPB_SIGNAL_REDUCED, dpb_strategy_workers(comm), bucket,
                             comm->arenas.layout.weight_type, "the peer's slice of the weights");
}

/* The others have written their slices here. */
static void gather(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    span_slices(strategy, bucket);
    turn->at = turn->length;
}

/* ---- with shards and norms of whole tensors ------------------------------------------------- */

/* Every rank gets all sums. The later stages work in the last bucket alone. Its gradients are the
 * last of backward: no device op waits for this work. */
static void update_slices(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    span_slices(strategy, bucket);
    if (dpb_strategy_is_last(strategy, bucket)) {
        dpb_strategy_update_parts(strategy, dpb_slices_own);
        dpb_signals_raise(&((struct dpb_strategy *)strategy)->signals, DPB_SIGNAL_TAKEN, bucket);
    }
    turn->at = turn->length;
}

/* LARS takes norms of all old weights: they may change when every rank has updated. */
static bool give_due(void *strategy, uint64_t bucket)
{
    return !dpb_strategy_is_last(strategy, bucket) ||
           dpb_strategy_all_reached(strategy, DPB_SIGNAL_TAKEN, bucket);
}

static dpb_status give_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    return dpb_strategy_wait(comm, DPB_SIGNAL_TAKEN, dpb_strategy_workers(comm), bucket,
                             comm->arenas.layout.weight_type, "the peer's update of its slices");
}

static void give_all_slices(const struct dpb_strategy *comm)
{
    for (uint64_t bucket = 0; bucket < comm->arenas.n_buckets; bucket++) {
        struct dpb_stage_turn turn = {.length = dpb_pipeline_bucket_length(&comm->pipeline, bucket),
                                      .until_ns = INT64_MAX};
        dpb_slices_work_on_own(comm, bucket, &turn, give_weights);
    }
}

static void give_slices(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    if (dpb_strategy_is_last(strategy, bucket)) {
        give_all_slices(strategy);
        dpb_signals_raise(&((struct dpb_strategy *)strategy)->signals, DPB_SIGNAL_GATHERED, bucket);
    }
    turn->at = turn->length;
}

static bool given_due(void *strategy, uint64_t bucket)
{
    return !dpb_strategy_is_last(strategy, bucket) ||
           dpb_strategy_all_reached(strategy, DPB_SIGNAL_GATHERED, bucket);
}

static dpb_status given_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    return dpb_strategy_wait(comm, DPB_SIGNAL_GATHERED, dpb_strategy_workers(comm), bucket,
                             comm->arenas.layout.weight_type, "the peer's slices of the weights");
}

dpb_status dpb_slices_bind_shards(struct dpb_strategy *strategy, const struct dpb_arenas *arenas)
{
    static const struct dpb_stage whole[] = {{dpb_slices_due, reduce, dpb_slices_wait},
                                             {update_due, update_slices, update_wait},
                                             {give_due, give_slices, give_wait},
                                             {.due = given_due, .wait = given_wait}};
    if (strategy->args.whole)
        return dpb_strategy_bind(strategy, arenas, DPB_STRATEGY_STAGES(whole));
    static const struct dpb_stage stages[] = {{dpb_slices_due, reduce_shard, dpb_slices_wait},
                                              {update_due, gather, dpb_gather_wait}};
    strategy->room = strategy->host->alloc(DPB_CHUNK_BYTES);
    return strategy->room ? dpb_strategy_bind(strategy, arenas, stages, 2) : DPB_NO_MEMORY;
}
