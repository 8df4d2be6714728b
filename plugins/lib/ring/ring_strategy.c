/* ring_strategy.c - see ring_strategy.h. */
#include "lib/ring/ring_strategy.h"

#include <stdlib.h>

#include "lib/coded/coded_sums.h"
#include "lib/ring/gather.h"
#include "lib/strategy/squares.h"

/* ---- stages: onto the ring, round it, into the weights -------------------------------------- */

static bool post_due(void *strategy, uint64_t bucket)
{
    const struct dpb_ring_strategy *comm = strategy;
    return dpb_strategy_own_ready(strategy, bucket) && dpb_sums_has_place(comm->ring);
}

static void post(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_ring_strategy *comm = strategy;
    comm->ring->ops->post(comm->ring, bucket * comm->base.arenas.bucket_elements, turn->length);
    turn->at = turn->length;
}

static bool reduce_due(void *strategy, uint64_t bucket)
{
    const struct dpb_ring_strategy *comm = strategy;
    return dpb_sums_finished(comm->ring, bucket);
}

static dpb_status reduce_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_ring_strategy *comm = strategy;
    (void)bucket;
    return comm->ring->ops->wait(comm->ring);
}

/* When a bucket has to wait to be posted, nothing is on the ring. With shards a bucket that is back
 * from the ring is updated. */
enum { POST, REDUCE, UPDATE, STAGES };
static const struct dpb_stage stages[STAGES] = {[POST] = {post_due, post, dpb_strategy_own_wait},
                                                [REDUCE] = {.due = reduce_due, .wait = reduce_wait},
                                                [UPDATE] = {.work = dpb_strategy_update_bucket}};

/* ---- the halves of an all-reduce, as operations of their own --------------------------------- */

static void give_alone(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_ring_strategy *comm = strategy;
    dpb_ring_give(comm->ring, bucket, bucket * comm->base.arenas.bucket_elements, turn->length);
    turn->at = turn->length;
}

static const struct dpb_stage give_stages[] = {{post_due, give_alone, dpb_strategy_own_wait},
                                               {.due = reduce_due, .wait = reduce_wait}};

/* The slice whose sum a member completes, and gives, is the one behind its position: it is to be
 * the slice of the member's rank. */
static void order_by_slices(struct dpb_ring_strategy *comm)
{
    const uint32_t n = comm->base.args.n_workers;
    for (uint32_t position = 0; position < n; position++)
        comm->order[position] = (position + 1) % n;
    comm->position = (comm->base.args.rank + n - 1) % n;
}

/* ---- with shards ---------------------------------------------------------------------------- */

static struct dpb_range own_slice(const struct dpb_strategy *strategy, uint64_t bucket,
                                  uint64_t length)
{
    const struct dpb_ring_strategy *comm = (const struct dpb_ring_strategy *)strategy;
    (void)bucket;
    return dpb_ring_owned(length, comm->position, strategy->args.n_workers);
}

/* ---- with weights on need ------------------------------------------------------------------- */

static void order(struct dpb_ring_strategy *comm, uint64_t bucket, bool needed)
{
    comm->orders[comm->n_ordered++ % (2 * comm->base.arenas.n_buckets)] =
        (struct dpb_ring_order){bucket, needed};
}

void dpb_ring_strategy_need(void *comm_, uint64_t bucket)
{
    struct dpb_ring_strategy *comm = comm_;
    order(comm, bucket, true);
    comm->base.pipeline.needs.asked++;
}

dpb_status dpb_ring_strategy_ready(void *comm_, uint64_t bucket, struct dpb_event *event)
{
    struct dpb_ring_strategy *comm = comm_;
    if (comm->orders)
        order(comm, bucket, false);
    return dpb_strategy_ready(comm_, bucket, event);
}

static struct dpb_ring_order *order_of(const struct dpb_ring_strategy *comm, uint64_t number)
{
    return &comm->orders[number % (2 * comm->base.arenas.n_buckets)];
}

