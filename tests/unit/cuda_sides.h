/*
 * cuda_sides.h - a model whose blocks have batch-norms on both sides of an addition, in all ways
 * in which one kernel takes both.
 */
#ifndef DPB_TESTS_UNIT_CUDA_SIDES_H
#define DPB_TESTS_UNIT_CUDA_SIDES_H

#include "lib/session.h"

static uint32_t sides_conv(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                           const char *name, uint32_t x, uint32_t channels)
{
    return g->conv(b, name, x, &(struct dpb_conv_args){.channels = channels, .kernel_h = 1});
}

/* Packs of 16 bytes but for the first block, of which one side is the samples. */
static dpb_status build_sides(const void *unused, const struct dpb_graph_ops *g,
                              struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct dpb_batch_norm_args bn = {0}, plain = {.no_gamma = true};
    (void)unused;
    uint32_t x = g->input(b); /* 3 x 8 x 8 */
    uint32_t left = g->batch_norm(b, "bn1", x, &bn);
    uint32_t right = g->batch_norm(b, "bn2", sides_conv(g, b, "conv2", x, 3), &bn);
    x = g->relu(b, "relu1", g->add(b, "add1", left, right));
    left = g->batch_norm(b, "bn3", sides_conv(g, b, "conv3", x, 16), &plain);
    right = g->batch_norm(b, "bn4", sides_conv(g, b, "conv4", x, 16), &bn);
    x = g->relu(b, "relu2", g->add(b, "add2", left, right)); /* two layers read it */
    left = g->batch_norm(b, "bn5", sides_conv(g, b, "conv5", x, 16), &bn);
    x = g->relu(b, "relu3", g->add(b, "add3", x, left));
    g->softmax_loss(b, "loss", g->dense(b, "fc", g->global_mean(b, "mean", x), nclass, true));
    return DPB_OK;
}

static void describe_sides(const void *unused, struct dpb_model_info *info)
{
    (void)unused;
    *info = (struct dpb_model_info){.input = {3, 8, 8}, .nclass = 10, .batch = 4};
}

static const struct dpb_model_ops sides_ops = {.describe = describe_sides, .build = build_sides};
static const struct dpb_plugin sides_model = {.name = "sides", .ops = &sides_ops};
static const struct subject sides = {"sides", NULL, 0, 5, DPB_FP32, DPB_CHW, &sides_model};

#endif
