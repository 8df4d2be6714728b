/*
 * pump.h - moves the strategy on until an exchange is over: on the loop's thread, or from the
 * step's begin on a core of its own (run.comm_cores).
 */
#ifndef DPB_CORE_EXCHANGE_PUMP_H
#define DPB_CORE_EXCHANGE_PUMP_H

#include "exchange/exchange.h"

/* Waits for `done` of the strategy's `end`, and moves the strategy on until then. */
dpb_status dpb_exchange_await(struct dpb_exchange *exchange, struct dpb_event *done);
/* Nothing where run.comm_cores = 0. */
dpb_status dpb_pump_start(struct dpb_exchange *exchange);
void dpb_pump_stop(struct dpb_pump *pump);
/* kick: a step has begun. end: the step's `end` gave `done`. await: waits for the step's exchange,
 * on the loop's thread where no pump runs. */
void dpb_pump_kick(struct dpb_pump *pump);
void dpb_pump_end(struct dpb_pump *pump, struct dpb_event *done);
dpb_status dpb_pump_await(struct dpb_exchange *exchange, struct dpb_event *done);

#endif