static dpb_status move_orders(void *strategy, int64_t until_ns, bool *moved)
{
    struct dpb_ring_strategy *comm = strategy;
    bool more = false;
    while (comm->n_posted < comm->n_ordered && dpb_sums_has_place(comm->ring)) {
        const struct dpb_ring_order next = *order_of(comm, comm->n_posted++);
        const uint64_t begin = next.bucket * comm->base.arenas.bucket_elements,
                       n = dpb_pipeline_bucket_length(&comm->base.pipeline, next.bucket);
        (next.needed ? dpb_ring_give : dpb_ring_sum)(comm->ring, next.bucket, begin, n);
    }
    DPB_TRY(comm->ring->ops->move(comm->ring, until_ns, moved));
    for (; dpb_sums_finished(comm->ring, comm->n_back - comm->n_before); comm->n_back++) {
        const bool needed = order_of(comm, comm->n_back)->needed;
        comm->n_summed += !needed;
        comm->base.pipeline.needs.met += needed;
        more = true;
    }
    *moved = *moved || more;
    return DPB_OK;
}

static dpb_status wait_for_order(void *strategy)
{
    const struct dpb_ring_strategy *comm = strategy;
    return comm->ring->ops->wait(comm->ring);
}

static bool summed_due(void *strategy, uint64_t bucket)
{
    return bucket < ((const struct dpb_ring_strategy *)strategy)->n_summed;
}

static void make_own(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_ring_strategy *comm = strategy;
    const struct dpb_range own = own_slice(&comm->base, bucket, turn->length);
    dpb_strategy_make_weights(comm, bucket, bucket * comm->base.arenas.bucket_elements + own.begin,
                              own.end - own.begin);
    turn->at = turn->length;
}

/* The next exchange of the ring begins when nothing is on its way. */
static bool kept_due(void *strategy, uint64_t bucket)
{
    const struct dpb_ring_strategy *comm = strategy;
    return !dpb_strategy_is_last(&comm->base, bucket) || comm->n_back == comm->n_ordered;
}

static const struct dpb_stage need_stages[] = {
    {dpb_strategy_own_ready, NULL, dpb_strategy_own_wait},
    {summed_due, make_own, reduce_wait},
    {.due = kept_due, .wait = reduce_wait}};

/* ---- with shards, and norms of whole tensors or sums over micro-batches ---------------------- */

/* From the slot, which is free behind it. */
static void keep(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_strategy *comm = strategy;
    const dpb_dtype type = comm->arenas.layout.gradient_type;
    const struct dpb_range own = own_slice(comm, bucket, turn->length);
    const uint64_t at = bucket * comm->arenas.bucket_elements + own.begin, n = own.end - own.begin;
    const void *sum = dpb_strategy_own_gradients(comm, at);
    turn->at = turn->length;
    if (comm->arenas.sums && comm->step.adds)
        comm->host->vec->axpby(type, 1.0, sum, 1.0, dpb_strategy_own_sums(comm, at), n);
    else if (comm->arenas.sums)
        comm->host->vec->copy(type, dpb_strategy_own_sums(comm, at), sum, n);
}

/* The memory of the entries is the ring's memory beside. */
static void give_squares(struct dpb_strategy *strategy)
{
    dpb_ring_give_beside(((const struct dpb_ring_strategy *)strategy)->ring,
                         strategy->arenas.n_buckets - 1);
}

static bool squares_here(const struct dpb_strategy *strategy)
{
    return dpb_sums_idle(((const struct dpb_ring_strategy *)strategy)->ring);
}

static const struct dpb_squares_carrier round_it = {.give = give_squares, .here = squares_here};

static bool give_due(void *strategy, uint64_t bucket)
{
    const struct dpb_ring_strategy *comm = strategy;
    return !dpb_strategy_is_last(&comm->base, bucket) || dpb_sums_has_place(comm->ring);
}

/* All buckets', in the last one of a step. */
static void give(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_ring_strategy *comm = strategy;
    const uint64_t elements = comm->base.arenas.bucket_elements;
    const bool gives = dpb_strategy_is_last(&comm->base, bucket) && !comm->base.step.more;
    for (; gives && comm->n_given <= bucket; comm->n_given++) {
        const uint64_t begin = comm->n_given * elements,
                       n = dpb_pipeline_bucket_length(&comm->base.pipeline, comm->n_given);
        const struct dpb_range own = own_slice(&comm->base, comm->n_given, n);
        if (!dpb_sums_has_place(comm->ring))
            return;
        dpb_strategy_make_weights(comm, comm->n_given, begin + own.begin, own.end - own.begin);
        dpb_ring_give(comm->ring, comm->n_given, begin, n);
    }
    turn->at = turn->length;
}

static bool given_due(void *strategy, uint64_t bucket)
{
    const struct dpb_ring_strategy *comm = strategy;
    return !dpb_strategy_is_last(&comm->base, bucket) || dpb_sums_idle(comm->ring);
}

