/*
 * ps_shard.c - a server of ps_async: one shard of the model, the slices that ps_slice gives it,
 * with a version. docs/asynchronous.md has the rules.
 *
 *     push of worker w has come whole:  age = version - pulled[w]; with comm.push_every the version
 *                                             of the first of its gradients
 *                                       n += 1, clock[w] += 1
 *                                       rule.sync, of older weights: dropped instead
 *     once n reaches rule.count:        weights = update(weights, sum of the n gradients)
 *                                       version += 1, n = 0
 *     for each w that waits, once clock[w] <= clock[v] + comm.bound for all v that train and
 *     (rule.batch or its gradients are applied):
 *                                       pulled[w] = version; send the weights, if w fetches
 *
 * A worker whose process has died (run.survive) has left: gradients that came whole before count,
 * and nobody waits for it.
 *
 * Workers that do not train bring no gradients: where too few train, an update takes fewer.
 * With k_async a worker that waits for another server does not train (ps_async.c, say_wait).
 *
 * Gradients of an update stay in the inbox of their worker, or, on one machine, in the worker's
 * arena, and are summed in the order of the ranks. If the worker continues before the update, the
 * server adds them to a sum of its own before it sends the push's age (links_aged): then the worker
 * may overwrite them. Else the worker waits for its weights, which the server sends after the
 * update.
 */
#include "comm/ps_cpu/ps_shard.h"

/* ---- workers that train -------------------------------------------------------------------- */

static bool trains(const struct ps_async *async, uint32_t worker)
{
    const struct ps_client *client = &async->clients[worker];
    const uint64_t word = links_said(async->ps.links, worker);
    const bool idle = word % 2 == 1 || ps_word_meetings(word) != (client->met & 0x7fffffff);
    return !(idle && word >> 32 == (uint32_t)client->clock) && !links_left(async->ps.links, worker);
}

static uint32_t count_training(const struct ps_async *async)
{
    uint32_t n = 0;
    for (uint32_t worker = 0; worker < async->ps.base.args.n_workers; worker++)
        n += trains(async, worker);
    return n;
}

/* Gradients of the next update. */
static uint32_t count_wanted(const struct ps_async *async)
{
    const uint32_t n = count_training(async);
    if (async->rule.batch && n > 0)
        return async->rule.count; /* one worker alone brings them */
    return n < async->rule.count ? n : async->rule.count;
}

static bool may_go_on(const struct ps_async *async, uint32_t worker)
{
    const struct ps_client *client = &async->clients[worker];
    if (client->pending)
        return false;
    for (uint32_t v = 0; v < async->ps.base.args.n_workers && async->options.bound >= 0; v++)
        if (client->clock > async->clients[v].clock + (uint64_t)async->options.bound &&
            trains(async, v))
            return false;
    return true;
}

/* Whether all workers wait for the model that `worker` has not been given yet or, `loads`, are
 * about to load another one. */
static bool all_meet(const struct ps_async *async, uint32_t worker, bool loads)
{
    const uint64_t next = async->clients[worker].met + 1;
    for (uint32_t v = 0; v < async->ps.base.args.n_workers; v++) {
        const uint64_t word = links_said(async->ps.links, v);
        if ((ps_word_meetings(word) < next || (word % 2 == 1 && !loads)) &&
            !links_left(async->ps.links, v))
            return false;
    }
    return true;
}

/* ---- gradients ----------------------------------------------------------------------------- */

/* The own slice of a bucket. */
static struct dpb_range own_slice(const struct ps_async *async, uint64_t bucket)
{
    const struct dpb_strategy *base = &async->ps.base;
    return ps_slice(&base->args, base->args.rank, bucket,
                    dpb_pipeline_bucket_length(&base->pipeline, bucket));
}

/* Adds `weight` times a worker's gradients to the sum of the own arena: their memory is free. */
static void bank(struct ps_async *async, uint32_t worker, double weight)
{
    const struct dpb_strategy *base = &async->ps.base;
    const dpb_dtype type = base->arenas.layout.gradient_type;
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        const struct dpb_range slice = own_slice(async, bucket);
        const uint64_t begin = bucket * base->arenas.bucket_elements + slice.begin;
        void *sum = dpb_strategy_own_gradients(base, begin);
        const void *sources[] = {links_gradients(async->ps.links, worker, bucket, 0), sum};
        const uint64_t n = slice.end - slice.begin;
        if (weight != 1.0 && async->banked) {
            ps_host->vec->axpby(type, weight, sources[0], 1.0, sum, n);
            continue;
        }
        ps_host->vec->sum(type, &sum, 1, sources, async->banked ? 2 : 1, n);
        if (weight != 1.0)
            ps_host->vec->axpby(type, 0.0, sum, weight, sum, n);
    }
    async->banked = true;
    async->clients[worker].pending = false;
}

/* With one gradient an update its age divides the rate; with several each has an age of its own. In
 * place only while the worker waits for its update: it may use its gradients after the push. */
