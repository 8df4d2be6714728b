/* step.c - see step.h. */
#include "exchange/step.h"

#include "base/log.h"
#include "exchange/checked_codec.h"
#include "exchange/late.h"
#include "exchange/pump.h"
#include "exchange/resident.h"
#include "exchange/slots.h"
#include "exchange/staging.h"
#include "measure/account.h"
#include "measure/trace.h"
#include "world/host_device.h"

/* Between the device's ops: long enough for a piece of work, short against an op. */
static const int64_t progress_budget_ns = 500000;

/* ---- an exchange --------------------------------------------------------------------------- */

static dpb_status begin_given(struct dpb_exchange *exchange)
{
    const int64_t entered_ns = dpb_account_enter();
    dpb_status status = exchange->ops->begin(exchange->comm, &exchange->step);
    if (exchange->pump.running)
        dpb_pump_kick(&exchange->pump);
    return dpb_account_leave(entered_ns, status);
}

dpb_status dpb_exchange_begin(struct dpb_exchange *exchange, double learning_rate, double scale,
                              bool plain)
{
    const uint64_t number = exchange->n_begun++;
    const dpb_consistency kind = exchange->plan.contract.consistency;
    exchange->step = (struct dpb_step){.step = number,
                                       .learning_rate = learning_rate,
                                       .scale = scale,
                                       .more = exchange->slots.each && !plain,
                                       .seal = dpb_step_seal(number, plain)};
    exchange->plain = plain;
    dpb_checked_codec_all(plain);
    exchange->staging.next_bucket = 0;
    exchange->staging.next_event = 0;
    exchange->slots.next_tensor = 0;
    exchange->resident.in_step = !plain;
    exchange->passes.given_up = false;
    exchange->passes.may_stop = (kind == DPB_PARTIAL || kind == DPB_BATCHES) &&
                                exchange->memory.device.ops == dpb_host_device.ops;
    if (exchange->late.on) /* at the step's end */
        return DPB_OK;
    if (exchange->onlooker.owner && !plain)
        exchange->onlooker.begin(exchange->onlooker.owner);
    return begin_given(exchange);
}

dpb_status dpb_exchange_ready(struct dpb_exchange *exchange, uint64_t frontier,
                              struct dpb_event *event)
{
    if (!event && !exchange->step.more)
        dpb_account_ready(frontier);
    exchange->passes.final = event;
    if (exchange->late.on)
        return DPB_OK;
    DPB_TRY(dpb_staging_give(exchange, frontier, event));
    return dpb_resident_leave(exchange);
}

static dpb_status make_progress(struct dpb_exchange *exchange, int64_t budget_ns)
{
    const int64_t entered_ns = dpb_account_enter();
    return dpb_account_leave(entered_ns, exchange->ops->progress(exchange->comm, budget_ns));
}

dpb_status dpb_exchange_move(void *exchange_)
{
    struct dpb_exchange *exchange = exchange_;
    /* Was something handed over, or is it left of the last step? */
    const bool has_work =
        exchange->late.on ? exchange->passes.pending && !dpb_events.poll(exchange->passes.pending)
                          : exchange->staging.next_bucket > 0 || exchange->passes.pending ||
                                dpb_resident_awaits(exchange);
    return has_work && !exchange->pump.running ? make_progress(exchange, progress_budget_ns)
                                               : DPB_OK;
}

dpb_status dpb_exchange_look(void *exchange_, bool *cancelled)
{
    struct dpb_exchange *exchange = exchange_;
    *cancelled = false;
    if (!exchange->ops->cancelled)
        return exchange->late.on ? dpb_exchange_move(exchange) : DPB_OK;
    if (!exchange->pump.running)
        DPB_TRY(make_progress(exchange, 0));
    *cancelled = exchange->ops->cancelled(exchange->comm);
    return DPB_OK;
}

/* The device returns this status when it has left the pass; nobody reports it. */
static dpb_status on_progress(void *context)
{
    struct dpb_exchange *exchange = context;
    DPB_TRY(dpb_exchange_move(exchange));
    if (!exchange->passes.may_stop)
        return DPB_OK;
    DPB_TRY(dpb_exchange_look(exchange, &exchange->passes.given_up));
    return exchange->passes.given_up ? DPB_INTERRUPTED : DPB_OK;
}

