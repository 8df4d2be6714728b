/*
 * kernel_norm.h - a batch-norm's function of a channel's values, for kernels (kernel.h).
 */
#ifndef DPB_CUDA_KERNEL_NORM_H
#define DPB_CUDA_KERNEL_NORM_H

#include "kernel.h"

/* The function of a column's channels: y = (x - mean) * scale + beta. */
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

/* Whether x, which is not negative, is 0. */
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
