/*
 * inside_shm.c - `hierarchical` through shared memory inside a machine.
 *
 * Every worker keeps weights and, unless sharded, optimizer state. With N places a machine, place l
 * of each machine carries the l-th of N slices of every bucket across. Its partners are places l of
 * the other machines (across.h). A bucket passes four stages:
 *   reduce: each rank sums its part directly from the arenas of its machine (slices.h), into
 *           the arena of the place that carries the part;
 *   post:   once a slice is summed, its place sends the slice across, to be summed over the
 *           machines (ring.h, mpi.h): each place drives its own share of the network;
 *   gather: the place writes the sum into all arenas of its machine;
 *   update: every rank updates its weights from its own, now summed, gradients.
 * If machines have unequal numbers of workers, N is the smallest: the further workers only sum and
 * update. On one machine there is no network, and this strategy is shm.
 *
 * With comm.shard = optimizer (shard.h) the ring of place l makes new weights of the slice in place
 * of sums: place l of each machine owns a part of the slice. `gather` then writes weights into all
 * arenas of the machine, and no update is left. Bytes are as below, with weights in place of sums
 * on the way back. On unequal machines the further workers own nothing. Gradients may lie in slots:
 * behind the last stage the whole machine has summed the bucket, and its rings have sent it.
 *
 * Bytes moved per step, M bytes of gradients, H machines: 2 (H - 1) M over the network in all. One
 * ring of all W workers sends 2 (W - 1)/W M over each link between machines, of which there are H
 * at best. Inside a machine its L ranks read (L - 1) M and write (L - 1) M, as in shm.
 *
 * Fences:
 *   1. a slice is summed when all ranks of the machine have announced its bucket (READY);
 *   2. it goes across when all ranks that sum a part of it have done so (REDUCED);
 *   3. a bucket is used when all of it has come from across and its places have written it into all
 *      arenas (GATHERED);
 *   4. a gradient arena is written again when all reads of it are over. Sums read the arena before
 *      REDUCED. Transfers across and their place read it before GATHERED, and others write it
 *      before GATHERED. A rank sees GATHERED of all places, for every bucket, before its step ends;
 *   5. with shards weights are written when all ranks of the machine have announced their bucket:
 *      before a ring gives any weights, this place has posted its share, behind 1 and 2.
 */
#include "comm/hierarchical/inside_shm.h"
#include "lib/strategy/shard.h"
#include "lib/strategy/slices.h"

/* ---- stage: sum the own part over the machine ----------------------------------------------- */

/* A place carries its slice of a bucket, or with a codec every n_shares-th bucket whole. */
static struct dpb_range carried_by(const struct hierarchical *comm, uint32_t place, uint64_t bucket,
                                   uint64_t length)
{
    if (comm->machines)
        return (struct dpb_range){0, bucket % comm->n_shares == place ? length : 0};
    return dpb_slice_of(length, place, comm->n_shares);
}

/* The place that carries an element of a bucket across. */
static uint32_t carrier_of(const struct hierarchical *comm, uint64_t bucket, uint64_t length,
                           uint64_t at)
{
    uint32_t place = 0;
    while (carried_by(comm, place, bucket, length).end <= at)
        place++;
    return place;
}

/* Each part goes into the arena of the place that carries it. */
static void reduce_piece(const struct dpb_strategy *base, uint64_t bucket, struct dpb_piece piece)
{
    const struct hierarchical *comm = (const struct hierarchical *)base;
    const uint64_t first = bucket * base->arenas.bucket_elements, end = piece.begin + piece.n;
    const uint64_t length = dpb_pipeline_bucket_length(&base->pipeline, bucket);
    while (piece.begin < end) {
        const uint32_t place = carrier_of(comm, bucket, length, piece.begin - first);
        const uint64_t carried = first + carried_by(comm, place, bucket, length).end;
        void *sum = dpb_strategy_gradients(base, place, piece.begin);
        piece.n = (end < carried ? end : carried) - piece.begin;
        if (base->args.n_workers > 1)
            dpb_strategy_sum(base, bucket, piece, &sum, 1);
        if (place != base->args.rank)
            base->host->count_bytes(piece.n * dpb_dtype_size(base->arenas.layout.gradient_type));
        piece.begin += piece.n;
    }
}

static void reduce(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_slices_reduce(strategy, bucket, turn, reduce_piece);
}

/* ---- stage: off to the other machines -------------------------------------------------------- */

