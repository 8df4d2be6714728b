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
#include <stddef.h>

#include "codecs/int8.h"
#include "codecs/scaled.h"

enum { BLOCK = INT8_BLOCK };

static const struct dpb_host *host;

static const char *const roundings[] = {"nearest", "stochastic", NULL};

static const struct dpb_option option_rows[] = {
    DPB_CODEC_OPTION_ROWS,
    {"codec_rounding", DPB_OPT_CHOICE, NULL, "nearest", 0, 0, roundings,
     offsetof(struct int8_options, rounding), "to the nearest integer, or stochastic and unbiased",
     NULL},
    {0}};

static uint64_t int8_bound(const void *options, uint64_t n)
{
    (void)options;
    return int8_bytes(n);
}

/* ---- a block ------------------------------------------------------------------------------- */

/* values -= their roundings, integers in units of `scale`. */
static inline __attribute__((always_inline)) void round_all(float *restrict values,
                                                            int8_t *restrict integers, uint64_t n,
                                                            float scale, bool stochastic,
                                                            uint32_t key)
{
    const float per_scale = 1.0F / scale;
    for (uint64_t i = 0; i < n; i++) {
        const float x = values[i] * per_scale;
        const int32_t integer = int8_round(stochastic ? x + scaled_fraction(key, (uint32_t)i) : x);
        integers[i] = (int8_t)integer;
        values[i] -= (float)integer * scale;
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

static uint64_t int8_encode(const void *options, const struct dpb_codec_part *part,
                            const float *gradients, float *residual, void *message)
{
    const bool stochastic = ((const struct int8_options *)options)->rounding == INT8_STOCHASTIC;
    float *scales = message;
    int8_t *integers = (int8_t *)(scales + int8_scales(part->n));
    const uint32_t key = scaled_key(part);
    for (uint64_t at = 0; at < part->n; at += BLOCK) {
        const uint64_t n = part->n - at < BLOCK ? part->n - at : BLOCK;
        const float scale = scaled_begin(gradients + at, residual + at, n, INT8_LARGEST);
        scales[at / BLOCK] = scale;
        if (!(scale > 0)) {
            memset(integers + at, 0, n);
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
    const int8_t *integers = (const int8_t *)(scales + int8_scales(part->n));
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
