/*
 * threshold - elements at or beyond +-t as +-t, all others as 0: two bits an element.
 *
 * An element sends at most one t a step, whatever its size; the rest stays in the residual. An
 * element that is not finite sends NaN. With t = 0 the message is the elements themselves, in fp32.
 *
 * Message: codes of blocks of 256 elements, 4 in a byte, lowest bits first: 0, +t, -t, NaN. Byte j
 * of a block of q bytes has elements j, q + j, 2q + j and 3q + j: ceil(n / 4) bytes in all.
 *
 * Strom: Scalable distributed DNN training using commodity GPU cloud computing. Interspeech 2015,
 * which sends indices of the elements sent. The two bits are those of MXNet's 2-bit compression.
 */
#include <stddef.h>
#include <string.h>

#include "codecs/message.h"

enum { BLOCK = 256, BITS = 2, PER_BYTE = 4 };
enum { PLUS = 1, MINUS, NOT_FINITE }; /* codes; 0: nothing */

static const struct dpb_host *host;

struct threshold_options {
    struct dpb_codec_options base;
    double threshold;
};

static const struct dpb_option option_rows[] = {
    DPB_CODEC_OPTION_ROWS,
    {"codec_threshold", DPB_OPT_REAL, NULL, "0.001", 0, 1e9, NULL,
     offsetof(struct threshold_options, threshold),
     "elements at or beyond +-this are sent as +-this; 0: all, as they are", NULL},
    {0}};

static float threshold_of(const void *options)
{
    return (float)((const struct threshold_options *)options)->threshold;
}

static uint64_t bytes_of(uint64_t n)
{
    return (n + PER_BYTE - 1) / PER_BYTE;
}

static uint64_t threshold_bound(const void *options, uint64_t n)
{
    return threshold_of(options) > 0 ? bytes_of(n) : n * sizeof(float);
}

/* ---- a block of up to 256 elements --------------------------------------------------------- */

static inline __attribute__((always_inline)) void encode_block(const float *restrict gradients,
                                                               float *restrict residual,
                                                               uint8_t *restrict bytes, uint64_t n,
                                                               float t)
{
    uint8_t codes[BLOCK] = {0};
    uint32_t limit;
    memcpy(&limit, &t, sizeof limit);
    for (uint64_t i = 0; i < n; i++) {
        const float value = residual[i] + gradients[i];
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        /* Magnitudes rise with these bits; values that are not finite are above all others. */
        const uint32_t magnitude = bits & 0x7fffffffu, is_sent = magnitude >= limit;
        const uint32_t sent_bits = (0 - is_sent) & (limit | (bits & 0x80000000u));
        float sent;
        memcpy(&sent, &sent_bits, sizeof sent);
        residual[i] = value - sent;
        codes[i] =
            (uint8_t)(is_sent * (1 + (bits >> 31)) | (magnitude >= 0x7f800000u) * NOT_FINITE);
    }
    message_pack(codes, bytes, bytes_of(n), BITS);
}

static inline __attribute__((always_inline)) void
decode_block(const uint8_t *restrict bytes, float *restrict sum, uint64_t n, float t)
{
    uint8_t codes[BLOCK];
    uint32_t limit;
    memcpy(&limit, &t, sizeof limit);
    message_unpack(bytes, codes, bytes_of(n), BITS);
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t code = codes[i], sign = code >> 1 << 31;
        const uint32_t bits = ((0 - (uint32_t)(code != 0)) & (limit | sign)) |
                              ((0 - (uint32_t)(code == NOT_FINITE)) & 0x7fc00000u);
        float sent;
        memcpy(&sent, &bits, sizeof sent);
        sum[i] += sent;
    }
}

/* The last block may be shorter. */
DPB_CLONES static void encode_all(const float *restrict gradients, float *restrict residual,
                                  uint8_t *restrict bytes, uint64_t n, float t)
{
    uint64_t at = 0;
    for (; at + BLOCK <= n; at += BLOCK)
        encode_block(gradients + at, residual + at, bytes + bytes_of(at), BLOCK, t);
    encode_block(gradients + at, residual + at, bytes + bytes_of(at), n - at, t);
}

DPB_CLONES static void decode_all(const uint8_t *restrict bytes, float *restrict sum, uint64_t n,
                                  float t)
{
    uint64_t at = 0;
    for (; at + BLOCK <= n; at += BLOCK)
        decode_block(bytes + bytes_of(at), sum + at, BLOCK, t);
    decode_block(bytes + bytes_of(at), sum + at, n - at, t);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static uint64_t threshold_encode(const void *options, const struct dpb_codec_part *part,
                                 const float *gradients, float *residual, void *message)
{
    const float t = threshold_of(options);
    float *values = message;
    if (t > 0)
        encode_all(gradients, residual, message, part->n, t);
    for (uint64_t i = 0; i < part->n && !(t > 0); i++) {
        values[i] = residual[i] + gradients[i];
        residual[i] = 0.0F;
    }
    return threshold_bound(options, part->n);
}

static dpb_status threshold_decode(const void *options, const struct dpb_codec_part *part,
                                   const void *message, uint64_t bytes, float *sum)
{
    const float t = threshold_of(options);
    const float *values = message;
    DPB_TRY(
        message_check_length(host, "threshold", part, bytes, threshold_bound(options, part->n)));
    if (t > 0)
        decode_all(message, sum, part->n, t);
    for (uint64_t i = 0; i < part->n && !(t > 0); i++)
        sum[i] += values[i];
    return DPB_OK;
}

static const struct dpb_codec_ops threshold_ops = {
    .bound = threshold_bound, .encode = threshold_encode, .decode = threshold_decode};

static const struct dpb_plugin threshold = {
    DPB_PLUGIN_HEAD(CODEC, threshold_ops),
    .name = "threshold",
    .version = DPB_VERSION,
    .summary = "elements beyond +-t as +-t, in two bits each",
    .options = option_rows,
    .options_size = sizeof(struct threshold_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &threshold;
}
