/*
 * head.h - the side of rank 0's launcher towards the other parts.
 */
#ifndef DPB_CORE_LAUNCH_HEAD_H
#define DPB_CORE_LAUNCH_HEAD_H

#include "launch/job_run.h"

/* Gives the store the ranks' connections. */
void dpb_head_begin(struct dpb_job_run *run);
/* Waits up to run.rejoin for a launcher in the place of each lost one. Not DPB_OK: there is none,
 * or a signal has interrupted the job. */
dpb_status dpb_head_await_launchers(struct dpb_job_run *run);
/* All ranks start again: tells the parts, with the checkpoint that they continue, and gives the
 * store the new connections. */
dpb_status dpb_head_begin_again(struct dpb_job_run *run, const struct dpb_again *again);
/* Both for a job with parts. watch: fills one entry a part, for poll. serve: after poll, handles
 * the received frames. */
void dpb_head_watch(const struct dpb_job_run *run, struct pollfd *fds);
void dpb_head_serve(struct dpb_job_run *run, const struct pollfd *fds, int64_t now_ns);

#endif
