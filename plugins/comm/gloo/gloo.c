/*
 * gloo - replicated training whose buckets Gloo all-reduces, over TCP or RDMA. Gloo is Meta's
 * library of collectives.
 *
 * Every worker keeps weights and, unless sharded, optimizer state. Gloo sums every bucket over the
 * workers in place, then each worker updates its weights from its own, now summed, gradients. The
 * algorithms are Gloo's: `ring` and `bcube` (a hypercube) of gloo::allreduce, the classes
 * `ring_chunked` and `halving_doubling`. All of them sum an element on one worker and hand the sum
 * to the others, so replicas are equal bit for bit.
 *
 * Gloo blocks, and its own deadlines ignore that a job is suspended or ends. So a thread of this
 * plugin makes all calls of Gloo, and core waits for this thread. The thread never competes with
 * computing. With run.comm_cores it gets buckets as they become ready, and a codec's messages once
 * the sum before is there. Without, it gets buckets when backward is over and the loop only waits.
 * Then nothing is hidden behind backward.
 *
 * Bytes moved per step, M bytes of gradients: each element is sent W - 1 times to the sum and W - 1
 * times from the sum: 2 (W - 1) M in all, counted in equal shares. (halving_doubling sends more if
 * W is no power of 2.)
 *
 * With comm.shard = optimizer (shard.h) Gloo's reduce-scatter gives each worker the sum of its
 * slice, the worker updates the slice, and gloo::allgatherv gives the new weights to all. Gloo has
 * one reduce-scatter, by halving and doubling. Bytes are as many, with weights in place of sums.
 * The thread makes all reduce-scatters of a step before the first all-gather, so that all workers
 * call in one order. If updates need norms of whole tensors, gloo::allgatherv exchanges sums of
 * squares between them (squares.h).
 *
 * With a codec its messages go instead (coded_sums.h), m bytes a worker. An all-gather brings those
 * of one round to all workers: W (W - 1) m in all. Those of two rounds are summed as gradients are:
 * 2 (W - 1) m in all. The loop encodes, and the thread makes one call after the other.
 *
 * Other operations of `dpbench comm` are gloo::broadcast, gloo::alltoall, and the reduce-scatter
 * and the all-gather that comm.shard has. All move (W - 1) M.
 *
 * Fences: a bucket goes to Gloo when this rank's backward has finished it (GIVEN). Gloo reads only
 * buckets that peers have given. A bucket is used, and its arena written again, when Gloo's call
 * has returned here (ANSWERED): Gloo then no longer reads or writes the bucket.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include "dpbench/plugin.h"
#include "lib/coded/coded_sums.h"
#include "lib/strategy/shard.h"
#include "lib/strategy/slices.h"
#include "lib/strategy/squares.h"
#include "lib/tcp/interface.h"
#if DPB_HAVE_VERBS
#include "lib/verbs/port.h"
#endif
#include "shim.h"

static const struct dpb_host *host;

/* ---- options, and the interface or RDMA device by which Gloo sends --------------------------- */

struct gloo_options {
    int transport, algorithm; /* enum shim_transport; AUTO, or behind it enum shim_algorithm */
    const char *interface, *device;
    int64_t gid_index;
    int shard;
};

enum { AUTO };

static const char *const transports[] = {"tcp", "ibverbs", NULL};
static const char *const algorithms[] = {
    "auto", "ring", "bcube", "ring_chunked", "halving_doubling", NULL};

static const struct dpb_option option_rows[] = {
    {"transport", DPB_OPT_CHOICE, NULL, "tcp", 0, 0, transports,
     offsetof(struct gloo_options, transport),
     "Gloo's transport; ibverbs: RDMA, for ring_chunked and halving_doubling alone", NULL},
    {"algorithm", DPB_OPT_CHOICE, NULL, "auto", 0, 0, algorithms,
     offsetof(struct gloo_options, algorithm),
     "Gloo's all-reduce; auto: ring, as gloo::allreduce has it; with comm.shard the reduce-scatter "
     "that Gloo has, halving_doubling",
     NULL},
    {"interface", DPB_OPT_STRING, NULL, "", 0, 0, NULL, offsetof(struct gloo_options, interface),
     "network interface: a name, a network (10.0.0.0/8) or an address; default: loopback on one "
     "machine, else the one that leads out. With ibverbs the RDMA device's, or a list; default: "
     "any",
     NULL},
    {"device", DPB_OPT_STRING, NULL, "", 0, 0, NULL, offsetof(struct gloo_options, device),
     "ibverbs: RDMA device, NAME or NAME:PORT; the ranks of a machine take the entries of a list "
     "(commas between) in turn; empty: the only one that fits",
     "comm.transport = ibverbs"},
    {"gid_index", DPB_OPT_INT, NULL, "-1", -1, 255, NULL, offsetof(struct gloo_options, gid_index),
     "ibverbs: index of the own address in the port's table of GIDs; -1: that of the interface's "
     "address, RoCE v2 before v1",
     "comm.transport = ibverbs"},
    DPB_SHARD_OPTION_ROW(struct gloo_options, shard),
    {0}};

