/*
 * googlenet.c - GoogLeNet for ImageNet, as published: 5x5 convolutions that are 5x5, biases, no
 * batch-norm; but without local response normalisation and without auxiliary heads.
 *
 * Szegedy, Liu, Jia, Sermanet, Reed, Anguelov, Erhan, Vanhoucke, Rabinovich: Going deeper with
 * convolutions. CVPR 2015, table 1.
 */
#include "layers.h"

MODEL_INFO(describe, .input = {3, 224, 224}, .nclass = 1000, .batch = 32)

/* Channels of an inception block's branches; [0] is the 1x1 convolution before the larger one. */
struct widths {
    uint32_t w1x1, w3x3[2], w5x5[2], pool;
};

static uint32_t inception(const struct net *net, const char *prefix, uint32_t x,
                          struct widths widths)
{
    const struct net block = {net->g, net->b, prefix, net->initial};
    uint32_t branches[4];
    branches[0] = conv_relu(&block, "1x1", x, widths.w1x1, 1);
    branches[1] = conv_relu(&block, "3x3_reduce", x, widths.w3x3[0], 1);
    branches[1] = conv_relu(&block, "3x3", branches[1], widths.w3x3[1], 3);
    branches[2] = conv_relu(&block, "5x5_reduce", x, widths.w5x5[0], 1);
    branches[2] = conv_relu(&block, "5x5", branches[2], widths.w5x5[1], 5);
    branches[3] = max_pool(&block, "", x, 3, 1, DPB_PAD_SAME);
    branches[3] = conv_relu(&block, "_pool", branches[3], widths.pool, 1);
    return net->g->concat(net->b, layer_name(&block, "concat", "").text, branches, 4);
}

/* Blocks "inception<number>a" and on. */
static uint32_t stage(const struct net *net, int number, const struct widths *widths, int n_blocks,
                      uint32_t x)
{
    for (int i = 0; i < n_blocks; i++) {
        char prefix[24];
        snprintf(prefix, sizeof prefix, "inception%d%c.", number, 'a' + i);
        x = inception(net, prefix, x, widths[i]);
    }
    return x;
}

static const struct widths stage3[] = {
    {64, {96, 128}, {16, 32}, 32},   /* 256 x 28 x 28 */
    {128, {128, 192}, {32, 96}, 64}, /* 480 x 28 x 28 */
};

static const struct widths stage4[] = {
    {192, {96, 208}, {16, 48}, 64},    /* 512 x 14 x 14 */
    {160, {112, 224}, {24, 64}, 64},   /* 512 x 14 x 14 */
    {128, {128, 256}, {24, 64}, 64},   /* 512 x 14 x 14 */
    {112, {144, 288}, {32, 64}, 64},   /* 528 x 14 x 14 */
    {256, {160, 320}, {32, 128}, 128}, /* 832 x 14 x 14 */
};

static const struct widths stage5[] = {
    {256, {160, 320}, {32, 128}, 128}, /* 832 x 7 x 7 */
    {384, {192, 384}, {48, 128}, 128}, /* 1024 x 7 x 7 */
};

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct net net = {g, b, "", NULL};
    uint32_t x = g->input(b);                                   /* 3 x 224 x 224 */
    x = conv_relu_window(&net, "1", x, 64, 7, 2, DPB_PAD_SAME); /* 64 x 112 x 112 */
    x = max_pool(&net, "1", x, 3, 2, DPB_PAD_SAME);             /* 64 x 56 x 56 */
    x = conv_relu(&net, "2_reduce", x, 64, 1);
    x = conv_relu(&net, "2", x, 192, 3);            /* 192 x 56 x 56 */
    x = max_pool(&net, "2", x, 3, 2, DPB_PAD_SAME); /* 192 x 28 x 28 */
    x = stage(&net, 3, stage3, 2, x);               /* 480 x 28 x 28 */
    x = max_pool(&net, "3", x, 3, 2, DPB_PAD_SAME);
    x = stage(&net, 4, stage4, 5, x); /* 832 x 14 x 14 */
    x = max_pool(&net, "4", x, 3, 2, DPB_PAD_SAME);
    x = stage(&net, 5, stage5, 2, x); /* 1024 x 7 x 7 */
    x = g->global_mean(b, "mean", x);
    x = dropout(&net, "", x, 0.4);
    classify(&net, "", x, nclass);
    return DPB_OK;
}

MODEL(googlenet, describe, build, .summary = "GoogLeNet for ImageNet: 9 inception blocks")

MODELS(googlenet)
