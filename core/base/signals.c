/* signals.c - see signals.h. */
#include "base/signals.h"

#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/log.h"

#define AT_ONCE_NS INT64_C(100000000)

const int dpb_ending_signals[DPB_ENDING_SIGNALS] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                                    SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU};

bool dpb_signals_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) &&
           action.sa_handler == SIG_IGN;
}

/* Runs in a thread that did not block the signal: on return it is blocked, and another gets it. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    (void)info;
    sigaddset(&((ucontext_t *)context)->uc_sigmask, number);
    kill(getpid(), number);
}

void dpb_signals_hold(struct dpb_signals *signals, int more, int one_more)
{
    const struct sigaction passing = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    int *numbers = signals->numbers;
    signals->counted = 0;
    for (int i = 0; i < DPB_ENDING_SIGNALS; i++)
        numbers[i] = dpb_signals_ignored(dpb_ending_signals[i]) ? 0 : dpb_ending_signals[i];
    numbers[DPB_ENDING_SIGNALS] = more;
    numbers[DPB_ENDING_SIGNALS + 1] = one_more;
    sigemptyset(&signals->held);
    for (int i = 0; i < DPB_SIGNALS_HELD; i++)
        if (numbers[i] != 0)
            sigaddset(&signals->held, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &signals->held, &signals->mask);
    for (int i = 0; i < DPB_SIGNALS_HELD; i++)
        if (numbers[i] != 0)
            sigaction(numbers[i], &passing, &signals->actions[i]);
}

bool dpb_signals_ends(int number)
{
    for (int i = 0; i < DPB_ENDING_SIGNALS; i++)
        if (number == dpb_ending_signals[i])
            return true;
    return false;
}

bool dpb_signals_pending(void)
{
    sigset_t pending;
    if (sigpending(&pending) != 0)
        return false;
    for (int i = 0; i < DPB_ENDING_SIGNALS; i++)
        if (sigismember(&pending, dpb_ending_signals[i]) == 1)
            return true;
    return false;
}

bool dpb_signals_interrupts(struct dpb_signals *signals, int number)
{
    const int64_t now_ns = dpb_now_ns();
    if (!dpb_signals_ends(number))
        return false;
    if (number == signals->counted && now_ns - signals->counted_ns < AT_ONCE_NS)
        return false;
    signals->counted = number;
    signals->counted_ns = now_ns;
    return true;
}

void dpb_signals_release(const struct dpb_signals *signals)
{
    for (int i = 0; i < DPB_SIGNALS_HELD; i++)
        if (signals->numbers[i] != 0)
            sigaction(signals->numbers[i], &signals->actions[i], NULL);
    pthread_sigmask(SIG_SETMASK, &signals->mask, NULL);
}

void dpb_signals_handle(void (*handler)(int number), struct sigaction old[DPB_ENDING_SIGNALS])
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < DPB_ENDING_SIGNALS; i++)
        sigaddset(&action.sa_mask, dpb_ending_signals[i]);
    for (int i = 0; i < DPB_ENDING_SIGNALS; i++) {
        sigaction(dpb_ending_signals[i], NULL, &old[i]);
        if (!dpb_signals_ignored(dpb_ending_signals[i]))
            sigaction(dpb_ending_signals[i], &action, NULL);
    }
}

void dpb_signals_restore(const struct sigaction old[DPB_ENDING_SIGNALS])
{
    for (int i = 0; i < DPB_ENDING_SIGNALS; i++)
        sigaction(dpb_ending_signals[i], &old[i], NULL);
}
