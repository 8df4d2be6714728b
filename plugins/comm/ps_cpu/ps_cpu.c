/*
 * ps_cpu - parameter servers in host memory: the variables and the optimizer's state live on the
 * servers. A worker pushes its gradients, the servers sum them, update the variables and the
 * workers pull the new weights.
 *
 * With run.servers = k, k server processes; with 0, every worker is a server of its own shard.
 * Every bucket is cut into equal slices, one a shard, so that shards are even in bytes and a big
 * tensor is split; the first slice goes to another shard from bucket to bucket. In shared memory a
 * push is the server's reading of the workers' gradients, a pull the worker's copy out of the
 * server's weights. To and from another machine both are messages over TCP or RDMA (links.c):
 * gradients land beside the server, which sums them in the order of the ranks like those of its own
 * machine, and new weights in the worker's arena. So the numbers do not depend on where the ranks
 * are.
 *
 * Bytes moved per step, W workers, M bytes of the model: W M pushed and W M pulled with server
 * processes, (W - 1) M each with shards in the workers.
 *
 * With a codec (coded.h) a worker pushes a message for each bucket, m bytes in place of M. One
 * shard has all of a bucket: it decodes the messages and sums them in the order of the ranks.
 * Weights are pulled as they are; with comm.codec_back workers pull the coded sum (ps_back.h).
 *
 * Fences: a slice is summed when every worker has announced its bucket (READY), or its gradients
 * are here. It is pulled, and the gradients under it may be written again, when its shard has
 * updated it (REDUCED), or its weights are here. Weights of a shard change again only after every
 * worker's gradients of the next step, when its pulls are over. With a codec a worker announces
 * the message of a bucket (PUSHED), and this message must stay until REDUCED.
 *
 * Dean et al.: Large scale distributed deep networks. NIPS 2012 (the synchronous form).
 */

#include "comm/ps_cpu/ps_back.h"
#include "dpbench/plugin.h"
#include "lib/mesh/mesh_tcp.h"
#include "lib/strategy/shard.h"
#include "lib/verbs/mesh_verbs.h"

/* Servers read worker 0's notice, and each worker's at the end. It lies behind the signal page. */
struct notice {
    struct dpb_step step; /* worker 0: of the exchange that its READY announces */
    uint32_t closed;      /* written before a last READY */
};

const struct dpb_host *ps_host;

const char *const ps_transports[] = {"tcp", "verbs", NULL};

static const struct dpb_option options[] = {
    PS_OPTION_ROWS(struct ps_options, "between machines: tcp, or verbs (RDMA: InfiniBand or RoCE)"),
    {"codec_back", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL,
     offsetof(struct ps_cpu_options, codec_back),
     "the codec encodes the way back, too: the sum of the gradients, with a residual on each "
     "shard; no: workers pull weights"},
    {0}};

static struct notice *notice_of(const struct ps *ps, uint32_t rank)
{
    return (struct notice *)((char *)ps->base.arenas.peer_scratch[rank] + ps->notice_at);
}

/* ---- hooks --------------------------------------------------------------------------------- */

/* Moves the links; a message that was refused ends the exchange. */
static dpb_status move(void *strategy, int64_t until_ns, bool *moved)
{
    const struct ps *ps = strategy;
    DPB_TRY(coded_status(&ps->base));
    DPB_TRY(ps->back_status);
    return ps->links ? links_move(ps->links, until_ns, moved) : DPB_OK;
}

dpb_status ps_needs(const void *options_, struct dpb_comm_needs *needs)
{
    const struct ps_options *given = options_;
    (void)needs;
    return given->transport == PS_OVER_VERBS ? verbs_check_built(ps_host) : DPB_OK;
}

dpb_status ps_check(const struct ps_options *given, uint32_t last)
{
    return given->transport == PS_OVER_TCP ? tcp_check_port(ps_host, &given->tcp, last) : DPB_OK;
}

/* The last rank that has a link, and so listens. */
static uint32_t last_linked(const struct dpb_comm_args *args)
{
    struct dpb_comm_args own = *args;
    for (own.rank = args->n_workers + args->n_servers - 1; own.rank > 0; own.rank--) {
        own.role = own.rank < args->n_workers ? DPB_WORKER : DPB_SERVER;
        for (uint32_t rank = 0; rank < own.rank; rank++)
            if (links_lead_to(&own, rank))
                return own.rank;
    }
    return 0;
}