dpb_status dpb_exchange_passed(const struct dpb_exchange *exchange, dpb_status status)
{
    return exchange->passes.given_up && status == DPB_INTERRUPTED ? DPB_OK : status;
}

/* Accounts for the step before: its spans have been reported, and its last event has fired. */
static dpb_status settle_times(struct dpb_exchange *exchange)
{
    struct dpb_device_times times;
    if (!exchange->passes.takes_events || !dpb_account_awaits_device())
        return DPB_OK;
    if (!exchange->passes.ops->times(exchange->passes.program, &times))
        return dpb_fail(DPB_FAILED, "step %llu: the device does not tell its times",
                        (unsigned long long)dpb_world_step());
    dpb_account_device(&times);
    return DPB_OK;
}

static dpb_status finish(struct dpb_exchange *exchange, struct dpb_event *done)
{
    if (!exchange->passes.takes_events) {
        DPB_TRY(dpb_pump_await(exchange, done));
    } else { /* all of the exchange is enqueued: so is the next forward, behind it */
        exchange->passes.pending = done;
        DPB_TRY(exchange->passes.ops->follow(exchange->passes.program, done));
    }
    return dpb_optimizer_watch(exchange->optimizer, done);
}

static dpb_status end_step(struct dpb_exchange *exchange)
{
    struct dpb_event *done = exchange->passes.replayed;
    exchange->passes.replayed = NULL;
    if (exchange->late.on)
        DPB_TRY(dpb_late_turn(exchange));
    if (!done && exchange->staging.next_bucket < exchange->arenas.n_buckets)
        return dpb_fail(DPB_FAILED,
                        "step %llu: device '%s' has ended its backward, and gradients are final in "
                        "%llu of %llu buckets: the last hooks->final is of all elements",
                        (unsigned long long)dpb_world_step(),
                        exchange->experiment->settings.device.name,
                        (unsigned long long)exchange->staging.next_bucket,
                        (unsigned long long)exchange->arenas.n_buckets);
    if (!done)
        DPB_TRY(exchange->ops->end(exchange->comm, &done));
    if (!done)
        return dpb_fail(DPB_FAILED, "comm '%s' gives no event `done` by its `end`",
                        exchange->experiment->settings.comm.name);
    DPB_TRY(settle_times(exchange));
    return exchange->late.on ? dpb_late_leave(exchange, done) : finish(exchange, done);
}

/* The end of a step, in exposed time. */
static dpb_status expose(struct dpb_exchange *exchange,
                         dpb_status (*end)(struct dpb_exchange *exchange))
{
    const int64_t entered_ns = dpb_account_enter();
    dpb_status status = end(exchange);
    DPB_THEN(status, dpb_optimizer_refused());
    return dpb_account_leave(entered_ns, status);
}

dpb_status dpb_exchange_finish(struct dpb_exchange *exchange)
{
    dpb_world_note("exchange", UINT64_MAX, UINT32_MAX);
    exchange->passes.may_stop = false; /* evaluations are passes, too */
    dpb_status status = expose(exchange, end_step);
    if (status == DPB_OK)
        dpb_world_note("exchange", UINT64_MAX, UINT32_MAX); /* it waits for no peer any more */
    return status;
}

dpb_status dpb_exchange_next_micro_batch(struct dpb_exchange *exchange, uint32_t micro_batch)
{
    if (!exchange->slots.each || micro_batch == 0)
        return DPB_OK;
    DPB_TRY(expose(exchange, end_step));
    exchange->staging.next_bucket = 0;
    exchange->slots.next_tensor = 0;
    exchange->step.adds = true;
    exchange->step.more = micro_batch + 1 < exchange->experiment->accumulate;
    return begin_given(exchange);
}

