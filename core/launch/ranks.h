/*
 * ranks.h - the processes of a job's ranks, for all launchers: starting them, ending
 * them, and the signals that come of them.
 */
#ifndef DPB_CORE_LAUNCH_RANKS_H
#define DPB_CORE_LAUNCH_RANKS_H

#include "launch/job_run.h"

dpb_status dpb_job_take_signals(struct dpb_job_run *run);
void dpb_job_release_signals(struct dpb_job_run *run);
/* The next signal that came; 0: none. */
int dpb_job_next_signal(const struct dpb_job_run *run);
/* Starts all ranks of a local job, or this part's. A rank of a part other than the head that does
 * not begin, since a signal is pending, has ended as interrupted. */
dpb_status dpb_job_start_ranks(struct dpb_job_run *run);
/* Whether a process of this launcher has ended; reaps it with its group. */
bool dpb_job_reap(struct dpb_job_run *run, uint32_t rank);
void dpb_job_kill(struct dpb_job_run *run, uint32_t rank);
void dpb_job_kill_all(struct dpb_job_run *run);
/* For the head, once a rank's end is fully known. */
void dpb_job_rank_ended(struct dpb_job_run *run, uint32_t rank);
void dpb_job_end(struct dpb_job_run *run);
void dpb_job_interrupt(struct dpb_job_run *run, uint32_t n_interrupts, int signal_number);
/* The head's, to all other parts; without parts it does nothing. */
void dpb_job_tell_parts(struct dpb_job_run *run, dpb_channel_op op, const void *value,
                        size_t bytes);

#endif
