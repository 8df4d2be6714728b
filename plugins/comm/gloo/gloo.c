/*
 * gloo - replicated training whose buckets are all-reduced by Gloo, Meta's library of
 * collectives, over TCP or RDMA.
 *
 * Every worker keeps weights and optimizer state. Gloo sums every bucket over the workers in place,
 * then each worker updates its weights from its own, now summed, gradients. The algorithms are
 * Gloo's: `ring` and `bcube` (a hypercube) of gloo::allreduce, the classes `ring_chunked` and
 * `halving_doubling`. All of them sum an element on one worker and hand the sum to the others, so
 * replicas are equal bit for bit.
 *
 * Gloo blocks, and its own deadlines know nothing of a job that is suspended or ends. So all calls
 * of it are made by a thread of this plugin's, and core waits for that. It is no second thread that
 * computes: with run.comm_cores the buckets are handed to it as they become ready; without, when
 * backward is over and the loop has nothing to do but wait. Then nothing is hidden behind backward.
 *
 * Bytes moved per step, M bytes of gradients: each element is sent W - 1 times on its way to the
 * sum and W - 1 times from there: 2 (W - 1) M in all, counted in equal shares. (halving_doubling
 * sends more where W is no power of 2.)
 *
 * Fences: a bucket goes to Gloo when this rank's backward is through with it (GIVEN); Gloo takes of
 * a peer what that has given; a bucket is used, and its arena written again, when Gloo's call is
 * over here (ANSWERED), which writes and reads no more of it then.
 */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "dpbench/plugin.h"
#include "lib/interface.h"
#include "lib/strategy.h"
#include "shim.h"
#if DPB_HAVE_VERBS
#include "lib/verbs/port.h"
#endif

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

struct options {
    int transport, algorithm; /* enum shim_transport, enum shim_algorithm */
    const char *interface, *device;
    int64_t gid_index;
};

static const char *const transports[] = {"tcp", "ibverbs", NULL};
static const char *const algorithms[] = {"ring", "bcube", "ring_chunked", "halving_doubling", NULL};

static const struct dpb_option option_rows[] = {
    {.name = "transport",
     .type = DPB_OPT_CHOICE,
     .def = "tcp",
     .choices = transports,
     .offset = offsetof(struct options, transport),
     .help = "what Gloo sends by; ibverbs: RDMA, for ring_chunked and halving_doubling alone"},
    {.name = "algorithm",
     .type = DPB_OPT_CHOICE,
     .def = "ring",
     .choices = algorithms,
     .offset = offsetof(struct options, algorithm),
     .help = "Gloo's all-reduce; ring is what gloo::allreduce takes by itself"},
    {.name = "interface",
     .type = DPB_OPT_STRING,
     .def = "",
     .offset = offsetof(struct options, interface),
     .help =
         "network interface: a name, a network (10.0.0.0/8) or an address; default: loopback "
         "on one machine, else the one that leads out. With ibverbs that of the RDMA device, or a "
         "list; default: any"},
    {.name = "device",
     .type = DPB_OPT_STRING,
     .def = "",
     .offset = offsetof(struct options, device),
     .help =
         "ibverbs: RDMA device, NAME or NAME:PORT; the ranks of a machine take the entries of a "
         "list (commas between) in turn; empty: the only one that fits"},
    {.name = "gid_index",
     .type = DPB_OPT_INT,
     .def = "-1",
     .min = -1,
     .max = 255,
     .offset = offsetof(struct options, gid_index),
     .help = "ibverbs: place of the own address in the port's table of GIDs; -1: that of the "
             "interface's address, RoCE v2 before v1"},
    {.name = NULL},
};

/* ---- state --------------------------------------------------------------------------------- */

/* Which device Gloo is to open. */
struct rdma {
    char device[64];
    int port, gid_index;
};

/* What the loop and the thread tell each other. */
enum { FLAG_CONNECTED, FLAG_GIVEN, FLAG_ANSWERED, N_FLAGS };

struct gloo {
    struct strategy strategy;
    struct options options;
    char way[160]; /* for messages: "tcp, eth0, 10.9.0.1" */
    struct interface interface;
    struct rdma rdma;
    struct dpb_flag *flags; /* N_FLAGS; buckets are counted over all exchanges, from 1 */
    struct shim *shim;      /* the thread's, but for shim_break */
    pthread_t thread;
    bool started;
    uint32_t stop;
    dpb_status status; /* of the thread, which may be ahead of who looks: status_of */
};

static uint32_t count_of(const struct gloo *gloo, uint64_t bucket)
{
    const struct signals *signals = &gloo->strategy.signals;
    return (uint32_t)(signals->exchange * signals->n_buckets + bucket + 1);
}

static void *bucket_at(const struct gloo *gloo, uint64_t bucket)
{
    const struct strategy *comm = &gloo->strategy;
    return strategy_gradients(comm, comm->args.rank, bucket * comm->arenas.bucket_elements);
}

static uint64_t bytes_of(const struct gloo *gloo, uint64_t bucket)
{
    return pipeline_bucket_length(&gloo->strategy.pipeline, bucket) *
           dpb_dtype_size(gloo->strategy.arenas.layout.gradient_type);
}