dpb_status dpb_exchange_drain(struct dpb_exchange *exchange)
{
    /* The wait for an exchange that is late is the step's, too. */
    if (exchange->late.on && exchange->passes.takes_events && exchange->passes.pending)
        DPB_TRY(exchange->passes.ops->follow(exchange->passes.program, exchange->passes.pending));
    DPB_TRY(expose(exchange, dpb_late_settle));
    if (!exchange->memory.on_device)
        return DPB_OK;
    if (exchange->passes.pending) {
        DPB_TRY(dpb_exchange_await(exchange, exchange->passes.pending));
        DPB_TRY(exchange->ops->progress(exchange->comm, 0)); /* as in dpb_late_settle */
    }
    exchange->passes.pending = NULL;
    if (exchange->passes.program)
        DPB_TRY(exchange->passes.ops->drain(exchange->passes.program));
    return dpb_optimizer_find(exchange->optimizer);
}

dpb_status dpb_exchange_settle(struct dpb_exchange *exchange)
{
    DPB_TRY(expose(exchange, dpb_late_settle));
    return exchange->ops->settle ? exchange->ops->settle(exchange->comm) : DPB_OK;
}

dpb_status dpb_exchange_pause(struct dpb_exchange *exchange)
{
    DPB_TRY(dpb_exchange_drain(exchange));
    dpb_account_end();
    return settle_times(exchange);
}

static dpb_status wait_for(struct dpb_event **event)
{
    const struct dpb_wait wait = {.step = dpb_world_step(), .purpose = "the device's gradients"};
    if (*event)
        DPB_TRY(dpb_events.wait(*event, &wait));
    *event = NULL;
    return DPB_OK;
}

/* ---- the device's hooks -------------------------------------------------------------------- */

/* Buckets are complete in the last micro-batch. Before it, the device's next pass begins when its
 * gradients of this one have been added up. */
static dpb_status on_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    struct dpb_exchange *exchange = context;
    bool last = exchange->slots.each ||
                exchange->staging.micro_batch + 1 == exchange->experiment->accumulate;
    if (!exchange->passes.takes_events)
        DPB_TRY(wait_for(&event));
    const uint64_t begin = exchange->staging.n_staged;
    DPB_TRY(dpb_staging_pass(exchange, frontier, last, &event));
    if (!last && event && frontier == exchange->layout.n_elements)
        return exchange->passes.ops->follow(exchange->passes.program, event);
    if (!last)
        return DPB_OK;
    if (!exchange->passes.takes_events)
        DPB_TRY(wait_for(&event));
    if (exchange->onlooker.owner && frontier > begin)
        exchange->onlooker.gradients(exchange->onlooker.owner, begin, frontier);
    if (exchange->staging.held_back)
        return DPB_OK;
    dpb_slots_clear_gaps(exchange, frontier);
    DPB_TRY(dpb_exchange_ready(exchange, frontier, event));
    return dpb_slots_await_node(exchange, frontier);
}

static dpb_status on_enter(void *context, uint32_t node)
{
    return dpb_resident_enter(context, node);
}

static dpb_status on_capture(void *context, const struct dpb_capture *capture)
{
    const struct dpb_exchange *exchange = context;
    return exchange->ops->capture(exchange->comm, capture);
}

static dpb_status on_join(void *context, struct dpb_event **event)
{
    const struct dpb_exchange *exchange = context;
    return exchange->ops->end(exchange->comm, event);
}

static dpb_status on_replay(void *context)
{
    struct dpb_exchange *exchange = context;
    const int64_t entered_ns = dpb_account_enter();
    return dpb_account_leave(entered_ns,
                             exchange->ops->replay(exchange->comm, &exchange->passes.replayed));
}

static void on_op(void *context, uint32_t node, int64_t begin_ns, int64_t end_ns)
{
    (void)context;
    dpb_trace(DPB_TRACE_OP, node, begin_ns, end_ns);
}

struct dpb_hooks dpb_exchange_hooks(struct dpb_exchange *exchange)
{
    return (struct dpb_hooks){.context = exchange,
                              .final = on_final,
                              .enter = exchange->resident.buckets ? on_enter : NULL,
                              .progress = on_progress,
                              .capture = on_capture,
                              .join = on_join,
                              .replay = on_replay,
                              .op = dpb_trace_ring ? on_op : NULL};
}
