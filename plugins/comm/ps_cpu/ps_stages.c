/* ps_stages.c - the stages of ps_cpu's pipeline, by which a bucket goes from the workers to the
 * shards and back: see ps_cpu.c. The workers of ps_async pull by them, too. */
#include "comm/ps_cpu/ps_back.h"
#include "lib/strategy/slices.h"

static bool is_here(const struct ps *ps, uint32_t rank)
{
    return ps_is_here(&ps->base.args, rank);
}

/* ---- waiting for a rank -------------------------------------------------------------------- */

/* Blocks until there is news for `what`: its peer has not raised `kind` or, on another machine, has
 * not sent the message that stands for `kind`. */
static dpb_status wait_for(const struct ps *ps, enum signal_kind kind, const struct dpb_wait *what)
{
    if (ps->links)
        return links_wait(ps->links, what);
    struct rank_set one = {what->peer, 1};
    return signals_wait(&ps->base.signals, kind, one, what->bucket, what->timeout_ns, what->bytes,
                        what->purpose);
}

struct dpb_wait ps_wait_of(const struct ps *ps, uint32_t peer, uint64_t bucket, dpb_dtype type,
                           const char *purpose)
{
    uint64_t length = pipeline_bucket_length(&ps->base.pipeline, bucket);
    return (struct dpb_wait){.step = ps->base.step.step,
                             .bucket = bucket,
                             .bytes = length * dpb_dtype_size(type),
                             .peer = peer,
                             .purpose = purpose};
}

/* Without a deadline: it comes when this rank's backward gets there. */
static dpb_status wait_own_ready(const struct ps *ps, uint64_t bucket)
{
    const struct dpb_wait what = {.timeout_ns = DPB_FOREVER,
                                  .step = ps->base.step.step,
                                  .bucket = bucket,
                                  .peer = ps->base.args.rank,
                                  .purpose = "its own gradients"};
    return wait_for(ps, SIGNAL_READY, &what);
}

/* ---- stage: push own gradients to other machines ------------------------------------------- */

static uint32_t crowded(const struct ps *ps)
{
    return ps->links ? links_crowded(ps->links, false) : NONE;
}

bool ps_push_due(void *strategy, uint64_t bucket)
{
    const struct ps *ps = strategy;
    return strategy_own_ready(strategy, bucket) && crowded(ps) == NONE;
}

dpb_status ps_push_wait(void *strategy, uint64_t bucket)
{
    const struct ps *ps = strategy;
    if (!strategy_own_ready(strategy, bucket))
        return wait_own_ready(ps, bucket);
    const uint32_t peer = crowded(ps);
    const struct dpb_wait what = ps_wait_of(ps, peer, bucket, ps->base.arenas.layout.gradient_type,
                                            "the server to take gradients");
    return peer == NONE ? DPB_OK : links_wait(ps->links, &what);
}

static void push(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    links_push(((const struct ps *)strategy)->links, bucket, turn->length);
    turn->at = turn->length;
}

static void encode(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    struct ps *ps = strategy;
    coded_encode(&ps->base, bucket, 0);
    signals_raise(&ps->base.signals, SIGNAL_PUSHED, bucket);
    if (ps->links)
        links_push(ps->links, bucket, turn->length);
    turn->at = turn->length;
}

/* ---- stage: serve the own shard ------------------------------------------------------------ */

static bool has_pushed(const struct ps *ps, uint32_t worker, uint64_t bucket)
{
    struct rank_set one = {worker, 1};
    return is_here(ps, worker)
               ? signals_reached(&ps->base.signals, ps_pushed(&ps->base), one, bucket)
               : links_pushed(ps->links, worker, bucket);
}

/* The first worker whose gradients are not here. */
static uint32_t missing_worker(const struct ps *ps, uint64_t bucket)
{
    for (uint32_t worker = 0; worker < ps->base.args.n_workers; worker++)
        if (!has_pushed(ps, worker, bucket))
            return worker;
    return NONE;
}