static void weigh(struct ps_async *async, uint32_t worker)
{
    const struct dpb_strategy *base = &async->ps.base;
    const uint64_t age = async->clients[worker].age;
    if (async->options.rate != PS_STALENESS || age < 2)
        return;
    if (async->rule.count == 1) {
        async->step.learning_rate /= (double)age;
        return;
    }
    if (async->rule.batch) {
        bank(async, worker, 1.0 / (double)age);
        return;
    }
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        const struct dpb_range slice = own_slice(async, bucket);
        void *gradients = links_gradients(async->ps.links, worker, bucket, 0);
        ps_host->vec->axpby(base->arenas.layout.gradient_type, 0.0, gradients, 1.0 / (double)age,
                            gradients, slice.end - slice.begin);
    }
}

static void log_push(const struct ps_async *async, uint32_t worker, const struct dpb_step *step)
{
    if (async->log)
        fprintf(async->log, "%u %llu %llu %llu\n", worker, (unsigned long long)step->step,
                (unsigned long long)async->clients[worker].oldest,
                (unsigned long long)async->version);
}

static bool logs_fetches(const struct ps_async *async)
{
    const struct ps_async_options *options = &async->options;
    return options->push_every > 1 || options->fetch_every > 1 ||
           async->rule.rejoins; /* else the next push says it */
}

static void log_fetch(const struct ps_async *async, uint32_t worker)
{
    if (async->log && logs_fetches(async))
        fprintf(async->log, "%u %llu %llu fetch\n", worker,
                (unsigned long long)async->clients[worker].step,
                (unsigned long long)async->version);
}

static void take_push(struct ps_async *async, uint32_t worker, const struct dpb_step *step)
{
    struct ps_client *client = &async->clients[worker];
    const bool late = async->rule.sync && client->turn < async->version;
    client->age = late ? DPB_DROPPED : async->version - client->oldest;
    client->turn++;
    client->untold = true;
    if (late)
        return;
    client->pending = true;
    async->n_taken++;
    async->step = *step;
    log_push(async, worker, step);
    weigh(async, worker);
    if (async->rule.batch && client->pending && async->n_taken < async->rule.count)
        bank(async, worker, 1.0);
}

static void take(struct ps_async *async, uint32_t worker, const struct links_news *news)
{
    struct ps_client *client = &async->clients[worker];
    client->clock++;
    client->taken_ns = ps_host->now_ns();
    client->step = news->step.step;
    client->pushes = news->pushes;
    client->fetches = client->held = news->fetches;
    if (news->pushes)
        take_push(async, worker, &news->step);
    if (news->pushes && !news->fetches)
        client->oldest = client->pulled; /* it continues with the weights that it has */
}

/* ---- an update ----------------------------------------------------------------------------- */

/* The gradients of a bucket from element `at` on, in the order in which they are summed. */
static uint32_t find_sources(const struct ps_async *async, uint64_t bucket, uint64_t at,
                             const void **sources)
{
    const struct dpb_strategy *base = &async->ps.base;
    const struct dpb_range slice = own_slice(async, bucket);
    const uint64_t begin = bucket * base->arenas.bucket_elements + at;
    uint32_t n = 0;
    if (async->banked)
        sources[n++] = dpb_strategy_own_gradients(base, begin);
    for (uint32_t worker = 0; worker < base->args.n_workers; worker++)
        if (async->clients[worker].pending)
            sources[n++] = links_gradients(async->ps.links, worker, bucket, at - slice.begin);
    return n;
}

static dpb_status update_bucket(const struct ps_async *async, uint64_t bucket)
{
    const struct ps *ps = &async->ps;
    const struct dpb_strategy *base = &ps->base;
    const dpb_dtype type = base->arenas.layout.gradient_type;
    const struct dpb_range slice = own_slice(async, bucket);
    for (uint64_t at = slice.begin; at < slice.end;) {
        const struct dpb_piece piece = dpb_strategy_piece(base, bucket, slice.end, at, type);
        const uint32_t n = find_sources(async, bucket, at, ps->sources);
        const void *gradients = ps->sources[0];
        void *sum = ps->by_norms ? dpb_strategy_own_gradients(base, piece.begin) : ps->sum;
        if (n > 1 || (ps->by_norms && gradients != sum)) {
            ps_host->vec->sum(type, &sum, 1, ps->sources, n, piece.n);
            gradients = sum;
        }
        DPB_TRY(ps_host->optimizer->update(
            base->arenas.optimizer, NULL, (struct dpb_range){piece.begin, piece.begin + piece.n},
            dpb_strategy_own_weights(base, piece.begin), gradients, bucket, &async->step));
        at += piece.n;
    }
    return DPB_OK;
}

