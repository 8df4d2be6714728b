/*
 * arenas.h - arithmetic on arenas in device memory: the kernels behind queues.c. Each function
 * enqueues and returns; a launch that fails shows in cudaGetLastError(). Types are fp32, bf16 and
 * fp16. A pointer needs its type's alignment only.
 */
#ifndef DPB_CUDA_ARENAS_H
#define DPB_CUDA_ARENAS_H

#include <cuda_runtime_api.h>

#include "dpbench/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_sources {
    const void *at[DPB_SUM_SOURCES];
    uint32_t n; /* at least 1 */
};

/* to = the sources' sum from first to last, in fp32, rounded once; `to` may be a source. */
void cuda_sum_arenas(cudaStream_t stream, dpb_dtype type, const struct cuda_sources *from, void *to,
                     uint64_t n);
/* y = a x + b y */
void cuda_axpby(cudaStream_t stream, dpb_dtype type, float a, const void *x, float b, void *y,
                uint64_t n);
/* One of the types is fp32; no overlap. */
void cuda_cast(cudaStream_t stream, dpb_dtype to_type, void *to, dpb_dtype from_type,
               const void *from, uint64_t n);
void cuda_update(cudaStream_t stream, const struct dpb_update *update);
/* As dpb_queue_ops has them. */
void cuda_squares(cudaStream_t stream, const struct dpb_norms *norms, struct dpb_squares *own);
void cuda_factors(cudaStream_t stream, const struct dpb_norms *norms, const struct dpb_squares *all,
                  uint32_t n);

#ifdef __cplusplus
}
#endif

#endif
