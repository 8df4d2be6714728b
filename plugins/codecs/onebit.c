/*
 * onebit - sends each element's sign, and for each block of 1,024 elements the mean of its negative
 * elements and the mean of its others.
 *
 * Seide takes these means over the columns of a weight matrix. A codec sees the elements of a
 * bucket, which knows no tensors; a block is about as long as a column of Seide's networks.
 *
 * An element decodes to the mean of its sign. A block that is not finite, or whose sums are not,
 * decodes to NaN.
 *
 * Message: two means (fp32) for each block, then its signs, 8 in a byte, lowest bit first, 1 of a
 * negative element. Byte j of a block of q bytes has elements j, q + j, ..., 7q + j: ceil(n / 8) +
 * 8 ceil(n / 1024) bytes in all.
 *
 * Seide, Fu, Droppo, Li, Yu: 1-bit stochastic gradient descent and its application to
 * data-parallel distributed training of speech DNNs. Interspeech 2014.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "codecs/message.h"

enum { BLOCK = 1024, PER_BYTE = 8, LANES = 32 };

static const struct dpb_host *host;

static const struct dpb_option option_rows[] = {DPB_CODEC_OPTION_ROWS, {0}};

struct means {
    float positive, negative;
};

static uint64_t bytes_of(uint64_t n)
{
    return (n + PER_BYTE - 1) / PER_BYTE;
}

static uint64_t onebit_bound(const void *options, uint64_t n)
{
    (void)options;
    return message_blocks(n, BLOCK) * sizeof(struct means) + bytes_of(n);
}

/* ---- a block of up to 1,024 elements ------------------------------------------------------- */

/* Adds a value to one of the sums, and 0 to the other. By bits: a choice is not vectorised. */
static inline __attribute__((always_inline)) void add_by_sign(float value, float *positive,
                                                              float *negative)
{
    uint32_t bits;
    float low;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0 - (bits >> 31);
    memcpy(&low, &bits, sizeof low);
    *positive += value - low;
    *negative += low;
}

/* residual += gradients; returns the means of the two signs. Lane l sums elements l, l + LANES,
 * ...: the order of the sums does not depend on the instruction set. */
static inline __attribute__((always_inline)) struct means
add(const float *restrict gradients, float *restrict residual, uint8_t *restrict codes, uint64_t n)
{
    float sums[LANES] = {0}, negatives[LANES] = {0};
    float positive = 0, negative = 0;
    uint32_t n_negative = 0;
    for (uint64_t i = 0; i < n; i++) {
        residual[i] += gradients[i];
        codes[i] = residual[i] < 0;
    }
    for (uint64_t i = 0; i < n; i++)
        n_negative += codes[i];
    for (uint64_t at = 0; at < n / LANES * LANES; at += LANES)
        for (uint64_t l = 0; l < LANES; l++)
            add_by_sign(residual[at + l], &sums[l], &negatives[l]);
    for (uint64_t i = n / LANES * LANES; i < n; i++)
        add_by_sign(residual[i], &sums[0], &negatives[0]);
    for (uint64_t l = 0; l < LANES; l++) {
        positive += sums[l];
        negative += negatives[l];
    }
    if (!isfinite(positive) || !isfinite(negative))
        return (struct means){NAN, NAN};
    return (struct means){n_negative < n ? positive / (float)(n - n_negative) : 0.0F,
                          n_negative > 0 ? negative / (float)n_negative : 0.0F};
}

static inline __attribute__((always_inline)) struct means
encode_block(const float *restrict gradients, float *restrict residual, uint8_t *restrict bytes,
             uint64_t n)
{
    uint8_t codes[BLOCK] = {0};
    const struct means means = add(gradients, residual, codes, n);
    for (uint64_t i = 0; i < n; i++)
        residual[i] -= residual[i] < 0 ? means.negative : means.positive;
    message_pack(codes, bytes, bytes_of(n), 1);
    return means;
}

static inline __attribute__((always_inline)) void
decode_block(const uint8_t *restrict bytes, float *restrict sum, uint64_t n, struct means means)
{
    uint8_t codes[BLOCK];
    message_unpack(bytes, codes, bytes_of(n), 1);
    for (uint64_t i = 0; i < n; i++)
        sum[i] += codes[i] ? means.negative : means.positive;
}

/* The last block may be shorter. */
DPB_CLONES static void encode_all(const float *restrict gradients, float *restrict residual,
                                  struct means *restrict means, uint8_t *restrict bytes, uint64_t n)
{
    uint64_t at = 0;
    for (; at + BLOCK <= n; at += BLOCK)
        means[at / BLOCK] =
            encode_block(gradients + at, residual + at, bytes + bytes_of(at), BLOCK);
    if (at < n)
        means[at / BLOCK] =
            encode_block(gradients + at, residual + at, bytes + bytes_of(at), n - at);
}

DPB_CLONES static void decode_all(const struct means *restrict means, const uint8_t *restrict bytes,
                                  float *restrict sum, uint64_t n)
{
    uint64_t at = 0;
    for (; at + BLOCK <= n; at += BLOCK)
        decode_block(bytes + bytes_of(at), sum + at, BLOCK, means[at / BLOCK]);
    if (at < n)
        decode_block(bytes + bytes_of(at), sum + at, n - at, means[at / BLOCK]);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static uint64_t onebit_encode(const void *options, const struct dpb_codec_part *part,
                              const float *gradients, float *residual, void *message)
{
    struct means *means = message;
    encode_all(gradients, residual, means, (uint8_t *)(means + message_blocks(part->n, BLOCK)),
               part->n);
    return onebit_bound(options, part->n);
}

static dpb_status onebit_decode(const void *options, const struct dpb_codec_part *part,
                                const void *message, uint64_t bytes, float *sum)
{
    const struct means *means = message;
    DPB_TRY(message_check_length(host, "onebit", part, bytes, onebit_bound(options, part->n)));
    decode_all(means, (const uint8_t *)(means + message_blocks(part->n, BLOCK)), sum, part->n);
    return DPB_OK;
}

static const struct dpb_codec_ops onebit_ops = {
    .bound = onebit_bound, .encode = onebit_encode, .decode = onebit_decode};

static const struct dpb_plugin onebit = {
    DPB_PLUGIN_HEAD(CODEC, onebit_ops),
    .name = "onebit",
    .version = DPB_VERSION,
    .summary = "signs, and the means of both signs for 1,024 elements",
    .options = option_rows,
    .options_size = sizeof(struct dpb_codec_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &onebit;
}
