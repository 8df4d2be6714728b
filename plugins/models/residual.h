/*
 * residual.h - for the residual networks, DenseNet and MobileNet: convolutions without bias with
 * batch-norm, and names made from a block's prefix.
 *
 * Names are torchvision's, so that its checkpoints fit: "layer1.0.conv2", "layer1.0.bn2".
 */
#ifndef RESIDUAL_H
#define RESIDUAL_H

#include <stdio.h>

#include "model.h"

/* A network under construction. */
struct net {
    const struct dpb_graph_ops *g;
    struct dpb_graph_builder *b;
    dpb_padding padding; /* of convolutions: DPB_PAD_SAME, or DPB_PAD_EXPLICIT for kernel / 2 */
    bool zero_gamma;     /* last_conv_bn */
    bool bias;           /* of convolutions */
};

/* A row of a residual network's options. */
#define ZERO_GAMMA_ROW                                                                      \
    {                                                                                       \
        .name = "zero_gamma", .type = DPB_OPT_BOOL, .def = "no",                            \
        .offset = offsetof(struct options, zero_gamma),                                     \
        .help = "gamma of each block's last batch-norm begins at 0: a block begins as its " \
                "shortcut (Goyal et al. 2017)."                                             \
    }

/* A layer's name: PREFIX (a block's, or ""), kind, number. */
struct name {
    char text[48];
};

static inline struct name layer_name(const char *prefix, const char *kind, int number)
{
    struct name name;
    snprintf(name.text, sizeof name.text, "%s%s%d", prefix, kind, number);
    return name;
}

/* A convolution, as a rule without bias, since a batch-norm follows later. */
static inline uint32_t grouped_conv(const struct net *net, struct name name, uint32_t x,
                                    uint32_t channels, uint32_t kernel, uint32_t stride,
                                    uint32_t groups)
{
    uint32_t pad = net->padding == DPB_PAD_EXPLICIT ? kernel / 2 : 0;
    const struct dpb_conv_args args = {.channels = channels,
                                       .kernel_h = kernel,
                                       .stride = stride,
                                       .groups = groups,
                                       .padding = net->padding,
                                       .before = pad,
                                       .after = pad,
                                       .bias = net->bias};
    return net->g->conv(net->b, name.text, x, &args);
}

static inline uint32_t conv(const struct net *net, struct name name, uint32_t x, uint32_t channels,
                            uint32_t kernel, uint32_t stride)
{
    return grouped_conv(net, name, x, channels, kernel, stride, 1);
}

static inline uint32_t batch_norm(const struct net *net, struct name name, uint32_t x)
{
    const struct dpb_batch_norm_args gamma_and_beta = {0};
    return net->g->batch_norm(net->b, name.text, x, &gamma_and_beta);
}

static inline uint32_t relu(const struct net *net, struct name name, uint32_t x)
{
    return net->g->relu(net->b, name.text, x);
}

static inline uint32_t add(const struct net *net, struct name name, uint32_t x, uint32_t y)
{
    return net->g->add(net->b, name.text, x, y);
}

/* PREFIXconvI and PREFIXbnI. */
static inline uint32_t conv_bn(const struct net *net, const char *prefix, int i, uint32_t x,
                               uint32_t channels, uint32_t kernel, uint32_t stride)
{
    x = conv(net, layer_name(prefix, "conv", i), x, channels, kernel, stride);
    return batch_norm(net, layer_name(prefix, "bn", i), x);
}

/* The same at the end of a residual block, before its sum. */
static inline uint32_t last_conv_bn(const struct net *net, const char *prefix, int i, uint32_t x,
                                    uint32_t channels, uint32_t kernel, uint32_t stride)
{
    static const struct dpb_initial zero = {.rule = DPB_INITIAL_CONSTANT, .value = 0.0};
    x = conv_bn(net, prefix, i, x, channels, kernel, stride);
    return net->zero_gamma ? net->g->initial(net->b, x, &zero, NULL) : x;
}

/* PREFIXconvI, PREFIXbnI and PREFIXreluI. */
static inline uint32_t grouped_conv_bn_relu(const struct net *net, const char *prefix, int i,
                                            uint32_t x, uint32_t channels, uint32_t kernel,
                                            uint32_t stride, uint32_t groups)
{
    x = grouped_conv(net, layer_name(prefix, "conv", i), x, channels, kernel, stride, groups);
    x = batch_norm(net, layer_name(prefix, "bn", i), x);
    return relu(net, layer_name(prefix, "relu", i), x);
}

static inline uint32_t conv_bn_relu(const struct net *net, const char *prefix, int i, uint32_t x,
                                    uint32_t channels, uint32_t kernel, uint32_t stride)
{
    return grouped_conv_bn_relu(net, prefix, i, x, channels, kernel, stride, 1);
}

/* The end of each of these networks: mean over the pixels, dense layer, loss. */
static inline void classify(const struct net *net, uint32_t x, uint32_t nclass)
{
    x = net->g->global_mean(net->b, "mean", x);
    x = net->g->dense(net->b, "fc", x, nclass, true);
    net->g->softmax_loss(net->b, "loss", x);
}

#endif
