/*
 * builder.c - the calls of a model plugin. Each checks its arguments, infers a shape and appends a
 * node with its tensors.
 */
#include "graph/builder.h"

#include <math.h>

/* The weight of a convolution or dense layer and, if wanted, its bias. */
static bool append_weights(struct dpb_graph_builder *builder, uint32_t n_dims, const uint32_t *dims,
                           bool bias)
{
    struct dpb_node *node = &builder->nodes[builder->graph->n_nodes - 1];
    struct dpb_tensor *weight =
        dpb_graph_append_tensor(builder, &node->weight, "weight", n_dims, dims);
    if (!weight)
        return false;
    weight->decays = true;
    weight->init_stddev = NAN;
    return !bias || dpb_graph_append_tensor(builder, &node->bias, "bias", 1, dims);
}

/* ------------------------------------------------------------------------------------- windows */

/* One axis of a window. */
struct axis {
    uint32_t in, kernel, stride, before, after;
    uint32_t out;
};

/* Sets the sizes that `padding` leaves open; false when the window does not fit. */
static bool infer_axis(struct axis *axis, dpb_padding padding)
{
    uint64_t in = axis->in, kernel = axis->kernel, stride = axis->stride;
    if (padding == DPB_PAD_SAME) {
        uint64_t covered = (in - 1) / stride * stride + kernel;
        uint32_t total = covered > in ? (uint32_t)(covered - in) : 0; /* below the kernel */
        axis->before = total / 2;
        axis->after = total - total / 2;
    } else if (padding == DPB_PAD_VALID) {
        axis->before = axis->after = 0;
    }
    uint64_t padded = in + axis->before + axis->after;
    if (padded < kernel)
        return false;
    axis->out = (uint32_t)((padded - kernel) / stride + 1);
    return true;
}

/* Sets window and output height and width of the node appended last, a convolution or pool. */
static bool set_window(struct dpb_graph_builder *builder, struct dpb_shape in,
                       const struct dpb_conv_args *args, uint32_t *out_h, uint32_t *out_w)
{
    struct dpb_node *node = &builder->nodes[builder->graph->n_nodes - 1];
    uint32_t stride = args->stride ? args->stride : 1;
    uint32_t kernel_h = args->kernel_h, kernel_w = args->kernel_w ? args->kernel_w : kernel_h;
    struct axis h = {.in = in.h, .kernel = kernel_h, .stride = stride};
    struct axis w = {.in = in.w, .kernel = kernel_w, .stride = stride};
    h.before = w.before = args->before;
    h.after = w.after = args->after;
    /* A window of nothing but padding would have no maximum and no mean. */
    const uint32_t smaller = kernel_h < kernel_w ? kernel_h : kernel_w;
    const bool pads = args->padding == DPB_PAD_EXPLICIT;
    if (kernel_h == 0)
        dpb_graph_refuse(builder, node->name, "a kernel has at least 1 pixel");
    else if (!pads && (args->before || args->after))
        dpb_graph_refuse(builder, node->name, "padding (%u,%u) counts with DPB_PAD_EXPLICIT only",
                         args->before, args->after);
    else if (pads && (args->before >= smaller || args->after >= smaller))
        dpb_graph_refuse(builder, node->name,
                         "padding (%u,%u) has to be smaller than the %ux%u kernel", args->before,
                         args->after, kernel_h, kernel_w);
    else if (!infer_axis(&h, args->padding) || !infer_axis(&w, args->padding))
        dpb_graph_refuse(builder, node->name,
                         "a %ux%u window does not fit into %ux%u pixels and their padding; the "
                         "model needs a larger image",
                         kernel_h, kernel_w, in.h, in.w);
    if (builder->status != DPB_OK)
        return false;
    node->window = (struct dpb_window){.kernel_h = kernel_h,
                                       .kernel_w = kernel_w,
                                       .stride_h = stride,
                                       .stride_w = stride,
                                       .pad_top = h.before,
                                       .pad_bottom = h.after,
                                       .pad_left = w.before,
                                       .pad_right = w.after};
    *out_h = h.out;
    *out_w = w.out;
    return true;
}

