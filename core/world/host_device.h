/*
 * host_device.h - the host as a device: args->device of a strategy if no device has memory of its
 * own, and the device of core's own queues.
 *
 * Its memory is the host's. Its queues do work at once, on the calling thread. So every event that
 * they record has fired and `drain` returns at once.
 */
#ifndef DPB_CORE_WORLD_HOST_DEVICE_H
#define DPB_CORE_WORLD_HOST_DEVICE_H

#include "dpbench/queue.h"

extern const struct dpb_device_arenas dpb_host_device;

#endif
