/*
 * layers.h - layers of networks from before batch-norm: bias, then ReLU. The residual networks'
 * layers are in residual.h.
 *
 * Node names are PREFIX (a block's, or ""), kind, and WHICH: "inception3a.conv1x1".
 */
#ifndef LAYERS_H
#define LAYERS_H

#include <stdio.h>

#include "model.h"

/* A network, or a block of one, under construction. */
struct net {
    const struct dpb_graph_ops *g;
    struct dpb_graph_builder *b;
    const char *prefix;
    const struct dpb_initial *initial; /* of all weights; NULL: the default */
};

struct name {
    char text[48];
};

static inline struct name layer_name(const struct net *net, const char *kind, const char *which)
{
    struct name name;
    snprintf(name.text, sizeof name.text, "%s%s%s", net->prefix, kind, which);
    return name;
}

static inline uint32_t relu(const struct net *net, const char *which, uint32_t x)
{
    return net->g->relu(net->b, layer_name(net, "relu", which).text, x);
}

static inline uint32_t conv_relu_window(const struct net *net, const char *which, uint32_t x,
                                        uint32_t channels, uint32_t kernel, uint32_t stride,
                                        dpb_padding padding)
{
    const struct dpb_conv_args args = {.channels = channels,
                                       .kernel_h = kernel,
                                       .stride = stride,
                                       .padding = padding,
                                       .bias = true};
    x = net->g->conv(net->b, layer_name(net, "conv", which).text, x, &args);
    x = net->g->initial(net->b, x, net->initial, NULL);
    return relu(net, which, x);
}

/* With stride 1, padded `same`. */
static inline uint32_t conv_relu(const struct net *net, const char *which, uint32_t x,
                                 uint32_t channels, uint32_t kernel)
{
    return conv_relu_window(net, which, x, channels, kernel, 1, DPB_PAD_SAME);
}

static inline uint32_t max_pool(const struct net *net, const char *which, uint32_t x,
                                uint32_t kernel, uint32_t stride, dpb_padding padding)
{
    const struct dpb_pool_args args = {.kernel = kernel, .stride = stride, .padding = padding};
    return net->g->max_pool(net->b, layer_name(net, "pool", which).text, x, &args);
}

static inline uint32_t dropout(const struct net *net, const char *which, uint32_t x, double rate)
{
    return net->g->dropout(net->b, layer_name(net, "dropout", which).text, x, rate);
}

/* A hidden dense layer "fcWHICH", ReLU and dropout. */
static inline uint32_t hidden(const struct net *net, const char *which, uint32_t x,
                              uint32_t features, double dropout_rate)
{
    x = net->g->dense(net->b, layer_name(net, "fc", which).text, x, features, true);
    x = net->g->initial(net->b, x, net->initial, NULL);
    x = net->g->relu(net->b, layer_name(net, "relu_fc", which).text, x);
    return net->g->dropout(net->b, layer_name(net, "dropout_fc", which).text, x, dropout_rate);
}

/* The last dense layer and the loss. */
static inline void classify(const struct net *net, const char *which, uint32_t x, uint32_t nclass)
{
    x = net->g->dense(net->b, layer_name(net, "fc", which).text, x, nclass, true);
    x = net->g->initial(net->b, x, net->initial, NULL);
    net->g->softmax_loss(net->b, "loss", x);
}

#endif
