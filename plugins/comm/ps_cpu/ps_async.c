/*
 * ps_async - parameter servers that wait for nobody: a server applies each worker's gradients at
 * once, one worker at a time, in the order of arrival. The worker then gets the new weights of
 * that server.
 *
 * Worker and link are ps_cpu's (ps_cpu.c, links.c), but by messages alone, on one machine as on
 * several. A server is one shard of the model: the slices that ps_slice gives it, with a version.
 *
 * The rule of a server is in ps_shard.c. Gradients are means over the worker's own batch: nothing
 * divides by the workers, but by the gradients of an update where comm.softsync gives it several.
 *
 * A worker says between steps when nobody needs to wait for it (settle, at its end), and when it
 * meets the others (load, publish): once all meet, each gets the model, the same for all.
 *
 * Bytes moved per step and worker, M bytes of the model: M pushed and M pulled.
 *
 * Dean et al.: Large scale distributed deep networks. NIPS 2012 (Downpour SGD). Ho et al.: More
 * effective distributed ML via a stale synchronous parallel parameter server. NIPS 2013
 * (comm.bound). Gupta, Zhang, Wang: Model accuracy and runtime tradeoff in distributed deep
 * learning. ICDM 2016 (comm.rate = staleness). Zhang, Gupta, Lian, Liu: Staleness-aware
 * async-SGD for distributed deep learning. IJCAI 2016 (comm.softsync). Dutta et al.: Slow and stale
 * gradients can win the race. AISTATS 2018 (comm.policy). Chen et al.: Revisiting distributed
 * synchronous SGD. ICLR workshop 2016 (backup workers: k_sync).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "comm/ps_cpu/ps_async.h"
#include "dpbench/plugin.h"
#include "lib/verbs/mesh_verbs.h"

static const char *const policies[] = {"async", "k_sync", "k_batch_async", NULL};
static const char *const rates[] = {"plain", "staleness", NULL};

#define AT(member) offsetof(struct ps_async_options, member)
static const struct dpb_option option_table[] = {
    {"bound", DPB_OPT_INT, "steps", "-1", -1, 1e6, NULL, AT(bound),
     "a worker that is more than so many steps ahead of the slowest waits; -1: no worker waits"},
    {"rate", DPB_OPT_CHOICE, NULL, "plain", 0, 0, rates, AT(rate),
     "staleness: the learning rate is divided by the age of the gradients, where that is above 1"},
    {"softsync", DPB_OPT_INT, "pushes", "1", 1, STRATEGY_WORKERS, NULL, AT(softsync),
     "an update is the mean of so many pushes, of any workers; at most the workers"},
    {"policy", DPB_OPT_CHOICE, NULL, "async", 0, 0, policies, AT(policy),
     "k_sync: the first comm.k gradients of a step count, the rest are dropped; "
     "k_batch_async: comm.softsync = comm.k"},
    {"k", DPB_OPT_INT, "gradients", "0", 0, STRATEGY_WORKERS, NULL, AT(k),
     "of an update, with comm.policy = k_...; at most the workers"},
    {"log", DPB_OPT_STRING, "file", "", 0, 0, NULL, AT(log),
     "each server writes a line for each push that it applies to FILE.RANK: worker, exchange "
     "number, version pulled, version applied to"},
    PS_OPTION_ROWS(struct ps_options, "tcp, or verbs (RDMA: InfiniBand or RoCE)"),
    {0}};

static uint32_t n_ranks(const struct dpb_comm_args *args)
{
    return args->n_workers + args->n_servers;
}

/* ---- worker -------------------------------------------------------------------------------- */

/* Between steps, to all servers. */
static dpb_status say(struct ps_async *async, bool meets)
{
    const uint64_t pushes = async->ps.base.signals.exchange + 1;
    async->meetings += meets;
    return links_say(async->ps.links, ps_word(pushes, async->meetings, !meets), meets);
}

static dpb_status async_load(void *comm)
{
    DPB_TRY(ps_load(comm));
    return say(comm, true);
}

/* All servers have said so. */
static bool async_cancelled(void *comm)
{
    const struct ps_async *async = comm;
    const struct strategy *base = &async->ps.base;
    const struct rank_set all = ps_shards(&base->args);
    const uint64_t word = ps_late_word(base->signals.exchange, async->meetings);
    for (uint32_t shard = all.first; shard < all.first + all.n; shard++)
        if (!async->rule.sync || links_said(async->ps.links, shard) != word)
            return false;
    return true;
}

