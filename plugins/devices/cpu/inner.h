/*
 * inner.h - for files with inner loops: how loops are compiled, elements of both types, a choice
 * without a branch, the exponential, and arithmetic of sizes.
 */
#ifndef DPB_CPU_INNER_H
#define DPB_CPU_INNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "dpbench/types.h"

/* Compiled for several instruction sets; one is chosen when the plugin is loaded. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) static
#else
#define KERNEL static
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE float get(const void *data, size_t i, bool bf16)
{
    return bf16 ? dpb_bf16_to_fp32(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

/* Returns the value as it is stored. */
INLINE float put(void *data, size_t i, float value, bool bf16)
{
    if (!bf16)
        return ((float *)data)[i] = value;
    uint16_t rounded = dpb_bf16_from_fp32(value);
    ((uint16_t *)data)[i] = rounded;
    return dpb_bf16_to_fp32(rounded);
}

/* The value or 0. By bits: compilers make a branch of a choice, compute a sum only there, and then
 * do not vectorise the loop for AVX2. */
INLINE float kept_if(bool keep, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0 - (uint32_t)keep;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* e^x for x <= 0, to 2 ulp; 0 below -87. A vector instruction, as the library's is not; by bits,
 * since a choice between floats is a branch to compilers. x above 0 by rounding is taken as -x. */
INLINE float exponential(float x)
{
    const uint32_t least = 0x42ae0000U /* 87 */, infinite = 0x7f800000U;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t size = bits & 0x7fffffffU, clipped_size = size < least ? size : least;
    float clipped;
    memcpy(&clipped, &clipped_size, sizeof clipped);
    const int32_t n = (int32_t)(clipped * 1.44269504F + 0.5F); /* the nearest */
    const float r = ((float)n * 0.693359375F - clipped) - (float)n * 2.12194440e-4F;
    float sum = 1.0F / 5040;
    sum = sum * r + 1.0F / 720;
    sum = sum * r + 1.0F / 120;
    sum = sum * r + 1.0F / 24;
    sum = sum * r + 1.0F / 6;
    sum = sum * r + 0.5F;
    sum = sum * r + 1.0F;
    sum = sum * r + 1.0F;
    const uint32_t power_bits = (uint32_t)(127 - n) << 23;
    float power, result;
    memcpy(&power, &power_bits, sizeof power);
    result = sum * power;
    memcpy(&bits, &result, sizeof bits);
    bits &= 0 - (uint32_t)(size <= least);
    bits |= (0 - (uint32_t)(size > infinite)) & 0x7fc00000U; /* NaN stays NaN */
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* The largest of n >= 1 values: in lanes, since compilers leave order and NaN to a reduction. */
INLINE float largest_of(const void *from, size_t first, size_t n, bool bf16)
{
    enum { LANES = 32 };
    const float begin = get(from, first, bf16);
    float lanes[LANES], largest = begin;
    for (size_t k = 0; k < LANES; k++)
        lanes[k] = begin;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            const float value = get(from, first + i + k, bf16);
            lanes[k] = value > lanes[k] ? value : lanes[k];
        }
    for (; i < n; i++) {
        const float value = get(from, first + i, bf16);
        largest = value > largest ? value : largest;
    }
    for (size_t k = 0; k < LANES; k++)
        largest = lanes[k] > largest ? lanes[k] : largest;
    return largest;
}

static inline size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t rounded_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

#endif
