/*
 * links.h - copies between the host and a plugin's devices, for `dpbench links`.
 *
 * For devices with memory of their own. A first plugin does not need this header.
 */
#ifndef DPBENCH_LINKS_H
#define DPBENCH_LINKS_H

#include "status.h"
#include "types.h"

enum { DPB_LINK_HOST = UINT32_MAX /* in place of a device's number */ };

typedef enum dpb_link_memory {
    DPB_LINK_PINNED, /* the host's, registered so that devices copy from and to it by themselves */
    DPB_LINK_DEVICE
} dpb_link_memory;

struct dpb_link_device {
    char name[256];
    char pci_address[32]; /* "0000:1b:00.0" */
    uint64_t memory_bytes;
};

/*
 * How core drives the plugin's devices, numbered from 0. Functions are called by one thread, block
 * no longer than their work takes, and fail by host->fail, naming the call. Pageable host memory is
 * core's own and goes through `copy` like any other.
 */
struct dpb_device_links {
    dpb_status (*count)(uint32_t *n_devices);
    dpb_status (*describe)(uint32_t device, struct dpb_link_device *described);
    /* Zeroed; @owned until release. `device` has the memory, or the memory is pinned for it. */
    dpb_status (*allocate)(dpb_link_memory kind, uint32_t device, uint64_t bytes, void **memory);
    void (*release)(dpb_link_memory kind, uint32_t device, void *memory); /* accepts NULL */
    /* A queue does its work in order. Several work at the same time where the hardware can. */
    dpb_status (*open_queue)(uint32_t device, void **queue);
    void (*close_queue)(void *queue); /* accepts NULL */
    /* peer_possible: whether `from` can reach the memory of `to`, another device, without the host.
     * peer_enable: whether it may from now on. Enable only where possible. */
    dpb_status (*peer_possible)(uint32_t from, uint32_t to, bool *possible);
    dpb_status (*peer_enable)(uint32_t from, uint32_t to, bool enabled);
    /* Enqueues; returns at once or, for pageable memory, once it is copied. `to` and `from` are
     * devices or DPB_LINK_HOST. Between devices that are not enabled as peers the copy goes through
     * the host. */
    dpb_status (*copy)(void *queue, void *destination, uint32_t to, const void *source,
                       uint32_t from, uint64_t bytes);
    dpb_status (*wait)(void *queue); /* until all enqueued work is done */
};

#endif
