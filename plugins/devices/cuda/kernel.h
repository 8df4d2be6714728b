/*
 * kernel.h - shared by the .cu files: launching, element types, places in a grid, and the maximum
 * of a block.
 *
 * Tests without a GPU run each kernel on a processor, thread after thread (tests/cuda/kernel_host.h
 * takes this file's place at the launching). So a kernel uses only threadIdx, blockIdx, blockDim
 * and gridDim, and __shared__ and __syncthreads if LAUNCH_BLOCKS launches it.
 */
#ifndef DPB_CUDA_KERNEL_H
#define DPB_CUDA_KERNEL_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels.h"

#ifdef DPB_KERNELS_ON_HOST
#include "kernel_host.h"
#define UNROLLED
#define ROLLED
#define KERNEL_OF(blocks)
#define LONG_INDICES stand_in_long_indices()
#else
/* Whether indices have 64 bits, however few elements there are. */
#define LONG_INDICES false
/* A GPU itself refuses a pack that is not aligned. */
#define CHECK_PACK(at, bytes) ((void)0)
/* Before a loop: unrolls eight rounds. */
#define UNROLLED _Pragma("unroll 8")
/* Before a loop: unrolls none; the registers are budgeted for one round. */
#define ROLLED _Pragma("unroll 1")
/* A kernel with at least `blocks` blocks on a multiprocessor at a time: 4 leave a thread 64
 * registers, 3 leave 80. */
#define KERNEL_OF(blocks) __global__ __launch_bounds__(THREADS, blocks)
#define LAUNCH(kernel, grid, block, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#define LAUNCH_BLOCKS LAUNCH
#endif

/* An index into any array. */
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

/* Does the rest with T as the element type of `type`. */
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

