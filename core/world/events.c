/*
 * events.c - an event of the host is a private flag that goes from 0 to 1.
 */
#include <stdlib.h>

#include "base/log.h"
#include "world/futex.h"
#include "world/world.h"

struct dpb_event {
    struct dpb_flag flag;
};

static struct dpb_event *event_create(void)
{
    struct dpb_event *event = aligned_alloc(DPB_CACHE_LINE, sizeof *event);
    if (event == NULL) {
        dpb_fail(DPB_NO_MEMORY, "out of memory for an event");
        return NULL;
    }
    *event = (struct dpb_event){{0}};
    return event;
}

static void event_destroy(struct dpb_event *event)
{
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

static bool event_poll(struct dpb_event *event)
{
    return dpb_futex_reached(&event->flag, 1);
}

static dpb_status event_wait(struct dpb_event *event, const struct dpb_wait *what)
{
    return dpb_futex_wait(&event->flag, 1, DPB_FUTEX_PRIVATE, what);
}

const struct dpb_event_ops dpb_events = {
    .create = event_create,
    .destroy = event_destroy,
    .reset = event_reset,
    .signal = event_signal,
    .poll = event_poll,
    .wait = event_wait,
};