/* With codec_back an answer encodes a sum and a residual, and is taken off the residual. */
enum { BACK_ROUNDINGS = 3 };

/* Links lead to other machines. */
static dpb_status ps_contract(const void *options_, const struct dpb_comm_args *args,
                              struct dpb_contract *contract)
{
    const struct ps_cpu_options *given = options_;
    coded_contract(args, contract);
    contract->roundings += given->codec_back ? BACK_ROUNDINGS : 0;
    return args->n_machines > 1 ? ps_check(&given->ps, last_linked(args)) : DPB_OK;
}

static dpb_status open_transport(struct ps *ps, const struct ps_options *given, uint32_t local_rank)
{
    if (ps->base.args.n_machines == 1)
        return DPB_OK;
    if (given->transport == PS_OVER_TCP)
        return mesh_tcp_create(ps_host, &given->tcp, false, &ps->transport);
#ifdef DPB_HAVE_VERBS
    struct verbs_options verbs = given->verbs;
    verbs.interface = given->tcp.interface;
    return mesh_verbs_create(ps_host, &verbs, local_rank, &ps->transport);
#else
    (void)local_rank;
    return DPB_OK; /* refused by ps_needs */
#endif
}

dpb_status ps_create(const struct ps_options *given, const struct dpb_comm_args *args,
                     uint32_t local_rank, size_t bytes, void **comm)
{
    void *made;
    DPB_TRY(coded_open(ps_host, args, bytes, &made));
    dpb_status status = open_transport(made, given, local_rank);
    if (status != DPB_OK) {
        strategy_close(made);
        return status;
    }
    *comm = made;
    return DPB_OK;
}

static dpb_status ps_open(const void *options_, const struct dpb_comm_args *args, void **comm)
{
    const struct ps_cpu_options *given = options_;
    DPB_TRY(ps_create(&given->ps, args, strategy_local_rank(args), sizeof(struct ps), comm));
    ((struct ps *)*comm)->codes_back = given->codec_back;
    return DPB_OK;
}

static struct dpb_range own_part(const struct strategy *strategy, uint64_t bucket, uint64_t length)
{
    return ps_slice(&strategy->args, strategy->args.rank, bucket, length);
}

/* Behind the rest of the plan. Servers keep no weights. */
static dpb_status plan_back(struct ps *ps, const struct dpb_layout *layout,
                            struct dpb_comm_plan *want)
{
    want->contract.roundings += BACK_ROUNDINGS;
    want->weights = DPB_MEMORY_NONE;
    return ps->base.args.role == DPB_SERVER ? DPB_OK : strategy_plan_own(&ps->base, layout, want);
}

dpb_status ps_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct ps *ps = comm;
    const struct dpb_comm_args *args = &ps->base.args;
    want->weights = ps_is_shard(args) ? DPB_MEMORY_SHARED : DPB_MEMORY_PRIVATE;
    want->gradients = args->role == DPB_WORKER ? DPB_MEMORY_SHARED : DPB_MEMORY_NONE;
    want->scratch = DPB_MEMORY_SHARED;
    ps->notice_at = signals_bytes(strategy_count_buckets(layout, want->bucket_elements));
    want->scratch_bytes = ps->back_at = strategy_lines(ps->notice_at + sizeof(struct notice));
    if (ps->codes_back)
        want->scratch_bytes += ps_back_bytes(args, layout, want->bucket_elements);
    if (ps->base.args.codec)
        DPB_TRY(coded_plan(&ps->base, layout, CODED_SHARED, want));
    ps->inbox_at = strategy_lines(want->scratch_bytes);
    want->scratch_bytes =
        ps->inbox_at + links_inbox_bytes(args, layout, want->bucket_elements, &ps->memory);
    if (ps->codes_back)
        return plan_back(ps, layout, want);
    return ps_is_shard(args) ? strategy_plan_parts(&ps->base, layout, own_part, want) : DPB_OK;
}

uint64_t ps_most_owned(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                       uint64_t bucket_elements)
{
    const uint32_t n = ps_shards(args).n;
    const uint64_t n_buckets = strategy_count_buckets(layout, bucket_elements);
    return args->codec ? (n_buckets + n - 1) / n * strategy_longest_bucket(layout, bucket_elements)
                       : shard_elements(layout, bucket_elements, n);
}

