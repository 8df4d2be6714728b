/*
 * ps_async - parameter servers that wait for nobody: a server applies each worker's gradients at
 * once, one worker at a time, in the order of arrival. The worker then gets the new weights of
 * that server.
 *
 * Worker and link are ps_cpu's (ps.c, links.c), with a link also between ranks of one machine.
 * There the slices go through shared memory and their messages have no payload: a server reads the
 * gradients of a worker in its arena, and writes the new weights into its arena. A server is one
 * shard of the model: the slices that ps_slice gives it, with a version.
 *
 * The rule of a server is in ps_shard.c. Gradients are means over the worker's own batch: nothing
 * divides by the workers, but by the gradients of an update where comm.softsync gives it several.
 *
 * A worker says between steps when nobody needs to wait for it (settle, at its end), and when it
 * meets the others (load, publish): once all meet, each gets the model, the same for all. Before
 * worker 0 loads, it waits until no server has gradients left that it could apply to new weights.
 *
 * With comm.push_every and comm.fetch_every above 1 a worker pushes the sum of its last gradients,
 * and takes plain steps of its own where it does not fetch.
 *
 * Bytes moved per step and worker, M bytes of the model: M / comm.push_every pushed and
 * M / comm.fetch_every pulled.
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

#include "comm/ps_cpu/ps_shard.h"

static const char *const policies[] = {"async",         "k_sync",  "k_batch_sync",
                                       "k_batch_async", "k_async", NULL};
static const char *const rates[] = {"plain", "staleness", NULL};

#define AT(member) offsetof(struct ps_async_options, member)
static const struct dpb_option option_table[] = {
    {"bound", DPB_OPT_INT, "steps", "-1", -1, 1e6, NULL, AT(bound),
     "a worker that is more than so many steps ahead of the slowest waits; -1: no worker waits",
     NULL},
    {"rate", DPB_OPT_CHOICE, NULL, "plain", 0, 0, rates, AT(rate),
     "staleness: the learning rate is divided by the age of the gradients, where that is above 1",
     NULL},
    {"softsync", DPB_OPT_INT, "pushes", "1", 1, DPB_STRATEGY_WORKERS, NULL, AT(softsync),
     "an update is the mean of so many pushes, of any workers; at most the workers", NULL},
    {"policy", DPB_OPT_CHOICE, NULL, "async", 0, 0, policies, AT(policy),
     "k_sync: the first comm.k gradients of a step count, one a worker, and the rest are dropped; "
     "k_batch_sync: likewise, but a fast worker gives several; k_async: each update takes those of "
     "the first comm.k workers, and late ones count later; k_batch_async: comm.softsync = comm.k",
     NULL},
    {"k", DPB_OPT_INT, "gradients", "0", 0, DPB_STRATEGY_WORKERS, NULL, AT(k),
     "of an update, with comm.policy = k_...; at most the workers, but for k_batch_sync", NULL},
    {"push_every", DPB_OPT_INT, "steps", "1", 1, 4096, NULL, AT(push_every),
     "a worker adds up its gradients of so many steps and pushes the sum", NULL},
    {"fetch_every", DPB_OPT_INT, "steps", "1", 1, 4096, NULL, AT(fetch_every),
     "a worker gets new weights every so many steps; between, it applies its own gradients to its "
     "own weights",
     NULL},
    {"log", DPB_OPT_STRING, "path", "", 0, 0, NULL, AT(log),
     "each server writes a line for each push that it applies to FILE.RANK: worker, exchange "
     "number, version pulled, version applied to; with push_every or fetch_every above 1, or "
     "policy = k_batch_sync, also for each fetch: worker, exchange number, version, the word "
     "fetch",
     NULL},
    PS_OPTION_ROWS(struct ps_options, "tcp, or verbs (RDMA: InfiniBand or RoCE)"),
    {0}};

static bool takes_newest(const struct ps_async_options *options)
{
    return options->policy == PS_K_SYNC || options->policy == PS_K_BATCH_SYNC;
}

/* Says which option contradicts something else, and the remedy; NULL: no option does. */
static const char *contradiction(const struct ps_async_options *options,
                                 const struct dpb_comm_args *args)
{
    const uint32_t n_workers = args->n_workers;
    const bool k_rule = options->policy != PS_ASYNC;
    const bool apart = options->push_every > 1 || options->fetch_every > 1;
    const bool newest = takes_newest(options), held = newest || options->policy == PS_K_ASYNC;
    if (args->survives && options->ps.transport == PS_OVER_VERBS)
        return "run.survive = yes, and RDMA does not say that a worker has died; leave out "
               "comm.transport = verbs";
    if (options->softsync > n_workers)
        return "comm.softsync is more than the workers; give at most one push a worker";
    if (k_rule && options->softsync > 1)
        return "comm.softsync and comm.policy both say what makes an update; give one of them";
    if (k_rule && options->k < 1)
        return "comm.policy needs comm.k";
    if (k_rule && options->k > n_workers && options->policy != PS_K_BATCH_SYNC)
        return "comm.k is more than the workers; with comm.policy = k_batch_sync alone a worker "
               "may give several gradients of an update";
    if (!k_rule && options->k > 0)
        return "comm.k goes with comm.policy = k_sync, k_batch_sync, k_async or k_batch_async; "
               "give one of them";
    if (newest && options->bound >= 0)
        return "comm.bound says how old gradients may be, and with comm.policy = k_sync or "
               "k_batch_sync none that counts is; leave out comm.bound";
    if (newest && options->rate == PS_STALENESS)
        return "with comm.policy = k_sync or k_batch_sync no gradient that counts is stale; leave "
               "out comm.rate";
    if (options->policy == PS_K_ASYNC && options->bound >= 0)
        return "with comm.policy = k_async a worker waits for its update, which may need a worker "
               "that comm.bound holds back; leave out comm.bound";
    if (apart && held)
        return "with comm.policy = k_sync, k_batch_sync or k_async each step pushes and fetches; "
               "leave out comm.push_every and comm.fetch_every";
    if (apart && options->bound >= 0)
        return "comm.bound counts steps, and with comm.push_every or comm.fetch_every above 1 "
               "servers do not see each step; leave out comm.bound";
    return NULL;
}

