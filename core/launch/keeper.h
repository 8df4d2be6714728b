/*
 * keeper.h - a process beside the launcher of a part, for the case that the launcher is killed. A
 * rank ends with its launcher. Slurm ends a job, before it has a result, when a rank's connection
 * to PMIx ends.
 *
 * The keeper holds the rank's connection to PMIx and its launcher's channel to the head. When the
 * launcher has died, the keeper shuts the channel down, waits (15 s at most) until the head closes
 * its side, and exits.
 */
#ifndef DPB_CORE_LAUNCH_KEEPER_H
#define DPB_CORE_LAUNCH_KEEPER_H

#include <sys/types.h>

#include "dpbench/status.h"

struct dpb_keeper {
    pid_t pid;    /* 0: there is none */
    int alive_fd; /* its end shows the keeper that the launcher has died */
};

/* Both descriptors stay the caller's. Closing `channel_fd` no longer ends the channel. */
dpb_status dpb_keeper_start(int pmix_fd, int channel_fd, struct dpb_keeper *keeper);
/* Ends the keeper while its launcher lives. Without a keeper it does nothing. */
void dpb_keeper_stop(struct dpb_keeper *keeper);

#endif
