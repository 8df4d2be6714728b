/*
 * nccl - replicated training on NVIDIA GPUs, all-reduced by NCCL in the GPUs' memory.
 *
 * Every worker keeps weights, gradients and optimizer state on its GPU. Work goes into one stream
 * of this plugin's. Each launch waits for the event behind backward of its gradients. Then it calls
 * ncclAllReduce in place in the gradient arena, and the optimizer on the same range. `end` gives
 * an event behind the last launch. The host enqueues all launches while backward still runs, and
 * waits for none. NCCL's kernels run beside backward's. Neighbouring buckets that become final with
 * the same event are one range and one launch. NCCL's calls are in backward's order, on every rank.
 *
 * If the device captures backward (comm.capture), all launches are captured with it, in the second
 * step. From then on a step is one launch of a graph, on all ranks, as NCCL's User Guide requires
 * ("Using NCCL with CUDA Graphs"). The optimizer reads learning rate and scale from device memory,
 * where `replay` writes them. A communicator that is closed or aborted waits for the graphs with
 * its work, so these graphs are destroyed first (struct dpb_capture). NCCL has enqueued its work
 * before all_reduce returns, so before the capture ends.
 *
 * Bytes moved per step, M bytes of gradients: each element is sent W - 1 times to the sum and W - 1
 * times from the sum: 2 (W - 1) M in all, counted in equal shares. Rings and trees send as many.
 * NVLink SHARP and CollNet sum within a switch and send fewer.
 *
 * With comm.shard = optimizer (shard.h) every bucket is a launch. ncclReduceScatter gives each
 * worker the sum of its slice, the worker updates the slice, and ncclAllGather gives the new
 * weights to all, within the arenas. Bytes are as many, with weights in place of sums. A bucket's
 * slices have equal length. If the last bucket's slices do not, groups of ncclReduce and of
 * ncclBroadcast do the same. If updates need norms of whole tensors, they wait for the last sum.
 * Then ncclAllGather gives all workers the sums of squares of each, a few numbers a tensor.
 *
 * With a codec every bucket is a launch, too, and its messages are exchanged in place of gradients
 * (messages.h), m bytes a worker: W (W - 1) m in all by ncclAllGather, of a codec of two rounds
 * 2 (W - 1) m by ncclAllReduce. Nothing is captured then: encoding depends on the step.
 *
 * All of NCCL's algorithms make a sum once and send it on, so replicas are equal bit for bit.
 *
 * Fences are events and the stream's order: a range is reduced after backward's event, NCCL reads
 * peers' parts when their streams have reached the call, weights are used after `done`.
 *
 * NCCL's calls do not block (nccl.h). `progress`, which core and device call while they wait
 * for the GPU, detects later failures. Then NCCL's kernels are aborted, so that no thread waits for
 * the GPU for ever.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/nccl/messages.h"
#include "lib/nccl/communicator.h"
#include "lib/strategy/shard.h"
#include "lib/strategy/slices.h"

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

enum capture_choice { CAPTURE_AUTO, CAPTURE_ON, CAPTURE_OFF };

struct options {
    struct dpb_nccl_options nccl;
    int capture; /* enum capture_choice */
    int shard;
};

static const char *const capture_words[] = {
    [CAPTURE_AUTO] = "auto", [CAPTURE_ON] = "on", [CAPTURE_OFF] = "off", NULL};

static const struct dpb_option option_rows[] = {
    DPB_NCCL_OPTION_ROWS(struct options, NULL),
    {"capture", DPB_OPT_CHOICE, NULL, "auto", 0, 0, capture_words,
     offsetof(struct options, capture),
     "whether all-reduces and updates are captured with backward, as one CUDA graph a step; on: or "
     "it is refused; auto: where that is possible",
     NULL},
    DPB_SHARD_OPTION_ROW(struct options, shard),
    {0}};

/* ---- state --------------------------------------------------------------------------------- */

enum { MOST_BUCKETS = 65536 /* events exist for each */ };

/* ---- the work that is enqueued for a step, and the GPU's progress ----------------------------
 *
 * Events around each launch's work give the GPU's times. An event that `begin` records into a
 * second, idle queue ties them to the host's clock. The GPU passes this event after the host has
 * enqueued it, later by the time that a record takes to reach it (microseconds; not measured). So
 * all spans of a step stand too early by this time. Their lengths are as exact as
 * cudaEventElapsedTime, 0.5 us. A transfer cannot be told from the wait for a late peer: both are
 * inside NCCL's kernel. A step's spans are reported when its last event has fired, at the latest in
 * the next step's `end`: the next forward is behind this event. A graph's launches record its
 * events; a step's are read before the next launch.
 */

