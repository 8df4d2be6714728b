/*
 * ps_async - parameter servers that wait for nobody: a server applies each worker's gradients at
 * once, one worker at a time, in the order of arrival. The worker then gets the new weights of
 * that server.
 *
 * Worker and link are ps_cpu's (ps_cpu.c, links.c), but by messages alone, on one machine as on
 * several. A server is one shard of the model: the slices that ps_slice gives it, with a version.
 *
 *     push of worker w has come whole:  age = version - pulled[w]
 *                                       rate = learning rate / max(1, age)   comm.rate = staleness
 *                                       weights = update(weights, gradients, rate)
 *                                       version += 1, clock[w] += 1
 *     for each w that waits, once clock[w] <= clock[v] + comm.bound for all v that train:
 *                                       pulled[w] = version; send the weights
 *
 * Gradients are means over the worker's own batch: nothing divides by the workers.
 *
 * A worker says between steps when nobody needs to wait for it (settle, at its end), and when it
 * meets the others (load, publish): once all meet, each gets the model, the same for all.
 *
 * Bytes moved per step and worker, M bytes of the model: M pushed and M pulled.
 *
 * Dean et al.: Large scale distributed deep networks. NIPS 2012 (Downpour SGD). Ho et al.: More
 * effective distributed ML via a stale synchronous parallel parameter server. NIPS 2013
 * (comm.bound). Gupta, Zhang, Wang: Model accuracy and runtime tradeoff in distributed deep
 * learning. ICDM 2016 (comm.rate = staleness).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/ps_cpu/ps.h"
#include "dpbench/plugin.h"
#include "lib/verbs/mesh_verbs.h"

enum { PLAIN, STALENESS };

static const char *const rates[] = {"plain", "staleness", NULL};

struct options {
    struct ps_options ps;
    int64_t bound; /* -1: none */
    int rate;
    const char *log;
};

#define AT(member) offsetof(struct options, member)
static const struct dpb_option option_table[] = {
    {"bound", DPB_OPT_INT, "steps", "-1", -1, 1e6, NULL, AT(bound),
     "a worker that is more than so many steps ahead of the slowest waits; -1: no worker waits"},
    {"rate", DPB_OPT_CHOICE, NULL, "plain", 0, 0, rates, AT(rate),
     "staleness: the learning rate is divided by the age of the gradients, where that is above 1"},
    {"log", DPB_OPT_STRING, "file", "", 0, 0, NULL, AT(log),
     "each server writes a line for each push that it applies to FILE.RANK: worker, exchange "
     "number, version pulled, version applied to"},
    PS_OPTION_ROWS(struct ps_options, "tcp, or verbs (RDMA: InfiniBand or RoCE)"),
    {0}};

/* What a server knows of a worker. */
struct client {
    uint64_t clock;  /* pushes applied */
    uint64_t pulled; /* version of the weights that it computes with */
    uint64_t age;    /* of its last push */
    uint64_t met;    /* meetings that it was given the model for */
    int64_t applied_ns;
    bool untold;       /* the age */
    bool held;         /* the weights: comm.bound */
    bool gives, model; /* weights are being sent; of a meeting */
    uint64_t bucket;   /* the next to send */
    int64_t waited_ns;
};

struct async {
    struct ps ps;
    struct options options;
    uint32_t *machines;     /* each rank on one of its own: all goes over links */
    struct client *clients; /* servers: by worker */
    uint64_t version;       /* pushes applied */
    FILE *log;
    uint64_t meetings; /* workers */
};

static uint32_t n_ranks(const struct dpb_comm_args *args)
{
    return args->n_workers + args->n_servers;
}

/* ---- server: what workers say -------------------------------------------------------------- */

/* What a worker has behind it, pushes and meetings, and whether it pauses: nobody waits for it
 * until its next push. */
static uint64_t word_of(uint64_t pushes, uint64_t meetings, bool pauses)
{
    return pushes << 32 | (meetings & 0x7fffffff) << 1 | pauses;
}

