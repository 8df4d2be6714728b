/*
 * replicated - every worker keeps a copy of the variables; bucket i is summed on worker i mod W and
 * copied back (tf_cnn_benchmarks' "replicated" on one machine, without NCCL).
 *
 * The owner of a bucket sums the gradients of all ranks in place. The others copy the sum from the
 * owner's arena into their own. Then every rank updates its weights. On the host the owner reads
 * the others' gradients in their arenas. If devices have memory of their own, the others copy
 * gradients into inboxes in the owner's device memory, from device to device
 * (device_strategy.h).
 *
 * Bytes moved per step, M bytes of gradients: (W - 1) M to the owners, (W - 1) M back. An
 * all-reduce moves as many, but here a bucket passes through one rank.
 *
 * Device memory beside the arenas: inboxes for up to SLOTS buckets from each of the other workers.
 *
 * Fences: a bucket is pushed into an inbox when this worker's gradients are final (READY) and the
 * owner has summed the slot's previous content (REDUCED; in the first buckets of a step, of the
 * step before). It is summed when all have announced it (READY), or pushed it (PUSHED), and copied
 * over the gradients when its owner has summed it (REDUCED). The owner's step ends when all have
 * copied the bucket (TAKEN): then no rank reads the owner's arena.
 *
 * With comm.shard = optimizer (shard.h) the owner of a bucket has the optimizer state of the
 * bucket, updates it and gives new weights in place of the sum. On the host the owner writes them
 * into all arenas, as shm does (slices.h), and norms of whole tensors and gradients in slots work,
 * too. On devices the others copy them from the owner's arena, as ps_gpu does; with norms the model
 * is then one bucket.
 *
 * With a codec no bucket has an owner: each rank reads, decodes and sums the messages of all others
 * (device_coded.h). Messages of m bytes are (W - 1) m bytes a rank. An owner's sum of M bytes,
 * copied by the others, would be (W - 1)/W (m + M): less only if m > M / (W - 1).
 */
#include "dpbench/plugin.h"
#include "lib/device_strategy/device_coded.h"
#include "lib/strategy/shard.h"
#include "lib/strategy/slices.h"

enum { SLOTS = 2 };

static const struct dpb_host *host;

struct replicated {
    struct dpb_device_strategy device;
    int shard; /* dpb_shard_wanted */
};

static struct dpb_range share_of(const struct dpb_comm_args *args, uint32_t owner, uint64_t bucket,
                                 uint64_t length)
{
    const bool owns = args->codec || bucket % args->n_workers == owner;
    return (struct dpb_range){0, owns ? length : 0};
}

/* ---- stage: sum, on the owner -------------------------------------------------------------- */

static void sum(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    do
        dpb_device_sum(strategy, bucket, dpb_device_piece(strategy, turn));
    while (turn->at < turn->length && host->now_ns() < turn->until_ns);
}

/* ---- stage: take the sum from the owner, and update behind it ------------------------------ */

static void take(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_device_strategy *comm = strategy;
    do {
        struct dpb_range piece = dpb_device_piece(comm, turn);
        dpb_device_pull(comm, bucket, piece);
        dpb_device_update(comm, bucket, piece);
    } while (turn->at < turn->length && host->now_ns() < turn->until_ns);
}

/* ---- stage: let go of the bucket when all have taken it ------------------------------------ */

static uint32_t missing_taker(const struct dpb_device_strategy *comm, uint64_t bucket)
{
    return dpb_device_owns(comm, comm->base.args.rank, bucket)
               ? dpb_device_missing(comm, DPB_SIGNAL_TAKEN, false, bucket)
               : UINT32_MAX;
}

static bool taken_due(void *strategy, uint64_t bucket)
{
    return missing_taker(strategy, bucket) == UINT32_MAX;
}

static dpb_status taken_wait(void *strategy, uint64_t bucket)
{
    struct dpb_device_strategy *comm = strategy;
    return dpb_device_wait_signal(comm, DPB_SIGNAL_TAKEN, missing_taker(comm, bucket), bucket,
                                  comm->base.arenas.layout.gradient_type,
                                  "the peer to take the sum");
}

enum { PUSH, SUM, TAKE, UPDATED, TAKEN, STAGES };

static const struct dpb_stage stages[STAGES] = {
    [PUSH] = {dpb_device_push_due, dpb_device_push, dpb_device_push_wait},
    [SUM] = {dpb_device_sum_due, sum, dpb_device_sum_wait},
    [TAKE] = {dpb_device_pull_due, take, dpb_device_pull_wait},
    [TAKEN] = {taken_due, NULL, taken_wait},
};

static const struct dpb_stage_flight *const flights[STAGES] = {[PUSH] = &dpb_device_pushed,
                                                               [SUM] = &dpb_device_summed,
                                                               [TAKE] = &dpb_device_pulled,
                                                               [UPDATED] = &dpb_device_updated};

/* ---- with shards, on a device --------------------------------------------------------------- */

static void serve(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_range all = dpb_device_piece(strategy, turn);
    dpb_device_sum(strategy, bucket, all);
    dpb_device_update(strategy, bucket, all);
}

static void pull(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_device_pull(strategy, bucket, dpb_device_piece(strategy, turn));
}

/* Weights of an owner change again when all have pushed the bucket in the next step. */
enum { SHARD_STAGES = 4 };
static const struct dpb_stage shard_stages[SHARD_STAGES] = {
    {dpb_device_push_due, dpb_device_push, dpb_device_push_wait},
    {dpb_device_sum_due, serve, dpb_device_sum_wait},
    {.due = NULL},
    {dpb_device_pull_due, pull, dpb_device_pull_wait}};