/* Neighbouring buckets that are reduced and updated together (with shards or a codec always one
 * bucket), and its events, in order. Those of messages are for codecs only, RESUMED for norms with
 * shards, GATHERED for shards. */
enum mark {
    BEGUN,
    MESSAGES,
    REDUCED = MESSAGES + MESSAGES_MARKS,
    RESUMED,
    UPDATED,
    GATHERED,
    MARKS
};

struct launch {
    uint64_t first, n;
    struct dpb_event *marks[MARKS];
};

/* The work that is enqueued for an exchange. */
struct work {
    struct launch *launches; /* room for a launch of each bucket */
    uint64_t n_launches;
    struct dpb_event *done;
};

/* One step's exchange; two of them take turns. */
struct exchange {
    struct dpb_step step;
    int64_t origin_ns;
    struct dpb_event *origin;
    struct work own;
    const struct work *work; /* `own`, or nccl.captured */
    uint64_t n_through;      /* from the first: launches whose last event has fired */
    int64_t waiting_ns;      /* since when for the next launch; 0: no wait */
    bool ended, reported;
};

struct nccl {
    struct dpb_strategy strategy; /* args, arenas */
    bool sharded, by_norms;       /* by_norms: with shards, updates need norms of whole tensors */
    struct dpb_squares *squares;  /* by owner and tensor, on the GPU */
    struct dpb_nccl_options options;
    const struct dpb_queue_ops *queues;
    struct dpb_communicator communicator;
    struct dpb_queue *queue, *idle;
    struct exchange exchanges[MESSAGES_BANKS];
    uint64_t n_exchanges;
    uint64_t held, n_held;   /* buckets that are not launched yet: first, number */
    struct dpb_event *event; /* behind it these buckets are final */
    dpb_status status;
    bool captures;                /* as it was planned */
    bool capturing;               /* now */
    struct dpb_capture capture;   /* drop NULL: nothing was captured */
    struct work captured;         /* a graph's launches record its events... */
    struct dpb_event *in_capture; /* ... except this one: behind all captured work */
};

/* A launch's elements. */
static struct dpb_range launch_range(const struct nccl *nccl, const struct launch *launch)
{
    const struct dpb_arenas *arenas = &nccl->strategy.arenas;
    uint64_t end = (launch->first + launch->n) * arenas->bucket_elements;
    return (struct dpb_range){launch->first * arenas->bucket_elements,
                              end < arenas->layout.n_elements ? end : arenas->layout.n_elements};
}

/* The part that this rank updates. */
static struct dpb_range launch_owned(const struct nccl *nccl, const struct launch *launch)
{
    const struct dpb_comm_args *args = &nccl->strategy.args;
    const struct dpb_range range = launch_range(nccl, launch);
    if (!nccl->sharded)
        return range;
    const struct dpb_range own = dpb_slice_of(range.end - range.begin, args->rank, args->n_workers);
    return (struct dpb_range){range.begin + own.begin, range.begin + own.end};
}

static const struct dpb_codec *codec_of(const struct nccl *nccl)
{
    return nccl->strategy.args.codec;
}

/* A wait with `purpose`, for messages. */
static struct dpb_wait launch_wait(const struct nccl *nccl, const struct exchange *exchange,
                                   const struct launch *launch, const char *purpose)
{
    struct dpb_range range = launch_range(nccl, launch);
    return (struct dpb_wait){.step = exchange->step.step,
                             .bucket = launch->first,
                             .bytes = (range.end - range.begin) *
                                      dpb_dtype_size(nccl->strategy.arenas.layout.gradient_type),
                             .peer = UINT32_MAX,
                             .purpose = purpose};
}

static enum mark last_mark(const struct nccl *nccl)
{
    return nccl->sharded ? GATHERED : UPDATED;
}

/* *ns: NULL, or the span's length is added. */
static dpb_status report_span(const struct nccl *nccl, const struct exchange *exchange,
                              const struct launch *launch, enum mark from, enum mark to,
                              dpb_phase phase, int64_t *ns)
{
    int64_t begin_ns, end_ns;
    DPB_TRY(nccl->queues->elapsed(exchange->origin, launch->marks[from], &begin_ns));
    DPB_TRY(nccl->queues->elapsed(exchange->origin, launch->marks[to], &end_ns));
    host->span(launch->first, phase, exchange->origin_ns + begin_ns, exchange->origin_ns + end_ns);
    if (ns)
        *ns += end_ns - begin_ns;
    return DPB_OK;
}

static uint32_t bank_of(const struct nccl *nccl, const struct exchange *exchange)
{
    return (uint32_t)(exchange - nccl->exchanges);
}

