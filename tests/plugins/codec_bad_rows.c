/* codec_bad_rows.c - a codec whose struct begins as it should, but not its table. */
#include "dpbench/plugin.h"

static uint64_t no_bytes(const void *options, uint64_t n)
{
    (void)options;
    return 0 * n;
}

static uint64_t encode(const void *options, const struct dpb_codec_part *part,
                       const float *gradients, float *residual, void *message)
{
    (void)part, (void)gradients, (void)residual, (void)message;
    return no_bytes(options, 0);
}

static dpb_status decode(const void *options, const struct dpb_codec_part *part,
                         const void *message, uint64_t bytes, float *sum)
{
    (void)options, (void)part, (void)message, (void)bytes, (void)sum;
    return DPB_OK;
}

static const struct dpb_codec_ops ops = {.bound = no_bytes, .encode = encode, .decode = decode};

static const struct dpb_option rows[] = {DPB_CODEC_FEEDBACK_ROW, {.name = NULL}};

static const struct dpb_plugin plugin = {DPB_PLUGIN_HEAD(CODEC, ops),
                                         .name = "bad_rows",
                                         .version = "1",
                                         .summary = "a test's",
                                         .options = rows,
                                         .options_size = sizeof(struct dpb_codec_options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    return &plugin;
}
