/*
 * late.h - comm.late = 1: a step's exchange has the whole next step to hide behind.
 *
 * The strategy works as ever, one exchange after the other, on its own arenas. Device and core work
 * on a second pair (exchange->weights, exchange->gradients). At the end of step n:
 *
 *     wait for the exchange of step n - 1
 *     weights <- the strategy's weights            they have the gradients up to step n - 1
 *     the strategy's gradients <- gradients        of step n
 *     begin the exchange of step n; wait for nothing
 *
 * The copies are work of core's queue. On a device with a strategy that takes events they are
 * enqueued behind backward, and the next forward and the exchange behind them. The host waits for
 * the exchange of step n - 1 there, too: that exchange has had all of step n on the device.
 *
 * So forward n + 1 uses weights that lack the gradients of step n, and no others. A worker may
 * begin a step before all have handed over the gradients of the last, never of the one before. The
 * contract's lead stays 0: the control word allows for this (control.h), and workers end together.
 *
 * Staged variables of TensorFlow's benchmarks (tf_cnn_benchmarks, --staged_vars): docs/
 * asynchronous.md.
 */
#ifndef DPB_CORE_EXCHANGE_LATE_H
#define DPB_CORE_EXCHANGE_LATE_H

#include "exchange/exchange.h"

/* After `plan`: the contract of the strategy one step late. Without comm.late this and the other
 * functions do nothing. */
void dpb_late_contract(const struct dpb_experiment *experiment, struct dpb_contract *contract);
/* Once the strategy's arenas exist: makes weights and gradients of the exchange. */
dpb_status dpb_late_open(struct dpb_exchange *exchange);
void dpb_late_close(struct dpb_exchange *exchange);
/* The loaded weights become the next forward's weights. */
dpb_status dpb_late_load(struct dpb_exchange *exchange);
/* Before `end`: waits for the exchange before this one, and begins this one. */
dpb_status dpb_late_turn(struct dpb_exchange *exchange);
/* After `end`, which gave `done`: the exchange continues in the next step. */
dpb_status dpb_late_leave(struct dpb_exchange *exchange, struct dpb_event *done);
/* Waits for the exchange under way. Leaves the next forward's weights unchanged. */
dpb_status dpb_late_settle(struct dpb_exchange *exchange);

#endif