/* What follows the all-reduces of two rounds counts to encoding, as on the host. */
static dpb_status report_messages(const struct nccl *nccl, const struct exchange *exchange,
                                  const struct launch *launch)
{
    const uint32_t rounds = dpb_coded_rounds(codec_of(nccl));
    int64_t encode_ns = 0, decode_ns = 0;
    enum mark from = BEGUN;
    for (uint32_t round = 0; round < rounds; round++) {
        const enum mark encoded = MESSAGES + 2 * round, brought = encoded + 1;
        DPB_TRY(report_span(nccl, exchange, launch, from, encoded, DPB_PHASE_REDUCE, &encode_ns));
        DPB_TRY(report_span(nccl, exchange, launch, encoded, brought, DPB_PHASE_TRANSFER, NULL));
        from = brought;
    }
    DPB_TRY(report_span(nccl, exchange, launch, from, REDUCED, DPB_PHASE_REDUCE,
                        rounds == 1 ? &decode_ns : &encode_ns));
    return messages_report(&nccl->strategy, bank_of(nccl, exchange), launch->first, encode_ns,
                           decode_ns);
}

static dpb_status report_launch(const struct nccl *nccl, const struct exchange *exchange,
                                const struct launch *launch)
{
    DPB_TRY(codec_of(nccl)
                ? report_messages(nccl, exchange, launch)
                : report_span(nccl, exchange, launch, BEGUN, REDUCED, DPB_PHASE_TRANSFER, NULL));
    if (nccl->strategy.arenas.optimizer)
        DPB_TRY(report_span(nccl, exchange, launch, nccl->by_norms ? RESUMED : REDUCED, UPDATED,
                            DPB_PHASE_UPDATE, NULL));
    return nccl->sharded
               ? report_span(nccl, exchange, launch, UPDATED, GATHERED, DPB_PHASE_TRANSFER, NULL)
               : DPB_OK;
}

/* Counts the launches that are through; after the last one, reports all spans. */
static dpb_status exchange_look(const struct nccl *nccl, struct exchange *exchange)
{
    const struct work *work = exchange->work;
    while (exchange->n_through < work->n_launches &&
           host->event->poll(work->launches[exchange->n_through].marks[last_mark(nccl)])) {
        exchange->n_through++;
        exchange->waiting_ns = 0;
    }
    if (exchange->reported || !exchange->ended || exchange->n_through < work->n_launches ||
        !host->event->poll(work->done) || !host->event->poll(exchange->origin))
        return DPB_OK;
    for (uint64_t i = 0; i < work->n_launches; i++)
        DPB_TRY(report_launch(nccl, exchange, &work->launches[i]));
    exchange->reported = true;
    return DPB_OK;
}

/* The first part of the launch that the GPU has not finished. */
static const char *purpose_of(const struct nccl *nccl, const struct launch *launch, bool *updates)
{
    const bool reduced = host->event->poll(launch->marks[REDUCED]);
    const bool sharded = nccl->sharded;
    const bool resumed = reduced && (!nccl->by_norms || host->event->poll(launch->marks[RESUMED]));
    *updates = resumed && !(sharded && host->event->poll(launch->marks[UPDATED]));
    if (reduced && !resumed)
        return "NCCL's all-gather of sums of squares";
    if (*updates)
        return "the update by the GPU";
    if (codec_of(nccl))
        return "a codec's messages by NCCL";
    if (!sharded)
        return "NCCL's all-reduce";
    return reduced ? "NCCL's all-gather" : "NCCL's reduce-scatter";
}

/* Fails if the first launch that is not through has passed its deadline or NCCL has failed. Until
 * this rank's own backward gets there, the wait is the device's matter. A graph does not show
 * its progress: its deadline counts from its launch. */
static dpb_status exchange_watch(const struct nccl *nccl, struct exchange *exchange)
{
    if (exchange->n_through == exchange->work->n_launches)
        return DPB_OK;
    const struct launch *launch = &exchange->work->launches[exchange->n_through];
    bool updates;
    const char *purpose = purpose_of(nccl, launch, &updates);
    const struct dpb_wait what = launch_wait(nccl, exchange, launch, purpose);
    DPB_TRY(communicator_look(&nccl->communicator, &what));
    const bool captured = exchange->work == &nccl->captured;
    if (!captured && !host->event->poll(launch->marks[BEGUN])) {
        exchange->waiting_ns = 0;
        return DPB_OK;
    }
    if (exchange->waiting_ns == 0)
        host->note(updates ? "update" : "wait_peer", launch->first, UINT32_MAX);
    return host->patience(&what, &exchange->waiting_ns);
}

/* Blocks until the exchange is through, as it was before this step's forward. Then its events may
 * be recorded again. */
