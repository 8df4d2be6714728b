/*
 * estimate.h - how much memory a run will take, and move, before anything is allocated. Built
 * experiments only.
 */
#ifndef DPB_CORE_TRAIN_ESTIMATE_H
#define DPB_CORE_TRAIN_ESTIMATE_H

#include "train/experiment.h"

/* Bytes a rank's process needs, its arenas, activations and data staging (an estimate). Built
 * experiments only. */
uint64_t dpb_experiment_memory(const struct dpb_experiment *experiment, uint32_t rank);
/* Of it, the optimizer's state; on a worker whose arenas are on its device, what lies there. */
uint64_t dpb_experiment_state_memory(const struct dpb_experiment *experiment, uint32_t rank);
/* Of it, elements of gradients: all, or those in slots. */
uint64_t dpb_experiment_gradients(const struct dpb_experiment *experiment, uint32_t rank);
/* What its strategy takes beside that and grows with the model. */
struct dpb_comm_memory dpb_experiment_strategy_memory(const struct dpb_experiment *experiment,
                                                      uint32_t rank);
/* Bytes of a worker's arenas in the memory of its device; 0: they are on the host. What the device
 * takes beside them is known when it compiles. */
uint64_t dpb_experiment_device_memory(const struct dpb_experiment *experiment);
/* Bytes that a worker's forward and backward of a micro-batch read and write
 * (dpb_device_ops.bytes_moved). 0: the run does not train, or its device does not count. */
dpb_status dpb_experiment_bytes_moved(const struct dpb_experiment *experiment, double *bytes);

#endif
