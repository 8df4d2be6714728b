/*
 * replicated.h - the two forms of one strategy: on arenas in shared memory of the host
 * (replicated.c) and on arenas in the workers' devices (device.c).
 */
#ifndef DPB_PLUGINS_COMM_REPLICATED_REPLICATED_H
#define DPB_PLUGINS_COMM_REPLICATED_REPLICATED_H

#include "lib/device_strategy.h"

static inline uint32_t replicated_owner(const struct dpb_comm_args *args, uint64_t bucket)
{
    return (uint32_t)(bucket % args->n_workers);
}

/* Of the form on devices; its other hooks are those of lib/device_strategy.h. */
dpb_status on_device_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                          void **comm);
dpb_status on_device_bind(void *comm, const struct dpb_arenas *arenas);
void on_device_memory(const void *options, const struct dpb_comm_args *args,
                      const struct dpb_layout *layout, uint64_t bucket_elements,
                      struct dpb_comm_memory *memory);

#endif
