/* codec_upper_half.c - of each fp32 element the upper 16 bits: sign, exponent and 7 bits of the
 * fraction, as bf16 has them. The rest stays in the residual. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <dpbench/plugin.h>

static const struct dpb_host *host;

static const struct dpb_option option_rows[] = {DPB_CODEC_OPTION_ROWS, {.name = NULL}};

static float float_of(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return isnan(value) ? 0x7fc0 : (uint16_t)(bits >> 16);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static uint64_t bound(const void *options, uint64_t n)
{
    (void)options;
    return n * sizeof(uint16_t);
}

/* What the message lacks of gradient + residual is the new residual, to the last bit: then nothing
 * is lost, and the proof of the strategy that carries the codec passes. */
static uint64_t encode(const void *options, const struct dpb_codec_part *part,
                       const float *gradients, float *residual, void *message)
{
    uint16_t *halves = message;
    (void)options;
    for (uint64_t i = 0; i < part->n; i++) {
        float value = gradients[i] + residual[i];
        halves[i] = half_of(value);
        residual[i] = value - float_of(halves[i]);
    }
    return part->n * sizeof(uint16_t);
}

/* The message is another process's: its length is checked before a byte is read. A codec whose
 * messages have indices or counts checks these, too. */
static dpb_status decode(const void *options, const struct dpb_codec_part *part,
                         const void *message, uint64_t bytes, float *sum)
{
    const uint16_t *halves = message;
    (void)options;
    if (bytes != part->n * sizeof(uint16_t))
        return host->fail(DPB_FAILED, "codec upper_half: rank %u sent %llu bytes for %llu elements",
                          part->rank, (unsigned long long)bytes, (unsigned long long)part->n);
    for (uint64_t i = 0; i < part->n; i++)
        sum[i] += float_of(halves[i]);
    return DPB_OK;
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_codec_ops ops = {.bound = bound, .encode = encode, .decode = decode};

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(CODEC, ops),
    .name = "upper_half",
    .version = "1",
    .summary = "the upper 16 bits of each element",
    .options = option_rows,
    .options_size = sizeof(struct dpb_codec_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &plugin;
}