/* The rule that the options make for a server; fails if options contradict each other. */
static dpb_status make_rule(const struct ps_async_options *options,
                            const struct dpb_comm_args *args, struct ps_rule *rule)
{
    const char *reason = contradiction(options, args);
    if (reason)
        return ps_host->fail(DPB_UNSUPPORTED, "%s", reason);
    rule->count = (uint32_t)(options->policy == PS_ASYNC ? options->softsync : options->k);
    rule->batch = rule->count > 1 && options->policy != PS_K_SYNC && options->policy != PS_K_ASYNC;
    rule->sync = takes_newest(options);
    rule->rejoins = options->policy == PS_K_BATCH_SYNC;
    return DPB_OK;
}

static uint32_t n_ranks(const struct dpb_comm_args *args)
{
    return args->n_workers + args->n_servers;
}

/* ---- worker -------------------------------------------------------------------------------- */

/* Sets the turn that goes with the step's parameters. */
static dpb_status async_begin(void *comm, const struct dpb_step *step)
{
    struct ps_async *async = comm;
    struct links *links = async->ps.links;
    const uint64_t n = ++async->unpushed;
    const bool pushes = n == (uint64_t)async->options.push_every;
    const bool fetches = ++async->unfetched == (uint64_t)async->options.fetch_every;
    const void *gradients =
        async->options.push_every > 1 ? links->inbox : async->ps.base.arenas.gradients;
    links->turn = (struct links_turn){pushes ? gradients : NULL, (uint32_t)n, fetches};
    async->carried[step->step % LINKS_AGES] = links->n_pushes;
    async->applied = (struct ps_applied){0};
    if (pushes)
        async->unpushed = 0;
    if (fetches)
        async->unfetched = 0;
    return ps_begin(comm, step);
}

