/* slices.c - see slices.h. */
#include "lib/strategy/slices.h"

#include <stdlib.h>
#include <string.h>

#include "lib/strategy/squares.h"

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

struct dpb_range dpb_slices_own(const struct dpb_strategy *strategy, uint64_t bucket,
                                uint64_t length)
{
    (void)bucket;
    return dpb_slice_of(length, strategy->args.rank, strategy->args.n_workers);
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
    const struct dpb_range own =
        (comm->part ? comm->part : dpb_slices_own)(comm, bucket, turn->length);
    if (!dpb_slices_work_on(comm, bucket, own, comm->arenas.layout.gradient_type, turn, work))
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

/* ---- with shards, and norms of whole tensors or sums over micro-batches ---------------------- */

static void sum_here(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    void *own = dpb_strategy_own_sums(comm, piece.begin);
    dpb_strategy_sum(comm, bucket, piece, comm->step.adds ? &comm->room : &own, 1);
    if (comm->step.adds)
        comm->host->vec->axpby(comm->arenas.layout.gradient_type, 1.0, comm->room, 1.0, own,
                               piece.n);
}

static void reduce_here(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_slices_reduce(strategy, bucket, turn, sum_here);
}

/* The signal of a round, and the place of its entries behind the signals of a rank. */
static enum dpb_signal_kind round_signal(const struct dpb_strategy *comm)
{
    return comm->squares.round == 1 ? DPB_SIGNAL_TAKEN : DPB_SIGNAL_ANSWERED;
}

static void *round_entries(const struct dpb_strategy *comm, uint32_t rank)
{
    const uint64_t bytes = dpb_strategy_squares_bytes(&comm->arenas.layout);
    return (char *)comm->arenas.peer_scratch[rank] +
           dpb_strategy_lines(dpb_signals_bytes(comm->arenas.n_buckets)) +
           (comm->squares.round - 1) * bytes;
}

/* Written again in the next step: then every rank has been GATHERED, behind its last read. */
static void give_squares(struct dpb_strategy *comm)
{
    const uint32_t own = comm->args.rank;
    memcpy(round_entries(comm, own), dpb_strategy_squares_of(comm, own),
           dpb_strategy_squares_bytes(&comm->arenas.layout));
    dpb_signals_raise(&comm->signals, round_signal(comm), comm->arenas.n_buckets - 1);
}

static bool squares_here(const struct dpb_strategy *comm)
{
    return dpb_strategy_all_reached(comm, round_signal(comm), comm->arenas.n_buckets - 1);
}

static void take_squares(struct dpb_strategy *comm)
{
    const uint64_t bytes = dpb_strategy_squares_bytes(&comm->arenas.layout);
    for (uint32_t rank = 0; rank < comm->args.n_workers; rank++)
        memcpy(dpb_strategy_squares_of(comm, rank), round_entries(comm, rank), bytes);
    comm->host->count_bytes((comm->args.n_workers - 1) * bytes);
}

static dpb_status squares_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    return dpb_strategy_wait(comm, round_signal(comm), dpb_strategy_workers(comm), bucket, DPB_FP64,
                             "the peer's sums of squares");
}

static const struct dpb_squares_carrier through_scratch = {
    .give = give_squares, .here = squares_here, .take = take_squares};

static void update_and_give(const struct dpb_strategy *comm, uint64_t bucket,
                            struct dpb_piece piece)
{
    dpb_strategy_update(comm, bucket, piece, dpb_strategy_own_sums(comm, piece.begin));
    give_weights(comm, bucket, piece);
}

/* In the last bucket of a step. */
static bool gives(const struct dpb_strategy *comm, uint64_t bucket)
{
    return dpb_strategy_is_last(comm, bucket) && !comm->step.more;
}

/* All buckets': no device reads any weights. */
static void give_slices(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_strategy *comm = strategy;
    turn->at = turn->length;
    if (!gives(comm, bucket))
        return;
    for (uint64_t b = 0; b <= bucket; b++) {
        struct dpb_stage_turn all = {.length = dpb_pipeline_bucket_length(&comm->pipeline, b),
                                     .until_ns = INT64_MAX};
        dpb_slices_work_on_own(comm, b, &all, update_and_give);
    }
    dpb_signals_raise(&comm->signals, DPB_SIGNAL_GATHERED, bucket);
}

static bool given_due(void *strategy, uint64_t bucket)
{
    return !gives(strategy, bucket) ||
           dpb_strategy_all_reached(strategy, DPB_SIGNAL_GATHERED, bucket);
}

static dpb_status given_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    return dpb_strategy_wait(comm, DPB_SIGNAL_GATHERED, dpb_strategy_workers(comm), bucket,
                             comm->arenas.layout.weight_type, "the peer's slices of the weights");
}

