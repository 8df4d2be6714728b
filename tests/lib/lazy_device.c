/* lazy_device.c - see lazy_device.h. */
#include "lib/lazy_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/update.h"
#include "base/vec.h"

enum { MAX_QUEUES = 8, MAX_SOURCES = 8, MOST_AT_ONCE = 4 };

enum kind { COPY, CLEAR, SUM, AXPBY, UPDATE, RECORD, AWAIT };

struct native {
    struct lazy_device *device;
    uint64_t recorded, fired;
};

struct work {
    struct work *next;
    enum kind kind;
    void *dst;
    const void *sources[MAX_SOURCES];
    uint32_t k;
    uint64_t n; /* bytes of COPY and CLEAR, else elements */
    dpb_dtype type;
    double a, b; /* of AXPBY */
    struct dpb_update update;
    struct native *event;
    uint64_t count; /* of the event's records */
};

struct dpb_queue {
    struct lazy_device *device;
    struct work *first, **last;
};

struct lazy_device {
    const struct dpb_host *host;
    struct dpb_queue *queues[MAX_QUEUES];
    uint32_t n_queues;
    unsigned seed, left; /* until it fails; 0: it does not */
    bool broken;
};

/* ---- doing the work ------------------------------------------------------------------------ */

static void compute(const struct work *work)
{
    void *dst = work->dst;
    if (work->kind == COPY)
        memcpy(dst, work->sources[0], work->n);
    if (work->kind == CLEAR)
        memset(dst, 0, work->n);
    if (work->kind == SUM)
        dpb_vec.sum(work->type, &dst, 1, work->sources, work->k, work->n);
    if (work->kind == AXPBY)
        dpb_vec.axpby(work->type, work->a, work->sources[0], work->b, dst, work->n);
    if (work->kind == UPDATE)
        dpb_update_apply(&work->update);
}

/* Does the first of a queue if it may be done now. */
static bool advance(struct dpb_queue *queue)
{
    struct lazy_device *device = queue->device;
    struct work *work = queue->first;
    if (!work || (work->kind == AWAIT && work->event->fired < work->count))
        return false;
    queue->first = work->next;
    if (!queue->first)
        queue->last = &queue->first;
    device->broken = device->broken || (device->left > 0 && --device->left == 0);
    if (!device->broken)
        compute(work);
    if (work->kind == RECORD && !device->broken)
        work->event->fired = work->count;
    free(work);
    return true;
}

/* False: there is nothing that can be done. */
static bool advance_any(struct lazy_device *device)
{
    uint32_t first = device->n_queues > 0 ? (uint32_t)rand_r(&device->seed) % device->n_queues : 0;
    for (uint32_t i = 0; i < device->n_queues; i++)
        if (advance(device->queues[(first + i) % device->n_queues]))
            return true;
    return false;
}

static dpb_status state(const struct lazy_device *device)
{
    return device->broken ? device->host->fail(DPB_FAILED, "the lazy device is broken") : DPB_OK;
}

/* ---- events -------------------------------------------------------------------------------- */

static dpb_status poll_native(void *native, bool *fired)
{
    struct native *event = native;
    int pieces = rand_r(&event->device->seed) % MOST_AT_ONCE;
    while (pieces-- > 0 && advance_any(event->device))
        ;
    *fired = event->fired >= event->recorded;
    return state(event->device);
}

static const struct dpb_event_source source = {.poll = poll_native, .destroy = free};

static dpb_status new_event(void *device, struct dpb_event **event)
{
    struct lazy_device *lazy = device;
    struct native *native = calloc(1, sizeof *native);
    if (!native)
        return DPB_NO_MEMORY;
    native->device = lazy;
    *event = lazy->host->event->adopt(&source, native);
    return *event ? DPB_OK : DPB_NO_MEMORY;
}

/* ---- giving work --------------------------------------------------------------------------- */

static dpb_status give(struct dpb_queue *queue, struct work given)
{
    struct work *work = malloc(sizeof *work);
    if (!work)
        return DPB_NO_MEMORY;
    *work = given;
    *queue->last = work;
    queue->last = &work->next;
    return state(queue->device);
}

static dpb_status record(struct dpb_queue *queue, struct dpb_event *event)
{
    struct native *native = queue->device->host->event->native(event, &source);
    return give(queue, (struct work){.kind = RECORD, .event = native, .count = ++native->recorded});
}

