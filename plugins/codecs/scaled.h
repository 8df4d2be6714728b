/*
 * scaled.h - what codecs with a scale for each block share: the sum of gradients and residual, the
 * scale, and random numbers for stochastic rounding.
 */
#ifndef DPB_PLUGINS_CODECS_SCALED_H
#define DPB_PLUGINS_CODECS_SCALED_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "codecs/message.h"
#include "dpbench/random.h"

/* values += more; returns the largest magnitude, by its bits: NaN is larger than all numbers. */
static inline __attribute__((always_inline)) float scaled_add(const float *restrict more,
                                                              float *restrict values, uint64_t n)
{
    uint32_t largest = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        values[i] += more[i];
        memcpy(&bits, &values[i], sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    float magnitude;
    memcpy(&magnitude, &largest, sizeof magnitude);
    return magnitude;
}

/* The largest magnitude is `levels` scales. 0: the block is too small for a scale and stays in the
 * residual. NaN: the block is not finite. */
static inline float scaled_scale(float largest, float levels)
{
    if (!isfinite(largest))
        return NAN;
    return largest < levels * FLT_MIN ? 0.0F : largest / levels;
}

/* residual += gradients. Returns the scale of this block; a block that is not finite leaves NaN in
 * all of its residual. */
DPB_CLONES static float scaled_begin(const float *restrict gradients, float *restrict residual,
                                     uint64_t n, float levels)
{
    const float scale = scaled_scale(scaled_add(gradients, residual, n), levels);
    for (uint64_t i = 0; i < n && isnan(scale); i++)
        residual[i] = NAN;
    return scale;
}

/* The key of a part's random numbers: its seed, rank, step and place. */
static inline uint32_t scaled_key(const struct dpb_codec_part *part)
{
    return dpb_random(part->seed, DPB_STREAM_CODEC, part->rank, (uint32_t)part->step,
                      (uint32_t)(part->step >> 32), (uint32_t)part->first)
        .v[0];
}

/* Between -1/2 and 1/2, both excluded. */
static inline __attribute__((always_inline)) float scaled_fraction(uint32_t key, uint32_t i)
{
    uint32_t x = key + i * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return ((float)(int32_t)(x >> 16) + 0.5F) * 0x1p-16F - 0.5F;
}

#endif
