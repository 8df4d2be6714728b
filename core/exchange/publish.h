/*
 * publish.h - the weights that a strategy publishes, between steps.
 */
#ifndef DPB_CORE_EXCHANGE_PUBLISH_H
#define DPB_CORE_EXCHANGE_PUBLISH_H

#include "exchange/exchange.h"
#include "measure/journal.h"

/* The strategy's `publish`. The rank is in `phase` again, as before: it waits for no peer. */
dpb_status dpb_exchange_publish(struct dpb_exchange *exchange, const char *phase,
                                struct dpb_view *view);
/* Between steps: checks that a synchronous strategy has published the weights that this worker
 * trains with, bit for bit. For other contracts, and for the worker's own array, nothing. */
dpb_status dpb_verify_published(struct dpb_exchange *exchange, const void *published,
                                struct dpb_journal *journal);

#endif