/* Blocks for n elements: one element a thread, or several if n is very large: kernels loop. */
static inline dim3 blocks_for(index_t n)
{
    const index_t most = 1 << 16;
    index_t blocks = (n + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}

/* Blocks for n elements in blocks; a block of threads works on one block of elements at a time. */
static inline dim3 grid_of(index_t n, index_t block)
{
    const index_t most = 1 << 16, blocks = (n + block - 1) / block;
    return dim3((unsigned)(blocks < most ? blocks : most));
}

/* for (EACH(i, n)): the elements of a thread. EACH_OF(I, i, n): by indices of type I. */
#define EACH_OF(I, i, n)                            \
    I i = (I)blockIdx.x * blockDim.x + threadIdx.x; \
    i < (n);                                        \
    i += (I)gridDim.x * blockDim.x
#define EACH(i, n) EACH_OF(index_t, i, n)

/* Does the rest with I as the type of indices into arrays of at most n elements: 32 bits if all are
 * below DIVISOR_MOST, as for a batch of 512 at 224x224x64. */
#define BY_INDEX(n, ...)              \
    do {                              \
        if (takes_short_indices(n)) { \
            using I = uint32_t;       \
            __VA_ARGS__;              \
        } else {                      \
            using I = index_t;        \
            __VA_ARGS__;              \
        }                             \
    } while (0)

static inline bool takes_short_indices(index_t n)
{
    return n <= DIVISOR_MOST && !LONG_INDICES;
}

/* A grid, with divisors to take its elements apart. */
struct parted {
    grid shape;
    divisor h, w, c;
};

static inline parted parted_of(const grid &shape)
{
    return {shape, cuda_divisor(shape.h), cuda_divisor(shape.w), cuda_divisor(shape.c)};
}

/* Divides *k by the divisor in place; returns the remainder. */
static __host__ __device__ inline uint32_t part(uint32_t *k, const divisor &divisor)
{
    const uint32_t quotient = cuda_quotient(*k, divisor), rest = *k - quotient * divisor.by;
    *k = quotient;
    return rest;
}

static __host__ __device__ inline uint32_t part(index_t *k, const divisor &divisor)
{
    const uint32_t rest = (uint32_t)(*k % divisor.by);
    *k /= divisor.by;
    return rest;
}

/* An element of a grid, taken apart. */
struct place {
    uint32_t n, h, w, c;
};

/* A grid has one layout, so all threads take the same branches. */
template <typename I> static __host__ __device__ inline place place_of(I k, const parted &by)
{
    place at;
    if (!by.shape.planes)
        at.c = part(&k, by.c);
    at.w = part(&k, by.w);
    at.h = part(&k, by.h);
    if (by.shape.planes)
        at.c = part(&k, by.c);
    at.n = (uint32_t)k;
    return at;
}

template <typename I>
static __host__ __device__ inline I element_of(const grid &shape, uint32_t n, uint32_t h,
                                               uint32_t w, uint32_t c)
{
    return shape.planes ? (((I)n * shape.c + c) * shape.h + h) * shape.w + w
                        : (((I)n * shape.h + h) * shape.w + w) * shape.c + c;
}

/* The distance from an element to the same pixel's in the next channel. */
static __host__ __device__ inline index_t channel_stride(const grid &shape)
{
    return shape.planes ? (index_t)shape.h * shape.w : 1;
}

/* A thread reads and writes a pack at once, at an address that is a multiple of PACK_BYTES. */
enum { PACK_BYTES = 16 };

template <typename T, int N> struct alignas(N == 1 ? sizeof(T) : (size_t)PACK_BYTES) pack {
    T at[N];
};

template <typename T, int N>
static __host__ __device__ inline pack<T, N> load_pack(const T *array, index_t i)
{
    CHECK_PACK(array, alignof(pack<T, N>));
    return reinterpret_cast<const pack<T, N> *>(array)[i];
}

template <typename T, int N>
static __host__ __device__ inline void store_pack(T *array, index_t i, const pack<T, N> &values)
{
    CHECK_PACK(array, alignof(pack<T, N>));
    reinterpret_cast<pack<T, N> *>(array)[i] = values;
}

/* Does the rest with N as the elements of a pack: PACK_BYTES of T if n is a multiple of them, else
 * one. Then each row of n elements has the alignment if the first element has it. */
#define BY_PACK(n, ...)                               \
    do {                                              \
        if ((n) % (PACK_BYTES / sizeof(T)) == 0) {    \
            constexpr int N = PACK_BYTES / sizeof(T); \
            __VA_ARGS__;                              \
        } else {                                      \
            constexpr int N = 1;                      \
            __VA_ARGS__;                              \
        }                                             \
    } while (0)

/* For work by channel: a pack's channels follow each other, or all are one. */
static inline index_t run_length(const grid &shape)
{
    return shape.planes ? (index_t)shape.h * shape.w : shape.c;
}

/* Blocks for n packs: so few that a thread takes several. These packs have the same channels if the
 * number of channels divides the elements that all threads take at once. */
static inline dim3 blocks_for_packs(index_t n)
{
    const index_t most = 1 << 11;
    const dim3 blocks = blocks_for(n);
    return blocks.x < most ? blocks : dim3((unsigned)most);
}

static inline index_t elements(const grid &shape)
{
    return (index_t)shape.n * shape.h * shape.w * shape.c;
}

static inline index_t most_of(const grid &a, const grid &b)
{
    return elements(a) > elements(b) ? elements(a) : elements(b);
}

/* Returns the largest of the magnitudes of a block's threads, as bits, to every thread; their
 * number is a multiple of 32. The result is larger than infinity's bits if one is NaN. */
static __device__ inline uint32_t largest_of_block(uint32_t own, uint32_t *room)
{
    const uint32_t t = threadIdx.x, columns = 16;
    room[t] = own;
    __syncthreads();
    for (uint32_t i = t + columns; t < columns && i < blockDim.x; i += columns)
        room[t] = room[t] > room[i] ? room[t] : room[i];
    __syncthreads();
    uint32_t largest = room[0];
    for (uint32_t i = 1; i < columns; i++)
        largest = largest > room[i] ? largest : room[i];
    __syncthreads();
    return largest;
}

#endif