static dpb_status update_if_due(struct ps_async *async)
{
    const struct dpb_strategy *base = &async->ps.base;
    if (async->n_taken == 0 || async->n_taken < count_wanted(async))
        return DPB_OK;
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        bool moved = false;
        DPB_TRY(update_bucket(async, bucket));
        DPB_TRY(links_move(async->ps.links, 0, &moved)); /* others' gradients arrive meanwhile */
    }
    async->version++;
    async->n_taken = 0;
    async->banked = false;
    for (uint32_t worker = 0; worker < base->args.n_workers; worker++)
        async->clients[worker].pending = false;
    return DPB_OK;
}

/* ---- giving -------------------------------------------------------------------------------- */

static void begin_giving(struct ps_async *async, uint32_t worker, bool model)
{
    struct ps_client *client = &async->clients[worker];
    links_keep_sent(async->ps.links, worker);
    client->pulled = async->version;
    if (model || client->pushes)
        client->oldest = async->version; /* no gradients wait for a push */
    if (!model)
        log_fetch(async, worker);
    client->gives = true;
    client->model = model;
    client->bucket = 0;
    client->waited_ns = model ? 0 : ps_host->now_ns() - client->taken_ns;
    client->held = false;
    client->met += model;
    if (model || async->rule.rejoins)
        client->turn = async->version; /* else its steps continue in their own order */
}

/* Warns a late worker, so that it stops. */
static bool warn_late_worker(struct ps_async *async, uint32_t worker)
{
    struct ps_client *client = &async->clients[worker];
    const uint64_t word = ps_late_word(client->clock, client->met);
    if (!async->rule.sync || client->held || client->turn == async->version ||
        client->warned == word || links_left(async->ps.links, worker) ||
        !links_tell_word(async->ps.links, worker, word))
        return false;
    client->warned = word;
    return true;
}

/* Lets worker 0 load once no gradients wait for an update: they were of the weights before. */
static bool answer_load(struct ps_async *async)
{
    const uint64_t word = ps_ready_word(async->clients[0].met);
    if (async->n_taken > 0 || async->ready == word || links_left(async->ps.links, 0) ||
        !all_meet(async, 0, true) || count_training(async) > 0 ||
        !links_tell_word(async->ps.links, 0, word))
        return false;
    async->ready = word;
    return true;
}

/* Whether something was done for the worker. */
static bool serve_worker(struct ps_async *async, uint32_t worker)
{
    struct ps_client *client = &async->clients[worker];
    struct links *links = async->ps.links;
    bool did = false;
    if (links_left(links, worker))
        return false;
    if (client->untold && links_tell_age(links, worker, client->age)) {
        client->untold = false;
        did = true;
        if (!client->fetches)
            links_end_turn(links, worker, true);
    }
    if (client->held && may_go_on(async, worker))
        begin_giving(async, worker, false);
    did = warn_late_worker(async, worker) || did;
    if (!client->gives && !client->held && all_meet(async, worker, false))
        begin_giving(async, worker, true);
    while (client->gives &&
           links_give_one(links, worker, client->bucket, client->model, client->waited_ns)) {
        client->gives = ++client->bucket < async->ps.base.arenas.n_buckets;
        did = true;
        if (!client->gives && !client->model)
            links_end_turn(links, worker, client->pushes);
    }
    return did;
}

static bool all_left(const struct ps_async *async)
{
    for (uint32_t worker = 0; worker < async->ps.base.args.n_workers; worker++)
        if (!links_left(async->ps.links, worker))
            return false;
    return true;
}

/* A full disk would leave out lines without a word. */
static dpb_status check_log(const struct ps_async *async)
{
    if (!async->log || (fflush(async->log) == 0 && ferror(async->log) == 0))
        return DPB_OK;
    return ps_host->fail(DPB_IO,
                         "comm.log = %s: cannot write all lines to %s.%u; is the disk full?",
                         async->options.log, async->options.log, async->ps.base.args.rank);
}

dpb_status ps_shard_serve(void *comm)
{
    struct ps_async *async = comm;
    struct links *links = async->ps.links;
    const struct dpb_wait what = {.timeout_ns = DPB_FOREVER,
                                  .bucket = UINT64_MAX,
                                  .peer = UINT32_MAX, /* any worker */
                                  .purpose = "gradients"};
    while (!all_left(async)) {
        struct links_news news;
        bool moved = false;
        DPB_TRY(links_move(links, INT64_MAX, &moved));
        for (uint32_t worker; (worker = links_next_turn(links, &news)) != NONE; moved = true) {
            take(async, worker, &news);
            DPB_TRY(update_if_due(async));
        }
        DPB_TRY(update_if_due(async)); /* a worker may have paused */
        for (uint32_t worker = 0; worker < async->ps.base.args.n_workers; worker++)
            moved = serve_worker(async, worker) || moved;
        moved = answer_load(async) || moved;
        if (!moved)
            DPB_TRY(links_wait(links, &what));
    }
    DPB_TRY(ps_serve_last(&async->ps));
    async->ps.served = true;
    return check_log(async);
}