void dpb_graph_builder_start(struct dpb_graph_builder *builder, struct dpb_shape input)
{
    if (input.c == 0 || input.c > DPB_MAX_CHANNELS) {
        dpb_graph_refuse(builder, NULL, "samples have 1 to %d channels, not %u", DPB_MAX_CHANNELS,
                         input.c);
        return;
    }
    if (dpb_graph_append_node(builder, DPB_OP_INPUT, "input", NULL, 0))
        dpb_graph_end_node(builder, input.c, input.h, input.w);
}

static uint32_t input_node(struct dpb_graph_builder *builder)
{
    return builder->status == DPB_OK ? 0 : DPB_NONE;
}

static uint32_t add_conv(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                         const struct dpb_conv_args *args)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_CONV, name, &input, 1);
    if (!node)
        return DPB_NONE;
    struct dpb_shape in = builder->nodes[input].shape;
    uint32_t h, w;
    if (!set_window(builder, in, args, &h, &w))
        return DPB_NONE;
    node->groups = args->groups ? args->groups : 1;
    if (in.c % node->groups != 0 || args->channels % node->groups != 0)
        return dpb_graph_refuse(
            builder, name,
            "%u groups have to divide both its %u input channels and its %u output channels",
            node->groups, in.c, args->channels);
    uint32_t dims[4] = {args->channels, in.c / node->groups, node->window.kernel_h,
                        node->window.kernel_w};
    if (!append_weights(builder, 4, dims, args->bias))
        return DPB_NONE;
    node->macs = builder->tensors[node->weight].n_elements * ((uint64_t)h * w);
    return dpb_graph_end_node(builder, args->channels, h, w);
}

static uint32_t add_batch_norm(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                               const struct dpb_batch_norm_args *args)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_BATCH_NORM, name, &input, 1);
    if (!node)
        return DPB_NONE;
    node->epsilon = args->epsilon == 0.0 ? 1e-5 : args->epsilon;
    node->keep_average = args->keep_average == 0.0 ? 0.9 : args->keep_average;
    if (!(node->epsilon > 0.0) || !(node->keep_average > 0.0 && node->keep_average < 1.0))
        return dpb_graph_refuse(builder, name,
                                "epsilon %g has to be positive and keep_average %g within 0 and 1",
                                node->epsilon, node->keep_average);
    struct dpb_shape in = builder->nodes[input].shape;
    if (!args->no_gamma) {
        struct dpb_tensor *gamma =
            dpb_graph_append_tensor(builder, &node->weight, "weight", 1, &in.c);
        if (!gamma)
            return DPB_NONE;
        gamma->init_value = 1.0;
    }
    if (!dpb_graph_append_tensor(builder, &node->bias, "bias", 1, &in.c))
        return DPB_NONE;
    uint32_t index = dpb_graph_end_node(builder, in.c, in.h, in.w);
    node->mean = dpb_graph_append_state(builder, "running_mean", 0.0);
    node->variance = dpb_graph_append_state(builder, "running_var", 1.0);
    return node->variance == DPB_NONE ? DPB_NONE : index;
}

static uint32_t add_relu(struct dpb_graph_builder *builder, const char *name, uint32_t input)
{
    if (!dpb_graph_append_node(builder, DPB_OP_RELU, name, &input, 1))
        return DPB_NONE;
    return dpb_graph_keep_shape(builder, input);
}

static uint32_t add_pool(struct dpb_graph_builder *builder, dpb_op op, const char *name,
                         uint32_t input, const struct dpb_pool_args *args)
{
    if (!dpb_graph_append_node(builder, op, name, &input, 1))
        return DPB_NONE;
    struct dpb_conv_args window = {.kernel_h = args->kernel,
                                   .stride = args->stride,
                                   .padding = args->padding,
                                   .before = args->before,
                                   .after = args->after};
    struct dpb_shape in = builder->nodes[input].shape;
    uint32_t h, w;
    if (!set_window(builder, in, &window, &h, &w))
        return DPB_NONE;
    return dpb_graph_end_node(builder, in.c, h, w);
}

