/*
 * access.h - core's own reading and writing of weights and gradients, between steps: a pointer on
 * the host, a copy by core's queue on a device.
 */
#ifndef DPB_CORE_EXCHANGE_ACCESS_H
#define DPB_CORE_EXCHANGE_ACCESS_H

#include "exchange/exchange.h"
#include "measure/journal.h"

/* Between steps, once all of the strategy's work is done. `edit` gives host memory for the whole
 * content; `commit` copies the content to the arena. The content from `look` is @borrowed until the
 * next of these calls. */
dpb_status dpb_arena_edit(struct dpb_exchange *exchange, void *arena, void **content);
dpb_status dpb_arena_commit(struct dpb_exchange *exchange, void *arena, uint64_t bytes);
dpb_status dpb_arena_look(struct dpb_exchange *exchange, const void *arena, uint64_t bytes,
                          const void **content);
dpb_status dpb_arena_checksum(struct dpb_exchange *exchange, const void *arena, dpb_dtype type,
                              uint64_t *checksum);
/* Accepts NULL. */
dpb_status dpb_arena_clear(struct dpb_exchange *exchange, void *arena, uint64_t bytes);

/* The strategy's `publish`. The rank is in `phase` again, as before: it waits for no peer. */
dpb_status dpb_exchange_publish(struct dpb_exchange *exchange, const char *phase,
                                struct dpb_view *view);
/* Between steps: checks that a synchronous strategy has published the weights that this worker
 * trains with, bit for bit. For other contracts, and for the worker's own array, nothing. */
dpb_status dpb_verify_published(struct dpb_exchange *exchange, const void *published,
                                struct dpb_journal *journal);

enum { DPB_ELEMENT_NAME = 160 }; /* bytes */
/* For messages: "element 300 (bucket 4) of 'dense1.weight'". Returns `name`. */
const char *dpb_element_name(const struct dpb_exchange *exchange, uint64_t element,
                             char name[DPB_ELEMENT_NAME]);

#endif
