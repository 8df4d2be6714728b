/*
 * mobilenet_v1.c - MobileNet (v1) for ImageNet, of full width: each 3x3 convolution is depthwise, a
 * group a channel, and a 1x1 convolution follows that mixes the channels.
 *
 * Howard, Zhu, Chen, Kalenichenko, Wang, Weyand, Andreetto, Adam: MobileNets: efficient
 * convolutional neural networks for mobile vision applications. arXiv:1704.04861, 2017.
 */
#include "residual.h"

/* A depthwise and a pointwise convolution, from `in` to `out` channels. */
static const struct block {
    uint32_t in, out, stride;
} blocks[] = {
    {32, 64, 1},   {64, 128, 2},   {128, 128, 1},   {128, 256, 2}, {256, 256, 1},
    {256, 512, 2}, {512, 512, 1},  {512, 512, 1},   {512, 512, 1}, {512, 512, 1},
    {512, 512, 1}, {512, 1024, 2}, {1024, 1024, 1},
};

MODEL_INFO(describe, .input = {3, 224, 224}, .nclass = 1000, .batch = 64)

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct net net = {.g = g, .b = b, .padding = DPB_PAD_SAME};
    uint32_t x = g->input(b);                   /* 3 x 224 x 224 */
    x = conv_bn_relu(&net, "", 1, x, 32, 3, 2); /* 32 x 112 x 112 */
    for (int i = 0; i < (int)(sizeof blocks / sizeof blocks[0]); i++) {
        const struct block *block = &blocks[i];
        char prefix[24];
        snprintf(prefix, sizeof prefix, "block%d.", i + 1);
        x = grouped_conv_bn_relu(&net, prefix, 1, x, block->in, 3, block->stride, block->in);
        x = conv_bn_relu(&net, prefix, 2, x, block->out, 1, 1);
    }
    classify(&net, x, nclass); /* of 1024 x 7 x 7 */
    return DPB_OK;
}

MODEL(mobilenet_v1, describe, build,
      .summary = "MobileNet v1 for ImageNet: 13 depthwise and pointwise convolutions")

MODELS(mobilenet_v1)
