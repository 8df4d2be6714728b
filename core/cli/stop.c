/* stop.c - a command that measures in its own process ends early on SIGINT and SIGTERM: cli.h. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

volatile sig_atomic_t dpb_stop_signal;

static void on_signal(int number)
{
    dpb_stop_signal = number;
}

void dpb_stop_on_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int dpb_stop_exit_code(dpb_status status)
{
    return status == DPB_INTERRUPTED ? 128 + (int)dpb_stop_signal : dpb_status_exit_code(status);
}

const char *dpb_stop_error(dpb_status status)
{
    static char reason[64];
    if (status != DPB_INTERRUPTED)
        return status == DPB_OK ? NULL : dpb_first_error(NULL);
    snprintf(reason, sizeof reason, "by signal %d (%s)", (int)dpb_stop_signal,
             strsignal((int)dpb_stop_signal));
    return reason;
}