static const struct dpb_stage_flight *const shard_flights[SHARD_STAGES] = {
    &dpb_device_pushed, &dpb_device_summed, &dpb_device_updated, &dpb_device_pulled};

/* ---- hooks --------------------------------------------------------------------------------- */

static struct dpb_device_scheme scheme_of(const struct dpb_comm_args *args, int shard)
{
    return (struct dpb_device_scheme){.share = share_of,
                                      .every = args->n_workers,
                                      .n_slots = SLOTS,
                                      .gives_weights = shard != DPB_SHARD_NONE};
}

static struct dpb_range own_part(const struct dpb_strategy *base, uint64_t bucket, uint64_t length)
{
    return share_of(&base->args, base->args.rank, bucket, length);
}

static uint64_t count_own(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                          uint64_t bucket_elements)
{
    uint64_t n = 0;
    for (uint64_t b = args->rank; b < dpb_strategy_count_buckets(layout, bucket_elements);
         b += args->n_workers)
        n += dpb_strategy_bucket_length(layout, bucket_elements, b);
    return n;
}

static void replicated_memory(const void *options, const struct dpb_comm_args *args,
                              const struct dpb_layout *layout, uint64_t bucket_elements,
                              struct dpb_comm_memory *memory)
{
    const struct dpb_shard_options *given = options;
    const int shard = dpb_shard_wanted(args, given->shard);
    const struct dpb_device_scheme scheme = scheme_of(args, shard);
    dpb_shard_memory(args, shard, layout, bucket_elements, memory);
    if (shard != DPB_SHARD_NONE)
        memory->state_elements =
            count_own(args, layout,
                      shard == DPB_SHARD_GRADIENTS ? dpb_shard_slots_bucket(layout, bucket_elements)
                                                   : bucket_elements);
    if (args->codec) {
        dpb_coded_memory(args, layout, bucket_elements, DPB_CODED_SHARED, memory);
        memory->device_bytes = dpb_coded_longest_slot_bytes(args->codec, layout, bucket_elements);
    } else {
        memory->device_bytes = dpb_device_strategy_inbox(&scheme, args, layout, bucket_elements);
    }
}

static dpb_status replicated_open(const void *options, const struct dpb_comm_args *args,
                                  void **comm)
{
    const struct dpb_shard_options *given = options;
    DPB_TRY(dpb_device_coded_open(host, args, sizeof(struct replicated), comm));
    struct replicated *made = *comm;
    made->shard = dpb_shard_wanted(args, given->shard);
    made->device.scheme = scheme_of(args, made->shard);
    return DPB_OK;
}

static dpb_status replicated_plan(void *comm, const struct dpb_layout *layout,
                                  struct dpb_comm_plan *want)
{
    struct dpb_device_strategy *strategy = comm;
    const int shard = ((const struct replicated *)comm)->shard;
    /* On devices owners exchange no sums of squares: one of them updates all. */
    if (shard != DPB_SHARD_NONE && strategy->base.args.whole && !strategy->in_place &&
        want->bucket_elements < layout->n_elements)
        want->bucket_elements = layout->n_elements;
    if (shard == DPB_SHARD_GRADIENTS)
        dpb_shard_plan_slots(&strategy->base.args, layout, DPB_SHARD_GRADIENTS, want);
    DPB_TRY(dpb_strategy_plan_replica(comm, layout, DPB_MEMORY_SHARED, want));
    if (strategy->base.args.codec)
        return dpb_device_coded_plan(strategy, layout, want);
    dpb_device_strategy_plan(strategy, layout, want);
    return shard == DPB_SHARD_NONE
               ? DPB_OK
               : dpb_slices_plan_shards(&strategy->base, layout, own_part, want);
}

static dpb_status replicated_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct dpb_device_strategy *strategy = comm;
    const int shard = ((const struct replicated *)comm)->shard;
    if (strategy->base.args.codec)
        return dpb_device_coded_bind(strategy, arenas);
    if (shard != DPB_SHARD_NONE && !strategy->in_place)
        return dpb_device_strategy_bind(strategy, arenas, shard_stages, shard_flights,
                                        SHARD_STAGES);
    if (shard != DPB_SHARD_NONE) {
        DPB_TRY(dpb_slices_bind_shards(&strategy->base, arenas));
        dpb_shard_bind_slots(&strategy->base, shard);
        return DPB_OK;
    }
    return dpb_device_strategy_bind(strategy, arenas, stages, flights, STAGES);
}

static const struct dpb_comm_ops replicated_ops = {.needs = dpb_device_strategy_needs,
                                                   .memory = replicated_memory,
                                                   .open = replicated_open,
                                                   .plan = replicated_plan,
                                                   .bind = replicated_bind,
                                                   DPB_DEVICE_STRATEGY_HOOKS,
                                                   .taken = dpb_strategy_taken,
                                                   DPB_CODED_HOOKS};

static const struct dpb_plugin replicated = {
    DPB_PLUGIN_HEAD(COMM, replicated_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_CODECS | DPB_COMM_ROUNDS | DPB_COMM_WHOLE |
                    DPB_COMM_WHOLE_SHARDS,
    .name = "replicated",
    .version = DPB_VERSION,
    .summary = "a copy on every worker; bucket i is summed on worker i mod W and copied back",
    .options = dpb_shard_slots_option_rows,
    .options_size = sizeof(struct dpb_shard_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &replicated;
}
