/*
 * futex.h - sleeps on a word of memory: the common part of flags (between processes) and events.
 */
#ifndef DPB_CORE_WORLD_FUTEX_H
#define DPB_CORE_WORLD_FUTEX_H

#include "dpbench/host.h"

typedef enum dpb_futex_scope { DPB_FUTEX_SHARED, DPB_FUTEX_PRIVATE } dpb_futex_scope;

/* Release; a system call only if a waiter sleeps. */
void dpb_futex_set(struct dpb_flag *flag, uint32_t value, dpb_futex_scope scope);
/* Acquire. */
bool dpb_futex_reached(const struct dpb_flag *flag, uint32_t value);
/* As dpb_flag_ops.wait. */
dpb_status dpb_futex_wait(struct dpb_flag *flag, uint32_t value, dpb_futex_scope scope,
                          const struct dpb_wait *what);

/* The nanoseconds of a wait's timeout (0: run.timeout_s); DPB_FOREVER stays unchanged.
 */
int64_t dpb_timeout_of(int64_t timeout_ns);

#define DPB_WAIT_SPIN_NS INT64_C(20000) /* how long a waiter looks before it sleeps */
/* How soon a sleeper sees the job's end and its deadline. */
#define DPB_WAIT_SLICE_NS INT64_C(50000000)
enum { DPB_WAIT_NAP_US = 20 }; /* between two looks, if nothing wakes the waiter */
/* The message of a wait whose deadline has passed, and of one that the job's end cut short.
 * `detail` is appended: "; at 3, wanted 4". */
dpb_status dpb_wait_expired(const struct dpb_wait *what, int64_t waited_ns, const char *detail);
dpb_status dpb_wait_cancelled(const struct dpb_wait *what);
/* Counts signs that a strategy is at work: a wait of this process has slept, bytes were counted. */
void dpb_wait_sign(void);
uint64_t dpb_wait_signs(void);
/* Whether waits must end early: for all of the job, or for this thread. */
bool dpb_wait_is_over(void);

#endif
