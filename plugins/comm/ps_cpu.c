/*
 * ps_cpu - parameter servers in host memory: the variables and the optimizer's state live on the
 * servers. A worker pushes its gradients, the servers sum them, update the variables and the
 * workers pull the new weights.
 *
 * With run.servers = k, k server processes; with 0, every worker is a server of its own shard.
 * Every bucket is cut into equal slices, one a shard, so that shards are even in bytes and a big
 * tensor is split; the first slice goes to another shard from bucket to bucket. In shared memory a
 * push is the server's reading of the workers' gradients, a pull the worker's copy out of the
 * server's weights.
 *
 * Bytes moved per step, W workers, M bytes of the model: W M pushed and W M pulled with server
 * processes, (W - 1) M each with shards in the workers.
 *
 * Fences: a slice is summed when every worker has announced its bucket (READY); it is pulled, and
 * the gradients under it may be written again, when its shard has updated it (REDUCED); weights of
 * a shard change again only after READY of every worker for the next step, when its pulls are over.
 *
 * Dean et al.: Large scale distributed deep networks. NIPS 2012 (the synchronous form).
 */
#include <string.h>

#include "dpbench/plugin.h"
#include "lib/strategy.h"

/* What the servers read of worker 0, and of each worker at the end; behind its signal page. */
struct notice {
    struct dpb_step step; /* worker 0: of the exchange that its READY announces */
    uint32_t closed;      /* written before a last READY */
};

struct ps {
    struct strategy base;
    uint64_t notice_at; /* offset in the scratch */
    void *sum;          /* of a piece */
};

static const struct dpb_host *host;

/* ---- shards -------------------------------------------------------------------------------- */

static struct rank_set shards(const struct dpb_comm_args *args)
{
    return args->n_servers > 0 ? (struct rank_set){args->n_workers, args->n_servers}
                               : (struct rank_set){0, args->n_workers};
}

/* The slice of a bucket of `length` elements that belongs to shard s of n. */
static struct dpb_range slice_of(uint64_t bucket, uint64_t length, uint32_t s, uint32_t n)
{
    uint64_t turn = (s + bucket) % n;
    return (struct dpb_range){length * turn / n, length * (turn + 1) / n};
}

static struct dpb_range own_slice(const struct dpb_comm_args *args, uint64_t bucket,
                                  uint64_t length)
{
    struct rank_set all = shards(args);
    return slice_of(bucket, length, args->rank - all.first, all.n);
}

static bool is_shard(const struct dpb_comm_args *args)
{
    return args->role == DPB_SERVER || args->n_servers == 0;
}

static struct notice *notice_of(const struct ps *ps, uint32_t rank)
{
    return (struct notice *)((char *)ps->base.arenas.peer_scratch[rank] + ps->notice_at);
}

/* ---- stage: serve the own shard ------------------------------------------------------------ */

static bool serve_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_READY, strategy_workers(comm), bucket);
}

static dpb_status serve_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait_ready(comm, strategy_workers(comm), bucket);
}

static void serve(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct ps *ps = strategy;
    const struct strategy *comm = &ps->base;
    struct dpb_range slice = own_slice(&comm->args, bucket, length);
    if (*at == 0) {
        if (comm->args.role == DPB_WORKER)
            signals_span_late_peer(&comm->signals, strategy_workers(comm), bucket);
        *at = slice.begin;
    }
    while (*at < slice.end && host->now_ns() < until_ns) {
        struct piece piece =
            strategy_piece(comm, bucket, slice.end, *at, comm->arenas.layout.gradient_type);
        strategy_sum(comm, bucket, piece, &ps->sum, 1);
        strategy_update(comm, bucket, piece, ps->sum);
        *at += piece.n;
    }
    if (*at < slice.end)
        return;
    signals_raise(&comm->signals, SIGNAL_REDUCED, bucket);
    *at = length;
}

/* ---- stage: pull the new weights ----------------------------------------------------------- */

