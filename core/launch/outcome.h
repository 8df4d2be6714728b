/*
 * outcome.h - the launcher's reports on a running job: the progress line, the ranks' warnings, the
 * first cause of its end.
 */
#ifndef DPB_CORE_LAUNCH_OUTCOME_H
#define DPB_CORE_LAUNCH_OUTCOME_H

#include "launch/job_run.h"

struct dpb_status_page *dpb_job_page(const struct dpb_job_run *run, uint32_t rank); /* @borrowed */
/* The host and the process id of a rank; 0: not known yet. */
const char *dpb_job_host(const struct dpb_job_run *run, uint32_t rank);
int32_t dpb_job_pid(const struct dpb_job_run *run, uint32_t rank);
/* Whether a rank ended in order: exit 0 after its BYE to the store, or the exit code of an
 * interruption after a signal. Also true if the job continues without the rank. */
bool dpb_job_ended_well(const struct dpb_job_run *run, uint32_t rank);
/* Warns that a signal has ended this rank and the others train on. */
void dpb_job_say_lost(const struct dpb_job_run *run, uint32_t rank);
/* The outcome of a job whose processes are gone; prints nothing. */
void dpb_job_judge(const struct dpb_job_run *run, struct dpb_job_outcome *outcome);
/* Whether all ranks may start again after it: job.h. The loss of a part is one, too. */
bool dpb_job_is_loss(const struct dpb_job_run *run, const struct dpb_job_outcome *outcome);
/* The outcome of a job whose processes are gone; prints the first cause of a failure. The outcome
 * owns the board afterwards. */
void dpb_job_conclude(const struct dpb_job_run *run, struct dpb_job_outcome *outcome);

/* New warnings, and the job's line: on a terminal twice a second, elsewhere twice a minute. */
void dpb_job_show(struct dpb_job_run *run, int64_t now_ns);
void dpb_job_show_end(struct dpb_job_run *run);
/* Call it before any other output to stderr. */
void dpb_job_erase_progress(struct dpb_job_run *run);

#endif
