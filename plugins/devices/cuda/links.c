/*
 * links.c - the device's part of `dpbench links`: memory, queues (streams) and copies, which core
 * times. A copy between devices goes directly where peer access is enabled; else the driver takes
 * it through memory of the host.
 */
#include <stdio.h>
#include <stdlib.h>

#include "hooks.h"

static dpb_status count(uint32_t *n_devices)
{
    int n = 0;
    CUDA_TRY(cudaGetDeviceCount(&n));
    *n_devices = (uint32_t)n;
    return DPB_OK;
}

static dpb_status describe(uint32_t device, struct dpb_link_device *described)
{
    struct cudaDeviceProp properties;
    CUDA_TRY(cudaGetDeviceProperties(&properties, (int)device));
    *described = (struct dpb_link_device){.memory_bytes = properties.totalGlobalMem};
    snprintf(described->name, sizeof described->name, "%s", properties.name);
    return CUDA_CALL(
        cudaDeviceGetPCIBusId(described->pci_address, sizeof described->pci_address, (int)device));
}

static dpb_status allocate(dpb_link_memory kind, uint32_t device, uint64_t bytes, void **memory)
{
    void *made = NULL;
    CUDA_TRY(cudaSetDevice((int)device));
    if (kind == DPB_LINK_PINNED)
        CUDA_TRY(cudaHostAlloc(&made, bytes, cudaHostAllocDefault));
    else
        CUDA_TRY(cudaMalloc(&made, bytes));
    dpb_status status = CUDA_CALL(cudaMemset(made, 0, bytes));
    DPB_THEN(status, CUDA_CALL(cudaDeviceSynchronize()));
    if (status == DPB_OK)
        *memory = made;
    else if (kind == DPB_LINK_PINNED)
        cudaFreeHost(made);
    else
        cudaFree(made);
    return status;
}

static void release(dpb_link_memory kind, uint32_t device, void *memory)
{
    cudaSetDevice((int)device);
    if (kind == DPB_LINK_PINNED)
        cudaFreeHost(memory);
    else
        cudaFree(memory);
}

static dpb_status open_queue(uint32_t device, void **queue)
{
    cudaStream_t stream = NULL;
    CUDA_TRY(cudaSetDevice((int)device));
    CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *queue = stream;
    return DPB_OK;
}

static void close_queue(void *queue)
{
    if (queue)
        cudaStreamDestroy(queue);
}

static dpb_status peer_possible(uint32_t from, uint32_t to, bool *possible)
{
    int can = 0;
    CUDA_TRY(cudaDeviceCanAccessPeer(&can, (int)from, (int)to));
    *possible = can != 0;
    return DPB_OK;
}

static dpb_status peer_enable(uint32_t from, uint32_t to, bool enabled)
{
    CUDA_TRY(cudaSetDevice((int)from));
    if (enabled)
        CUDA_TRY(cudaDeviceEnablePeerAccess((int)to, 0));
    else
        CUDA_TRY(cudaDeviceDisablePeerAccess((int)to));
    return DPB_OK;
}

static dpb_status copy(void *queue, void *destination, uint32_t to, const void *source,
                       uint32_t from, uint64_t bytes)
{
    if (to != DPB_LINK_HOST && from != DPB_LINK_HOST && to != from)
        CUDA_TRY(cudaMemcpyPeerAsync(destination, (int)to, source, (int)from, bytes, queue));
    else
        CUDA_TRY(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, queue));
    return DPB_OK;
}

static dpb_status wait(void *queue)
{
    return CUDA_CALL(cudaStreamSynchronize(queue));
}

const struct dpb_device_links cuda_links = {.count = count,
                                            .describe = describe,
                                            .allocate = allocate,
                                            .release = release,
                                            .open_queue = open_queue,
                                            .close_queue = close_queue,
                                            .peer_possible = peer_possible,
                                            .peer_enable = peer_enable,
                                            .copy = copy,
                                            .wait = wait};
