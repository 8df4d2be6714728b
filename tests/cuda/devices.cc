/*
 * devices.cc - the GPUs that the stand-in's runtime says there are, and its errors.
 *
 * DPB_STAND_IN_DEVICES: how many GPUs there are (2). CUDA_MPS_PIPE_DIRECTORY: where a `control`
 * is, MPS serves all GPUs. DPB_STAND_IN_MPS=0: an older driver, which does not know MPS's
 * attribute.
 */
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "stand_in.h"

extern "C" {

cudaError_t cudaGetLastError(void)
{
    cudaError_t code = last_error;
    last_error = cudaSuccess;
    return code;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

const char *cudaGetErrorName(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
           : code == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress"
                                             : "cudaErrorOfTheStandIn";
}

const char *cudaGetErrorString(cudaError_t code)
{
    return code == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                           : "an error of the stand-in";
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = (int)setting("DPB_STAND_IN_DEVICES", 2);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *about, int id)
{
    *about = cudaDeviceProp();
    about->uuid.bytes[0] = (char)(id + 1);
    snprintf(about->name, sizeof about->name, "stand-in");
    size_t free_bytes;
    cudaMemGetInfo(&free_bytes, &about->totalGlobalMem);
    about->major = 9;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int id)
{
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", id);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int id)
{
    if (attribute == cudaDevAttrMultiProcessorCount) {
        *value = 4;
        return cudaSuccess;
    }
    if (attribute != cudaDevAttrMpsEnabled || !setting("DPB_STAND_IN_MPS", 1))
        return last_error = cudaErrorInvalidValue;
    if (id >= setting("DPB_STAND_IN_DEVICES", 2))
        return last_error = cudaErrorInvalidDevice;
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
    *value = pipes && access((std::string(pipes) + "/control").c_str(), F_OK) == 0;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int, size_t)
{
    *blocks = 2;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int id)
{
    if (id >= setting("DPB_STAND_IN_DEVICES", 2))
        return cudaErrorInvalidDevice;
    current_device = id;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *id)
{
    *id = current_device;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* In place of lib/cuda/driver.c: nothing is missing. */
const char *cuda_driver_missing(int)
{
    return nullptr;
}
}
