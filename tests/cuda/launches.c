/*
 * launches.c - a CUDA runtime that launches nothing: it hands each launch of the kernels that it is
 * linked with over to a function, with the name of the kernel in PTX and the addresses of its
 * arguments. tests/cuda/ptx.py runs them.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*launch_taker)(const char *kernel, const unsigned *grid, const unsigned *block,
                             void *const *arguments);
typedef void (*write_taker)(void *to, size_t bytes);

enum { MOST_KERNELS = 4096 };
static struct {
    const void *function;
    const char *name;
} kernels[MOST_KERNELS];
static unsigned n_kernels;
static launch_taker on_launch;
static write_taker on_write;
static struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} pushed;

__attribute__((visibility("default"))) void take_launches(launch_taker launch, write_taker write)
{
    on_launch = launch;
    on_write = write;
}

/* ---- what nvcc's code calls (crt/host_runtime.h) ---- */

void **__cudaRegisterFatBinary(void *binary)
{
    (void)binary;
    static void *handle;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *function, char *device_function,
                            const char *name, int limit, uint3 *tid, uint3 *bid, dim3 *block,
                            dim3 *grid, int *size)
{
    (void)handle, (void)name, (void)limit, (void)tid, (void)bid, (void)block, (void)grid;
    (void)size;
    if (n_kernels == MOST_KERNELS) {
        fprintf(stderr, "launches.c: more than %d kernels\n", MOST_KERNELS);
        abort();
    }
    kernels[n_kernels].function = function;
    kernels[n_kernels++].name = device_function;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared = shared;
    pushed.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *(cudaStream_t *)stream = pushed.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    for (unsigned i = 0; i < n_kernels; i++) {
        if (kernels[i].function == function) {
            *kernel = (cudaKernel_t)(void *)kernels[i].name;
            return cudaSuccess;
        }
    }
    return cudaErrorInvalidDeviceFunction;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream)
{
    (void)shared, (void)stream;
    const unsigned blocks[] = {grid.x, grid.y, grid.z}, threads[] = {block.x, block.y, block.z};
    on_launch((const char *)kernel, blocks, threads, arguments);
    return cudaSuccess;
}

/* ---- what launching functions call besides ---- */

/* A GPU that runs two blocks at once. */
cudaError_t cudaGetDevice(int *gpu)
{
    *gpu = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int gpu)
{
    (void)attribute, (void)gpu;
    *value = 1;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                          int threads, size_t shared)
{
    (void)kernel, (void)threads, (void)shared;
    *blocks = 2;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind, (void)stream;
    memmove(to, from, bytes);
    on_write(to, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(to, value, bytes);
    on_write(to, bytes);
    return cudaSuccess;
}
