/*
 * stall.h - finds ranks that make no progress, private to the launcher: by their status pages, and
 * by the system's data about their processes.
 *
 * A rank gives a sign of life when its status page changes, and when it computes, reads, writes or
 * waits for a disk: a first step that compiles for minutes, or a long evaluation, is no stall. A
 * rank that waits for another gives none.
 *
 *     no sign of a worker and of the rank that it waits for, for run.stall_warning_s: one warning
 *     for all late ranks, with where each rank is
 *     no sign of a worker that waits for no rank, for run.timeout_s: it is stuck, the job is ended
 *     no sign of any worker, for longer: all are stopped, or none heeds its deadline: likewise
 *     a rank still runs run.timeout_s after another has ended, though all leave together: likewise
 *
 * The deadlines of waiting ranks end a job before the second rule does. The second rule is for jobs
 * in which no rank waits for the stuck one.
 */
#ifndef DPB_CORE_LAUNCH_STALL_H
#define DPB_CORE_LAUNCH_STALL_H

#include "launch/job_run.h"

/* Called in the launcher's loop; looks at most four times a second, and with more than 64 ranks
 * more rarely. Warns. Returns a rank that the launcher must end, with the reason in its `fault`;
 * UINT32_MAX: none. */
uint32_t dpb_stall_look(struct dpb_job_run *run, int64_t ran_ns);
/* Looks at one rank and keeps the time of its sign of life, sign_ns. */
void dpb_stall_look_at(struct dpb_job_run *run, uint32_t rank, int64_t ran_ns);
/* Before the job is ended: keeps where each rank is and since when, and which rank is late. */
void dpb_stall_keep_picture(struct dpb_job_run *run);

#endif
