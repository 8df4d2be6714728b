/* trace.c - see trace.h. */
#include "measure/trace.h"

#include <pthread.h>

struct dpb_trace_ring *dpb_trace_ring;

static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ring_capacity;
static bool stopped;

uint64_t dpb_trace_capacity(const struct dpb_settings *settings)
{
    return settings->run.trace[0] ? (uint64_t)settings->run.trace_steps * DPB_TRACE_SPANS : 0;
}

size_t dpb_trace_bytes(const struct dpb_settings *settings)
{
    const uint64_t capacity = dpb_trace_capacity(settings);
    return capacity ? sizeof(struct dpb_trace_ring) + capacity * sizeof(struct dpb_trace_span) : 0;
}

void dpb_trace_open(struct dpb_trace_ring *ring, uint64_t capacity)
{
    dpb_trace_ring = ring;
    ring_capacity = capacity;
    stopped = false;
}

void dpb_trace_close(void)
{
    dpb_trace_ring = NULL;
}

void dpb_trace_stop(void)
{
    pthread_mutex_lock(&ring_lock);
    stopped = true;
    pthread_mutex_unlock(&ring_lock);
}

void dpb_trace_write(struct dpb_trace_span span)
{
    struct dpb_trace_ring *ring = dpb_trace_ring;
    pthread_mutex_lock(&ring_lock);
    if (!stopped) {
        ring->spans[ring->n % ring_capacity] = span;
        __atomic_store_n(&ring->n, ring->n + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&ring_lock);
}
