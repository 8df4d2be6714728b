/* device_flights.c - work under way on a device, and waiting for it: see device_strategy.h. */
#include <sched.h>
#include <unistd.h>

#include "lib/device_strategy/device_strategy.h"

enum { YIELDS = 64, SHORTEST_NAP_US = 20, LONGEST_NAP_US = 1000 };

dpb_status device_lanes_open(struct device_strategy *comm)
{
    DPB_TRY(comm->ops->open(comm->device, &comm->out.queue));
    DPB_TRY(comm->ops->open(comm->device, &comm->here.queue));
    return comm->ops->open(comm->device, &comm->back.queue);
}

dpb_status device_flight_open(struct device_strategy *comm, uint32_t flight,
                              struct device_lane *lane, enum signal_kind raises)
{
    struct device_flight *made = &comm->flights[flight];
    made->lane = lane;
    made->raises = raises;
    for (int i = 0; i < DEVICE_IN_FLIGHT; i++)
        DPB_TRY(comm->ops->new_event(comm->device, &made->events[i]));
    return DPB_OK;
}

/* Queues first: until then their work may use the events, and the targets of copies. */
void device_flights_close(struct device_strategy *comm)
{
    struct device_lane *const lanes[] = {&comm->out, &comm->here, &comm->back};
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
        comm->ops->close(lanes[i]->queue);
        lanes[i]->queue = NULL;
    }
    for (int flight = 0; flight < DEVICE_FLIGHTS; flight++)
        for (int i = 0; i < DEVICE_IN_FLIGHT; i++) {
            comm->base.host->event->destroy(comm->flights[flight].events[i]);
            comm->flights[flight].events[i] = NULL;
        }
}

bool device_all_landed(const struct device_strategy *comm)
{
    for (int i = 0; i < DEVICE_FLIGHTS; i++)
        if (comm->flights[i].begun != comm->flights[i].landed)
            return false;
    return true;
}

struct dpb_event *device_flight_event(const struct device_strategy *comm, uint32_t flight,
                                      uint64_t bucket)
{
    return comm->flights[flight].events[bucket % DEVICE_IN_FLIGHT];
}

bool device_has_room(const struct device_strategy *comm, uint32_t flight)
{
    const struct device_flight *of = &comm->flights[flight];
    const bool room = comm->in_place || of->begun < of->landed + DEVICE_IN_FLIGHT;
    return room && comm->status == DPB_OK;
}

void device_keep(struct device_strategy *comm, dpb_status status)
{
    if (comm->status == DPB_OK)
        comm->status = status;
}

static void raise_signal(const struct device_strategy *comm, const struct device_flight *flight,
                         uint64_t bucket)
{
    if (flight->raises != N_SIGNALS && comm->status == DPB_OK)
        signals_raise(&comm->base.signals, flight->raises, bucket);
}

void device_begun(struct device_strategy *comm, uint32_t flight, uint64_t bucket, bool empty)
{
    struct device_flight *of = &comm->flights[flight];
    uint64_t i = bucket % DEVICE_IN_FLIGHT;
    of->began_ns[i] = comm->base.host->now_ns();
    of->empty[i] = empty || comm->in_place;
    of->begun++;
    if (comm->in_place)
        raise_signal(comm, of, bucket);
    else if (!empty && comm->status == DPB_OK)
        device_keep(comm, comm->ops->record(of->lane->queue, of->events[i]));
}

/* Work begins when it was given to the queue and the queue has finished all work before. */
static void see_landing(struct device_strategy *comm, struct device_flight *flight, uint64_t bucket,
                        const struct stage_flight *kind)
{
    const struct dpb_host *host = comm->base.host;
    const struct dpb_wait what = {.step = comm->base.step.step,
                                  .bucket = bucket,
                                  .peer = signals_rank(&comm->base.signals, comm->base.args.rank),
                                  .purpose = "its own device"};
    uint64_t i = bucket % DEVICE_IN_FLIGHT;
    int64_t began_ns = flight->began_ns[i], now_ns = host->now_ns();
    if (flight->lane->idle_since_ns > began_ns)
        began_ns = flight->lane->idle_since_ns;
    flight->lane->idle_since_ns = now_ns;
    host->span(bucket, kind->phase, began_ns, now_ns);
    device_keep(comm,
                host->event->wait(flight->events[i], &what)); /* at once: it has fired or failed */
    if (comm->landed && comm->status == DPB_OK)
        comm->landed(comm, kind->kind, bucket, now_ns - began_ns);
}

static bool is_done(const void *strategy, uint64_t bucket, const struct stage_flight *flight)
{
    const struct device_strategy *comm = strategy;
    const struct device_flight *of = &comm->flights[flight->kind];
    uint64_t i = bucket % DEVICE_IN_FLIGHT;
    return comm->status == DPB_OK && (of->empty[i] || comm->base.host->event->poll(of->events[i]));
}

static void land(void *strategy, uint64_t bucket, const struct stage_flight *flight)
{
    struct device_strategy *comm = strategy;
    struct device_flight *of = &comm->flights[flight->kind];
    of->landed++;
    if (!of->empty[bucket % DEVICE_IN_FLIGHT])
        see_landing(comm, of, bucket, flight);
    if (!comm->in_place)
        raise_signal(comm, of, bucket);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Sleeping for a peer's signal alone would miss the device's progress, and other peers' signals. So
 * this polls: at first at once, then every few microseconds, and the less often the longer the wait
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

dpb_status device_wait_signal(struct device_strategy *comm, enum signal_kind kind, uint32_t peer,
                              uint64_t bucket, dpb_dtype type, const char *purpose)
{
    return comm->in_place
               ? strategy_wait(&comm->base, kind, (struct rank_set){peer, 1}, bucket, type, purpose)
               : device_wait(comm, bucket, peer, type, purpose);
}

static dpb_status wait_landing(void *strategy, uint64_t bucket, const struct stage_flight *flight)
{
    struct device_strategy *comm = strategy;
    const struct dpb_wait what = {.step = comm->base.step.step,
                                  .bucket = bucket,
                                  .peer = signals_rank(&comm->base.signals, comm->base.args.rank),
                                  .purpose = flight->purpose};
    return look_again(comm, &what, "exchange");
}

const struct stage_flight_ops device_flight_ops = {is_done, land, wait_landing};
