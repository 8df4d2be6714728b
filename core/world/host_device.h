/*
 * host_device.h - the host as a device: what args->device of a strategy is where no device has
 * memory of its own, and what core itself enqueues to.
 *
 * Its memory is the host's. Its queues do their work when it is given, on the calling thread, so
 * every event that they record has fired and `drain` returns at once.
 */
#ifndef DPB_CORE_WORLD_HOST_DEVICE_H
#define DPB_CORE_WORLD_HOST_DEVICE_H

#include "dpbench/queue.h"

extern const struct dpb_device_arenas dpb_host_device;

#endif
