/*
 * delay.h - run.delay: workers sleep before they hand over a step's gradients, as stragglers do.
 *
 * A delay is a function of rank and step, and of run.seed or the trace. So two strategies meet the
 * same stragglers, and a test knows the sum. With u uniform in (0, 1]:
 *
 *     constant(t)      t
 *     exponential(t)   -t log u          mean t
 *     pareto(t, a)     t u^(-1/a)        at least t, mean t a / (a - 1)
 *     chance(t, p)     t where u <= p, else none; mean t p
 *     trace(FILE)      of the file's n delays, one a line, number (step x workers + rank) mod n
 *
 * Devroye: Non-uniform random variate generation. Springer 1986 (inversion).
 */
#ifndef DPB_CORE_PLAN_DELAY_H
#define DPB_CORE_PLAN_DELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpbench/status.h"
#include "world/board.h"

typedef enum dpb_delay_kind {
    DPB_DELAY_NONE,
    DPB_DELAY_CONSTANT,
    DPB_DELAY_EXPONENTIAL,
    DPB_DELAY_PARETO,
    DPB_DELAY_CHANCE,
    DPB_DELAY_TRACE
} dpb_delay_kind;

struct dpb_delay {
    dpb_delay_kind kind;
    double time_ns, shape;
    uint64_t seed;
    double dilation;           /* it sleeps so many times as long; 1 by dpb_delay_make */
    bool ranks[DPB_JOB_RANKS]; /* the delayed ranks */
    uint32_t n_workers;
    int64_t *trace_ns; /* @owned */
    uint64_t n_trace;
};

/* From run.delay and run.delay_ranks ("all", or ranks below n_workers and commas). DPB_USAGE, with
 * the origin of the wrong setting, or with file and line of a trace. */
dpb_status dpb_delay_make(const char *delay, const char *delay_origin, const char *ranks,
                          const char *ranks_origin, uint32_t n_workers, uint64_t seed,
                          struct dpb_delay *made);
/* Gets the FILE of trace(FILE). False: `delay` is of another kind, and `file` undefined. */
bool dpb_delay_file(const char *delay, char *file, size_t size);
void dpb_delay_destroy(struct dpb_delay *delay); /* accepts zeroed ones */
/* Nanoseconds, without dilation; 0 for a rank that is not delayed. */
int64_t dpb_delay_of(const struct dpb_delay *delay, uint32_t rank, uint64_t step);
/* The most looks of a delay of up to 13 min; longer delays look every DPB_WAIT_SLICE_NS. Each look
 * is a span of the account. */
enum { DPB_DELAY_LOOKS = 16384 };
/* Sets *over to end a delay early. */
typedef dpb_status (*dpb_delay_look)(void *context, bool *over);
/* Sleeps until the delay is over; never less, unless `look` (NULL: none) ends it, or SIGINT or
 * SIGTERM comes. `look` is called about twice a ms, in delays over 8 s less often: an exchange that
 * only looks move on then takes longer. DPB_PEER if the job ends meanwhile. */
dpb_status dpb_delay_sleep(const struct dpb_delay *delay, uint32_t rank, uint64_t step,
                           dpb_delay_look look, void *context);

#endif
