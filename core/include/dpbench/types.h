/*
 * types.h - element types, shapes and ranges: the small words that all other headers share.
 *
 * Every plugin needs this header.
 */
#ifndef DPBENCH_TYPES_H
#define DPBENCH_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Before a function whose loops the compiler vectorises. It is compiled for several instruction
 * sets, and the best that the processor has is called. Not under sanitizers: the choice is made
 * before they have started. */
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DPB_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DPB_CLONES
#endif

/* Before a small function that kernels of GPUs call, too. */
#ifdef __CUDACC__
#define DPB_EVERYWHERE static inline __host__ __device__
#else
#define DPB_EVERYWHERE static inline
#endif

enum { DPB_MAX_CHANNELS = 4 /* of an input sample */, DPB_CACHE_LINE = 64 };

typedef enum dpb_dtype {
    DPB_FP64,
    DPB_FP32,
    DPB_BF16,
    DPB_FP16,
    DPB_UINT8,
    DPB_INT32, /* of samples alone: ids of tokens */
    DPB_DTYPES
} dpb_dtype;

static inline size_t dpb_dtype_size(dpb_dtype type)
{
    static const uint8_t size[DPB_DTYPES] = {8, 4, 2, 2, 1, 4};
    return size[type];
}

static inline const char *dpb_dtype_name(dpb_dtype type)
{
    static const char *const name[DPB_DTYPES] = {"fp64", "fp32", "bf16", "fp16", "uint8", "int32"};
    return name[type];
}

/* bfloat16 is the upper half of an IEEE single; rounding is to nearest, ties to even; NaN stays
 * NaN. */
DPB_EVERYWHERE float dpb_bf16_to_fp32(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

DPB_EVERYWHERE uint16_t dpb_bf16_from_fp32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* IEEE half; rounding is to nearest, ties to even; NaN stays NaN, too large values become
 * infinite. By masks instead of branches, so that compilers vectorise loops over it. */
DPB_EVERYWHERE float dpb_fp16_to_fp32(uint16_t value)
{
    const uint32_t exponent = value & 0x7c00u, rebias = 112u << 23;
    const uint32_t is_denormal = 0u - (uint32_t)(exponent == 0);
    const uint32_t is_special = 0u - (uint32_t)(exponent == 0x7c00u); /* infinite, or NaN */
    uint32_t bits = ((value & 0x7fffu) << 13) + rebias + (is_special & rebias);
    /* m of 2^-24 is what 2^-14 (1 + m / 1024) is more than 2^-14. */
    const uint32_t above_bits = bits + (1u << 23);
    float result;
    memcpy(&result, &above_bits, sizeof result);
    result -= 0x1p-14f;
    uint32_t denormal_bits;
    memcpy(&denormal_bits, &result, sizeof denormal_bits);
    bits = (denormal_bits & is_denormal) | (bits & ~is_denormal) | (value & 0x8000u) << 16;
    memcpy(&result, &bits, sizeof result);
    return result;
}

DPB_EVERYWHERE uint16_t dpb_fp16_from_fp32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    if (bits >= 0x477ff000u) /* 65520: halfway to what would be the next number */
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u) { /* denormal: adding 2^-1 rounds to whole 2^-24 */
        float magnitude;
        memcpy(&magnitude, &bits, sizeof bits);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    bits += 0xfffu + (bits >> 13 & 1u);
    return (uint16_t)(sign | ((bits >> 13) - (112u << 10)));
}

/* Shape of one sample's activation: channels, height, width. Dense activations are {features, 1,
 * 1}. */
struct dpb_shape {
    uint32_t c, h, w;
};

static inline uint64_t dpb_shape_elements(struct dpb_shape shape)
{
    return (uint64_t)shape.c * shape.h * shape.w;
}

/* Elements [begin, end) of an arena. */
struct dpb_range {
    uint64_t begin, end;
};

#endif