struct way {
    char text[160];                 /* for messages: "tcp, eth0, 10.9.0.1" */
    struct dpb_interface interface; /* for SHIM_TCP */
    char device[64];                /* for SHIM_IBVERBS: Gloo opens this device */
    int port, gid_index;
};

static enum shim_algorithm algorithm_of(const struct gloo_options *given)
{
    if (given->algorithm != AUTO)
        return (enum shim_algorithm)(given->algorithm - 1);
    return given->shard != DPB_SHARD_NONE ? SHIM_HALVING_DOUBLING : SHIM_RING;
}

/* Whether the algorithm is a class of Gloo, which knows its buffers beforehand. */
static bool is_class(const struct gloo_options *given)
{
    const enum shim_algorithm algorithm = algorithm_of(given);
    return algorithm == SHIM_RING_CHUNKED || algorithm == SHIM_HALVING_DOUBLING;
}

#if DPB_HAVE_VERBS
static const bool has_verbs = true;

/* Gloo opens the device by its name, so the port found here is closed again. */
static dpb_status find_rdma(const struct gloo_options *given, const struct dpb_comm_args *args,
                            struct way *way)
{
    const struct port_wanted wanted = {.devices = given->device,
                                       .interfaces = given->interface,
                                       .gid_index = given->gid_index,
                                       .local_rank = dpb_strategy_local_rank(args)};
    struct port port = {0};
    DPB_TRY(port_open(host, &wanted, &port));
    way->port = port.number;
    way->gid_index = (int)port.gid.gid_index;
    snprintf(way->device, sizeof way->device, "%s", ibv_get_device_name(port.context->device));
    snprintf(way->text, sizeof way->text, "ibverbs (%s, %s)", port.name, port.address);
    port_close(&port);
    return DPB_OK;
}
#else
static const bool has_verbs = false;
#endif

/* Refuses a transport that this build lacks, and what Gloo lacks with it. */
static dpb_status check_way(const struct gloo_options *given)
{
    const char *algorithm = algorithms[algorithm_of(given) + 1];
    if (given->shard != DPB_SHARD_NONE && algorithm_of(given) != SHIM_HALVING_DOUBLING)
        return host->fail(DPB_UNSUPPORTED,
                          "comm.algorithm = %s beside comm.shard = optimizer: Gloo's one "
                          "reduce-scatter is by halving and doubling; leave comm.algorithm out",
                          algorithm);
    if (given->shard != DPB_SHARD_NONE && given->transport == SHIM_IBVERBS)
        return host->fail(
            DPB_UNSUPPORTED,
            "comm.shard = optimizer with comm.transport = ibverbs: Gloo gathers parts "
            "that differ in length over tcp alone; take tcp, or comm.name = "
            "ring_verbs");
    if (given->transport == SHIM_IBVERBS && !is_class(given))
        return host->fail(DPB_UNSUPPORTED,
                          "comm.algorithm = %s: Gloo has it for comm.transport = tcp alone; with "
                          "ibverbs take ring_chunked or halving_doubling",
                          algorithm);
    if (given->transport == SHIM_IBVERBS && !(shim_has_ibverbs && has_verbs))
        return host->fail(DPB_UNSUPPORTED,
                          "comm.transport = ibverbs: %s was built without it; take tcp",
                          shim_has_ibverbs ? "dpbench" : "Gloo");
    return DPB_OK;
}

/* The options have passed check_way. */
static dpb_status find_way(const struct gloo_options *given, const struct dpb_comm_args *args,
                           struct way *way)
{
#if DPB_HAVE_VERBS
    if (given->transport == SHIM_IBVERBS)
        return find_rdma(given, args, way);
#endif
    (void)args; /* verbs without its library is refused before */
    DPB_TRY(dpb_interface_find(host, given->interface, &way->interface));
    snprintf(way->text, sizeof way->text, "tcp (%s, %s)", way->interface.name,
             way->interface.address);
    return DPB_OK;
}

/* ---- state --------------------------------------------------------------------------------- */

/* A collective of the thread's. */
struct call {
    uint64_t prepared;  /* its number among the calls of shim_prepare */
    uint64_t bucket, n; /* n elements of `type`; 0: nothing is called */
    enum shim_kind kind;
    dpb_dtype type;
    void *gathered; /* SHIM_GATHER: where the message of the first worker begins */
};

