/*
 * slot_sizes.h - the number of slots for gradients. A few slots of a bucket each take the place of an
 * arena. exchange/slots.h has a step's use of
 * slots.
 *
 * A device writes a gradient at its address in the arena. These addresses show the same slots again
 * and again: bucket b lies in slot b modulo n. So neither devices nor strategies look for a slot.
 */
#ifndef DPB_CORE_PLAN_SLOT_SIZES_H
#define DPB_CORE_PLAN_SLOT_SIZES_H

#include "dpbench/comm.h"

/* `bucket_elements`, rounded up to whole pages. */
uint64_t dpb_slots_bucket(const struct dpb_layout *layout, uint64_t bucket_elements);
/* The gradient elements that fit into a rank's memory: slots for the largest node and `spare` more;
 * all elements of the layout, if these are not more or `spare` is 0. */
uint64_t dpb_slots_elements(const struct dpb_layout *layout, uint64_t bucket_elements,
                            uint64_t spare);
/* The end of the node behind `frontier`: tensors of a node are neighbours. */
uint64_t dpb_slots_node_end(const struct dpb_layout *layout, uint64_t frontier);

#endif
