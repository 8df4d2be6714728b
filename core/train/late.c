/*
 * late.c - comm.late = 1: a step's exchange has the whole next step to hide behind.
 *
 * The strategy works as ever, one exchange after the other, on its own arenas. Device and core work
 * on a second pair (exchange->weights, exchange->gradients). At the end of step n:
 *
 *     wait for the exchange of step n - 1
 *     weights <- the strategy's weights            they have the gradients up to step n - 1
 *     the strategy's gradients <- gradients        of step n
 *     begin the exchange of step n; wait for nothing
 *
 * So forward n + 1 uses weights that lack the gradients of step n, and no others. A worker may
 * begin a step before all have handed over the gradients of the last, never of the one before. The
 * contract's lead stays 0: the control word allows for this (control.h), and workers end together.
 *
 * Staged variables of TensorFlow's benchmarks (tf_cnn_benchmarks, --staged_vars): docs/
 * asynchronous.md.
 */
#include "base/log.h"
#include "train/account.h"
#include "train/contract.h"
#include "train/exchange.h"
#include "train/trace.h"

dpb_status dpb_late_contract(const struct dpb_experiment *x, struct dpb_contract *contract)
{
    char label[DPB_LABEL_BYTES];
    if (x->settings.comm.late == 0)
        return DPB_OK;
    if (contract->consistency != DPB_SYNCHRONOUS) {
        dpb_contract_label(contract, x->n_workers, label);
        return dpb_fail(DPB_UNSUPPORTED,
                        "comm.late = 1 makes a synchronous strategy one step late, and comm '%s' "
                        "is %s; leave comm.late out, or take another comm.name",
                        x->settings.comm.name, label);
    }
    contract->consistency = DPB_LATE;
    contract->parameter = contract->settle_steps = 1;
    return DPB_OK;
}

static uint64_t bytes_of(const struct dpb_exchange *exchange, dpb_dtype type)
{
    return exchange->layout.n_elements * dpb_dtype_size(type);
}

static dpb_status allocate(const struct dpb_exchange *exchange, const char *what, dpb_dtype type,
                           void **memory)
{
    const struct dpb_device_arenas *place = exchange->memory.place;
    return place->ops->allocate(place->device, what, bytes_of(exchange, type), false, memory);
}

dpb_status dpb_late_open(struct dpb_exchange *exchange)
{
    exchange->weights = exchange->arenas.weights;
    exchange->gradients = exchange->arenas.gradients;
    if (exchange->experiment->settings.comm.late == 0 || dpb_world.role != DPB_WORKER)
        return DPB_OK;
    exchange->weights = exchange->gradients = NULL;
    exchange->is_late = true;
    DPB_TRY(allocate(exchange, "weights of one step before", exchange->layout.weight_type,
                     &exchange->weights));
    return allocate(exchange, "gradients of this step", exchange->layout.gradient_type,
                    &exchange->gradients);
}

void dpb_late_close(struct dpb_exchange *exchange)
{
    const struct dpb_device_arenas *place = exchange->memory.place;
    if (exchange->is_late && exchange->weights)
        place->ops->release(place->device, exchange->weights);
    if (exchange->is_late && exchange->gradients)
        place->ops->release(place->device, exchange->gradients);
    exchange->weights = exchange->gradients = NULL;
    exchange->is_late = false;
}

/* The weights of the next forward: all that has reached the strategy's. */
static dpb_status take_weights(struct dpb_exchange *exchange)
{
    return exchange->memory.place->ops->copy(exchange->memory.queue, exchange->weights,
                                             exchange->arenas.weights,
                                             bytes_of(exchange, exchange->layout.weight_type));
}

dpb_status dpb_late_load(struct dpb_exchange *exchange)
{
    return exchange->is_late ? take_weights(exchange) : DPB_OK;
}

dpb_status dpb_late_settle(struct dpb_exchange *exchange)
{
    struct dpb_event *done = exchange->pending;
    if (!exchange->is_late || !done)
        return DPB_OK;
    exchange->pending = NULL;
    dpb_world_note("exchange", UINT64_MAX, UINT32_MAX);
    return exchange->pump.running ? dpb_pump_await(&exchange->pump, done)
                                  : dpb_exchange_await(exchange, done);
}

/* Bucket by bucket: the first ones are on their way while others are copied. */
static dpb_status give_gradients(struct dpb_exchange *exchange)
{
    const struct dpb_queue_ops *ops = exchange->memory.place->ops;
    const uint64_t all = bytes_of(exchange, exchange->layout.gradient_type);
    const uint64_t bucket_bytes =
        exchange->arenas.bucket_elements * dpb_dtype_size(exchange->layout.gradient_type);
    for (uint64_t bucket = 0, at = 0; at < all; bucket++, at += bucket_bytes) {
        DPB_TRY(ops->copy(exchange->memory.queue, (char *)exchange->arenas.gradients + at,
                          (const char *)exchange->gradients + at,
                          all - at < bucket_bytes ? all - at : bucket_bytes));
        dpb_trace_mark(DPB_TRACE_READY, bucket);
        DPB_TRY(exchange->ops->ready(exchange->comm, bucket, NULL));
    }
    return DPB_OK;
}

dpb_status dpb_late_turn(struct dpb_exchange *exchange)
{
    DPB_TRY(dpb_late_settle(exchange));
    dpb_world_note("exchange", UINT64_MAX, UINT32_MAX); /* nor does it wait for a peer any more */
    DPB_TRY(take_weights(exchange));
    DPB_TRY(exchange->ops->begin(exchange->comm, &exchange->step));
    if (exchange->pump.running)
        dpb_pump_kick(&exchange->pump);
    DPB_TRY(give_gradients(exchange));
    DPB_TRY(exchange->ops->end(exchange->comm, &exchange->pending));
    if (exchange->pump.running)
        dpb_pump_end(&exchange->pump, exchange->pending);
    return DPB_OK;
}
