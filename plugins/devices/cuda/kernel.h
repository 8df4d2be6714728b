/*
 * kernel.h - what the .cu files share: launching, element types, and sums within a block.
 *
 * A kernel is written so that it can also be run on a processor, thread after thread, which tests
 * do where there is no GPU (tests/cuda/kernel_host.h takes this file's place at the launching): it
 * uses threadIdx, blockIdx, blockDim, gridDim, __shared__ and __syncthreads, and of these two only
 * what is launched by LAUNCH_BLOCKS.
 */
#ifndef DPB_CUDA_KERNEL_H
#define DPB_CUDA_KERNEL_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels.h"

#ifdef DPB_KERNELS_ON_HOST
#include "kernel_host.h"
#else
#define LAUNCH(kernel, grid, block, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#define LAUNCH_BLOCKS LAUNCH
#endif

/* An index into any array; 64 bits, for a batch of 512 at 224x224x64 has more than 2^32 bytes. */
typedef uint64_t index_t;

static __host__ __device__ inline float to_fp32(float x)
{
    return x;
}

static __host__ __device__ inline float to_fp32(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __host__ __device__ inline float to_fp32(__half x)
{
    return __half2float(x);
}

template <typename T> static __host__ __device__ T from_fp32(float x);
template <> __host__ __device__ inline float from_fp32<float>(float x)
{
    return x;
}
template <> __host__ __device__ inline __nv_bfloat16 from_fp32<__nv_bfloat16>(float x)
{
    return __float2bfloat16(x);
}
template <> __host__ __device__ inline __half from_fp32<__half>(float x)
{
    return __float2half(x);
}

/* Does what follows with T as the element type of `type`. */
#define BY_TYPE(type, ...)                \
    do {                                  \
        if ((type) == TYPE_BF16) {        \
            using T = __nv_bfloat16;      \
            __VA_ARGS__;                  \
        } else if ((type) == TYPE_FP16) { \
            using T = __half;             \
            __VA_ARGS__;                  \
        } else {                          \
            using T = float;              \
            __VA_ARGS__;                  \
        }                                 \
    } while (0)

enum { THREADS = 256 };

/* Blocks for n elements, one a thread, or several where there are very many: kernels loop. */
static inline dim3 blocks_for(index_t n)
{
    const index_t most = 1 << 16;
    index_t blocks = (n + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}

/* for (EACH(i, n)): the elements of a thread. */
#define EACH(i, n)                                              \
    index_t i = (index_t)blockIdx.x * blockDim.x + threadIdx.x; \
    i < (n);                                                    \
    i += (index_t)gridDim.x * blockDim.x

/* An element of a grid, taken apart. */
struct place {
    index_t n;
    uint32_t h, w, c;
};

static __host__ __device__ inline place place_of(index_t k, const grid &shape)
{
    place at;
    at.c = (uint32_t)(k % shape.c);
    k /= shape.c;
    at.w = (uint32_t)(k % shape.w);
    k /= shape.w;
    at.h = (uint32_t)(k % shape.h);
    at.n = k / shape.h;
    return at;
}

static __host__ __device__ inline index_t element_of(const grid &shape, index_t n, uint32_t h,
                                                     uint32_t w, uint32_t c)
{
    return ((n * shape.h + h) * shape.w + w) * shape.c + c;
}

static inline index_t elements(const grid &shape)
{
    return (index_t)shape.n * shape.h * shape.w * shape.c;
}

#endif
