/*
 * cifar_cnn.c - the convolutional network of Keras' CIFAR-10 example: small, with dropout after
 * each stage. Weights begin by Glorot's rule, which is Keras' default (docs of Conv2D and Dense:
 * kernel_initializer = "glorot_uniform", bias_initializer = "zeros").
 *
 * Chollet and others: Keras 2, examples/cifar10_cnn.py.
 */
#include "layers.h"

MODEL_INFO(describe, .input = {3, 32, 32}, .nclass = 10, .batch = 128)

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_initial glorot = {.rule = DPB_INITIAL_GLOROT_UNIFORM};
    const struct net net = {g, b, "", &glorot};
    uint32_t x = g->input(b); /* 3 x 32 x 32 */
    x = conv_relu(&net, "1", x, 32, 3);
    x = conv_relu_window(&net, "2", x, 32, 3, 1, DPB_PAD_VALID); /* 32 x 30 x 30 */
    x = max_pool(&net, "2", x, 2, 2, DPB_PAD_VALID);             /* 32 x 15 x 15 */
    x = dropout(&net, "2", x, 0.25);
    x = conv_relu(&net, "3", x, 64, 3);
    x = conv_relu_window(&net, "4", x, 64, 3, 1, DPB_PAD_VALID); /* 64 x 13 x 13 */
    x = max_pool(&net, "4", x, 2, 2, DPB_PAD_VALID);             /* 64 x 6 x 6 */
    x = dropout(&net, "4", x, 0.25);
    x = hidden(&net, "1", x, 512, 0.5);
    classify(&net, "2", x, nclass);
    return DPB_OK;
}

MODEL(cifar_cnn, describe, build,
      .summary = "Keras' example for 32x32 images: 4 convolutions, 2 dense layers")

MODELS(cifar_cnn)
