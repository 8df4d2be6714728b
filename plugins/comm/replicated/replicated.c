/*
 * replicated - every worker keeps a copy of the variables; bucket i is summed on worker i mod W and
 * copied back (tf_cnn_benchmarks' "replicated" on one machine, without NCCL).
 *
 * The owner of a bucket reads the other ranks' gradients and sums in place; the others copy the sum
 * out of the owner's arena into their own; then every rank updates its weights.
 *
 * Bytes moved per step, M bytes of gradients: the owners read (W - 1) M in all, the copies move
 * (W - 1) M: as much as an all-reduce, but a bucket passes through one rank.
 *
 * Fences: a bucket is summed when all have announced it (READY), copied when its owner has summed
 * it (REDUCED), and the owner's step ends when all have copied (TAKEN): then nobody reads its
 * arena.
 *
 * Where the workers' devices have memory of their own it is the same on arenas there: device.c.
 */
#include <string.h>

#include "comm/replicated/replicated.h"
#include "dpbench/plugin.h"

static const struct dpb_host *host;

static uint32_t owner_of(const struct strategy *comm, uint64_t bucket)
{
    return replicated_owner(&comm->args, bucket);
}

static bool owns(const struct strategy *comm, uint64_t bucket)
{
    return owner_of(comm, bucket) == comm->args.rank;
}

/* ---- stage: reduce, on the owner ----------------------------------------------------------- */

/* Others pass the stage as soon as their own gradients are final. */
static struct rank_set reduce_needs(const struct strategy *comm, uint64_t bucket)
{
    return owns(comm, bucket) ? strategy_workers(comm) : strategy_self(comm);
}

static bool reduce_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_READY, reduce_needs(comm, bucket), bucket);
}

static dpb_status reduce_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait_ready(comm, reduce_needs(comm, bucket), bucket);
}

static void reduce(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct strategy *comm = strategy;
    dpb_dtype type = comm->arenas.layout.gradient_type;
    if (!owns(comm, bucket)) {
        *at = length;
        return;
    }
    if (*at == 0)
        signals_span_late_peer(&comm->signals, strategy_workers(comm), bucket);
    do {
        struct piece piece = strategy_piece(comm, bucket, length, *at, type);
        void *own = strategy_gradients(comm, comm->args.rank, piece.begin);
        strategy_sum(comm, bucket, piece, &own, 1);
        *at += piece.n;
    } while (*at < length && host->now_ns() < until_ns);
    if (*at == length)
        signals_raise(&comm->signals, SIGNAL_REDUCED, bucket);
}

/* ---- stage: take the sum from the owner ---------------------------------------------------- */

static bool take_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    struct rank_set owner = {owner_of(comm, bucket), 1};
    return signals_reached(&comm->signals, SIGNAL_REDUCED, owner, bucket);
}

static dpb_status take_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    struct rank_set owner = {owner_of(comm, bucket), 1};
    return strategy_wait(comm, SIGNAL_REDUCED, owner, bucket, comm->arenas.layout.gradient_type,
                         "the sum from the bucket's owner");
}

static void copy_piece(const struct strategy *comm, uint64_t bucket, struct piece piece)
{
    dpb_dtype type = comm->arenas.layout.gradient_type;
    int64_t began_ns = host->now_ns();
    host->vec->copy(type, strategy_gradients(comm, comm->args.rank, piece.begin),
                    strategy_gradients(comm, owner_of(comm, bucket), piece.begin), piece.n);
    host->count_bytes(piece.n * dpb_dtype_size(type));
    host->span(bucket, DPB_PHASE_TRANSFER, began_ns, host->now_ns());
}

/* Before the copy the owner may have waited for a late peer, and then worked for this rank. */
static void report_owner(const struct strategy *comm, uint64_t bucket)
{
    struct rank_set owner = {owner_of(comm, bucket), 1};
    int64_t ready = signals_latest_ns(&comm->signals, SIGNAL_READY, strategy_workers(comm), bucket);
    int64_t reduced = signals_latest_ns(&comm->signals, SIGNAL_REDUCED, owner, bucket);
    signals_span_late_peer(&comm->signals, strategy_workers(comm), bucket);
    host->span(bucket, DPB_PHASE_TRANSFER, ready, reduced);
}