/* ---- the thread ---------------------------------------------------------------------------- */

static dpb_status connect_workers(struct gloo *gloo)
{
    const struct strategy *comm = &gloo->strategy;
    char why[SHIM_TEXT_BYTES];
    const struct shim_args args = {.host = host,
                                   .rank = comm->args.rank,
                                   .n_workers = comm->args.n_workers,
                                   .algorithm = (enum shim_algorithm)gloo->options.algorithm,
                                   .transport = (enum shim_transport)gloo->options.transport,
                                   .address = gloo->interface.address,
                                   .device = gloo->rdma.device,
                                   .port = gloo->rdma.port,
                                   .gid_index = gloo->rdma.gid_index,
                                   .type = comm->arenas.layout.gradient_type,
                                   .n_buckets = comm->arenas.n_buckets,
                                   .bucket_elements = pipeline_bucket_length(&comm->pipeline, 0)};
    dpb_status status = shim_open(&args, &gloo->shim, why);
    for (uint64_t b = 0; status == DPB_OK && b < comm->arenas.n_buckets; b++)
        status = shim_prepare(gloo->shim, b, bucket_at(gloo, b),
                              pipeline_bucket_length(&comm->pipeline, b), why);
    if (status == DPB_OK || why[0] == '\0')
        return status;
    return host->fail(status, "Gloo cannot connect the workers over %s: %s", gloo->way, why);
}

static dpb_status exchange_bucket(struct gloo *gloo, uint64_t bucket)
{
    const struct strategy *comm = &gloo->strategy;
    char why[SHIM_TEXT_BYTES];
    int64_t began_ns = host->now_ns();
    dpb_status status = shim_all_reduce(gloo->shim, bucket, why);
    if (status != DPB_OK)
        return host->fail(status,
                          "Gloo's all-reduce failed (exchange %llu, bucket %llu, %llu bytes): %s",
                          (unsigned long long)comm->step.step, (unsigned long long)bucket,
                          (unsigned long long)bytes_of(gloo, bucket), why);
    host->span(bucket, DPB_PHASE_TRANSFER, began_ns, host->now_ns());
    strategy_count_all_reduce(comm, bucket);
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
        uint64_t bucket = (n - 1) % gloo->strategy.arenas.n_buckets;
        DPB_THEN(status, exchange_bucket(gloo, bucket));
        __atomic_store_n(&gloo->status, status, __ATOMIC_RELEASE);
        host->flag->set(&gloo->flags[FLAG_ANSWERED], (uint32_t)n);
    }
}

/* ---- stage: update, when Gloo is through with a bucket ------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    const struct gloo *gloo = strategy;
    return host->flag->reached(&gloo->flags[FLAG_ANSWERED], count_of(gloo, bucket)) &&
           status_of(gloo) == DPB_OK;
}

/* No deadline before this rank's own backward gets there. */
static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    const struct gloo *gloo = strategy;
    const struct dpb_wait what = {.step = gloo->strategy.step.step,
                                  .bucket = bucket,
                                  .bytes = bytes_of(gloo, bucket),
                                  .peer = UINT32_MAX,
                                  .purpose = "Gloo's all-reduce"};
    DPB_TRY(strategy_wait_ready(&gloo->strategy, strategy_self(&gloo->strategy), bucket));
    host->note("wait_peer", bucket, UINT32_MAX);
    DPB_TRY(host->flag->wait(&gloo->flags[FLAG_ANSWERED], count_of(gloo, bucket), &what));
    return status_of(gloo);
}

static const struct stage stages[] = {{update_due, strategy_update_bucket, update_wait}};

/* ---- hooks --------------------------------------------------------------------------------- */

static bool is_class(int algorithm)
{
    return algorithm == SHIM_RING_CHUNKED || algorithm == SHIM_HALVING_DOUBLING;
}

/* Gloo opens the device by its name: what was looked at is closed again. */
static dpb_status find_rdma(struct gloo *gloo, const struct dpb_comm_args *args)
{
#if DPB_HAVE_VERBS
    const struct port_wanted wanted = {.devices = gloo->options.device,
                                       .interfaces = gloo->options.interface,
                                       .gid_index = gloo->options.gid_index,
                                       .local_rank = strategy_local_rank(args)};
    struct port port = {0};
    if (shim_has_ibverbs) {
        DPB_TRY(port_open(host, &wanted, &port));
        gloo->rdma.port = port.number;
        gloo->rdma.gid_index = (int)port.gid.gid_index;
        snprintf(gloo->rdma.device, sizeof gloo->rdma.device, "%s",
                 ibv_get_device_name(port.context->device));
        snprintf(gloo->way, sizeof gloo->way, "ibverbs (%s, %s)", port.name, port.address);
        port_close(&port);
        return DPB_OK;
    }
#endif
    (void)gloo, (void)args;
    return host->fail(DPB_UNSUPPORTED,
                      "comm.transport = ibverbs: %s was built without it; take tcp",
                      shim_has_ibverbs ? "dpbench" : "Gloo");
}

