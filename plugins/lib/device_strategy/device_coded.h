/*
 * device_coded.h - a codec (coded.h) by a device's queue. Each worker has its residual and messages
 * in its device's memory. Each worker copies the messages of the others from device to device, and
 * decodes the copies.
 *
 *     encode    gradients + residual -> the own message, a new residual;  PUSHED
 *     answer    of two rounds: the sum of all first messages -> the own second message;  ANSWERED
 *     decode    gradients <- the sum of all messages, in the order of the ranks; then the update
 *
 * A device has kernels for codecs whose messages of a bucket have the same length on all workers.
 * Norms are measured on a sample that is copied to the host.
 *
 * If the device is the host, the stages are those of strategies in shared memory (coded.h).
 */
#ifndef DPB_PLUGINS_LIB_DEVICE_CODED_H
#define DPB_PLUGINS_LIB_DEVICE_CODED_H

#include "lib/device_strategy/device_coder.h"
#include "lib/device_strategy/device_strategy.h"

/* dpb_device_strategy_open; with args->codec also the codec's client. */
dpb_status dpb_device_coded_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                                 size_t bytes, void **comm);
/* With a codec: `plan`, after dpb_strategy_plan_replica; `bind`. */
dpb_status dpb_device_coded_plan(struct dpb_device_strategy *comm, const struct dpb_layout *layout,
                                 struct dpb_comm_plan *want);
dpb_status dpb_device_coded_bind(struct dpb_device_strategy *comm, const struct dpb_arenas *arenas);

#endif
