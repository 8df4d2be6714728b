/*
 * resnet_cifar.c - ResNet-20, 32, 44, 56 and 110 for CIFAR-10.
 *
 * Three stages of (depth - 2) / 6 basic blocks each. Shortcuts have no parameters ("option A"):
 * where the shape changes they take every second pixel and append channels of zeros.
 *
 * He, Zhang, Ren, Sun: Deep residual learning for image recognition. CVPR 2016, section 4.2.
 */
#include "residual.h"

struct options {
    bool zero_gamma;
};

static const struct dpb_option option_table[] = {
    ZERO_GAMMA_ROW,
    {.name = NULL},
};

MODEL_INFO(describe, .input = {3, 32, 32}, .nclass = 10, .batch = 128)

static uint32_t basic_block(const struct net *net, const char *prefix, uint32_t x,
                            uint32_t channels, uint32_t stride)
{
    uint32_t y = conv_bn_relu(net, prefix, 1, x, channels, 3, stride);
    y = last_conv_bn(net, prefix, 2, y, channels, 3, 1);
    if (stride != 1)
        x = net->g->shortcut(net->b, layer_name(prefix, "shortcut", 1).text, x, channels, stride);
    x = add(net, layer_name(prefix, "add", 1), x, y);
    return relu(net, layer_name(prefix, "relu", 2), x);
}

static dpb_status build(const struct options *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, int depth, uint32_t nclass)
{
    const struct net net = {g, b, DPB_PAD_SAME, options->zero_gamma, false};
    uint32_t x = g->input(b);                   /* 3 x 32 x 32 */
    x = conv_bn_relu(&net, "", 1, x, 16, 3, 1); /* 16 x 32 x 32 */
    for (int stage = 1; stage <= 3; stage++) {  /* 16 x 32 x 32, 32 x 16 x 16, 64 x 8 x 8 */
        for (int i = 0; i < (depth - 2) / 6; i++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage, i);
            x = basic_block(&net, prefix, x, 8u << stage, stage > 1 && i == 0 ? 2 : 1);
        }
    }
    classify(&net, x, nclass);
    return DPB_OK;
}

#define RESNET(DEPTH, NEXT)                                                                  \
    static dpb_status build_##DEPTH(const void *options, const struct dpb_graph_ops *g,      \
                                    struct dpb_graph_builder *b, uint32_t nclass)            \
    {                                                                                        \
        return build(options, g, b, DEPTH, nclass);                                          \
    }                                                                                        \
    MODEL(resnet##DEPTH, describe, build_##DEPTH,                                            \
          .summary =                                                                         \
              "ResNet-" #DEPTH " for 32x32 images: basic blocks, shortcuts without weights", \
          .options = option_table, .options_size = sizeof(struct options), .next = NEXT)

RESNET(110, NULL)
RESNET(56, &resnet110)
RESNET(44, &resnet56)
RESNET(32, &resnet44)
RESNET(20, &resnet32)

MODELS(resnet20)