static const char *const purposes[SHIM_KINDS] = {
    [SHIM_ALL_REDUCE] = "Gloo's all-reduce",  [SHIM_SUM_SLICES] = "Gloo's reduce-scatter",
    [SHIM_GIVE_SLICES] = "Gloo's all-gather", [SHIM_GATHER] = "Gloo's all-gather",
    [SHIM_BROADCAST] = "Gloo's broadcast",    [SHIM_ALL_TO_ALL] = "Gloo's all-to-all"};

static const enum shim_kind kinds[] = {[DPB_ALL_REDUCE] = SHIM_ALL_REDUCE,
                                       [DPB_REDUCE_SCATTER] = SHIM_SUM_SLICES,
                                       [DPB_ALL_GATHER] = SHIM_GIVE_SLICES,
                                       [DPB_BROADCAST] = SHIM_BROADCAST,
                                       [DPB_ALL_TO_ALL] = SHIM_ALL_TO_ALL};

/* Flags between the loop and the thread. */
enum { FLAG_CONNECTED, FLAG_GIVEN, FLAG_ANSWERED, N_FLAGS };

struct gloo {
    struct dpb_strategy strategy;
    struct gloo_options options;
    struct way way;
    struct dpb_flag *flags; /* N_FLAGS; calls are counted over all exchanges, from 1 */
    /* Of an exchange. With shards: by bucket the sums, squares by round, by bucket the weights. */
    struct call *calls;
    uint64_t n_calls, n_posted, n_prepared;
    bool sharded;
    struct shim *shim; /* the thread's, but for shim_break */
    pthread_t thread;
    bool started;
    bool ended;            /* the exchange under way has all buckets */
    uint64_t stride_bytes; /* between two workers' messages that are gathered */
    uint32_t stop;
    dpb_status status; /* of the thread, which may be ahead of the reader: status_of */
};

static uint32_t count_of(const struct gloo *gloo, uint64_t call)
{
    return (uint32_t)(gloo->strategy.signals.exchange * gloo->n_calls + call + 1);
}

static uint64_t bytes_of(const struct call *call)
{
    return call->n * dpb_dtype_size(call->type);
}

static uint32_t rounds_of(const struct gloo *gloo)
{
    return gloo->strategy.args.whole ? DPB_SQUARES_ROUNDS : 0;
}

/* With shards: the call that gives the bucket's weights. */
static uint64_t gift_of(const struct gloo *gloo, uint64_t bucket)
{
    return gloo->strategy.arenas.n_buckets + rounds_of(gloo) + bucket;
}

static bool gathers(const struct dpb_codec *codec)
{
    return codec && dpb_coded_way_of(codec) == DPB_CODED_GATHERED;
}

/* Elements of the longest call. */
static uint64_t longest_call(const struct dpb_codec *codec, const struct dpb_layout *layout,
                             uint64_t bucket_elements)
{
    return codec ? dpb_coded_sums_longest(codec, layout, bucket_elements)
                 : dpb_strategy_longest_bucket(layout, bucket_elements);
}

/* ---- the thread ---------------------------------------------------------------------------- */

/* Without a codec: the memory of a call. */
static void *memory_of(const struct gloo *gloo, const struct call *call)
{
    const struct dpb_strategy *comm = &gloo->strategy;
    const uint64_t at = call->bucket * comm->arenas.bucket_elements;
    if (call->kind != SHIM_GIVE_SLICES || !gloo->sharded)
        return dpb_strategy_own_gradients(comm, at);
    return call->prepared < gift_of(gloo, 0) ? (void *)comm->squares.all
                                             : dpb_strategy_own_weights(comm, at);
}

static dpb_status prepare_buckets(const struct gloo *gloo, char why[SHIM_TEXT_BYTES])
{
    dpb_status status = DPB_OK;
    for (uint64_t i = 0; status == DPB_OK && i < gloo->n_calls; i++) {
        const struct call *call = &gloo->calls[i];
        const struct shim_part part = {
            memory_of(gloo, call), call->n, call->type,
            dpb_strategy_own_weights(&gloo->strategy,
                                     call->bucket * gloo->strategy.arenas.bucket_elements)};
        status = shim_prepare(gloo->shim, i, call->kind, &part, why);
    }
    return status;
}

