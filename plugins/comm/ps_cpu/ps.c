/* ps.c - see ps.h. */
#include "comm/ps_cpu/ps.h"

#include <string.h>

#include "lib/mesh/mesh_tcp.h"
#include "lib/strategy/shard.h"
#include "lib/strategy/slices.h"
#include "lib/strategy/squares.h"
#include "lib/verbs/mesh_verbs.h"

const struct dpb_host *ps_host;

const char *const ps_transports[] = {"tcp", "verbs", NULL};

static bool is_here(const struct ps *ps, uint32_t rank)
{
    return ps_is_here(&ps->base.args, rank);
}

/* ---- waiting for a rank -------------------------------------------------------------------- */

/* Blocks until there is news for `what`: its peer has not raised `kind` or, on another machine, has
 * not sent the message that stands for `kind`. */
static dpb_status wait_for(const struct ps *ps, enum dpb_signal_kind kind,
                           const struct dpb_wait *what)
{
    if (ps->links)
        return links_wait(ps->links, what);
    struct dpb_rank_set one = {what->peer, 1};
    return dpb_signals_wait(&ps->base.signals, kind, one, what->bucket, what->timeout_ns,
                            what->bytes, what->purpose);
}

static struct dpb_wait wait_of(const struct ps *ps, uint32_t peer, uint64_t bucket, dpb_dtype type,
                               const char *purpose)
{
    uint64_t length = dpb_pipeline_bucket_length(&ps->base.pipeline, bucket);
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
    return wait_for(ps, DPB_SIGNAL_READY, &what);
}

/* ---- stage: push own gradients to other machines ------------------------------------------- */

static uint32_t crowded(const struct ps *ps)
{
    return ps->links ? links_crowded(ps->links, false) : NONE;
}

bool ps_push_due(void *strategy, uint64_t bucket)
{
    const struct ps *ps = strategy;
    return dpb_strategy_own_ready(strategy, bucket) && crowded(ps) == NONE;
}

dpb_status ps_push_wait(void *strategy, uint64_t bucket)
{
    const struct ps *ps = strategy;
    if (!dpb_strategy_own_ready(strategy, bucket))
        return wait_own_ready(ps, bucket);
    const uint32_t peer = crowded(ps);
    const struct dpb_wait what = wait_of(ps, peer, bucket, ps->base.arenas.layout.gradient_type,
                                         "the server to take gradients");
    return peer == NONE ? DPB_OK : links_wait(ps->links, &what);
}

static void push(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    links_push(((const struct ps *)strategy)->links, bucket, turn->length);
    turn->at = turn->length;
}

static void encode(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct ps *ps = strategy;
    dpb_coded_encode(&ps->base, bucket, 0);
    dpb_signals_raise(&ps->base.signals, DPB_SIGNAL_PUSHED, bucket);
    if (ps->links)
        links_push(ps->links, bucket, turn->length);
    turn->at = turn->length;
}

/* ---- stage: serve the own shard ------------------------------------------------------------ */

static bool has_pushed(const struct ps *ps, uint32_t worker, uint64_t bucket)
{
    struct dpb_rank_set one = {worker, 1};
    return is_here(ps, worker)
               ? dpb_signals_reached(&ps->base.signals, ps_pushed(&ps->base), one, bucket)
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
    if (ps->base.args.role == DPB_WORKER && !dpb_strategy_own_ready(strategy, bucket))
        return wait_own_ready(ps, bucket);
    uint32_t worker = missing_worker(ps, bucket);
    const struct dpb_wait what =
        wait_of(ps, worker, bucket, ps->base.arenas.layout.gradient_type, "gradients of the peer");
    return worker == NONE ? DPB_OK : wait_for(ps, ps_pushed(&ps->base), &what);
}

/* Notes for the workers since when a bucket's gradients are here. A worker reports gradients that
 * came later than its own. */