static bool serve_due(void *strategy, uint64_t bucket)
{
    return missing_worker(strategy, bucket) == NONE;
}

static dpb_status serve_wait(void *strategy, uint64_t bucket)
{
    const struct ps *ps = strategy;
    if (ps->base.args.role == DPB_WORKER && !strategy_own_ready(strategy, bucket))
        return wait_own_ready(ps, bucket);
    uint32_t worker = missing_worker(ps, bucket);
    const struct dpb_wait what = ps_wait_of(
        ps, worker, bucket, ps->base.arenas.layout.gradient_type, "gradients of the peer");
    return worker == NONE ? DPB_OK : wait_for(ps, ps_pushed(&ps->base), &what);
}

/* Notes for the workers since when a bucket's gradients are here. A worker reports gradients that
 * came later than its own. */
static void note_pushed(const struct ps *ps, uint64_t bucket)
{
    const struct strategy *comm = &ps->base;
    int64_t own_ns = INT64_MAX, late_ns = INT64_MIN, pushed_ns = INT64_MIN;
    if (comm->args.role == DPB_WORKER)
        own_ns =
            signals_latest_ns(&comm->signals, ps_pushed(&ps->base), strategy_self(comm), bucket);
    for (uint32_t worker = 0; worker < comm->args.n_workers; worker++) {
        struct rank_set one = {worker, 1};
        bool here = is_here(ps, worker);
        int64_t came_ns = here
                              ? signals_latest_ns(&comm->signals, ps_pushed(&ps->base), one, bucket)
                              : links_push_came_ns(ps->links, worker, bucket);
        int64_t began_ns = here ? came_ns : links_push_began_ns(ps->links, worker, bucket);
        pushed_ns = came_ns > pushed_ns ? came_ns : pushed_ns;
        late_ns = began_ns > late_ns ? began_ns : late_ns;
        if (came_ns > began_ns)
            ps_host->span(bucket, DPB_PHASE_TRANSFER, began_ns, came_ns);
    }
    if (late_ns > own_ns)
        ps_host->span(bucket, DPB_PHASE_WAIT_PEER, own_ns, late_ns);
    signals_note_time(&comm->signals, SIGNAL_TAKEN, bucket, pushed_ns);
}

/* In the order of the ranks, wherever they are. */
static void sum_and_update(const struct strategy *comm, uint64_t bucket, struct piece piece)
{
    const struct ps *ps = (const struct ps *)comm;
    const uint64_t length = pipeline_bucket_length(&comm->pipeline, bucket);
    const struct dpb_range slice = ps_slice(&comm->args, comm->args.rank, bucket, length);
    const uint64_t at = piece.begin - bucket * comm->arenas.bucket_elements - slice.begin;
    void *into = ps->sum;
    uint64_t n_read = 0;
    for (uint32_t worker = 0; worker < comm->args.n_workers; worker++) {
        bool here = is_here(ps, worker);
        ps->sources[worker] = here ? strategy_gradients(comm, worker, piece.begin)
                                   : links_gradients(ps->links, worker, bucket, at);
        n_read += here && worker != comm->args.rank;
    }
    strategy_sum_sources(comm, bucket, piece, ps->sources, &into, 1);
    ps_host->count_bytes(n_read * piece.n * dpb_dtype_size(comm->arenas.layout.gradient_type));
    strategy_update(comm, bucket, piece, ps->sum);
}

/* The sum of all messages of a bucket into ps->sum. */
static void decode(struct ps *ps, uint64_t bucket)
{
    struct strategy *comm = &ps->base;
    const struct coded_message **messages = (const struct coded_message **)ps->sources;
    for (uint32_t worker = 0; worker < comm->args.n_workers; worker++) {
        const bool here = is_here(ps, worker);
        messages[worker] =
            here ? coded_message(comm, worker, bucket) : links_message(ps->links, worker, bucket);
        if (here && worker != comm->args.rank)
            ps_host->count_bytes(messages[worker]->bytes);
    }
    coded_sum(comm, bucket, messages, ps->sum);
}

