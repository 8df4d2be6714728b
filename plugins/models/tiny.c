/*
 * tiny.c - small networks for tests; no paper.
 *
 *   tiny        every op of graph.h in fewer than 2,000 parameters, odd sizes, odd padding
 *   tiny_dense  a plain perceptron: nothing in it depends on the batch or on chance
 *   tiny_bn     convolutions with batch-norm and dropout
 */
#include "model.h"

MODEL_INFO(describe, .input = {3, 9, 9}, .nclass = 5, .batch = 4, .any_channels = true)

static dpb_status build_tiny(const void *options, const struct dpb_graph_ops *g,
                             struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args conv1 = {.channels = 5, .kernel_h = 4, .bias = true};
    const struct dpb_conv_args conv2 = {.channels = 7, .kernel_h = 3, .stride = 2};
    const struct dpb_conv_args conv3 = {.channels = 3, .kernel_h = 3, .kernel_w = 1};
    const struct dpb_pool_args pool1 = {.kernel = 3, .stride = 2};
    const struct dpb_pool_args pool2 = {.kernel = 2};
    const struct dpb_batch_norm_args bn = {0};
    const struct dpb_batch_norm_args no_gamma = {.no_gamma = true};
    const struct dpb_lrn_args lrn = {.radius = 1, .k = 1.0, .alpha = 0.1, .beta = 0.75};

    uint32_t x = g->input(b);           /* 3 x 9 x 9 */
    x = g->conv(b, "conv1", x, &conv1); /* 5 x 9 x 9 */
    x = g->relu(b, "relu1", x);
    x = g->lrn(b, "lrn1", x, &lrn);
    x = g->max_pool(b, "pool1", x, &pool1);      /* 5 x 5 x 5 */
    uint32_t y = g->conv(b, "conv2", x, &conv2); /* 7 x 3 x 3 */
    y = g->batch_norm(b, "bn2", y, &bn);
    x = g->shortcut(b, "shortcut", x, 7, 2); /* 7 x 3 x 3 */
    x = g->add(b, "add", x, y);
    x = g->relu(b, "relu2", x);
    y = g->conv(b, "conv3", x, &conv3); /* 3 x 3 x 3 */
    y = g->batch_norm(b, "bn3", y, &no_gamma);
    x = g->mean_pool(b, "pool2", x, &pool2);                 /* 7 x 3 x 3, padded after */
    x = g->concat(b, "concat", (const uint32_t[]){x, y}, 2); /* 10 x 3 x 3 */
    x = g->dropout(b, "dropout", x, 0.25);
    x = g->dense(b, "fc1", x, 11, false);
    x = g->relu(b, "relu3", x);
    x = g->dense(b, "fc2", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

static dpb_status build_tiny_dense(const void *options, const struct dpb_graph_ops *g,
                                   struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    uint32_t x = g->input(b); /* 3 x 9 x 9 */
    x = g->dense(b, "fc1", x, 13, true);
    x = g->relu(b, "relu1", x);
    x = g->dense(b, "fc2", x, 7, true);
    x = g->relu(b, "relu2", x);
    x = g->dense(b, "fc3", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

static dpb_status build_tiny_bn(const void *options, const struct dpb_graph_ops *g,
                                struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args conv1 = {.channels = 5, .kernel_h = 3};
    const struct dpb_conv_args conv2 = {.channels = 9, .kernel_h = 3, .stride = 2};
    const struct dpb_batch_norm_args bn = {0};

    uint32_t x = g->input(b);           /* 3 x 9 x 9 */
    x = g->conv(b, "conv1", x, &conv1); /* 5 x 9 x 9 */
    x = g->batch_norm(b, "bn1", x, &bn);
    x = g->relu(b, "relu1", x);
    x = g->conv(b, "conv2", x, &conv2); /* 9 x 5 x 5 */
    x = g->batch_norm(b, "bn2", x, &bn);
    x = g->relu(b, "relu2", x);
    x = g->dropout(b, "dropout", x, 0.5);
    x = g->global_mean(b, "mean", x); /* 9 x 1 x 1 */
    x = g->dense(b, "fc", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

MODEL(tiny_bn, describe, build_tiny_bn,
      .summary = "for tests: 2 convolutions with batch-norm, dropout")

MODEL(tiny_dense, describe, build_tiny_dense, .summary = "for tests: 3 dense layers",
      .next = &tiny_bn)

MODEL(tiny, describe, build_tiny, .summary = "for tests: every op in fewer than 2,000 parameters",
      .next = &tiny_dense)

MODELS(tiny)
