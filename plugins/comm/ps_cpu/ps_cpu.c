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
 * If updates need norms of whole tensors, the model is one bucket: no weight changes before the
 * last gradient is there. A shard sums its slice in its own gradient arena, shards exchange sums of
 * squares (squares.h), then each updates its slice. Shards across machines exchange none, so there
 * run.servers = 1.
 *
 * Dean et al.: Large scale distributed deep networks. NIPS 2012 (the synchronous form).
 */
#include "comm/ps_cpu/ps_shard.h"

static const struct dpb_option options[] = {
    PS_OPTION_ROWS(struct ps_options, "between machines: tcp, or verbs (RDMA: InfiniBand or RoCE)"),
    {"codec_back", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL,
     offsetof(struct ps_cpu_options, codec_back),
     "the codec encodes the way back, too: the sum of the gradients, with a residual on each "
     "shard; no: workers pull weights",
     "comm.codec"},
    {0}};

/* ---- hooks --------------------------------------------------------------------------------- */

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

/* Links lead to other machines. */
static dpb_status ps_contract(const void *options_, const struct dpb_comm_args *args,
                              struct dpb_contract *contract)
{
    const struct ps_cpu_options *given = options_;
    if (!given->codec_back)
        DPB_TRY(ps_check_norms(args, "ps_cpu", false));
    dpb_coded_contract(args, contract);
    contract->roundings += given->codec_back ? PS_BACK_ROUNDINGS : 0;
    return args->n_machines > 1 ? ps_check(&given->ps, last_linked(args)) : DPB_OK;
}

static dpb_status ps_open(const void *options_, const struct dpb_comm_args *args, void **comm)
{
    const struct ps_cpu_options *given = options_;
    DPB_TRY(ps_create(&given->ps, args, dpb_strategy_local_rank(args), sizeof(struct ps), comm));
    ((struct ps *)*comm)->codes_back = given->codec_back;
    return DPB_OK;
}

static void ps_memory(const void *options_, const struct dpb_comm_args *args,
                      const struct dpb_layout *layout, uint64_t bucket_elements,
                      struct dpb_comm_memory *memory)
{
    const struct ps_cpu_options *given = options_;
    const bool by_norms = args->whole && !given->codec_back;
    if (by_norms && bucket_elements < layout->n_elements)
        bucket_elements = layout->n_elements;
    memory->host_bytes =
        links_inbox_bytes(args, layout, bucket_elements, &(struct links_memory){.accrues = false});
    if (given->codec_back)
        memory->host_bytes += ps_back_bytes(args, layout, bucket_elements);
    if (!given->codec_back || args->role == DPB_SERVER)
        memory->state_elements = !given->codec_back && ps_is_shard(args)
                                     ? ps_most_owned(args, layout, bucket_elements)
                                     : 0;
    if (by_norms && args->role == DPB_SERVER)
        memory->host_bytes += layout->n_elements * dpb_dtype_size(layout->gradient_type);
    dpb_coded_memory(args, layout, bucket_elements, DPB_CODED_SHARED, memory);
    if (args->codec && ps_is_shard(args))
        memory->host_bytes += dpb_strategy_longest_bucket(layout, bucket_elements) * sizeof(float);
}

/* Whether a worker has begun an exchange or has closed: then there is none. */
static bool has_announced(const struct ps *ps, uint32_t worker, uint64_t exchange, bool *closed)
{
    struct dpb_rank_signals next = ps->base.signals;
    struct dpb_rank_set one = {worker, 1};
    next.exchange = exchange;
    if (!ps_is_here(&ps->base.args, worker)) {
        bool announced = links_announced(ps->links, worker, exchange);
        *closed = !announced && links_left(ps->links, worker);
        return announced || *closed;
    }
    if (!dpb_signals_reached(&next, DPB_SIGNAL_READY, one, 0))
        return false;
    *closed = ps_notice_of(ps, worker)->closed != 0;
    return true;
}

/* Without a deadline: workers evaluate, load and compute as long as they need. */
static dpb_status await_worker(struct ps *ps, uint32_t worker, uint64_t exchange)
{
    const struct dpb_wait what = {
        .timeout_ns = DPB_FOREVER, .step = exchange, .peer = worker, .purpose = "the next step"};
    struct dpb_rank_set one = {worker, 1};
    struct dpb_rank_signals next = ps->base.signals;
    next.exchange = exchange;
    if (!ps->links)
        return dpb_signals_wait(&next, DPB_SIGNAL_READY, one, 0, DPB_FOREVER, 0, what.purpose);
    return links_advance(ps->links, &what);
}

/* Waits for the first bucket of the next exchange, or for the end; then the exchange is begun. */
static dpb_status await_exchange(struct ps *ps, bool *closed)
{
    struct dpb_strategy *comm = &ps->base;
    uint64_t exchange = comm->signals.exchange + 1;
    for (uint32_t worker = 0; worker < comm->args.n_workers; worker++) {
        while (!has_announced(ps, worker, exchange, closed))
            DPB_TRY(await_worker(ps, worker, exchange));
        if (*closed)
            return DPB_OK;
    }
    const struct dpb_step step =
        ps_is_here(&ps->base.args, 0) ? ps_notice_of(ps, 0)->step : links_step(ps->links);
    return dpb_strategy_begin(comm, &step);
}

static dpb_status ps_serve(void *comm_)
{
    struct ps *ps = comm_;
    struct dpb_strategy *comm = &ps->base;
    for (;;) {
        bool closed;
        DPB_TRY(await_exchange(ps, &closed));
        if (closed)
            return ps_serve_last(ps);
        while (!ps_host->event->poll(comm->pipeline.done))
            DPB_TRY(dpb_pipeline_progress(&comm->pipeline, DPB_FOREVER));
        DPB_TRY(dpb_coded_status(comm)); /* the last bucket's decoding ends the exchange */
    }
}

static dpb_status ps_books(void *comm, struct dpb_books *books)
{
    const struct ps *ps = comm;
    DPB_TRY(dpb_coded_books(comm, books));
    if (ps->codes_back)
        ps_back_books(&ps->back, &ps->base, books);
    return DPB_OK;
}

static dpb_status ps_state(void *comm, struct dpb_saved *saved)
{
    struct ps *ps = comm;
    DPB_TRY(dpb_coded_state(comm, saved));
    if (ps->codes_back)
        ps_back_state(&ps->back, &ps->base, saved);
    return DPB_OK;
}

static const struct dpb_comm_ops ps_ops = {.open = ps_open,
                                           .plan = ps_plan,
                                           .bind = ps_bind,
                                           .load = ps_load,
                                           .begin = ps_begin,
                                           DPB_STRATEGY_HOOKS,
                                           .books = ps_books,
                                           .state = ps_state,
                                           .serve = ps_serve,
                                           .close = ps_close,
                                           .needs = ps_needs,
                                           .memory = ps_memory,
                                           .contract = ps_contract};

static const struct dpb_plugin ps_cpu = {
    DPB_PLUGIN_HEAD(COMM, ps_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_SERVERS | DPB_COMM_MULTI_NODE | DPB_COMM_CODECS |
                    DPB_COMM_WHOLE | DPB_COMM_WHOLE_SHARDS,
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