static uint32_t add_max_pool(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                             const struct dpb_pool_args *args)
{
    return add_pool(builder, DPB_OP_MAX_POOL, name, input, args);
}

static uint32_t add_mean_pool(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                              const struct dpb_pool_args *args)
{
    return add_pool(builder, DPB_OP_MEAN_POOL, name, input, args);
}

static uint32_t add_global_mean(struct dpb_graph_builder *builder, const char *name, uint32_t input)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_MEAN_POOL, name, &input, 1);
    if (!node)
        return DPB_NONE;
    struct dpb_shape in = builder->nodes[input].shape;
    node->window =
        (struct dpb_window){.kernel_h = in.h, .kernel_w = in.w, .stride_h = 1, .stride_w = 1};
    return dpb_graph_end_node(builder, in.c, 1, 1);
}

static uint32_t add_dense(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                          uint32_t features, bool bias)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_DENSE, name, &input, 1);
    if (!node)
        return DPB_NONE;
    uint32_t fan_in = (uint32_t)dpb_shape_elements(builder->nodes[input].shape);
    if (!append_weights(builder, 2, (const uint32_t[]){features, fan_in}, bias))
        return DPB_NONE;
    node->macs = builder->tensors[node->weight].n_elements;
    return dpb_graph_end_node(builder, features, 1, 1);
}

static uint32_t add_add(struct dpb_graph_builder *builder, const char *name, uint32_t a, uint32_t b)
{
    if (!dpb_graph_append_node(builder, DPB_OP_ADD, name, (const uint32_t[]){a, b}, 2))
        return DPB_NONE;
    const struct dpb_node *first = &builder->nodes[a], *second = &builder->nodes[b];
    struct dpb_shape in = first->shape, other = second->shape;
    if (in.c != other.c || in.h != other.h || in.w != other.w)
        return dpb_graph_refuse(
            builder, name, "adds '%s' of %ux%ux%u and '%s' of %ux%ux%u: shapes have to be equal",
            first->name, in.c, in.h, in.w, second->name, other.c, other.h, other.w);
    return dpb_graph_end_node(builder, in.c, in.h, in.w);
}

static uint32_t add_concat(struct dpb_graph_builder *builder, const char *name,
                           const uint32_t *inputs, uint32_t n_inputs)
{
    if (builder->status == DPB_OK && (n_inputs < 2 || n_inputs > DPB_MAX_INPUTS))
        dpb_graph_refuse(builder, name, "joins %u nodes; 2 to %d are possible", n_inputs,
                         DPB_MAX_INPUTS);
    if (!dpb_graph_append_node(builder, DPB_OP_CONCAT, name, inputs, n_inputs))
        return DPB_NONE;
    const struct dpb_node *first = &builder->nodes[inputs[0]];
    uint64_t channels = 0;
    for (uint32_t i = 0; i < n_inputs; i++) {
        const struct dpb_node *node = &builder->nodes[inputs[i]];
        if (node->shape.h != first->shape.h || node->shape.w != first->shape.w)
            return dpb_graph_refuse(
                builder, name,
                "joins '%s' of %ux%u pixels and '%s' of %ux%u: height and width have to be equal",
                first->name, first->shape.h, first->shape.w, node->name, node->shape.h,
                node->shape.w);
        channels += node->shape.c;
    }
    return dpb_graph_end_node(builder, channels > UINT32_MAX ? UINT32_MAX : (uint32_t)channels,
                              first->shape.h, first->shape.w);
}

static uint32_t add_dropout(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                            double rate)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_DROPOUT, name, &input, 1);
    if (!node)
        return DPB_NONE;
    if (!(rate >= 0.0 && rate < 1.0))
        return dpb_graph_refuse(builder, name, "rate %g is not within [0, 1)", rate);
    node->rate = rate;
    return dpb_graph_keep_shape(builder, input);
}

