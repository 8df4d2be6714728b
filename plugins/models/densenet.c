/*
 * densenet.c - DenseNet for CIFAR-10: depth 40 with growth rate 12, depth 100 with 12 and 24.
 *
 * The basic form: no bottlenecks, transitions that keep all channels. Three dense blocks of (depth
 * - 4) / 3 layers each; a layer reads all that its block has so far and adds `growth` channels.
 *
 * With model.form = tf they are the networks of tf_cnn_benchmarks, for which speeds are published.
 * There convolutions have a bias, ReLU follows that of a transition, and a transition keeps 2 *
 * growth channels.
 *
 * Huang, Liu, van der Maaten, Weinberger: Densely connected convolutional networks. CVPR 2017.
 */
#include "residual.h"

enum form { PAPER, TF };

struct options {
    int form; /* enum form */
};

static const char *const forms[] = {"paper", "tf", NULL};

static const struct dpb_option option_table[] = {
    {.name = "form",
     .type = DPB_OPT_CHOICE,
     .def = "paper",
     .choices = forms,
     .offset = offsetof(struct options, form),
     .help =
         "paper: as published; tf: as tf_cnn_benchmarks has it, with biases, and transitions to "
         "twice the growth rate."},
    {.name = NULL},
};

MODEL_INFO(describe, .input = {3, 32, 32}, .nclass = 10, .batch = 64)

static uint32_t bn_relu(const struct net *net, const char *prefix, int number, uint32_t x)
{
    x = batch_norm(net, layer_name(prefix, "bn", number), x);
    return relu(net, layer_name(prefix, "relu", number), x);
}

static uint32_t bn_relu_conv(const struct net *net, const char *prefix, int number, uint32_t x,
                             uint32_t channels, uint32_t kernel)
{
    x = bn_relu(net, prefix, number, x);
    return conv(net, layer_name(prefix, "conv", number), x, channels, kernel, 1);
}

static uint32_t dense_block(const struct net *net, int number, int n_layers, uint32_t growth,
                            uint32_t x)
{
    char prefix[24];
    snprintf(prefix, sizeof prefix, "block%d.", number);
    for (int i = 1; i <= n_layers; i++) {
        uint32_t y = bn_relu_conv(net, prefix, i, x, growth, 3);
        struct name name = layer_name(prefix, "concat", i);
        x = net->g->concat(net->b, name.text, (const uint32_t[]){x, y}, 2);
    }
    return x;
}

/* channels: that it keeps; 0: all. */
static uint32_t transition(const struct net *net, int number, uint32_t channels, uint32_t x)
{
    const struct dpb_pool_args halve = {.kernel = 2, .stride = 2, .padding = DPB_PAD_VALID};
    const char *prefix = "transition.";
    uint32_t all = net->g->shape(net->b, x).c;
    x = bn_relu_conv(net, prefix, number, x, channels ? channels : all, 1);
    if (channels)
        x = relu(net, layer_name(prefix, "relu_conv", number), x);
    return net->g->mean_pool(net->b, layer_name(prefix, "pool", number).text, x, &halve);
}

static dpb_status build(const struct options *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, int depth, uint32_t growth, uint32_t nclass)
{
    const bool tf = options->form == TF;
    const struct net net = {.g = g, .b = b, .padding = DPB_PAD_SAME, .bias = tf};
    const uint32_t kept = tf ? 2 * growth : 0;
    int n_layers = (depth - 4) / 3;
    uint32_t x = g->input(b);                               /* 3 x 32 x 32 */
    x = conv(&net, layer_name("", "conv", 1), x, 16, 3, 1); /* 16 x 32 x 32 */
    x = dense_block(&net, 1, n_layers, growth, x); /* 160 x 32 x 32 at depth 40, growth 12 */
    x = transition(&net, 1, kept, x);              /* 160 x 16 x 16 */
    x = dense_block(&net, 2, n_layers, growth, x); /* 304 x 16 x 16 */
    x = transition(&net, 2, kept, x);              /* 304 x 8 x 8 */
    x = dense_block(&net, 3, n_layers, growth, x); /* 448 x 8 x 8 */
    x = bn_relu(&net, "", 1, x);
    classify(&net, x, nclass);
    return DPB_OK;
}

#define DENSENET(DEPTH, GROWTH, NEXT)                                                         \
    static dpb_status build_##DEPTH##_k##GROWTH(const void *options,                          \
                                                const struct dpb_graph_ops *g,                \
                                                struct dpb_graph_builder *b, uint32_t nclass) \
    {                                                                                         \
        return build(options, g, b, DEPTH, GROWTH, nclass);                                   \
    }                                                                                         \
    MODEL(densenet##DEPTH##_k##GROWTH, describe, build_##DEPTH##_k##GROWTH,                   \
          .summary = "DenseNet-" #DEPTH " for 32x32 images: growth rate " #GROWTH,            \
          .options = option_table, .options_size = sizeof(struct options), .next = NEXT)

DENSENET(100, 24, NULL)
DENSENET(100, 12, &densenet100_k24)
DENSENET(40, 12, &densenet100_k12)

MODELS(densenet40_k12)