static dpb_status async_settle(void *comm)
{
    return say(comm, false);
}

static dpb_status async_publish(void *comm, struct dpb_view *view)
{
    DPB_TRY(say(comm, true));
    return strategy_publish(comm, view);
}

static dpb_status async_books(void *comm, struct dpb_books *books)
{
    const struct strategy *base = comm;
    DPB_TRY(say(comm, true));
    if (base->args.rank == 0)
        books->entries[books->n++] =
            (struct dpb_book){base->arenas.weights, base->arenas.layout.weight_type, 1.0, false};
    return DPB_OK;
}

static uint32_t shard_of(const struct strategy *base, uint64_t element)
{
    const struct rank_set all = ps_shards(&base->args);
    const uint64_t bucket = element / base->arenas.bucket_elements;
    const uint64_t at = element % base->arenas.bucket_elements;
    const uint64_t length = pipeline_bucket_length(&base->pipeline, bucket);
    uint32_t shard = all.first;
    while (shard + 1 < all.first + all.n) {
        const struct dpb_range slice = ps_slice(&base->args, shard, bucket, length);
        if (at >= slice.begin && at < slice.end)
            break;
        shard++;
    }
    return shard;
}

static double async_applied(void *comm, uint64_t step, uint64_t element)
{
    const struct ps_async *async = comm;
    const uint64_t age = links_age(async->ps.links, shard_of(&async->ps.base, element), step);
    if (age == DPB_DROPPED)
        return 0.0;
    const double rate = async->options.rate == PS_STALENESS && age > 1 ? 1.0 / (double)age : 1.0;
    return rate / async->rule.count;
}

/* ---- life ---------------------------------------------------------------------------------- */

static dpb_status open_log(struct ps_async *async)
{
    char path[4096];
    if (!async->options.log[0] || async->ps.base.args.role != DPB_SERVER)
        return DPB_OK;
    const uint32_t rank = async->ps.base.args.rank;
    snprintf(path, sizeof path, "%s.%u", async->options.log, rank);
    async->log = fopen(path, "w");
    return async->log ? DPB_OK
                      : ps_host->fail(DPB_FAILED, "comm.log = %s: cannot write %s: %s",
                                      async->options.log, path, strerror(errno));
}

static void async_close(void *comm)
{
    struct ps_async *async = comm;
    if (!async)
        return;
    uint32_t *machines = async->machines;
    if (async->log)
        fclose(async->log);
    free(async->clients);
    ps_close(comm);
    free(machines);
}

/* What in the options contradicts something else, and what to do; NULL: nothing. */
static const char *contradiction(const struct ps_async_options *options, uint32_t n_workers)
{
    const bool k_rule = options->policy != PS_ASYNC;
    if (options->softsync > n_workers)
        return "comm.softsync is more than run.workers; give at most one push a worker";
    if (k_rule && options->softsync > 1)
        return "comm.softsync and comm.policy both say what makes an update; give one of them";
    if (k_rule && (options->k < 1 || options->k > n_workers))
        return "comm.policy needs comm.k, from 1 to run.workers";
    if (!k_rule && options->k > 0)
        return "comm.k goes with comm.policy = k_sync or k_batch_async; give one of them";
    if (options->policy == PS_K_SYNC && options->bound >= 0)
        return "comm.bound says how far workers are apart, and with comm.policy = k_sync they are "
               "in the same step; leave out comm.bound";
    if (options->policy == PS_K_SYNC && options->rate == PS_STALENESS)
        return "with comm.policy = k_sync no gradient that counts is stale; leave out comm.rate";
    return NULL;
}

static dpb_status make_rule(struct ps_async *async)
{
    const struct ps_async_options *options = &async->options;
    const char *reason = contradiction(options, async->ps.base.args.n_workers);
    if (reason)
        return ps_host->fail(DPB_UNSUPPORTED, "%s", reason);
    async->rule.count = (uint32_t)(options->policy == PS_ASYNC ? options->softsync : options->k);
    async->rule.batch = async->rule.count > 1 && options->policy != PS_K_SYNC;
    async->rule.sync = options->policy == PS_K_SYNC;
    return DPB_OK;
}