static uint32_t add_lrn(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                        const struct dpb_lrn_args *args)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_LRN, name, &input, 1);
    if (!node)
        return DPB_NONE;
    if (!(args->k > 0.0 && args->alpha >= 0.0 && isfinite(args->beta)))
        return dpb_graph_refuse(builder, name,
                                "k %g has to be positive, alpha %g not negative, beta %g finite",
                                args->k, args->alpha, args->beta);
    node->lrn_radius = args->radius;
    node->lrn_k = args->k;
    node->lrn_alpha = args->alpha;
    node->lrn_beta = args->beta;
    return dpb_graph_keep_shape(builder, input);
}

static uint32_t add_shortcut(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                             uint32_t channels, uint32_t stride)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_SHORTCUT, name, &input, 1);
    if (!node)
        return DPB_NONE;
    struct dpb_shape in = builder->nodes[input].shape;
    if (channels < in.c)
        return dpb_graph_refuse(
            builder, name, "makes %u channels of %u; it can only append channels", channels, in.c);
    stride = stride ? stride : 1;
    node->window =
        (struct dpb_window){.kernel_h = 1, .kernel_w = 1, .stride_h = stride, .stride_w = stride};
    return dpb_graph_end_node(builder, channels, (in.h - 1) / stride + 1, (in.w - 1) / stride + 1);
}

static uint32_t add_tensor(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                           uint32_t n_elements, uint64_t macs)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_TENSOR, name, &input, 1);
    struct dpb_tensor *tensor =
        node ? dpb_graph_append_tensor(builder, &node->weight, "", 1, &n_elements) : NULL;
    if (!tensor)
        return DPB_NONE;
    tensor->decays = true;
    tensor->init_value = 0.02;
    node->macs = macs;
    return dpb_graph_keep_shape(builder, input);
}

/* ---------------------------------------------------------------------------------- sequences */

enum { MOST_IDS = 1 << 24 /* which fp32 holds exactly: device reference */ };

static uint32_t add_embedding(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                              uint32_t channels)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_EMBEDDING, name, &input, 1);
    const uint32_t nclass = builder->graph->nclass;
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    if (input != 0 || in.c != 1 || in.h != 1 || nclass > MOST_IDS)
        return dpb_graph_refuse(builder, name,
                                "reads '%s' of %ux%ux%u for %u classes; it needs the samples, {1, "
                                "1, length} ids of at most %d classes",
                                builder->nodes[input].name, in.c, in.h, in.w, nclass, MOST_IDS);
    struct dpb_tensor *rows = dpb_graph_append_tensor(builder, &node->weight, "weight", 2,
                                                      (const uint32_t[]){nclass, channels});
    if (!rows)
        return DPB_NONE;
    rows->decays = true;
    rows->init_stddev = 0.02;
    return dpb_graph_end_node(builder, channels, 1, in.w);
}

static uint32_t add_tied(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                         uint32_t embedding)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_CONV, name, &input, 1);
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    struct dpb_node *with = embedding < builder->graph->n_nodes ? &builder->nodes[embedding] : NULL;
    if (!with || with->op != DPB_OP_EMBEDDING || with->tied || with->shape.c != in.c)
        return dpb_graph_refuse(
            builder, name,
            "takes the weight of an embedding of %u channels that nothing else takes", in.c);
    with->tied = node->tied = true;
    node->weight = with->weight;
    node->groups = 1;
    node->window = (struct dpb_window){.kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1};
    node->macs = builder->tensors[node->weight].n_elements * ((uint64_t)in.h * in.w);
    return dpb_graph_end_node(builder, builder->graph->nclass, in.h, in.w);
}

