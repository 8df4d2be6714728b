/* staging.c - see staging.h. */
#include "exchange/staging.h"

#include <stdlib.h>

#include "base/log.h"
#include "measure/account.h"
#include "measure/trace.h"

/* In slots where the strategy's gradients are: a slot is cast before its bucket is handed over. */
static dpb_status make_gradients(struct dpb_exchange *exchange, void **memory)
{
    static const char name[] = "gradients on their way";
    const struct dpb_layout *layout = &exchange->layout;
    const uint64_t held = exchange->slots.n * exchange->arenas.bucket_elements;
    const size_t size = dpb_dtype_size(layout->weight_type);
    struct dpb_mapping *slots = &exchange->staging.slots;
    if (held == 0)
        return dpb_arena_allocate(exchange, name, layout->weight_type, memory);
    DPB_TRY(dpb_mapping_create_window(name, held * size, layout->n_elements * size, slots));
    *memory = slots->memory;
    return DPB_OK;
}

dpb_status dpb_staging_open(struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    struct dpb_staging *staging = &exchange->staging;
    staging->summed = exchange->gradients;
    if (experiment->settings.run.mode != DPB_MODE_TRAIN)
        return DPB_OK;
    staging->held_back = experiment->settings.run.precision == DPB_PRECISION_FP16;
    exchange->passes.takes_events =
        exchange->memory.on_device && experiment->comm_needs.takes_events && !staging->held_back;
    exchange->passes.captures = exchange->passes.takes_events && exchange->plan.captures;
    if (experiment->gradient_type != experiment->weight_type)
        DPB_TRY(make_gradients(exchange, &staging->summed));
    staging->device = staging->summed;
    return experiment->accumulate > 1 && !exchange->slots.each
               ? make_gradients(exchange, &staging->device)
               : DPB_OK;
}

void dpb_staging_close(struct dpb_exchange *exchange)
{
    const struct dpb_device_arenas *place = exchange->memory.place;
    struct dpb_staging *staging = &exchange->staging;
    if (staging->device && staging->device != staging->summed)
        place->ops->release(place->device, staging->device);
    if (staging->summed && staging->summed != exchange->gradients && !staging->slots.memory)
        place->ops->release(place->device, staging->summed);
    for (size_t i = 0; i < staging->n_events; i++)
        dpb_events.destroy(staging->events[i]);
    free(staging->events);
    dpb_mapping_destroy(&staging->slots);
    *staging = (struct dpb_staging){.device = NULL};
}

/* ---- a step -------------------------------------------------------------------------------- */

dpb_status dpb_staging_give(struct dpb_exchange *exchange, uint64_t frontier,
                            struct dpb_event *event)
{
    const struct dpb_arenas *arenas = &exchange->arenas;
    const bool all = frontier >= exchange->layout.n_elements;
    while (exchange->staging.next_bucket < arenas->n_buckets &&
           (all || (exchange->staging.next_bucket + 1) * arenas->bucket_elements <= frontier)) {
        const int64_t entered_ns = dpb_account_enter();
        dpb_trace_mark(DPB_TRACE_READY, exchange->staging.next_bucket);
        DPB_TRY(dpb_account_leave(
            entered_ns,
            exchange->ops->ready(exchange->comm, exchange->staging.next_bucket++, event)));
    }
    return DPB_OK;
}

void dpb_staging_begin(struct dpb_exchange *exchange, uint32_t micro_batch)
{
    exchange->staging.micro_batch = micro_batch;
    exchange->staging.n_staged = 0;
}

/* The work between the device's gradients and the communicator's: each part only if needed. */
struct transfer {
    bool sums, first; /* over the micro-batches; of which this is the first */
    bool casts;       /* to the communicator's type, in the last of them */
    void *device, *summed, *given;
    uint64_t n;
};

/* Elements [begin, end) of this micro-batch's gradient are final. */
static struct transfer transfer_of(const struct dpb_exchange *exchange, uint64_t begin,
                                   uint64_t end, bool last)
{
    dpb_dtype type = exchange->layout.weight_type, comm_type = exchange->layout.gradient_type;
    size_t at = begin * dpb_dtype_size(type);
    return (struct transfer){.sums = exchange->staging.summed != exchange->staging.device,
                             .first = exchange->staging.micro_batch == 0,
                             .casts = last && comm_type != type,
                             .device = (char *)exchange->staging.device + at,
                             .summed = (char *)exchange->staging.summed + at,
                             .given =
                                 (char *)exchange->gradients + begin * dpb_dtype_size(comm_type),
                             .n = end - begin};
}

static dpb_status get_staged_event(struct dpb_exchange *exchange, struct dpb_event **event)
{
    size_t n = exchange->staging.n_events;
    if (exchange->staging.next_event == n) { /* in the first step */
        struct dpb_event **more = realloc(exchange->staging.events, (n + 1) * sizeof *more);
        DPB_TRY(dpb_allocated(more));
        exchange->staging.events = more;
        DPB_TRY(exchange->memory.place->ops->new_event(exchange->memory.place->device, &more[n]));
        exchange->staging.n_events++;
    }
    *event = exchange->staging.events[exchange->staging.next_event++];
    return DPB_OK;
}

static dpb_status stage(struct dpb_exchange *exchange, const struct transfer *s,
                        struct dpb_event **event)
{
    const struct dpb_queue_ops *ops = exchange->memory.place->ops;
    struct dpb_queue *queue = exchange->memory.queue;
    dpb_dtype type = exchange->layout.weight_type;
    if (!s->sums && !s->casts)
        return DPB_OK;
    if (*event)
        DPB_TRY(ops->await(queue, *event));
    if (s->sums && s->first)
        DPB_TRY(ops->copy(queue, s->summed, s->device, s->n * dpb_dtype_size(type)));
    else if (s->sums)
        DPB_TRY(ops->axpby(queue, type, 1.0, s->device, 1.0, s->summed, s->n));
    if (s->casts)
        DPB_TRY(ops->cast(queue, exchange->layout.gradient_type, s->given, type, s->summed, s->n));
    if (!exchange->memory.on_device)
        return DPB_OK;
    DPB_TRY(get_staged_event(exchange, event));
    return ops->record(queue, *event);
}

dpb_status dpb_staging_pass(struct dpb_exchange *exchange, uint64_t frontier, bool last,
                            struct dpb_event **event)
{
    const uint64_t begin = exchange->staging.n_staged;
    const struct transfer s = transfer_of(exchange, begin, frontier, last);
    exchange->staging.n_staged = frontier;
    return frontier > begin ? stage(exchange, &s, event) : DPB_OK;
}
