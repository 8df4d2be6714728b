/* latency.c - see latency.h. */
#include "machine/latency.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "base/deadline.h"
#include "base/log.h"
#include "dpbench/types.h"

enum { BATCHES = 8, PASSES = 400, LOOKS = 256 };

struct line {
    _Alignas(2 * DPB_CACHE_LINE) uint32_t passes; /* done; atomically */
    _Alignas(2 * DPB_CACHE_LINE) double least_ns;
    struct dpb_deadline end;
};

/* Waits until that many passes are done. False: the other side has not got its core. */
static bool await(const struct line *line, uint32_t passes)
{
    for (uint32_t looks = 1; __atomic_load_n(&line->passes, __ATOMIC_ACQUIRE) != passes; looks++)
        if (looks % LOOKS == 0 && dpb_deadline_passed(line->end))
            return false;
    return true;
}

static bool pass(struct line *line, uint32_t passes)
{
    if (!await(line, passes))
        return false;
    __atomic_store_n(&line->passes, passes + 1, __ATOMIC_RELEASE);
    return true;
}

static void *come_and_go(void *argument)
{
    struct line *line = argument;
    for (uint32_t batch = 0, passes = 0; batch < BATCHES; batch++) {
        const int64_t began_ns = dpb_now_ns();
        for (uint32_t i = 0; i < PASSES; i += 2, passes += 2)
            if (!pass(line, passes))
                return NULL;
        if (batch > 0) /* the first waits for the other thread to start */
            line->least_ns = fmin(line->least_ns, (double)(dpb_now_ns() - began_ns) / PASSES);
    }
    return NULL;
}

static void *go_and_come(void *argument)
{
    for (uint32_t passes = 1; passes < BATCHES * PASSES && pass(argument, passes); passes += 2) {
    }
    return NULL;
}

static bool start_on(uint16_t cpu, void *(*side)(void *), struct line *line, pthread_t *thread)
{
    cpu_set_t set;
    pthread_attr_t attributes;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (cpu >= CPU_SETSIZE || pthread_attr_init(&attributes) != 0)
        return false;
    const bool started = pthread_attr_setaffinity_np(&attributes, sizeof set, &set) == 0 &&
                         pthread_create(thread, &attributes, side, line) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

double dpb_core_latency_ns(uint16_t a, uint16_t b)
{
    struct line line = {.least_ns = INFINITY, .end = dpb_deadline_in(2000000)};
    pthread_t one, other;
    if (a == b || !start_on(a, come_and_go, &line, &one))
        return NAN;
    if (start_on(b, go_and_come, &line, &other))
        pthread_join(other, NULL);
    pthread_join(one, NULL);
    return isfinite(line.least_ns) ? line.least_ns : NAN;
}
