/*
 * kernel_host.h - the cuda device's kernels as C++ for a processor: what kernel.h leaves to the
 * launching. The threads of a block are run one after the other; where they wait for each other
 * (LAUNCH_BLOCKS) each has a stack of its own, and __syncthreads goes on with the next.
 *
 * A stream keeps the launch until it comes to it (runtime.cc), with the arguments of the time of
 * the call, as CUDA does.
 */
#ifndef DPB_TESTS_CUDA_KERNEL_HOST_H
#define DPB_TESTS_CUDA_KERNEL_HOST_H

#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>
#include <functional>
#include <memory>

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

void __syncthreads();
static inline void __threadfence_system()
{
}
static inline void __threadfence()
{
}
template <typename T> static inline T __ldcg(const T *at)
{
    return *at;
}
static inline unsigned atomicInc(unsigned *at, unsigned last)
{
    const unsigned found = *at;
    *at = found >= last ? 0 : found + 1;
    return found;
}
static inline unsigned long long atomicCAS(unsigned long long *at, unsigned long long seen,
                                           unsigned long long wanted)
{
    const unsigned long long found = *at;
    *at = found == seen ? wanted : found;
    return found;
}
static inline uint32_t atomicAdd(uint32_t *at, uint32_t more)
{
    *at += more;
    return *at - more;
}

/* Runs `thread` for every thread of every block. */
void stand_in_threads(dim3 grid, dim3 block, const std::function<void()> &thread);
void stand_in_blocks(dim3 grid, dim3 block, const std::function<void()> &thread);
/* Aborts: a GPU refuses the access. */
[[noreturn]] void stand_in_misaligned(const void *at, size_t bytes);
#define CHECK_PACK(at, bytes) \
    ((uintptr_t)(at) % (bytes) == 0 ? (void)0 : stand_in_misaligned(at, bytes))
/* The kernels' shared memory is [begin, end): it is poisoned before some blocks. */
void stand_in_shared(char *begin, char *end);
/* Gives the stream something to do. */
void stand_in_enqueue(cudaStream_t stream, std::function<void()> work);
/* Within work: it takes so long, by the clock of the GPU's events. Nothing sleeps, so that what is
 * slow is slower than all else, however busy the machine is. */
void stand_in_take(int64_t ns);
/* Whether the range lies within one piece of this process's device memory. */
bool stand_in_has(const void *at, size_t bytes);
/* Whether indices are of 64 bits, however few elements there are: DPB_STAND_IN_LONG=1. */
bool stand_in_long_indices();
/* False, with the last error: launches from a thread whose GPU is not the stream's fail, and those
 * of too many blocks or threads. */
bool stand_in_launched(cudaStream_t stream, dim3 grid, dim3 block);
/* The same; it is done once `possible`, which is asked now and then, says so: what it needs comes
 * from another process. */
void stand_in_enqueue_when(cudaStream_t stream, std::function<bool()> possible,
                           std::function<void()> work);
/* The capture that the stream is part of, by its number; 0: none. */
uint64_t stand_in_capture(cudaStream_t stream);
/* Of a stream that is: the graph holds `object` until it is destroyed, and every launch of it calls
 * `launched`, in the order of these calls. */
void stand_in_hold(cudaStream_t stream, std::shared_ptr<void> object,
                   std::function<void()> launched);
void stand_in_trace(const char *what);

#define STAND_IN_LAUNCH(run, kernel, grid, block, stream, ...) \
    stand_in_launch(                                           \
        run, grid, block, stream, [](auto... arguments) { kernel(arguments...); }, __VA_ARGS__)
#define LAUNCH(kernel, ...) STAND_IN_LAUNCH(stand_in_threads, kernel, __VA_ARGS__)
#define LAUNCH_BLOCKS(kernel, ...) STAND_IN_LAUNCH(stand_in_blocks, kernel, __VA_ARGS__)

template <typename Run, typename Kernel, typename... Arguments>
static inline void stand_in_launch(Run run, dim3 grid, dim3 block, cudaStream_t stream,
                                   Kernel kernel, Arguments... arguments)
{
    if (stand_in_launched(stream, grid, block))
        stand_in_enqueue(stream, [=] { run(grid, block, [=] { kernel(arguments...); }); });
}

#endif
