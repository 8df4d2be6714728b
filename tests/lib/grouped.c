/* grouped.c - see grouped.h. */
#include "lib/grouped.h"

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args image = {.channels = 24, .kernel_h = 5, .groups = 3, .bias = true};
    const struct dpb_conv_args depthwise = {
        .channels = 24, .kernel_h = 3, .stride = 2, .groups = 24};
    const struct dpb_conv_args halved = {.channels = 24,
                                         .kernel_h = 2,
                                         .kernel_w = 3,
                                         .stride = 2,
                                         .groups = 24,
                                         .padding = DPB_PAD_EXPLICIT,
                                         .after = 1};
    const struct dpb_conv_args narrow = {.channels = 32, .kernel_h = 3, .groups = 8};
    const struct dpb_conv_args wide = {.channels = 34, .kernel_h = 3, .groups = 2, .bias = true};
    const struct dpb_conv_args pointwise = {.channels = 51, .kernel_h = 1, .groups = 17};
    const struct dpb_batch_norm_args norm = {0};
    uint32_t x = g->relu(b, "relu1", g->conv(b, "conv1", g->input(b), &image));
    x = g->conv(b, "conv2", x, &depthwise);
    x = g->relu(b, "relu2", g->batch_norm(b, "norm2", x, &norm));
    uint32_t y = g->global_mean(b, "mean1", g->conv(b, "conv3", x, &halved));
    x = g->conv(b, "conv4", x, &narrow);
    x = g->relu(b, "relu4", g->batch_norm(b, "norm4", x, &norm));
    x = g->conv(b, "conv6", g->conv(b, "conv5", x, &wide), &pointwise);
    x = g->concat(b, "concat", (const uint32_t[]){g->global_mean(b, "mean2", x), y}, 2);
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

static void describe(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {3, 21, 18}, .nclass = 10, .batch = 5};
}

static const struct dpb_model_ops ops = {.describe = describe, .build = build};
const struct dpb_plugin grouped_model = {.name = "grouped", .ops = &ops};
