/*
 * copies - the reference device with two more that it can copy to and from, at the addresses of the
 * GPUs of tests/fakes/libnvidia-ml.c. Their memory is the host's, and only the first bytes of a
 * copy are made: it takes next to no time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/nvml.h"
#include "fault.h"

enum { COPIED = 64 };

static const struct dpb_host *host;

static dpb_status copies_count(uint32_t *n)
{
    *n = 2;
    return DPB_OK;
}

static dpb_status copies_describe(uint32_t device, struct dpb_link_device *described)
{
    *described = (struct dpb_link_device){.memory_bytes = UINT64_C(3) << 30};
    snprintf(described->name, sizeof described->name, "Copier %u", device);
    snprintf(described->pci_address, sizeof described->pci_address, "0000:%s:00.0",
             device == 0 ? "1b" : "3d");
    return DPB_OK;
}

static dpb_status copies_allocate(dpb_link_memory kind, uint32_t device, uint64_t bytes,
                                  void **memory)
{
    (void)kind;
    (void)device;
    *memory = calloc(1, bytes);
    return *memory != NULL ? DPB_OK : host->fail(DPB_NO_MEMORY, "out of memory");
}

static void copies_release(dpb_link_memory kind, uint32_t device, void *memory)
{
    (void)kind;
    (void)device;
    free(memory);
}

static dpb_status copies_open_queue(uint32_t device, void **queue)
{
    (void)device;
    *queue = malloc(1);
    return DPB_OK;
}

static void copies_close_queue(void *queue)
{
    free(queue);
}

/* One way only: such a pair is none of peers. */
static dpb_status copies_peer_possible(uint32_t from, uint32_t to, bool *possible)
{
    *possible = from < to || getenv("COPIES_PEERS") != NULL;
    return DPB_OK;
}

static dpb_status copies_peer_enable(uint32_t from, uint32_t to, bool enabled)
{
    (void)from;
    (void)to;
    (void)enabled;
    return DPB_OK;
}

static dpb_status copies_copy(void *queue, void *destination, uint32_t to, const void *source,
                              uint32_t from, uint64_t bytes)
{
    (void)queue;
    (void)to;
    (void)from;
    memcpy(destination, source, bytes < COPIED ? bytes : COPIED);
    return DPB_OK;
}

static dpb_status copies_wait(void *queue)
{
    (void)queue;
    return DPB_OK;
}

static const struct dpb_device_links copies_links = {.count = copies_count,
                                                     .describe = copies_describe,
                                                     .allocate = copies_allocate,
                                                     .release = copies_release,
                                                     .open_queue = copies_open_queue,
                                                     .close_queue = copies_close_queue,
                                                     .peer_possible = copies_peer_possible,
                                                     .peer_enable = copies_peer_enable,
                                                     .copy = copies_copy,
                                                     .wait = copies_wait};

static struct dpb_device_ops copies_ops;

static const char *copies_missing(void)
{
    return getenv("COPIES_MISSING");
}

static const struct dpb_plugin plugin_copies = {
    DPB_PLUGIN_HEAD(DEVICE, copies_ops),
    .capabilities = DPB_DEVICE_FP32,
    .name = "copies",
    .version = "1",
    .summary = "for tests: devices to copy to and from",
    .missing = copies_missing,
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    const struct dpb_plugin *plugin = fault_inner(host, "device_reference");
    if (!plugin)
        return NULL;
    copies_ops = *(const struct dpb_device_ops *)plugin->ops;
    copies_ops.links = &copies_links;
    copies_ops.monitor = &cuda_monitor;
    return &plugin_copies;
}