static dpb_status exchange_settle(const struct nccl *nccl, struct exchange *exchange)
{
    const struct dpb_wait what = {.step = exchange->step.step,
                                  .bucket = UINT64_MAX,
                                  .peer = UINT32_MAX,
                                  .purpose = "the last step's exchange"};
    if (exchange->reported)
        return DPB_OK;
    DPB_TRY(host->event->wait(exchange->work->done, &what));
    DPB_TRY(host->event->wait(exchange->origin, &what));
    return exchange_look(nccl, exchange);
}

/* Allocates launches and events for all buckets, after `bind` of the strategy. close accepts work
 * that was not opened, or only in part. */
static dpb_status work_open(const struct nccl *nccl, struct work *work)
{
    void *device = nccl->strategy.args.device->device;
    uint64_t n_buckets = nccl->strategy.arenas.n_buckets;
    work->launches = host->alloc(n_buckets * sizeof *work->launches);
    if (!work->launches)
        return DPB_NO_MEMORY;
    DPB_TRY(nccl->queues->new_event(device, &work->done));
    for (uint64_t b = 0; b < n_buckets; b++)
        for (int mark = 0; mark < MARKS; mark++)
            if (codec_of(nccl) || mark < MESSAGES || mark >= REDUCED)
                DPB_TRY(nccl->queues->new_event(device, &work->launches[b].marks[mark]));
    return DPB_OK;
}

static void work_close(const struct nccl *nccl, struct work *work)
{
    uint64_t n_buckets = nccl->strategy.arenas.n_buckets;
    for (uint64_t b = 0; work->launches && b < n_buckets; b++)
        for (int mark = 0; mark < MARKS; mark++)
            host->event->destroy(work->launches[b].marks[mark]);
    host->event->destroy(work->done);
    host->release(work->launches, n_buckets * sizeof *work->launches);
}

static dpb_status exchange_open(const struct nccl *nccl, struct exchange *exchange)
{
    exchange->reported = true;
    exchange->work = &exchange->own;
    DPB_TRY(nccl->queues->new_event(nccl->strategy.args.device->device, &exchange->origin));
    return work_open(nccl, &exchange->own);
}

/* Returns whether the GPU has finished the exchange. */
static bool exchange_is_through(const struct exchange *exchange)
{
    return exchange->reported || !exchange->own.launches ||
           (exchange->ended && host->event->poll(exchange->work->done));
}

static void exchange_close(const struct nccl *nccl, struct exchange *exchange)
{
    host->event->destroy(exchange->origin);
    work_close(nccl, &exchange->own);
}

static struct exchange *current(struct nccl *nccl)
{
    return &nccl->exchanges[(nccl->n_exchanges + 1) % 2];
}

static struct exchange *previous(struct nccl *nccl)
{
    return &nccl->exchanges[nccl->n_exchanges % 2];
}

static void drop_capture(const struct nccl *nccl)
{
    if (nccl->capture.drop)
        nccl->capture.drop(nccl->capture.context);
}

/* The job ends: NCCL's work on the GPU ends, too, whatever peers do. A capture is not on the GPU
 * yet, and an abort would wait for the end of the capture: then `close` aborts. */
static dpb_status give_up(struct nccl *nccl, dpb_status status)
{
    if (status == DPB_OK || nccl->status != DPB_OK)
        return status;
    nccl->status = status;
    if (!nccl->capturing) {
        drop_capture(nccl);
        communicator_abort(&nccl->communicator);
    }
    return status;
}

/* ---- a launch ------------------------------------------------------------------------------ */

static dpb_status reduce(struct nccl *nccl, const struct exchange *exchange,
                         const struct launch *launch)
{
    const struct dpb_strategy *comm = &nccl->strategy;
    const struct dpb_range range = launch_range(nccl, launch);
    const struct dpb_nccl_range gradients = {dpb_strategy_own_gradients(comm, range.begin),
                                             comm->arenas.layout.gradient_type,
                                             range.end - range.begin};
    const struct dpb_wait what = launch_wait(nccl, exchange, launch,
                                             codec_of(nccl)  ? "NCCL to launch an exchange"
                                             : nccl->sharded ? "NCCL to launch a reduce-scatter"
                                                             : "NCCL to launch an all-reduce");
    if (codec_of(nccl))
        return messages_exchange(comm, &nccl->communicator, bank_of(nccl, exchange), launch->first,
                                 &launch->marks[MESSAGES], &what);
    if (nccl->sharded)
        return communicator_reduce_slices(&nccl->communicator, nccl->queue, &gradients,
                                          comm->args.n_workers, &what);
    return communicator_all_reduce(&nccl->communicator, nccl->queue, &gradients, &what);
}