/* Adds a bucket to the sum that is pushed later. */
static void accrue(const struct ps_async *async, uint64_t bucket, uint64_t length)
{
    const struct dpb_strategy *base = &async->ps.base;
    const dpb_dtype type = base->arenas.layout.gradient_type;
    const uint64_t begin = bucket * base->arenas.bucket_elements;
    void *sum = (char *)async->ps.links->inbox + begin * dpb_dtype_size(type);
    const void *sources[] = {dpb_strategy_own_gradients(base, begin), sum};
    const int64_t began_ns = ps_host->now_ns();
    ps_host->vec->sum(type, &sum, 1, sources, async->ps.links->turn.n_gradients > 1 ? 2 : 1,
                      length);
    ps_host->span(bucket, DPB_PHASE_REDUCE, began_ns, ps_host->now_ns());
}

/* Also in steps that do not push: the stage is passed all the same. */
static void push(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct ps_async *async = strategy;
    const struct links_turn *asked = &async->ps.links->turn;
    if (async->options.push_every > 1)
        accrue(async, bucket, turn->length);
    if (asked->gradients)
        links_push(async->ps.links, bucket, turn->length);
    else if (asked->fetches && bucket + 1 == async->ps.base.arenas.n_buckets)
        links_ask(async->ps.links);
    turn->at = turn->length;
}

/* A plain step by the own gradients alone: the servers hold the optimizer state. */
static void step_alone(const struct ps_async *async, uint64_t bucket, uint64_t length)
{
    const struct ps *ps = &async->ps;
    const struct dpb_strategy *base = &ps->base;
    const struct dpb_layout *layout = &base->arenas.layout;
    const double rate = base->step.learning_rate * base->step.scale * async->rule.count;
    const int64_t began_ns = ps_host->now_ns();
    for (uint64_t at = 0; at < length;) {
        const struct dpb_piece piece =
            dpb_strategy_piece(base, bucket, length, at, layout->weight_type);
        const void *gradients = dpb_strategy_own_gradients(base, piece.begin);
        if (layout->gradient_type != layout->weight_type) {
            ps_host->vec->cast(layout->weight_type, ps->sum, layout->gradient_type, gradients,
                               piece.n);
            gradients = ps->sum;
        }
        ps_host->vec->axpby(layout->weight_type, -rate, gradients, 1.0,
                            dpb_strategy_own_weights(base, piece.begin), piece.n);
        at += piece.n;
    }
    ps_host->span(bucket, DPB_PHASE_UPDATE, began_ns, ps_host->now_ns());
}

/* k_async with several servers. A worker waits until its gradients are in an update of each server,
 * and servers may take different workers. With 3 workers, 3 servers and K = 2, each server may have
 * left another worker over: each worker waits for one server, and each server for a second worker.
 * So a worker that waits for another server says so to each server that has served it. Such a
 * server does not count on the worker (ps_shard.c: count_wanted) until the worker takes that back.
 *
 * No workers can wait for ever. Suppose that all workers that train wait, and no message is under
 * way. A server with gradients of n workers has served the others, for all have pushed to all
 * servers; the others have said so. So n train there, and an update takes min(n, K) gradients. */
static void say_wait(struct ps_async *async, bool waits)
{
    struct links *links = async->ps.links;
    const struct dpb_rank_set all = ps_shards(&async->ps.base.args);
    const uint64_t turn = links->n_turns, last = async->ps.base.arenas.n_buckets - 1;
    const uint64_t word = ps_word(turn, async->meetings, waits);
    bool said = false, moved = false;
    for (uint32_t i = 0; i < all.n && async->options.policy == PS_K_ASYNC; i++)
        if ((async->wait_turns[i] == turn) != waits && links_updated(links, all.first + i, last) &&
            links_tell_word(links, all.first + i, word)) {
            async->wait_turns[i] = waits ? turn : 0;
            said = true;
        }
    if (said && !waits) /* else only the next step's gradients move it; an error shows then */
        (void)links_move(links, 0, &moved);
}