static void note_pushed(const struct ps *ps, uint64_t bucket)
{
    const struct dpb_strategy *comm = &ps->base;
    int64_t own_ns = INT64_MAX, late_ns = INT64_MIN, pushed_ns = INT64_MIN;
    if (comm->args.role == DPB_WORKER)
        own_ns = dpb_signals_latest_ns(&comm->signals, ps_pushed(&ps->base),
                                       dpb_strategy_self(comm), bucket);
    for (uint32_t worker = 0; worker < comm->args.n_workers; worker++) {
        struct dpb_rank_set one = {worker, 1};
        bool here = is_here(ps, worker);
        int64_t came_ns =
            here ? dpb_signals_latest_ns(&comm->signals, ps_pushed(&ps->base), one, bucket)
                 : links_push_came_ns(ps->links, worker, bucket);
        int64_t began_ns = here ? came_ns : links_push_began_ns(ps->links, worker, bucket);
        pushed_ns = came_ns > pushed_ns ? came_ns : pushed_ns;
        late_ns = began_ns > late_ns ? began_ns : late_ns;
        if (came_ns > began_ns)
            ps_host->span(bucket, DPB_PHASE_TRANSFER, began_ns, came_ns);
    }
    if (late_ns > own_ns)
        ps_host->span(bucket, DPB_PHASE_WAIT_PEER, own_ns, late_ns);
    dpb_signals_note_time(&comm->signals, DPB_SIGNAL_TAKEN, bucket, pushed_ns);
}

/* In the order of the ranks, wherever they are. */
static void sum_piece(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece,
                      void *into)
{
    const struct ps *ps = (const struct ps *)comm;
    const uint64_t length = dpb_pipeline_bucket_length(&comm->pipeline, bucket);
    const struct dpb_range slice = ps_slice(&comm->args, comm->args.rank, bucket, length);
    const uint64_t at = piece.begin - bucket * comm->arenas.bucket_elements - slice.begin;
    uint64_t n_read = 0;
    for (uint32_t worker = 0; worker < comm->args.n_workers; worker++) {
        bool here = is_here(ps, worker);
        ps->sources[worker] = here ? dpb_strategy_gradients(comm, worker, piece.begin)
                                   : links_gradients(ps->links, worker, bucket, at);
        n_read += here && worker != comm->args.rank;
    }
    dpb_strategy_sum_sources(comm, bucket, piece, ps->sources, &into, 1);
    ps_host->count_bytes(n_read * piece.n * dpb_dtype_size(comm->arenas.layout.gradient_type));
}

static void sum_and_update(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    void *sum = ((const struct ps *)comm)->sum;
    sum_piece(comm, bucket, piece, sum);
    dpb_strategy_update(comm, bucket, piece, sum);
}

/* The sum of all messages of a bucket. */
static void decode(struct ps *ps, uint64_t bucket, float *sum)
{
    struct dpb_strategy *comm = &ps->base;
    const struct dpb_coded_message **messages = (const struct dpb_coded_message **)ps->sources;
    for (uint32_t worker = 0; worker < comm->args.n_workers; worker++) {
        const bool here = is_here(ps, worker);
        messages[worker] = here ? dpb_coded_message(comm, worker, bucket)
                                : links_message(ps->links, worker, bucket);
        if (here && worker != comm->args.rank)
            ps_host->count_bytes(messages[worker]->bytes);
    }
    dpb_coded_sum(comm, bucket, messages, sum);
}

static void serve_coded(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct ps *ps = strategy;
    struct dpb_strategy *comm = &ps->base;
    const struct dpb_range slice = ps_slice(&comm->args, comm->args.rank, bucket, turn->length);
    note_pushed(ps, bucket);
    if (slice.end > 0)
        decode(ps, bucket, ps->sum);
    if (slice.end > 0 && ps->codes_back && dpb_coded_status(comm) == DPB_OK)
        ps_back_encode(&ps->back, comm, bucket, ps->sources[0], ps->sum);
    while (turn->at < slice.end && !ps->codes_back && dpb_coded_status(comm) == DPB_OK) {
        const struct dpb_piece piece =
            dpb_strategy_piece(comm, bucket, slice.end, turn->at, DPB_FP32);
        dpb_strategy_update(comm, bucket, piece, (const float *)ps->sum + turn->at);
        turn->at += piece.n;
    }
    if (dpb_coded_status(comm) == DPB_OK) /* else `move` returns it next */
        dpb_signals_raise(&comm->signals, DPB_SIGNAL_REDUCED, bucket);
    turn->at = turn->length;
}