static void ps_memory(const void *options_, const struct dpb_comm_args *args,
                      const struct dpb_layout *layout, uint64_t bucket_elements,
                      struct dpb_comm_memory *memory)
{
    const struct ps_cpu_options *given = options_;
    memory->host_bytes =
        links_inbox_bytes(args, layout, bucket_elements, &(struct links_memory){.accrues = false});
    if (given->codec_back)
        memory->host_bytes += ps_back_bytes(args, layout, bucket_elements);
    if (!given->codec_back || args->role == DPB_SERVER)
        memory->state_elements = !given->codec_back && ps_is_shard(args)
                                     ? ps_most_owned(args, layout, bucket_elements)
                                     : 0;
    coded_memory(args, layout, bucket_elements, CODED_SHARED, memory);
    if (args->codec && ps_is_shard(args))
        memory->host_bytes += strategy_longest_bucket(layout, bucket_elements) * sizeof(float);
}

static size_t sum_bytes(const struct ps *ps, const struct dpb_arenas *arenas)
{
    return ps->base.args.codec
               ? strategy_longest_bucket(&arenas->layout, arenas->bucket_elements) * sizeof(float)
               : CHUNK_BYTES;
}

static size_t sources_bytes(const struct ps *ps)
{
    return (ps->base.args.n_workers + 1) * sizeof *ps->sources;
}

dpb_status ps_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct ps *ps = comm;
    const uint32_t n = ps_choose_stages(ps);
    const bool by_async = ps->stages && ps->base.args.role == DPB_WORKER;
    ps->sum = ps_host->alloc(sum_bytes(ps, arenas));
    ps->sources = ps_host->alloc(sources_bytes(ps));
    if (!ps->sum || !ps->sources)
        return DPB_NO_MEMORY;
    DPB_TRY(strategy_bind(&ps->base, arenas, by_async ? ps->stages : ps->row, n));
    if (ps->base.args.codec)
        DPB_TRY(coded_bind(&ps->base));
    if (ps->codes_back)
        ps_back_bind(ps, arenas);
    if (ps->base.args.codec || ps->base.args.n_machines > 1)
        ps->base.pipeline.move = move;
    if (ps->base.args.n_machines == 1)
        return DPB_OK;
    struct mesh_transport *transport = ps->transport;
    ps->transport = NULL;
    return links_open(&ps->base, transport, (char *)arenas->scratch + ps->inbox_at, &ps->memory,
                      &ps->links);
}

/* Worker 0 writes its weights into the servers' memory: no exchange is under way anywhere. */
dpb_status ps_load(void *comm)
{
    struct ps *ps = comm;
    const struct dpb_comm_args *args = &ps->base.args;
    const struct dpb_arenas *arenas = &ps->base.arenas;
    DPB_TRY(strategy_load(comm));
    if (ps->codes_back)
        ps_back_load(ps);
    if (args->rank != 0 || args->n_servers == 0 || ps->codes_back)
        return DPB_OK;
    for (uint32_t rank = args->n_workers; rank < args->n_workers + args->n_servers; rank++)
        if (ps_is_here(&ps->base.args, rank))
            ps_host->vec->copy(arenas->layout.weight_type, arenas->peer_weights[rank],
                               arenas->weights, arenas->layout.n_elements);
    return ps->links ? links_load(ps->links) : DPB_OK;
}

dpb_status ps_begin(void *comm, const struct dpb_step *step)
{
    struct ps *ps = comm;
    if (ps->codes_back)
        DPB_TRY(ps_back_begin(ps));
    notice_of(ps, ps->base.args.rank)->step = *step; /* published by the READY that follows */
    return strategy_begin(comm, step);
}

/* Whether a worker has begun an exchange or has closed: then there is none. */
static bool has_announced(const struct ps *ps, uint32_t worker, uint64_t exchange, bool *closed)
{
    struct signals next = ps->base.signals;
    struct rank_set one = {worker, 1};
    next.exchange = exchange;
    if (!ps_is_here(&ps->base.args, worker)) {
        bool announced = links_announced(ps->links, worker, exchange);
        *closed = !announced && links_left(ps->links, worker);
        return announced || *closed;
    }
    if (!signals_reached(&next, SIGNAL_READY, one, 0))
        return false;
    *closed = notice_of(ps, worker)->closed != 0;
    return true;
}

