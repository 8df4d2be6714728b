/*
 * kernel_norm.h - what a batch-norm does to a channel's values, for kernels (kernel.h).
 */
#ifndef DPB_CUDA_KERNEL_NORM_H
#define DPB_CUDA_KERNEL_NORM_H

#include "kernel.h"

/* What is done to the channels of a column: y = (x - mean) * scale + beta. */
template <int CHANNELS> struct normalising {
    float mean[CHANNELS], scale[CHANNELS], beta[CHANNELS];
    __device__ normalising(const norm_by &by, uint32_t column)
    {
        UNROLLED
        for (int i = 0; i < CHANNELS; i++) {
            const uint32_t channel = column * CHANNELS + i;
            mean[i] = by.mean[channel];
            scale[i] = by.inverse[channel] * (by.gamma ? by.gamma[channel] : 1.0f);
            beta[i] = by.beta ? by.beta[channel] : 0.0f;
        }
    }
    __device__ float value(int channel, float x) const
    {
        return (x - mean[channel]) * scale[channel] + beta[channel];
    }
};

/* Of what is not negative. */
static __device__ inline bool is_zero(float x)
{
    return x == 0.0f;
}

static __device__ inline bool is_zero(__half x)
{
    return __half_as_ushort(x) == 0;
}

static __device__ inline bool is_zero(__nv_bfloat16 x)
{
    return __bfloat16_as_ushort(x) == 0;
}

#endif