static void serve(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct ps *ps = strategy;
    const struct dpb_strategy *comm = &ps->base;
    struct dpb_range slice = ps_slice(&comm->args, comm->args.rank, bucket, turn->length);
    if (turn->at == 0)
        note_pushed(ps, bucket);
    if (!dpb_slices_work_on(comm, bucket, slice, comm->arenas.layout.gradient_type, turn,
                            sum_and_update))
        return;
    dpb_signals_raise(&comm->signals, DPB_SIGNAL_REDUCED, bucket);
    turn->at = turn->length;
}

/* ---- with norms of whole tensors: the model is one bucket ------------------------------------ */

static void sum_here(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    sum_piece(comm, bucket, piece, dpb_strategy_own_gradients(comm, piece.begin));
}

/* A worker's own gradients are of no other use any more: their slice, or with a codec all. */
static void serve_sum(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct ps *ps = strategy;
    const struct dpb_strategy *comm = &ps->base;
    const struct dpb_range slice = ps_slice(&comm->args, comm->args.rank, bucket, turn->length);
    if (turn->at == 0)
        note_pushed(ps, bucket);
    if (comm->args.codec && slice.end > 0)
        decode(ps, bucket, dpb_strategy_own_gradients(comm, 0));
    if (comm->args.codec ||
        dpb_slices_work_on(comm, bucket, slice, comm->arenas.layout.gradient_type, turn, sum_here))
        turn->at = turn->length;
}

static void update_slice(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    dpb_strategy_make_weights((void *)(uintptr_t)comm, bucket, piece.begin, piece.n);
}

/* See dpb_coded_spent for the codec's gradients. */
static void serve_update(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct ps *ps = strategy;
    struct dpb_strategy *comm = &ps->base;
    const struct dpb_range slice = ps_slice(&comm->args, comm->args.rank, bucket, turn->length);
    if (dpb_coded_status(comm) != DPB_OK) { /* `move` returns it next */
        turn->at = turn->length;
        return;
    }
    if (!dpb_slices_work_on(comm, bucket, slice, comm->arenas.layout.weight_type, turn,
                            update_slice))
        return;
    if (comm->args.codec)
        memset(dpb_strategy_own_gradients(comm, slice.begin), 0,
               (slice.end - slice.begin) * sizeof(float));
    dpb_signals_raise(&comm->signals, DPB_SIGNAL_REDUCED, bucket);
    turn->at = turn->length;
}

/* A round's signal. */
static enum dpb_signal_kind round_signal(const struct dpb_strategy *comm)
{
    return comm->squares.round == 1 ? DPB_SIGNAL_GATHERED : DPB_SIGNAL_ANSWERED;
}

static void *round_entries(const struct dpb_strategy *comm, uint32_t shard)
{
    char *scratch = comm->arenas.peer_scratch[ps_shards(&comm->args).first + shard];
    return scratch + ((const struct ps *)comm)->squares_at +
           (comm->squares.round - 1) * dpb_strategy_squares_bytes(&comm->arenas.layout);
}

/* Written again in the next step. All shards have read the entries before workers push in it. */
static void give_squares(struct dpb_strategy *comm)
{
    const uint32_t own = comm->squares.own;
    memcpy(round_entries(comm, own), dpb_strategy_squares_of(comm, own),
           dpb_strategy_squares_bytes(&comm->arenas.layout));
    dpb_signals_raise(&comm->signals, round_signal(comm), 0);
}

static bool squares_here(const struct dpb_strategy *comm)
{
    return dpb_signals_reached(&comm->signals, round_signal(comm), ps_shards(&comm->args), 0);
}

