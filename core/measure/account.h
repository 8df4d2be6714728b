/*
 * account.h - where the time of a step goes.
 *
 * The loop's thread marks the end of each part of a step. Intervals in which the loop's thread runs
 * communicator code or waits for it (exposed) are taken out of the part they fall into. Any thread
 * reports spans of communication and of optimizer work. At the step's end interval arithmetic makes
 * a record:
 *
 *     optimizer     = |exposed intersected with the update spans|
 *     comm_exposed  = |exposed| - optimizer
 *     comm_hidden   = |union of wait_peer, transfer and reduce spans, less exposed|
 *     comm_wait_peer = |union of wait_peer spans|
 *     comm_exposed_wait = |exposed intersected with the wait_peer spans|
 *
 * so data_wait + forward + delay + backward + optimizer + comm_exposed is the step, to the
 * nanosecond.
 *
 * Where device and strategy run ahead of the host (dpb_account_by_device), the device reports a
 * step's times when the next step's forward is over. A step then lasts from its first work on the
 * device to the next step's first work. data_wait is the device's idle time (less run.delay),
 * exposed its wait for new weights. Spans may be reported until then.
 *
 * One account a process. Nothing is allocated after dpb_account_open; spans beyond the capacity are
 * counted and dropped.
 */
#ifndef DPB_CORE_MEASURE_ACCOUNT_H
#define DPB_CORE_MEASURE_ACCOUNT_H

#include "dpbench/comm.h"
#include "measure/journal.h"

typedef enum dpb_part {
    DPB_PART_DATA,
    DPB_PART_FORWARD,
    DPB_PART_DELAY,
    DPB_PART_BACKWARD,
    DPB_PARTS
} dpb_part;

/* `journal` receives the records; @borrowed until close. `capacity`: spans of one kind a step;
 * there is room for two steps. */
dpb_status dpb_account_open(struct dpb_journal *journal, size_t capacity);
/* Records are made from the device's times. updates_only: the device waits only for the worker's
 * own updates, since nothing is exchanged. */
void dpb_account_by_device(bool updates_only);
void dpb_account_close(void);

/* The loop's thread: from now on the rank's time is `part`. Returns the part until now; `part`
 * itself without an account. */
dpb_spent dpb_account_spend(dpb_spent part);

/* The loop's thread. Begins a step at this moment, which also ends the one before if
 * dpb_account_end has not. */
void dpb_account_begin(double learning_rate);
/* The time since the last mark belongs to `part`. Like begin, notes the next part as the phase on
 * the status page. */
void dpb_account_mark(dpb_part part);
/* Enters communicator code; returns the time. Nested enters and leaves are only counted. */
int64_t dpb_account_enter(void);
dpb_status dpb_account_leave(int64_t entered_ns, dpb_status status);
/* Of the step; once before its end. correct: labels, as in struct dpb_outcome. */
void dpb_account_loss(double loss, uint64_t correct);
void dpb_account_stopped(void); /* likewise: no loss, since the forward was stopped */
void dpb_account_end(void);     /* ends the step and writes its record; twice is harmless */

/* With dpb_account_by_device: whether an ended step lacks the device's report; the report. */
bool dpb_account_awaits_device(void);
void dpb_account_device(const struct dpb_device_times *times);

/* The loop's thread: the first `elements` of the gradient are final. Kept for timed steps. */
void dpb_account_ready(uint64_t elements);

/* Any thread: the host's `span` and `count_bytes`. */
void dpb_account_span(uint64_t bucket, dpb_phase phase, int64_t begin_ns, int64_t end_ns);
void dpb_account_bytes(uint64_t bytes);
/* The host's `age`: counted in the timed steps. */
void dpb_account_age(uint64_t age);
/* The host's `coding`: likewise. */
void dpb_account_coding(const struct dpb_coding *coding);

#endif
