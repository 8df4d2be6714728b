/*
 * inception3.c - Inception v3 for ImageNet, without the auxiliary head.
 *
 * Every convolution is followed by batch-norm without gamma (epsilon 1e-3) and ReLU. Pools inside
 * the blocks that keep the size are means, in the last block too. The last reduction needs images
 * of 75x75 or more. Blocks are named as TensorFlow and torchvision name them.
 *
 * Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception architecture for computer
 * vision. CVPR 2016.
 */
#include "layers.h"

MODEL_INFO(describe, .input = {3, 299, 299}, .nclass = 1000, .batch = 32)

static uint32_t conv_bn_relu(const struct net *net, const char *which, uint32_t x,
                             const struct dpb_conv_args *args)
{
    const struct dpb_batch_norm_args bn = {.epsilon = 1e-3, .no_gamma = true};
    x = net->g->conv(net->b, layer_name(net, "conv", which).text, x, args);
    x = net->g->batch_norm(net->b, layer_name(net, "bn", which).text, x, &bn);
    return relu(net, which, x);
}

/* Stride 1, padded `same`. */
static uint32_t conv(const struct net *net, const char *which, uint32_t x, uint32_t channels,
                     uint32_t kernel_h, uint32_t kernel_w)
{
    const struct dpb_conv_args args = {
        .channels = channels, .kernel_h = kernel_h, .kernel_w = kernel_w};
    return conv_bn_relu(net, which, x, &args);
}

/* 3x3 without padding. */
static uint32_t conv_valid(const struct net *net, const char *which, uint32_t x, uint32_t channels,
                           uint32_t stride)
{
    const struct dpb_conv_args args = {
        .channels = channels, .kernel_h = 3, .stride = stride, .padding = DPB_PAD_VALID};
    return conv_bn_relu(net, which, x, &args);
}

/* The branch that a block's mean pool begins. */
static uint32_t pool_conv(const struct net *net, uint32_t x, uint32_t channels)
{
    const struct dpb_pool_args mean = {.kernel = 3, .stride = 1};
    x = net->g->mean_pool(net->b, layer_name(net, "pool", "").text, x, &mean);
    return conv(net, "_pool", x, channels, 1, 1);
}

static uint32_t concat(const struct net *net, const uint32_t *inputs, uint32_t n_inputs)
{
    return net->g->concat(net->b, layer_name(net, "concat", "").text, inputs, n_inputs);
}

/* 35 x 35: 5x5 and two 3x3. */
static uint32_t block_a(const struct net *net, const char *prefix, uint32_t x, uint32_t pool)
{
    const struct net in = {net->g, net->b, prefix, net->initial};
    uint32_t y[4];
    y[0] = conv(&in, "1x1", x, 64, 1, 1);
    y[1] = conv(&in, "5x5_1", x, 48, 1, 1);
    y[1] = conv(&in, "5x5_2", y[1], 64, 5, 5);
    y[2] = conv(&in, "3x3dbl_1", x, 64, 1, 1);
    y[2] = conv(&in, "3x3dbl_2", y[2], 96, 3, 3);
    y[2] = conv(&in, "3x3dbl_3", y[2], 96, 3, 3);
    y[3] = pool_conv(&in, x, pool);
    return concat(&in, y, 4);
}

/* 35 x 35 to 17 x 17. */
static uint32_t reduction_a(const struct net *net, const char *prefix, uint32_t x)
{
    const struct net in = {net->g, net->b, prefix, net->initial};
    uint32_t y[3];
    y[0] = conv_valid(&in, "3x3", x, 384, 2);
    y[1] = conv(&in, "3x3dbl_1", x, 64, 1, 1);
    y[1] = conv(&in, "3x3dbl_2", y[1], 96, 3, 3);
    y[1] = conv_valid(&in, "3x3dbl_3", y[1], 96, 2);
    y[2] = max_pool(&in, "", x, 3, 2, DPB_PAD_VALID);
    return concat(&in, y, 3);
}

/* 17 x 17: 7x7 once and twice, each as 1x7 and 7x1. */
static uint32_t block_b(const struct net *net, const char *prefix, uint32_t x, uint32_t width)
{
    const struct net in = {net->g, net->b, prefix, net->initial};
    uint32_t y[4];
    y[0] = conv(&in, "1x1", x, 192, 1, 1);
    y[1] = conv(&in, "7x7_1", x, width, 1, 1);
    y[1] = conv(&in, "7x7_2", y[1], width, 1, 7);
    y[1] = conv(&in, "7x7_3", y[1], 192, 7, 1);
    y[2] = conv(&in, "7x7dbl_1", x, width, 1, 1);
    y[2] = conv(&in, "7x7dbl_2", y[2], width, 7, 1);
    y[2] = conv(&in, "7x7dbl_3", y[2], width, 1, 7);
    y[2] = conv(&in, "7x7dbl_4", y[2], width, 7, 1);
    y[2] = conv(&in, "7x7dbl_5", y[2], 192, 1, 7);
    y[3] = pool_conv(&in, x, 192);
    return concat(&in, y, 4);
}

