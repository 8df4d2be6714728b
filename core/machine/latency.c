/* latency.c - see latency.h. */
#include "machine/latency.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/deadline.h"
#include "base/log.h"
#include "dpbench/types.h"
#include "machine/cores.h"

enum { BATCHES = 8, PASSES = 400, LOOKS = 256 };

struct line {
    _Alignas(2 * DPB_CACHE_LINE) uint32_t passes; /* done; atomically */
    _Alignas(2 * DPB_CACHE_LINE) double least_ns;
    struct dpb_deadline end;
};

/* Passes it on once that many passes are done. False: the other side has not got its core. */
static bool pass(struct line *line, uint32_t passes)
{
    for (uint32_t looks = 1; __atomic_load_n(&line->passes, __ATOMIC_ACQUIRE) != passes; looks++)
        if (looks % LOOKS == 0 && dpb_deadline_passed(line->end))
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
    for (uint32_t passes = 1; passes < BATCHES * PASSES && pass(argument, passes); passes += 2)
        continue;
    return NULL;
}

double dpb_core_latency_ns(uint16_t a, uint16_t b)
{
    struct line line = {.least_ns = NAN, .end = dpb_deadline_in(2000000)};
    pthread_t one, other;
    if (a == b || dpb_cores_start_thread(a, come_and_go, &line, &one) != 0)
        return NAN;
    if (dpb_cores_start_thread(b, go_and_come, &line, &other) == 0)
        pthread_join(other, NULL);
    pthread_join(one, NULL);
    return line.least_ns;
}
