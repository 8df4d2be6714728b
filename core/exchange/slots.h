/*
 * slots.h - a step's use of slots for gradients. A few slots of a bucket each take the place of an
 * arena.
 *
 * A device writes a gradient at its address in the arena. These addresses show the same slots again
 * and again: bucket b lies in slot b modulo n. So neither devices nor strategies look for a slot.
 * plan/estimate.h has their number.
 */
#ifndef DPB_CORE_EXCHANGE_SLOTS_H
#define DPB_CORE_EXCHANGE_SLOTS_H

#include "exchange/exchange.h"

/* After `plan`: refuses a plan of slots that cannot work. */
dpb_status dpb_slots_plan(struct dpb_exchange *exchange);
/* With slots: waits until all elements below `end` may be written. Their slots may hold earlier
 * buckets, which have been handed over. */
dpb_status dpb_slots_await(struct dpb_exchange *exchange, uint64_t end);
/* The same for all elements that the device writes before it announces the frontier after this one.
 * This and the next function do nothing where there is an arena. */
dpb_status dpb_slots_await_node(struct dpb_exchange *exchange, uint64_t frontier);
/* The device's elements below `frontier` are final: clears the gaps between their tensors, where
 * earlier buckets have left values. */
void dpb_slots_clear_gaps(struct dpb_exchange *exchange, uint64_t frontier);

#endif