static bool pull_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_READY, strategy_self(comm), bucket) &&
           signals_reached(&comm->signals, SIGNAL_REDUCED, shards(&comm->args), bucket);
}

static dpb_status pull_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    if (!signals_reached(&comm->signals, SIGNAL_READY, strategy_self(comm), bucket))
        return strategy_wait_ready(comm, strategy_self(comm), bucket);
    return strategy_wait(comm, SIGNAL_REDUCED, shards(&comm->args), bucket,
                         comm->arenas.layout.weight_type, "weights from the server");
}

/* Until the last worker came it was a late peer's time, from then on the servers'. */
static void report_servers(const struct strategy *comm, uint64_t bucket)
{
    int64_t pushed =
        signals_latest_ns(&comm->signals, SIGNAL_READY, strategy_workers(comm), bucket);
    int64_t served = signals_latest_ns(&comm->signals, SIGNAL_REDUCED, shards(&comm->args), bucket);
    signals_span_late_peer(&comm->signals, strategy_workers(comm), bucket);
    host->span(0, bucket, DPB_PHASE_TRANSFER, pushed, served);
}

static void pull(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct strategy *comm = strategy;
    struct rank_set all = shards(&comm->args);
    dpb_dtype type = comm->arenas.layout.weight_type;
    uint64_t begin = bucket * comm->arenas.bucket_elements;
    int64_t began_ns = host->now_ns();
    (void)until_ns; /* a copy of a bucket is short */
    report_servers(comm, bucket);
    if (comm->args.n_servers > 0) /* a shard in a worker counts by itself what it reads of others */
        host->count_bytes(length * dpb_dtype_size(comm->arenas.layout.gradient_type));
    for (uint32_t s = 0; s < all.n; s++) {
        uint32_t rank = all.first + s;
        struct dpb_range slice = slice_of(bucket, length, s, all.n);
        if (rank == comm->args.rank)
            continue;
        host->vec->copy(type, strategy_weights(comm, comm->args.rank, begin + slice.begin),
                        strategy_weights(comm, rank, begin + slice.begin), slice.end - slice.begin);
        host->count_bytes((slice.end - slice.begin) * dpb_dtype_size(type));
    }
    host->span(0, bucket, DPB_PHASE_TRANSFER, began_ns, host->now_ns());
    *at = length;
}

/* A worker with a shard serves and pulls; with server processes it pulls and they serve. */
static const struct stage both_stages[] = {{serve_due, serve, serve_wait},
                                           {pull_due, pull, pull_wait}};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status ps_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    (void)options;
    return strategy_open(host, args, sizeof(struct ps), comm);
}

static dpb_status own_slices(const struct strategy *comm, const struct dpb_layout *layout,
                             struct dpb_comm_plan *want)
{
    uint64_t n_buckets = strategy_count_buckets(layout, want);
    want->owned = host->alloc(n_buckets * sizeof *want->owned);
    if (!want->owned)
        return DPB_NO_MEMORY;
    want->n_owned = n_buckets;
    for (uint64_t bucket = 0; bucket < n_buckets; bucket++) {
        uint64_t begin = bucket * want->bucket_elements, rest = layout->n_elements - begin;
        uint64_t length = rest < want->bucket_elements ? rest : want->bucket_elements;
        struct dpb_range slice = own_slice(&comm->args, bucket, length);
        want->owned[bucket] = (struct dpb_range){begin + slice.begin, begin + slice.end};
    }
    return DPB_OK;
}

static dpb_status ps_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct ps *ps = comm;
    const struct dpb_comm_args *args = &ps->base.args;
    want->weights = is_shard(args) ? DPB_MEMORY_SHARED : DPB_MEMORY_PRIVATE;
    want->gradients = args->role == DPB_WORKER ? DPB_MEMORY_SHARED : DPB_MEMORY_NONE;
    want->scratch = DPB_MEMORY_SHARED;
    ps->notice_at = signals_bytes(strategy_count_buckets(layout, want));
    want->scratch_bytes = ps->notice_at + sizeof(struct notice);
    return is_shard(args) ? own_slices(&ps->base, layout, want) : DPB_OK;
}