static dpb_status update(struct nccl *nccl, const struct exchange *exchange,
                         const struct launch *launch)
{
    const struct dpb_strategy *comm = &nccl->strategy;
    const struct dpb_range range = launch_owned(nccl, launch);
    DPB_TRY(host->optimizer->update(comm->arenas.optimizer, nccl->queue, range,
                                    dpb_strategy_own_weights(comm, range.begin),
                                    dpb_strategy_own_gradients(comm, range.begin), launch->first,
                                    nccl->capturing ? NULL : &exchange->step));
    if (!codec_of(nccl))
        return DPB_OK;
    const struct dpb_range spent =
        dpb_coded_spent(comm, launch->first, (struct dpb_range){0, range.end - range.begin});
    return spent.end > spent.begin
               ? nccl->queues->clear(nccl->queue, dpb_strategy_own_gradients(comm, spent.begin),
                                     (spent.end - spent.begin) * sizeof(float))
               : DPB_OK;
}

/* With shards: the new weights, for which peers' backward has no use any more. */
static dpb_status gather(struct nccl *nccl, const struct exchange *exchange,
                         const struct launch *launch)
{
    const struct dpb_strategy *comm = &nccl->strategy;
    const struct dpb_range range = launch_range(nccl, launch);
    const struct dpb_nccl_range weights = {dpb_strategy_own_weights(comm, range.begin),
                                           comm->arenas.layout.weight_type,
                                           range.end - range.begin};
    const struct dpb_wait what =
        launch_wait(nccl, exchange, launch, "NCCL to launch an all-gather");
    DPB_TRY(communicator_gather_slices(&nccl->communicator, nccl->queue, &weights,
                                       comm->args.n_workers, &what));
    return nccl->queues->stamp(nccl->queue, launch->marks[GATHERED]);
}

static dpb_status update_launch(struct nccl *nccl, const struct exchange *exchange,
                                const struct launch *launch)
{
    DPB_TRY(update(nccl, exchange, launch));
    DPB_TRY(nccl->queues->stamp(nccl->queue, launch->marks[UPDATED]));
    return nccl->sharded ? gather(nccl, exchange, launch) : DPB_OK;
}

/* The sums of squares of all owners, in as many rounds as the rule has. */
static dpb_status gather_squares(struct nccl *nccl, const struct exchange *exchange,
                                 const struct launch *last)
{
    const struct dpb_strategy *comm = &nccl->strategy;
    const uint32_t n_workers = comm->args.n_workers, n_tensors = comm->arenas.layout.n_tensors;
    const uint64_t n = (uint64_t)n_tensors * sizeof *nccl->squares / sizeof(double);
    const struct dpb_nccl_range range = {nccl->squares, DPB_FP64, n_workers * n};
    const struct dpb_wait what =
        launch_wait(nccl, exchange, last, "NCCL to launch an all-gather of sums of squares");
    const struct dpb_squares *all = NULL;
    for (bool more = true;; all = nccl->squares) {
        DPB_TRY(host->optimizer->squares(
            comm->arenas.optimizer, nccl->queue, nccl->capturing ? NULL : &exchange->step, all,
            n_workers, nccl->squares + (uint64_t)comm->args.rank * n_tensors, &more));
        if (!more)
            return DPB_OK;
        DPB_TRY(
            communicator_gather_slices(&nccl->communicator, nccl->queue, &range, n_workers, &what));
    }
}

/* With norms and shards: behind the last sum. */
static dpb_status update_by_norms(struct nccl *nccl)
{
    const struct exchange *exchange = current(nccl);
    const struct work *work = nccl->capturing ? &nccl->captured : &exchange->own;
    const uint64_t n = work->n_launches;
    if (!nccl->by_norms || !nccl->strategy.arenas.optimizer || n == 0)
        return DPB_OK;
    DPB_TRY(gather_squares(nccl, exchange, &work->launches[n - 1]));
    for (uint64_t i = 0; i < n; i++) {
        DPB_TRY(nccl->queues->stamp(nccl->queue, work->launches[i].marks[RESUMED]));
        DPB_TRY(update_launch(nccl, exchange, &work->launches[i]));
    }
    return DPB_OK;
}

/* Enqueues all work for the buckets that are held; with norms and shards their sums alone. By the
 * wait for backward's event the queue becomes part of a capture. */
