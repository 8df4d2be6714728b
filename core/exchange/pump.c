/* pump.c - see pump.h. */
#include "exchange/pump.h"

#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "base/threads.h"
#include "world/futex.h"

/* A strategy's own waits have deadlines. This one is for a strategy that has nothing to wait for,
 * counts no bytes, and does not signal `done`: sooner than run.timeout_s, so that this rank fails
 * before the ranks that wait for it. */
dpb_status dpb_exchange_await(struct dpb_exchange *exchange, struct dpb_event *done)
{
    const int64_t limit_ns = dpb_world.timeout_ns / 2;
    uint64_t signs = 0;
    struct dpb_deadline deadline = {0};
    while (!dpb_events.poll(done)) {
        DPB_TRY(exchange->ops->progress(exchange->comm, DPB_FOREVER));
        if (deadline.at_ns == 0 || signs != dpb_wait_signs()) {
            signs = dpb_wait_signs();
            deadline = dpb_deadline_in(limit_ns);
        } else if (dpb_wait_is_over()) {
            return dpb_wait_cancelled(&(struct dpb_wait){.purpose = "the end of an exchange"});
        } else if (dpb_deadline_passed(deadline)) {
            return dpb_fail(DPB_TIMEOUT,
                            "step %llu: comm '%s' has not signalled the event `done` of its `end` "
                            "within %.1f s, and waits for nothing",
                            (unsigned long long)dpb_world_step(),
                            exchange->experiment->settings.comm.name, (double)limit_ns * 1e-9);
        }
    }
    return DPB_OK;
}

static bool is_stopped(const struct dpb_pump *pump)
{
    return __atomic_load_n(&pump->stop, __ATOMIC_ACQUIRE) != 0;
}

/* If the loop's thread has failed, the helper is stopped within a step: no more work comes. */
static dpb_status pump_one_step(struct dpb_exchange *exchange)
{
    struct dpb_pump *pump = &exchange->pump;
    while (!is_stopped(pump)) {
        DPB_TRY(exchange->ops->progress(exchange->comm, DPB_FOREVER));
        struct dpb_event *done = __atomic_load_n(&pump->done, __ATOMIC_ACQUIRE);
        if (done)
            return dpb_exchange_await(exchange, done);
        usleep(20); /* all is exchanged; `end` is about to be called */
    }
    return DPB_PEER;
}

static void *pump_main(void *argument)
{
    struct dpb_exchange *exchange = argument;
    struct dpb_pump *pump = &exchange->pump;
    const struct dpb_wait forever = {.timeout_ns = DPB_FOREVER, .purpose = "the next step"};
    dpb_thread_enter();
    dpb_world_note_aside();
    while (dpb_events.wait(pump->kick, &forever) == DPB_OK) {
        dpb_events.reset(pump->kick);
        if (is_stopped(pump))
            break;
        dpb_world_heed(&pump->stop);
        pump->status = pump_one_step(exchange);
        dpb_world_heed(NULL);
        dpb_world_note("", UINT64_MAX, UINT32_MAX); /* it waits for no peer */
        dpb_events.signal(pump->idle);
    }
    dpb_thread_leave();
    return NULL;
}

dpb_status dpb_pump_start(struct dpb_exchange *exchange)
{
    struct dpb_pump *pump = &exchange->pump;
    if (exchange->experiment->settings.run.comm_cores == 0)
        return DPB_OK;
    pump->kick = dpb_events.create();
    pump->idle = dpb_events.create();
    if (!pump->kick || !pump->idle)
        return DPB_NO_MEMORY;
    const int error = pthread_create(&pump->thread, NULL, pump_main, exchange);
    if (error != 0)
        return dpb_fail(DPB_FAILED, "cannot start the communication thread: %s", strerror(error));
    pthread_setname_np(pump->thread, "dpb-comm");
    pump->running = true;
    return DPB_OK;
}

void dpb_pump_stop(struct dpb_pump *pump)
{
    if (pump->running) {
        __atomic_store_n(&pump->stop, 1, __ATOMIC_RELEASE);
        dpb_events.signal(pump->kick);
        pthread_join(pump->thread, NULL);
    }
    dpb_events.destroy(pump->kick);
    dpb_events.destroy(pump->idle);
    *pump = (struct dpb_pump){.running = false};
}

void dpb_pump_kick(struct dpb_pump *pump)
{
    __atomic_store_n(&pump->done, NULL, __ATOMIC_RELEASE);
    dpb_events.reset(pump->idle);
    dpb_events.signal(pump->kick);
}

void dpb_pump_end(struct dpb_pump *pump, struct dpb_event *done)
{
    __atomic_store_n(&pump->done, done, __ATOMIC_RELEASE);
}

dpb_status dpb_pump_await(struct dpb_exchange *exchange, struct dpb_event *done)
{
    struct dpb_pump *pump = &exchange->pump;
    const struct dpb_wait wait = {.timeout_ns = DPB_FOREVER, /* the strategy's own waits have one */
                                  .step = dpb_world_step(),
                                  .purpose = "the communication thread"};
    if (!pump->running)
        return dpb_exchange_await(exchange, done);
    dpb_pump_end(pump, done);
    dpb_world_show_aside(true);
    const dpb_status status = dpb_events.wait(pump->idle, &wait);
    dpb_world_show_aside(false);
    return status == DPB_OK ? pump->status : status;
}
