/* device_strategy.c - see device_strategy.h. */
#include "lib/device_strategy/device_strategy.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { SLOT_ALIGNMENT = 256, NONE = UINT32_MAX };
enum { YIELDS = 64, SHORTEST_NAP_US = 20, LONGEST_NAP_US = 1000 };

/* ---- work under way on a device ------------------------------------------------------------- */

dpb_status dpb_device_lanes_open(struct dpb_device_strategy *comm)
{
    DPB_TRY(comm->ops->open(comm->device, &comm->out.queue));
    DPB_TRY(comm->ops->open(comm->device, &comm->here.queue));
    return comm->ops->open(comm->device, &comm->back.queue);
}

dpb_status dpb_device_flight_open(struct dpb_device_strategy *comm, uint32_t flight,
                                  struct dpb_device_lane *lane, enum dpb_signal_kind raises)
{
    struct dpb_device_flight *made = &comm->flights[flight];
    made->lane = lane;
    made->raises = raises;
    for (int i = 0; i < DPB_DEVICE_IN_FLIGHT; i++)
        DPB_TRY(comm->ops->new_event(comm->device, &made->events[i]));
    return DPB_OK;
}

/* Queues first: until then their work may use the events, and the targets of copies. */
void dpb_device_flights_close(struct dpb_device_strategy *comm)
{
    struct dpb_device_lane *const lanes[] = {&comm->out, &comm->here, &comm->back};
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
        comm->ops->close(lanes[i]->queue);
        lanes[i]->queue = NULL;
    }
    for (int flight = 0; flight < DPB_DEVICE_FLIGHTS; flight++)
        for (int i = 0; i < DPB_DEVICE_IN_FLIGHT; i++) {
            comm->base.host->event->destroy(comm->flights[flight].events[i]);
            comm->flights[flight].events[i] = NULL;
        }
}

bool dpb_device_all_landed(const struct dpb_device_strategy *comm)
{
    for (int i = 0; i < DPB_DEVICE_FLIGHTS; i++)
        if (comm->flights[i].begun != comm->flights[i].landed)
            return false;
    return true;
}

struct dpb_event *dpb_device_flight_event(const struct dpb_device_strategy *comm, uint32_t flight,
                                          uint64_t bucket)
{
    return comm->flights[flight].events[bucket % DPB_DEVICE_IN_FLIGHT];
}

bool dpb_device_has_room(const struct dpb_device_strategy *comm, uint32_t flight)
{
    const struct dpb_device_flight *of = &comm->flights[flight];
    const bool room = comm->in_place || of->begun < of->landed + DPB_DEVICE_IN_FLIGHT;
    return room && comm->status == DPB_OK;
}

void dpb_device_keep(struct dpb_device_strategy *comm, dpb_status status)
{
    if (comm->status == DPB_OK)
        comm->status = status;
}

static void raise_signal(const struct dpb_device_strategy *comm,
                         const struct dpb_device_flight *flight, uint64_t bucket)
{
    if (flight->raises != DPB_N_SIGNALS && comm->status == DPB_OK)
        dpb_signals_raise(&comm->base.signals, flight->raises, bucket);
}

void dpb_device_begun(struct dpb_device_strategy *comm, uint32_t flight, uint64_t bucket,
                      bool empty)
{
    struct dpb_device_flight *of = &comm->flights[flight];
    uint64_t i = bucket % DPB_DEVICE_IN_FLIGHT;
    of->began_ns[i] = comm->base.host->now_ns();
    of->empty[i] = empty || comm->in_place;
    of->begun++;
    if (comm->in_place)
        raise_signal(comm, of, bucket);
    else if (!empty && comm->status == DPB_OK)
        dpb_device_keep(comm, comm->ops->record(of->lane->queue, of->events[i]));
}