static dpb_status launch_held(struct nccl *nccl)
{
    struct exchange *exchange = current(nccl);
    struct work *work = nccl->capturing ? &nccl->captured : &exchange->own;
    struct launch *launch = &work->launches[work->n_launches];
    if (nccl->n_held == 0)
        return DPB_OK;
    launch->first = nccl->held;
    launch->n = nccl->n_held;
    if (nccl->event)
        DPB_TRY(nccl->queues->await(nccl->queue, nccl->event));
    if (nccl->capturing && work->n_launches == 0)
        DPB_TRY(host->optimizer->capture(nccl->strategy.arenas.optimizer, nccl->queue));
    DPB_TRY(nccl->queues->stamp(nccl->queue, launch->marks[BEGUN]));
    DPB_TRY(reduce(nccl, exchange, launch));
    DPB_TRY(nccl->queues->stamp(nccl->queue, launch->marks[REDUCED]));
    if (!nccl->by_norms)
        DPB_TRY(update_launch(nccl, exchange, launch));
    work->n_launches++;
    nccl->held += nccl->n_held;
    nccl->n_held = 0;
    return DPB_OK;
}

/* All of the exchange is on its way. */
static void end_exchange(struct nccl *nccl)
{
    struct exchange *exchange = current(nccl);
    const struct dpb_arenas *arenas = &nccl->strategy.arenas;
    for (uint64_t b = 0; b < arenas->n_buckets && !codec_of(nccl); b++)
        dpb_slices_count_all_reduce(&nccl->strategy, b,
                                    nccl->sharded ? arenas->layout.weight_type
                                                  : arenas->layout.gradient_type);
    exchange->ended = true;
}

/* ---- hooks --------------------------------------------------------------------------------- */

/* Every NCCL that is new enough not to block (lib/nccl/communicator.c), and every CUDA that this
 * can be built with, can capture (2.9 and 11.3 are the least). Only the device may be unable to. */
static dpb_status settle_capture(const struct options *given, const struct dpb_comm_args *args,
                                 bool *captures)
{
    const char *why = given->capture == CAPTURE_OFF ? "comm.capture = off"
                      : args->codec                 ? "a codec encodes anew in each step"
                                                    : args->device->no_capture;
    *captures = !why;
    if (why && given->capture == CAPTURE_ON)
        return host->fail(DPB_UNSUPPORTED,
                          "comm.capture = on: backward and all-reduces cannot be captured as one "
                          "CUDA graph here: %s; set comm.capture = auto or off",
                          why);
    if (why)
        host->report("capture", "no: %s", why);
    else
        host->report("capture", "not before the second step");
    return DPB_OK;
}

static dpb_status nccl_needs(const void *options, struct dpb_comm_needs *needs)
{
    const struct options *given = options;
    needs->capabilities |= dpb_nccl_capabilities(&given->nccl);
    needs->on_device = needs->takes_events = true;
    needs->runtime = "cuda";
    return DPB_OK;
}

/* The elements of a bucket that `plan` makes of its preset: with shards the slices are equal. */
static uint64_t planned_bucket(const struct dpb_comm_args *args, bool sharded, uint64_t elements)
{
    const uint64_t n = sharded ? args->n_workers : 1;
    return (elements + n - 1) / n * n;
}

static void nccl_memory(const void *options, const struct dpb_comm_args *args,
                        const struct dpb_layout *layout, uint64_t bucket_elements,
                        struct dpb_comm_memory *memory)
{
    const struct options *given = options;
    const bool sharded = dpb_shard_wanted(args, given->shard);
    dpb_shard_memory(args, given->shard, layout, planned_bucket(args, sharded, bucket_elements),
                     memory);
    dpb_coded_memory(args, layout, bucket_elements, DPB_CODED_APART, memory);
    if (args->codec)
        memory->device_bytes += messages_bytes(args, layout, bucket_elements);
}

static dpb_status nccl_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    bool captures;
    const struct options *given = options;
    void *made;
    const char *missing = nccl_missing();
    if (missing)
        return host->fail(DPB_UNSUPPORTED, "comm nccl cannot run here: %s", missing);
    DPB_TRY(settle_capture(given, args, &captures));
    DPB_TRY(communicator_settle_options(&given->nccl, args));
    DPB_TRY(dpb_strategy_open(host, args, sizeof(struct nccl), &made));
    struct nccl *nccl = made;
    nccl->options = given->nccl;
    nccl->captures = captures;
    nccl->sharded = dpb_shard_wanted(args, given->shard);
    nccl->by_norms = nccl->sharded && args->whole;
    nccl->queues = args->device->ops;
    const dpb_status status = args->codec ? messages_attach(&nccl->strategy) : DPB_OK;
    if (status == DPB_OK)
        *comm = nccl;
    else
        dpb_strategy_close(nccl);
    return status;
}

static const struct dpb_comm_ops coded_ops;