static const struct dpb_stage whole_stages[] = {
    {post_due, post, dpb_strategy_own_wait},
    {reduce_due, keep, reduce_wait},
    {dpb_strategy_squares_due, dpb_strategy_squares_work, reduce_wait},
    {give_due, give, reduce_wait},
    {.due = given_due, .wait = reduce_wait}};

/* ---- messages of a codec of one round: all go to all members --------------------------------- */

static struct dpb_gather *gather_of(const struct dpb_strategy *strategy)
{
    return ((const struct dpb_ring_strategy *)strategy)->gather;
}

static void post_message(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    (void)round;
    dpb_gather_post(gather_of(strategy), bucket);
}

static bool messages_here(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    (void)round;
    return dpb_gather_finished(gather_of(strategy), bucket);
}

static dpb_status messages_wait(const struct dpb_strategy *strategy, uint64_t bucket,
                                uint32_t round)
{
    (void)round;
    return dpb_gather_wait(gather_of(strategy), bucket);
}

static const struct dpb_coded_carrier round_the_ring = {
    .post = post_message, .here = messages_here, .wait = messages_wait, .take = dpb_coded_decode};

static dpb_status move_messages(void *strategy, int64_t until_ns, bool *moved)
{
    return dpb_gather_move(((struct dpb_ring_strategy *)strategy)->gather, until_ns, moved);
}

/* ---- of two rounds: the ring sums them ------------------------------------------------------- */

static dpb_status move_sums(void *strategy, int64_t until_ns, bool *moved)
{
    struct dpb_sums *ring = ((struct dpb_ring_strategy *)strategy)->ring;
    DPB_TRY(ring->ops->move(ring, until_ns, moved));
    *moved = dpb_coded_sums_post(strategy) || *moved;
    return DPB_OK;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status move(void *strategy, int64_t until_ns, bool *moved)
{
    struct dpb_sums *ring = ((struct dpb_ring_strategy *)strategy)->ring;
    return ring->ops->move(ring, until_ns, moved);
}

dpb_status dpb_ring_strategy_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                                  const struct dpb_ring_options *options,
                                  struct dpb_mesh_transport *transport, void **made)
{
    struct dpb_ring_strategy *comm = NULL;
    dpb_status status = dpb_coded_open(host, args, sizeof *comm, made);
    if (status != DPB_OK) {
        transport->ops->close(transport, false);
        return status;
    }
    comm = *made;
    comm->options = *options;
    comm->transport = transport;
    comm->shard = dpb_shard_wanted(args, options->shard);
    status = dpb_strategy_order(&comm->base, &comm->order, &comm->position);
    if (status == DPB_OK && args->operation != DPB_ALL_REDUCE)
        order_by_slices(comm);
    if (status != DPB_OK) {
        dpb_ring_strategy_close(comm);
        *made = NULL;
    }
    return status;
}

dpb_status dpb_ring_inbox_check(const struct dpb_host *host, const struct dpb_ring_options *options)
{
    if (options->inbox / dpb_strategy_lines(options->chunk) >= 4)
        return DPB_OK;
    return host->fail(DPB_UNSUPPORTED,
                      "comm.inbox = %llu bytes: at least 4 chunks (comm.chunk = %llu) must fit",
                      (unsigned long long)options->inbox, (unsigned long long)options->chunk);
}

dpb_status dpb_ring_inbox_plan(const struct dpb_host *host, const struct dpb_ring_options *options,
                               struct dpb_comm_plan *want, struct dpb_ring_inbox *inbox)
{
    uint64_t slot_bytes = dpb_strategy_lines(options->chunk);
    uint64_t n_slots = options->inbox / slot_bytes;
    DPB_TRY(dpb_ring_inbox_check(host, options));
    *inbox = (struct dpb_ring_inbox){.at = dpb_strategy_lines(want->scratch_bytes),
                                     .slot_bytes = slot_bytes,
                                     .n_slots = (uint32_t)n_slots};
    want->scratch_bytes = inbox->at + n_slots * slot_bytes;
    return DPB_OK;
}

struct dpb_ring_memory dpb_ring_inbox_memory(const struct dpb_ring_inbox *inbox,
                                             const struct dpb_arenas *arenas)
{
    return (struct dpb_ring_memory){.arena = arenas->gradients,
                                    .arena_bytes = arenas->layout.n_elements *
                                                   dpb_dtype_size(arenas->layout.gradient_type),
                                    .inbox = (char *)arenas->scratch + inbox->at,
                                    .n_slots = inbox->n_slots,
                                    .slot_bytes = inbox->slot_bytes};
}

