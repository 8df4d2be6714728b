/*
 * libcuda.c - stands in for the NVIDIA driver's libcuda.so.1, found by LD_LIBRARY_PATH; what it
 * answers comes from the environment: FAKE_CUDA_VERSION (13000), FAKE_CUDA_VERSION_ERROR,
 * FAKE_CUDA_INIT (the error of cuInit), FAKE_CUDA_COUNT. cuInit appends the process's number to
 * FAKE_CUDA_STARTS. With FAKE_WITHOUT_INIT it is a library that has no cuInit. What else
 * cuDNN looks for before it compiles a kernel is there and gives CUDA_ERROR_NOT_SUPPORTED.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FAKE __attribute__((visibility("default")))

FAKE int cuDriverGetVersion(int *version);
FAKE int cuInit(unsigned flags);
FAKE int cuDeviceGetCount(int *count);
FAKE int cuGetErrorName(int error, const char **name);
FAKE int cuGetErrorString(int error, const char **text);

static int number(const char *name, int otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? atoi(value) : otherwise;
}

int cuDriverGetVersion(int *version)
{
    *version = number("FAKE_CUDA_VERSION", 13000);
    return number("FAKE_CUDA_VERSION_ERROR", 0);
}

static int started; /* by cuInit; the others answer CUDA_ERROR_NOT_INITIALIZED before */

#ifndef FAKE_WITHOUT_INIT
int cuInit(unsigned flags)
{
    int error = flags == 0 ? number("FAKE_CUDA_INIT", 0) : 1;
    const char *starts = getenv("FAKE_CUDA_STARTS");
    FILE *file = starts != NULL ? fopen(starts, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
    }
    started = error == 0;
    return error;
}
#endif

int cuDeviceGetCount(int *count)
{
    if (!started)
        return 3;
    *count = number("FAKE_CUDA_COUNT", 1);
    return 0;
}

#define NOT_SUPPORTED(name) \
    FAKE int name(void);    \
    int name(void)          \
    {                       \
        return 801;         \
    }
NOT_SUPPORTED(cuCtxGetCurrent)
NOT_SUPPORTED(cuCtxGetLimit)
NOT_SUPPORTED(cuCtxPopCurrent)
NOT_SUPPORTED(cuCtxPushCurrent)
NOT_SUPPORTED(cuDeviceGet)
NOT_SUPPORTED(cuKernelGetAttribute)
NOT_SUPPORTED(cuKernelSetAttribute)
NOT_SUPPORTED(cuLaunchCooperativeKernel)
NOT_SUPPORTED(cuLaunchKernel)
NOT_SUPPORTED(cuLaunchKernelEx)
NOT_SUPPORTED(cuLibraryGetKernel)
NOT_SUPPORTED(cuLibraryLoadData)
NOT_SUPPORTED(cuLibraryLoadFromFile)
NOT_SUPPORTED(cuLibraryUnload)
NOT_SUPPORTED(cuLinkAddData)
NOT_SUPPORTED(cuLinkComplete)
NOT_SUPPORTED(cuLinkCreate)
NOT_SUPPORTED(cuLinkDestroy)
NOT_SUPPORTED(cuOccupancyMaxPotentialClusterSize)
NOT_SUPPORTED(cuStreamGetCtx)

static const struct {
    int error;
    const char *name, *text;
} errors[] = {{3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
              {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
              {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
               "system has unsupported display driver / cuda driver combination"}};

static int find(int error)
{
    for (int i = 0; i < (int)(sizeof errors / sizeof errors[0]); i++)
        if (errors[i].error == error)
            return i;
    return -1;
}

int cuGetErrorName(int error, const char **name)
{
    int i = find(error);
    *name = i >= 0 ? errors[i].name : NULL;
    return i >= 0 ? 0 : 1;
}

int cuGetErrorString(int error, const char **text)
{
    int i = find(error);
    *text = i >= 0 ? errors[i].text : NULL;
    return i >= 0 ? 0 : 1;
}
