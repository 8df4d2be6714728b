/*
 * open.h - opens a rank's strategy on a layout. The strategy plans before anything is allocated;
 * then arenas are made, shared and bound.
 */
#ifndef DPB_CORE_EXCHANGE_OPEN_H
#define DPB_CORE_EXCHANGE_OPEN_H

#include "exchange/exchange.h"

/* Initialises an exchange that is not open. */
void dpb_exchange_init(struct dpb_exchange *exchange, const struct dpb_experiment *experiment);
/* Opens the communicator on a layout, with its arenas; collective. `graph` is @borrowed until
 * close. close also undoes an open that failed, and accepts one that never began. */
dpb_status dpb_exchange_open(struct dpb_exchange *exchange, const struct dpb_graph *graph);
void dpb_exchange_close(struct dpb_exchange *exchange);
/* The weights in the strategy's arena become the model. Workers; collective. */
dpb_status dpb_exchange_load(struct dpb_exchange *exchange);
/* Closes the communicator, which ends the work of servers. Twice is harmless. */
void dpb_exchange_leave(struct dpb_exchange *exchange);

#endif