static uint32_t add_layer_norm(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                               double epsilon)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_LAYER_NORM, name, &input, 1);
    if (!node)
        return DPB_NONE;
    if (!(epsilon > 0.0))
        return dpb_graph_refuse(builder, name, "epsilon %g has to be positive", epsilon);
    const uint32_t channels = builder->nodes[input].shape.c;
    node->epsilon = epsilon;
    struct dpb_tensor *gamma =
        dpb_graph_append_tensor(builder, &node->weight, "weight", 1, &channels);
    if (!gamma)
        return DPB_NONE;
    gamma->init_value = 1.0;
    if (!dpb_graph_append_tensor(builder, &node->bias, "bias", 1, &channels))
        return DPB_NONE;
    return dpb_graph_keep_shape(builder, input);
}

static uint32_t add_gelu(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                         bool tanh)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_GELU, name, &input, 1);
    if (!node)
        return DPB_NONE;
    node->tanh = tanh;
    return dpb_graph_keep_shape(builder, input);
}

static uint32_t add_attention(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                              const struct dpb_attention_args *args)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_ATTENTION, name, &input, 1);
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    const uint64_t length = in.w;
    if (in.h != 1 || args->heads == 0 || in.c % (3 * args->heads) != 0)
        return dpb_graph_refuse(
            builder, name,
            "gets %ux%ux%u for %u heads; it needs a sequence {3 width, 1, length} of queries, keys "
            "and values, and heads that divide the width",
            in.c, in.h, in.w, args->heads);
    node->heads = args->heads;
    node->causal = args->causal;
    /* Queries by keys, then probabilities by values. */
    node->macs = 2 * (in.c / 3) * (args->causal ? length * (length + 1) / 2 : length * length);
    return dpb_graph_end_node(builder, in.c / 3, 1, in.w);
}

static uint32_t add_positions(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                              const struct dpb_positions_args *args)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_POSITIONS, name, &input, 1);
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    const uint32_t positions = in.h * in.w, rows = args->rows ? args->rows : positions;
    if (rows < positions)
        return dpb_graph_refuse(
            builder, name, "has %u rows for %u positions; take shorter sequences", rows, positions);
    struct dpb_tensor *table = dpb_graph_append_tensor(builder, &node->weight, "weight", 2,
                                                       (const uint32_t[]){rows, in.c});
    if (!table)
        return DPB_NONE;
    table->decays = args->decays;
    table->init_stddev = args->init_stddev > 0.0 ? args->init_stddev : 0.02;
    return dpb_graph_keep_shape(builder, input);
}

static uint32_t add_prepend(struct dpb_graph_builder *builder, const char *name, uint32_t input)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_PREPEND, name, &input, 1);
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    struct dpb_tensor *token = dpb_graph_append_tensor(builder, &node->weight, "weight", 1, &in.c);
    if (!token)
        return DPB_NONE;
    token->init_stddev = 0.02;
    return dpb_graph_end_node(builder, in.c, 1, 1 + in.h * in.w);
}

/* ------------------------------------------------------------------------------------ the loss */

static uint32_t add_softmax_loss(struct dpb_graph_builder *builder, const char *name,
                                 uint32_t input)
{
    if (!dpb_graph_append_node(builder, DPB_OP_SOFTMAX_LOSS, name, &input, 1))
        return DPB_NONE;
    const struct dpb_node *logits = &builder->nodes[input];
    const struct dpb_shape shape = logits->shape, samples = builder->nodes[0].shape;
    const bool of_ids = dpb_graph_reads_ids(builder->graph);
    const bool each = of_ids && shape.h == 1 && shape.w == samples.w;
    if (shape.c != builder->graph->nclass || !(each || (!of_ids && shape.h == 1 && shape.w == 1)))
        return dpb_graph_refuse(
            builder, name, "gets '%s' of %ux%ux%u for %u classes; it needs a feature a class%s",
            logits->name, shape.c, shape.h, shape.w, builder->graph->nclass,
            of_ids ? " at each position of the samples" : "");
    builder->ended = true;
    return dpb_graph_end_node(builder, 1, shape.h, shape.w);
}

static double fan_out(const struct dpb_node *node, const struct dpb_tensor *weight)
{
    const uint32_t groups = node->op == DPB_OP_CONV ? node->groups : 1;
    const uint64_t outputs = weight->n_elements / weight->dims[1] / groups;
    return (double)outputs;
}

