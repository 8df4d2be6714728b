/*
 * cudnn_parts.h - what the two halves of the stand-in's cuDNN share: the handle, and numbers of its
 * types.
 */
#ifndef DPB_TESTS_CUDA_CUDNN_PARTS_H
#define DPB_TESTS_CUDA_CUDNN_PARTS_H

#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cudnn.h>
#include <string>

#include "kernel_host.h"
#include "stand_in.h"

struct cudnnContext {
    cudaStream_t stream;
    int plans; /* of the graph API, that live */
};

/* DPB_STAND_IN_SLOW: a list, by commas, of what takes long: the calls forward, data and weights;
 * product: those but the fourth that cuBLASLt offers. */
static inline void stand_in_dawdle(const char *call)
{
    const char *slow = getenv("DPB_STAND_IN_SLOW");
    const std::string all = slow ? "," + std::string(slow) + "," : "";
    if (all.find("," + std::string(call) + ",") != std::string::npos)
        stand_in_take(int64_t(1000000000) * 1000);
}

/* DPB_STAND_IN_BROKEN: such a list of what fails when executed: forward: that call's engine without
 * tensor cores; every: all of that call's; and when asked for: added: what adds to another
 * gradient; heuristic: A, which has no answers. With `stuck` the GPU's context fails from the first
 * failure on. */
static inline bool stand_in_broken(const char *call)
{
    const char *broken = getenv("DPB_STAND_IN_BROKEN");
    const std::string all = broken ? "," + std::string(broken) + "," : "";
    const bool fails = all.find("," + std::string(call) + ",") != std::string::npos;
    if (fails && all.find(",stuck,") != std::string::npos)
        sticky = cudaErrorIllegalAddress;
    return fails;
}

static inline float load(cudnnDataType_t type, const void *data, size_t i)
{
    if (type == CUDNN_DATA_BFLOAT16)
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
    if (type == CUDNN_DATA_HALF)
        return __half2float(static_cast<const __half *>(data)[i]);
    return static_cast<const float *>(data)[i];
}

static inline void store(cudnnDataType_t type, void *data, size_t i, double value)
{
    if (type == CUDNN_DATA_BFLOAT16)
        static_cast<__nv_bfloat16 *>(data)[i] = __float2bfloat16((float)value);
    else if (type == CUDNN_DATA_HALF)
        static_cast<__half *>(data)[i] = __float2half((float)value);
    else
        static_cast<float *>(data)[i] = (float)value;
}

/* What a tensor core reads of fp32. */
static inline float tf32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0xffffe000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

#endif
