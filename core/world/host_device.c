/* host_device.c - see host_device.h. */
#include "world/host_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/update.h"
#include "base/vec.h"
#include "world/world.h"

/* ---- memory -------------------------------------------------------------------------------- */

/* Core itself maps memory that processes share (exchange/arenas.c). The number of bytes stands
 * before the memory, in a cache line of its own, for `release`. */
static dpb_status allocate(void *device, const char *name, uint64_t bytes, bool shared,
                           void **memory)
{
    (void)device, (void)name, (void)shared;
    uint64_t *made = dpb_alloc(DPB_CACHE_LINE + bytes);
    if (!made)
        return DPB_NO_MEMORY;
    *made = DPB_CACHE_LINE + bytes;
    *memory = (char *)made + DPB_CACHE_LINE;
    return DPB_OK;
}

static void release(void *device, void *memory)
{
    (void)device;
    if (!memory)
        return;
    uint64_t *made = (uint64_t *)(void *)((char *)memory - DPB_CACHE_LINE);
    dpb_release(made, *made);
}

static dpb_status pin(void *device, uint64_t bytes, void **memory)
{
    return allocate(device, "pinned memory", bytes, false, memory);
}

/* ---- queues and events --------------------------------------------------------------------- */

/* All queues are alike: none of them holds anything. */
struct dpb_queue {
    char nothing;
};
static struct dpb_queue the_queue;

static dpb_status open_queue(void *device, struct dpb_queue **queue)
{
    (void)device;
    *queue = &the_queue;
    return DPB_OK;
}

static void close_queue(struct dpb_queue *queue)
{
    (void)queue;
}

static dpb_status drain(struct dpb_queue *queue)
{
    (void)queue;
    return DPB_OK;
}

/* An event of the host is the time of its last record: it has always fired. */
static dpb_status poll_event(void *native, bool *fired)
{
    (void)native;
    *fired = true;
    return DPB_OK;
}

static const struct dpb_event_source events = {.poll = poll_event, .destroy = free};

static dpb_status new_event(void *device, struct dpb_event **event)
{
    int64_t *recorded_ns = calloc(1, sizeof *recorded_ns);
    (void)device;
    DPB_TRY(dpb_allocated(recorded_ns));
    struct dpb_event *made = dpb_events.adopt(&events, recorded_ns);
    if (!made)
        return DPB_NO_MEMORY;
    *event = made;
    return DPB_OK;
}

static dpb_status record(struct dpb_queue *queue, struct dpb_event *event)
{
    int64_t *recorded_ns = dpb_events.native(event, &events);
    (void)queue;
    if (!recorded_ns)
        return dpb_fail(DPB_USAGE, "a queue of the host records events of its new_event only");
    *recorded_ns = dpb_now_ns();
    return DPB_OK;
}

static dpb_status await(struct dpb_queue *queue, struct dpb_event *event)
{
    (void)queue;
    return dpb_events.poll(event)
               ? DPB_OK
               : dpb_fail(DPB_USAGE, "a queue of the host waits for no event: `wait` first");
}

static dpb_status elapsed(const struct dpb_event *from, const struct dpb_event *to, int64_t *ns)
{
    const int64_t *begin_ns = dpb_events.native(from, &events);
    const int64_t *end_ns = dpb_events.native(to, &events);
    if (!begin_ns || !end_ns)
        return dpb_fail(DPB_USAGE, "a queue of the host times events of its new_event only");
    *ns = *end_ns - *begin_ns;
    return DPB_OK;
}

/* ---- work ---------------------------------------------------------------------------------- */

static dpb_status copy(struct dpb_queue *queue, void *dst, const void *src, uint64_t bytes)
{
    (void)queue;
    memcpy(dst, src, bytes);
    return DPB_OK;
}

static dpb_status clear(struct dpb_queue *queue, void *dst, uint64_t bytes)
{
    (void)queue;
    memset(dst, 0, bytes);
    return DPB_OK;
}

static dpb_status sum(struct dpb_queue *queue, dpb_dtype type, void *dst,
                      const void *const *sources, uint32_t k, uint64_t n)
{
    (void)queue;
    dpb_vec.sum(type, &dst, 1, sources, k, n);
    return DPB_OK;
}

static dpb_status axpby(struct dpb_queue *queue, dpb_dtype type, double a, const void *x, double b,
                        void *y, uint64_t n)
{
    (void)queue;
    dpb_vec.axpby(type, a, x, b, y, n);
    return DPB_OK;
}

static dpb_status cast(struct dpb_queue *queue, dpb_dtype to, void *dst, dpb_dtype from,
                       const void *src, uint64_t n)
{
    (void)queue;
    dpb_vec.cast(to, dst, from, src, n);
    return DPB_OK;
}

static dpb_status update(struct dpb_queue *queue, const struct dpb_update *by)
{
    (void)queue;
    dpb_update_apply(by);
    return DPB_OK;
}

static const struct dpb_queue_ops ops = {.runtime = "host",
                                         .allocate = allocate,
                                         .release = release,
                                         .pin = pin,
                                         .unpin = release,
                                         .open = open_queue,
                                         .close = close_queue,
                                         .drain = drain,
                                         .new_event = new_event,
                                         .record = record,
                                         .await = await,
                                         .stamp = record,
                                         .elapsed = elapsed,
                                         .copy = copy,
                                         .clear = clear,
                                         .sum = sum,
                                         .axpby = axpby,
                                         .cast = cast,
                                         .update = update};

const struct dpb_device_arenas dpb_host_device = {
    .ops = &ops, .no_capture = "the host has no graphs to capture into"};