/* Why a tensor cannot begin so; NULL: it can. */
static const char *initial_mistake(const struct dpb_tensor *tensor,
                                   const struct dpb_initial *initial)
{
    switch (initial->rule) {
    case DPB_INITIAL_NORMAL:
        return initial->value >= 0.0 && isfinite(initial->value)
                   ? NULL
                   : "a standard deviation is finite and not negative";
    case DPB_INITIAL_CONSTANT:
        return isfinite(initial->value) ? NULL : "a constant is finite";
    case DPB_INITIAL_HE_NORMAL:
    case DPB_INITIAL_GLOROT_UNIFORM:
        return tensor->n_dims > 1 ? NULL : "it has no fan-in; it may be a constant or normal";
    }
    return "dpb_initial_rule has no such rule";
}

static void choose_initial(struct dpb_graph_builder *builder, const struct dpb_node *node,
                           uint32_t index, const char *what, const struct dpb_initial *initial)
{
    if (!initial || builder->status != DPB_OK)
        return;
    if (index == DPB_NONE) {
        dpb_graph_refuse(builder, node->name, "has no %s to choose initial values for", what);
        return;
    }
    struct dpb_tensor *tensor = &builder->tensors[index];
    const char *mistake = initial_mistake(tensor, initial);
    if (mistake) {
        dpb_graph_refuse(builder, node->name, "its %s cannot begin by rule %d and value %g: %s",
                         what, (int)initial->rule, initial->value, mistake);
        return;
    }
    tensor->init_uniform = initial->rule == DPB_INITIAL_GLOROT_UNIFORM;
    tensor->init_value = initial->rule == DPB_INITIAL_CONSTANT ? initial->value : 0.0;
    tensor->init_stddev = initial->rule == DPB_INITIAL_NORMAL ? initial->value : 0.0;
    if (initial->rule == DPB_INITIAL_HE_NORMAL)
        tensor->init_stddev = sqrt(2.0 / dpb_graph_fan_in(tensor));
    if (initial->rule == DPB_INITIAL_GLOROT_UNIFORM)
        tensor->init_stddev = sqrt(2.0 / (dpb_graph_fan_in(tensor) + fan_out(node, tensor)));
}

static uint32_t set_initial(struct dpb_graph_builder *builder, uint32_t node,
                            const struct dpb_initial *weight, const struct dpb_initial *bias)
{
    if (builder->status != DPB_OK)
        return DPB_NONE;
    if (node >= builder->graph->n_nodes)
        return dpb_graph_refuse(builder, NULL,
                                "chooses initial values for a node that no earlier call returned");
    const struct dpb_node *chosen = &builder->nodes[node];
    choose_initial(builder, chosen, chosen->weight, "weight", weight);
    choose_initial(builder, chosen, chosen->bias, "bias", bias);
    return builder->status == DPB_OK ? node : DPB_NONE;
}

static struct dpb_shape node_shape(const struct dpb_graph_builder *builder, uint32_t node)
{
    if (node >= builder->graph->n_nodes)
        return (struct dpb_shape){0, 0, 0};
    return builder->nodes[node].shape;
}

const struct dpb_graph_ops dpb_graph_builder_ops = {
    .input = input_node,
    .conv = add_conv,
    .batch_norm = add_batch_norm,
    .relu = add_relu,
    .max_pool = add_max_pool,
    .mean_pool = add_mean_pool,
    .global_mean = add_global_mean,
    .dense = add_dense,
    .add = add_add,
    .concat = add_concat,
    .dropout = add_dropout,
    .lrn = add_lrn,
    .shortcut = add_shortcut,
    .embedding = add_embedding,
    .tied = add_tied,
    .layer_norm = add_layer_norm,
    .gelu = add_gelu,
    .attention = add_attention,
    .positions = add_positions,
    .prepend = add_prepend,
    .initial = set_initial,
    .tensor = add_tensor,
    .softmax_loss = add_softmax_loss,
    .shape = node_shape,
};
