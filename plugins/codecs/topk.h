/*
 * topk.h - the rule of codec topk, for its plugin and for devices that encode by kernels.
 */
#ifndef DPB_PLUGINS_CODECS_TOPK_H
#define DPB_PLUGINS_CODECS_TOPK_H

#include <math.h>
#include <string.h>

#include "dpbench/codec.h"

struct topk_options {
    struct dpb_codec_options base;
    double ratio, momentum;
    int64_t warmup_steps;
};

/* Elements to send in step `t` of the codec, counted from 1. */
static inline uint64_t topk_count_in(const struct topk_options *options, uint64_t t, uint64_t n)
{
    const double steps = (double)options->warmup_steps;
    const double part =
        (double)t > steps ? options->ratio : pow(options->ratio, (double)t / (steps + 1));
    return (uint64_t)ceil(part * (double)n);
}

static inline uint64_t topk_count(const struct topk_options *options,
                                  const struct dpb_codec_part *part)
{
    const uint64_t start = (uint64_t)options->base.start_step;
    return topk_count_in(options, part->step > start ? part->step - start : 1, part->n);
}

static inline uint64_t topk_bytes(uint64_t k)
{
    return k * (sizeof(uint32_t) + sizeof(float));
}

/* Magnitudes of floats are in the order of these bits. */
DPB_EVERYWHERE uint32_t topk_magnitude(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffffu;
}

/* Momentum correction; returns the new residual. */
DPB_EVERYWHERE float topk_accelerate(float gradient, float momentum, float *velocity, float *added,
                                     float residual)
{
    const float kept = momentum * *velocity;
    *added += kept;
    *velocity = gradient + kept;
    return residual + *velocity;
}

#endif