dpb_status dpb_ring_strategy_plan(void *comm_, const struct dpb_layout *layout,
                                  struct dpb_comm_plan *want)
{
    struct dpb_ring_strategy *comm = comm_;
    dpb_shard_plan_slots(&comm->base.args, layout, comm->shard, want);
    DPB_TRY(dpb_strategy_plan_replica(&comm->base, layout, DPB_MEMORY_PRIVATE, want));
    if (comm->base.args.codec) {
        const enum dpb_coded_way way = dpb_coded_way_of(comm->base.args.codec);
        DPB_TRY(dpb_coded_plan(&comm->base, layout, way, want));
        if (way == DPB_CODED_GATHERED)
            return DPB_OK;
    }
    if (comm->shard != DPB_SHARD_NONE)
        DPB_TRY(dpb_strategy_plan_parts(&comm->base, layout, own_slice, want));
    return dpb_ring_inbox_plan(comm->base.host, &comm->options, want, &comm->inbox);
}

dpb_status dpb_ring_strategy_check(const struct dpb_host *host,
                                   const struct dpb_ring_options *options,
                                   const struct dpb_comm_args *args)
{
    const bool gathers = args->codec && dpb_coded_way_of(args->codec) == DPB_CODED_GATHERED;
    return gathers ? DPB_OK : dpb_ring_inbox_check(host, options);
}

void dpb_ring_strategy_memory(const void *options, const struct dpb_comm_args *args,
                              const struct dpb_layout *layout, uint64_t bucket_elements,
                              struct dpb_comm_memory *memory)
{
    const struct dpb_ring_options *given = options;
    dpb_shard_memory(args, given->shard, layout, bucket_elements, memory);
    if (args->codec)
        dpb_coded_memory(args, layout, bucket_elements, dpb_coded_way_of(args->codec), memory);
}

static struct dpb_ring_members members_of(const struct dpb_ring_strategy *comm)
{
    return (struct dpb_ring_members){.name = "ring",
                                     .members = comm->order,
                                     .n_members = comm->base.args.n_workers,
                                     .position = comm->position,
                                     .doorbell = comm->base.signals.doorbell};
}

static dpb_status bind_gather(struct dpb_ring_strategy *comm, const struct dpb_arenas *arenas)
{
    DPB_TRY(dpb_coded_bind_stages(&comm->base, arenas, &round_the_ring));
    DPB_TRY(dpb_strategy_open_doorbell(&comm->base, "ring"));
    const struct dpb_gather_args args = {.strategy = &comm->base,
                                         .slots = dpb_gather_coded_slots(&comm->base),
                                         .transport = comm->transport,
                                         .members = members_of(comm)};
    comm->base.pipeline.move = move_messages;
    comm->transport = NULL; /* the gather's from here on */
    return dpb_gather_create(&args, &comm->gather);
}

/* The arguments without those of a codec or of shards. */
static struct dpb_ring_args ring_args_of(const struct dpb_ring_strategy *comm,
                                         const struct dpb_arenas *arenas)
{
    return (struct dpb_ring_args){
        .host = comm->base.host,
        .transport = comm->transport,
        .members = members_of(comm),
        .memory = dpb_ring_inbox_memory(&comm->inbox, arenas),
        .type = arenas->layout.gradient_type,
        .n_buckets = arenas->n_buckets,
        .bucket_elements = dpb_strategy_longest_bucket(&arenas->layout, arenas->bucket_elements)};
}

static dpb_status bind_sums(struct dpb_ring_strategy *comm, const struct dpb_arenas *arenas)
{
    const struct dpb_codec *codec = comm->base.args.codec;
    DPB_TRY(dpb_coded_sums_bind(&comm->base, arenas, &dpb_coded_sums_in_place));
    DPB_TRY(dpb_strategy_open_doorbell(&comm->base, "ring"));
    struct dpb_ring_args args = ring_args_of(comm, arenas);
    comm->base.pipeline.move = move_sums;
    args.memory.arena = dpb_coded_memory_of(&comm->base, &args.memory.arena_bytes);
    args.n_buckets = dpb_coded_sums_places(&comm->base);
    args.names = dpb_coded_sums_buckets(&comm->base);
    args.bucket_elements = dpb_coded_sums_longest(codec, &arenas->layout, arenas->bucket_elements);
    comm->transport = NULL; /* the ring's from here on */
    DPB_TRY(dpb_ring_create(&args, &comm->ring));
    dpb_coded_sums_use(&comm->base, comm->ring);
    return DPB_OK;
}

