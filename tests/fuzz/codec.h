/*
 * codec.h - a codec, linked into the target. Input: a byte; an option of [comm] ("": none); n - 1;
 * then, with an even byte, a message of n elements that a peer sent, else n gradients to encode.
 */
#ifndef DPB_TESTS_FUZZ_CODEC_H
#define DPB_TESTS_FUZZ_CODEC_H

#include "base/config.h"
#include "base/options.h"
#include "tests/fuzz/fuzz.h"

enum { CODEC_MOST = 4096, CODEC_RANK = 3 };

/* As long as `bytes`, and no byte more. */
static void *codec_memory(size_t bytes)
{
    void *memory = NULL;
    FUZZ_CHECK(posix_memalign(&memory, DPB_CACHE_LINE, bytes > 0 ? bytes : 1) == 0);
    memset(memory, 0, bytes);
    return memory;
}

/* A message is used, or refused by name. */
static dpb_status codec_decode(const struct dpb_codec_ops *ops, const void *options,
                               const struct dpb_codec_part *part, const void *message, size_t bytes)
{
    float *sum = codec_memory(part->n * sizeof *sum);
    const dpb_status status = ops->decode(options, part, message, bytes, sum);
    if (status == DPB_OK)
        fuzz_used();
    else
        FUZZ_CHECK(strstr(dpb_first_error(NULL), "rank 3 sent"));
    free(sum);
    return status;
}

/* What was encoded can be decoded, whatever the gradients. */
static void codec_encode(const struct dpb_codec_ops *ops, const void *options,
                         const struct dpb_codec_part *part, struct fuzz_input input)
{
    float *gradients = codec_memory(part->n * sizeof *gradients);
    float *residual = codec_memory(part->n * sizeof *residual);
    const uint64_t bound = ops->bound(options, part->n);
    void *message = codec_memory(bound);
    const size_t bytes = part->n * sizeof *gradients;
    memcpy(gradients, input.data, input.size < bytes ? input.size : bytes);
    const uint64_t encoded = ops->encode(options, part, gradients, residual, message);
    FUZZ_CHECK(encoded <= bound);
    FUZZ_CHECK(codec_decode(ops, options, part, message, encoded) == DPB_OK);
    free(message);
    free(residual);
    free(gradients);
}

static void codec_use(const uint8_t *data, size_t size)
{
    const struct dpb_plugin *plugin = dpb_plugin_entry(fuzz_host());
    struct fuzz_input input = {data, size};
    const bool encodes = fuzz_byte(&input) % 2;
    const struct fuzz_input option = fuzz_part(&input);
    const struct dpb_codec_part part = {
        .n = 1 + fuzz_word(&input) % CODEC_MOST, .seed = 1, .step = 2, .rank = CODEC_RANK};
    struct dpb_config *config = dpb_config_create();
    void *options = calloc(1, plugin->options_size);
    const struct dpb_option_table table = {"comm", NULL, plugin->options, options};
    char assignment[64];
    snprintf(assignment, sizeof assignment, "comm.%.*s", (int)option.size,
             (const char *)option.data);
    fuzz_begin();
    if ((option.size == 0 || dpb_config_assign(config, assignment, "fuzz") == DPB_OK) &&
        dpb_options_parse_known(&table, config) == DPB_OK) {
        const struct fuzz_input rest = fuzz_part(&input);
        void *message = codec_memory(rest.size);
        memcpy(message, rest.data, rest.size);
        if (encodes)
            codec_encode(plugin->ops, options, &part, rest);
        else
            codec_decode(plugin->ops, options, &part, message, rest.size);
        free(message);
    }
    free(options);
    dpb_config_destroy(config);
}

#endif