static dpb_status ps_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct ps *ps = comm;
    bool shard = is_shard(&ps->base.args), worker = ps->base.args.role == DPB_WORKER;
    ps->sum = host->alloc(CHUNK_BYTES);
    if (!ps->sum)
        return DPB_NO_MEMORY;
    return strategy_bind(&ps->base, arenas, both_stages + (shard ? 0 : 1), shard && worker ? 2 : 1);
}

/* Worker 0 writes its weights into the servers' memory: no exchange is under way anywhere. */
static dpb_status ps_load(void *comm)
{
    struct ps *ps = comm;
    const struct dpb_comm_args *args = &ps->base.args;
    const struct dpb_arenas *arenas = &ps->base.arenas;
    if (args->rank != 0 || args->n_servers == 0)
        return DPB_OK;
    for (uint32_t rank = args->n_workers; rank < args->n_workers + args->n_servers; rank++)
        host->vec->copy(arenas->layout.weight_type, arenas->peer_weights[rank], arenas->weights,
                        arenas->layout.n_elements);
    return DPB_OK;
}

static dpb_status ps_begin(void *comm, uint32_t learner, const struct dpb_step *step)
{
    struct ps *ps = comm;
    notice_of(ps, ps->base.args.rank)->step = *step; /* published by the READY that follows */
    return strategy_begin(comm, learner, step);
}

/* Waits for the first bucket of the next exchange, or for the end; then the exchange is begun. */
static dpb_status await_exchange(struct ps *ps, bool *closed)
{
    struct strategy *comm = &ps->base;
    struct signals next = comm->signals;
    next.exchange++;
    for (uint32_t worker = 0; worker < comm->args.n_workers; worker++) {
        struct rank_set one = {worker, 1};
        /* Without a deadline: workers evaluate, load and compute as long as they need. */
        while (!signals_reached(&next, SIGNAL_READY, one, 0))
            DPB_TRY(signals_wait(&next, SIGNAL_READY, one, 0, DPB_FOREVER, 0, "the next step"));
        *closed = notice_of(ps, worker)->closed != 0;
        if (*closed)
            return DPB_OK;
    }
    return strategy_begin(comm, 0, &notice_of(ps, 0)->step);
}

static dpb_status ps_serve(void *comm_)
{
    struct ps *ps = comm_;
    struct strategy *comm = &ps->base;
    for (;;) {
        bool closed;
        DPB_TRY(await_exchange(ps, &closed));
        if (closed)
            return DPB_OK;
        while (!host->event->poll(comm->pipeline.done))
            DPB_TRY(pipeline_progress(&comm->pipeline, DPB_FOREVER));
    }
}

/* The servers see a closed worker by the READY of an exchange that will not be. */
static void ps_close(void *comm)
{
    struct ps *ps = comm;
    if (!ps)
        return;
    if (ps->base.pipeline.done && ps->base.args.role == DPB_WORKER) {
        notice_of(ps, ps->base.args.rank)->closed = 1;
        ps->base.signals.exchange++;
        signals_raise(&ps->base.signals, SIGNAL_READY, 0);
    }
    host->release(ps->sum, CHUNK_BYTES);
    strategy_close(comm);
}

static const struct dpb_comm_ops ps_ops = {.open = ps_open,
                                           .plan = ps_plan,
                                           .bind = ps_bind,
                                           .load = ps_load,
                                           .begin = ps_begin,
                                           STRATEGY_HOOKS,
                                           .serve = ps_serve,
                                           .close = ps_close};

static const struct dpb_plugin ps_cpu = {
    DPB_PLUGIN_HEAD(COMM, ps_ops),
    .capabilities = DPB_COMM_SYNC | DPB_COMM_BITWISE | DPB_COMM_OVERLAP | DPB_COMM_SERVERS,
    .name = "ps_cpu",
    .version = DPB_VERSION,
    .summary = "parameter servers in host memory: push, sum, update there, pull",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &ps_cpu;
}