/* Messages by slot; then, if the codec begins later, the gradients that go in their place. */
static dpb_status prepare_messages(const struct gloo *gloo, char why[SHIM_TEXT_BYTES])
{
    const struct dpb_strategy *comm = &gloo->strategy;
    const uint64_t n_buckets = comm->arenas.n_buckets, n_slots = dpb_coded_sums_places(comm);
    dpb_status status = DPB_OK;
    for (uint64_t i = 0; status == DPB_OK && i < gloo->n_prepared; i++) {
        const uint64_t bucket = i % n_buckets, slot = i < n_slots ? i : i - n_buckets;
        const struct shim_part part = {dpb_coded_message(comm, comm->args.rank, slot)->content,
                                       i < n_slots
                                           ? dpb_coded_sums_length(comm, slot)
                                           : dpb_pipeline_bucket_length(&comm->pipeline, bucket),
                                       DPB_FP32, NULL};
        if (part.n > 0)
            status = shim_prepare(gloo->shim, i, SHIM_ALL_REDUCE, &part, why);
    }
    return status;
}

static dpb_status connect_workers(struct gloo *gloo)
{
    const struct dpb_strategy *comm = &gloo->strategy;
    const struct dpb_arenas *arenas = &comm->arenas;
    const struct dpb_codec *codec = comm->args.codec;
    char why[SHIM_TEXT_BYTES];
    const struct shim_args args = {
        .host = host,
        .rank = comm->args.rank,
        .n_workers = comm->args.n_workers,
        .algorithm = algorithm_of(&gloo->options),
        .transport = (enum shim_transport)gloo->options.transport,
        .address = gloo->way.interface.address,
        .device = gloo->way.device,
        .port = gloo->way.port,
        .gid_index = gloo->way.gid_index,
        .n_calls = gloo->n_prepared,
        .bucket_elements = longest_call(codec, &arenas->layout, arenas->bucket_elements),
        .gathers = gathers(codec)};
    dpb_status status = shim_open(&args, &gloo->shim, why);
    if (!args.gathers)
        DPB_THEN(status, codec ? prepare_messages(gloo, why) : prepare_buckets(gloo, why));
    if (status == DPB_OK || why[0] == '\0')
        return status;
    return host->fail(status, "Gloo cannot connect the workers over %s: %s", gloo->way.text, why);
}

/* The worker's share. */
static uint64_t moved_bytes(const struct dpb_strategy *comm, const struct call *call)
{
    const uint64_t sent = dpb_slices_sent(call->n, comm->args.rank, comm->args.n_workers);
    const uint64_t n = call->kind == SHIM_ALL_REDUCE  ? 2 * sent
                       : call->kind != SHIM_BROADCAST ? sent
                       : comm->args.rank > 0          ? call->n
                                                      : 0;
    return n * dpb_dtype_size(call->type);
}

static dpb_status make_call(struct gloo *gloo, const struct call *call)
{
    const struct dpb_strategy *comm = &gloo->strategy;
    char why[SHIM_TEXT_BYTES];
    int64_t began_ns = host->now_ns();
    if (call->n == 0)
        return DPB_OK;
    dpb_status status =
        call->kind == SHIM_GATHER
            ? shim_gather(gloo->shim, call->gathered, gloo->stride_bytes, bytes_of(call), why)
            : shim_make(gloo->shim, call->prepared, why);
    if (status != DPB_OK)
        return host->fail(status, "%s failed (exchange %llu, bucket %llu, %llu bytes): %s",
                          purposes[call->kind], (unsigned long long)comm->step.step,
                          (unsigned long long)call->bucket, (unsigned long long)bytes_of(call),
                          why);
    host->span(call->bucket, DPB_PHASE_TRANSFER, began_ns, host->now_ns());
    if (call->kind == SHIM_GATHER)
        return DPB_OK; /* coded_sums.h counts its bytes */
    host->count_bytes(moved_bytes(comm, call));
    return DPB_OK;
}

static dpb_status status_of(const struct gloo *gloo)
{
    return __atomic_load_n(&gloo->status, __ATOMIC_ACQUIRE);
}

/* Answers everything that is given, also when it can do nothing for it any more. */
static void *thread_main(void *argument)
{
    struct gloo *gloo = argument;
    struct dpb_flag *given = &gloo->flags[FLAG_GIVEN];
    const struct dpb_wait forever = {.timeout_ns = DPB_FOREVER,
                                     .bucket = UINT64_MAX,
                                     .peer = UINT32_MAX,
                                     .purpose = "the next bucket"};
    dpb_status status = connect_workers(gloo);
    __atomic_store_n(&gloo->status, status, __ATOMIC_RELEASE);
    host->flag->set(&gloo->flags[FLAG_CONNECTED], 1);
    for (uint64_t n = 1;; n++) {
        if (host->flag->wait(given, (uint32_t)n, &forever) != DPB_OK ||
            __atomic_load_n(&gloo->stop, __ATOMIC_ACQUIRE))
            return NULL;
        DPB_THEN(status, make_call(gloo, &gloo->calls[(n - 1) % gloo->n_calls]));
        __atomic_store_n(&gloo->status, status, __ATOMIC_RELEASE);
        host->flag->set(&gloo->flags[FLAG_ANSWERED], (uint32_t)n);
    }
}