static uint64_t meetings_of(uint64_t word)
{
    return word >> 1 & 0x7fffffff;
}

static bool trains(const struct async *async, uint32_t worker)
{
    const uint64_t word = links_said(async->ps.links, worker);
    const bool pauses = word % 2 == 1 && word >> 32 == (uint32_t)async->clients[worker].clock;
    return !pauses && !links_left(async->ps.links, worker);
}

static bool may_go_on(const struct async *async, uint32_t worker)
{
    const uint64_t clock = async->clients[worker].clock;
    for (uint32_t v = 0; v < async->ps.base.args.n_workers && async->options.bound >= 0; v++)
        if (clock > async->clients[v].clock + (uint64_t)async->options.bound && trains(async, v))
            return false;
    return true;
}

/* Whether all workers wait for the model that `worker` has not been given yet. */
static bool all_meet(const struct async *async, uint32_t worker)
{
    const uint64_t next = async->clients[worker].met + 1;
    for (uint32_t v = 0; v < async->ps.base.args.n_workers; v++)
        if (meetings_of(links_said(async->ps.links, v)) < next)
            return false;
    return true;
}

/* ---- server: applying and giving ----------------------------------------------------------- */

static struct dpb_step step_for(const struct async *async, const struct client *client,
                                const struct dpb_step *given)
{
    struct dpb_step step = *given;
    if (async->options.rate == STALENESS && client->age > 1)
        step.learning_rate /= (double)client->age;
    return step;
}

static dpb_status apply(struct async *async, uint32_t worker, const struct dpb_step *given)
{
    struct ps *ps = &async->ps;
    const struct strategy *base = &ps->base;
    struct client *client = &async->clients[worker];
    client->age = async->version - client->pulled;
    const struct dpb_step step = step_for(async, client, given);
    if (async->log)
        fprintf(async->log, "%u %llu %llu %llu\n", worker, (unsigned long long)step.step,
                (unsigned long long)client->pulled, (unsigned long long)async->version);
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        const uint64_t length = pipeline_bucket_length(&base->pipeline, bucket);
        const struct dpb_range slice = ps_slice(&base->args, base->args.rank, bucket, length);
        const uint64_t begin = bucket * base->arenas.bucket_elements;
        const struct dpb_range range = {begin + slice.begin, begin + slice.end};
        bool moved;
        DPB_TRY(ps_host->optimizer->update(base->arenas.optimizer, NULL, range,
                                           strategy_weights(base, base->args.rank, range.begin),
                                           links_gradients(ps->links, worker, bucket, 0), bucket,
                                           &step));
        DPB_TRY(links_move(ps->links, 0, &moved)); /* others' gradients go on coming */
    }
    async->version++;
    client->clock++;
    client->applied_ns = ps_host->now_ns();
    client->held = client->untold = true;
    return DPB_OK;
}

static void begin_giving(struct async *async, uint32_t worker, bool model)
{
    struct client *client = &async->clients[worker];
    links_keep_sent(async->ps.links, worker);
    client->pulled = async->version;
    client->gives = true;
    client->model = model;
    client->bucket = 0;
    client->waited_ns = model ? 0 : ps_host->now_ns() - client->applied_ns;
    client->held = false;
    client->met += model;
}

/* Whether something was done for the worker. */
static bool serve_worker(struct async *async, uint32_t worker)
{
    struct client *client = &async->clients[worker];
    struct links *links = async->ps.links;
    bool did = false;
    if (client->untold && links_tell_age(links, worker, client->age)) {
        client->untold = false;
        did = true;
    }
    if (client->held && may_go_on(async, worker))
        begin_giving(async, worker, false);
    if (!client->gives && !client->held && all_meet(async, worker))
        begin_giving(async, worker, true);
    while (client->gives &&
           links_give_one(links, worker, client->bucket, client->model, client->waited_ns)) {
        client->gives = ++client->bucket < async->ps.base.arenas.n_buckets;
        did = true;
    }
    return did;
}

static bool all_left(const struct async *async)
{
    for (uint32_t worker = 0; worker < async->ps.base.args.n_workers; worker++)
        if (!links_left(async->ps.links, worker))
            return false;
    return true;
}

