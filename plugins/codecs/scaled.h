/*
 * scaled.h - for codecs with a scale for each block: sums of gradients and residual, their scales.
 */
#ifndef DPB_PLUGINS_CODECS_SCALED_H
#define DPB_PLUGINS_CODECS_SCALED_H

#include <string.h>

#include "codecs/message.h"
#include "codecs/scale.h"

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

/* residual += gradients. Returns the scale of this block. If the block is not finite, all of its
 * residual becomes NaN. */
DPB_CLONES static float scaled_begin(const float *restrict gradients, float *restrict residual,
                                     uint64_t n, float levels)
{
    const float scale = scaled_scale(scaled_add(gradients, residual, n), levels);
    for (uint64_t i = 0; i < n && isnan(scale); i++)
        residual[i] = NAN;
    return scale;
}

#endif