/* The calls of this exchange up to this one are the thread's. */
static void give(struct gloo *gloo, uint64_t call)
{
    host->flag->set(&gloo->flags[FLAG_GIVEN], count_of(gloo, call));
}

/* ---- stage: update, when Gloo is through with a bucket ------------------------------------- */

static bool is_answered(const struct gloo *gloo, uint64_t call)
{
    return host->flag->reached(&gloo->flags[FLAG_ANSWERED], count_of(gloo, call)) &&
           status_of(gloo) == DPB_OK;
}

static dpb_status await_answer(const struct gloo *gloo, uint64_t call)
{
    const struct dpb_wait what = {.step = gloo->strategy.step.step,
                                  .bucket = gloo->calls[call].bucket,
                                  .bytes = bytes_of(&gloo->calls[call]),
                                  .peer = UINT32_MAX,
                                  .purpose = purposes[gloo->calls[call].kind]};
    host->note("wait_peer", what.bucket, UINT32_MAX);
    DPB_TRY(host->flag->wait(&gloo->flags[FLAG_ANSWERED], count_of(gloo, call), &what));
    return status_of(gloo);
}

static bool update_due(void *strategy, uint64_t bucket)
{
    return is_answered(strategy, bucket);
}

/* No deadline before this rank's own backward gets there. */
static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    DPB_TRY(dpb_strategy_own_wait(strategy, bucket));
    return await_answer(strategy, bucket);
}

static const struct dpb_stage stages[] = {{update_due, dpb_strategy_update_bucket, update_wait}};
/* Other operations of `dpbench comm`. */
static const struct dpb_stage operation_stages[] = {{.due = update_due, .wait = update_wait}};

/* ---- with shards: the own slice updated and given, all slices here -------------------------- */

static void update_own(struct gloo *gloo, uint64_t bucket)
{
    const struct dpb_strategy *comm = &gloo->strategy;
    const struct dpb_range own =
        dpb_slices_own(comm, bucket, dpb_pipeline_bucket_length(&comm->pipeline, bucket));
    dpb_strategy_make_weights(gloo, bucket, bucket * comm->arenas.bucket_elements + own.begin,
                              own.end - own.begin);
}

static void update_slice(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    update_own(strategy, bucket);
    turn->at = turn->length;
}

/* The thread has all reduce-scatters of this exchange. */
static bool give_due(void *strategy, uint64_t bucket)
{
    const struct gloo *gloo = strategy;
    (void)bucket;
    return host->flag->reached(&gloo->flags[FLAG_GIVEN],
                               count_of(gloo, gloo->strategy.arenas.n_buckets - 1));
}

static void give_weights(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    give(strategy, gift_of(strategy, bucket));
    turn->at = turn->length;
}

static dpb_status give_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    (void)bucket;
    return dpb_strategy_own_wait(strategy, comm->arenas.n_buckets - 1);
}

static bool given_due(void *strategy, uint64_t bucket)
{
    return is_answered(strategy, gift_of(strategy, bucket));
}

static dpb_status given_wait(void *strategy, uint64_t bucket)
{
    return await_answer(strategy, gift_of(strategy, bucket));
}

static const struct dpb_stage shard_stages[] = {{update_due, update_slice, update_wait},
                                                {give_due, give_weights, give_wait},
                                                {.due = given_due, .wait = given_wait}};

/* ---- with shards and norms of whole tensors ------------------------------------------------- */

static uint64_t round_of(const struct dpb_strategy *comm)
{
    return comm->arenas.n_buckets + comm->squares.round - 1;
}

/* Doubles of all workers. */
static uint64_t count_squares(const struct dpb_strategy *comm)
{
    return comm->args.n_workers * dpb_strategy_squares_bytes(&comm->arenas.layout) / sizeof(double);
}

static void give_squares(struct dpb_strategy *comm)
{
    struct gloo *gloo = (struct gloo *)comm;
    gloo->calls[round_of(comm)].n = count_squares(comm);
    give(gloo, round_of(comm));
}

static bool squares_here(const struct dpb_strategy *comm)
{
    return is_answered((const struct gloo *)comm, round_of(comm));
}

static dpb_status squares_wait(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return await_answer(strategy, round_of(strategy));
}

static const struct dpb_squares_carrier by_gloo = {.give = give_squares, .here = squares_here};

/* All buckets', in the last one. */
static void update_slices(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct gloo *gloo = strategy;
    turn->at = turn->length;
    if (!dpb_strategy_is_last(strategy, bucket))
        return;
    for (uint64_t b = 0; b <= bucket; b++)
        update_own(gloo, b);
    give(gloo, gift_of(gloo, bucket));
}

