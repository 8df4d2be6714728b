/* device_strategy.c - see device_strategy.h. */
#include "lib/device_strategy.h"

#include <sched.h>
#include <unistd.h>

enum { SLOT_ALIGNMENT = 256, NONE = UINT32_MAX };
enum { YIELDS = 64, SHORTEST_NAP_US = 20, LONGEST_NAP_US = 1000 };

/* ---- hooks --------------------------------------------------------------------------------- */

dpb_status device_strategy_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                                size_t bytes, void **comm)
{
    if (args->n_workers > DPB_SUM_SOURCES)
        return host->fail(DPB_UNSUPPORTED,
                          "run.workers = %u: a device sums the gradients of at most %d workers",
                          args->n_workers, DPB_SUM_SOURCES);
    DPB_TRY(strategy_open(host, args, bytes, comm));
    struct device_strategy *made = *comm;
    made->ops = args->device->ops;
    made->device = args->device->device;
    return DPB_OK;
}

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The most elements that worker `owner` has of any bucket; 0: it owns nothing. Shares come round
 * within as many buckets as there are workers. */
static uint64_t largest_share(const struct device_scheme *scheme, const struct dpb_comm_args *args,
                              uint32_t owner, const struct dpb_layout *layout,
                              uint64_t bucket_elements)
{
    uint64_t n_buckets = strategy_count_buckets(layout, bucket_elements), most = 0;
    uint64_t length = strategy_longest_bucket(layout, bucket_elements);
    for (uint64_t bucket = 0; bucket < minimum(args->n_workers, n_buckets); bucket++) {
        struct dpb_range share = scheme->share(args, owner, bucket, length);
        most = share.end - share.begin > most ? share.end - share.begin : most;
    }
    return most;
}

/* A slot has room for the largest share of any owner: a worker's slots are at the same place
 * everywhere. */