/* The ranks that sum parts of the slice that this place carries. */
static struct dpb_rank_set contributors(const struct hierarchical *comm, uint64_t bucket)
{
    uint64_t length = dpb_pipeline_bucket_length(&comm->base.pipeline, bucket);
    uint32_t n = comm->base.args.n_workers;
    struct dpb_range carried = carried_by(comm, comm->base.args.rank, bucket, length);
    struct dpb_rank_set set = {0, 0};
    while (set.first < n && dpb_slice_of(length, set.first, n).end <= carried.begin)
        set.first++;
    while (set.first + set.n < n && dpb_slice_of(length, set.first + set.n, n).begin < carried.end)
        set.n++;
    return set;
}

static bool post_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    return !hierarchical_drives(comm) ||
           (dpb_sums_has_place(comm->across->sums) &&
            dpb_signals_reached(&comm->base.signals, DPB_SIGNAL_REDUCED, contributors(comm, bucket),
                                bucket));
}

/* The pipeline waits here only while no share is under way. So across has a place, and a part of
 * the machine's sum is missing. */
static dpb_status post_wait(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    return dpb_strategy_wait(&comm->base, DPB_SIGNAL_REDUCED, contributors(comm, bucket), bucket,
                             comm->base.arenas.layout.gradient_type,
                             "the peer's part of the machine's sum");
}

static void post(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct hierarchical *comm = strategy;
    turn->at = turn->length;
    if (!hierarchical_drives(comm))
        return;
    struct dpb_range carried = carried_by(comm, comm->base.args.rank, bucket, turn->length);
    struct dpb_rank_set from = contributors(comm, bucket);
    if (from.n > 0)
        dpb_strategy_span_others(&comm->base, DPB_SIGNAL_REDUCED, DPB_SIGNAL_REDUCED, from, bucket);
    comm->across->sums->ops->post(comm->across->sums,
                                  bucket * comm->base.arenas.bucket_elements + carried.begin,
                                  carried.end - carried.begin);
}

/* ---- stage: back from them, to all of the machine -------------------------------------------- */

static bool gather_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    return !hierarchical_drives(comm) || dpb_sums_finished(comm->across->sums, bucket);
}

static dpb_status dpb_gather_wait(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    (void)bucket;
    return comm->across->sums->ops->wait(comm->across->sums);
}

static bool is_sharded(const struct dpb_strategy *base)
{
    return ((const struct hierarchical *)(const void *)base)->shard != DPB_SHARD_NONE;
}

/* Sums go to all, or with shards new weights. */
static dpb_dtype given_type(const struct dpb_strategy *base)
{
    const struct dpb_layout *layout = &base->arenas.layout;
    return is_sharded(base) ? layout->weight_type : layout->gradient_type;
}

static void *given_at(const struct dpb_strategy *base, uint32_t place, uint64_t at)
{
    return is_sharded(base) ? dpb_strategy_weights(base, place, at)
                            : dpb_strategy_gradients(base, place, at);
}

static void copy_to_all(const struct dpb_strategy *base, uint64_t bucket, struct dpb_piece piece)
{
    dpb_dtype type = given_type(base);
    const void *own = given_at(base, base->args.rank, piece.begin);
    int64_t began_ns = base->host->now_ns();
    for (uint32_t place = 0; place < base->args.n_workers; place++)
        if (place != base->args.rank)
            base->host->vec->copy(type, given_at(base, place, piece.begin), own, piece.n);
    base->host->count_bytes((base->args.n_workers - 1) * piece.n * dpb_dtype_size(type));
    base->host->span(bucket, DPB_PHASE_TRANSFER, began_ns, base->host->now_ns());
}

static void gather(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct hierarchical *comm = strategy;
    const struct dpb_strategy *base = &comm->base;
    struct dpb_range carried = {turn->length, turn->length};
    if (hierarchical_drives(comm))
        carried = carried_by(comm, base->args.rank, bucket, turn->length);
    if (base->args.n_workers == 1)
        carried.begin = carried.end; /* it is where it has to be */
    if (!dpb_slices_work_on(base, bucket, carried, given_type(base), turn, copy_to_all))
        return;
    if (hierarchical_drives(comm))
        dpb_signals_raise(&base->signals, DPB_SIGNAL_GATHERED, bucket);
    turn->at = turn->length;
}

/* ---- stage: update -------------------------------------------------------------------------- */

static struct dpb_rank_set drivers(const struct hierarchical *comm)
{
    return (struct dpb_rank_set){0, comm->n_shares};
}

static bool update_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    return dpb_signals_reached(&comm->base.signals, DPB_SIGNAL_GATHERED, drivers(comm), bucket);
}

