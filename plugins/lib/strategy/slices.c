/* slices.c - see slices.h. */
#include "lib/strategy/slices.h"

void slices_count_all_reduce(const struct strategy *strategy, uint64_t bucket, dpb_dtype back)
{
    const uint64_t n = pipeline_bucket_length(&strategy->pipeline, bucket);
    strategy->host->count_bytes(
        slices_sent(n, strategy->args.rank, strategy->args.n_workers) *
        (dpb_dtype_size(strategy->arenas.layout.gradient_type) + dpb_dtype_size(back)));
}

/* ---- stage: reduce the own slice ----------------------------------------------------------- */

bool slices_due(void *strategy, uint64_t bucket)
{
    return strategy_all_reached(strategy, SIGNAL_READY, bucket);
}

dpb_status slices_wait(void *strategy, uint64_t bucket)
{
    return strategy_wait_ready(strategy, strategy_workers(strategy), bucket);
}

bool slices_work_on(const struct strategy *comm, uint64_t bucket, struct dpb_range range,
                    dpb_dtype type, struct stage_turn *turn, slices_work work)
{
    if (turn->at < range.begin)
        turn->at = range.begin;
    while (turn->at < range.end && comm->host->now_ns() < turn->until_ns) {
        const struct piece piece = strategy_piece(comm, bucket, range.end, turn->at, type);
        work(comm, bucket, piece);
        turn->at += piece.n;
    }
    return turn->at >= range.end;
}

bool slices_work_on_own(const struct strategy *comm, uint64_t bucket, struct stage_turn *turn,
                        slices_work work)
{
    const struct dpb_range slice = slice_of(turn->length, comm->args.rank, comm->args.n_workers);
    if (!slices_work_on(comm, bucket, slice, comm->arenas.layout.gradient_type, turn, work))
        return false;
    turn->at = turn->length;
    return true;
}

void slices_reduce(const struct strategy *comm, uint64_t bucket, struct stage_turn *turn,
                   slices_work work)
{
    if (turn->at == 0)
        signals_span_late_peer(&comm->signals, strategy_workers(comm), bucket);
    if (slices_work_on_own(comm, bucket, turn, work))
        signals_raise(&comm->signals, SIGNAL_REDUCED, bucket);
}

/* Sums into the gradients of all workers; counts the bytes written there, too. */
static void sum_everywhere(const struct strategy *comm, uint64_t bucket, struct piece piece)
{
    const struct dpb_comm_args *args = &comm->args;
    void *all[STRATEGY_WORKERS];
    for (uint32_t rank = 0; rank < args->n_workers; rank++)
        all[rank] = strategy_gradients(comm, rank, piece.begin);
    strategy_sum(comm, bucket, piece, all, args->n_workers);
    comm->host->count_bytes((args->n_workers - 1) * piece.n *
                            dpb_dtype_size(comm->arenas.layout.gradient_type));
}

static void reduce(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    slices_reduce(strategy, bucket, turn, sum_everywhere);
}

/* ---- stage: update all of the bucket ------------------------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    return strategy_all_reached(strategy, SIGNAL_REDUCED, bucket);
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait(comm, SIGNAL_REDUCED, strategy_workers(comm), bucket,
                         comm->arenas.layout.gradient_type, "the peer's slice of the sum");
}

/* Between the own slice and the last of the others', others worked for this rank. */
static void span_slices(const struct strategy *comm, uint64_t bucket)
{
    strategy_span_others(comm, SIGNAL_REDUCED, SIGNAL_REDUCED, strategy_workers(comm), bucket);
}

static void update(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    if (turn->at == 0)
        span_slices(strategy, bucket);
    strategy_update_bucket(strategy, bucket, turn);
}

const struct stage slices_stages[SLICES_STAGES] = {{slices_due, reduce, slices_wait},
                                                   {update_due, update, update_wait}};

/* ---- with shards --------------------------------------------------------------------------- */

struct dpb_range slices_own(const struct strategy *strategy, uint64_t bucket, uint64_t length)
{
    (void)bucket;
    return slice_of(length, strategy->args.rank, strategy->args.n_workers);
}