static void serve_coded(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    struct ps *ps = strategy;
    struct strategy *comm = &ps->base;
    const struct dpb_range slice = ps_slice(&comm->args, comm->args.rank, bucket, turn->length);
    note_pushed(ps, bucket);
    if (slice.end > 0)
        decode(ps, bucket);
    if (slice.end > 0 && ps->codes_back && coded_status(comm) == DPB_OK)
        ps_back_encode(ps, bucket);
    while (turn->at < slice.end && !ps->codes_back && coded_status(comm) == DPB_OK) {
        const struct piece piece = strategy_piece(comm, bucket, slice.end, turn->at, DPB_FP32);
        strategy_update(comm, bucket, piece, (const float *)ps->sum + turn->at);
        turn->at += piece.n;
    }
    if (coded_status(comm) == DPB_OK) /* else `move` returns it next */
        signals_raise(&comm->signals, SIGNAL_REDUCED, bucket);
    turn->at = turn->length;
}

static void serve(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    const struct ps *ps = strategy;
    const struct strategy *comm = &ps->base;
    struct dpb_range slice = ps_slice(&comm->args, comm->args.rank, bucket, turn->length);
    if (turn->at == 0)
        note_pushed(ps, bucket);
    if (!slices_work_on(comm, bucket, slice, comm->arenas.layout.gradient_type, turn,
                        sum_and_update))
        return;
    signals_raise(&comm->signals, SIGNAL_REDUCED, bucket);
    turn->at = turn->length;
}

/* ---- stage: give new weights to workers of other machines ---------------------------------- */

static bool give_due(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return links_crowded(((const struct ps *)strategy)->links, true) == NONE;
}

static dpb_status give_wait(void *strategy, uint64_t bucket)
{
    const struct ps *ps = strategy;
    const struct dpb_wait what =
        ps_wait_of(ps, links_crowded(ps->links, true), bucket, ps->base.arenas.layout.weight_type,
                   "the worker to take weights");
    return links_wait(ps->links, &what);
}

static void give(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    const struct ps *ps = strategy;
    links_give(
        ps->links, bucket, turn->length,
        signals_latest_ns(&ps->base.signals, SIGNAL_TAKEN, strategy_self(&ps->base), bucket));
    turn->at = turn->length;
}

/* ---- stage: pull the new weights ----------------------------------------------------------- */

static bool has_updated(const struct ps *ps, uint32_t shard, uint64_t bucket)
{
    struct rank_set one = {shard, 1};
    if (is_here(ps, shard))
        return signals_reached(&ps->base.signals, SIGNAL_REDUCED, one, bucket);
    return links_updated(ps->links, shard, bucket) &&
           (!ps->asynchronous || links_aged(ps->links, shard));
}

/* The first shard whose weights are not here. */
static uint32_t missing_shard(const struct ps *ps, uint64_t bucket)
{
    struct rank_set all = ps_shards(&ps->base.args);
    for (uint32_t shard = all.first; shard < all.first + all.n; shard++)
        if (!has_updated(ps, shard, bucket))
            return shard;
    return NONE;
}

/* A rank that this one still has messages for: no message moves after the last bucket is pulled. */
static uint32_t unserved(const struct ps *ps, uint64_t bucket)
{
    bool last = bucket + 1 == ps->base.arenas.n_buckets;
    return ps->links && last ? links_busy(ps->links) : NONE;
}

bool ps_pull_due(void *strategy, uint64_t bucket)
{
    const struct ps *ps = strategy;
    return strategy_own_ready(strategy, bucket) && missing_shard(ps, bucket) == NONE &&
           unserved(ps, bucket) == NONE;
}

dpb_status ps_pull_wait(void *strategy, uint64_t bucket)
{
    const struct ps *ps = strategy;
    dpb_dtype type = ps->base.arenas.layout.weight_type;
    if (!strategy_own_ready(strategy, bucket))
        return wait_own_ready(ps, bucket);
    uint32_t shard = missing_shard(ps, bucket), other = unserved(ps, bucket);
    struct dpb_wait what = ps_wait_of(ps, shard, bucket, type, "weights from the server");
    if (shard != NONE)
        return wait_for(ps, SIGNAL_REDUCED, &what);
    what = ps_wait_of(ps, other, bucket, type, "the worker to take weights");
    return other != NONE ? links_wait(ps->links, &what) : DPB_OK;
}

