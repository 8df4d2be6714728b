/*
 * resident.h - the weights that are here, where a worker keeps its owned ranges alone
 * (dpb_comm_plan.weights_on_need).
 *
 * The arena has the addresses of all weights, and pages of those that are here. A step's passes
 * enter the graph's nodes one by one. At each node core gives back the pages of the buckets that it
 * does not read, needs its own, begins to need one bucket of the next node, and waits. So a worker
 * has its owned ranges, the buckets of a node, and one more.
 *
 * All workers run the same graph. What is needed, and when, follows from the order of its nodes
 * alone, so all need the same buckets in the same order.
 *
 * Functions on the loop's thread; without weights on need they do nothing.
 */
#ifndef DPB_CORE_EXCHANGE_RESIDENT_H
#define DPB_CORE_EXCHANGE_RESIDENT_H

#include "exchange/exchange.h"

/* After `plan`: refuses a plan that cannot work. */
dpb_status dpb_resident_plan(const struct dpb_exchange *exchange);
/* When the arenas are made. */
dpb_status dpb_resident_open(struct dpb_exchange *exchange);
void dpb_resident_close(struct dpb_exchange *exchange);
/* `load`: all weights were written here. */
void dpb_resident_loaded(struct dpb_exchange *exchange);
/* A training pass of the device begins with a node. */
dpb_status dpb_resident_enter(struct dpb_exchange *exchange, uint32_t node);
/* Buckets were handed over: their owners update them. */
dpb_status dpb_resident_leave(struct dpb_exchange *exchange);
/* Between steps, collective: brings all weights here, until the next step. */
dpb_status dpb_resident_all(struct dpb_exchange *exchange);
/* Whether the weight is here: it is owned, or was needed and has come. */
bool dpb_resident_has(const struct dpb_exchange *exchange, uint64_t element);
/* Whether a need is not met yet. */
bool dpb_resident_awaits(const struct dpb_exchange *exchange);

#endif