static void take_squares(struct dpb_strategy *comm)
{
    const uint64_t bytes = dpb_strategy_squares_bytes(&comm->arenas.layout);
    for (uint32_t shard = 0; shard < comm->squares.n_owners; shard++)
        memcpy(dpb_strategy_squares_of(comm, shard), round_entries(comm, shard), bytes);
    ps_host->count_bytes((comm->squares.n_owners - 1) * bytes);
}

static dpb_status squares_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    return dpb_strategy_wait(comm, round_signal(comm), ps_shards(&comm->args), bucket, DPB_FP64,
                             "the shard's sums of squares");
}

static const struct dpb_squares_carrier through_scratch = {
    .give = give_squares, .here = squares_here, .take = take_squares};

/* With a codec one shard has all of the bucket. */
static uint32_t count_owners(const struct dpb_comm_args *args)
{
    return args->codec ? 1 : ps_shards(args).n;
}

static bool exchanges_squares(const struct ps *ps)
{
    const struct dpb_comm_args *args = &ps->base.args;
    return ps->by_norms && ps_is_shard(args) && count_owners(args) > 1;
}

dpb_status ps_check_norms(const struct dpb_comm_args *args, const char *comm, bool apart)
{
    const uint32_t n = count_owners(args);
    if (!args->whole || n == 1 || (!apart && args->n_machines == 1))
        return DPB_OK;
    return ps_host->fail(DPB_UNSUPPORTED,
                         "comm '%s': norms of whole tensors take sums of squares of all shards, "
                         "and %u %s exchange none; take run.servers = 1",
                         comm, n, apart ? "servers that update apart" : "shards across machines");
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
        wait_of(ps, links_crowded(ps->links, true), bucket, ps->base.arenas.layout.weight_type,
                "the worker to take weights");
    return links_wait(ps->links, &what);
}

static void give(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct ps *ps = strategy;
    links_give(ps->links, bucket, turn->length,
               dpb_signals_latest_ns(&ps->base.signals, DPB_SIGNAL_TAKEN,
                                     dpb_strategy_self(&ps->base), bucket));
    turn->at = turn->length;
}

/* ---- stage: pull the new weights ----------------------------------------------------------- */

static bool has_updated(const struct ps *ps, uint32_t shard, uint64_t bucket)
{
    struct dpb_rank_set one = {shard, 1};
    if (is_here(ps, shard))
        return dpb_signals_reached(&ps->base.signals, DPB_SIGNAL_REDUCED, one, bucket);
    return links_updated(ps->links, shard, bucket) &&
           (!ps->asynchronous || links_aged(ps->links, shard));
}

/* The first shard whose weights are not here. */
static uint32_t missing_shard(const struct ps *ps, uint64_t bucket)
{
    struct dpb_rank_set all = ps_shards(&ps->base.args);
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
    return dpb_strategy_own_ready(strategy, bucket) && missing_shard(ps, bucket) == NONE &&
           unserved(ps, bucket) == NONE;
}

dpb_status ps_pull_wait(void *strategy, uint64_t bucket)
{
    const struct ps *ps = strategy;
    dpb_dtype type = ps->base.arenas.layout.weight_type;
    if (!dpb_strategy_own_ready(strategy, bucket))
        return wait_own_ready(ps, bucket);
    uint32_t shard = missing_shard(ps, bucket), other = unserved(ps, bucket);
    struct dpb_wait what = wait_of(ps, shard, bucket, type, "weights from the server");
    if (shard != NONE)
        return wait_for(ps, DPB_SIGNAL_REDUCED, &what);
    what = wait_of(ps, other, bucket, type, "the worker to take weights");
    return other != NONE ? links_wait(ps->links, &what) : DPB_OK;
}

