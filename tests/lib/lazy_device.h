/*
 * lazy_device.h - a device for tests of strategies on its arenas: memory is the host's, and queues
 * do what they were given when somebody looks, a little at a time, in an order drawn at random
 * among all that their events allow. So a fence that is missing shows.
 *
 * It has what such strategies need of queue.h between open and close: queues, events, copy, clear,
 * sum, axpby, update, of fp32 and fp64. A device is used by one thread at a time.
 */
#ifndef DPB_TESTS_LIB_LAZY_DEVICE_H
#define DPB_TESTS_LIB_LAZY_DEVICE_H

#include "dpbench/host.h"

extern const struct dpb_queue_ops lazy_device_ops;

/* @owned: lazy_device_destroy, when its queues are closed. `host`: whose events it gives. */
void *lazy_device_create(const struct dpb_host *host, unsigned seed);
void lazy_device_destroy(void *device);
/* From now on the n-th piece of work fails, and all after it; 0: none does. */
void lazy_device_break(void *device, unsigned n);

/* An optimizer's `update`, for a table of the host's: a plain step of fp32, at once where `queue`
 * is NULL. `optimizer` is not used. */
dpb_status lazy_device_update(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                              struct dpb_range range, void *weights, const void *gradients,
                              uint64_t bucket, const struct dpb_step *step);

#endif