/* Until the last worker came it was a late peer's time, from then on the server's. */
static void report_server(const struct ps *ps, uint32_t shard, uint64_t bucket)
{
    const struct signals *signals = &ps->base.signals;
    struct rank_set one = {shard, 1};
    int64_t ready_ns =
        signals_latest_ns(signals, ps_pushed(&ps->base), strategy_self(&ps->base), bucket);
    int64_t pushed_ns = signals_latest_ns(signals, SIGNAL_TAKEN, one, bucket);
    int64_t served_ns = signals_latest_ns(signals, SIGNAL_REDUCED, one, bucket);
    if (pushed_ns > ready_ns)
        ps_host->span(bucket, DPB_PHASE_WAIT_PEER, ready_ns, pushed_ns);
    ps_host->span(bucket, DPB_PHASE_TRANSFER, pushed_ns, served_ns);
}

static void pull_slice(const struct ps *ps, uint32_t shard, uint64_t bucket, uint64_t length)
{
    const struct strategy *comm = &ps->base;
    dpb_dtype type = comm->arenas.layout.weight_type;
    struct dpb_range slice = ps_slice(&comm->args, shard, bucket, length);
    uint64_t n = slice.end - slice.begin;
    uint64_t begin = bucket * comm->arenas.bucket_elements + slice.begin;
    if (n == 0)
        return;
    if (comm->args.n_servers > 0) /* a shard in a worker counts its reads of others by itself */
        ps_host->count_bytes(comm->args.codec
                                 ? coded_message(comm, comm->args.rank, bucket)->bytes
                                 : n * dpb_dtype_size(comm->arenas.layout.gradient_type));
    if (shard == comm->args.rank)
        return;
    ps_host->vec->copy(type, strategy_weights(comm, comm->args.rank, begin),
                       strategy_weights(comm, shard, begin), n);
    ps_host->count_bytes(n * dpb_dtype_size(type));
}

void ps_pull(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    struct ps *ps = strategy;
    struct rank_set all = ps_shards(&ps->base.args);
    int64_t began_ns = ps_host->now_ns(); /* a copy of a bucket is short */
    for (uint32_t shard = all.first; shard < all.first + all.n; shard++) {
        if (is_here(ps, shard)) {
            report_server(ps, shard, bucket);
            if (!ps->codes_back)
                pull_slice(ps, shard, bucket, turn->length);
        } else {
            links_report(ps->links, shard, bucket);
        }
    }
    if (ps->codes_back)
        ps_back_decode(ps, bucket, turn->length);
    ps_host->span(bucket, DPB_PHASE_TRANSFER, began_ns, ps_host->now_ns());
    turn->at = turn->length;
}

/* ---- the stages of a rank ------------------------------------------------------------------ */

uint32_t ps_choose_stages(struct ps *ps)
{
    const struct dpb_comm_args *args = &ps->base.args;
    struct stage *row = ps->row;
    const bool far = args->n_machines > 1, worker = args->role == DPB_WORKER;
    uint32_t n = 0;
    if (worker && (far || args->codec))
        row[n++] = (struct stage){ps_push_due, args->codec ? encode : push, ps_push_wait};
    if (ps_is_shard(args))
        row[n++] = (struct stage){serve_due, args->codec ? serve_coded : serve, serve_wait};
    if (ps_is_shard(args) && far)
        row[n++] = (struct stage){give_due, give, give_wait};
    if (worker)
        row[n++] = (struct stage){ps_pull_due, ps_pull, ps_pull_wait};
    if (worker && ps->codes_back)
        row[n++] = (struct stage){ps_back_update_due, coded_update, ps_back_update_wait};
    return n;
}