static void pull(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct ps_async *async = strategy;
    const struct dpb_strategy *base = &async->ps.base;
    const struct links_turn *asked = &async->ps.links->turn;
    if (asked->fetches) {
        ps_pull(strategy, bucket, turn);
        if (bucket + 1 == base->arenas.n_buckets && turn->at == turn->length)
            say_wait(async, false);
        return;
    }
    if (asked->gradients)
        ps_host->span(bucket, DPB_PHASE_TRANSFER,
                      dpb_signals_latest_ns(&base->signals, DPB_SIGNAL_READY,
                                            dpb_strategy_self(base), bucket),
                      ps_host->now_ns());
    step_alone(async, bucket, turn->length);
    turn->at = turn->length;
}

/* A turn that only fetches begins with the last bucket. Weights that are here before belong to the
 * fetch before. */
static bool has_asked(const struct ps_async *async)
{
    const struct links_turn *asked = &async->ps.links->turn;
    const struct dpb_pipeline *pipeline = &async->ps.base.pipeline;
    return asked->gradients || !asked->fetches || pipeline->next[0] == pipeline->n_buckets;
}

static bool pull_due(void *strategy, uint64_t bucket)
{
    return has_asked(strategy) && ps_pull_due(strategy, bucket);
}

static dpb_status pull_wait(void *strategy, uint64_t bucket)
{
    const struct ps_async *async = strategy;
    if (!has_asked(async))
        return ps_push_wait(strategy, async->ps.base.pipeline.next[0]);
    say_wait(strategy, true);
    return ps_pull_wait(strategy, bucket);
}

static const struct dpb_stage worker_stages[] = {{ps_push_due, push, ps_push_wait},
                                                 {pull_due, pull, pull_wait}};

/* Gradients of steps since the last push. */
static dpb_status push_rest(struct ps_async *async)
{
    if (async->unpushed == 0)
        return DPB_OK;
    struct links *links = async->ps.links;
    links->turn = (struct links_turn){links->inbox, (uint32_t)async->unpushed, false};
    async->unpushed = 0;
    return links_push_alone(links);
}

/* Between steps, to all servers. */
static dpb_status say(struct ps_async *async, bool meets)
{
    DPB_TRY(push_rest(async));
    async->meetings += meets;
    if (meets)
        async->unfetched = 0;
    return links_say(async->ps.links, ps_word(async->ps.links->n_turns, async->meetings, !meets),
                     meets);
}

static dpb_status async_load(void *comm)
{
    const struct ps_async *async = comm;
    struct links *links = async->ps.links;
    DPB_TRY(push_rest(comm));
    DPB_TRY(links_say(links, ps_load_word(links->n_turns, async->meetings), false));
    if (async->ps.base.args.rank == 0)
        DPB_TRY(links_await_word(links, ps_ready_word(async->meetings)));
    DPB_TRY(ps_load(comm));
    return say(comm, true);
}

/* All servers have said so. */
static bool async_cancelled(void *comm)
{
    const struct ps_async *async = comm;
    const struct dpb_strategy *base = &async->ps.base;
    const struct dpb_rank_set all = ps_shards(&base->args);
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
    return dpb_strategy_publish(comm, view);
}

static dpb_status async_books(void *comm, struct dpb_books *books)
{
    const struct dpb_strategy *base = comm;
    DPB_TRY(say(comm, true));
    if (base->args.rank == 0)
        books->entries[books->n++] =
            (struct dpb_book){base->arenas.weights, base->arenas.layout.weight_type, 1.0, false};
    return DPB_OK;
}

