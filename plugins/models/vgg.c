/*
 * vgg.c - VGG-11, 16 and 19 for ImageNet (configurations A, D and E): 3x3 convolutions in five
 * groups, each halved by a pool, then dense layers that hold nine tenths of the weights. Images
 * from 32x32; multiples of 32 lose no pixels.
 *
 * Simonyan, Zisserman: Very deep convolutional networks for large-scale image recognition. ICLR
 * 2015, table 1.
 */
#include "layers.h"

MODEL_INFO(describe, .input = {3, 224, 224}, .nclass = 1000, .batch = 64)

/* Convolutions "conv<number>_1" and on, and the pool. */
static uint32_t group(const struct net *net, int number, int n_convs, uint32_t channels, uint32_t x)
{
    char which[24];
    for (int i = 1; i <= n_convs; i++) {
        snprintf(which, sizeof which, "%d_%d", number, i);
        x = conv_relu(net, which, x, channels, 3);
    }
    snprintf(which, sizeof which, "%d", number);
    return max_pool(net, which, x, 2, 2, DPB_PAD_VALID);
}

static dpb_status build(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                        const int n_convs[5], uint32_t nclass)
{
    const struct net net = {g, b, "", NULL};
    uint32_t x = g->input(b);               /* 3 x 224 x 224 */
    x = group(&net, 1, n_convs[0], 64, x);  /* 64 x 112 x 112 */
    x = group(&net, 2, n_convs[1], 128, x); /* 128 x 56 x 56 */
    x = group(&net, 3, n_convs[2], 256, x); /* 256 x 28 x 28 */
    x = group(&net, 4, n_convs[3], 512, x); /* 512 x 14 x 14 */
    x = group(&net, 5, n_convs[4], 512, x); /* 512 x 7 x 7 */
    x = hidden(&net, "1", x, 4096, 0.5);
    x = hidden(&net, "2", x, 4096, 0.5);
    classify(&net, "3", x, nclass);
    return DPB_OK;
}

#define VGG(DEPTH, N1, N2, N3, N4, N5, NEXT)                                            \
    static dpb_status build_##DEPTH(const void *options, const struct dpb_graph_ops *g, \
                                    struct dpb_graph_builder *b, uint32_t nclass)       \
    {                                                                                   \
        (void)options;                                                                  \
        return build(g, b, (const int[5]){N1, N2, N3, N4, N5}, nclass);                 \
    }                                                                                   \
    MODEL(vgg##DEPTH, describe, build_##DEPTH,                                          \
          .summary = "VGG-" #DEPTH " for ImageNet: 3x3 convolutions, 3 dense layers",   \
          .next = NEXT)

VGG(19, 2, 2, 4, 4, 4, NULL)
VGG(16, 2, 2, 3, 3, 3, &vgg19)
VGG(11, 1, 1, 2, 2, 2, &vgg16)

MODELS(vgg11)