/* 17 x 17 to 8 x 8. */
static uint32_t reduction_b(const struct net *net, const char *prefix, uint32_t x)
{
    const struct net in = {net->g, net->b, prefix, net->initial};
    uint32_t y[3];
    y[0] = conv(&in, "3x3_1", x, 192, 1, 1);
    y[0] = conv_valid(&in, "3x3_2", y[0], 320, 2);
    y[1] = conv(&in, "7x7_1", x, 192, 1, 1);
    y[1] = conv(&in, "7x7_2", y[1], 192, 1, 7);
    y[1] = conv(&in, "7x7_3", y[1], 192, 7, 1);
    y[1] = conv_valid(&in, "7x7_4", y[1], 192, 2);
    y[2] = max_pool(&in, "", x, 3, 2, DPB_PAD_VALID);
    return concat(&in, y, 3);
}

/* 8 x 8: the 3x3 branches end in a 1x3 and a 3x1 side by side. */
static uint32_t block_c(const struct net *net, const char *prefix, uint32_t x)
{
    const struct net in = {net->g, net->b, prefix, net->initial};
    uint32_t y[6];
    y[0] = conv(&in, "1x1", x, 320, 1, 1);
    uint32_t stem = conv(&in, "3x3_1", x, 384, 1, 1);
    y[1] = conv(&in, "3x3_2a", stem, 384, 1, 3);
    y[2] = conv(&in, "3x3_2b", stem, 384, 3, 1);
    stem = conv(&in, "3x3dbl_1", x, 448, 1, 1);
    stem = conv(&in, "3x3dbl_2", stem, 384, 3, 3);
    y[3] = conv(&in, "3x3dbl_3a", stem, 384, 1, 3);
    y[4] = conv(&in, "3x3dbl_3b", stem, 384, 3, 1);
    y[5] = pool_conv(&in, x, 192);
    return concat(&in, y, 6);
}

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct net net = {g, b, "", NULL};
    uint32_t x = g->input(b);                         /* 3 x 299 x 299 */
    x = conv_valid(&net, "1a", x, 32, 2);             /* 32 x 149 x 149 */
    x = conv_valid(&net, "2a", x, 32, 1);             /* 32 x 147 x 147 */
    x = conv(&net, "2b", x, 64, 3, 3);                /* 64 x 147 x 147 */
    x = max_pool(&net, "3a", x, 3, 2, DPB_PAD_VALID); /* 64 x 73 x 73 */
    x = conv(&net, "3b", x, 80, 1, 1);                /* 80 x 73 x 73 */
    x = conv_valid(&net, "4a", x, 192, 1);            /* 192 x 71 x 71 */
    x = max_pool(&net, "5a", x, 3, 2, DPB_PAD_VALID); /* 192 x 35 x 35 */
    x = block_a(&net, "mixed5b.", x, 32);             /* 256 x 35 x 35 */
    x = block_a(&net, "mixed5c.", x, 64);             /* 288 x 35 x 35 */
    x = block_a(&net, "mixed5d.", x, 64);             /* 288 x 35 x 35 */
    x = reduction_a(&net, "mixed6a.", x);             /* 768 x 17 x 17 */
    x = block_b(&net, "mixed6b.", x, 128);
    x = block_b(&net, "mixed6c.", x, 160);
    x = block_b(&net, "mixed6d.", x, 160);
    x = block_b(&net, "mixed6e.", x, 192);
    x = reduction_b(&net, "mixed7a.", x); /* 1280 x 8 x 8 */
    x = block_c(&net, "mixed7b.", x);     /* 2048 x 8 x 8 */
    x = block_c(&net, "mixed7c.", x);     /* 2048 x 8 x 8 */
    x = g->global_mean(b, "mean", x);
    x = dropout(&net, "", x, 0.2);
    classify(&net, "", x, nclass);
    return DPB_OK;
}

MODEL(inception3, describe, build,
      .summary = "Inception v3 for ImageNet: 11 blocks of parallel convolutions")

MODELS(inception3)
