/* networks.c - see networks.h. */
#include "conform/networks.h"

#include "base/log.h"
#include "graph/graph.h"

#define CONV(...) (&(const struct dpb_conv_args){__VA_ARGS__})
#define POOL(...) (&(const struct dpb_pool_args){__VA_ARGS__})

/* ---- one op each ---------------------------------------------------------------------------- */

/* NET(NAME): the middle of a network, from node x to the returned node. */
#define NET(name)                                                                          \
    static uint32_t net_##name(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, \
                               uint32_t x)

NET(dense)
{
    (void)g, (void)b;
    return x;
}

NET(dense_deep)
{
    return g->dense(b, "fc2", g->dense(b, "fc1", x, 17, false), 9, true);
}

NET(relu)
{
    return g->relu(b, "relu", g->dense(b, "fc1", x, 21, true));
}

NET(conv)
{
    x = g->conv(b, "same", x, CONV(.channels = 5, .kernel_h = 3, .bias = true));
    x = g->conv(b, "strided", x,
                CONV(.channels = 6, .kernel_h = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT,
                     .before = 0, .after = 1));
    x = g->conv(b, "pointwise", x, CONV(.channels = 18, .kernel_h = 1));
    return g->conv(b, "wide", x,
                   CONV(.channels = 4, .kernel_h = 1, .kernel_w = 3, .padding = DPB_PAD_VALID));
}

NET(conv_groups)
{
    x = g->conv(b, "grouped", x, CONV(.channels = 6, .kernel_h = 3, .groups = 3, .bias = true));
    return g->conv(b, "depthwise", x, CONV(.channels = 6, .kernel_h = 3, .stride = 2, .groups = 6));
}

NET(batch_norm)
{
    x = g->batch_norm(b, "of_images", x, &(struct dpb_batch_norm_args){0});
    x = g->dense(b, "fc1", x, 19, false);
    return g->batch_norm(b, "of_features", x,
                         &(struct dpb_batch_norm_args){.epsilon = 1e-3, .no_gamma = true});
}

NET(max_pool)
{
    x = g->max_pool(b, "overlapping", x, POOL(.kernel = 3, .stride = 2));
    return g->max_pool(b, "padded", x,
                       POOL(.kernel = 2, .stride = 1, .padding = DPB_PAD_EXPLICIT, .before = 1));
}

NET(mean_pool)
{
    x = g->mean_pool(b, "padded", x, POOL(.kernel = 3, .stride = 1));
    x = g->mean_pool(b, "strided", x, POOL(.kernel = 2, .stride = 2, .padding = DPB_PAD_VALID));
    return g->global_mean(b, "global", x);
}

NET(add)
{
    x = g->dense(b, "fc1", x, 21, true);
    return g->add(b, "twice", x, g->add(b, "sum", x, g->dense(b, "fc2", x, 21, false)));
}

NET(concat)
{
    x = g->dense(b, "fc1", x, 7, true);
    return g->concat(b, "concat", (const uint32_t[]){x, g->dense(b, "fc2", x, 9, true), x}, 3);
}

NET(dropout)
{
    return g->dropout(b, "dropout", g->dense(b, "fc1", x, 33, true), 0.3);
}

NET(lrn)
{
    const struct dpb_lrn_args args = {.radius = 2, .k = 2.0, .alpha = 0.05, .beta = 0.75};
    return g->lrn(b, "lrn", x, &args);
}

NET(shortcut)
{
    return g->shortcut(b, "shortcut", x, 7, 2);
}

/* Positions and channels that are no multiple of a vector; a sequence of images' pixels. */
NET(layer_norm)
{
    x = g->conv(b, "conv", x, CONV(.channels = 21, .kernel_h = 3));
    return g->layer_norm(b, "norm2", g->layer_norm(b, "norm1", x, 1e-5), 1e-3);
}

NET(gelu)
{
    x = g->dense(b, "fc1", x, 37, true);
    return g->gelu(b, "tanh", g->gelu(b, "erf", x, false), true);
}

static uint32_t queries(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                        const char *name, uint32_t x, uint32_t width)
{
    return g->conv(b, name, x, CONV(.channels = 3 * width, .kernel_h = 1, .bias = true));
}

/* 73 positions: more than cpu takes queries at once. */
static uint32_t attend_twice(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x,
                             uint32_t width)
{
    x = g->prepend(b, "token", x);
    x = g->attention(b, "whole", queries(g, b, "qkv1", x, 2 * width),
                     &(struct dpb_attention_args){.heads = 2});
    return g->attention(b, "causal", queries(g, b, "qkv2", x, 3 * width),
                        &(struct dpb_attention_args){.heads = 3, .causal = true});
}

NET(attention)
{
    return attend_twice(g, b, x, 5);
}

/* Of heads that GPUs take, too. */
NET(attention_16)
{
    return attend_twice(g, b, x, 16);
}