/* Every rank has announced the bucket, so no device reads its weights. */
static void give_weights(const struct strategy *comm, uint64_t bucket, struct piece piece)
{
    const struct dpb_host *host = comm->host;
    const struct dpb_comm_args *args = &comm->args;
    const dpb_dtype type = comm->arenas.layout.weight_type;
    const void *own = strategy_weights(comm, args->rank, piece.begin);
    const int64_t began_ns = host->now_ns();
    for (uint32_t i = 1; i < args->n_workers; i++) /* not all to the same arena at once */
        host->vec->copy(type,
                        strategy_weights(comm, (args->rank + i) % args->n_workers, piece.begin),
                        own, piece.n);
    host->count_bytes((args->n_workers - 1) * piece.n * dpb_dtype_size(type));
    host->span(bucket, DPB_PHASE_TRANSFER, began_ns, host->now_ns());
}

static void sum_and_update(const struct strategy *comm, uint64_t bucket, struct piece piece)
{
    strategy_sum(comm, bucket, piece, &comm->room, 1);
    strategy_update(comm, bucket, piece, comm->room);
    give_weights(comm, bucket, piece);
}

static void reduce_shard(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    slices_reduce(strategy, bucket, turn, sum_and_update);
}

static dpb_status gather_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait(comm, SIGNAL_REDUCED, strategy_workers(comm), bucket,
                         comm->arenas.layout.weight_type, "the peer's slice of the weights");
}

/* The others have written their slices here. */
static void gather(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    span_slices(strategy, bucket);
    turn->at = turn->length;
}

/* ---- with shards and norms of whole tensors ------------------------------------------------- */

/* Every rank gets all sums. The later stages work in the last bucket alone. Its gradients are the
 * last of backward: no device op waits for this work. */
static void update_slices(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    span_slices(strategy, bucket);
    if (strategy_is_last(strategy, bucket)) {
        strategy_update_parts(strategy, slices_own);
        signals_raise(&((struct strategy *)strategy)->signals, SIGNAL_TAKEN, bucket);
    }
    turn->at = turn->length;
}

/* LARS takes norms of all old weights: they may change when every rank has updated. */
static bool give_due(void *strategy, uint64_t bucket)
{
    return !strategy_is_last(strategy, bucket) ||
           strategy_all_reached(strategy, SIGNAL_TAKEN, bucket);
}

static dpb_status give_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait(comm, SIGNAL_TAKEN, strategy_workers(comm), bucket,
                         comm->arenas.layout.weight_type, "the peer's update of its slices");
}

static void give_all_slices(const struct strategy *comm)
{
    for (uint64_t bucket = 0; bucket < comm->arenas.n_buckets; bucket++) {
        struct stage_turn turn = {.length = pipeline_bucket_length(&comm->pipeline, bucket),
                                  .until_ns = INT64_MAX};
        slices_work_on_own(comm, bucket, &turn, give_weights);
    }
}

static void give_slices(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    if (strategy_is_last(strategy, bucket)) {
        give_all_slices(strategy);
        signals_raise(&((struct strategy *)strategy)->signals, SIGNAL_GATHERED, bucket);
    }
    turn->at = turn->length;
}

static bool given_due(void *strategy, uint64_t bucket)
{
    return !strategy_is_last(strategy, bucket) ||
           strategy_all_reached(strategy, SIGNAL_GATHERED, bucket);
}

static dpb_status given_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait(comm, SIGNAL_GATHERED, strategy_workers(comm), bucket,
                         comm->arenas.layout.weight_type, "the peer's slices of the weights");
}

dpb_status slices_bind_shards(struct strategy *strategy, const struct dpb_arenas *arenas)
{
    static const struct stage whole[] = {{slices_due, reduce, slices_wait},
                                         {update_due, update_slices, update_wait},
                                         {give_due, give_slices, give_wait},
                                         {.due = given_due, .wait = given_wait}};
    if (strategy->args.whole)
        return strategy_bind(strategy, arenas, STRATEGY_STAGES(whole));
    static const struct stage stages[] = {{slices_due, reduce_shard, slices_wait},
                                          {update_due, gather, gather_wait}};
    strategy->room = strategy->host->alloc(CHUNK_BYTES);
    return strategy->room ? strategy_bind(strategy, arenas, stages, 2) : DPB_NO_MEMORY;
}