static bool all_given_due(void *strategy, uint64_t bucket)
{
    return !dpb_strategy_is_last(strategy, bucket) || given_due(strategy, bucket);
}

static const struct dpb_stage whole_stages[] = {
    {.due = update_due, .wait = update_wait},
    {dpb_strategy_squares_due, dpb_strategy_squares_work, squares_wait},
    {.work = update_slices},
    {.due = all_given_due, .wait = given_wait}};

/* ---- messages of a codec ------------------------------------------------------------------- */

/* Without communication cores the thread begins when backward is over. */
static bool post_message(struct dpb_strategy *strategy, uint64_t slot, uint64_t n)
{
    struct gloo *gloo = (struct gloo *)strategy;
    const uint64_t n_buckets = strategy->arenas.n_buckets, bucket = slot % n_buckets;
    const bool gathered = gathers(strategy->args.codec);
    const bool plain = gloo->n_prepared > gloo->n_calls && slot >= n_buckets &&
                       n == dpb_pipeline_bucket_length(&strategy->pipeline, bucket);
    gloo->calls[gloo->n_posted++] =
        (struct call){.prepared = plain ? slot + n_buckets : slot,
                      .bucket = bucket,
                      .n = n,
                      .kind = gathered ? SHIM_GATHER : SHIM_ALL_REDUCE,
                      .type = DPB_FP32,
                      .gathered = gathered ? dpb_coded_message(strategy, 0, slot) : NULL};
    if (strategy->args.comm_cores > 0 || gloo->ended)
        give(gloo, gloo->n_posted - 1);
    return true;
}

static bool message_finished(const struct dpb_strategy *strategy, uint64_t place)
{
    return is_answered((const struct gloo *)strategy, place);
}

static dpb_status message_wait(const struct dpb_strategy *strategy)
{
    const struct gloo *gloo = (const struct gloo *)strategy;
    const uint32_t call = host->flag->get(&gloo->flags[FLAG_ANSWERED]) + 1 - count_of(gloo, 0);
    return call < gloo->n_posted ? await_answer(gloo, call) : status_of(gloo);
}

static const struct dpb_coded_sums_ops summed_by_gloo = {post_message, message_finished,
                                                         message_wait};

/* ---- hooks --------------------------------------------------------------------------------- */

static const struct gloo_options defaults = {SHIM_TCP, AUTO, "", "", -1, DPB_SHARD_NONE};

static dpb_status gloo_needs(const void *options, struct dpb_comm_needs *needs)
{
    (void)needs; /* the capabilities say all */
    return check_way(options ? options : &defaults);
}

/* Refuses operations here, since `needs` does not know the operation. */
static dpb_status gloo_contract(const void *options, const struct dpb_comm_args *args,
                                struct dpb_contract *contract)
{
    const struct gloo_options *given = options ? options : &defaults;
    dpb_coded_contract(args, contract);
    if (args->operation != DPB_ALL_REDUCE && given->transport == SHIM_IBVERBS)
        return host->fail(DPB_UNSUPPORTED,
                          "comm.transport = ibverbs: Gloo has the operations beside the all-reduce "
                          "for comm.transport = tcp alone; take tcp");
    if (args->operation != DPB_ALL_REDUCE && given->algorithm != AUTO)
        return host->fail(DPB_UNSUPPORTED,
                          "comm.algorithm is of the all-reduce: Gloo has one algorithm for each "
                          "other comm_test.operation; leave comm.algorithm out");
    return DPB_OK;
}

static dpb_status gloo_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    const struct gloo_options *given = options ? options : &defaults;
    void *made;
    DPB_TRY(dpb_coded_open(host, args, sizeof(struct gloo), &made));
    struct gloo *gloo = made;
    gloo->options = *given;
    if (args->operation == DPB_REDUCE_SCATTER)
        gloo->options.algorithm = SHIM_HALVING_DOUBLING + 1; /* the only one */
    gloo->sharded = dpb_shard_wanted(args, given->shard) != DPB_SHARD_NONE;
    dpb_status status = find_way(given, args, &gloo->way);
    gloo->flags = status == DPB_OK ? host->alloc(N_FLAGS * sizeof *gloo->flags) : NULL;
    if (!gloo->flags) {
        dpb_strategy_close(gloo);
        return status == DPB_OK ? DPB_NO_MEMORY : status;
    }
    *comm = gloo;
    return DPB_OK;
}

