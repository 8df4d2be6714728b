/*
 * lenet.c - LeNet-5 in the widened form of TensorFlow's MNIST tutorial.
 *
 * LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition. Proc.
 * IEEE 86(11), 1998.
 */
#include "model.h"

MODEL_INFO(describe, .input = {1, 28, 28}, .nclass = 10, .batch = 32, .any_channels = true)

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args conv1 = {.channels = 32, .kernel_h = 5, .bias = true};
    const struct dpb_conv_args conv2 = {.channels = 64, .kernel_h = 5, .bias = true};
    const struct dpb_pool_args halve = {.kernel = 2, .stride = 2, .padding = DPB_PAD_VALID};

    uint32_t x = g->input(b);           /* 1 x 28 x 28 */
    x = g->conv(b, "conv1", x, &conv1); /* 32 x 28 x 28 */
    x = g->relu(b, "relu1", x);
    x = g->max_pool(b, "pool1", x, &halve); /* 32 x 14 x 14 */
    x = g->conv(b, "conv2", x, &conv2);     /* 64 x 14 x 14 */
    x = g->relu(b, "relu2", x);
    x = g->max_pool(b, "pool2", x, &halve); /* 64 x 7 x 7 */
    x = g->dense(b, "fc1", x, 512, true);
    x = g->relu(b, "relu3", x);
    x = g->dense(b, "fc2", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

MODEL(lenet, describe, build, .summary = "LeNet-5 for 28x28 digits: 2 convolutions, 2 dense layers")

MODELS(lenet)
