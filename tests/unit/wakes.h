/* wakes.h - a wait for the network that another thread of the rank ends by the doorbell. */
#ifndef DPB_TESTS_UNIT_WAKES_H
#define DPB_TESTS_UNIT_WAKES_H

#include <pthread.h>

#include "tests/unit/trial.h"

#include "lib/signals/signals.h"
#include "train/experiment.h"

/* ---- the store of a job of one rank, for its address ---------------------------------------- */

static struct {
    char value[256];
    size_t bytes;
} wakes_kept;

static dpb_status wakes_put(const char *key, const void *value, size_t bytes)
{
    (void)key;
    assert_true(bytes <= sizeof wakes_kept.value);
    memcpy(wakes_kept.value, value, bytes);
    wakes_kept.bytes = bytes;
    return DPB_OK;
}

static dpb_status wakes_get(const char *key, void *value, size_t *bytes, int64_t timeout_ns)
{
    (void)key;
    (void)timeout_ns;
    assert_true(wakes_kept.bytes <= *bytes);
    memcpy(value, wakes_kept.value, wakes_kept.bytes);
    *bytes = wakes_kept.bytes;
    return DPB_OK;
}

/* Rank 0's, which rings itself. */
static inline struct dpb_doorbell *wakes_doorbell(void)
{
    static const struct dpb_store_ops store = {wakes_put, wakes_get};
    static struct dpb_signal_page page;
    static struct dpb_signal_page *const pages[] = {&page};
    static struct dpb_host host;
    const struct dpb_comm_args args = {.n_workers = 1, .comm_cores = 1};
    const struct dpb_rank_signals signals = {.host = &host, .pages = pages};
    struct dpb_doorbell *doorbell;
    host = dpb_host;
    host.store = &store;
    memset(&page, 0, sizeof page);
    assert_int_equal(dpb_signals_open_doorbell(&signals, &args, "wakes", &doorbell), DPB_OK);
    return doorbell;
}

/* ---- the wait ------------------------------------------------------------------------------ */

static void *wakes_ring_later(void *doorbell)
{
    trial_sleep_ms(50);
    dpb_doorbell_ring(doorbell);
    return NULL;
}

/* Nothing comes by the network meanwhile. */
static inline void expect_woken(struct dpb_doorbell *doorbell, dpb_status (*wait)(void *of),
                                void *of)
{
    pthread_t thread;
    int64_t quickest_ns = INT64_MAX;
    dpb_world.timeout_ns = 5000000000; /* of a wait that nobody ends */
    for (int i = 0; i < 3; i++) {
        const int64_t begin_ns = dpb_now_ns();
        assert_int_equal(pthread_create(&thread, NULL, wakes_ring_later, doorbell), 0);
        assert_int_equal(wait(of), DPB_OK);
        const int64_t took_ns = dpb_now_ns() - begin_ns;
        quickest_ns = took_ns < quickest_ns ? took_ns : quickest_ns;
        pthread_join(thread, NULL);
        dpb_doorbell_ring(doorbell); /* before the wait: it does not begin */
        assert_int_equal(wait(of), DPB_OK);
    }
    dpb_world.timeout_ns = 0;
    assert_true(quickest_ns < 1000000000);
}

#endif
