/*
 * staging.h - gradients on their way from the device to the communicator: sums over micro-batches,
 * another type, and buckets that are handed over.
 */
#ifndef DPB_CORE_EXCHANGE_STAGING_H
#define DPB_CORE_EXCHANGE_STAGING_H

#include "exchange/exchange.h"

/* Workers that train, once the exchange is open. */
dpb_status dpb_staging_open(struct dpb_exchange *exchange);
void dpb_staging_close(struct dpb_exchange *exchange); /* accepts one that was not opened */
/* Before the backward of a step's micro-batch. */
void dpb_staging_begin(struct dpb_exchange *exchange, uint32_t micro_batch);
/* The micro-batch's elements below `frontier` are final once *event (NULL: at once) fires. `last`:
 * there is no further micro-batch. *event then fires when they have passed (NULL: they have). */
dpb_status dpb_staging_pass(struct dpb_exchange *exchange, uint64_t frontier, bool last,
                            struct dpb_event **event);
/* Hands over to the strategy the buckets that end within the first `frontier` elements, which are
 * final once `event` (NULL: at once) fires. */
dpb_status dpb_staging_give(struct dpb_exchange *exchange, uint64_t frontier,
                            struct dpb_event *event);

#endif
