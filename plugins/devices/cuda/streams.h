/*
 * streams.h - what goes on around a pass on the device's streams: queues and events for strategies
 * (queues.c, homes.c), times of steps (times.c), and the account of run.profile (profile.c,
 * limits.c).
 */
#ifndef DPB_CUDA_STREAMS_H
#define DPB_CUDA_STREAMS_H

#include "cuda.h"

/* ---- queues.c: arenas in device memory ------------------------------------------------------- */

extern const struct dpb_queue_ops cuda_queues;
/* An event of a stream. CUDA documents what a graph's record of an event is to streams that wait,
 * not to a host that asks: the host asks for `behind`, which is recorded behind each launch of the
 * graph that records `native`. */
struct cuda_event {
    cudaEvent_t native;
    cudaEvent_t behind; /* @borrowed; NULL: no graph records `native` */
};
extern const struct dpb_event_source cuda_events; /* of a struct cuda_event */
/* NULL: no memory. `native` is owned by the event. */
struct dpb_event *cuda_event_adopt(cudaEvent_t native);
/* In a capture that this thread begins: what is recorded behind each launch. NULL: it is over. */
void cuda_capturing(cudaEvent_t behind);
/* What the stream is given from now on begins when `event` has fired as it was last recorded. */
dpb_status cuda_await(cudaStream_t stream, struct dpb_event *event);

/* ---- homes.c: the GPUs of open queues ------------------------------------------------------- */

dpb_status cuda_home_remember(cudaStream_t stream, int id);
void cuda_home_forget(cudaStream_t stream);
/* Makes the queue's GPU that of this thread, as launches want it. */
dpb_status cuda_turn_to(struct dpb_queue *queue);

/* ---- times.c: where a step's time goes, by events of the main stream ------------------------- */

/* What the stream does from there on, until the next mark. MARK_CAPTURED is MARK_EXCHANGE where
 * launches of a graph record it. */
enum mark { MARK_IDLE, MARK_FORWARD, MARK_BACKWARD, MARK_EXCHANGE, MARK_CAPTURED };

dpb_status cuda_times_open(struct times **times);
void cuda_times_close(struct times *times);      /* accepts NULL */
bool cuda_times_run(const struct times *times);  /* a step is under way */
bool cuda_times_idle(const struct times *times); /* ... and its last mark is MARK_IDLE */
/* Milliseconds of one `work` on the main stream, of `runs` between these events of the caller's.
 * Blocks until they are done. One more run goes before: on an idle stream the time of the host,
 * which enqueues, would count. `node` (may be NULL) and `what` are for messages. */
dpb_status cuda_time_runs(const struct program *p, const struct dpb_node *node, const char *what,
                          dpb_status (*work)(const void *context), const void *context, int runs,
                          const cudaEvent_t ends[2], float *ms);
/* The fastest of `tries` runs. */
dpb_status cuda_time_best(const struct program *p, const struct dpb_node *node, const char *what,
                          dpb_status (*work)(const void *context), const void *context, int tries,
                          float *best_ms);
/* Here on the main stream. `first`: of a step, the one before ends here. MARK_CAPTURED is where the
 * graph that was launched has it. */
dpb_status cuda_mark(const struct program *p, enum mark mark, bool first);
/* Here in the graph that the main stream is captured to. */
dpb_status cuda_capture_mark(const struct program *p);
/* The work before the last mark is done, and it has been or will be passed at once: tells of the
 * step that ended where the current one began. */
dpb_status cuda_times_settle(const struct program *p);

/* ---- account.c, profile.c, limits.c: run.profile -------------------------------------------- */

dpb_status cuda_account_open(struct program *p);  /* of a planned program */
void cuda_account_close(struct account *account); /* accepts NULL */
/* Here on the main stream a list of steps begins; its packing, its step `step` ends. Without an
 * account they do nothing. */
dpb_status cuda_account_begin(const struct program *p, bool backward);
dpb_status cuda_account_packing(const struct program *p);
dpb_status cuda_account_step(const struct program *p, bool backward, size_t step);
/* All that was enqueued is done, last a forward that is of training or not: reads the events. */
dpb_status cuda_account_settle(const struct program *p, bool training);
dpb_status cuda_profile(void *program, struct dpb_profile *profile);
/* Allocates for a moment, and takes some tenths of a second. */
dpb_status cuda_measure_limits(struct program *p, struct dpb_profile_limits *limits);

#endif
