/*
 * keeper.h - a process beside the launcher of a part, for the case that this one is killed: Slurm
 * ends a job, and with it the result, when a rank's connection to PMIx ends, and a rank ends with
 * its launcher.
 *
 * The keeper holds that connection, and one of this launcher's to another. When its launcher has
 * died it says so by the end of the latter, waits until the other side has ended, too, and ends
 * itself.
 */
#ifndef DPB_CORE_LAUNCH_KEEPER_H
#define DPB_CORE_LAUNCH_KEEPER_H

#include <sys/types.h>

#include "dpbench/status.h"

struct keeper {
    pid_t pid;    /* 0: there is none */
    int alive_fd; /* it sees by its end that the launcher has died */
};

/* Both descriptors stay the caller's, whose end of `link_fd` is not the connection's any more. */
dpb_status keeper_start(int pmix_fd, int link_fd, struct keeper *keeper);
/* While its launcher lives. Without a keeper it does nothing. */
void keeper_stop(struct keeper *keeper);

#endif
