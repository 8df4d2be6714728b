/*
 * exchange.c - between the device and the communicator: gradients become ready, buckets are handed
 * over, the communicator moves on, the weights are waited for. All of it on the loop's thread but
 * the pump, which moves the communicator on when it has a core of its own.
 *
 * With arenas on a device and a strategy that takes events nothing of this is waited for: buckets
 * come with events that have not fired, the weights' is given on to the device, and the loop goes
 * on to the next step's input. Where the device captures a step's exchange with its backward, all
 * of this is done once, into the graph; a launch of that takes its place.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "train/trainer.h"
#include "world/futex.h"

/* Between the device's ops: long enough for a piece of work, short against an op. */
static const int64_t progress_budget_ns = 500000;

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A strategy's own waits have deadlines. This one is for a strategy that has nothing to wait for,
 * counts no bytes, and does not signal `done`: sooner than run.timeout_s, so that this rank fails
 * before the ranks that wait for it. */
static dpb_status await_done(struct dpb_trainer *trainer, struct dpb_event *done)
{
    const int64_t limit_ns = dpb_world.timeout_ns / 2;
    uint64_t signs = 0;
    int64_t deadline_ns = 0;
    while (!dpb_events.poll(done)) {
        DPB_TRY(trainer->comm_ops->progress(trainer->comm, DPB_FOREVER));
        const int64_t now_ns = dpb_world_now_ns();
        if (deadline_ns == 0 || signs != dpb_wait_signs()) {
            signs = dpb_wait_signs();
            deadline_ns = now_ns + limit_ns;
        } else if (dpb_wait_is_over()) {
            return dpb_wait_cancelled(&(struct dpb_wait){.purpose = "the end of an exchange"});
        } else if (now_ns > deadline_ns) {
            return dpb_fail(DPB_TIMEOUT,
                            "step %llu: comm '%s' has not signalled the event `done` of its `end` "
                            "within %.1f s, and waits for nothing",
                            (unsigned long long)trainer->step,
                            trainer->experiment->settings.comm.name, (double)limit_ns * 1e-9);
        }
    }
    return DPB_OK;
}

/* ---- the pump ------------------------------------------------------------------------------ */

static bool is_stopped(const struct dpb_pump *pump)
{
    return __atomic_load_n(&pump->stop, __ATOMIC_ACQUIRE) != 0;
}

/* It is stopped within a step where the loop's thread has failed, which then gives it nothing more
 * to do. */
static dpb_status pump_one_step(struct dpb_trainer *trainer)
{
    struct dpb_pump *pump = &trainer->pump;
    while (!is_stopped(pump)) {
        DPB_TRY(trainer->comm_ops->progress(trainer->comm, DPB_FOREVER));
        struct dpb_event *done = __atomic_load_n(&pump->done, __ATOMIC_ACQUIRE);
        if (done)
            return await_done(trainer, done);
        usleep(20); /* all is exchanged; `end` is about to be called */
    }
    return DPB_PEER;
}

static void *pump_main(void *argument)
{
    struct dpb_trainer *trainer = argument;
    struct dpb_pump *pump = &trainer->pump;
    const struct dpb_wait forever = {.timeout_ns = DPB_FOREVER, .purpose = "the next step"};
    while (dpb_events.wait(pump->kick, &forever) == DPB_OK) {
        dpb_events.reset(pump->kick);
        if (is_stopped(pump))
            break;
        dpb_world_heed(&pump->stop);
        pump->status = pump_one_step(trainer);
        dpb_world_heed(NULL);
        dpb_events.signal(pump->idle);
    }
    return NULL;
}

dpb_status dpb_pump_start(struct dpb_trainer *trainer)
{
    struct dpb_pump *pump = &trainer->pump;
    if (trainer->experiment->settings.run.comm_cores == 0)
        return DPB_OK;
    pump->kick = dpb_events.create();
    pump->idle = dpb_events.create();
    if (!pump->kick || !pump->idle)
        return DPB_NO_MEMORY;
    if (pthread_create(&pump->thread, NULL, pump_main, trainer) != 0)
        return dpb_fail(DPB_FAILED, "cannot start the communication thread");
    pthread_setname_np(pump->thread, "dpb-comm");
    pump->running = true;
    return DPB_OK;
}

void dpb_pump_stop(struct dpb_trainer *trainer)
{
    struct dpb_pump *pump = &trainer->pump;
    if (pump->running) {
        __atomic_store_n(&pump->stop, 1, __ATOMIC_RELEASE);
        dpb_events.signal(pump->kick);
        pthread_join(pump->thread, NULL);
    }
    dpb_events.destroy(pump->kick);
    dpb_events.destroy(pump->idle);
    *pump = (struct dpb_pump){.running = false};
}

/* ---- an exchange --------------------------------------------------------------------------- */

