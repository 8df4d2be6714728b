/* wakes.h - a wait for the network that another thread of the rank ends. */
#ifndef DPB_TESTS_UNIT_WAKES_H
#define DPB_TESTS_UNIT_WAKES_H

#include <pthread.h>

#include "tests/unit/trial.h"

struct waker {
    void *of;
    dpb_status (*wait)(void *of);
    void (*wake)(void *of);
};

static void *wake_later(void *waker_)
{
    const struct waker *waker = waker_;
    trial_sleep_ms(50);
    waker->wake(waker->of);
    return NULL;
}

/* Nothing comes by the network meanwhile. */
static inline void expect_woken(struct waker waker)
{
    pthread_t thread;
    int64_t quickest_ns = INT64_MAX;
    dpb_world.timeout_ns = 5000000000; /* of a wait that nobody ends */
    for (int i = 0; i < 3; i++) {
        const int64_t begin_ns = dpb_now_ns();
        assert_int_equal(pthread_create(&thread, NULL, wake_later, &waker), 0);
        assert_int_equal(waker.wait(waker.of), DPB_OK);
        const int64_t took_ns = dpb_now_ns() - begin_ns;
        quickest_ns = took_ns < quickest_ns ? took_ns : quickest_ns;
        pthread_join(thread, NULL);
        waker.wake(waker.of); /* before the wait: it does not begin */
        assert_int_equal(waker.wait(waker.of), DPB_OK);
    }
    dpb_world.timeout_ns = 0;
    assert_true(quickest_ns < 1000000000);
}

#endif