static dpb_status async_serve(void *comm)
{
    struct async *async = comm;
    struct links *links = async->ps.links;
    const struct dpb_wait what = {.timeout_ns = DPB_FOREVER, .purpose = "gradients"};
    while (!all_left(async)) {
        struct dpb_step step;
        bool moved = false;
        DPB_TRY(links_move(links, INT64_MAX, &moved));
        for (uint32_t worker; (worker = links_next_push(links, &step)) != UINT32_MAX; moved = true)
            DPB_TRY(apply(async, worker, &step));
        for (uint32_t worker = 0; worker < async->ps.base.args.n_workers; worker++)
            moved = serve_worker(async, worker) || moved;
        if (!moved)
            DPB_TRY(links_wait(links, &what));
    }
    DPB_TRY(ps_serve_last(&async->ps));
    async->ps.served = true;
    return DPB_OK;
}

/* ---- worker -------------------------------------------------------------------------------- */

/* Between steps, to all servers. */
static dpb_status say(struct async *async, bool meets)
{
    const uint64_t pushes = async->ps.base.signals.exchange + 1;
    async->meetings += meets;
    return links_say(async->ps.links, word_of(pushes, async->meetings, !meets), meets);
}

static dpb_status async_load(void *comm)
{
    DPB_TRY(ps_load(comm));
    return say(comm, true);
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
    const struct async *async = comm;
    const uint64_t age = links_age(async->ps.links, shard_of(&async->ps.base, element), step);
    return async->options.rate == STALENESS && age > 1 ? 1.0 / (double)age : 1.0;
}

/* ---- life ---------------------------------------------------------------------------------- */

static dpb_status open_log(struct async *async)
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
    struct async *async = comm;
    if (!async)
        return;
    uint32_t *machines = async->machines;
    if (async->log)
        fclose(async->log);
    free(async->clients);
    ps_close(comm);
    free(machines);
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
        ps_create(options, &apart, strategy_local_rank(args), sizeof(struct async), &made);
    if (status != DPB_OK) {
        free(machines);
        return status;
    }
    struct async *async = made;
    async->ps.asynchronous = true;
    async->machines = machines;
    async->options = *(const struct options *)options;
    async->clients = calloc(args->n_workers, sizeof *async->clients);
    status = async->clients
                 ? open_log(async)
                 : ps_host->fail(DPB_NO_MEMORY, "no memory for %u workers", args->n_workers);
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
    const struct async *async = comm;
    const int64_t bound = async->options.bound;
    DPB_TRY(ps_plan(comm, layout, want));
    want->weights = want->scratch = DPB_MEMORY_PRIVATE;
    if (want->gradients == DPB_MEMORY_SHARED)
        want->gradients = DPB_MEMORY_PRIVATE;
    struct dpb_contract *contract = &want->contract;
    contract->consistency = bound < 0 ? DPB_ASYNCHRONOUS : DPB_STALE;
    contract->parameter = bound < 0 ? 0 : (uint32_t)bound;
    contract->lead = bound < 0 ? UINT32_MAX : (uint32_t)bound;
    contract->proof = DPB_PROOF_BOOKS;
    contract->divisor = 1;
    contract->share = 1.0;
    contract->roundings = async->options.rate == STALENESS ? 2 : 0;
    contract->replicas_equal = false;
    return DPB_OK;
}

static void async_memory(const void *options, const struct dpb_comm_args *args,
                         const struct dpb_layout *layout, uint64_t bucket_elements,
                         struct dpb_comm_memory *memory)
{
    const uint64_t bytes =
        dpb_dtype_size(layout->gradient_type) + dpb_dtype_size(layout->weight_type);
    (void)options, (void)bucket_elements;
    if (args->role == DPB_SERVER)
        memory->host_bytes = (layout->n_elements / args->n_servers + 1) * bytes * args->n_workers;
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
                                              .serve = async_serve,
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
    .options_size = sizeof(struct options),
};
