/*
 * update.h - one step of the optimizer on host memory, as a host's queue does for
 * dpb_queue_ops.update.
 */
#ifndef DPB_CORE_BASE_UPDATE_H
#define DPB_CORE_BASE_UPDATE_H

#include "dpbench/queue.h"

/* fp32 or fp64 weights, gradients of any type. Done on return, on the calling thread. Disjoint
 * ranges may be updated by several threads at once. `words` is read in the call. */
void dpb_update_apply(const struct dpb_update *update);
/* The sum of squares, as dpb_vec_squares has it, of what an ADAM update would move the weights by
 * at a rate of 1; all of its n elements decay. Changes nothing. */
double dpb_update_squares(const struct dpb_update *update);

#endif
