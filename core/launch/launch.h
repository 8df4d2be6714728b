/*
 * launch.h - the local launcher: starts the ranks of a job as processes of this machine, serves
 * their key-value store, watches the ranks, and ends all of them when one dies.
 */
#ifndef DPB_CORE_LAUNCH_LAUNCH_H
#define DPB_CORE_LAUNCH_LAUNCH_H

#include "launch/job.h"

/*
 * Runs the job to its end. Ranks are processes of /proc/self/exe; dpb_world_is_rank() is true
 * there. When a rank dies or fails, the launcher marks the end on the board, gives the others a
 * second or two to write their data, then kills them. All are reaped when this returns. SIGINT and
 * SIGTERM are passed on as an interruption; a second one (base/signals.h) ends the job at once.
 * SIGTSTP (^Z) stops the ranks with the launcher, and SIGCONT continues all; no deadline counts
 * that time. Errors of ranks are printed once: the first cause. The outcome is filled if the status
 * is DPB_OK; else the message is written here.
 *
 * With a party this starts the part's own rank, and the head's outcome is that of the whole job.
 * The other parts get the head's exit code and no board, and print nothing. SIGTSTP is ignored
 * there. mpirun kills processes a second after its signals, so an interrupted job of mpirun ends
 * sooner.
 */
dpb_status dpb_launch(const struct dpb_job *job, struct dpb_job_outcome *outcome);

#endif