static dpb_status gloo_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct gloo *gloo = comm;
    const struct dpb_codec *codec = gloo->strategy.args.codec;
    const uint64_t n = longest_call(codec, layout, want->bucket_elements);
    if (is_class(&gloo->options) && n * dpb_dtype_size(layout->gradient_type) > INT32_MAX)
        return host->fail(
            DPB_UNSUPPORTED,
            "comm.algorithm = %s: Gloo counts its bytes in 31 bits; take a comm.bucket "
            "of less than 2 GiB",
            algorithms[algorithm_of(&gloo->options) + 1]);
    DPB_TRY(dpb_strategy_plan_replica(comm, layout, DPB_MEMORY_PRIVATE, want));
    if (codec)
        return dpb_coded_plan(comm, layout, dpb_coded_way_of(codec), want);
    return gloo->sharded ? dpb_strategy_plan_parts(comm, layout, dpb_slices_own, want) : DPB_OK;
}

static void gloo_memory(const void *options, const struct dpb_comm_args *args,
                        const struct dpb_layout *layout, uint64_t bucket_elements,
                        struct dpb_comm_memory *memory)
{
    const struct gloo_options *given = options ? options : &defaults;
    const struct dpb_codec *codec = args->codec;
    dpb_shard_memory(args, given->shard, layout, bucket_elements, memory);
    if (!codec)
        return;
    dpb_coded_memory(args, layout, bucket_elements, dpb_coded_way_of(codec), memory);
    if (gathers(codec)) /* the shim's: what all-gathers bring */
        memory->beside_bytes += (given->transport == SHIM_IBVERBS ? 2 : 1) * args->n_workers *
                                longest_call(codec, layout, bucket_elements) * sizeof(float);
}

static dpb_status bind_stages(struct gloo *gloo, const struct dpb_arenas *arenas)
{
    struct dpb_strategy *comm = &gloo->strategy;
    if (comm->args.operation != DPB_ALL_REDUCE)
        return dpb_strategy_bind(comm, arenas, DPB_STRATEGY_STAGES(operation_stages));
    if (comm->args.codec)
        return dpb_coded_sums_bind(comm, arenas, &summed_by_gloo);
    if (!gloo->sharded)
        return dpb_strategy_bind(comm, arenas, DPB_STRATEGY_STAGES(stages));
    if (!comm->args.whole)
        return dpb_strategy_bind(comm, arenas, DPB_STRATEGY_STAGES(shard_stages));
    DPB_TRY(dpb_strategy_bind(comm, arenas, DPB_STRATEGY_STAGES(whole_stages)));
    return dpb_strategy_open_squares(comm, &by_gloo, comm->args.n_workers, comm->args.rank);
}

/* The calls of an exchange without a codec. */
static void list_calls(struct gloo *gloo)
{
    const struct dpb_strategy *comm = &gloo->strategy;
    const struct dpb_layout *layout = &comm->arenas.layout;
    const uint64_t n_buckets = comm->arenas.n_buckets;
    for (uint64_t i = 0; i < gloo->n_calls; i++) {
        struct call *call = &gloo->calls[i];
        const bool sums = i < n_buckets, gives = !sums && i >= gift_of(gloo, 0);
        *call = (struct call){.prepared = i,
                              .bucket = sums    ? i
                                        : gives ? i - gift_of(gloo, 0)
                                                : n_buckets - 1,
                              .kind = !sums           ? SHIM_GIVE_SLICES
                                      : gloo->sharded ? SHIM_SUM_SLICES
                                                      : kinds[comm->args.operation],
                              .type = sums    ? layout->gradient_type
                                      : gives ? layout->weight_type
                                              : DPB_FP64};
        call->n = sums || gives ? dpb_pipeline_bucket_length(&comm->pipeline, call->bucket)
                                : count_squares(comm);
    }
}

static dpb_status bind_calls(struct gloo *gloo, const struct dpb_arenas *arenas)
{
    const struct dpb_codec *codec = gloo->strategy.args.codec;
    DPB_TRY(bind_stages(gloo, arenas));
    gloo->n_calls = codec ? dpb_coded_sums_places(&gloo->strategy) : arenas->n_buckets;
    if (gloo->sharded)
        gloo->n_calls = gift_of(gloo, arenas->n_buckets);
    gloo->n_prepared = gloo->n_calls;
    if (gathers(codec))
        gloo->stride_bytes = dpb_coded_sums_stride(&gloo->strategy) * sizeof(float);
    else if (codec && codec->options->start_step > 0)
        gloo->n_prepared += arenas->n_buckets;
    gloo->calls = host->alloc(gloo->n_calls * sizeof *gloo->calls);
    if (gloo->calls && !codec)
        list_calls(gloo);
    return gloo->calls ? DPB_OK : DPB_NO_MEMORY;
}

