/*
 * errors.c - messages of failures: the call, the node, its shapes, and the memory.
 */
#include <stdio.h>

#include "lib/device/op_name.h"
#include "program.h"

const struct dpb_host *cuda_host;

enum { TEXT_BYTES = 256 };

static const char *describe_node(const struct program *p, const struct dpb_node *node,
                                 char text[TEXT_BYTES])
{
    text[0] = 0;
    if (!p || !node)
        return text;
    const struct dpb_shape out = node->shape;
    const struct dpb_shape in = node->n_inputs ? cuda_input(p, node, 0)->shape : out;
    snprintf(text, TEXT_BYTES, " for node '%s' (%s, batch %u, %ux%ux%u -> %ux%ux%u)", node->name,
             dpb_op_name(node->op), p->args.batch, in.c, in.h, in.w, out.c, out.h, out.w);
    return text;
}

static const char *describe_memory(char text[TEXT_BYTES])
{
    size_t free_bytes = 0, total = 0;
    text[0] = 0;
    if (cudaMemGetInfo(&free_bytes, &total) == cudaSuccess)
        snprintf(text, TEXT_BYTES, "; %zu MB of %zu MB of device memory are free",
                 free_bytes / 1000000, total / 1000000);
    return text;
}

static dpb_status report(const struct program *p, const struct dpb_node *node, const char *call,
                         const char *name, const char *meaning, bool memory)
{
    char about[TEXT_BYTES], left[TEXT_BYTES];
    const dpb_status status = memory ? DPB_NO_MEMORY : DPB_FAILED;
    const int length = (int)strcspn(call, "(");
    if (p && p->on_trial) {
        cuda_host->warn("candidate_dropped",
                        "device cuda: an algorithm on trial is dropped: %.*s%s gave %s (%s)",
                        length, call, describe_node(p, node, about), name, meaning);
        return status;
    }
    return cuda_host->fail(status, "device cuda: %.*s%s gave %s (%s)%s%s", length, call,
                           describe_node(p, node, about), name, meaning, describe_memory(left),
                           memory ? "; take a smaller run.batch" : "");
}

dpb_status cuda_check(const struct program *p, const struct dpb_node *node, const char *call,
                      cudaError_t code)
{
    if (code == cudaSuccess)
        return DPB_OK;
    return report(p, node, call, cudaGetErrorName(code), cudaGetErrorString(code),
                  code == cudaErrorMemoryAllocation);
}

dpb_status cuda_check_cudnn(const struct program *p, const struct dpb_node *node, const char *call,
                            cudnnStatus_t code)
{
    if (code == CUDNN_STATUS_SUCCESS)
        return DPB_OK;
    char last[TEXT_BYTES] = "no more is said";
    cudnnGetLastErrorString(last, sizeof last);
    return report(p, node, call, cudnnGetErrorString(code), last,
                  code == CUDNN_STATUS_ALLOC_FAILED);
}

dpb_status cuda_check_blas(const struct program *p, const struct dpb_node *node, const char *call,
                           cublasStatus_t code)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return DPB_OK;
    return report(p, node, call, cublasLtGetStatusName(code), cublasLtGetStatusString(code),
                  code == CUBLAS_STATUS_ALLOC_FAILED);
}

dpb_status cuda_allocate(size_t bytes, void **memory, bool *fits)
{
    const cudaError_t code = cudaMalloc(memory, bytes);
    *fits = code != cudaErrorMemoryAllocation;
    if (*fits)
        return cuda_check(NULL, NULL, "cudaMalloc", code);
    cudaGetLastError(); /* the caller's message replaces it */
    return DPB_OK;
}

dpb_status cuda_no_memory(void)
{
    return cuda_host->fail(DPB_NO_MEMORY, "device cuda: out of memory on the host");
}

/* Bytes that do not grow with the batch: mirrors of core's arenas, and packed weights. */
static size_t fixed_bytes(const struct program *p)
{
    size_t bytes = p->scratch_bytes;
    for (const struct tensor *t = p->tensors; t; t = t->next) {
        if (t == p->weights.tensor || t == p->gradients.tensor || t == p->state.tensor ||
            t == p->statistics.tensor || t == p->packings)
            bytes += t->place.bytes;
    }
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        const struct node_plan *plan = &p->nodes[i];
        bytes += plan->packed ? plan->packed->place.bytes : 0;
    }
    return bytes;
}

dpb_status cuda_too_large(const struct program *p, size_t free_bytes)
{
    const size_t fixed = fixed_bytes(p), batch = p->args.batch;
    const size_t sample = p->arena_bytes > fixed ? (p->arena_bytes - fixed) / batch + 1 : 1;
    const size_t fits = free_bytes > fixed ? (free_bytes - fixed) / sample : 0;
    char advice[TEXT_BYTES] = "no batch of this model fits";
    if (fits > 0)
        snprintf(advice, sizeof advice, "run.batch = %zu would fit, by estimate", fits);
    return cuda_host->fail(DPB_NO_MEMORY,
                           "device cuda: model '%s' with run.batch = %u takes %zu MB of device "
                           "memory, but %zu MB are free on device %d (%s); %s",
                           p->graph->name, p->args.batch, p->arena_bytes / 1000000,
                           free_bytes / 1000000, p->device->id, p->device->name, advice);
}