/* Work begins when it was given to the queue and the queue has finished all work before. */
static void see_landing(struct dpb_device_strategy *comm, struct dpb_device_flight *flight,
                        uint64_t bucket, const struct dpb_stage_flight *kind)
{
    const struct dpb_host *host = comm->base.host;
    const struct dpb_wait what = {.step = comm->base.step.step,
                                  .bucket = bucket,
                                  .peer =
                                      dpb_signals_rank(&comm->base.signals, comm->base.args.rank),
                                  .purpose = "its own device"};
    uint64_t i = bucket % DPB_DEVICE_IN_FLIGHT;
    int64_t began_ns = flight->began_ns[i], now_ns = host->now_ns();
    if (flight->lane->idle_since_ns > began_ns)
        began_ns = flight->lane->idle_since_ns;
    flight->lane->idle_since_ns = now_ns;
    host->span(bucket, kind->phase, began_ns, now_ns);
    dpb_device_keep(
        comm, host->event->wait(flight->events[i], &what)); /* at once: it has fired or failed */
    if (comm->landed && comm->status == DPB_OK)
        comm->landed(comm, kind->kind, bucket, now_ns - began_ns);
}

static bool is_done(const void *strategy, uint64_t bucket, const struct dpb_stage_flight *flight)
{
    const struct dpb_device_strategy *comm = strategy;
    const struct dpb_device_flight *of = &comm->flights[flight->kind];
    uint64_t i = bucket % DPB_DEVICE_IN_FLIGHT;
    return comm->status == DPB_OK && (of->empty[i] || comm->base.host->event->poll(of->events[i]));
}

