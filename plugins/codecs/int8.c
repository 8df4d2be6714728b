/*
 * int8 - each element as an 8-bit integer, times a scale for 1,024 elements: the largest magnitude
 * of the block / 127.
 *
 * Rounding is to the nearest, or stochastic and unbiased: up with the probability of the fraction,
 * by random numbers of seed, rank, step and element.
 *
 * Message: a scale (fp32) for each block, then n integers: n + 4 ceil(n / 1024) bytes.
 *
 * Dettmers: 8-bit approximations for parallelism in deep learning. ICLR 2016.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "codecs/message.h"
#include "dpbench/random.h"

enum { BLOCK = 1024, LARGEST = 127 };

static const struct dpb_host *host;

enum { NEAREST, STOCHASTIC };
static const char *const roundings[] = {"nearest", "stochastic", NULL};

struct int8_options {
    struct dpb_codec_options base;
    int rounding;
};

static const struct dpb_option option_rows[] = {
    DPB_CODEC_OPTION_ROWS,
    {"codec_rounding", DPB_OPT_CHOICE, NULL, "nearest", 0, 0, roundings,
     offsetof(struct int8_options, rounding), "to the nearest integer, or stochastic and unbiased"},
    {0}};

static uint64_t int8_bound(const void *options, uint64_t n)
{
    (void)options;
    return n + (n + BLOCK - 1) / BLOCK * sizeof(float);
}

/* ---- a block ------------------------------------------------------------------------------- */

/* values += more; returns the largest magnitude, by its bits: NaN is larger than all numbers. */
DPB_CLONES static float add(const float *restrict more, float *restrict values, uint64_t n)
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

/* Adding and taking off this number rounds a small float to an integer, as its low bits. */
#define ROUNDER 12582912.0F /* 1.5 x 2^23 */

/* Between -1/2 and 1/2, both excluded. */
static inline float fraction(uint32_t key, uint32_t i)
{
    uint32_t x = key + i * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return ((float)(int32_t)(x >> 16) + 0.5F) * 0x1p-16F - 0.5F;
}

/* values -= what they are rounded to, in units of `scale`. */
static inline __attribute__((always_inline)) void round_all(float *restrict values,
                                                            int8_t *restrict integers, uint64_t n,
                                                            float scale, bool stochastic,
                                                            uint32_t key)
{
    const float per_scale = 1.0F / scale;
    for (uint64_t i = 0; i < n; i++) {
        float x = values[i] * per_scale;
        int32_t bits;
        x = x < LARGEST ? x : LARGEST;
        x = x > -LARGEST ? x : -LARGEST;
        const float rounded = (stochastic ? x + fraction(key, (uint32_t)i) : x) + ROUNDER;
        memcpy(&bits, &rounded, sizeof bits);
        integers[i] = (int8_t)bits;
        values[i] -= (rounded - ROUNDER) * scale;
    }
}

DPB_CLONES static void round_nearest(float *restrict values, int8_t *restrict integers, uint64_t n,
                                     float scale)
{
    round_all(values, integers, n, scale, false, 0);
}

DPB_CLONES static void round_stochastic(float *restrict values, int8_t *restrict integers,
                                        uint64_t n, float scale, uint32_t key)
{
    round_all(values, integers, n, scale, true, key);
}

DPB_CLONES static void add_scaled(const int8_t *restrict integers, float scale, float *restrict sum,
                                  uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += (float)integers[i] * scale;
}

/* ---- hooks --------------------------------------------------------------------------------- */

/* 0: the block is too small for a scale and stays in the residual. NaN: it is not finite. */
static float scale_of(float largest)
{
    if (!isfinite(largest))
        return NAN;
    return largest < LARGEST * FLT_MIN ? 0.0F : largest / LARGEST;
}

static uint64_t int8_encode(const void *options, const struct dpb_codec_part *part,
                            const float *gradients, float *residual, void *message)
{
    const bool stochastic = ((const struct int8_options *)options)->rounding == STOCHASTIC;
    float *scales = message;
    int8_t *integers = (int8_t *)(scales + (part->n + BLOCK - 1) / BLOCK);
    const uint32_t key = dpb_random(part->seed, DPB_STREAM_CODEC, part->rank, (uint32_t)part->step,
                                    (uint32_t)(part->step >> 32), (uint32_t)part->first)
                             .v[0];
    for (uint64_t at = 0; at < part->n; at += BLOCK) {
        const uint64_t n = part->n - at < BLOCK ? part->n - at : BLOCK;
        const float scale = scale_of(add(gradients + at, residual + at, n));
        scales[at / BLOCK] = scale;
        if (!(scale > 0)) {
            memset(integers + at, 0, n);
            for (uint64_t i = 0; i < n && isnan(scale); i++)
                residual[at + i] = NAN;
        } else if (stochastic) {
            round_stochastic(residual + at, integers + at, n, scale, key + (uint32_t)at);
        } else {
            round_nearest(residual + at, integers + at, n, scale);
        }
    }
    return int8_bound(options, part->n);
}

static dpb_status int8_decode(const void *options, const struct dpb_codec_part *part,
                              const void *message, uint64_t bytes, float *sum)
{
    const float *scales = message;
    const int8_t *integers = (const int8_t *)(scales + (part->n + BLOCK - 1) / BLOCK);
    DPB_TRY(message_check_length(host, "int8", part, bytes, int8_bound(options, part->n)));
    for (uint64_t at = 0; at < part->n; at += BLOCK)
        add_scaled(integers + at, scales[at / BLOCK], sum + at,
                   part->n - at < BLOCK ? part->n - at : BLOCK);
    return DPB_OK;
}

static const struct dpb_codec_ops int8_ops = {
    .bound = int8_bound, .encode = int8_encode, .decode = int8_decode};

static const struct dpb_plugin int8 = {
    DPB_PLUGIN_HEAD(CODEC, int8_ops), .name = "int8",
    .version = DPB_VERSION,           .summary = "8-bit integers, a scale for 1,024 elements",
    .options = option_rows,           .options_size = sizeof(struct int8_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &int8;
}