/* A ring that gives has the rounds of scatter-reduce for what is posted, those of all-gather for
 * what is given. */
static dpb_status bind_half(struct dpb_ring_strategy *comm, const struct dpb_arenas *arenas)
{
    const bool gathers = comm->base.args.operation == DPB_ALL_GATHER;
    DPB_TRY(dpb_strategy_bind(&comm->base, arenas, gathers ? give_stages : stages, UPDATE));
    DPB_TRY(dpb_strategy_open_doorbell(&comm->base, "ring"));
    struct dpb_ring_args args = ring_args_of(comm, arenas);
    args.shards =
        (struct dpb_ring_shards){.arena = arenas->gradients, .type = arenas->layout.gradient_type};
    comm->base.pipeline.move = move;
    comm->transport = NULL; /* the ring's from here on */
    return dpb_ring_create(&args, &comm->ring);
}

dpb_status dpb_ring_strategy_bind(void *comm_, const struct dpb_arenas *arenas)
{
    struct dpb_ring_strategy *comm = comm_;
    if (comm->base.args.operation != DPB_ALL_REDUCE)
        return bind_half(comm, arenas);
    if (comm->base.args.codec)
        return dpb_coded_way_of(comm->base.args.codec) == DPB_CODED_SUMMED
                   ? bind_sums(comm, arenas)
                   : bind_gather(comm, arenas);
    const bool sharded = comm->shard != DPB_SHARD_NONE, whole = sharded && comm->base.args.whole,
               gives = whole || arenas->sums, needs = comm->shard == DPB_SHARD_PARAMETERS;
    if (needs) {
        comm->orders = calloc(2 * arenas->n_buckets, sizeof *comm->orders);
        if (!comm->orders)
            return comm->base.host->fail(DPB_NO_MEMORY, "no memory for weights on need");
        DPB_TRY(dpb_strategy_bind(&comm->base, arenas, DPB_STRATEGY_STAGES(need_stages)));
        comm->base.pipeline.needs.wait = wait_for_order;
    } else if (gives) {
        DPB_TRY(dpb_strategy_bind(&comm->base, arenas, DPB_STRATEGY_STAGES(whole_stages)));
    } else {
        DPB_TRY(dpb_strategy_bind(&comm->base, arenas, stages, sharded ? UPDATE : STAGES));
    }
    if (whole) {
        const struct dpb_ring_members members = members_of(comm);
        DPB_TRY(dpb_strategy_open_squares(&comm->base, &round_it, members.n_members,
                                          dpb_ring_slice_beside(&members)));
    }
    dpb_shard_bind_slots(&comm->base, comm->shard);
    DPB_TRY(dpb_strategy_open_doorbell(&comm->base, "ring"));
    struct dpb_ring_args args = ring_args_of(comm, arenas);
    if (gives)
        args.n_buckets = 2 * args.n_buckets + DPB_SQUARES_ROUNDS;
    if (needs)
        args.n_buckets = UINT32_MAX; /* a bucket is needed as often as nodes read it */
    if (sharded)
        args.shards =
            (struct dpb_ring_shards){.arena = arenas->weights,
                                     .type = arenas->layout.weight_type,
                                     .make = gives || needs ? NULL : dpb_strategy_make_weights,
                                     .owner = comm,
                                     .beside = comm->base.squares.all,
                                     .beside_bytes = dpb_strategy_squares_bytes(&arenas->layout)};
    comm->base.pipeline.move = needs ? move_orders : move;
    comm->transport = NULL; /* the ring's from here on */
    return dpb_ring_create(&args, &comm->ring);
}

dpb_status dpb_ring_strategy_begin(void *comm_, const struct dpb_step *step)
{
    struct dpb_ring_strategy *comm = comm_;
    comm->n_given = comm->n_summed = 0;
    comm->n_before = comm->n_back;
    if (comm->ring)
        dpb_sums_begin(comm->ring, comm->n_begun++); /* more than steps, with step->adds */
    return dpb_strategy_begin(comm_, step);
}

void dpb_ring_strategy_close(void *comm_)
{
    struct dpb_ring_strategy *comm = comm_;
    if (!comm)
        return;
    if (comm->transport)
        comm->transport->ops->close(comm->transport, false);
    dpb_sums_destroy(comm->ring);
    dpb_gather_destroy(comm->gather);
    free(comm->order);
    free(comm->orders);
    dpb_strategy_close(comm);
}
