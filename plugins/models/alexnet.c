/*
 * alexnet.c - AlexNet for ImageNet in its one-tower form: no groups, no local response
 * normalisation. The last pool needs images of 67x67 or more.
 *
 * Krizhevsky, Sutskever, Hinton: ImageNet classification with deep convolutional neural networks.
 * NIPS 2012. Krizhevsky: One weird trick for parallelizing convolutional neural networks. 2014.
 */
#include "layers.h"

MODEL_INFO(describe, .input = {3, 227, 227}, .nclass = 1000, .batch = 512)

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct net net = {g, b, "", NULL};
    uint32_t x = g->input(b);                                     /* 3 x 227 x 227 */
    x = conv_relu_window(&net, "1", x, 64, 11, 4, DPB_PAD_VALID); /* 64 x 55 x 55 */
    x = max_pool(&net, "1", x, 3, 2, DPB_PAD_VALID);              /* 64 x 27 x 27 */
    x = conv_relu(&net, "2", x, 192, 5);
    x = max_pool(&net, "2", x, 3, 2, DPB_PAD_VALID); /* 192 x 13 x 13 */
    x = conv_relu(&net, "3", x, 384, 3);
    x = conv_relu(&net, "4", x, 384, 3);
    x = conv_relu(&net, "5", x, 256, 3);
    x = max_pool(&net, "5", x, 3, 2, DPB_PAD_VALID); /* 256 x 6 x 6 */
    x = hidden(&net, "1", x, 4096, 0.5);
    x = hidden(&net, "2", x, 4096, 0.5);
    classify(&net, "3", x, nclass);
    return DPB_OK;
}

MODEL(alexnet, describe, build, .summary = "AlexNet for ImageNet: 5 convolutions, 3 dense layers")

MODELS(alexnet)