/* While later buckets are under way from here, they are not to wait for this one. */
static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    if (hierarchical_drives(comm) && !dpb_sums_idle(comm->across->sums))
        return comm->across->sums->ops->wait(comm->across->sums);
    return dpb_strategy_wait(
        &comm->base, DPB_SIGNAL_GATHERED, drivers(comm), bucket, given_type(&comm->base),
        is_sharded(&comm->base) ? "the peer's slice of the weights"
                                : "the peer's slice of the sum over all machines");
}

static void update(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct hierarchical *comm = strategy;
    if (turn->at == 0)
        dpb_strategy_span_others(
            &comm->base, hierarchical_drives(comm) ? DPB_SIGNAL_GATHERED : DPB_SIGNAL_REDUCED,
            DPB_SIGNAL_GATHERED, drivers(comm), bucket);
    if (is_sharded(&comm->base))
        turn->at = turn->length;
    else if (comm->machines)
        dpb_coded_update(strategy, bucket, turn);
    else
        dpb_strategy_update_bucket(strategy, bucket, turn);
}

static const struct dpb_stage stages[] = {{dpb_slices_due, reduce, dpb_slices_wait},
                                          {post_due, post, post_wait},
                                          {gather_due, gather, dpb_gather_wait},
                                          {update_due, update, update_wait}};

/* ---- with shards ---------------------------------------------------------------------------- */

/* A dpb_strategy_part: this place carries a slice, and its ring sums this part of the slice
 * here. */
static struct dpb_range own_part(const struct dpb_strategy *strategy, uint64_t bucket,
                                 uint64_t length)
{
    const struct hierarchical *comm = (const struct hierarchical *)strategy;
    if (!hierarchical_drives(comm))
        return (struct dpb_range){0, 0};
    const struct dpb_range carried = carried_by(comm, strategy->args.rank, bucket, length);
    const struct dpb_range own =
        dpb_ring_owned(carried.end - carried.begin, comm->machine, comm->job.n_machines);
    return (struct dpb_range){carried.begin + own.begin, carried.begin + own.end};
}

static dpb_status plan_shards(const struct hierarchical *comm, const struct dpb_layout *layout,
                              struct dpb_comm_plan *want)
{
    want->weights = DPB_MEMORY_SHARED;
    return dpb_strategy_plan_parts(&comm->base, layout,
                                   comm->n_shares == 0 ? dpb_slices_own : own_part, want);
}

/* ---- hooks ---------------------------------------------------------------------------------- */

/* The sums of the machines are rounded, too: in all as many roundings as with all workers'
 * messages. */
static dpb_status plan_coded(struct hierarchical *comm, const struct dpb_layout *layout,
                             struct dpb_comm_plan *want)
{
    DPB_TRY(dpb_coded_plan(comm->machines, layout, DPB_CODED_GATHERED, want));
    want->gradients = DPB_MEMORY_SHARED;
    dpb_coded_contract(&comm->job, &want->contract);
    return DPB_OK;
}

dpb_status inside_shm_plan(struct hierarchical *comm, const struct dpb_layout *layout,
                           struct dpb_comm_plan *want)
{
    if (comm->shard == DPB_SHARD_GRADIENTS)
        dpb_shard_plan_slots(&comm->job, layout, DPB_SHARD_GRADIENTS, want);
    uint64_t elements = want->bucket_elements;
    DPB_TRY(dpb_strategy_plan_replica(&comm->base, layout, DPB_MEMORY_SHARED, want));
    if (comm->machines)
        return plan_coded(comm, layout, want);
    if (is_sharded(&comm->base))
        DPB_TRY(plan_shards(comm, layout, want));
    if (!hierarchical_drives(comm))
        return DPB_OK;
    return comm->across->ops->plan(comm->across,
                                   hierarchical_longest_share(&comm->job, layout, elements), want);
}

dpb_status inside_shm_bind(void *comm_, const struct dpb_arenas *arenas)
{
    struct hierarchical *comm = comm_;
    bool alone = comm->n_shares == 0;
    struct dpb_arenas view = hierarchical_view(comm, arenas);
    if (is_sharded(&comm->base) && alone)
        DPB_TRY(dpb_slices_bind_shards(&comm->base, &view));
    else
        DPB_TRY(dpb_strategy_bind(&comm->base, &view, alone ? dpb_slices_stages : stages,
                                  alone ? DPB_SLICES_STAGES : sizeof stages / sizeof stages[0]));
    dpb_shard_bind_slots(&comm->base, comm->shard);
    if (is_sharded(&comm->base) && !alone)
        comm->shards = (struct dpb_ring_shards){.arena = arenas->weights,
                                                .type = arenas->layout.weight_type,
                                                .make = dpb_strategy_make_weights,
                                                .owner = comm};
    comm->base.signals.ranks = comm->ranks;
    return hierarchical_connect(comm, arenas);
}