static uint64_t slot_bytes_of(const struct device_scheme *scheme, const struct dpb_comm_args *args,
                              const struct dpb_layout *layout, uint64_t bucket_elements)
{
    uint64_t most = 0;
    for (uint32_t owner = 0; owner < args->n_workers; owner++) {
        uint64_t share = largest_share(scheme, args, owner, layout, bucket_elements);
        most = share > most ? share : most;
    }
    most *= dpb_dtype_size(layout->gradient_type);
    return (most + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
}

/* There are never more shares under way than there are. */
static uint64_t slots_of(const struct device_scheme *scheme, const struct dpb_layout *layout,
                         uint64_t bucket_elements)
{
    uint64_t n_buckets = strategy_count_buckets(layout, bucket_elements);
    return minimum(scheme->n_slots, (n_buckets + scheme->every - 1) / scheme->every);
}

uint64_t device_strategy_inbox(const struct device_scheme *scheme, const struct dpb_comm_args *args,
                               const struct dpb_layout *layout, uint64_t bucket_elements)
{
    if (largest_share(scheme, args, args->rank, layout, bucket_elements) == 0)
        return 0;
    return (args->n_workers - 1) * slots_of(scheme, layout, bucket_elements) *
           slot_bytes_of(scheme, args, layout, bucket_elements);
}

void device_strategy_plan(struct device_strategy *comm, const struct dpb_layout *layout,
                          struct dpb_comm_plan *want)
{
    const struct dpb_comm_args *args = &comm->base.args;
    const uint64_t elements = want->bucket_elements;
    const uint64_t inbox = device_strategy_inbox(&comm->scheme, args, layout, elements);
    comm->slot_bytes = slot_bytes_of(&comm->scheme, args, layout, elements);
    comm->scheme.n_slots = slots_of(&comm->scheme, layout, elements);
    want->scratch = DPB_MEMORY_SHARED;
    want->scratch_bytes = signals_bytes(strategy_count_buckets(layout, want->bucket_elements));
    if (inbox == 0)
        return;
    want->inbox = DPB_MEMORY_SHARED;
    want->inbox_bytes = inbox;
}

dpb_status device_flight_open(struct device_strategy *comm, struct device_lane *lane,
                              struct device_flight *flight)
{
    flight->lane = lane;
    for (int i = 0; i < DEVICE_IN_FLIGHT; i++)
        DPB_TRY(comm->ops->new_event(comm->device, &flight->events[i]));
    return DPB_OK;
}

void device_flight_close(const struct device_strategy *comm, struct device_flight *flight)
{
    for (int i = 0; i < DEVICE_IN_FLIGHT; i++)
        comm->base.host->event->destroy(flight->events[i]);
}

struct dpb_event *device_flight_event(const struct device_flight *flight, uint64_t bucket)
{
    return flight->events[bucket % DEVICE_IN_FLIGHT];
}

/* For the result: by which way this worker copies to and from the others that own something. */
static void report_ways(const struct device_strategy *comm)
{
    const struct dpb_host *host = comm->base.host;
    const struct dpb_comm_args *args = &comm->base.args;
    const struct dpb_arenas *arenas = &comm->base.arenas;
    uint32_t n_staged = 0, n_owners = 0;
    for (uint32_t rank = 0; rank < args->n_workers; rank++) {
        if (rank == args->rank ||
            largest_share(&comm->scheme, args, rank, &arenas->layout, arenas->bucket_elements) == 0)
            continue;
        n_owners++;
        n_staged += !arenas->direct[rank];
    }
    if (n_owners == 0)
        host->report("copies", "none of its own");
    else if (n_staged == 0)
        host->report("copies", "direct");
    else if (n_staged == n_owners)
        host->report("copies", "staged through the host");
    else
        host->report("copies", "direct, but staged through the host for %u of %u workers", n_staged,
                     n_owners);
}

dpb_status device_strategy_bind(struct device_strategy *comm, const struct dpb_arenas *arenas,
                                const struct stage *stages, uint32_t n_stages)
{
    const struct dpb_host *host = comm->base.host;
    comm->sources = host->alloc(comm->base.args.n_workers * sizeof *comm->sources);
    if (!comm->sources)
        return DPB_NO_MEMORY;
    DPB_TRY(comm->ops->open(comm->device, &comm->out.queue));
    DPB_TRY(comm->ops->open(comm->device, &comm->here.queue));
    DPB_TRY(comm->ops->open(comm->device, &comm->back.queue));
    DPB_TRY(device_flight_open(comm, &comm->out, &comm->pushes));
    DPB_TRY(device_flight_open(comm, &comm->here, &comm->sums));
    DPB_TRY(device_flight_open(comm, &comm->back, &comm->pulls));
    DPB_TRY(device_flight_open(comm, comm->scheme.gives_weights ? &comm->here : &comm->back,
                               &comm->updates));
    DPB_TRY(strategy_bind(&comm->base, arenas, stages, n_stages));
    report_ways(comm);
    return DPB_OK;
}

dpb_status device_strategy_begin(void *comm_, const struct dpb_step *step)
{
    struct device_strategy *comm = comm_;
    struct device_flight *const flights[] = {&comm->pushes, &comm->sums, &comm->pulls,
                                             &comm->updates};
    for (size_t i = 0; i < sizeof flights / sizeof *flights; i++)
        flights[i]->begun = flights[i]->landed = 0;
    comm->awaited = NULL;
    return strategy_begin(comm, step);
}

dpb_status device_strategy_progress(void *comm_, int64_t budget_ns)
{
    struct device_strategy *comm = comm_;
    dpb_status status = pipeline_progress(&comm->base.pipeline, budget_ns);
    return comm->status != DPB_OK ? comm->status : status;
}

void device_strategy_close(void *comm_)
{
    struct device_strategy *comm = comm_;
    if (!comm)
        return;
    const struct dpb_host *host = comm->base.host;
    comm->ops->close(comm->out.queue);
    comm->ops->close(comm->here.queue);
    comm->ops->close(comm->back.queue);
    device_flight_close(comm, &comm->pushes);
    device_flight_close(comm, &comm->sums);
    device_flight_close(comm, &comm->pulls);
    device_flight_close(comm, &comm->updates);
    host->release(comm->sources, comm->base.args.n_workers * sizeof *comm->sources);
    strategy_close(comm);
}

/* ---- shares -------------------------------------------------------------------------------- */

struct dpb_range device_share(const struct device_strategy *comm, uint32_t owner, uint64_t bucket)
{
    return comm->scheme.share(&comm->base.args, owner, bucket,
                              pipeline_bucket_length(&comm->base.pipeline, bucket));
}

bool device_owns(const struct device_strategy *comm, uint32_t owner, uint64_t bucket)
{
    struct dpb_range share = device_share(comm, owner, bucket);
    return share.end > share.begin;
}

uint32_t device_missing(const struct device_strategy *comm, enum signal_kind kind, bool owners,
                        uint64_t bucket)
{
    for (uint32_t rank = 0; rank < comm->base.args.n_workers; rank++) {
        struct rank_set one = {rank, 1};
        if ((!owners || device_owns(comm, rank, bucket)) &&
            !signals_reached(&comm->base.signals, kind, one, bucket))
            return rank;
    }
    return NONE;
}

/* The slot of `from` for a bucket in the inbox of `owner`. */
static char *slot(const struct device_strategy *comm, uint32_t owner, uint32_t from,
                  uint64_t bucket)
{
    uint64_t turn = bucket / comm->scheme.every % comm->scheme.n_slots;
    uint64_t row = from < owner ? from : from - 1;
    return (char *)comm->base.arenas.peer_inbox[owner] +
           (row * comm->scheme.n_slots + turn) * comm->slot_bytes;
}

/* Whether this rank's slots for the bucket are free at all of its owners, which is when they have
 * summed what was there before; else the first owner that has not. */
static uint32_t full_inbox(const struct device_strategy *comm, uint64_t bucket)
{
    uint64_t window = comm->scheme.n_slots * comm->scheme.every;
    if (bucket < window) /* then it was a bucket of an exchange that is over */
        return NONE;
    return device_missing(comm, SIGNAL_REDUCED, true, bucket - window);
}

/* ---- work under way ------------------------------------------------------------------------ */

bool device_has_room(const struct device_strategy *comm, const struct device_flight *flight)
{
    return comm->status == DPB_OK && flight->begun < flight->landed + DEVICE_IN_FLIGHT;
}

void device_keep(struct device_strategy *comm, dpb_status status)
{
    if (comm->status == DPB_OK)
        comm->status = status;
}

void device_begun(struct device_strategy *comm, struct device_flight *flight, uint64_t bucket,
                  bool empty)
{
    uint64_t i = bucket % DEVICE_IN_FLIGHT;
    flight->began_ns[i] = comm->base.host->now_ns();
    flight->empty[i] = empty;
    flight->begun++;
    if (!empty && comm->status == DPB_OK)
        device_keep(comm, comm->ops->record(flight->lane->queue, flight->events[i]));
}

bool device_is_done(const struct device_strategy *comm, const struct device_flight *flight,
                    uint64_t bucket)
{
    uint64_t i = bucket % DEVICE_IN_FLIGHT;
    return comm->status == DPB_OK &&
           (flight->empty[i] || comm->base.host->event->poll(flight->events[i]));
}

/* As messages name it. */
static uint32_t own_rank(const struct device_strategy *comm)
{
    uint32_t place = comm->base.args.rank;
    return comm->base.signals.ranks ? comm->base.signals.ranks[place] : place;
}

/* Work begins when it was given to the queue and the queue is through with what came before. */
bool device_landed(struct device_strategy *comm, struct device_flight *flight, uint64_t bucket,
                   dpb_phase phase)
{
    const struct dpb_host *host = comm->base.host;
    const struct dpb_wait what = {.step = comm->base.step.step,
                                  .bucket = bucket,
                                  .peer = own_rank(comm),
                                  .purpose = "its own device"};
    uint64_t i = bucket % DEVICE_IN_FLIGHT;
    int64_t began_ns = flight->began_ns[i], now_ns = host->now_ns();
    flight->landed++;
    if (flight->empty[i])
        return true;
    if (flight->lane->free_ns > began_ns)
        began_ns = flight->lane->free_ns;
    flight->lane->free_ns = now_ns;
    host->span(bucket, phase, began_ns, now_ns);
    device_keep(comm,
                host->event->wait(flight->events[i], &what)); /* at once: it has fired or failed */
    return comm->status == DPB_OK;
}

/* ---- work ---------------------------------------------------------------------------------- */

static uint64_t arena_at(const struct device_strategy *comm, uint64_t bucket,
                         struct dpb_range share)
{
    return bucket * comm->base.arenas.bucket_elements + share.begin;
}

bool device_sum(struct device_strategy *comm, uint64_t bucket)
{
    const struct strategy *base = &comm->base;
    struct dpb_range share = device_share(comm, base->args.rank, bucket);
    void *own = strategy_gradients(base, base->args.rank, arena_at(comm, bucket, share));
    if (share.end == share.begin || base->args.n_workers == 1)
        return false;
    for (uint32_t rank = 0; rank < base->args.n_workers; rank++)
        comm->sources[rank] =
            rank == base->args.rank ? own : slot(comm, base->args.rank, rank, bucket);
    device_keep(comm, comm->ops->sum(comm->sums.lane->queue, base->arenas.layout.gradient_type, own,
                                     comm->sources, base->args.n_workers, share.end - share.begin));
    return true;
}

bool device_update(struct device_strategy *comm, const struct device_flight *flight,
                   uint64_t bucket, struct dpb_range elements)
{
    const struct strategy *base = &comm->base;
    uint64_t begin = arena_at(comm, bucket, elements);
    uint64_t end = begin + elements.end - elements.begin;
    if (end == begin || comm->status != DPB_OK)
        return false;
    device_keep(comm,
                base->host->optimizer->update(
                    base->arenas.optimizer, flight->lane->queue, (struct dpb_range){begin, end},
                    strategy_weights(base, base->args.rank, begin),
                    strategy_gradients(base, base->args.rank, begin), bucket, &base->step));
    return true;
}

/* Before the copy the owners may have waited for a late worker, and then worked for this one. */
static void report_owners(const struct device_strategy *comm, uint64_t bucket)
{
    const struct strategy *base = &comm->base;
    int64_t ready_ns =
        signals_latest_ns(&base->signals, SIGNAL_READY, strategy_workers(base), bucket);
    int64_t reduced_ns = ready_ns;
    signals_span_late_peer(&base->signals, strategy_workers(base), bucket);
    for (uint32_t owner = 0; owner < base->args.n_workers; owner++) {
        struct rank_set one = {owner, 1};
        if (owner == base->args.rank || !device_owns(comm, owner, bucket))
            continue;
        int64_t at_ns = signals_latest_ns(&base->signals, SIGNAL_REDUCED, one, bucket);
        reduced_ns = at_ns > reduced_ns ? at_ns : reduced_ns;
    }
    if (reduced_ns > ready_ns)
        base->host->span(bucket, DPB_PHASE_TRANSFER, ready_ns, reduced_ns);
}

static dpb_dtype pulled_type(const struct device_strategy *comm)
{
    const struct dpb_layout *layout = &comm->base.arenas.layout;
    return comm->scheme.gives_weights ? layout->weight_type : layout->gradient_type;
}

bool device_pull(struct device_strategy *comm, uint64_t bucket)
{
    const struct strategy *base = &comm->base;
    size_t size = dpb_dtype_size(pulled_type(comm));
    void *(*const arena)(const struct strategy *, uint32_t, uint64_t) =
        comm->scheme.gives_weights ? strategy_weights : strategy_gradients;
    bool any = false;
    report_owners(comm, bucket);
    for (uint32_t owner = 0; owner < base->args.n_workers && comm->status == DPB_OK; owner++) {
        struct dpb_range share = device_share(comm, owner, bucket);
        uint64_t at = arena_at(comm, bucket, share), bytes = (share.end - share.begin) * size;
        if (owner == base->args.rank || bytes == 0)
            continue;
        device_keep(comm, comm->ops->copy(comm->pulls.lane->queue, arena(base, base->args.rank, at),
                                          arena(base, owner, at), bytes));
        base->host->count_bytes(bytes);
        any = true;
    }
    return any;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Sleeping for a peer's signal alone would miss what the device has done, and other peers' signals:
 * so this looks, at first at once, then every few microseconds, and the less often the longer it
 * lasts. */
static dpb_status look_again(struct device_strategy *comm, const struct dpb_wait *what,
                             const char *phase)
{
    const struct dpb_host *host = comm->base.host;
    if (comm->status != DPB_OK)
        return comm->status;
    if (comm->awaited != what->purpose || comm->awaited_bucket != what->bucket ||
        comm->awaited_peer != what->peer) {
        comm->awaited = what->purpose;
        comm->awaited_bucket = what->bucket;
        comm->awaited_peer = what->peer;
        comm->waiting_ns = comm->looks = 0;
        comm->nap_us = SHORTEST_NAP_US;
        host->note(phase, what->bucket, what->peer);
    }
    DPB_TRY(host->patience(what, &comm->waiting_ns));
    if (comm->looks++ < YIELDS)
        sched_yield();
    else
        usleep(comm->nap_us);
    if (comm->looks > YIELDS && comm->nap_us < LONGEST_NAP_US)
        comm->nap_us += comm->nap_us / SHORTEST_NAP_US;
    return DPB_OK;
}

dpb_status device_wait(struct device_strategy *comm, uint64_t bucket, uint32_t peer, dpb_dtype type,
                       const char *purpose)
{
    uint64_t length = pipeline_bucket_length(&comm->base.pipeline, bucket);
    const struct dpb_wait what = {.step = comm->base.step.step,
                                  .bucket = bucket,
                                  .bytes = length * dpb_dtype_size(type),
                                  .peer = peer,
                                  .purpose = purpose};
    return look_again(comm, &what, "wait_peer");
}

dpb_status device_wait_landing(struct device_strategy *comm, uint64_t bucket, const char *purpose)
{
    const struct dpb_wait what = {
        .step = comm->base.step.step, .bucket = bucket, .peer = own_rank(comm), .purpose = purpose};
    return look_again(comm, &what, "exchange");
}

/* ---- stage: push --------------------------------------------------------------------------- */

static bool own_ready(const struct device_strategy *comm, uint64_t bucket)
{
    return signals_reached(&comm->base.signals, SIGNAL_READY, strategy_self(&comm->base), bucket);
}

bool device_push_due(void *comm_, uint64_t bucket)
{
    const struct device_strategy *comm = comm_;
    return device_has_room(comm, &comm->pushes) && own_ready(comm, bucket) &&
           full_inbox(comm, bucket) == NONE;
}

/* The first bucket that has not gone through all stages is here: nothing else is under way. */
dpb_status device_push_wait(void *comm_, uint64_t bucket)
{
    struct device_strategy *comm = comm_;
    uint32_t owner = full_inbox(comm, bucket);
    if (!own_ready(comm, bucket))
        return strategy_wait_ready(&comm->base, strategy_self(&comm->base), bucket);
    return owner == NONE ? comm->status
                         : device_wait(comm, bucket, owner, comm->base.arenas.layout.gradient_type,
                                       "a free slot in the inbox of the bucket's owner");
}

void device_push(void *comm_, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct device_strategy *comm = comm_;
    const struct strategy *base = &comm->base;
    size_t size = dpb_dtype_size(base->arenas.layout.gradient_type);
    bool any = false;
    (void)until_ns;
    for (uint32_t owner = 0; owner < base->args.n_workers && comm->status == DPB_OK; owner++) {
        struct dpb_range share = device_share(comm, owner, bucket);
        uint64_t bytes = (share.end - share.begin) * size;
        if (owner == base->args.rank || bytes == 0)
            continue;
        device_keep(comm,
                    comm->ops->copy(
                        comm->pushes.lane->queue, slot(comm, owner, base->args.rank, bucket),
                        strategy_gradients(base, base->args.rank, arena_at(comm, bucket, share)),
                        bytes));
        base->host->count_bytes(bytes);
        any = true;
    }
    device_begun(comm, &comm->pushes, bucket, !any);
    *at = length;
}

bool device_pushed_due(void *comm_, uint64_t bucket)
{
    const struct device_strategy *comm = comm_;
    return device_is_done(comm, &comm->pushes, bucket);
}

dpb_status device_pushed_wait(void *comm, uint64_t bucket)
{
    return device_wait_landing(comm, bucket, "its device to copy gradients to the owners");
}

void device_pushed(void *comm_, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct device_strategy *comm = comm_;
    (void)until_ns;
    if (device_landed(comm, &comm->pushes, bucket, DPB_PHASE_TRANSFER))
        signals_raise(&comm->base.signals, SIGNAL_PUSHED, bucket);
    *at = length;
}

/* ---- stage: sum ---------------------------------------------------------------------------- */

/* Who owns nothing of the bucket has nothing to wait for. */
static uint32_t missing_gradients(const struct device_strategy *comm, uint64_t bucket)
{
    bool owns = device_owns(comm, comm->base.args.rank, bucket);
    return owns ? device_missing(comm, SIGNAL_PUSHED, false, bucket) : NONE;
}

bool device_sum_due(void *comm_, uint64_t bucket)
{
    const struct device_strategy *comm = comm_;
    return device_has_room(comm, &comm->sums) && device_has_room(comm, &comm->updates) &&
           missing_gradients(comm, bucket) == NONE;
}

dpb_status device_sum_wait(void *comm_, uint64_t bucket)
{
    struct device_strategy *comm = comm_;
    uint32_t worker = missing_gradients(comm, bucket);
    return worker == NONE
               ? comm->status
               : device_wait(comm, bucket, worker, comm->base.arenas.layout.gradient_type,
                             "gradients of the peer");
}

bool device_summed_due(void *comm_, uint64_t bucket)
{
    const struct device_strategy *comm = comm_;
    return device_is_done(comm, &comm->sums, bucket);
}

dpb_status device_summed_wait(void *comm, uint64_t bucket)
{
    return device_wait_landing(comm, bucket, "its device to sum gradients");
}

/* ---- stage: pull --------------------------------------------------------------------------- */

/* An update may follow in the same stage. */
bool device_pull_due(void *comm_, uint64_t bucket)
{
    const struct device_strategy *comm = comm_;
    return device_has_room(comm, &comm->pulls) && device_has_room(comm, &comm->updates) &&
           device_missing(comm, SIGNAL_REDUCED, true, bucket) == NONE;
}

dpb_status device_pull_wait(void *comm_, uint64_t bucket)
{
    struct device_strategy *comm = comm_;
    uint32_t owner = device_missing(comm, SIGNAL_REDUCED, true, bucket);
    return owner == NONE
               ? comm->status
               : device_wait(comm, bucket, owner, pulled_type(comm),
                             comm->scheme.gives_weights ? "new weights from the shard"
                                                        : "the sum from the bucket's owner");
}

bool device_pulled_due(void *comm_, uint64_t bucket)
{
    const struct device_strategy *comm = comm_;
    return device_is_done(comm, &comm->pulls, bucket);
}

dpb_status device_pulled_wait(void *comm, uint64_t bucket)
{
    return device_wait_landing(comm, bucket, "its device to copy from the owners");
}

/* ---- stage: update ------------------------------------------------------------------------- */

bool device_updated_due(void *comm_, uint64_t bucket)
{
    const struct device_strategy *comm = comm_;
    return device_is_done(comm, &comm->updates, bucket);
}

dpb_status device_updated_wait(void *comm, uint64_t bucket)
{
    return device_wait_landing(comm, bucket, "its device to update weights");
}