static dpb_status gloo_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct gloo *gloo = comm;
    const struct dpb_wait what = {
        .bucket = UINT64_MAX, .peer = UINT32_MAX, .purpose = "Gloo to connect the workers"};
    DPB_TRY(bind_calls(gloo, arenas));
    const int error = pthread_create(&gloo->thread, NULL, thread_main, gloo);
    if (error != 0)
        return host->fail(DPB_FAILED, "cannot start the thread that calls Gloo: %s",
                          strerror(error));
    pthread_setname_np(gloo->thread, "dpb-gloo");
    gloo->started = true;
    DPB_TRY(host->flag->wait(&gloo->flags[FLAG_CONNECTED], 1, &what));
    return status_of(gloo);
}

static dpb_status gloo_begin(void *comm, const struct dpb_step *step)
{
    struct gloo *gloo = comm;
    for (uint32_t i = 0; gloo->sharded && i < rounds_of(gloo); i++)
        gloo->calls[gloo->strategy.arenas.n_buckets + i].n = 0; /* until this exchange has them */
    gloo->n_posted = 0;
    gloo->ended = false;
    return dpb_strategy_begin(comm, step);
}

static dpb_status gloo_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    struct gloo *gloo = comm;
    DPB_TRY(dpb_strategy_ready(comm, bucket, event));
    if (gloo->strategy.args.comm_cores > 0 && !gloo->strategy.args.codec)
        give(gloo, bucket);
    return DPB_OK;
}

static dpb_status gloo_end(void *comm, struct dpb_event **done)
{
    struct gloo *gloo = comm;
    if (gloo->strategy.args.comm_cores == 0) {
        const uint64_t n_given =
            gloo->strategy.args.codec ? gloo->n_posted : gloo->strategy.arenas.n_buckets;
        gloo->ended = true;
        if (n_given > 0)
            give(gloo, n_given - 1);
    }
    return dpb_strategy_end(comm, done);
}

/* False: the thread is in Gloo still, where nothing reaches it. */
static bool stop_thread(struct gloo *gloo)
{
    struct timespec until;
    uint32_t given = host->flag->get(&gloo->flags[FLAG_GIVEN]);
    bool connected = host->flag->get(&gloo->flags[FLAG_CONNECTED]) != 0;
    bool busy = !connected || host->flag->get(&gloo->flags[FLAG_ANSWERED]) != given;
    __atomic_store_n(&gloo->stop, 1, __ATOMIC_RELEASE);
    host->flag->set(&gloo->flags[FLAG_GIVEN], given + 1);
    if (!busy)
        return pthread_join(gloo->thread, NULL) == 0;
    if (connected && gloo->shim)
        shim_break(gloo->shim);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 1;
    return pthread_clockjoin_np(gloo->thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}

/* A job that fails may leave the thread waiting in Gloo, and nothing can call the thread back. Then
 * the thread keeps all that it uses until the process ends, which is soon. */
static void gloo_close(void *comm)
{
    struct gloo *gloo = comm;
    if (!gloo)
        return;
    if (gloo->started && !stop_thread(gloo)) {
        pthread_detach(gloo->thread);
        return;
    }
    shim_close(gloo->shim);
    host->release(gloo->flags, N_FLAGS * sizeof *gloo->flags);
    host->release(gloo->calls, gloo->n_calls * sizeof *gloo->calls);
    dpb_strategy_close(gloo);
}

static const struct dpb_comm_ops gloo_ops = {.needs = gloo_needs,
                                             .memory = gloo_memory,
                                             .contract = gloo_contract,
                                             .open = gloo_open,
                                             .plan = gloo_plan,
                                             .bind = gloo_bind,
                                             .load = dpb_strategy_load,
                                             DPB_CODED_HOOKS,
                                             .collectives = DPB_COLLECTIVES_ALL,
                                             .begin = gloo_begin,
                                             .ready = gloo_ready,
                                             .progress = dpb_strategy_progress,
                                             .end = gloo_end,
                                             .publish = dpb_strategy_publish,
                                             .close = gloo_close};

static char loaded_version[64];

static const struct dpb_library libraries[] = {
    {.name = "Gloo", .built = shim_version, .loaded = loaded_version}, {.name = NULL}};

static const struct dpb_plugin gloo_plugin = {
    DPB_PLUGIN_HEAD(COMM, gloo_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE | DPB_COMM_WHOLE |
                    DPB_COMM_WHOLE_SHARDS | DPB_COMM_CODECS | DPB_COMM_ROUNDS | DPB_COMM_THREADS,
    .name = "gloo",
    .version = DPB_VERSION,
    .summary = "replicated, all-reduced by Gloo over TCP or RDMA; overlaps backward with "
               "run.comm_cores alone",
    .options = option_rows,
    .options_size = sizeof(struct gloo_options),
    .libraries = libraries,
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    shim_loaded_version(loaded_version, sizeof loaded_version);
    return &gloo_plugin;
}