/* What Gloo is to send by; the options of the other transport are refused. */
static dpb_status find_way(struct gloo *gloo, const struct dpb_comm_args *args)
{
    const struct options *given = &gloo->options;
    if (given->transport == SHIM_IBVERBS && !is_class(given->algorithm))
        return host->fail(DPB_UNSUPPORTED,
                          "comm.algorithm = %s: Gloo has it for comm.transport = tcp alone; with "
                          "ibverbs take ring_chunked or halving_doubling",
                          algorithms[given->algorithm]);
    if (given->transport == SHIM_IBVERBS)
        return find_rdma(gloo, args);
    if (given->device[0] != '\0' || given->gid_index >= 0)
        return host->fail(DPB_USAGE, "comm.%s is of comm.transport = ibverbs; here it is tcp",
                          given->device[0] != '\0' ? "device" : "gid_index");
    DPB_TRY(interface_find(host, given->interface, args->n_machines == 1, &gloo->interface));
    snprintf(gloo->way, sizeof gloo->way, "tcp (%s, %s)", gloo->interface.name,
             gloo->interface.address);
    return DPB_OK;
}

static dpb_status gloo_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    static const struct options defaults = {SHIM_TCP, SHIM_RING, "", "", -1};
    const struct options *given = options ? options : &defaults;
    void *made;
    DPB_TRY(strategy_open(host, args, sizeof(struct gloo), &made));
    struct gloo *gloo = made;
    gloo->options = *given;
    dpb_status status = find_way(gloo, args);
    gloo->flags = status == DPB_OK ? host->alloc(N_FLAGS * sizeof *gloo->flags) : NULL;
    if (!gloo->flags) {
        strategy_close(gloo);
        return status == DPB_OK ? DPB_NO_MEMORY : status;
    }
    *comm = gloo;
    return DPB_OK;
}

static dpb_status gloo_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    const struct gloo *gloo = comm;
    uint64_t bucket = strategy_longest_bucket(layout, want->bucket_elements);
    if (is_class(gloo->options.algorithm) &&
        bucket * dpb_dtype_size(layout->gradient_type) > INT32_MAX)
        return host->fail(
            DPB_UNSUPPORTED,
            "comm.algorithm = %s: Gloo counts its bytes in 31 bits; take a comm.bucket "
            "of less than 2 GiB",
            algorithms[gloo->options.algorithm]);
    return strategy_plan_replica(comm, layout, DPB_MEMORY_PRIVATE, want);
}

static dpb_status gloo_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct gloo *gloo = comm;
    const struct dpb_wait what = {
        .bucket = UINT64_MAX, .peer = UINT32_MAX, .purpose = "Gloo to connect the workers"};
    DPB_TRY(strategy_bind(&gloo->strategy, arenas, stages, 1));
    if (pthread_create(&gloo->thread, NULL, thread_main, gloo) != 0)
        return host->fail(DPB_FAILED, "cannot start the thread that calls Gloo");
    pthread_setname_np(gloo->thread, "dpb-gloo");
    gloo->started = true;
    DPB_TRY(host->flag->wait(&gloo->flags[FLAG_CONNECTED], 1, &what));
    return status_of(gloo);
}

static dpb_status gloo_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    struct gloo *gloo = comm;
    DPB_TRY(strategy_ready(comm, bucket, event));
    if (gloo->strategy.args.comm_cores > 0)
        host->flag->set(&gloo->flags[FLAG_GIVEN], count_of(gloo, bucket));
    return DPB_OK;
}

static dpb_status gloo_end(void *comm, struct dpb_event **done)
{
    struct gloo *gloo = comm;
    if (gloo->strategy.args.comm_cores == 0)
        host->flag->set(&gloo->flags[FLAG_GIVEN],
                        count_of(gloo, gloo->strategy.arenas.n_buckets - 1));
    return strategy_end(comm, done);
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

/* A job that fails may leave the thread waiting in Gloo, which has no way to be called back. Then
 * it keeps what it uses until the process ends, which is soon. */
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
    strategy_close(gloo);
}

static const struct dpb_comm_ops gloo_ops = {.open = gloo_open,
                                             .plan = gloo_plan,
                                             .bind = gloo_bind,
                                             .load = strategy_load,
                                             .begin = strategy_begin,
                                             .ready = gloo_ready,
                                             .progress = strategy_progress,
                                             .end = gloo_end,
                                             .publish = strategy_publish,
                                             .close = gloo_close};

static char loaded_version[64];

static const struct dpb_library libraries[] = {
    {.name = "Gloo", .built = shim_version, .loaded = loaded_version}, {.name = NULL}};

static const struct dpb_plugin gloo_plugin = {
    DPB_PLUGIN_HEAD(COMM, gloo_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE | DPB_COMM_WHOLE,
    .name = "gloo",
    .version = DPB_VERSION,
    .summary = "replicated, all-reduced by Gloo over TCP or RDMA; overlaps backward with "
               "run.comm_cores alone",
    .options = option_rows,
    .options_size = sizeof(struct options),
    .libraries = libraries,
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    shim_loaded_version(loaded_version, sizeof loaded_version);
    return &gloo_plugin;
}
