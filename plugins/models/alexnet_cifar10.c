/*
 * alexnet_cifar10.c - the CIFAR-10 network of cuda-convnet in TensorFlow's form: AlexNet's layers,
 * local response normalisation included, on 32x32 images.
 *
 * Krizhevsky, Sutskever, Hinton: ImageNet classification with deep convolutional neural networks.
 * NIPS 2012. Krizhevsky: Learning multiple layers of features from tiny images. 2009.
 */
#include "model.h"

MODEL_INFO(describe, .input = {3, 32, 32}, .nclass = 10, .batch = 128)

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args conv = {.channels = 64, .kernel_h = 5, .bias = true};
    const struct dpb_pool_args pool = {.kernel = 3, .stride = 2};
    const struct dpb_lrn_args lrn = {.radius = 4, .k = 1.0, .alpha = 0.001 / 9.0, .beta = 0.75};

    uint32_t x = g->input(b);          /* 3 x 32 x 32 */
    x = g->conv(b, "conv1", x, &conv); /* 64 x 32 x 32 */
    x = g->relu(b, "relu1", x);
    x = g->max_pool(b, "pool1", x, &pool); /* 64 x 16 x 16, padded (0,1) */
    x = g->lrn(b, "lrn1", x, &lrn);
    x = g->conv(b, "conv2", x, &conv); /* 64 x 16 x 16 */
    x = g->relu(b, "relu2", x);
    x = g->lrn(b, "lrn2", x, &lrn);
    x = g->max_pool(b, "pool2", x, &pool); /* 64 x 8 x 8, padded (0,1) */
    x = g->dense(b, "fc1", x, 384, true);
    x = g->relu(b, "relu3", x);
    x = g->dense(b, "fc2", x, 192, true);
    x = g->relu(b, "relu4", x);
    x = g->dense(b, "fc3", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

MODEL(alexnet_cifar10, describe, build,
      .summary = "AlexNet's layers for 32x32 images: 2 convolutions with LRN, 3 dense layers")

MODELS(alexnet_cifar10)