/* Without a deadline: workers evaluate, load and compute as long as they need. */
static dpb_status await_worker(struct ps *ps, uint32_t worker, uint64_t exchange)
{
    const struct dpb_wait what = {
        .timeout_ns = DPB_FOREVER, .step = exchange, .peer = worker, .purpose = "the next step"};
    struct rank_set one = {worker, 1};
    struct signals next = ps->base.signals;
    next.exchange = exchange;
    if (!ps->links)
        return signals_wait(&next, SIGNAL_READY, one, 0, DPB_FOREVER, 0, what.purpose);
    return links_advance(ps->links, &what);
}

/* Waits for the first bucket of the next exchange, or for the end; then the exchange is begun. */
static dpb_status await_exchange(struct ps *ps, bool *closed)
{
    struct strategy *comm = &ps->base;
    uint64_t exchange = comm->signals.exchange + 1;
    for (uint32_t worker = 0; worker < comm->args.n_workers; worker++) {
        while (!has_announced(ps, worker, exchange, closed))
            DPB_TRY(await_worker(ps, worker, exchange));
        if (*closed)
            return DPB_OK;
    }
    const struct dpb_step step =
        ps_is_here(&ps->base.args, 0) ? notice_of(ps, 0)->step : links_step(ps->links);
    return strategy_begin(comm, &step);
}

/* The first worker that closes may be one of this machine, while weights of the last exchange are
 * on their way to others. */
dpb_status ps_serve_last(struct ps *ps)
{
    const struct dpb_arenas *arenas = &ps->base.arenas;
    for (uint32_t worker; ps->links && (worker = links_busy(ps->links)) != NONE;) {
        const struct dpb_wait what =
            ps_wait_of(ps, worker, arenas->n_buckets - 1, arenas->layout.weight_type,
                       "the worker to take weights");
        DPB_TRY(links_advance(ps->links, &what));
    }
    return DPB_OK;
}

static dpb_status ps_serve(void *comm_)
{
    struct ps *ps = comm_;
    struct strategy *comm = &ps->base;
    for (;;) {
        bool closed;
        DPB_TRY(await_exchange(ps, &closed));
        if (closed)
            return ps_serve_last(ps);
        while (!ps_host->event->poll(comm->pipeline.done))
            DPB_TRY(pipeline_progress(&comm->pipeline, DPB_FOREVER));
        DPB_TRY(coded_status(comm)); /* the last bucket's decoding ends the exchange */
    }
}

/* The servers see a closed worker by the READY of an exchange that will not be. Servers elsewhere
 * see the end of its link. */
void ps_close(void *comm)
{
    struct ps *ps = comm;
    if (!ps)
        return;
    struct strategy *base = &ps->base;
    bool begun = base->pipeline.done && base->signals.exchange != UINT64_MAX;
    bool through = ps->asynchronous && base->args.role == DPB_SERVER
                       ? ps->served
                       : !begun || ps_host->event->poll(base->pipeline.done);
    if (base->pipeline.done && base->args.role == DPB_WORKER) {
        notice_of(ps, base->args.rank)->closed = 1;
        base->signals.exchange++;
        signals_raise(&base->signals, SIGNAL_READY, 0);
    }
    links_close(ps->links, through);
    if (ps->transport)
        ps->transport->ops->close(ps->transport, false);
    ps_host->release(ps->sum, sum_bytes(ps, &base->arenas));
    ps_host->release(ps->sources, sources_bytes(ps));
    strategy_close(comm);
}

static const struct dpb_comm_ops ps_ops = {.open = ps_open,
                                           .plan = ps_plan,
                                           .bind = ps_bind,
                                           .load = ps_load,
                                           .begin = ps_begin,
                                           STRATEGY_HOOKS,
                                           .books = ps_back_books,
                                           .state = ps_back_state,
                                           .serve = ps_serve,
                                           .close = ps_close,
                                           .needs = ps_needs,
                                           .memory = ps_memory,
                                           .contract = ps_contract};

static const struct dpb_plugin ps_cpu = {
    DPB_PLUGIN_HEAD(COMM, ps_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_SERVERS | DPB_COMM_MULTI_NODE | DPB_COMM_CODECS,
    .name = "ps_cpu",
    .version = DPB_VERSION,
    .summary = "parameter servers in host memory: push, sum, update there, pull",
    .options = options,
    .options_size = sizeof(struct ps_cpu_options),
    .next = &ps_async,
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    ps_host = given;
    return &ps_cpu;
}