static dpb_status async_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    struct dpb_comm_args apart = *args;
    void *made;
    uint32_t *machines = calloc(n_ranks(args), sizeof *machines);
    if (!machines)
        return ps_host->fail(DPB_NO_MEMORY, "no memory for the communicator");
    for (uint32_t rank = 0; rank < n_ranks(args); rank++)
        machines[rank] = rank;
    apart.machines = machines;
    apart.n_machines = n_ranks(args);
    dpb_status status =
        ps_create(options, &apart, strategy_local_rank(args), sizeof(struct ps_async), &made);
    if (status != DPB_OK) {
        free(machines);
        return status;
    }
    struct ps_async *async = made;
    async->ps.asynchronous = true;
    async->machines = machines;
    async->options = *(const struct ps_async_options *)options;
    async->clients = calloc(args->n_workers, sizeof *async->clients);
    status = async->clients
                 ? make_rule(async)
                 : ps_host->fail(DPB_NO_MEMORY, "no memory for %u workers", args->n_workers);
    if (status == DPB_OK)
        status = open_log(async);
    if (status != DPB_OK) {
        async_close(async);
        return status;
    }
    *comm = made;
    return DPB_OK;
}

static dpb_status async_plan(void *comm, const struct dpb_layout *layout,
                             struct dpb_comm_plan *want)
{
    const struct ps_async *async = comm;
    const int64_t bound = async->options.bound;
    const uint32_t count = async->rule.count;
    DPB_TRY(ps_plan(comm, layout, want));
    want->weights = want->scratch = DPB_MEMORY_PRIVATE;
    if (want->gradients == DPB_MEMORY_SHARED)
        want->gradients = DPB_MEMORY_PRIVATE;
    if (async->rule.batch && async->ps.base.args.role == DPB_SERVER)
        want->gradients = DPB_MEMORY_PRIVATE; /* the sum of the gradients of an update */
    struct dpb_contract *contract = &want->contract;
    contract->consistency = async->rule.sync ? DPB_PARTIAL
                            : bound < 0      ? DPB_ASYNCHRONOUS
                                             : DPB_STALE;
    contract->parameter = async->rule.sync ? count : bound < 0 ? 0 : (uint32_t)bound;
    contract->lead = bound < 0 ? UINT32_MAX : (uint32_t)bound;
    contract->proof = DPB_PROOF_BOOKS;
    contract->divisor = count;
    contract->share = 1.0 / count;
    contract->roundings = (async->options.rate == PS_STALENESS ? 2 : 0) + (count > 1 ? count : 0);
    contract->replicas_equal = false;
    return DPB_OK;
}

static void async_memory(const void *options_, const struct dpb_comm_args *args,
                         const struct dpb_layout *layout, uint64_t bucket_elements,
                         struct dpb_comm_memory *memory)
{
    const uint64_t bytes =
        dpb_dtype_size(layout->gradient_type) + dpb_dtype_size(layout->weight_type);
    const struct ps_async_options *options = options_;
    (void)bucket_elements;
    if (args->role != DPB_SERVER)
        return;
    memory->host_bytes = (layout->n_elements / args->n_servers + 1) * bytes * args->n_workers;
    if (options->softsync > 1 || options->policy == PS_K_BATCH_ASYNC)
        memory->host_bytes += layout->n_elements * dpb_dtype_size(layout->gradient_type);
}

static const struct dpb_comm_ops async_ops = {.open = async_open,
                                              .plan = async_plan,
                                              .bind = ps_bind,
                                              .load = async_load,
                                              .begin = ps_begin,
                                              .ready = strategy_ready,
                                              .progress = strategy_progress,
                                              .end = strategy_end,
                                              .publish = async_publish,
                                              .settle = async_settle,
                                              .books = async_books,
                                              .applied = async_applied,
                                              .cancelled = async_cancelled,
                                              .serve = ps_shard_serve,
                                              .close = async_close,
                                              .needs = ps_needs,
                                              .memory = async_memory};

const struct dpb_plugin ps_async = {
    DPB_PLUGIN_HEAD(COMM, async_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_SERVERS | DPB_COMM_MULTI_NODE | DPB_COMM_SERVED,
    .name = "ps_async",
    .version = DPB_VERSION,
    .summary = "parameter servers that apply each worker's gradients at once",
    .options = option_table,
    .options_size = sizeof(struct ps_async_options),
};