dpb_status dpb_exchange_begin(struct dpb_trainer *trainer, double learning_rate, double scale,
                              bool plain)
{
    const uint64_t number = trainer->exchanges++;
    const struct dpb_step step = {.step = number,
                                  .learning_rate = learning_rate,
                                  .scale = scale,
                                  .seal = dpb_step_seal(number, plain)};
    trainer->next_bucket = 0;
    trainer->next_staged_event = 0;
    int64_t entered_ns = dpb_account_enter();
    dpb_status status = trainer->comm_ops->begin(trainer->comm, &step);
    if (trainer->pump.running) {
        __atomic_store_n(&trainer->pump.done, NULL, __ATOMIC_RELEASE);
        dpb_events.reset(trainer->pump.idle);
        dpb_events.signal(trainer->pump.kick);
    }
    dpb_account_leave(entered_ns);
    return status;
}

dpb_status dpb_exchange_ready(struct dpb_trainer *trainer, uint64_t frontier,
                              struct dpb_event *event)
{
    const struct dpb_arenas *arenas = &trainer->arenas;
    if (!event)
        dpb_account_ready(frontier);
    while (trainer->next_bucket < arenas->n_buckets &&
           minimum((trainer->next_bucket + 1) * arenas->bucket_elements,
                   trainer->layout.n_elements) <= frontier) {
        int64_t entered_ns = dpb_account_enter();
        dpb_status status = trainer->comm_ops->ready(trainer->comm, trainer->next_bucket++, event);
        dpb_account_leave(entered_ns);
        DPB_TRY(status);
    }
    return DPB_OK;
}

static dpb_status wait_for_pump(struct dpb_trainer *trainer)
{
    const struct dpb_wait wait = {.timeout_ns = DPB_FOREVER, /* the strategy's own waits have one */
                                  .step = trainer->step,
                                  .purpose = "the communication thread"};
    DPB_TRY(dpb_events.wait(trainer->pump.idle, &wait));
    return trainer->pump.status;
}

/* All of the exchange is enqueued: so is the next forward, behind it. */
static dpb_status hand_over(struct dpb_trainer *trainer, struct dpb_event *done)
{
    trainer->pending = done;
    return trainer->device_ops->follow(trainer->program, done);
}

/* Of the step before: its spans have been reported, and its last event has fired. */
static dpb_status settle_times(struct dpb_trainer *trainer)
{
    struct dpb_device_times times;
    if (!trainer->takes_events || !dpb_account_awaits_device())
        return DPB_OK;
    if (!trainer->device_ops->times(trainer->program, &times))
        return dpb_fail(DPB_FAILED, "step %llu: the device does not tell its times",
                        (unsigned long long)trainer->step);
    dpb_account_device(&times);
    return DPB_OK;
}

static dpb_status finish(struct dpb_trainer *trainer, struct dpb_event *done)
{
    if (trainer->takes_events)
        return hand_over(trainer, done);
    if (trainer->pump.running) {
        __atomic_store_n(&trainer->pump.done, done, __ATOMIC_RELEASE);
        return wait_for_pump(trainer);
    }
    return await_done(trainer, done);
}

dpb_status dpb_exchange_finish(struct dpb_trainer *trainer)
{
    dpb_world_note("exchange", UINT64_MAX, UINT32_MAX);
    struct dpb_event *done = trainer->replayed;
    int64_t entered_ns = dpb_account_enter();
    dpb_status status = done ? DPB_OK : trainer->comm_ops->end(trainer->comm, &done);
    trainer->replayed = NULL;
    if (status == DPB_OK)
        status = settle_times(trainer);
    if (status == DPB_OK)
        status = finish(trainer, done);
    if (status == DPB_OK)
        status = dpb_optimizer_refused();
    if (status == DPB_OK)
        status = dpb_optimizer_watch(trainer->optimizer, done);
    dpb_account_leave(entered_ns);
    trainer->weights_changed = true;
    return status;
}

dpb_status dpb_trainer_drain(struct dpb_trainer *trainer)
{
    if (!trainer->on_device)
        return DPB_OK;
    if (trainer->pending)
        DPB_TRY(await_done(trainer, trainer->pending));
    if (trainer->pending) /* it sees that, too, and reports its spans */
        DPB_TRY(trainer->comm_ops->progress(trainer->comm, 0));
    trainer->pending = NULL;
    if (trainer->program)
        DPB_TRY(trainer->device_ops->drain(trainer->program));
    return dpb_optimizer_find(trainer->optimizer);
}

/* ---- the device's hooks -------------------------------------------------------------------- */

dpb_status dpb_trainer_pause(struct dpb_trainer *trainer)
{
    DPB_TRY(dpb_trainer_drain(trainer));
    dpb_account_end();
    return settle_times(trainer);
}

/* What is between the device's gradients and the communicator's: each only where it is needed. */
struct staging {
    bool sums, first; /* over the micro-batches; of which this is the first */
    bool casts;       /* to the communicator's type, in the last of them */
    void *device, *summed, *given;
    uint64_t n;
};