static void take(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct strategy *comm = strategy;
    if (owns(comm, bucket))
        *at = length;
    else if (*at == 0)
        report_owner(comm, bucket);
    while (*at < length && host->now_ns() < until_ns) {
        struct piece piece =
            strategy_piece(comm, bucket, length, *at, comm->arenas.layout.gradient_type);
        copy_piece(comm, bucket, piece);
        *at += piece.n;
    }
    if (*at == length)
        signals_raise(&comm->signals, SIGNAL_TAKEN, bucket);
}

/* ---- stage: update, and let go of the bucket when all have taken it ------------------------ */

static bool update_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    struct rank_set takers = owns(comm, bucket) ? strategy_workers(comm) : strategy_self(comm);
    return signals_reached(&comm->signals, SIGNAL_TAKEN, takers, bucket);
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait(comm, SIGNAL_TAKEN, strategy_workers(comm), bucket,
                         comm->arenas.layout.gradient_type, "the peer to take the sum");
}

static const struct stage stages[] = {{reduce_due, reduce, reduce_wait},
                                      {take_due, take, take_wait},
                                      {update_due, strategy_update_bucket, update_wait}};

/* ---- hooks --------------------------------------------------------------------------------- */

static bool is_on_device(const struct dpb_comm_args *args)
{
    return strcmp(args->device->ops->runtime, "host") != 0;
}

static const struct dpb_comm_ops on_device_ops;

static dpb_status replicated_needs(const void *options, struct dpb_comm_needs *needs)
{
    (void)options;
    needs->on_device = true;
    return DPB_OK;
}

static dpb_status replicated_open(const void *options, const struct dpb_comm_args *args,
                                  void **comm)
{
    (void)options;
    return is_on_device(args) ? on_device_open(host, args, comm)
                              : strategy_open(host, args, sizeof(struct strategy), comm);
}

static dpb_status replicated_plan(void *comm_, const struct dpb_layout *layout,
                                  struct dpb_comm_plan *want)
{
    struct strategy *comm = comm_;
    DPB_TRY(strategy_plan_replica(comm, layout, DPB_MEMORY_SHARED, want));
    if (!is_on_device(&comm->args))
        return DPB_OK;
    device_strategy_plan(comm_, layout, want);
    want->ops = &on_device_ops;
    return DPB_OK;
}

static dpb_status replicated_bind(void *comm, const struct dpb_arenas *arenas)
{
    return strategy_bind(comm, arenas, stages, 3);
}

static const struct dpb_comm_ops replicated_ops = {.needs = replicated_needs,
                                                   .memory = on_device_memory,
                                                   .open = replicated_open,
                                                   .plan = replicated_plan,
                                                   .bind = replicated_bind,
                                                   .load = strategy_load,
                                                   .begin = strategy_begin,
                                                   STRATEGY_HOOKS,
                                                   .close = strategy_close};

static const struct dpb_comm_ops on_device_ops = {.open = replicated_open,
                                                  .plan = replicated_plan,
                                                  .bind = on_device_bind,
                                                  .load = strategy_load,
                                                  .begin = device_strategy_begin,
                                                  .ready = strategy_ready,
                                                  .progress = device_strategy_progress,
                                                  .end = strategy_end,
                                                  .publish = strategy_publish,
                                                  .close = device_strategy_close};

static const struct dpb_plugin replicated = {
    DPB_PLUGIN_HEAD(COMM, replicated_ops),
    .capabilities = DPB_COMM_OVERLAP,
    .name = "replicated",
    .version = DPB_VERSION,
    .summary = "a copy on every worker; bucket i is summed on worker i mod W and copied back",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &replicated;
}
