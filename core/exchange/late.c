/* late.c - see late.h. */
#include "exchange/late.h"

#include "exchange/pump.h"
#include "exchange/staging.h"
#include "measure/trace.h"

void dpb_late_contract(const struct dpb_experiment *experiment, struct dpb_contract *contract)
{
    if (experiment->settings.comm.late == 0)
        return;
    contract->consistency = DPB_LATE;
    contract->parameter = contract->settle_steps = 1;
}

dpb_status dpb_late_open(struct dpb_exchange *exchange)
{
    exchange->weights = exchange->arenas.weights;
    exchange->gradients = exchange->arenas.gradients;
    if (exchange->experiment->settings.comm.late == 0 || dpb_world.role != DPB_WORKER)
        return DPB_OK;
    exchange->weights = exchange->gradients = NULL;
    exchange->late.on = true;
    DPB_TRY(dpb_arena_allocate(exchange, "weights of one step before", exchange->layout.weight_type,
                               &exchange->weights));
    DPB_TRY(dpb_arena_allocate(exchange, "gradients of this step", exchange->layout.gradient_type,
                               &exchange->gradients));
    const struct dpb_device_arenas *place = exchange->memory.place;
    return exchange->memory.on_device ? place->ops->new_event(place->device, &exchange->late.copied)
                                      : DPB_OK;
}

void dpb_late_close(struct dpb_exchange *exchange)
{
    const struct dpb_device_arenas *place = exchange->memory.place;
    if (exchange->late.on && exchange->weights)
        place->ops->release(place->device, exchange->weights);
    if (exchange->late.on && exchange->gradients)
        place->ops->release(place->device, exchange->gradients);
    exchange->weights = exchange->gradients = NULL;
    dpb_events.destroy(exchange->late.copied);
    exchange->late.copied = NULL;
    exchange->late.on = false;
}

/* The weights of the next forward: all that has reached the strategy's. Enqueued. */
static dpb_status take_weights(struct dpb_exchange *exchange)
{
    return exchange->memory.place->ops->copy(
        exchange->memory.queue, exchange->weights, exchange->arenas.weights,
        dpb_arena_bytes(exchange, exchange->layout.weight_type));
}

dpb_status dpb_late_load(struct dpb_exchange *exchange)
{
    if (!exchange->late.on)
        return DPB_OK;
    DPB_TRY(take_weights(exchange));
    return exchange->memory.place->ops->drain(exchange->memory.queue);
}

dpb_status dpb_late_settle(struct dpb_exchange *exchange)
{
    struct dpb_event *done = exchange->passes.pending;
    if (!exchange->late.on || !done)
        return DPB_OK;
    exchange->passes.pending = NULL;
    dpb_world_note("exchange", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_pump_await(exchange, done));
    if (exchange->memory.on_device) /* the strategy sees that, too, and reports its spans */
        DPB_TRY(exchange->ops->progress(exchange->comm, 0));
    return dpb_optimizer_watch(exchange->optimizer, done);
}

/* The copies were enqueued; *event (NULL: they are done) goes with their buckets. */
static dpb_status end_copies(struct dpb_exchange *exchange, struct dpb_event **event)
{
    *event = NULL;
    if (!exchange->passes.takes_events)
        return exchange->memory.place->ops->drain(exchange->memory.queue);
    *event = exchange->late.copied;
    DPB_TRY(exchange->memory.place->ops->record(exchange->memory.queue, *event));
    return exchange->passes.ops->follow(exchange->passes.program, *event);
}

/* On the host bucket by bucket: the first ones are on their way while others are copied. */
static dpb_status give_gradients(struct dpb_exchange *exchange)
{
    const uint64_t size = dpb_dtype_size(exchange->layout.gradient_type);
    const uint64_t all = exchange->layout.n_elements;
    const uint64_t most = exchange->memory.on_device ? all : exchange->arenas.bucket_elements;
    for (uint64_t at = 0, n; at < all; at += n) {
        struct dpb_event *event;
        n = all - at < most ? all - at : most;
        DPB_TRY(exchange->memory.place->ops->copy(
            exchange->memory.queue, (char *)exchange->arenas.gradients + at * size,
            (const char *)exchange->gradients + at * size, n * size));
        DPB_TRY(end_copies(exchange, &event));
        DPB_TRY(dpb_staging_give(exchange, at + n, event));
    }
    return DPB_OK;
}

dpb_status dpb_late_turn(struct dpb_exchange *exchange)
{
    DPB_TRY(dpb_late_settle(exchange));
    dpb_world_note("exchange", UINT64_MAX, UINT32_MAX); /* nor does it wait for a peer any more */
    if (exchange->passes.final)
        DPB_TRY(exchange->memory.place->ops->await(exchange->memory.queue, exchange->passes.final));
    DPB_TRY(take_weights(exchange));
    if (exchange->onlooker.owner && !exchange->plain)
        exchange->onlooker.begin(exchange->onlooker.owner);
    DPB_TRY(exchange->ops->begin(exchange->comm, &exchange->step));
    if (exchange->pump.running)
        dpb_pump_kick(&exchange->pump);
    return give_gradients(exchange);
}

dpb_status dpb_late_leave(struct dpb_exchange *exchange, struct dpb_event *done)
{
    exchange->passes.pending = done;
    if (exchange->pump.running)
        dpb_pump_end(&exchange->pump, done);
    return DPB_OK;
}
