/*
 * signals.h - signals that one thread of the process holds, and takes when it is ready.
 *
 * The kernel gives a signal of the process to any thread that does not block it. Threads that
 * libraries start (a driver's, PMIx's) often block none: with the usual actions they lose SIGCHLD,
 * and SIGINT in them ends the process.
 */
#ifndef DPB_CORE_BASE_SIGNALS_H
#define DPB_CORE_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { DPB_SIGNALS_HELD = 4 };

struct dpb_signals {
    sigset_t held;
    int numbers[DPB_SIGNALS_HELD];
    /* As before. */
    sigset_t mask;
    struct sigaction actions[DPB_SIGNALS_HELD];
    int counted; /* dpb_signals_interrupts: the last one, and when */
    int64_t counted_ns;
};

/* From here on these signals (0: none) stay pending for this thread, which takes them by
 * sigtimedwait or signalfd. Any other thread blocks each signal after it has got that signal
 * once. */
void dpb_signals_hold(struct dpb_signals *signals, const int numbers[DPB_SIGNALS_HELD]);
/* Whether a signal that the thread has taken is SIGINT or SIGTERM, and counts. Of two equal ones
 * within 0.1 s the second does not: `timeout` sends a signal to its child, then to the child's
 * group. */
bool dpb_signals_interrupts(struct dpb_signals *signals, int number);
/* By the same thread. Pending signals are then delivered. */
void dpb_signals_release(const struct dpb_signals *signals);

#endif
