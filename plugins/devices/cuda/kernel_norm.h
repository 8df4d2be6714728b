/*
 * kernel_norm.h - a batch-norm's function of a channel's values, for kernels (kernel.h).
 */
#ifndef DPB_CUDA_KERNEL_NORM_H
#define DPB_CUDA_KERNEL_NORM_H

#include "kernel.h"

/* The values of a column's channels, from an array that begins at a multiple of PACK_BYTES. */
template <int CHANNELS> struct channel_values {
    static constexpr int AT_ONCE = CHANNELS % 4 == 0 ? 4 : 1;
    float at[CHANNELS];
    __device__ channel_values(const float *from, uint32_t column)
    {
        UNROLLED
        for (int i = 0; i < CHANNELS; i += AT_ONCE) {
            const pack<float, AT_ONCE> read =
                load_pack<float, AT_ONCE>(from, (column * CHANNELS + i) / AT_ONCE);
            UNROLLED
            for (int j = 0; j < AT_ONCE; j++)
                at[i + j] = read.at[j];
        }
    }
};

/* What a column's channels are multiplied with. */
template <int CHANNELS> struct channel_scales : channel_values<CHANNELS> {
    __device__ channel_scales(const norm_by &by, uint32_t column)
        : channel_values<CHANNELS>(by.inverse, column)
    {
        if (!by.gamma)
            return;
        const channel_values<CHANNELS> gamma(by.gamma, column);
        UNROLLED
        for (int i = 0; i < CHANNELS; i++)
            this->at[i] *= gamma.at[i];
    }
};

/* The function of a column's channels: y = (x - mean) * scale + beta. */
template <int CHANNELS> struct normalising {
    channel_values<CHANNELS> mean;
    channel_scales<CHANNELS> scale;
    float beta[CHANNELS];
    __device__ normalising(const norm_by &by, uint32_t column)
        : mean(by.mean, column), scale(by, column)
    {
        /* The mean stands in for a beta that is not there: all are read without a condition. */
        const channel_values<CHANNELS> read(by.beta ? by.beta : by.mean, column);
        UNROLLED
        for (int i = 0; i < CHANNELS; i++)
            beta[i] = by.beta ? read.at[i] : 0.0f;
    }
    __device__ float value(int channel, float x) const
    {
        return (x - mean.at[channel]) * scale.at[channel] + beta[channel];
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
