/*
 * mlp.c - a multilayer perceptron with two wide hidden layers: nothing but matrix products, and
 * many weights for little computation. It stresses the exchange more than any convolutional
 * network.
 *
 * Rumelhart, Hinton, Williams: Learning representations by back-propagating errors. Nature 323,
 * 1986.
 */
#include "model.h"

MODEL_INFO(describe, .input = {1, 1, 1000}, .nclass = 10, .batch = 128, .any_channels = true)

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    uint32_t x = g->input(b); /* 1000 features */
    x = g->dense(b, "fc1", x, 4096, true);
    x = g->relu(b, "relu1", x);
    x = g->dense(b, "fc2", x, 4096, true);
    x = g->relu(b, "relu2", x);
    x = g->dense(b, "fc3", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

MODEL(mlp, describe, build, .summary = "perceptron with two hidden layers of 4096")

MODELS(mlp)