static dpb_status nccl_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct nccl *nccl = comm;
    want->bucket_elements =
        planned_bucket(&nccl->strategy.args, nccl->sharded, want->bucket_elements);
    uint64_t n_buckets = dpb_strategy_count_buckets(layout, want->bucket_elements);
    if (n_buckets > MOST_BUCKETS)
        return host->fail(
            DPB_UNSUPPORTED,
            "comm.bucket makes %llu buckets, and comm nccl takes %d at most; take larger "
            "ones",
            (unsigned long long)n_buckets, MOST_BUCKETS);
    if (nccl_type_of(layout->gradient_type) == ncclNumTypes)
        return host->fail(DPB_UNSUPPORTED, "comm nccl does not sum gradients of type %s",
                          dpb_dtype_name(layout->gradient_type));
    want->captures = nccl->captures;
    DPB_TRY(dpb_strategy_plan_own(comm, layout, want));
    if (codec_of(nccl)) {
        want->ops = &coded_ops;
        return dpb_coded_plan(&nccl->strategy, layout, DPB_CODED_APART, want);
    }
    return nccl->sharded ? dpb_strategy_plan_parts(comm, layout, dpb_slices_own, want) : DPB_OK;
}

static dpb_status make_capture(struct nccl *nccl)
{
    if (!nccl->captures)
        return DPB_OK;
    DPB_TRY(nccl->queues->new_event(nccl->strategy.args.device->device, &nccl->in_capture));
    return work_open(nccl, &nccl->captured);
}

static dpb_status make_squares(struct nccl *nccl)
{
    const uint64_t n =
        (uint64_t)nccl->strategy.args.n_workers * nccl->strategy.arenas.layout.n_tensors;
    void *made = NULL;
    if (!nccl->by_norms)
        return DPB_OK;
    DPB_TRY(nccl->queues->allocate(nccl->strategy.args.device->device, "sums of squares",
                                   n * sizeof *nccl->squares, false, &made));
    nccl->squares = made;
    return DPB_OK;
}

static dpb_status nccl_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct nccl *nccl = comm;
    void *device = nccl->strategy.args.device->device;
    DPB_TRY(dpb_strategy_bind(&nccl->strategy, arenas, NULL, 0));
    DPB_TRY(nccl->queues->open(device, &nccl->queue));
    DPB_TRY(nccl->queues->open(device, &nccl->idle));
    DPB_TRY(exchange_open(nccl, &nccl->exchanges[0]));
    DPB_TRY(exchange_open(nccl, &nccl->exchanges[1]));
    DPB_TRY(make_capture(nccl));
    DPB_TRY(make_squares(nccl));
    if (codec_of(nccl))
        DPB_TRY(messages_bind(&nccl->strategy, nccl->queue));
    const struct dpb_nccl_group all = {.name = "workers",
                                       .rank = nccl->strategy.args.rank,
                                       .n_ranks = nccl->strategy.args.n_workers};
    return give_up(nccl, communicator_open(&nccl->options, &all, &nccl->communicator));
}

static dpb_status nccl_begin(void *comm, const struct dpb_step *step)
{
    struct nccl *nccl = comm;
    DPB_TRY(nccl->status);
    DPB_TRY(give_up(nccl, exchange_settle(nccl, previous(nccl))));
    if (codec_of(nccl))
        DPB_TRY(nccl->strategy.client->begin(&nccl->strategy));
    nccl->n_exchanges++;
    nccl->held = nccl->n_held = 0;
    struct exchange *exchange = current(nccl);
    exchange->step = *step;
    exchange->work = &exchange->own;
    exchange->own.n_launches = exchange->n_through = 0;
    exchange->waiting_ns = 0;
    exchange->ended = exchange->reported = false;
    exchange->origin_ns = host->now_ns();
    return give_up(nccl, nccl->queues->record(nccl->idle, exchange->origin));
}

static dpb_status nccl_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    struct nccl *nccl = comm;
    DPB_TRY(nccl->status);
    /* Buckets that are final by one event share a launch: when the next bucket will be final is not
     * known, and all ranks must launch the same ranges. Slices and messages are of one bucket. */
    if (nccl->n_held > 0 && (event != nccl->event || nccl->sharded || codec_of(nccl)))
        DPB_TRY(give_up(nccl, launch_held(nccl)));
    nccl->event = event;
    nccl->held = nccl->n_held == 0 ? bucket : nccl->held;
    nccl->n_held++;
    return event ? DPB_OK : give_up(nccl, launch_held(nccl));
}