/* Until the last worker came it was a late peer's time, from then on the server's. */
static void report_server(const struct ps *ps, uint32_t shard, uint64_t bucket)
{
    const struct dpb_rank_signals *signals = &ps->base.signals;
    struct dpb_rank_set one = {shard, 1};
    int64_t ready_ns =
        dpb_signals_latest_ns(signals, ps_pushed(&ps->base), dpb_strategy_self(&ps->base), bucket);
    int64_t pushed_ns = dpb_signals_latest_ns(signals, DPB_SIGNAL_TAKEN, one, bucket);
    int64_t served_ns = dpb_signals_latest_ns(signals, DPB_SIGNAL_REDUCED, one, bucket);
    if (pushed_ns > ready_ns)
        ps_host->span(bucket, DPB_PHASE_WAIT_PEER, ready_ns, pushed_ns);
    ps_host->span(bucket, DPB_PHASE_TRANSFER, pushed_ns, served_ns);
}

static void pull_slice(const struct ps *ps, uint32_t shard, uint64_t bucket, uint64_t length)
{
    const struct dpb_strategy *comm = &ps->base;
    dpb_dtype type = comm->arenas.layout.weight_type;
    struct dpb_range slice = ps_slice(&comm->args, shard, bucket, length);
    uint64_t n = slice.end - slice.begin;
    uint64_t begin = bucket * comm->arenas.bucket_elements + slice.begin;
    if (n == 0)
        return;
    if (comm->args.n_servers > 0) /* a shard in a worker counts its reads of others by itself */
        ps_host->count_bytes(comm->args.codec
                                 ? dpb_coded_message(comm, comm->args.rank, bucket)->bytes
                                 : n * dpb_dtype_size(comm->arenas.layout.gradient_type));
    if (shard == comm->args.rank)
        return;
    ps_host->vec->copy(type, dpb_strategy_own_weights(comm, begin),
                       dpb_strategy_weights(comm, shard, begin), n);
    ps_host->count_bytes(n * dpb_dtype_size(type));
}

void ps_pull(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct ps *ps = strategy;
    struct dpb_rank_set all = ps_shards(&ps->base.args);
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
        ps_back_decode(&ps->back, &ps->base, bucket);
    ps_host->span(bucket, DPB_PHASE_TRANSFER, began_ns, ps_host->now_ns());
    turn->at = turn->length;
}

/* ---- stage: update by the decoded answers ---------------------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return ((const struct ps *)strategy)->back.status == DPB_OK;
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return ((const struct ps *)strategy)->back.status;
}

/* ---- the stages of a rank ------------------------------------------------------------------ */

/* A worker pushes to other machines, or encodes for all, and pulls. A shard serves, and gives
 * updated weights to other machines. A rank may be both. Fills ps->row; returns the number of
 * stages. */
static uint32_t choose_stages(struct ps *ps)
{
    const struct dpb_comm_args *args = &ps->base.args;
    struct dpb_stage *row = ps->row;
    const bool far = args->n_machines > 1, worker = args->role == DPB_WORKER;
    uint32_t n = 0;
    if (worker && (far || args->codec))
        row[n++] = (struct dpb_stage){ps_push_due, args->codec ? encode : push, ps_push_wait};
    if (ps_is_shard(args) && ps->by_norms)
        row[n++] = (struct dpb_stage){serve_due, serve_sum, serve_wait};
    else if (ps_is_shard(args))
        row[n++] = (struct dpb_stage){serve_due, args->codec ? serve_coded : serve, serve_wait};
    if (exchanges_squares(ps))
        row[n++] =
            (struct dpb_stage){dpb_strategy_squares_due, dpb_strategy_squares_work, squares_wait};
    if (ps_is_shard(args) && ps->by_norms)
        row[n++] = (struct dpb_stage){.work = serve_update};
    if (ps_is_shard(args) && far)
        row[n++] = (struct dpb_stage){give_due, give, give_wait};
    if (worker)
        row[n++] = (struct dpb_stage){ps_pull_due, ps_pull, ps_pull_wait};
    if (worker && ps->codes_back)
        row[n++] = (struct dpb_stage){update_due, dpb_coded_update, update_wait};
    return n;
}

/* ---- hooks --------------------------------------------------------------------------------- */

