/*
 * events.c - an event of the host is a private flag that goes from 0 to 1; a device's event is
 * polled on the device, by the functions that came with the event.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "world/futex.h"
#include "world/world.h"

struct dpb_event {
    _Alignas(DPB_CACHE_LINE) struct dpb_flag flag; /* of the host's own */
    const struct dpb_event_source *source;         /* NULL: the host's own */
    void *native;
};

static struct dpb_event *event_create(void)
{
    struct dpb_event *event = aligned_alloc(DPB_CACHE_LINE, sizeof *event);
    if (!event) {
        dpb_fail(DPB_NO_MEMORY, "out of memory for an event");
        return NULL;
    }
    *event = (struct dpb_event){.source = NULL};
    return event;
}

static struct dpb_event *event_adopt(const struct dpb_event_source *source, void *native)
{
    struct dpb_event *event = event_create();
    if (!event) {
        source->destroy(native);
        return NULL;
    }
    event->source = source;
    event->native = native;
    return event;
}

static void *event_native(const struct dpb_event *event, const struct dpb_event_source *source)
{
    return event->source == source ? event->native : NULL;
}

static void event_destroy(struct dpb_event *event)
{
    if (event && event->source)
        event->source->destroy(event->native);
    free(event);
}

static void event_reset(struct dpb_event *event)
{
    __atomic_store_n(&event->flag.value, 0, __ATOMIC_RELEASE);
}

static void event_signal(struct dpb_event *event)
{
    dpb_futex_set(&event->flag, 1, DPB_FUTEX_PRIVATE);
}

/* A failed event will never fire: a poller continues, and meets the failure in its next action. */
static bool event_poll(struct dpb_event *event)
{
    bool fired = false;
    if (!event->source)
        return dpb_futex_reached(&event->flag, 1);
    return event->source->poll(event->native, &fired) != DPB_OK || fired;
}

/* Nothing wakes a waiter for a device: the waiter looks for a moment, then now and again. */
static dpb_status wait_for_device(const struct dpb_event *event, const struct dpb_wait *what)
{
    int64_t begin_ns = 0;
    const int64_t spins_until_ns = dpb_now_ns() + (dpb_world.may_spin ? DPB_WAIT_SPIN_NS : 0);
    for (bool fired = false;;) {
        DPB_TRY(event->source->poll(event->native, &fired));
        if (fired)
            return DPB_OK;
        DPB_TRY(dpb_world_patience(what, &begin_ns));
        if (dpb_now_ns() > spins_until_ns)
            usleep(DPB_WAIT_NAP_US);
    }
}

static dpb_status event_wait(struct dpb_event *event, const struct dpb_wait *what)
{
    if (event->source)
        return wait_for_device(event, what);
    return dpb_futex_wait(&event->flag, 1, DPB_FUTEX_PRIVATE, what);
}

const struct dpb_event_ops dpb_events = {
    .create = event_create,
    .destroy = event_destroy,
    .reset = event_reset,
    .signal = event_signal,
    .poll = event_poll,
    .wait = event_wait,
    .adopt = event_adopt,
    .native = event_native,
};
