/*
 * wake.h - ends the wait of a thread of this rank that sleeps in poll, from another thread: the
 * loop's, beside that of run.comm_cores. doorbell.h is for other ranks of the machine.
 *
 * A waiter says that it waits and then looks whether it was woken; who wakes does it the other way
 * round. In the one order of these four accesses one of the two sees the other.
 */
#ifndef DPB_PLUGINS_LIB_WAKE_H
#define DPB_PLUGINS_LIB_WAKE_H

#include "dpbench/host.h"

struct wake {
    int fd; /* readable when a sleeper was woken; -1: not open */
    uint32_t waiting;
    uint32_t woken; /* not 0: since the last disarm */
};

dpb_status wake_open(const struct dpb_host *host, struct wake *wake);
void wake_up(struct wake *wake); /* any thread */
/* For who waits, one thread, in this order. `arm`: false: it was woken since the last disarm, so
 * there is something to look at, and not to be waited. Then poll of `fd` and of others; then
 * `disarm`, in either case. `readable`: poll has reported `fd`. */
bool wake_arm(struct wake *wake);
void wake_disarm(struct wake *wake, bool readable);
void wake_close(struct wake *wake); /* accepts one that is not open */

#endif