/* Moves the links; a message that was refused ends the exchange. */
static dpb_status move(void *strategy, int64_t until_ns, bool *moved)
{
    const struct ps *ps = strategy;
    DPB_TRY(dpb_coded_status(&ps->base));
    DPB_TRY(ps->back.status);
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
    return given->transport == PS_OVER_TCP ? dpb_tcp_check_port(ps_host, &given->tcp, last)
                                           : DPB_OK;
}

static dpb_status open_transport(struct ps *ps, const struct ps_options *given, uint32_t local_rank)
{
    if (ps->base.args.n_machines == 1)
        return DPB_OK;
    if (given->transport == PS_OVER_TCP)
        return dpb_mesh_tcp_create(ps_host, &given->tcp, &ps->transport);
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
    DPB_TRY(dpb_coded_open(ps_host, args, bytes, &made));
    dpb_status status = open_transport(made, given, local_rank);
    if (status != DPB_OK) {
        dpb_strategy_close(made);
        return status;
    }
    *comm = made;
    return DPB_OK;
}

static struct dpb_range own_part(const struct dpb_strategy *strategy, uint64_t bucket,
                                 uint64_t length)
{
    return ps_slice(&strategy->args, strategy->args.rank, bucket, length);
}

/* Behind the rest of the plan. Servers keep no weights. */
static dpb_status plan_back(struct ps *ps, const struct dpb_layout *layout,
                            struct dpb_comm_plan *want)
{
    want->contract.roundings += PS_BACK_ROUNDINGS;
    want->weights = DPB_MEMORY_NONE;
    return ps->base.args.role == DPB_SERVER ? DPB_OK
                                            : dpb_strategy_plan_own(&ps->base, layout, want);
}

dpb_status ps_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct ps *ps = comm;
    const struct dpb_comm_args *args = &ps->base.args;
    want->weights = ps_is_shard(args) ? DPB_MEMORY_SHARED : DPB_MEMORY_PRIVATE;
    want->gradients = args->role == DPB_WORKER ? DPB_MEMORY_SHARED : DPB_MEMORY_NONE;
    want->scratch = DPB_MEMORY_SHARED;
    ps->by_norms = args->whole && !ps->codes_back;
    if (ps->by_norms && want->bucket_elements < layout->n_elements)
        want->bucket_elements = layout->n_elements;
    if (ps->by_norms && args->role == DPB_SERVER)
        want->gradients = DPB_MEMORY_PRIVATE; /* the sum */
    ps->notice_at = dpb_signals_bytes(dpb_strategy_count_buckets(layout, want->bucket_elements));
    want->scratch_bytes = ps->back.at =
        dpb_strategy_lines(ps->notice_at + sizeof(struct ps_notice));
    if (ps->codes_back)
        want->scratch_bytes += ps_back_bytes(args, layout, want->bucket_elements);
    if (ps->by_norms && count_owners(args) > 1) { /* as much on all ranks */
        ps->squares_at = want->scratch_bytes;
        want->scratch_bytes = dpb_strategy_lines(
            ps->squares_at + DPB_SQUARES_ROUNDS * dpb_strategy_squares_bytes(layout));
    }
    if (ps->base.args.codec)
        DPB_TRY(dpb_coded_plan(&ps->base, layout, DPB_CODED_SHARED, want));
    ps->inbox_at = dpb_strategy_lines(want->scratch_bytes);
    want->scratch_bytes =
        ps->inbox_at + links_inbox_bytes(args, layout, want->bucket_elements, &ps->memory);
    if (ps->codes_back)
        return plan_back(ps, layout, want);
    return ps_is_shard(args) ? dpb_strategy_plan_parts(&ps->base, layout, own_part, want) : DPB_OK;
}

uint64_t ps_most_owned(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                       uint64_t bucket_elements)
{
    const uint32_t n = ps_shards(args).n;
    const uint64_t n_buckets = dpb_strategy_count_buckets(layout, bucket_elements);
    return args->codec
               ? (n_buckets + n - 1) / n * dpb_strategy_longest_bucket(layout, bucket_elements)
               : dpb_shard_elements(layout, bucket_elements, n);
}