/* The shard of an element; *around: all elements of its slice. */
static uint32_t shard_of(const struct dpb_strategy *base, uint64_t element,
                         struct dpb_range *around)
{
    const uint64_t bucket = element / base->arenas.bucket_elements;
    const uint64_t begin = bucket * base->arenas.bucket_elements;
    const uint64_t length = dpb_pipeline_bucket_length(&base->pipeline, bucket);
    for (uint32_t shard = ps_shards(&base->args).first;; shard++) {
        const struct dpb_range slice = ps_slice(&base->args, shard, bucket, length);
        *around = (struct dpb_range){begin + slice.begin, begin + slice.end};
        if (element >= around->begin && element < around->end)
            return shard;
    }
}

/* The share that was applied of the step's own gradients, in the element's slice. */
static struct ps_applied applied_around(const struct ps_async *async, uint64_t step,
                                        uint64_t element)
{
    struct ps_applied applied = {.step = step};
    const uint32_t shard = shard_of(&async->ps.base, element, &applied.slice);
    const uint64_t age = links_age(async->ps.links, shard, async->carried[step % LINKS_AGES]);
    if (age == DPB_DROPPED)
        return applied;
    applied.share = 1.0 / async->rule.count;
    if (async->options.rate == PS_STALENESS && age > 1)
        applied.share /= (double)age;
    return applied;
}

/* Core asks for one element after the other. */
static double async_applied(void *comm, uint64_t step, uint64_t element)
{
    struct ps_async *async = comm;
    const struct ps_applied *last = &async->applied;
    if (step != last->step || element < last->slice.begin || element >= last->slice.end)
        async->applied = applied_around(async, step, element);
    return async->applied.share;
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
    free(async->wait_turns);
    ps_close(comm);
    free(machines);
}

static struct links_memory memory_of(const struct ps_async_options *options,
                                     const struct dpb_comm_args *args)
{
    return (struct links_memory){
        .keeps_sent = true, .accrues = options->push_every > 1, .machines = args->machines};
}

static dpb_status async_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    struct dpb_comm_args apart = *args;
    struct ps_rule rule;
    void *made;
    DPB_TRY(make_rule(options, args, &rule));
    uint32_t *machines = calloc(n_ranks(args), sizeof *machines);
    if (!machines)
        return ps_host->fail(DPB_NO_MEMORY, "no memory for the communicator");
    for (uint32_t rank = 0; rank < n_ranks(args); rank++)
        machines[rank] = rank;
    apart.machines = machines;
    apart.n_machines = n_ranks(args);
    dpb_status status =
        ps_create(options, &apart, dpb_strategy_local_rank(args), sizeof(struct ps_async), &made);
    if (status != DPB_OK) {
        free(machines);
        return status;
    }
    struct ps_async *async = made;
    async->ps.asynchronous = true;
    async->ps.stages = worker_stages;
    async->machines = machines;
    async->options = *(const struct ps_async_options *)options;
    async->ps.memory = memory_of(&async->options, args);
    async->clients = calloc(args->n_workers, sizeof *async->clients);
    async->wait_turns = calloc(args->n_servers + 1, sizeof *async->wait_turns);
    async->rule = rule;
    status = async->clients && async->wait_turns
                 ? DPB_OK
                 : ps_host->fail(DPB_NO_MEMORY, "no memory for the ranks of ps_async");
    DPB_THEN(status, open_log(async));
    if (status != DPB_OK) {
        async_close(async);
        return status;
    }
    *comm = made;
    return DPB_OK;
}

static dpb_consistency consistency_of(const struct ps_async_options *options)
{
    if (options->policy == PS_K_SYNC)
        return DPB_PARTIAL;
    if (options->policy == PS_K_BATCH_SYNC)
        return DPB_BATCHES;
    return options->bound < 0 ? DPB_ASYNCHRONOUS : DPB_STALE;
}