static dpb_status nccl_progress(void *comm, int64_t budget_ns)
{
    enum { LOOKS = 64 };
    struct nccl *nccl = comm;
    struct exchange *const both[] = {previous(nccl), current(nccl)};
    DPB_TRY(nccl->status);
    for (int i = 0; i < (budget_ns == DPB_FOREVER ? LOOKS : 1); i++) {
        bool through = true;
        for (int e = 0; e < 2; e++) {
            if (both[e]->reported)
                continue;
            DPB_TRY(give_up(nccl, exchange_look(nccl, both[e])));
            DPB_TRY(give_up(nccl, exchange_watch(nccl, both[e])));
            through = through && both[e]->reported;
        }
        if (through)
            break;
        sched_yield(); /* there is nothing to sleep on */
    }
    return DPB_OK;
}

static dpb_status nccl_capture(void *comm, const struct dpb_capture *capture)
{
    struct nccl *nccl = comm;
    DPB_TRY(nccl->status);
    nccl->capture = *capture;
    nccl->capturing = true;
    nccl->captured.n_launches = 0;
    return DPB_OK;
}

static dpb_status end_capture(struct nccl *nccl, struct dpb_event **event)
{
    DPB_TRY(nccl->queues->stamp(nccl->queue, nccl->captured.done));
    DPB_TRY(nccl->queues->record(nccl->queue, nccl->in_capture));
    nccl->held = nccl->n_held = 0;
    nccl->capturing = false;
    *event = nccl->in_capture;
    host->report("capture", "yes");
    return DPB_OK;
}

static dpb_status nccl_replay(void *comm, struct dpb_event **done)
{
    struct nccl *nccl = comm;
    struct exchange *exchange = current(nccl);
    DPB_TRY(nccl->status);
    DPB_TRY(give_up(nccl, exchange_settle(nccl, previous(nccl))));
    host->optimizer->replay(nccl->strategy.arenas.optimizer, &exchange->step);
    exchange->work = &nccl->captured;
    end_exchange(nccl);
    *done = nccl->captured.done;
    return DPB_OK;
}

static dpb_status nccl_end(void *comm, struct dpb_event **done)
{
    struct nccl *nccl = comm;
    struct exchange *exchange = current(nccl);
    DPB_TRY(nccl->status);
    DPB_TRY(give_up(nccl, launch_held(nccl)));
    DPB_TRY(give_up(nccl, update_by_norms(nccl)));
    if (nccl->capturing)
        return give_up(nccl, end_capture(nccl, done));
    DPB_TRY(give_up(nccl, nccl->queues->record(nccl->queue, exchange->own.done)));
    DPB_TRY(give_up(nccl, exchange_look(nccl, previous(nccl))));
    end_exchange(nccl);
    *done = exchange->own.done;
    return DPB_OK;
}

static void nccl_close(void *comm)
{
    struct nccl *nccl = comm;
    if (!nccl)
        return;
    bool through = nccl->status == DPB_OK;
    for (int e = 0; e < 2; e++)
        through = through && exchange_is_through(&nccl->exchanges[e]);
    drop_capture(nccl);
    if (through)
        communicator_close(&nccl->communicator);
    else
        communicator_abort(&nccl->communicator);
    nccl->queues->close(nccl->queue);
    nccl->queues->close(nccl->idle);
    for (int e = 0; e < 2; e++)
        exchange_close(nccl, &nccl->exchanges[e]);
    host->event->destroy(nccl->in_capture);
    work_close(nccl, &nccl->captured);
    nccl->queues->release(nccl->strategy.args.device->device, nccl->squares);
    dpb_strategy_close(comm);
}

#define NCCL_HOOKS                                                                          \
    .needs = nccl_needs, .memory = nccl_memory, .open = nccl_open, .plan = nccl_plan,       \
    .bind = nccl_bind, .load = dpb_strategy_load, .begin = nccl_begin, .ready = nccl_ready, \
    .progress = nccl_progress, .end = nccl_end, .publish = dpb_strategy_publish,            \
    .close = nccl_close, .capture = nccl_capture, .replay = nccl_replay

static const struct dpb_comm_ops nccl_ops = {NCCL_HOOKS};
/* The proof by the books has other exchanges, and is for codecs alone. */
static const struct dpb_comm_ops coded_ops = {NCCL_HOOKS, DPB_CODED_HOOKS};

/* ---- plugin -------------------------------------------------------------------------------- */

static const struct dpb_plugin nccl_plugin = {
    DPB_PLUGIN_HEAD(COMM, nccl_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE | DPB_COMM_WHOLE |
                    DPB_COMM_WHOLE_SHARDS | DPB_COMM_CODECS | DPB_COMM_ROUNDS,
    .name = "nccl",
    .version = DPB_VERSION,
    .summary = "replicated in the memory of NVIDIA GPUs, all-reduced by NCCL",
    .options = option_rows,
    .options_size = sizeof(struct options),
    .libraries = nccl_versions,
    .missing = nccl_missing,
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    if (!nccl_set_up(given))
        return NULL;
    return &nccl_plugin;
}
