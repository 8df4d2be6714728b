/* coded_parts.c - see coded.h: a codec's answers about the buckets of a layout. */
#include "lib/coded/coded.h"

#include <string.h>

uint32_t coded_rounds(const struct dpb_codec *codec)
{
    return codec->ops->finish ? DPB_CODEC_ROUNDS : 1;
}

bool coded_has_velocity(const struct dpb_codec *codec)
{
    return codec->ops->velocity && codec->ops->velocity(codec->options);
}

struct dpb_codec_part coded_part(const struct dpb_layout *layout, uint64_t bucket_elements,
                                 uint64_t bucket)
{
    struct dpb_codec_part part = {.first = bucket * bucket_elements,
                                  .n = strategy_bucket_length(layout, bucket_elements, bucket)};
    const struct dpb_tensor *tensor = layout->tensors, *end = tensor + layout->n_tensors;
    while (tensor < end && tensor->offset + tensor->n_elements <= part.first)
        tensor++;
    for (part.tensors = tensor; tensor < end && tensor->offset < part.first + part.n; tensor++)
        part.n_tensors++;
    return part;
}

/* The bytes of the longest message of a round. */
static uint64_t bound_of(const struct dpb_codec *codec, const struct dpb_layout *layout,
                         uint64_t bucket_elements, uint32_t round)
{
    uint64_t longest = 0;
    if (!codec->ops->finish)
        return codec->ops->bound(codec->options, strategy_longest_bucket(layout, bucket_elements));
    for (uint64_t b = 0; b < strategy_count_buckets(layout, bucket_elements); b++) {
        struct dpb_codec_part part = coded_part(layout, bucket_elements, b);
        part.round = round;
        const uint64_t bytes = codec->ops->bytes(codec->options, &part);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

uint64_t coded_slot_bytes(const struct dpb_codec *codec, const struct dpb_layout *layout,
                          uint64_t bucket_elements, uint32_t round)
{
    const bool plain = codec->options->start_step > 0 && round + 1 == coded_rounds(codec);
    const uint64_t bound = bound_of(codec, layout, bucket_elements, round);
    const uint64_t whole = strategy_longest_bucket(layout, bucket_elements) * sizeof(float);
    return sizeof(struct coded_message) + strategy_lines(plain && whole > bound ? whole : bound);
}

uint64_t coded_longest_slot_bytes(const struct dpb_codec *codec, const struct dpb_layout *layout,
                                  uint64_t bucket_elements)
{
    uint64_t longest = 0;
    for (uint32_t round = 0; round < coded_rounds(codec); round++) {
        const uint64_t bytes = coded_slot_bytes(codec, layout, bucket_elements, round);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

uint64_t coded_count_state(const struct dpb_codec *codec, const struct dpb_layout *layout,
                           uint64_t bucket_elements, uint64_t *at)
{
    const uint64_t n_buckets = strategy_count_buckets(layout, bucket_elements);
    uint64_t n = 0;
    for (uint64_t b = 0; b < n_buckets; b++) {
        const struct dpb_codec_part part = coded_part(layout, bucket_elements, b);
        if (at)
            at[b] = n;
        n += codec->ops->state(codec->options, &part);
    }
    if (at)
        at[n_buckets] = n;
    return n;
}

struct dpb_saved_array coded_saved_share(struct coded_share *share)
{
    return (struct dpb_saved_array){"share", DPB_FP64, false, sizeof *share / sizeof(double),
                                    share};
}

dpb_status coded_check_share(const struct dpb_host *host, struct coded_share own,
                             struct coded_share loaded)
{
    if (own.bucket_elements == loaded.bucket_elements && own.first == loaded.first &&
        own.every == loaded.every)
        return DPB_OK;
    return host->fail(DPB_USAGE,
                      "the checkpoint's residuals are of other buckets than this rank's: "
                      "continue with the comm.bucket, machines and servers that it was "
                      "saved with, or without its state by checkpoint.resume=no");
}
