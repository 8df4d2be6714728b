/*
 * fp8 - each element as an 8-bit floating-point number, times a scale for 1,024 elements: the
 * largest magnitude of the block / the format's largest.
 *
 *     e4m3  4 bits of exponent, 3 of mantissa: up to 448, normal from 2^-6; 0x7f is NaN
 *     e5m2  5 bits of exponent, 2 of mantissa: up to 57344, normal from 2^-14; 0x7c is infinite
 *
 * Rounding is to the nearest, of two equally near to the even one. The scale makes all elements of
 * a block at most the format's largest, so no element is encoded as infinite or NaN.
 *
 * Message: a scale (fp32) for each block, then n numbers: n + 4 ceil(n / 1024) bytes.
 *
 * Micikevicius et al.: FP8 formats for deep learning. arXiv:2209.05433, 2022.
 * Open Compute Project: 8-bit floating point specification (OFP8), revision 1.0, 2023.
 */
#include <stddef.h>

#include "codecs/scaled.h"

enum { BLOCK = 1024, FP32_MANTISSA = 23, FP32_BIAS = 127 };
#define FP32_SIGN 0x80000000u
#define FP32_EXPONENT 0x7f800000u

static const struct dpb_host *host;

struct format {
    uint32_t mantissa, bias;
    uint32_t special; /* the first magnitude that is not finite */
    float largest;
};

static const char *const names[] = {"e4m3", "e5m2", NULL};
static const struct format formats[] = {{3, 7, 0x7f, 448}, {2, 15, 0x7c, 57344}};

struct fp8_options {
    struct dpb_codec_options base;
    int format;
};

static const struct dpb_option option_rows[] = {
    DPB_CODEC_OPTION_ROWS,
    {"codec_format", DPB_OPT_CHOICE, NULL, "e4m3", 0, 0, names,
     offsetof(struct fp8_options, format),
     "e4m3: 3 bits of mantissa, a range of 2^18; e5m2: 2 bits, and a range of 2^32", NULL},
    {0}};

static const struct format *format_of(const void *options)
{
    return &formats[((const struct fp8_options *)options)->format];
}

static uint64_t fp8_bound(const void *options, uint64_t n)
{
    (void)options;
    return n + message_blocks(n, BLOCK) * sizeof(float);
}

/* ---- a block ------------------------------------------------------------------------------- */

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The bits of the least normal number, as fp32. */
static inline uint32_t least_normal(struct format format)
{
    return (FP32_BIAS + 1 - format.bias) << FP32_MANTISSA;
}

/* values -= their roundings, numbers of the format in units of `scale`. The last place of `large`
 * is that of the 8-bit number next to x. So their sum is rounded as the number is, and ends on the
 * number's mantissa, since the low bits of `large` are zeros. */
DPB_CLONES static void round_all(float *restrict values, uint8_t *restrict codes, uint64_t n,
                                 float scale, struct format format)
{
    const uint32_t least = least_normal(format), dropped = FP32_MANTISSA - format.mantissa;
    const float per_scale = 1.0F / scale;
    for (uint64_t i = 0; i < n; i++) {
        const float x = values[i] * per_scale;
        const uint32_t sign = bits_of(x) & FP32_SIGN, own = bits_of(x) & FP32_EXPONENT;
        const uint32_t exponent = own > least ? own : least;
        const float large = float_of(sign | (exponent + (dropped << FP32_MANTISSA)));
        const float sum = x + large;
        codes[i] = (uint8_t)(bits_of(sum) + ((exponent - least) >> dropped) + (sign >> 24));
        values[i] -= (sum - large) * scale;
    }
}

/* Magnitudes below the least normal number are read with this number added, which is then taken off
 * again. */
DPB_CLONES static void add_scaled(const uint8_t *restrict codes, float *restrict sum, uint64_t n,
                                  float scale, struct format format)
{
    const uint32_t least = least_normal(format), dropped = FP32_MANTISSA - format.mantissa;
    const uint32_t hidden = 1u << format.mantissa;
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t sign = (codes[i] & 0x80u) << 24, magnitude = codes[i] & 0x7fu;
        const uint32_t normal = magnitude < hidden ? 0 : hidden;
        const uint32_t above = magnitude < hidden ? least : 0;
        const uint32_t special = magnitude < format.special ? 0 : FP32_EXPONENT;
        const uint32_t bits = least + ((magnitude - normal) << dropped);
        sum[i] += (float_of(sign | bits | special) - float_of(sign | above)) * scale;
    }
}

/* ---- hooks --------------------------------------------------------------------------------- */

static uint64_t fp8_encode(const void *options, const struct dpb_codec_part *part,
                           const float *gradients, float *residual, void *message)
{
    const struct format *format = format_of(options);
    float *scales = message;
    uint8_t *codes = (uint8_t *)(scales + message_blocks(part->n, BLOCK));
    for (uint64_t at = 0; at < part->n; at += BLOCK) {
        const uint64_t n = part->n - at < BLOCK ? part->n - at : BLOCK;
        const float scale = scaled_begin(gradients + at, residual + at, n, format->largest);
        scales[at / BLOCK] = scale;
        if (scale > 0)
            round_all(residual + at, codes + at, n, scale, *format);
        else
            memset(codes + at, 0, n);
    }
    return fp8_bound(options, part->n);
}

static dpb_status fp8_decode(const void *options, const struct dpb_codec_part *part,
                             const void *message, uint64_t bytes, float *sum)
{
    const float *scales = message;
    const uint8_t *codes = (const uint8_t *)(scales + message_blocks(part->n, BLOCK));
    DPB_TRY(message_check_length(host, "fp8", part, bytes, fp8_bound(options, part->n)));
    for (uint64_t at = 0; at < part->n; at += BLOCK)
        add_scaled(codes + at, sum + at, part->n - at < BLOCK ? part->n - at : BLOCK,
                   scales[at / BLOCK], *format_of(options));
    return DPB_OK;
}

static const struct dpb_codec_ops fp8_ops = {
    .bound = fp8_bound, .encode = fp8_encode, .decode = fp8_decode};

static const struct dpb_plugin fp8 = {
    DPB_PLUGIN_HEAD(CODEC, fp8_ops),
    .name = "fp8",
    .version = DPB_VERSION,
    .summary = "8-bit floating-point numbers, a scale for 1,024 elements",
    .options = option_rows,
    .options_size = sizeof(struct fp8_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &fp8;
}
