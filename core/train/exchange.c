/*
 * exchange.c - between the device and the communicator: gradients become ready, buckets are handed
 * over, the communicator moves on, the weights are waited for. All of it on the loop's thread but
 * the pump, which moves the communicator on when it has a core of its own.
 */
#include <unistd.h>

#include "base/log.h"
#include "base/vec.h"
#include "train/trainer.h"

/* Between the device's ops: long enough for a piece of work, short against an op. */
static const int64_t progress_budget_ns = 500000;

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- the pump ------------------------------------------------------------------------------ */

static dpb_status pump_one_step(struct dpb_trainer *trainer)
{
    struct dpb_pump *pump = &trainer->pump;
    for (;;) {
        DPB_TRY(trainer->comm_ops->progress(trainer->comm, DPB_FOREVER));
        struct dpb_event *done = __atomic_load_n(&pump->done, __ATOMIC_ACQUIRE);
        if (done && dpb_events.poll(done))
            return DPB_OK;
        if (!done)
            usleep(20); /* all is exchanged; `end` is about to be called */
    }
}

static void *pump_main(void *argument)
{
    struct dpb_trainer *trainer = argument;
    struct dpb_pump *pump = &trainer->pump;
    const struct dpb_wait forever = {.timeout_ns = DPB_FOREVER, .purpose = "the next step"};
    while (dpb_events.wait(pump->kick, &forever) == DPB_OK) {
        dpb_events.reset(pump->kick);
        if (__atomic_load_n(&pump->stop, __ATOMIC_ACQUIRE))
            break;
        pump->status = pump_one_step(trainer);
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
    const struct dpb_step step = {.step = trainer->exchanges++,
                                  .learning_rate = learning_rate,
                                  .scale = scale,
                                  .plain = plain};
    trainer->next_bucket = 0;
    int64_t entered_ns = dpb_account_enter();
    dpb_status status = trainer->comm_ops->begin(trainer->comm, 0, &step);
    if (trainer->pump.running) {
        __atomic_store_n(&trainer->pump.done, NULL, __ATOMIC_RELEASE);
        dpb_events.reset(trainer->pump.idle);
        dpb_events.signal(trainer->pump.kick);
    }
    dpb_account_leave(entered_ns);
    return status;
}

dpb_status dpb_exchange_ready(struct dpb_trainer *trainer, uint64_t frontier)
{
    const struct dpb_arenas *arenas = &trainer->arenas;
    while (trainer->next_bucket < arenas->n_buckets &&
           minimum((trainer->next_bucket + 1) * arenas->bucket_elements,
                   trainer->layout.n_elements) <= frontier) {
        int64_t entered_ns = dpb_account_enter();
        dpb_status status =
            trainer->comm_ops->ready(trainer->comm, 0, trainer->next_bucket++, NULL);
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

static dpb_status finish(struct dpb_trainer *trainer)
{
    struct dpb_event *done;
    DPB_TRY(trainer->comm_ops->end(trainer->comm, 0, &done));
    if (trainer->pump.running) {
        __atomic_store_n(&trainer->pump.done, done, __ATOMIC_RELEASE);
        return wait_for_pump(trainer);
    }
    while (!dpb_events.poll(done))
        DPB_TRY(trainer->comm_ops->progress(trainer->comm, DPB_FOREVER));
    return DPB_OK;
}

dpb_status dpb_exchange_finish(struct dpb_trainer *trainer)
{
    dpb_world_note("exchange", UINT64_MAX, UINT32_MAX);
    int64_t entered_ns = dpb_account_enter();
    dpb_status status = finish(trainer);
    dpb_account_leave(entered_ns);
    trainer->weights_changed = true;
    return status;
}

/* ---- the device's hooks -------------------------------------------------------------------- */

/* Elements [begin, end) of this micro-batch's gradient are final: adds them up over the
 * micro-batches and, in the last one, converts them to the communicator's type; each only where it
 * is needed. */
static void stage(struct dpb_trainer *trainer, uint64_t begin, uint64_t end, bool last)
{
    dpb_dtype type = trainer->layout.weight_type, comm_type = trainer->layout.gradient_type;
    size_t at = begin * dpb_dtype_size(type);
    char *device = (char *)trainer->device_gradients + at;
    char *summed = (char *)trainer->summed_gradients + at;
    if (summed != device) {
        if (trainer->micro_batch == 0)
            dpb_vec.copy(type, summed, device, end - begin);
        else
            dpb_vec.axpby(type, 1.0, device, 1.0, summed, end - begin);
    }
    if (last && comm_type != type)
        dpb_vec.cast(comm_type,
                     (char *)trainer->arenas.gradients + begin * dpb_dtype_size(comm_type), type,
                     summed, end - begin);
}

static dpb_status on_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    struct dpb_trainer *trainer = context;
    bool last = trainer->micro_batch + 1 == trainer->experiment->accumulate;
    if (event) {
        const struct dpb_wait wait = {.step = trainer->step, .purpose = "the device's gradients"};
        DPB_TRY(dpb_events.wait(event, &wait));
    }
    if (frontier > trainer->staged)
        stage(trainer, trainer->staged, frontier, last);
    trainer->staged = frontier;
    return last ? dpb_exchange_ready(trainer, frontier) : DPB_OK;
}

static dpb_status on_progress(void *context)
{
    struct dpb_trainer *trainer = context;
    if (trainer->pump.running || trainer->next_bucket == 0)
        return DPB_OK; /* nothing was handed over yet */
    int64_t entered_ns = dpb_account_enter();
    dpb_status status = trainer->comm_ops->progress(trainer->comm, progress_budget_ns);
    dpb_account_leave(entered_ns);
    return status;
}

struct dpb_hooks dpb_trainer_hooks(struct dpb_trainer *trainer)
{
    return (struct dpb_hooks){.context = trainer, .final = on_final, .progress = on_progress};
}