/* `contract` is preset. */
static void make_contract(const struct ps_async_options *options, const struct ps_rule *rule,
                          struct dpb_contract *contract)
{
    const int64_t bound = options->bound;
    const uint32_t count = rule->count, n_push = (uint32_t)options->push_every;
    contract->consistency = consistency_of(options);
    contract->parameter = rule->sync ? count : bound < 0 ? 0 : (uint32_t)bound;
    contract->lead = bound < 0 ? UINT32_MAX : (uint32_t)bound;
    contract->proof = DPB_PROOF_BOOKS;
    contract->divisor = count;
    contract->share = 1.0 / count;
    contract->roundings = (options->rate == PS_STALENESS ? 2 : 0) + (count > 1 ? count : 0) +
                          (n_push > 1 ? n_push : 0);
    contract->replicas_equal = false;
}

static dpb_status async_contract(const void *options, const struct dpb_comm_args *args,
                                 struct dpb_contract *contract)
{
    struct ps_rule rule;
    DPB_TRY(ps_check(options, args->n_workers + args->n_servers - 1)); /* all have links */
    DPB_TRY(ps_check_norms(args, "ps_async", true));
    DPB_TRY(make_rule(options, args, &rule));
    make_contract(options, &rule, contract);
    return DPB_OK;
}

static dpb_status async_plan(void *comm, const struct dpb_layout *layout,
                             struct dpb_comm_plan *want)
{
    const struct ps_async *async = comm;
    DPB_TRY(ps_plan(comm, layout, want));
    want->weights = DPB_MEMORY_SHARED; /* a server writes into its machine's workers' */
    if (async->rule.batch && async->ps.base.args.role == DPB_SERVER)
        want->gradients = DPB_MEMORY_PRIVATE; /* the sum of the gradients of an update */
    make_contract(&async->options, &async->rule, &want->contract);
    return DPB_OK;
}

static void async_memory(const void *options_, const struct dpb_comm_args *args,
                         const struct dpb_layout *layout, uint64_t bucket_elements,
                         struct dpb_comm_memory *memory)
{
    const struct ps_async_options *options = options_;
    const struct links_memory own = memory_of(options, args);
    const bool sums = options->softsync > 1 || options->policy == PS_K_BATCH_SYNC ||
                      options->policy == PS_K_BATCH_ASYNC;
    if (args->whole && bucket_elements < layout->n_elements)
        bucket_elements = layout->n_elements;
    memory->state_elements = ps_is_shard(args) ? ps_most_owned(args, layout, bucket_elements) : 0;
    memory->host_bytes = links_inbox_bytes(args, layout, bucket_elements, &own);
    if ((sums || args->whole) && args->role == DPB_SERVER)
        memory->host_bytes += layout->n_elements * dpb_dtype_size(layout->gradient_type);
}

static const struct dpb_comm_ops async_ops = {.open = async_open,
                                              .plan = async_plan,
                                              .bind = ps_bind,
                                              .load = async_load,
                                              .begin = async_begin,
                                              .ready = dpb_strategy_ready,
                                              .progress = dpb_strategy_progress,
                                              .end = dpb_strategy_end,
                                              .publish = async_publish,
                                              .settle = async_settle,
                                              .books = async_books,
                                              .applied = async_applied,
                                              .cancelled = async_cancelled,
                                              .serve = ps_shard_serve,
                                              .close = async_close,
                                              .needs = ps_needs,
                                              .memory = async_memory,
                                              .contract = async_contract};

const struct dpb_plugin ps_async = {
    DPB_PLUGIN_HEAD(COMM, async_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_SERVERS | DPB_COMM_MULTI_NODE | DPB_COMM_SERVED |
                    DPB_COMM_SURVIVES | DPB_COMM_WHOLE | DPB_COMM_WHOLE_SHARDS,
    .name = "ps_async",
    .version = DPB_VERSION,
    .summary = "parameter servers that apply each worker's gradients at once",
    .options = option_table,
    .options_size = sizeof(struct ps_async_options),
};