NET(positions)
{
    x = g->positions(b, "pixels", x, &(struct dpb_positions_args){.rows = 0});
    x = g->prepend(b, "token", g->relu(b, "relu", x));
    x = g->positions(b, "longer", x, &(struct dpb_positions_args){.rows = 80, .decays = true});
    return g->shortcut(b, "first", x, 5, 1000);
}

/* ---- ids ------------------------------------------------------------------------------------ */

/* Of more positions than cpu takes queries at once; classes that no vector divides. The tied
 * network is for GPUs, too: its heads have 16 channels. */
static void describe_ids(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {1, 1, 69}, .nclass = 53, .batch = 3, .ids = true};
}

static dpb_status build_ids(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                            uint32_t nclass, bool tied)
{
    const uint32_t width = tied ? 32 : 14;
    uint32_t embedding = g->embedding(b, "tokens", g->input(b), width);
    uint32_t x = g->positions(b, "positions", embedding,
                              &(struct dpb_positions_args){.rows = 80, .decays = true});
    x = g->attention(b, "attention", queries(g, b, "qkv", x, width),
                     &(struct dpb_attention_args){.heads = 2, .causal = true});
    x = g->gelu(b, "gelu", g->layer_norm(b, "norm", x, 1e-5), true);
    x = tied ? g->tied(b, "classes", x, embedding)
             : g->conv(b, "classes", x, CONV(.channels = nclass, .kernel_h = 1));
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

static dpb_status build_tokens(const void *options, const struct dpb_graph_ops *g,
                               struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    return build_ids(g, b, nclass, false);
}

static dpb_status build_tied(const void *options, const struct dpb_graph_ops *g,
                             struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    return build_ids(g, b, nclass, true);
}

static const struct dpb_model_ops of_tokens = {.describe = describe_ids, .build = build_tokens};
static const struct dpb_model_ops of_tied = {.describe = describe_ids, .build = build_tied};

/* `options`: the row. */
static dpb_status build_row(const void *options, const struct dpb_graph_ops *g,
                            struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct dpb_network *row = options;
    uint32_t x = row->middle(g, b, g->input(b));
    g->softmax_loss(b, "loss", g->dense(b, "classes", x, nclass, true));
    return DPB_OK;
}

static void describe_row(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {3, 9, 8}, .nclass = 10, .batch = 4};
}

static const struct dpb_model_ops of_row = {.describe = describe_row, .build = build_row};

/* ---- mixtures ------------------------------------------------------------------------------- */

/* MIXTURE(NAME, BATCH, CHANNELS, HEIGHT, WIDTH): before the function that builds it. */
#define MIXTURE(name, n, ...)                                                                \
    static void describe_##name(const void *options, struct dpb_model_info *info)            \
    {                                                                                        \
        (void)options;                                                                       \
        *info = (struct dpb_model_info){.input = {__VA_ARGS__}, .nclass = 10, .batch = (n)}; \
    }                                                                                        \
    static dpb_status build_##name(const void *, const struct dpb_graph_ops *,               \
                                   struct dpb_graph_builder *, uint32_t);                    \
    const struct dpb_model_ops dpb_network_##name = {.describe = describe_##name,            \
                                                     .build = build_##name};                 \
    static dpb_status build_##name(const void *options, const struct dpb_graph_ops *g,       \
                                   struct dpb_graph_builder *b, uint32_t nclass)

/* Images that are not square, padding on one side, more than 16 channels that are no multiple of
 * it, windows wider than the channels; the input used twice and normalised, a node added to itself,
 * used by two concats, and by one alone. */
MIXTURE(odd, 5, 3, 13, 10)
{
    (void)options;
    const struct dpb_conv_args wide = {.channels = 37, .kernel_h = 2, .kernel_w = 3, .bias = true};
    const struct dpb_conv_args before = {
        .channels = 37, .kernel_h = 2, .padding = DPB_PAD_EXPLICIT, .before = 1};
    const struct dpb_conv_args single = {.channels = 1, .kernel_h = 1};
    const struct dpb_pool_args after = {
        .kernel = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT, .after = 1};
    const struct dpb_pool_args smooth = {.kernel = 3, .stride = 1};
    const struct dpb_batch_norm_args norm = {0};
    const struct dpb_lrn_args few = {.radius = 4, .k = 2.0, .alpha = 0.05, .beta = 0.5};
    const struct dpb_lrn_args many = {.radius = 2, .k = 1.0, .alpha = 0.2, .beta = 0.75};

    uint32_t input = g->input(b);
    uint32_t x = g->batch_norm(b, "norm1", input, &norm);
    x = g->lrn(b, "lrn1", x, &few);
    x = g->conv(b, "conv1", x, &wide);
    uint32_t y = g->conv(b, "conv2", input, &before);
    x = g->add(b, "add1", x, y);
    x = g->add(b, "add2", x, x);
    x = g->lrn(b, "lrn2", x, &many);
    y = g->conv(b, "conv3", x, &single);
    uint32_t z = g->concat(b, "concat1", (const uint32_t[]){y, x}, 2);
    z = g->concat(b, "concat2", (const uint32_t[]){x, z, x}, 3);
    z = g->max_pool(b, "pool1", z, &after);
    z = g->mean_pool(b, "pool2", z, &smooth);
    z = g->shortcut(b, "shortcut", z, 120, 3);
    z = g->dropout(b, "dropout", z, 0.3);
    z = g->dense(b, "fc1", z, 17, true);
    z = g->batch_norm(b, "norm2", z, &norm);
    z = g->relu(b, "relu", z);
    g->softmax_loss(b, "loss", g->dense(b, "fc2", z, nclass, false));
    return DPB_OK;
}

