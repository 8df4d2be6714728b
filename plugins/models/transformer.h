/*
 * transformer.h - the block of transformers, with normalisation first: layer-norm, attention of
 * several heads, and a sum with the block's input; layer-norm, two dense layers of each position
 * with GELU between, and a sum again.
 *
 * Vaswani et al.: Attention is all you need. NeurIPS 2017. Normalisation first: Radford et al.:
 * Language models are unsupervised multitask learners. OpenAI 2019.
 */
#ifndef TRANSFORMER_H
#define TRANSFORMER_H

#include <stdio.h>

#include "model.h"

/* The row of option NAME, a count, in a table of rows of `struct options`. */
#define COUNT_ROW(NAME, DEFAULT, MAX, HELP)                                         \
    {                                                                               \
        .name = #NAME, .type = DPB_OPT_INT, .def = DEFAULT, .min = 1, .max = (MAX), \
        .offset = offsetof(struct options, NAME), .help = HELP                      \
    }

/* A network under construction. */
struct net {
    const struct dpb_graph_ops *g;
    struct dpb_graph_builder *b;
    uint32_t width, heads;
    bool causal, tanh;      /* attention's; GELU's */
    double epsilon;         /* layer-norm's */
    double stddev;          /* initial values of all weights of products */
    double residual_stddev; /* of those that a sum follows */
};

struct name {
    char text[32];
};

static inline struct name layer_name(uint32_t block, const char *layer)
{
    struct name name;
    snprintf(name.text, sizeof name.text, "block%u.%s", block, layer);
    return name;
}

/* A dense layer of each position. */
static inline uint32_t position_dense(const struct net *net, const char *name, uint32_t x,
                                      uint32_t channels, double stddev)
{
    const struct dpb_conv_args args = {.channels = channels, .kernel_h = 1, .bias = true};
    const struct dpb_initial normal = {DPB_INITIAL_NORMAL, stddev};
    x = net->g->conv(net->b, name, x, &args);
    return net->g->initial(net->b, x, &normal, NULL);
}

static inline uint32_t block(const struct net *net, uint32_t number, uint32_t x)
{
    const struct dpb_graph_ops *g = net->g;
    const struct dpb_attention_args attention = {.heads = net->heads, .causal = net->causal};
    uint32_t y = g->layer_norm(net->b, layer_name(number, "norm1").text, x, net->epsilon);
    y = position_dense(net, layer_name(number, "qkv").text, y, 3 * net->width, net->stddev);
    y = g->attention(net->b, layer_name(number, "attention").text, y, &attention);
    y = position_dense(net, layer_name(number, "projection").text, y, net->width,
                       net->residual_stddev);
    x = g->add(net->b, layer_name(number, "add1").text, x, y);
    y = g->layer_norm(net->b, layer_name(number, "norm2").text, x, net->epsilon);
    y = position_dense(net, layer_name(number, "fc1").text, y, 4 * net->width, net->stddev);
    y = g->gelu(net->b, layer_name(number, "gelu").text, y, net->tanh);
    y = position_dense(net, layer_name(number, "fc2").text, y, net->width, net->residual_stddev);
    return g->add(net->b, layer_name(number, "add2").text, x, y);
}

#endif