static size_t sum_bytes(const struct ps *ps, const struct dpb_arenas *arenas)
{
    return ps->base.args.codec
               ? dpb_strategy_longest_bucket(&arenas->layout, arenas->bucket_elements) *
                     sizeof(float)
               : DPB_CHUNK_BYTES;
}

static size_t sources_bytes(const struct ps *ps)
{
    return (ps->base.args.n_workers + 1) * sizeof *ps->sources;
}

dpb_status ps_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct ps *ps = comm;
    const uint32_t n = choose_stages(ps);
    const bool by_async = ps->stages && ps->base.args.role == DPB_WORKER;
    ps->sum = ps_host->alloc(sum_bytes(ps, arenas));
    ps->sources = ps_host->alloc(sources_bytes(ps));
    if (!ps->sum || !ps->sources)
        return DPB_NO_MEMORY;
    DPB_TRY(dpb_strategy_bind(&ps->base, arenas, by_async ? ps->stages : ps->row, n));
    if (ps->base.args.codec)
        DPB_TRY(dpb_coded_bind(&ps->base));
    if (exchanges_squares(ps) && !by_async)
        DPB_TRY(dpb_strategy_open_squares(&ps->base, &through_scratch, ps_shards(&ps->base.args).n,
                                          ps->base.args.rank - ps_shards(&ps->base.args).first));
    if (ps->codes_back) {
        ps_back_bind(&ps->back, &ps->base);
        ps->memory.answers = ps->back.answers;
        ps->memory.answer_slot = ps->back.answer_slot;
    }
    if (ps->base.args.codec || ps->base.args.n_machines > 1)
        ps->base.pipeline.move = move;
    if (ps->base.args.n_machines == 1)
        return DPB_OK;
    struct dpb_mesh_transport *transport = ps->transport;
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
    DPB_TRY(dpb_strategy_load(comm));
    if (ps->codes_back)
        ps_back_load(&ps->back, &ps->base);
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
        DPB_TRY(ps_back_begin(&ps->back, &ps->base));
    ps_notice_of(ps, ps->base.args.rank)->step = *step; /* published by the READY that follows */
    return dpb_strategy_begin(comm, step);
}

/* The first worker that closes may be one of this machine, while weights of the last exchange are
 * on their way to others. */
dpb_status ps_serve_last(struct ps *ps)
{
    const struct dpb_arenas *arenas = &ps->base.arenas;
    for (uint32_t worker; ps->links && (worker = links_busy(ps->links)) != NONE;) {
        const struct dpb_wait what =
            wait_of(ps, worker, arenas->n_buckets - 1, arenas->layout.weight_type,
                    "the worker to take weights");
        DPB_TRY(links_advance(ps->links, &what));
    }
    return DPB_OK;
}

/* The servers see a closed worker by the READY of an exchange that will not be. Servers elsewhere
 * see the end of its link. */
void ps_close(void *comm)
{
    struct ps *ps = comm;
    if (!ps)
        return;
    struct dpb_strategy *base = &ps->base;
    bool begun = base->pipeline.done && base->signals.exchange != UINT64_MAX;
    bool through = ps->asynchronous && base->args.role == DPB_SERVER
                       ? ps->served
                       : !begun || ps_host->event->poll(base->pipeline.done);
    if (base->pipeline.done && base->args.role == DPB_WORKER) {
        ps_notice_of(ps, base->args.rank)->closed = 1;
        base->signals.exchange++;
        dpb_signals_raise(&base->signals, DPB_SIGNAL_READY, 0);
    }
    links_close(ps->links, through);
    if (ps->transport)
        ps->transport->ops->close(ps->transport, false);
    ps_host->release(ps->sum, sum_bytes(ps, &base->arenas));
    ps_host->release(ps->sources, sources_bytes(ps));
    dpb_strategy_close(comm);
}
