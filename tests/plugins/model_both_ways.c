/* both_ways - a network of ids whose positions see those before and behind them, as BERT's do. */
#include "dpbench/plugin.h"

static void describe(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {1, 1, 8}, .nclass = 256, .batch = 8, .ids = true};
}

static dpb_status build(const void *options, const struct dpb_graph_ops *graph,
                        struct dpb_graph_builder *builder, uint32_t nclass)
{
    const struct dpb_conv_args qkv = {.channels = 12, .kernel_h = 1};
    const struct dpb_conv_args classes = {.channels = nclass, .kernel_h = 1};
    uint32_t x = graph->embedding(builder, "tokens", graph->input(builder), 4);
    (void)options;
    x = graph->conv(builder, "qkv", x, &qkv);
    x = graph->attention(builder, "attention", x, &(struct dpb_attention_args){.heads = 1});
    graph->softmax_loss(builder, "loss", graph->conv(builder, "head", x, &classes));
    return DPB_OK;
}

static const struct dpb_model_ops ops = {.describe = describe, .build = build};

static const struct dpb_plugin both_ways = {DPB_PLUGIN_HEAD(MODEL, ops), .name = "both_ways",
                                            .version = "1", .summary = "attention without a mask"};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    return &both_ways;
}
