/*
 * scale.h - the scale of a block and random numbers for stochastic rounding: for codecs with a
 * scale for each block, and for devices that encode by kernels.
 */
#ifndef DPB_PLUGINS_CODECS_SCALE_H
#define DPB_PLUGINS_CODECS_SCALE_H

#include <float.h>
#include <math.h>

#include "dpbench/codec.h"
#include "dpbench/random.h"

/* The largest magnitude is `levels` scales. 0: the block is too small for a scale and stays in the
 * residual. NaN: the block is not finite. */
DPB_EVERYWHERE float scaled_scale(float largest, float levels)
{
    if (!(largest <= FLT_MAX))
        return NAN;
    return largest < levels * FLT_MIN ? 0.0F : largest / levels;
}

/* The key of a part's random numbers: its seed, rank, step and place. */
static inline uint32_t scaled_key(const struct dpb_codec_part *part)
{
    return dpb_random(part->seed, DPB_STREAM_CODEC, part->rank, (uint32_t)part->step,
                      (uint32_t)(part->step >> 32), (uint32_t)part->first)
        .v[0];
}

/* Between -1/2 and 1/2, both excluded. */
DPB_EVERYWHERE float scaled_fraction(uint32_t key, uint32_t i)
{
    uint32_t x = key + i * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return ((float)(int32_t)(x >> 16) + 0.5F) * 0x1p-16F - 0.5F;
}

#endif
