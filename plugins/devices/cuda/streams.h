/*
 * streams.h - work on the device's streams beside a pass: queues and events for strategies
 * (queues.c, homes.c), times of steps (times.c), and the account of run.profile (profile.c,
 * limits.c).
 */
#ifndef DPB_CUDA_STREAMS_H
#define DPB_CUDA_STREAMS_H

#include "program.h"

/* ---- queues.c: arenas in device memory ------------------------------------------------------- */

extern const struct dpb_queue_ops cuda_queues;
/* An event of a stream. CUDA documents a graph's record of an event for streams that wait, not for
 * a host that polls. So the host polls `behind`, which is recorded behind each launch of the graph
 * that records `native`. */
struct cuda_event {
    cudaEvent_t native;
    cudaEvent_t behind; /* @borrowed; NULL: no graph records `native` */
};
extern const struct dpb_event_source cuda_events; /* for a struct cuda_event */
/* An event of the current GPU; flags: cudaEventCreateWithFlags'. */
dpb_status cuda_event_make(unsigned flags, struct dpb_event **event);
/* Call this when this thread begins a capture: `behind` is recorded behind each launch. NULL: the
 * capture has ended. */
void cuda_capturing(cudaEvent_t behind);
/* Work enqueued on the stream after this call begins when the last record of `event` has fired. */
dpb_status cuda_await(cudaStream_t stream, struct dpb_event *event);

/* ---- homes.c: the GPUs of open queues ------------------------------------------------------- */

dpb_status cuda_home_remember(cudaStream_t stream, int id);
void cuda_home_forget(cudaStream_t stream);
/* Makes the queue's GPU this thread's current one, as launches require. */
dpb_status cuda_turn_to(struct dpb_queue *queue);

/* ---- times.c: the parts of a step's time, by events of the main stream ---------------------- */

/* The stream's work from a mark until the next one. MARK_CAPTURED is a MARK_EXCHANGE that a graph's
 * launches record. */
enum mark { MARK_IDLE, MARK_FORWARD, MARK_BACKWARD, MARK_EXCHANGE, MARK_CAPTURED };

/* From one event to another, both of which have fired. */
dpb_status cuda_elapsed(cudaEvent_t from, cudaEvent_t to, int64_t *ns);
dpb_status cuda_times_open(struct times **times);
void cuda_times_close(struct times *times);      /* accepts NULL */
bool cuda_times_run(const struct times *times);  /* a step is under way */
bool cuda_times_idle(const struct times *times); /* ... and its last mark is MARK_IDLE */
/* Milliseconds of one `work` on the main stream: the mean of `runs` runs between the caller's two
 * events. Blocks until all are done. One more run precedes them: on an idle stream the host's time
 * for enqueuing would count. `node` (may be NULL) and `what` are for messages. */
dpb_status cuda_time_runs(const struct program *p, const struct dpb_node *node, const char *what,
                          dpb_status (*work)(const void *context), const void *context, int runs,
                          const cudaEvent_t ends[2], float *ms);
/* Records a mark here on the main stream. `first`: a step begins, and the one before ends.
 * MARK_CAPTURED: the launched graph records it. */
dpb_status cuda_mark(const struct program *p, enum mark mark, bool first);
/* Records MARK_CAPTURED here in the graph that the main stream is captured to. */
dpb_status cuda_capture_mark(const struct program *p);
/* Call this when the work before the last mark is done, so that the mark has fired or fires at
 * once. Adds up the step that ended where the current one began, for cuda_times. */
dpb_status cuda_times_settle(const struct program *p);

/* ---- account.c, profile.c, limits.c: run.profile -------------------------------------------- */

dpb_status cuda_account_open(struct program *p);  /* of a planned program */
void cuda_account_close(struct account *account); /* accepts NULL */
/* Call these on the main stream where a list of steps begins; where its packing ends; where its
 * step `step` ends. Without an account they do nothing. */
dpb_status cuda_account_begin(const struct program *p, bool backward);
dpb_status cuda_account_packing(const struct program *p);
dpb_status cuda_account_step(const struct program *p, bool backward, size_t step);
/* Reads the events. All enqueued work is done, last a forward, of training or not. */
dpb_status cuda_account_settle(const struct program *p, bool training);
/* Allocates memory for its trials, and takes some tenths of a second. */
dpb_status cuda_measure_limits(struct program *p, struct dpb_profile_limits *limits);

#endif