/* The same code where nothing is round: a window off the image on one side, full and partial
 * vectors of channels, taps that are no multiple of three. */
MIXTURE(uneven, 4, 2, 64, 70)
{
    (void)options;
    const struct dpb_conv_args conv = {
        .channels = 70, .kernel_h = 2, .kernel_w = 5, .padding = DPB_PAD_EXPLICIT, .before = 1};
    uint32_t x = g->max_pool(b, "pool", g->conv(b, "conv", g->input(b), &conv),
                             &(struct dpb_pool_args){.kernel = 5, .stride = 5});
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

/* Weights' gradients in bf16 where nothing is round: an odd number of pixels, more of them than are
 * summed at once; channels of one lane and less, of several groups, panels that are not full; a
 * window with a stride and padding on one side. The first weights are those of a batch-norm whose
 * steps are the ReLU's. */
MIXTURE(pairs, 5, 3, 37, 31)
{
    (void)options;
    const struct dpb_conv_args few = {.channels = 17, .kernel_h = 3};
    const struct dpb_conv_args pointwise = {.channels = 75, .kernel_h = 1};
    const struct dpb_conv_args narrow = {.channels = 7, .kernel_h = 1, .kernel_w = 2};
    const struct dpb_conv_args back = {.channels = 37, .kernel_h = 1, .bias = true};
    const struct dpb_conv_args strided = {.channels = 300, .kernel_h = 3, .stride = 2};
    const struct dpb_batch_norm_args norm = {0};
    uint32_t x = g->relu(b, "relu", g->batch_norm(b, "norm", g->input(b), &norm));
    x = g->conv(b, "conv1", x, &few);
    x = g->conv(b, "conv2", x, &pointwise);
    x = g->conv(b, "conv3", x, &back);
    uint32_t y = g->global_mean(b, "mean1", g->conv(b, "conv4", x, &narrow));
    x = g->conv(b, "conv5", x, &strided);
    x = g->global_mean(b, "mean2", g->conv(b, "conv6", x, &pointwise));
    x = g->concat(b, "concat", (const uint32_t[]){x, y}, 2);
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

MIXTURE(grouped, 5, 3, 21, 18)
{
    (void)options;
    const struct dpb_conv_args image = {.channels = 24, .kernel_h = 5, .groups = 3, .bias = true};
    const struct dpb_conv_args depthwise = {
        .channels = 24, .kernel_h = 3, .stride = 2, .groups = 24};
    const struct dpb_conv_args halved = {.channels = 24,
                                         .kernel_h = 2,
                                         .kernel_w = 3,
                                         .stride = 2,
                                         .groups = 24,
                                         .padding = DPB_PAD_EXPLICIT,
                                         .after = 1};
    const struct dpb_conv_args narrow = {.channels = 32, .kernel_h = 3, .groups = 8};
    const struct dpb_conv_args wide = {.channels = 34, .kernel_h = 3, .groups = 2, .bias = true};
    const struct dpb_conv_args pointwise = {.channels = 51, .kernel_h = 1, .groups = 17};
    const struct dpb_batch_norm_args norm = {0};
    uint32_t x = g->relu(b, "relu1", g->conv(b, "conv1", g->input(b), &image));
    x = g->conv(b, "conv2", x, &depthwise);
    x = g->relu(b, "relu2", g->batch_norm(b, "norm2", x, &norm));
    uint32_t y = g->global_mean(b, "mean1", g->conv(b, "conv3", x, &halved));
    x = g->conv(b, "conv4", x, &narrow);
    x = g->relu(b, "relu4", g->batch_norm(b, "norm4", x, &norm));
    x = g->conv(b, "conv6", g->conv(b, "conv5", x, &wide), &pointwise);
    x = g->concat(b, "concat", (const uint32_t[]){g->global_mean(b, "mean2", x), y}, 2);
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

/* Weights of one branch lie between those of the other and its ReLU: a device that computes a layer
 * with its ReLU must not write the layer's gradients too early. */
MIXTURE(branches, 4, 3, 9, 8)
{
    (void)options;
    const struct dpb_conv_args conv = {.channels = 9, .kernel_h = 3};
    const struct dpb_batch_norm_args norm = {0};
    uint32_t x = g->input(b);
    uint32_t y = g->batch_norm(b, "norm1", g->conv(b, "conv1", x, &conv), &norm);
    uint32_t z = g->batch_norm(b, "norm2", g->conv(b, "conv2", x, &conv), &norm);
    x = g->relu(b, "relu1", g->add(b, "add", y, z));
    y = g->dense(b, "fc1", x, 19, true);
    z = g->dense(b, "fc2", x, 7, true);
    y = g->relu(b, "relu2", y);
    x = g->concat(b, "concat", (const uint32_t[]){y, g->relu(b, "relu3", z)}, 2);
    g->softmax_loss(b, "loss", g->dense(b, "fc3", x, nclass, true));
    return DPB_OK;
}

/* ---- the table ------------------------------------------------------------------------------ */

#define ROW(name) #name, &of_row, net_##name, 0
const struct dpb_network dpb_networks[] = {
    {ROW(dense), DPB_FP32, DPB_CHW},
    {ROW(dense_deep), DPB_FP32, DPB_CHW},
    {ROW(relu), DPB_FP32, DPB_CHW},
    {ROW(conv), DPB_FP32, DPB_CHW},
    {ROW(conv_groups), DPB_FP32, DPB_CHW},
    {ROW(batch_norm), DPB_FP32, DPB_CHW},
    {ROW(max_pool), DPB_FP32, DPB_CHW},
    {ROW(mean_pool), DPB_FP32, DPB_CHW},
    {ROW(add), DPB_FP32, DPB_CHW},
    {ROW(concat), DPB_FP32, DPB_CHW},
    {ROW(dropout), DPB_FP32, DPB_CHW},
    {ROW(lrn), DPB_FP32, DPB_CHW},
    {ROW(shortcut), DPB_FP32, DPB_CHW},
    {ROW(layer_norm), DPB_FP32, DPB_CHW},
    {ROW(gelu), DPB_FP32, DPB_CHW},
    {ROW(attention), DPB_FP32, DPB_CHW},
    {ROW(attention_16), DPB_FP32, DPB_CHW},
    {ROW(positions), DPB_FP32, DPB_CHW},
    {"tokens", &of_tokens, NULL, 0, DPB_INT32, DPB_CHW},
    {"tied", &of_tied, NULL, 0.1, DPB_INT32, DPB_CHW},
    {"fp32_hwc", &of_row, net_dense, 0, DPB_FP32, DPB_HWC},
    {"uint8_chw", &of_row, net_dense, 0, DPB_UINT8, DPB_CHW},
    {"uint8_hwc", &of_row, net_dense, 0, DPB_UINT8, DPB_HWC},
    {"smooth_labels", &of_row, net_dense, 0.1, DPB_FP32, DPB_CHW},
    {"odd", &dpb_network_odd, NULL, 0, DPB_FP32, DPB_HWC},
    {"uneven", &dpb_network_uneven, NULL, 0, DPB_FP32, DPB_HWC},
    {"pairs", &dpb_network_pairs, NULL, 0, DPB_UINT8, DPB_CHW},
    {"grouped", &dpb_network_grouped, NULL, 0, DPB_FP32, DPB_HWC},
    {"branches", &dpb_network_branches, NULL, 0, DPB_FP32, DPB_HWC},
    {.name = NULL},
};

/* ---- models, small -------------------------------------------------------------------------- */

/* The pixels of the smallest output of a convolution. */
static uint64_t least_pixels(const struct dpb_graph *graph)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        const uint64_t pixels = (uint64_t)node->shape.h * node->shape.w;
        if (node->op == DPB_OP_CONV && pixels < least)
            least = pixels;
    }
    return least;
}

dpb_status dpb_network_small(const struct dpb_plugin *model, const void *options, uint32_t pixels,
                             struct dpb_graph **graph)
{
    const struct dpb_model_ops *ops = model->ops;
    struct dpb_model_info info = {.batch = 0};
    ops->describe(options, &info);
    for (uint32_t side = 8; info.any_image && side < info.input.h && side < info.input.w;
         side += 8) {
        const struct dpb_shape input = {info.input.c, side, side};
        if (dpb_graph_build(model->name, ops, options, input, info.nclass, graph) != DPB_OK) {
            dpb_first_error_clear();
            continue;
        }
        if ((*graph)->n_states == 0 || least_pixels(*graph) >= pixels)
            return DPB_OK;
        dpb_graph_destroy(*graph);
    }
    return dpb_graph_build(model->name, ops, options, info.input, info.nclass, graph);
}
