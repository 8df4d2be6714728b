/*
 * estimate.h - estimates, before anything is allocated, the memory that a run takes and the bytes
 * that it moves. Built experiments only.
 */
#ifndef DPB_CORE_PLAN_ESTIMATE_H
#define DPB_CORE_PLAN_ESTIMATE_H

#include "plan/plan.h"

/* Of a rank's record for the steps check (proof/follow.h). */
enum { DPB_FOLLOWED_BYTES = 4 << 20 };

/* Bytes that a rank's process needs for arenas, activations and data staging (an estimate). */
uint64_t dpb_experiment_memory(const struct dpb_experiment *experiment, uint32_t rank);
/* The optimizer's state among them; on a worker whose arenas are on its device: the state there. */
uint64_t dpb_experiment_state_memory(const struct dpb_experiment *experiment, uint32_t rank);
/* Beside them, of rank 0: the optimizer's state as it is collected for a checkpoint. */
uint64_t dpb_experiment_collected_memory(const struct dpb_experiment *experiment);
/* Beside them, of the launcher: the checkpoints of checkpoint.place = peer. An upper bound where
 * the strategy has a state of its own. */
uint64_t dpb_experiment_kept_memory(const struct dpb_experiment *experiment);
/* The elements of gradients among them: all, or those in slots and the sums that owners keep. */
uint64_t dpb_experiment_gradients(const struct dpb_experiment *experiment, uint32_t rank);
/* The strategy's memory beside them that grows with the model. */
struct dpb_comm_memory dpb_experiment_strategy_memory(const struct dpb_experiment *experiment,
                                                      uint32_t rank);
/* Bytes of a worker's arenas in the memory of its device; 0: they are on the host. The device's
 * further memory is known when it compiles. */
uint64_t dpb_experiment_device_memory(const struct dpb_experiment *experiment);
/* How the device compiles a worker's program: all but what the rank itself brings. */
struct dpb_compile_args dpb_experiment_compile_args(const struct dpb_experiment *experiment);
/* Bytes that a worker's forward and backward of a micro-batch read and write
 * (dpb_device_ops.bytes_moved). 0: the run does not train, or its device does not count. */
dpb_status dpb_experiment_bytes_moved(const struct dpb_experiment *experiment, double *bytes);

/* ---- slots for gradients (exchange/slots.h) ------------------------------------------------- */

/* `bucket_elements`, rounded up to whole pages. */
uint64_t dpb_slots_bucket(const struct dpb_layout *layout, uint64_t bucket_elements);
/* The gradient elements that fit into a rank's memory: slots for the largest node and `spare` more;
 * all elements of the layout, if these are not more or `spare` is 0. */
uint64_t dpb_slots_elements(const struct dpb_layout *layout, uint64_t bucket_elements,
                            uint64_t spare);
/* The end of the node behind `frontier`: tensors of a node are neighbours. */
uint64_t dpb_slots_node_end(const struct dpb_layout *layout, uint64_t frontier);

#endif
