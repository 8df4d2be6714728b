/*
 * qsgd - each element as one of 2s + 1 levels, of a block of 512 elements whose largest magnitude
 * is level s. An element between two levels takes the upper one with the probability of its
 * fraction, by random numbers of seed, rank, step and element: the message is unbiased.
 *
 * The paper scales by the 2-norm in its analysis, and by the largest magnitude in its experiments,
 * as here. It codes levels by their frequency; here all have 4 bits, or 8 where s is above 7.
 * s = 1 is left out: the residual of an element then has no bound but that of the residual before.
 *
 * Message: a scale (fp32) for each block, then the levels, each plus s (message.h): n / 2 or n
 * bytes, and 4 ceil(n / 512).
 *
 * Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD: Communication-efficient SGD via gradient
 * quantization and encoding. NIPS 2017.
 */
#include <stddef.h>

#include "codecs/scaled.h"

enum { BLOCK = 512, LEVELS_OF_4_BITS = 7 };

static const struct dpb_host *host;

struct qsgd_options {
    struct dpb_codec_options base;
    int64_t levels;
};

static const struct dpb_option option_rows[] = {
    DPB_CODEC_OPTION_ROWS,
    {"codec_levels", DPB_OPT_INT, NULL, "7", 2, 127, NULL, offsetof(struct qsgd_options, levels),
     "s: levels of each sign, in 4 bits up to 7, else in 8", NULL},
    {0}};

static int32_t levels_of(const void *options)
{
    return (int32_t)((const struct qsgd_options *)options)->levels;
}

static uint64_t bytes_of(int32_t levels, uint64_t n)
{
    return levels > LEVELS_OF_4_BITS ? n : (n + 1) / 2;
}

static uint64_t qsgd_bound(const void *options, uint64_t n)
{
    return message_blocks(n, BLOCK) * sizeof(float) + bytes_of(levels_of(options), n);
}

/* ---- a block ------------------------------------------------------------------------------- */

/* residual -= its roundings, levels in units of `scale`; a code: the level, plus `levels`. */
DPB_CLONES static void round_all(float *restrict residual, uint8_t *restrict codes, uint64_t n,
                                 float scale, int32_t levels, uint32_t key)
{
    const float per_scale = 1.0F / scale;
    for (uint64_t i = 0; i < n; i++) {
        const float u = 0.5F + scaled_fraction(key, (uint32_t)i);
        const int32_t up = (int32_t)(fabsf(residual[i]) * per_scale + u);
        const int32_t magnitude = up < levels ? up : levels;
        const int32_t level = residual[i] < 0 ? -magnitude : magnitude;
        codes[i] = (uint8_t)(level + levels);
        residual[i] -= (float)level * scale;
    }
}

/* Returns the largest of the codes. */
DPB_CLONES static uint8_t add_scaled(const uint8_t *restrict codes, float *restrict sum, uint64_t n,
                                     float scale, int32_t levels)
{
    uint8_t largest = 0;
    for (uint64_t i = 0; i < n; i++) {
        largest = codes[i] > largest ? codes[i] : largest;
        sum[i] += (float)(codes[i] - levels) * scale;
    }
    return largest;
}

static void pack(const uint8_t *codes, uint8_t *bytes, uint64_t n, int32_t levels)
{
    if (levels > LEVELS_OF_4_BITS)
        memcpy(bytes, codes, n);
    else
        message_pack(codes, bytes, bytes_of(levels, n), 4);
}

static void unpack(const uint8_t *bytes, uint8_t *codes, uint64_t n, int32_t levels)
{
    if (levels > LEVELS_OF_4_BITS)
        memcpy(codes, bytes, n);
    else
        message_unpack(bytes, codes, bytes_of(levels, n), 4);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static uint64_t qsgd_encode(const void *options, const struct dpb_codec_part *part,
                            const float *gradients, float *residual, void *message)
{
    const int32_t levels = levels_of(options);
    float *scales = message;
    uint8_t *bytes = (uint8_t *)(scales + message_blocks(part->n, BLOCK));
    const uint32_t key = scaled_key(part);
    for (uint64_t at = 0; at < part->n; at += BLOCK) {
        const uint64_t n = part->n - at < BLOCK ? part->n - at : BLOCK;
        const float scale = scaled_begin(gradients + at, residual + at, n, (float)levels);
        uint8_t codes[BLOCK];
        scales[at / BLOCK] = scale;
        memset(codes, levels, sizeof codes);
        if (scale > 0)
            round_all(residual + at, codes, n, scale, levels, key + (uint32_t)at);
        pack(codes, bytes + bytes_of(levels, at), n, levels);
    }
    return qsgd_bound(options, part->n);
}

static dpb_status qsgd_decode(const void *options, const struct dpb_codec_part *part,
                              const void *message, uint64_t bytes, float *sum)
{
    const int32_t levels = levels_of(options);
    const float *scales = message;
    const uint8_t *packed = (const uint8_t *)(scales + message_blocks(part->n, BLOCK));
    DPB_TRY(message_check_length(host, "qsgd", part, bytes, qsgd_bound(options, part->n)));
    for (uint64_t at = 0; at < part->n; at += BLOCK) {
        const uint64_t n = part->n - at < BLOCK ? part->n - at : BLOCK;
        uint8_t codes[BLOCK];
        unpack(packed + bytes_of(levels, at), codes, n, levels);
        const int32_t code = add_scaled(codes, sum + at, n, scales[at / BLOCK], levels);
        if (code > 2 * levels)
            return host->fail(DPB_FAILED,
                              "codec qsgd: rank %u sent level %d between elements %llu and %llu, "
                              "and comm.codec_levels = %d",
                              part->rank, code - levels, (unsigned long long)at,
                              (unsigned long long)at + n, levels);
    }
    return DPB_OK;
}

static const struct dpb_codec_ops qsgd_ops = {
    .bound = qsgd_bound, .encode = qsgd_encode, .decode = qsgd_decode};

static const struct dpb_plugin qsgd = {
    DPB_PLUGIN_HEAD(CODEC, qsgd_ops),
    .name = "qsgd",
    .version = DPB_VERSION,
    .summary = "2s + 1 levels, stochastic and unbiased, a scale for 512 elements",
    .options = option_rows,
    .options_size = sizeof(struct qsgd_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &qsgd;
}
