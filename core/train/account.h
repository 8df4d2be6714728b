/*
 * account.h - where the time of a step goes.
 *
 * The loop's thread marks the end of each part of a step; intervals in which it runs or waits for
 * communicator code are taken out of the part they fall into (exposed); any thread reports spans of
 * communication and of optimizer work. At the step's end interval arithmetic makes a record:
 *
 *     optimizer     = |exposed intersected with the update spans|
 *     comm_exposed  = |exposed| - optimizer
 *     comm_hidden   = |union of wait_peer, transfer and reduce spans, less exposed|
 *     comm_wait_peer = |union of wait_peer spans|
 *
 * so data_wait + forward + delay + backward + optimizer + comm_exposed is the step, to the
 * nanosecond.
 *
 * Where device and strategy run ahead of the host (dpb_account_by_device) the device tells of a
 * step when the next one's forward is over: a step is then from its first work there to the next
 * one's, data_wait is what it had nothing to do (less run.delay), exposed what it waited for new
 * weights, and spans of the step may be reported until it has told.
 *
 * One account a process. Nothing is allocated after dpb_account_open; spans beyond the capacity are
 * counted and dropped.
 */
#ifndef DPB_CORE_TRAIN_ACCOUNT_H
#define DPB_CORE_TRAIN_ACCOUNT_H

#include "dpbench/comm.h"
#include "train/journal.h"

typedef enum dpb_part {
    DPB_PART_DATA,
    DPB_PART_FORWARD,
    DPB_PART_DELAY,
    DPB_PART_BACKWARD,
    DPB_PARTS
} dpb_part;

/* `journal` receives the records; @borrowed until close. `capacity`: spans of one kind a step;
 * there is room for those of two. */
dpb_status dpb_account_open(struct dpb_journal *journal, size_t capacity);
/* Records are made of what the device tells. updates_only: all that it waits for are the worker's
 * own updates, since nothing is exchanged. */
void dpb_account_by_device(bool updates_only);
void dpb_account_close(void);

/* The loop's thread. Begins a step at this moment, which also ends the one before if
 * dpb_account_end has not. */
void dpb_account_begin(double learning_rate);
/* What was since the last mark belongs to `part`. Like begin, it notes what comes next as the phase
 * on the status page. */
void dpb_account_mark(dpb_part part);
/* Into communicator code; the time. Within another enter and leave both only count. */
int64_t dpb_account_enter(void);
void dpb_account_leave(int64_t entered_ns);
void dpb_account_loss(double loss); /* of the step; once before its end */
void dpb_account_stopped(void);     /* likewise: it has none, as its forward was stopped */
void dpb_account_end(void);         /* ends the step and writes its record; twice is harmless */

/* By the device: whether a step has ended that it has not told of; and what it tells. */
bool dpb_account_awaits_device(void);
void dpb_account_device(const struct dpb_device_times *times);

/* The loop's thread: the first `elements` of the gradient are final. Kept of the timed steps. */
void dpb_account_ready(uint64_t elements);

/* Any thread: the host's `span` and `count_bytes`. */
void dpb_account_span(uint64_t bucket, dpb_phase phase, int64_t begin_ns, int64_t end_ns);
void dpb_account_bytes(uint64_t bytes);
/* The host's `age`: counted in the timed steps. */
void dpb_account_age(uint64_t age);
/* The host's `coding`: likewise. */
void dpb_account_coding(const struct dpb_coding *coding);

#endif
