/*
 * vgg16_cifar.c - VGG-16 for 32x32 images, as Crossbow trains it on CIFAR-100: the 13 convolutions
 * of configuration D, batch-norm after each, dropout between those of a group, and two dense layers
 * in place of three. Convolutions and the hidden dense layer keep their bias before batch-norm, as
 * the published network does: its 15,038,116 parameters at 100 classes are Crossbow's 57.37 MB.
 *
 * Zagoruyko: 92.45 % on CIFAR-10 in Torch. 2015 (vgg_bn_drop). Koliousis et al.: CROSSBOW. VLDB
 * 2019, table 1.
 */
#include "layers.h"

MODEL_INFO(describe, .input = {3, 32, 32}, .nclass = 100, .batch = 128)

static uint32_t norm_relu(const struct net *net, const char *which, uint32_t x, double epsilon)
{
    const struct dpb_batch_norm_args args = {.epsilon = epsilon};
    x = net->g->batch_norm(net->b, layer_name(net, "bn", which).text, x, &args);
    return relu(net, which, x);
}

/* Convolutions "conv<number>_1" and on, dropout after all but the last, and the pool. */
static uint32_t group(const struct net *net, int number, int n_convs, uint32_t channels,
                      double dropout_rate, uint32_t x)
{
    const struct dpb_conv_args conv = {.channels = channels, .kernel_h = 3, .bias = true};
    char which[24];
    for (int i = 1; i <= n_convs; i++) {
        snprintf(which, sizeof which, "%d_%d", number, i);
        x = net->g->conv(net->b, layer_name(net, "conv", which).text, x, &conv);
        x = norm_relu(net, which, x, 1e-3);
        if (i < n_convs)
            x = dropout(net, which, x, dropout_rate);
    }
    snprintf(which, sizeof which, "%d", number);
    return max_pool(net, which, x, 2, 2, DPB_PAD_VALID);
}

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct net net = {g, b, "", NULL};
    uint32_t x = g->input(b);           /* 3 x 32 x 32 */
    x = group(&net, 1, 2, 64, 0.3, x);  /* 64 x 16 x 16 */
    x = group(&net, 2, 2, 128, 0.4, x); /* 128 x 8 x 8 */
    x = group(&net, 3, 3, 256, 0.4, x); /* 256 x 4 x 4 */
    x = group(&net, 4, 3, 512, 0.4, x); /* 512 x 2 x 2 */
    x = group(&net, 5, 3, 512, 0.4, x); /* 512 x 1 x 1 */
    x = dropout(&net, "5", x, 0.5);
    x = g->dense(b, "fc1", x, 512, true);
    x = norm_relu(&net, "_fc1", x, 1e-5);
    x = dropout(&net, "_fc1", x, 0.5);
    classify(&net, "2", x, nclass);
    return DPB_OK;
}

MODEL(vgg16_cifar, describe, build,
      .summary = "VGG-16 for 32x32 images, with batch-norm: 13 convolutions, 2 dense layers")

MODELS(vgg16_cifar)
