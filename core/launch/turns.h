/*
 * turns.h - parks a job: the launcher, awake, stops and continues its ranks and servers at the
 * orders of a sweep, so that the sweep's cells run side by side, a short time each in turn. Private
 * to the launcher.
 *
 * Orders come as packets over a socket (SOCK_SEQPACKET) that the launcher inherits; answers go back
 * over it, with the clock's nanoseconds (dpb_now_ns) and the steps of rank 0:
 *
 *     (in the first timed step)    ready NS STEPS      the launcher has parked the job by itself
 *     go BLOCK                     went NS STEPS
 *     park                         parked NS STEPS [BLOCK RATE]
 *     end, or the end of the file  no answer: the job ends as after its last step
 *
 * RATE is the samples/s of the turn before this one, by when the step that its end cut has ended.
 * `refused NS STEPS` answers an order that does not fit. Nothing is drained: a parked rank goes on
 * between any two instructions. While the job is parked, no deadline of the launcher passes.
 * An end of the job, a signal and a kill continue the ranks first.
 *
 * While the ranks stand the launcher measures the latency between cores before `go`, and samples
 * load and run.monitor before `go` and after `park`; in a long turn run.monitor also between them.
 */
#ifndef DPB_CORE_LAUNCH_TURNS_H
#define DPB_CORE_LAUNCH_TURNS_H

#include "launch/job_run.h"

/* Without orders it does nothing. */
dpb_status dpb_turns_open(struct dpb_job_run *run);
/* The poll of the orders; -1 as descriptor without any. */
struct pollfd dpb_turns_watch(const struct dpb_job_run *run);
/* How long the loop may sleep, at most `ms`. */
int dpb_turns_look_ms(const struct dpb_job_run *run, int ms);
/* Carries out an order that came, parks a job that has become warm, and takes a sample of
 * run.monitor that is due. */
void dpb_turns_serve(struct dpb_job_run *run, short events);
bool dpb_turns_parked(const struct dpb_job_run *run);
/* Stops all ranks and waits until they stand, 0.25 s at most; orders or not. */
void dpb_turns_park(struct dpb_job_run *run);
/* If they are stopped, lets them run for that block (negative: for none). */
void dpb_turns_continue(struct dpb_job_run *run, int64_t block);
/* The block of the last turn. */
int64_t dpb_turns_block(const struct dpb_job_run *run);

#endif