static void land(void *strategy, uint64_t bucket, const struct dpb_stage_flight *flight)
{
    struct dpb_device_strategy *comm = strategy;
    struct dpb_device_flight *of = &comm->flights[flight->kind];
    of->landed++;
    if (!of->empty[bucket % DPB_DEVICE_IN_FLIGHT])
        see_landing(comm, of, bucket, flight);
    if (!comm->in_place)
        raise_signal(comm, of, bucket);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Sleeping for a peer's signal alone would miss the device's progress, and other peers' signals. So
 * this polls: at first at once, then every few microseconds, and the less often the longer the wait
 * lasts. */
static dpb_status look_again(struct dpb_device_strategy *comm, const struct dpb_wait *what,
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

dpb_status dpb_device_wait(struct dpb_device_strategy *comm, uint64_t bucket, uint32_t peer,
                           dpb_dtype type, const char *purpose)
{
    uint64_t length = dpb_pipeline_bucket_length(&comm->base.pipeline, bucket);
    const struct dpb_wait what = {.step = comm->base.step.step,
                                  .bucket = bucket,
                                  .bytes = length * dpb_dtype_size(type),
                                  .peer = peer,
                                  .purpose = purpose};
    return look_again(comm, &what, "wait_peer");
}

dpb_status dpb_device_wait_signal(struct dpb_device_strategy *comm, enum dpb_signal_kind kind,
                                  uint32_t peer, uint64_t bucket, dpb_dtype type,
                                  const char *purpose)
{
    if (peer == NONE)
        return comm->status;
    if (comm->in_place)
        return dpb_strategy_wait(&comm->base, kind, (struct dpb_rank_set){peer, 1}, bucket, type,
                                 purpose);
    const uint32_t count = comm->base.host->flag->get(&comm->base.signals.pages[peer]->flags[kind]);
    if (count != comm->awaited_count)
        comm->awaited = NULL;
    comm->awaited_count = count;
    return dpb_device_wait(comm, bucket, peer, type, purpose);
}

static dpb_status wait_landing(void *strategy, uint64_t bucket,
                               const struct dpb_stage_flight *flight)
{
    struct dpb_device_strategy *comm = strategy;
    const struct dpb_wait what = {.step = comm->base.step.step,
                                  .bucket = bucket,
                                  .peer =
                                      dpb_signals_rank(&comm->base.signals, comm->base.args.rank),
                                  .purpose = flight->purpose};
    return look_again(comm, &what, "exchange");
}

const struct dpb_stage_flight_ops dpb_device_flight_ops = {is_done, land, wait_landing};

/* ---- hooks --------------------------------------------------------------------------------- */

dpb_status dpb_device_strategy_needs(const void *options, struct dpb_comm_needs *needs)
{
    (void)options;
    needs->on_device = true;
    return DPB_OK;
}

dpb_status dpb_device_strategy_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                                    size_t bytes, void **comm)
{
    const bool in_place = strcmp(args->device->ops->runtime, "host") == 0;
    if (!in_place && args->n_workers > DPB_SUM_SOURCES)
        return host->fail(DPB_UNSUPPORTED,
                          "%u workers: a device sums the gradients of at most %d workers",
                          args->n_workers, DPB_SUM_SOURCES);
    DPB_TRY(dpb_strategy_open(host, args, bytes, comm));
    struct dpb_device_strategy *made = *comm;
    made->ops = args->device->ops;
    made->device = args->device->device;
    made->in_place = in_place;
    return DPB_OK;
}

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The most elements that worker `owner` has of any bucket; 0: it owns nothing. Shares come round
 * within as many buckets as there are workers. */
static uint64_t largest_share(const struct dpb_device_scheme *scheme,
                              const struct dpb_comm_args *args, uint32_t owner,
                              const struct dpb_layout *layout, uint64_t bucket_elements)
{
    uint64_t n_buckets = dpb_strategy_count_buckets(layout, bucket_elements), most = 0;
    uint64_t length = dpb_strategy_longest_bucket(layout, bucket_elements);
    for (uint64_t bucket = 0; bucket < minimum(args->n_workers, n_buckets); bucket++) {
        struct dpb_range share = scheme->share(args, owner, bucket, length);
        most = share.end - share.begin > most ? share.end - share.begin : most;
    }
    return most;
}

/* A slot has room for the largest share of any owner: a worker's slots are at the same place
 * everywhere. */
static uint64_t slot_bytes_of(const struct dpb_device_scheme *scheme,
                              const struct dpb_comm_args *args, const struct dpb_layout *layout,
                              uint64_t bucket_elements)
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
static uint64_t slots_of(const struct dpb_device_scheme *scheme, const struct dpb_layout *layout,
                         uint64_t bucket_elements)
{
    uint64_t n_buckets = dpb_strategy_count_buckets(layout, bucket_elements);
    return minimum(scheme->n_slots, (n_buckets + scheme->every - 1) / scheme->every);
}

uint64_t dpb_device_strategy_inbox(const struct dpb_device_scheme *scheme,
                                   const struct dpb_comm_args *args,
                                   const struct dpb_layout *layout, uint64_t bucket_elements)
{
    if (largest_share(scheme, args, args->rank, layout, bucket_elements) == 0)
        return 0;
    return (args->n_workers - 1) * slots_of(scheme, layout, bucket_elements) *
           slot_bytes_of(scheme, args, layout, bucket_elements);
}

void dpb_device_strategy_plan(struct dpb_device_strategy *comm, const struct dpb_layout *layout,
                              struct dpb_comm_plan *want)
{
    const struct dpb_comm_args *args = &comm->base.args;
    const uint64_t elements = want->bucket_elements;
    const uint64_t inbox =
        comm->in_place ? 0 : dpb_device_strategy_inbox(&comm->scheme, args, layout, elements);
    comm->slot_bytes = slot_bytes_of(&comm->scheme, args, layout, elements);
    comm->scheme.n_slots = slots_of(&comm->scheme, layout, elements);
    want->scratch = DPB_MEMORY_SHARED;
    want->scratch_bytes =
        dpb_signals_bytes(dpb_strategy_count_buckets(layout, want->bucket_elements));
    want->inbox = inbox > 0 ? DPB_MEMORY_SHARED : DPB_MEMORY_NONE;
    want->inbox_bytes = inbox;
}

void dpb_device_report_ways(const struct dpb_device_strategy *comm)
{
    const struct dpb_host *host = comm->base.host;
    const struct dpb_comm_args *args = &comm->base.args;
    const struct dpb_arenas *arenas = &comm->base.arenas;
    uint32_t n_staged = 0, n_owners = 0;
    if (comm->in_place)
        return;
    for (uint32_t rank = 0; rank < args->n_workers; rank++) {
        if (rank == args->rank ||
            (comm->scheme.share && largest_share(&comm->scheme, args, rank, &arenas->layout,
                                                 arenas->bucket_elements) == 0))
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

dpb_status dpb_device_strategy_bind(struct dpb_device_strategy *comm,
                                    const struct dpb_arenas *arenas, const struct dpb_stage *stages,
                                    const struct dpb_stage_flight *const *flights,
                                    uint32_t n_stages)
{
    const struct dpb_host *host = comm->base.host;
    comm->sources = host->alloc(comm->base.args.n_workers * sizeof *comm->sources);
    if (!comm->sources)
        return DPB_NO_MEMORY;
    const bool gives_weights = comm->scheme.gives_weights;
    DPB_TRY(dpb_device_lanes_open(comm));
    DPB_TRY(dpb_device_flight_open(comm, DPB_DEVICE_PUSHES, &comm->out, DPB_SIGNAL_PUSHED));
    DPB_TRY(dpb_device_flight_open(comm, DPB_DEVICE_SUMS, &comm->here,
                                   gives_weights ? DPB_N_SIGNALS : DPB_SIGNAL_REDUCED));
    DPB_TRY(dpb_device_flight_open(comm, DPB_DEVICE_PULLS, &comm->back, DPB_SIGNAL_TAKEN));
    DPB_TRY(dpb_device_flight_open(comm, DPB_DEVICE_UPDATES,
                                   gives_weights ? &comm->here : &comm->back,
                                   gives_weights ? DPB_SIGNAL_REDUCED : DPB_N_SIGNALS));
    const uint32_t first = comm->in_place; /* without dpb_device_push */
    DPB_TRY(dpb_strategy_bind(&comm->base, arenas, stages + first, n_stages - first));
    comm->base.pipeline.flights = flights + first;
    comm->base.pipeline.flight_ops = &dpb_device_flight_ops;
    dpb_device_report_ways(comm);
    return DPB_OK;
}

dpb_status dpb_device_strategy_begin(void *comm_, const struct dpb_step *step)
{
    struct dpb_device_strategy *comm = comm_;
    for (int i = 0; i < DPB_DEVICE_FLIGHTS; i++)
        comm->flights[i].begun = comm->flights[i].landed = 0;
    comm->awaited = NULL;
    return dpb_strategy_begin(comm, step);
}

dpb_status dpb_device_strategy_progress(void *comm_, int64_t budget_ns)
{
    struct dpb_device_strategy *comm = comm_;
    dpb_status status = dpb_pipeline_progress(&comm->base.pipeline, budget_ns);
    return comm->status != DPB_OK ? comm->status : status;
}

void dpb_device_strategy_close(void *comm_)
{
    struct dpb_device_strategy *comm = comm_;
    if (!comm)
        return;
    const struct dpb_host *host = comm->base.host;
    dpb_device_flights_close(comm);
    host->release(comm->sources, comm->base.args.n_workers * sizeof *comm->sources);
    dpb_strategy_close(comm);
}

/* ---- shares -------------------------------------------------------------------------------- */

/* The share of a bucket that worker `owner` sums. */
static struct dpb_range share_in(const struct dpb_device_strategy *comm, uint32_t owner,
                                 uint64_t bucket)
{
    return comm->scheme.share(&comm->base.args, owner, bucket,
                              dpb_pipeline_bucket_length(&comm->base.pipeline, bucket));
}

/* The part of the piece that worker `owner` sums. */
static struct dpb_range share_of(const struct dpb_device_strategy *comm, uint32_t owner,
                                 uint64_t bucket, struct dpb_range piece)
{
    struct dpb_range share = share_in(comm, owner, bucket);
    uint64_t begin = share.begin > piece.begin ? share.begin : piece.begin;
    uint64_t end = minimum(share.end, piece.end);
    return (struct dpb_range){begin, end > begin ? end : begin};
}

bool dpb_device_owns(const struct dpb_device_strategy *comm, uint32_t owner, uint64_t bucket)
{
    struct dpb_range share = share_in(comm, owner, bucket);
    return share.end > share.begin;
}

struct dpb_range dpb_device_piece(const struct dpb_device_strategy *comm,
                                  struct dpb_stage_turn *turn)
{
    const uint64_t size = dpb_dtype_size(comm->base.arenas.layout.gradient_type);
    const uint64_t most = comm->in_place ? DPB_CHUNK_BYTES / size : turn->length;
    const uint64_t begin = turn->at;
    turn->at = minimum(begin + most, turn->length);
    return (struct dpb_range){begin, turn->at};
}

uint32_t dpb_device_missing(const struct dpb_device_strategy *comm, enum dpb_signal_kind kind,
                            bool owners, uint64_t bucket)
{
    for (uint32_t rank = 0; rank < comm->base.args.n_workers; rank++) {
        struct dpb_rank_set one = {rank, 1};
        if ((!owners || dpb_device_owns(comm, rank, bucket)) &&
            !dpb_signals_reached(&comm->base.signals, kind, one, bucket))
            return rank;
    }
    return NONE;
}

/* The slot of `from` for a bucket in the inbox of `owner`. */
static char *slot(const struct dpb_device_strategy *comm, uint32_t owner, uint32_t from,
                  uint64_t bucket)
{
    uint64_t turn = bucket / comm->scheme.every % comm->scheme.n_slots;
    uint64_t row = from < owner ? from : from - 1;
    return (char *)comm->base.arenas.peer_inbox[owner] +
           (row * comm->scheme.n_slots + turn) * comm->slot_bytes;
}

/* The first owner of the bucket that has not summed the previous content of this rank's slot; NONE:
 * the slots are free at all owners. */
static uint32_t full_inbox(const struct dpb_device_strategy *comm, uint64_t bucket)
{
    uint64_t window = comm->scheme.n_slots * comm->scheme.every;
    if (bucket < window) /* then it was a bucket of an exchange that is over */
        return NONE;
    return dpb_device_missing(comm, DPB_SIGNAL_REDUCED, true, bucket - window);
}

/* ---- work ---------------------------------------------------------------------------------- */

static uint64_t arena_at(const struct dpb_device_strategy *comm, uint64_t bucket,
                         struct dpb_range share)
{
    return bucket * comm->base.arenas.bucket_elements + share.begin;
}

/* The host's work is done when it is given, so its time is known at once. */
static void report_done(const struct dpb_device_strategy *comm, uint64_t bucket, dpb_phase phase,
                        int64_t began_ns)
{
    const struct dpb_host *host = comm->base.host;
    if (comm->in_place)
        host->span(bucket, phase, began_ns, host->now_ns());
}

static bool ends_bucket(const struct dpb_device_strategy *comm, uint64_t bucket,
                        struct dpb_range piece)
{
    return piece.end == dpb_pipeline_bucket_length(&comm->base.pipeline, bucket);
}

static void sum(struct dpb_device_strategy *comm, uint64_t bucket, struct dpb_range share)
{
    const struct dpb_strategy *base = &comm->base;
    const dpb_dtype type = base->arenas.layout.gradient_type;
    const uint64_t at = arena_at(comm, bucket, share), n = share.end - share.begin;
    const int64_t began_ns = base->host->now_ns();
    const uint32_t self = base->args.rank, n_workers = base->args.n_workers;
    for (uint32_t rank = 0; rank < n_workers; rank++)
        comm->sources[rank] = rank == self || comm->in_place
                                  ? dpb_strategy_gradients(base, rank, at)
                                  : slot(comm, self, rank, bucket);
    dpb_device_keep(comm, comm->ops->sum(comm->flights[DPB_DEVICE_SUMS].lane->queue, type,
                                         dpb_strategy_gradients(base, self, at), comm->sources,
                                         n_workers, n));
    if (comm->in_place)
        base->host->count_bytes((n_workers - 1) * n * dpb_dtype_size(type));
    report_done(comm, bucket, DPB_PHASE_REDUCE, began_ns);
}

void dpb_device_sum(struct dpb_device_strategy *comm, uint64_t bucket, struct dpb_range piece)
{
    const struct dpb_strategy *base = &comm->base;
    const struct dpb_range share = share_of(comm, base->args.rank, bucket, piece);
    const bool any = share.end > share.begin && base->args.n_workers > 1;
    if (piece.begin == 0 && dpb_device_owns(comm, base->args.rank, bucket))
        dpb_signals_span_late_peer(&base->signals, dpb_strategy_workers(base), bucket);
    if (any)
        sum(comm, bucket, share);
    if (ends_bucket(comm, bucket, piece))
        dpb_device_begun(comm, DPB_DEVICE_SUMS, bucket, !any);
}

void dpb_device_update(struct dpb_device_strategy *comm, uint64_t bucket, struct dpb_range piece)
{
    const struct dpb_strategy *base = &comm->base;
    const struct dpb_range elements =
        comm->scheme.gives_weights ? share_of(comm, base->args.rank, bucket, piece) : piece;
    const struct dpb_piece own = {arena_at(comm, bucket, elements), elements.end - elements.begin};
    const bool any = own.n > 0 && comm->status == DPB_OK;
    if (any)
        dpb_device_keep(comm, dpb_strategy_enqueue_update(
                                  base, comm->flights[DPB_DEVICE_UPDATES].lane->queue, bucket, own,
                                  dpb_strategy_own_gradients(base, own.begin)));
    if (ends_bucket(comm, bucket, piece))
        dpb_device_begun(comm, DPB_DEVICE_UPDATES, bucket, !any);
}

/* Before the copy the owners may have waited for a late worker, and then worked for this one. */
static void report_owners(const struct dpb_device_strategy *comm, uint64_t bucket)
{
    const struct dpb_strategy *base = &comm->base;
    int64_t ready_ns =
        dpb_signals_latest_ns(&base->signals, DPB_SIGNAL_READY, dpb_strategy_workers(base), bucket);
    int64_t reduced_ns = ready_ns;
    if (!dpb_device_owns(comm, base->args.rank, bucket)) /* else the sum has reported it */
        dpb_signals_span_late_peer(&base->signals, dpb_strategy_workers(base), bucket);
    for (uint32_t owner = 0; owner < base->args.n_workers; owner++) {
        struct dpb_rank_set one = {owner, 1};
        if (owner == base->args.rank || !dpb_device_owns(comm, owner, bucket))
            continue;
        int64_t at_ns = dpb_signals_latest_ns(&base->signals, DPB_SIGNAL_REDUCED, one, bucket);
        reduced_ns = at_ns > reduced_ns ? at_ns : reduced_ns;
    }
    if (reduced_ns > ready_ns)
        base->host->span(bucket, DPB_PHASE_TRANSFER, ready_ns, reduced_ns);
}

static dpb_dtype pulled_type(const struct dpb_device_strategy *comm)
{
    const struct dpb_layout *layout = &comm->base.arenas.layout;
    return comm->scheme.gives_weights ? layout->weight_type : layout->gradient_type;
}

void dpb_device_pull(struct dpb_device_strategy *comm, uint64_t bucket, struct dpb_range piece)
{
    const struct dpb_strategy *base = &comm->base;
    const size_t size = dpb_dtype_size(pulled_type(comm));
    void *(*const arena)(const struct dpb_strategy *, uint32_t, uint64_t) =
        comm->scheme.gives_weights ? dpb_strategy_weights : dpb_strategy_gradients;
    bool any = false;
    if (piece.begin == 0)
        report_owners(comm, bucket);
    for (uint32_t owner = 0; owner < base->args.n_workers && comm->status == DPB_OK; owner++) {
        const struct dpb_range share = share_of(comm, owner, bucket, piece);
        const uint64_t at = arena_at(comm, bucket, share), bytes = (share.end - share.begin) * size;
        if (owner == base->args.rank || bytes == 0)
            continue;
        const int64_t began_ns = base->host->now_ns();
        dpb_device_keep(comm, comm->ops->copy(comm->flights[DPB_DEVICE_PULLS].lane->queue,
                                              arena(base, base->args.rank, at),
                                              arena(base, owner, at), bytes));
        base->host->count_bytes(bytes);
        report_done(comm, bucket, DPB_PHASE_TRANSFER, began_ns);
        any = true;
    }
    if (ends_bucket(comm, bucket, piece))
        dpb_device_begun(comm, DPB_DEVICE_PULLS, bucket, !any);
}

/* ---- flights ------------------------------------------------------------------------------- */

const struct dpb_stage_flight dpb_device_pushed = {DPB_DEVICE_PUSHES, DPB_PHASE_TRANSFER,
                                                   "its device to copy gradients to the owners"};
const struct dpb_stage_flight dpb_device_summed = {DPB_DEVICE_SUMS, DPB_PHASE_REDUCE,
                                                   "its device to sum gradients"};
const struct dpb_stage_flight dpb_device_pulled = {DPB_DEVICE_PULLS, DPB_PHASE_TRANSFER,
                                                   "its device to copy from the owners"};
const struct dpb_stage_flight dpb_device_updated = {DPB_DEVICE_UPDATES, DPB_PHASE_UPDATE,
                                                    "its device to update weights"};

/* ---- stage: push --------------------------------------------------------------------------- */

bool dpb_device_push_due(void *comm_, uint64_t bucket)
{
    const struct dpb_device_strategy *comm = comm_;
    return dpb_device_has_room(comm, DPB_DEVICE_PUSHES) && dpb_strategy_own_ready(comm_, bucket) &&
           full_inbox(comm, bucket) == NONE;
}

/* The first bucket that has not gone through all stages is here: nothing else is under way. */
dpb_status dpb_device_push_wait(void *comm_, uint64_t bucket)
{
    struct dpb_device_strategy *comm = comm_;
    uint32_t owner = full_inbox(comm, bucket);
    if (!dpb_strategy_own_ready(comm, bucket))
        return dpb_strategy_own_wait(comm, bucket);
    return owner == NONE
               ? comm->status
               : dpb_device_wait(comm, bucket, owner, comm->base.arenas.layout.gradient_type,
                                 "a free slot in the inbox of the bucket's owner");
}

void dpb_device_push(void *comm_, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_device_strategy *comm = comm_;
    const struct dpb_strategy *base = &comm->base;
    size_t size = dpb_dtype_size(base->arenas.layout.gradient_type);
    bool any = false;
    for (uint32_t owner = 0; owner < base->args.n_workers && comm->status == DPB_OK; owner++) {
        struct dpb_range share = share_in(comm, owner, bucket);
        uint64_t bytes = (share.end - share.begin) * size;
        if (owner == base->args.rank || bytes == 0)
            continue;
        dpb_device_keep(
            comm, comm->ops->copy(comm->flights[DPB_DEVICE_PUSHES].lane->queue,
                                  slot(comm, owner, base->args.rank, bucket),
                                  dpb_strategy_own_gradients(base, arena_at(comm, bucket, share)),
                                  bytes));
        base->host->count_bytes(bytes);
        any = true;
    }
    dpb_device_begun(comm, DPB_DEVICE_PUSHES, bucket, !any);
    turn->at = turn->length;
}

/* ---- stage: sum ---------------------------------------------------------------------------- */

/* A worker that owns nothing of the bucket needs its own gradients alone. */
static uint32_t missing_gradients(const struct dpb_device_strategy *comm, uint64_t bucket)
{
    const uint32_t self = comm->base.args.rank;
    if (!dpb_device_owns(comm, self, bucket))
        return dpb_signals_missing(&comm->base.signals, DPB_SIGNAL_READY,
                                   dpb_strategy_self(&comm->base), bucket);
    return dpb_device_missing(comm, comm->in_place ? DPB_SIGNAL_READY : DPB_SIGNAL_PUSHED, false,
                              bucket);
}

bool dpb_device_sum_due(void *comm_, uint64_t bucket)
{
    const struct dpb_device_strategy *comm = comm_;
    return dpb_device_has_room(comm, DPB_DEVICE_SUMS) &&
           dpb_device_has_room(comm, DPB_DEVICE_UPDATES) && missing_gradients(comm, bucket) == NONE;
}

dpb_status dpb_device_sum_wait(void *comm_, uint64_t bucket)
{
    struct dpb_device_strategy *comm = comm_;
    uint32_t worker = missing_gradients(comm, bucket);
    if (worker == NONE)
        return comm->status;
    if (comm->in_place)
        return dpb_strategy_wait_ready(&comm->base, (struct dpb_rank_set){worker, 1}, bucket);
    return dpb_device_wait(comm, bucket, worker, comm->base.arenas.layout.gradient_type,
                           "gradients of the peer");
}

/* ---- stage: pull --------------------------------------------------------------------------- */

/* An update may follow in the same stage. */
bool dpb_device_pull_due(void *comm_, uint64_t bucket)
{
    const struct dpb_device_strategy *comm = comm_;
    return dpb_device_has_room(comm, DPB_DEVICE_PULLS) &&
           dpb_device_has_room(comm, DPB_DEVICE_UPDATES) &&
           dpb_device_missing(comm, DPB_SIGNAL_REDUCED, true, bucket) == NONE;
}

dpb_status dpb_device_pull_wait(void *comm_, uint64_t bucket)
{
    struct dpb_device_strategy *comm = comm_;
    uint32_t owner = dpb_device_missing(comm, DPB_SIGNAL_REDUCED, true, bucket);
    return dpb_device_wait_signal(comm, DPB_SIGNAL_REDUCED, owner, bucket, pulled_type(comm),
                                  comm->scheme.gives_weights ? "new weights from the shard"
                                                             : "the sum from the bucket's owner");
}