dpb_status dpb_slices_plan_shards(struct dpb_strategy *strategy, const struct dpb_layout *layout,
                                  dpb_strategy_part part, struct dpb_comm_plan *want)
{
    strategy->part = part;
    want->weights = DPB_MEMORY_SHARED;
    if (strategy->args.whole)
        want->scratch_bytes = dpb_strategy_lines(want->scratch_bytes) +
                              DPB_SQUARES_ROUNDS * dpb_strategy_squares_bytes(layout);
    return dpb_strategy_plan_parts(strategy, layout, part, want);
}

dpb_status dpb_slices_bind_shards(struct dpb_strategy *strategy, const struct dpb_arenas *arenas)
{
    /* A bucket leaves its slot when it has left the last stage: behind the sums of all owners. */
    static const struct dpb_stage whole[] = {
        {dpb_slices_due, reduce_here, dpb_slices_wait},
        {update_due, gather, dpb_gather_wait},
        {dpb_strategy_squares_due, dpb_strategy_squares_work, squares_wait},
        {.work = give_slices},
        {.due = given_due, .wait = given_wait}};
    static const struct dpb_stage stages[] = {{dpb_slices_due, reduce_shard, dpb_slices_wait},
                                              {update_due, gather, dpb_gather_wait}};
    strategy->room = strategy->host->alloc(DPB_CHUNK_BYTES);
    if (!strategy->room)
        return DPB_NO_MEMORY;
    if (!strategy->args.whole && !arenas->sums)
        return dpb_strategy_bind(strategy, arenas, DPB_STRATEGY_STAGES(stages));
    DPB_TRY(dpb_strategy_bind(strategy, arenas, DPB_STRATEGY_STAGES(whole)));
    return strategy->args.whole
               ? dpb_strategy_open_squares(strategy, &through_scratch, strategy->args.n_workers,
                                           strategy->args.rank)
               : DPB_OK;
}

/* ---- with weights on need ------------------------------------------------------------------- */

static void sum_and_keep(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    dpb_strategy_sum(comm, bucket, piece, &comm->room, 1);
    dpb_strategy_update(comm, bucket, piece, comm->room);
}

static void reduce_and_keep(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_slices_reduce(strategy, bucket, turn, sum_and_keep);
}

void dpb_slices_need(void *strategy, uint64_t bucket)
{
    struct dpb_strategy *comm = strategy;
    comm->needed[comm->pipeline.needs.asked++ % comm->arenas.n_buckets] = bucket;
}

/* The owners' slices are final: a step ends when all have updated theirs, and none updates a bucket
 * before this rank has announced it. Stops where a need is met. */
static dpb_status take_needed(void *strategy, int64_t until_ns, bool *moved)
{
    struct dpb_strategy *comm = strategy;
    struct dpb_pipeline_needs *needs = &comm->pipeline.needs;
    const dpb_dtype type = comm->arenas.layout.weight_type;
    const uint32_t n_workers = comm->args.n_workers;
    *moved = needs->met < needs->asked;
    if (!*moved)
        return DPB_OK;
    const uint64_t bucket = comm->needed[needs->met % comm->arenas.n_buckets];
    const uint64_t length = dpb_pipeline_bucket_length(&comm->pipeline, bucket);
    const int64_t began_ns = comm->host->now_ns();
    do {
        uint32_t owner = 0;
        while (dpb_slice_of(length, owner, n_workers).end <= needs->at)
            owner++;
        const uint64_t end = dpb_slice_of(length, owner, n_workers).end;
        const struct dpb_piece piece = dpb_strategy_piece(comm, bucket, end, needs->at, type);
        needs->at = owner == comm->args.rank ? end : needs->at + piece.n;
        if (owner == comm->args.rank)
            continue;
        comm->host->vec->copy(type, dpb_strategy_own_weights(comm, piece.begin),
                              dpb_strategy_weights(comm, owner, piece.begin), piece.n);
        comm->host->count_bytes(piece.n * dpb_dtype_size(type));
    } while (needs->at < length && comm->host->now_ns() < until_ns);
    comm->host->span(bucket, DPB_PHASE_TRANSFER, began_ns, comm->host->now_ns());
    if (needs->at == length) {
        needs->at = 0;
        needs->met++;
    }
    return DPB_OK;
}

dpb_status dpb_slices_bind_parameters(struct dpb_strategy *strategy,
                                      const struct dpb_arenas *arenas)
{
    static const struct dpb_stage stages[] = {{dpb_slices_due, reduce_and_keep, dpb_slices_wait},
                                              {update_due, gather, dpb_gather_wait}};
    strategy->room = strategy->host->alloc(DPB_CHUNK_BYTES);
    strategy->needed = calloc(arenas->n_buckets, sizeof *strategy->needed);
    if (!strategy->room || !strategy->needed)
        return strategy->host->fail(DPB_NO_MEMORY, "no memory for weights on need");
    DPB_TRY(dpb_strategy_bind(strategy, arenas, stages, 2));
    strategy->pipeline.move = take_needed;
    return DPB_OK;
}
