/*
 * codec.h - a codec, linked into the target. Input: a byte; an option of [comm] ("": none); n - 1;
 * then, with an even byte, a message of n elements that a peer sent, else n gradients to encode.
 * Bit 1 of the byte is the round of the message. Its bytes are the state that the codec has, too.
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

static void codec_finish(const struct dpb_codec_ops *ops, const void *options,
                         const struct dpb_codec_part *part, const float *sum)
{
    float *gradients = codec_memory(part->n * sizeof *gradients);
    float *residual = codec_memory(part->n * sizeof *residual);
    ops->finish(options, part, sum, gradients, residual);
    free(residual);
    free(gradients);
}

/* A message is used, or refused by name. */
static dpb_status codec_decode(const struct dpb_codec_ops *ops, const void *options,
                               const struct dpb_codec_part *part, const void *message, size_t bytes)
{
    float *sum = codec_memory(ops->finish ? ops->bytes(options, part) : part->n * sizeof *sum);
    const dpb_status status = ops->decode(options, part, message, bytes, sum);
    if (status == DPB_OK)
        fuzz_used();
    else
        FUZZ_CHECK(strstr(dpb_first_error(NULL), "rank 3 sent"));
    if (status == DPB_OK && ops->finish)
        codec_finish(ops, options, part, sum);
    free(sum);
    return status;
}

/* What was encoded can be decoded, whatever the gradients. */
static void codec_encode(const struct dpb_codec_ops *ops, const void *options,
                         struct dpb_codec_part *part, struct fuzz_input input)
{
    float *gradients = codec_memory(part->n * sizeof *gradients);
    float *residual = codec_memory(part->n * sizeof *residual);
    const uint64_t bound = ops->bound(options, part->n);
    void *message = codec_memory(bound);
    const size_t bytes = part->n * sizeof *gradients;
    memcpy(gradients, input.data, input.size < bytes ? input.size : bytes);
    for (part->round = 0; part->round < (ops->finish ? DPB_CODEC_ROUNDS : 1); part->round++) {
        const uint64_t encoded = ops->encode(options, part, gradients, residual, message);
        FUZZ_CHECK(encoded <= bound);
        FUZZ_CHECK(codec_decode(ops, options, part, message, encoded) == DPB_OK);
    }
    free(message);
    free(residual);
    free(gradients);
}

/* The first begins before the part; the last may end behind it. */
static const struct dpb_tensor codec_tensors[] = {
    {.n_dims = 2, .dims = {40, 30}, .n_elements = 1200, .offset = 50},
    {.n_dims = 1, .dims = {60}, .n_elements = 60, .offset = 1260},
    {.n_dims = 2, .dims = {64, 64}, .n_elements = 4096, .offset = 1330}};

static void codec_take_tensors(const struct dpb_codec_ops *ops, const void *options,
                               struct dpb_codec_part *part, struct fuzz_input input)
{
    const struct dpb_tensor *tensor = codec_tensors;
    part->tensors = codec_tensors;
    for (; part->n_tensors < 3 && tensor->offset < part->first + part->n; tensor++)
        part->n_tensors++;
    if (!ops->finish)
        return;
    const size_t bytes = ops->state(options, part) * sizeof *part->state;
    part->state = codec_memory(bytes);
    memcpy(part->state, input.data, input.size < bytes ? input.size : bytes);
}

static void codec_use(const uint8_t *data, size_t size)
{
    const struct dpb_plugin *plugin = dpb_plugin_entry(fuzz_host());
    struct fuzz_input input = {data, size};
    const uint8_t what = fuzz_byte(&input);
    const struct fuzz_input option = fuzz_part(&input);
    struct dpb_codec_part part = {.first = 100,
                                  .n = 1 + fuzz_word(&input) % CODEC_MOST,
                                  .seed = 1,
                                  .step = 2,
                                  .rank = CODEC_RANK,
                                  .round = what >> 1 & 1,
                                  .n_workers = 1};
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
        codec_take_tensors(plugin->ops, options, &part, rest);
        if (what & 1)
            codec_encode(plugin->ops, options, &part, rest);
        else
            codec_decode(plugin->ops, options, &part, message, rest.size);
        free(part.state);
        free(message);
    }
    free(options);
    dpb_config_destroy(config);
}

#endif