static dpb_status await(struct dpb_queue *queue, struct dpb_event *event)
{
    struct native *native = queue->device->host->event->native(event, &source);
    return give(queue, (struct work){.kind = AWAIT, .event = native, .count = native->recorded});
}

static dpb_status copy(struct dpb_queue *queue, void *dst, const void *src, uint64_t bytes)
{
    return give(queue, (struct work){.kind = COPY, .dst = dst, .sources = {src}, .n = bytes});
}

static dpb_status clear(struct dpb_queue *queue, void *dst, uint64_t bytes)
{
    return give(queue, (struct work){.kind = CLEAR, .dst = dst, .n = bytes});
}

static dpb_status sum(struct dpb_queue *queue, dpb_dtype type, void *dst,
                      const void *const *sources, uint32_t k, uint64_t n)
{
    struct work work = {.kind = SUM, .dst = dst, .k = k, .n = n, .type = type};
    if (k > MAX_SOURCES)
        return DPB_UNSUPPORTED;
    memcpy(work.sources, sources, k * sizeof *sources);
    return give(queue, work);
}

static dpb_status axpby(struct dpb_queue *queue, dpb_dtype type, double a, const void *x, double b,
                        void *y, uint64_t n)
{
    return give(queue,
                (struct work){
                    .kind = AXPBY, .dst = y, .sources = {x}, .n = n, .type = type, .a = a, .b = b});
}

static dpb_status update(struct dpb_queue *queue, const struct dpb_update *update_)
{
    return give(queue, (struct work){.kind = UPDATE, .update = *update_});
}

/* ---- queues -------------------------------------------------------------------------------- */

static dpb_status open_queue(void *device, struct dpb_queue **queue)
{
    struct lazy_device *lazy = device;
    if (lazy->n_queues == MAX_QUEUES)
        return DPB_UNSUPPORTED;
    struct dpb_queue *made = calloc(1, sizeof *made);
    if (!made)
        return DPB_NO_MEMORY;
    made->device = lazy;
    made->last = &made->first;
    lazy->queues[lazy->n_queues++] = *queue = made;
    return DPB_OK;
}

static void close_queue(struct dpb_queue *queue)
{
    if (!queue)
        return;
    struct lazy_device *device = queue->device;
    uint32_t at = 0;
    while (queue->first && advance_any(device))
        ;
    while (device->queues[at] != queue)
        at++;
    device->queues[at] = device->queues[--device->n_queues];
    while (queue->first) {
        struct work *work = queue->first;
        queue->first = work->next;
        free(work);
    }
    free(queue);
}

static dpb_status drain(struct dpb_queue *queue)
{
    while (queue->first && advance_any(queue->device))
        ;
    return state(queue->device);
}

const struct dpb_queue_ops lazy_device_ops = {.runtime = "lazy",
                                              .open = open_queue,
                                              .close = close_queue,
                                              .drain = drain,
                                              .new_event = new_event,
                                              .record = record,
                                              .await = await,
                                              .copy = copy,
                                              .clear = clear,
                                              .sum = sum,
                                              .axpby = axpby,
                                              .update = update};

void *lazy_device_create(const struct dpb_host *host, unsigned seed)
{
    struct lazy_device *made = calloc(1, sizeof *made);
    if (!made)
        abort();
    made->host = host;
    made->seed = seed;
    return made;
}

void lazy_device_destroy(void *device)
{
    free(device);
}

void lazy_device_break(void *device, unsigned n)
{
    ((struct lazy_device *)device)->left = n;
}

dpb_status lazy_device_update(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                              struct dpb_range range, void *weights, const void *gradients,
                              uint64_t bucket, const struct dpb_step *step)
{
    const struct dpb_update plain = {.kind = DPB_UPDATE_PLAIN,
                                     .rate = step->learning_rate,
                                     .scale = step->scale,
                                     .n = range.end - range.begin,
                                     .weights = weights,
                                     .weight_type = DPB_FP32,
                                     .gradients = gradients,
                                     .gradient_type = DPB_FP32};
    (void)optimizer, (void)bucket;
    if (queue)
        return lazy_device_ops.update(queue, &plain);
    dpb_update_apply(&plain);
    return DPB_OK;
}
