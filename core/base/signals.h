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

/* Those that end a run, which then writes what it has measured: by a terminal, a batch system
 * before a limit, a timer. One that is ignored (nohup, a shell's background) stays ignored. */
enum { DPB_ENDING_SIGNALS = 8, DPB_SIGNALS_HELD = DPB_ENDING_SIGNALS + 2 };
extern const int dpb_ending_signals[DPB_ENDING_SIGNALS];

bool dpb_signals_ends(int number);
bool dpb_signals_ignored(int number);

struct dpb_signals {
    sigset_t held;
    int numbers[DPB_SIGNALS_HELD]; /* 0: none */
    /* As before. */
    sigset_t mask;
    struct sigaction actions[DPB_SIGNALS_HELD];
    int counted; /* dpb_signals_interrupts: the last one, and when */
    int64_t counted_ns;
};

/* From here on the ending signals and two more (0: none) stay pending for this thread, which takes
 * them by sigtimedwait or signalfd. Any other thread blocks each signal after it has got that
 * signal once. */
void dpb_signals_hold(struct dpb_signals *signals, int more, int one_more);
/* Whether a signal that the thread has taken ends a run, and counts. Of two equal ones within 0.1 s
 * the second does not: `timeout` sends a signal to its child, then to the child's group. */
bool dpb_signals_interrupts(struct dpb_signals *signals, int number);
/* Whether one that ends a run is pending. */
bool dpb_signals_pending(void);
/* By the same thread. Pending signals are then delivered. */
void dpb_signals_release(const struct dpb_signals *signals);
/* Calls `handler` for the ending signals that are not ignored; they do not interrupt it. */
void dpb_signals_handle(void (*handler)(int number), struct sigaction old[DPB_ENDING_SIGNALS]);
void dpb_signals_restore(const struct sigaction old[DPB_ENDING_SIGNALS]);

#endif