/* Elements [begin, end) of this micro-batch's gradient are final. */
static struct staging staging_of(const struct dpb_trainer *trainer, uint64_t begin, uint64_t end,
                                 bool last)
{
    dpb_dtype type = trainer->layout.weight_type, comm_type = trainer->layout.gradient_type;
    size_t at = begin * dpb_dtype_size(type);
    return (struct staging){.sums = trainer->summed_gradients != trainer->device_gradients,
                            .first = trainer->micro_batch == 0,
                            .casts = last && comm_type != type,
                            .device = (char *)trainer->device_gradients + at,
                            .summed = (char *)trainer->summed_gradients + at,
                            .given = (char *)trainer->arenas.gradients +
                                     begin * dpb_dtype_size(comm_type),
                            .n = end - begin};
}

static dpb_status get_staged_event(struct dpb_trainer *trainer, struct dpb_event **event)
{
    size_t n = trainer->n_staged_events;
    if (trainer->next_staged_event == n) { /* in the first step */
        struct dpb_event **more = realloc(trainer->staged_events, (n + 1) * sizeof *more);
        if (!more)
            return dpb_fail(DPB_NO_MEMORY, "no memory for the events of a step");
        trainer->staged_events = more;
        DPB_TRY(trainer->place->ops->new_event(trainer->place->device, &more[n]));
        trainer->n_staged_events++;
    }
    *event = trainer->staged_events[trainer->next_staged_event++];
    return DPB_OK;
}

/* Enqueued behind *event (NULL: at once); *event then fires when the work is done (NULL: it is). */
static dpb_status stage(struct dpb_trainer *trainer, const struct staging *s,
                        struct dpb_event **event)
{
    const struct dpb_queue_ops *ops = trainer->place->ops;
    struct dpb_queue *queue = trainer->queue;
    dpb_dtype type = trainer->layout.weight_type;
    if (!s->sums && !s->casts)
        return DPB_OK;
    if (*event)
        DPB_TRY(ops->await(queue, *event));
    if (s->sums && s->first)
        DPB_TRY(ops->copy(queue, s->summed, s->device, s->n * dpb_dtype_size(type)));
    else if (s->sums)
        DPB_TRY(ops->axpby(queue, type, 1.0, s->device, 1.0, s->summed, s->n));
    if (s->casts)
        DPB_TRY(ops->cast(queue, trainer->layout.gradient_type, s->given, type, s->summed, s->n));
    if (!trainer->on_device) /* the host has done it */
        return DPB_OK;
    DPB_TRY(get_staged_event(trainer, event));
    return ops->record(queue, *event);
}

static dpb_status wait_for(const struct dpb_trainer *trainer, struct dpb_event **event)
{
    const struct dpb_wait wait = {.step = trainer->step, .purpose = "the device's gradients"};
    if (*event)
        DPB_TRY(dpb_events.wait(*event, &wait));
    *event = NULL;
    return DPB_OK;
}

/* Buckets are complete in the last micro-batch. Before it, the device's next pass begins when its
 * gradients of this one have been added up. */
static dpb_status on_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    struct dpb_trainer *trainer = context;
    bool last = trainer->micro_batch + 1 == trainer->experiment->accumulate;
    const struct staging s = staging_of(trainer, trainer->staged, frontier, last);
    if (!trainer->takes_events)
        DPB_TRY(wait_for(trainer, &event));
    if (frontier > trainer->staged)
        DPB_TRY(stage(trainer, &s, &event));
    trainer->staged = frontier;
    if (!last && event && frontier == trainer->layout.n_elements)
        return trainer->device_ops->follow(trainer->program, event);
    if (!last)
        return DPB_OK;
    if (!trainer->takes_events)
        DPB_TRY(wait_for(trainer, &event));
    return trainer->scales ? DPB_OK : dpb_exchange_ready(trainer, frontier, event);
}

static dpb_status on_progress(void *context)
{
    struct dpb_trainer *trainer = context;
    if (trainer->pump.running || (trainer->next_bucket == 0 && !trainer->pending))
        return DPB_OK; /* nothing was handed over yet, nor is left of the last step */
    int64_t entered_ns = dpb_account_enter();
    dpb_status status = trainer->comm_ops->progress(trainer->comm, progress_budget_ns);
    dpb_account_leave(entered_ns);
    return status;
}

static dpb_status on_capture(void *context, const struct dpb_capture *capture)
{
    const struct dpb_trainer *trainer = context;
    return trainer->comm_ops->capture(trainer->comm, capture);
}

static dpb_status on_join(void *context, struct dpb_event **event)
{
    const struct dpb_trainer *trainer = context;
    return trainer->comm_ops->end(trainer->comm, event);
}

static dpb_status on_replay(void *context)
{
    struct dpb_trainer *trainer = context;
    int64_t entered_ns = dpb_account_enter();
    dpb_status status = trainer->comm_ops->replay(trainer->comm, &trainer->replayed);
    dpb_account_leave(entered_ns);
    return status;
}

struct dpb_hooks dpb_trainer_hooks(struct dpb_trainer *trainer)
{
    return (struct dpb_hooks){.context = trainer,
                              .final = on_final,
                              .progress = on_progress,
                              .capture = on_capture,
                              .join = on_join,
                              .replay = on_replay};
}
