/* signals.c - see signals.h. */
#include "base/signals.h"

#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/log.h"

#define AT_ONCE_NS INT64_C(100000000)

/* Runs in a thread that did not block the signal: on return it is blocked, and another gets it. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    (void)info;
    sigaddset(&((ucontext_t *)context)->uc_sigmask, number);
    kill(getpid(), number);
}

void dpb_signals_hold(struct dpb_signals *signals, const int numbers[DPB_SIGNALS_HELD])
{
    const struct sigaction passing = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    memcpy(signals->numbers, numbers, sizeof signals->numbers);
    signals->counted = 0;
    sigemptyset(&signals->held);
    for (int i = 0; i < DPB_SIGNALS_HELD; i++)
        if (numbers[i] != 0)
            sigaddset(&signals->held, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &signals->held, &signals->mask);
    for (int i = 0; i < DPB_SIGNALS_HELD; i++)
        if (numbers[i] != 0)
            sigaction(numbers[i], &passing, &signals->actions[i]);
}

bool dpb_signals_interrupts(struct dpb_signals *signals, int number)
{
    const int64_t now_ns = dpb_now_ns();
    if (number != SIGINT && number != SIGTERM)
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
