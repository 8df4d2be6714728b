/*
 * deadline.h - the clock of waits. It leaves out time in which this process did not run: a frozen
 * control group, SIGSTOP, a machine that slept. Not a clock for measuring.
 *
 * A wait looks at this clock at least every DPB_LOOK_NS. If no thread of the process has looked for
 * a second, the process was not waiting, or it did not run. Then the clock advances by the CPU time
 * that the process used meanwhile, or by DPB_LOOK_NS if that is more. Any thread; all share it.
 * If the machine's clock runs backwards, this one goes on.
 */
#ifndef DPB_CORE_BASE_DEADLINE_H
#define DPB_CORE_BASE_DEADLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DPB_LOOK_NS INT64_C(250000000)

int64_t dpb_ran_ns(void);
/* Starts a thread that looks, for the rest of the process: from then on the CPU time is not asked
 * for, and a process that only blocks misses nothing. An errno. */
int dpb_ran_tick(void);
/* Whether CLOCK_MONOTONIC has run backwards: no time that was measured is right. Says so in `why`.
 */
bool dpb_ran_backwards(char *why, size_t size);
/* After a call that blocks for long without a look, as a name's lookup may: the time since the last
 * look counts. */
void dpb_ran_blocked(void);
/* Leaves out `ns` more: this process ran, but rested on purpose. */
void dpb_ran_rested(int64_t ns);
/* Leaves out what *parked_ns counts: another process raises it, by each time for which it had
 * stopped this one, before it continues it. @borrowed until the next call; NULL: none. */
void dpb_ran_without(const int64_t *parked_ns);
int64_t dpb_parked_ns(void); /* what it counts now; 0: none */
/* Looks, too. Returns all time that the clock has left out. */
int64_t dpb_missed_ns(void);

/* The end of a wait. A structure, so that nobody compares it with another clock. */
struct dpb_deadline {
    int64_t at_ns; /* by dpb_ran_ns; INT64_MAX: never */
};

struct dpb_deadline dpb_deadline_in(int64_t ns); /* from now on; negative: never */
struct dpb_deadline dpb_deadline_first(struct dpb_deadline a, struct dpb_deadline b);
int64_t dpb_deadline_left_ns(struct dpb_deadline deadline); /* negative: passed */
bool dpb_deadline_passed(struct dpb_deadline deadline);
/* How long to sleep before the next look, for poll(2). */
int dpb_deadline_look_ms(struct dpb_deadline deadline);

#endif
