/*
 * test_graph.c - the graph builder: padding, layout, initial values, and what is refused. The
 * networks themselves: test_model_counts.c, test_model_shapes.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lib/capture.h"
#include "lib/model.h"
#include "lib/own.h"
#include "lib/test.h"

/* Tiny, and transformers for those of sequences. */
TEST(test_tiny_has_every_op)
{
    struct dpb_graph *graph = model_build("tiny", NULL, 5), *vit = model_build("vit", NULL, 5);
    struct dpb_graph *gpt = model_build("gpt_tiny", NULL, 5);
    bool seen[DPB_OPS] = {false};
    for (uint32_t i = 0; i < vit->n_nodes; i++)
        seen[vit->nodes[i].op] = true;
    for (uint32_t i = 0; i < gpt->n_nodes; i++)
        seen[gpt->nodes[i].op] = true;
    bool bias[2] = {false}, gamma[2] = {false}, dense_bias[2] = {false};
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        seen[node->op] = true;
        if (node->op == DPB_OP_CONV)
            bias[node->bias != DPB_NONE] = true;
        if (node->op == DPB_OP_DENSE)
            dense_bias[node->bias != DPB_NONE] = true;
        if (node->op == DPB_OP_BATCH_NORM)
            gamma[node->weight != DPB_NONE] = true;
    }
    for (int op = 0; op < DPB_OPS; op++)
        assert_true(seen[op] || op == DPB_OP_TENSOR); /* which no device computes */
    assert_true(bias[0] && bias[1] && gamma[0] && gamma[1] && dense_bias[0] && dense_bias[1]);
    assert_true(graph->n_parameters <= 2000);
}

/* 'same' against its definition on every small size: ceil(in / stride) windows that fit, the first
 * and the last of which see a pixel, and an even split with the odd one after. */
static uint32_t same_kernel, same_stride;

static dpb_status build_same(const void *options, const struct dpb_graph_ops *g,
                             struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_pool_args args = {.kernel = same_kernel, .stride = same_stride};
    uint32_t x = g->max_pool(b, "pool", g->input(b), &args);
    x = g->dense(b, "fc", x, nclass, false);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

TEST(test_same_padding)
{
    static const struct dpb_model_ops model = {.build = build_same};
    for (uint32_t in = 1; in <= 12; in++) {
        for (same_kernel = 1; same_kernel <= 6; same_kernel++) {
            for (same_stride = 1; same_stride <= 6; same_stride++) {
                struct dpb_graph *graph;
                struct dpb_shape shape = {1, in, in};
                assert_int_equal(dpb_graph_build("same", &model, NULL, shape, 2, &graph), DPB_OK);
                const struct dpb_node *pool = graph_node(graph, "pool");
                uint32_t before = pool->window.pad_top, after = pool->window.pad_bottom;
                uint32_t out = (in + same_stride - 1) / same_stride;
                assert_int_equal(pool->shape.h, out);
                assert_true(after == before || after == before + 1);
                assert_true(before < same_kernel && after < same_kernel);
                uint32_t covered = (out - 1) * same_stride + same_kernel;
                assert_int_equal(before + after, covered > in ? covered - in : 0);
                dpb_graph_destroy(graph);
            }
        }
    }
}

/* --------------------------------------------------------------------------------------- layout */

static void check_tensors(const struct dpb_graph *graph)
{
    uint64_t end = 0, parameters = 0;
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        const struct dpb_tensor *tensor = &graph->tensors[i];
        const struct dpb_node *node = &graph->nodes[tensor->node];
        assert_int_equal(tensor->offset % DPB_TENSOR_ALIGN, 0);
        assert_int_equal(tensor->offset,
                         (end + DPB_TENSOR_ALIGN - 1) / DPB_TENSOR_ALIGN * DPB_TENSOR_ALIGN);
        end = tensor->offset + tensor->n_elements;
        parameters += tensor->n_elements;

        bool weight = node->weight == i;
        assert_true(weight || node->bias == i);
        if (i > 0) {
            const struct dpb_tensor *before = &graph->tensors[i - 1];
            bool same_node = before->node == tensor->node;
            assert_true(before->node > tensor->node || (same_node && !weight));
        }
        uint64_t product = 1;
        for (uint32_t k = 0; k < tensor->n_dims; k++)
            product *= tensor->dims[k];
        assert_int_equal(tensor->n_elements, product);
        const bool positions = node->op == DPB_OP_POSITIONS && !dpb_graph_reads_ids(graph);
        assert_true(tensor->decays == (tensor->n_dims > 1 && !positions));

        char name[128];
        snprintf(name, sizeof name, "%s.%s", node->name, weight ? "weight" : "bias");
        assert_string_equal(tensor->name, name);

        uint64_t next = i + 1 < graph->n_tensors ? graph->tensors[i + 1].offset : graph->n_elements;
        assert_int_equal(dpb_graph_tensor_at(graph, tensor->offset), i);
        assert_int_equal(dpb_graph_tensor_at(graph, next - 1), i); /* last element, or the gap */
    }
    assert_int_equal(graph->n_parameters, parameters);
    assert_int_equal(graph->n_elements,
                     (end + DPB_TENSOR_ALIGN - 1) / DPB_TENSOR_ALIGN * DPB_TENSOR_ALIGN);
}

static void check_states(const struct dpb_graph *graph)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < graph->n_states; i++) {
        const struct dpb_state *state = &graph->states[i];
        const struct dpb_node *node = &graph->nodes[state->node];
        bool mean = node->mean == i;
        assert_true(mean || node->variance == i);
        assert_int_equal(state->offset,
                         (end + DPB_TENSOR_ALIGN - 1) / DPB_TENSOR_ALIGN * DPB_TENSOR_ALIGN);
        assert_int_equal(state->n_elements, node->shape.c);
        assert_true(i == 0 || graph->states[i - 1].node <= state->node);
        assert_true(state->keep_average == node->keep_average);
        char name[128];
        snprintf(name, sizeof name, "%s.%s", node->name, mean ? "running_mean" : "running_var");
        assert_string_equal(state->name, name);
        end = state->offset + state->n_elements;
    }
    assert_int_equal(graph->n_state_elements % DPB_TENSOR_ALIGN, 0);
    assert_true(graph->n_state_elements >= end && graph->n_state_elements < end + DPB_TENSOR_ALIGN);
}

static void check_layout(const struct dpb_plugin *model, const char *version)
{
    struct dpb_graph *graph = model_graph(model, version, model_info(model).input, 7);
    check_tensors(graph);
    check_states(graph);
    dpb_graph_destroy(graph);
}

TEST(test_layout)
{
    for (size_t i = 0; model_at(i); i++)
        check_layout(model_at(i), NULL);
    check_layout(model_find("resnet50"), "v1");
    check_layout(model_find("resnet50"), "v2");
    struct dpb_graph *lenet = model_build("lenet", NULL, 10);
    assert_string_equal(lenet->tensors[0].name, "fc2.weight");
    assert_string_equal(lenet->tensors[1].name, "fc2.bias");
    assert_string_equal(lenet->tensors[7].name, "conv1.bias");
}

TEST(test_hash)
{
    const struct dpb_plugin *lenet = model_find("lenet");
    const struct dpb_plugin *resnet50 = model_find("resnet50");
    const struct dpb_shape digit = {1, 28, 28}, larger = {1, 29, 29}, image = {3, 224, 224};
    struct dpb_graph *graphs[] = {
        model_graph(lenet, NULL, digit, 10),        model_graph(lenet, NULL, digit, 11),
        model_graph(lenet, NULL, larger, 10),       model_graph(resnet50, "v1", image, 1000),
        model_graph(resnet50, "v1.5", image, 1000), model_graph(resnet50, "v2", image, 1000),
    };
    struct dpb_graph *again = model_graph(lenet, NULL, digit, 10);
    assert_true(dpb_graph_hash(graphs[0]) == dpb_graph_hash(again));
    dpb_graph_destroy(again);
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        for (size_t k = 0; k < i; k++)
            assert_true(dpb_graph_hash(graphs[i]) != dpb_graph_hash(graphs[k]));
    }
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
        dpb_graph_destroy(graphs[i]);
    dpb_graph_destroy(NULL);
}

/* -------------------------------------------------------------------------------- initial value */

static double *initial_weights(const struct dpb_graph *graph, uint64_t seed)
{
    double *weights = malloc(graph->n_elements * sizeof *weights);
    assert_non_null(weights);
    dpb_graph_initialise(graph, seed, DPB_FP64, weights);
    return own_memory(weights, free);
}

/* Mean within 5 and standard deviation within 5 of their own standard deviations (a uniform
 * distribution's are smaller). */
static void assert_normal(const struct dpb_graph *graph, const double *weights, const char *name,
                          double stddev)
{
    const struct dpb_tensor *tensor = graph_tensor(graph, name);
    double n = (double)tensor->n_elements, sum = 0.0, squares = 0.0;
    for (uint64_t i = 0; i < tensor->n_elements; i++)
        sum += weights[tensor->offset + i];
    for (uint64_t i = 0; i < tensor->n_elements; i++) {
        double difference = weights[tensor->offset + i] - sum / n;
        squares += difference * difference;
    }
    if (fabs(sum / n) > 5.0 * stddev / sqrt(n))
        fail_msg("%s: mean %g", name, sum / n);
    if (fabs(sqrt(squares / (n - 1.0)) / stddev - 1.0) > 5.0 / sqrt(2.0 * n))
        fail_msg("%s: standard deviation %g, not %g", name, sqrt(squares / (n - 1.0)), stddev);
}

/* Uniform within +-limit: moments, and values near both ends. */
static void assert_uniform(const struct dpb_graph *graph, const double *weights, const char *name,
                           double limit)
{
    const struct dpb_tensor *tensor = graph_tensor(graph, name);
    double least = INFINITY, most = -INFINITY;
    assert_normal(graph, weights, name, limit / sqrt(3.0));
    for (uint64_t i = 0; i < tensor->n_elements; i++) {
        least = fmin(least, weights[tensor->offset + i]);
        most = fmax(most, weights[tensor->offset + i]);
    }
    if (!(least > -limit && least < -0.98 * limit && most < limit && most > 0.98 * limit))
        fail_msg("%s: from %g to %g, not within +-%g", name, least, most, limit);
}

static void assert_constant(const struct dpb_graph *graph, const double *weights, const char *name,
                            double value)
{
    const struct dpb_tensor *tensor = graph_tensor(graph, name);
    for (uint64_t i = 0; i < tensor->n_elements; i++)
        assert_true(weights[tensor->offset + i] == value);
}

TEST(test_initial_values)
{
    struct dpb_graph *lenet = model_build("lenet", NULL, 100);
    double *weights = initial_weights(lenet, 1);
    assert_normal(lenet, weights, "conv1.weight", sqrt(2.0 / (5 * 5 * 1)));
    assert_normal(lenet, weights, "conv2.weight", sqrt(2.0 / (5 * 5 * 32)));
    assert_normal(lenet, weights, "fc1.weight", sqrt(2.0 / (7 * 7 * 64)));
    assert_normal(lenet, weights, "fc2.weight", sqrt(1.0 / 512));
    assert_constant(lenet, weights, "conv1.bias", 0.0);
    assert_constant(lenet, weights, "fc2.bias", 0.0);

    struct dpb_graph *resnet20 = model_build("resnet20", NULL, 10);
    weights = initial_weights(resnet20, 2);
    assert_normal(resnet20, weights, "layer3.2.conv2.weight", sqrt(2.0 / (3 * 3 * 64)));
    assert_normal(resnet20, weights, "fc.weight", sqrt(1.0 / 64));
    assert_constant(resnet20, weights, "layer3.2.bn2.weight", 1.0);
    assert_constant(resnet20, weights, "layer3.2.bn2.bias", 0.0);
}

/* Tensors alone, as model `profile` has them. */
static dpb_status build_tensors(const void *options, const struct dpb_graph_ops *g,
                                struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)nclass;
    uint32_t x = g->tensor(b, "first.weight", g->input(b), 17, 1000);
    x = g->tensor(b, options ? "first.weight" : "last.bias", x, 5, 0);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

TEST(test_tensors)
{
    static const struct dpb_model_ops tensors = {.build = build_tensors};
    const struct dpb_shape input = {2, 1, 1};
    struct dpb_graph *graph = NULL;
    assert_int_equal(dpb_graph_build("tensors", &tensors, NULL, input, 2, &graph), DPB_OK);
    own_graph(graph);
    assert_int_equal(graph->n_tensors, 2);
    assert_string_equal(graph->tensors[0].name, "last.bias");
    assert_string_equal(graph->tensors[1].name, "first.weight");
    assert_int_equal(graph->tensors[1].offset, 16);
    assert_int_equal(graph->n_parameters, 22);
    assert_int_equal(graph->macs, 1000);
    assert_int_equal(dpb_graph_build("tensors", &tensors, "twice", input, 2, &graph), DPB_USAGE);
    dpb_first_error_clear();
}

/* A layer of every rule. */
static dpb_status build_initial(const void *options, const struct dpb_graph_ops *g,
                                struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args conv = {.channels = 60, .kernel_h = 5, .groups = 3, .bias = true};
    const struct dpb_batch_norm_args norm = {0};
    const struct dpb_initial glorot = {.rule = DPB_INITIAL_GLOROT_UNIFORM};
    const struct dpb_initial he = {.rule = DPB_INITIAL_HE_NORMAL};
    const struct dpb_initial small = {.rule = DPB_INITIAL_NORMAL, .value = 0.01};
    const struct dpb_initial third = {.rule = DPB_INITIAL_CONSTANT, .value = 1.0 / 3};
    const struct dpb_initial zero = {.rule = DPB_INITIAL_CONSTANT};
    uint32_t x = g->initial(b, g->conv(b, "conv1", g->input(b), &conv), &glorot, &third);
    x = g->initial(b, g->conv(b, "conv2", x, &conv), &small, &small);
    x = g->initial(b, g->batch_norm(b, "norm", x, &norm), &zero, NULL);
    x = g->dense(b, "fc1", x, 40, true);
    uint32_t logits = g->dense(b, "fc2", x, nclass, true);
    g->initial(b, g->initial(b, logits, &third, NULL), &he, NULL); /* the last one counts */
    g->initial(b, x, &glorot, NULL);                               /* in any order */
    g->softmax_loss(b, "loss", logits);
    return DPB_OK;
}

TEST(test_chosen_initial_values)
{
    static const struct dpb_model_ops model = {.build = build_initial};
    struct dpb_graph *graph;
    const struct dpb_shape image = {3, 6, 6};
    assert_int_equal(dpb_graph_build("m", &model, NULL, image, 100, &graph), DPB_OK);
    double *weights = initial_weights(graph, 1);
    assert_uniform(graph, weights, "conv1.weight", sqrt(6.0 / (5 * 5 * 1 + 5 * 5 * 20)));
    assert_constant(graph, weights, "conv1.bias", 1.0 / 3);
    assert_normal(graph, weights, "conv2.weight", 0.01);
    assert_normal(graph, weights, "conv2.bias", 0.01);
    assert_constant(graph, weights, "norm.weight", 0.0);
    assert_constant(graph, weights, "norm.bias", 0.0);
    assert_uniform(graph, weights, "fc1.weight", sqrt(6.0 / (6 * 6 * 60 + 40)));
    assert_normal(graph, weights, "fc2.weight", sqrt(2.0 / 40));
    assert_constant(graph, weights, "fc2.bias", 0.0);
    dpb_graph_destroy(graph);
}

static bool feeds_the_loss(const struct dpb_graph *graph, uint32_t node)
{
    return graph->nodes[graph->n_nodes - 1].inputs[0] == node;
}

static double n_blocks_of(const struct dpb_graph *graph)
{
    double n = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        n += graph->nodes[i].op == DPB_OP_ATTENTION;
    return n;
}

/* He's for convolutions and hidden dense layers, 1 / sqrt(fan-in) for the last; constants else. Of
 * cifar_cnn Glorot's for all of them, of transformers 0.02. */
static void check_initial(const struct dpb_graph *graph)
{
    const bool glorot = strcmp(graph->name, "cifar_cnn") == 0;
    const bool gpt = strncmp(graph->name, "gpt", 3) == 0;
    const bool transformer = gpt || strncmp(graph->name, "vit", 3) == 0;
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        const struct dpb_tensor *tensor = &graph->tensors[i];
        const struct dpb_node *node = &graph->nodes[tensor->node];
        double stddev = 0.0, value = 0.0;
        bool uniform = false;
        if (node->weight == i && (node->op == DPB_OP_BATCH_NORM || node->op == DPB_OP_LAYER_NORM)) {
            value = 1.0;
        } else if (node->weight == i && transformer) {
            stddev = 0.02;
            if (gpt && node->op == DPB_OP_POSITIONS)
                stddev = 0.01;
            if (gpt && (strstr(node->name, "projection") || strstr(node->name, "fc2")))
                stddev = 0.02 / sqrt(2 * n_blocks_of(graph));
        } else if (node->weight == i) {
            struct dpb_shape in = graph->nodes[node->inputs[0]].shape;
            double window = (double)node->window.kernel_h * node->window.kernel_w;
            double fan_in =
                node->op == DPB_OP_CONV ? in.c / node->groups * window : (double)in.c * in.h * in.w;
            stddev = sqrt((feeds_the_loss(graph, tensor->node) ? 1.0 : 2.0) / fan_in);
            uniform = glorot;
            if (glorot) /* of one group */
                stddev = sqrt(
                    2.0 / (fan_in + tensor->dims[0] * (node->op == DPB_OP_CONV ? window : 1.0)));
        }
        if (fabs(tensor->init_stddev - stddev) > 1e-15 || tensor->init_value != value ||
            tensor->init_uniform != uniform)
            fail_msg("%s: %s begins at %g +- %g, not %g +- %g", graph->name, tensor->name,
                     tensor->init_value, tensor->init_stddev, value, stddev);
    }
}

TEST(test_initial_values_of_every_model)
{
    for (size_t i = 0; model_at(i); i++) {
        struct dpb_graph *graph = model_build(model_at(i)->name, NULL, 7);
        check_initial(graph);
    }
}

TEST(test_initial_values_by_type_and_seed)
{
    struct dpb_graph *graph = model_build("tiny", NULL, 5);
    double *weights = initial_weights(graph, 3), *others = initial_weights(graph, 4);
    float *rounded = own_memory(malloc(graph->n_elements * sizeof *rounded), free);
    assert_non_null(rounded);
    memset(rounded, 0xff, graph->n_elements * sizeof *rounded);
    dpb_graph_initialise(graph, 3, DPB_FP32, rounded);
    uint64_t n_equal = 0, n_zero = 0;
    for (uint64_t i = 0; i < graph->n_elements; i++) {
        assert_true(rounded[i] == (float)weights[i]);
        n_equal += weights[i] == others[i];
        n_zero += weights[i] == 0.0;
    }
    /* Gaps and what is constant: biases (5 + 5), gamma (7), beta (7 + 3). */
    uint64_t gaps = graph->n_elements - graph->n_parameters;
    assert_int_equal(n_equal, gaps + 10 + 7 + 10);
    assert_int_equal(n_zero, gaps + 10 + 10);

    double *values = own_memory(malloc(graph->n_state_elements * sizeof *values), free);
    assert_non_null(values);
    dpb_graph_initialise_state(graph, DPB_FP64, values);
    for (uint32_t i = 0; i < graph->n_states; i++) {
        const struct dpb_state *one = &graph->states[i];
        double expected = graph->nodes[one->node].variance == i ? 1.0 : 0.0;
        for (uint64_t k = 0; k < one->n_elements; k++)
            assert_true(values[one->offset + k] == expected);
    }
}

/* --------------------------------------------------------------------------------------- errors */

/* The mistakes: each function adds nodes to what `build_wrong` goes on with. */
typedef uint32_t mistake(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x);

static mistake *current_mistake;

static dpb_status build_wrong(const void *options, const struct dpb_graph_ops *g,
                              struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    uint32_t x = current_mistake(g, b, g->input(b));
    x = g->relu(b, "after", x);
    x = g->dense(b, "fc", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

static uint32_t window_too_large(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                 uint32_t x)
{
    return g->max_pool(b, "big", x, &(struct dpb_pool_args){.kernel = 8, .padding = DPB_PAD_VALID});
}

static uint32_t kernel_of_zero(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                               uint32_t x)
{
    return g->conv(b, "empty", x, &(struct dpb_conv_args){.channels = 3});
}

static uint32_t no_channels(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)
{
    return g->conv(b, "none", x, &(struct dpb_conv_args){.kernel_h = 3});
}

static uint32_t groups_of_input(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                uint32_t x)
{
    return g->conv(b, "uneven", x,
                   &(struct dpb_conv_args){.channels = 4, .kernel_h = 1, .groups = 2});
}

static uint32_t groups_of_output(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                 uint32_t x)
{
    return g->conv(b, "uneven", x,
                   &(struct dpb_conv_args){.channels = 4, .kernel_h = 1, .groups = 3});
}

static uint32_t padding_alone(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                              uint32_t x)
{
    return g->mean_pool(
        b, "padded", x,
        &(struct dpb_pool_args){.kernel = 2, .padding = DPB_PAD_EXPLICIT, .after = 2});
}

static uint32_t padding_unused(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                               uint32_t x)
{
    return g->mean_pool(b, "unused", x, &(struct dpb_pool_args){.kernel = 2, .before = 1});
}

static uint32_t name_twice(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)
{
    return g->relu(b, "twin", g->relu(b, "twin", x));
}

static uint32_t name_of_nothing(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                uint32_t x)
{
    return g->relu(b, "a name", x);
}

static uint32_t concat_of_heights(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                  uint32_t x)
{
    uint32_t y = g->shortcut(b, "half", x, 3, 2);
    return g->concat(b, "joined", (const uint32_t[]){x, y}, 2);
}

static uint32_t concat_of_one(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                              uint32_t x)
{
    return g->concat(b, "alone", &x, 1);
}

static uint32_t add_of_shapes(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                              uint32_t x)
{
    return g->add(b, "sum", x, g->shortcut(b, "wide", x, 4, 1));
}

static uint32_t shortcut_to_fewer(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                  uint32_t x)
{
    return g->shortcut(b, "narrow", x, 2, 1);
}

static uint32_t rate_of_one(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)
{
    return g->dropout(b, "drop", x, 1.0);
}

static uint32_t tensor_too_large(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                 uint32_t x)
{
    return g->dense(b, "huge", x, UINT32_MAX, false);
}

static uint32_t input_unknown(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                              uint32_t x)
{
    return g->relu(b, "astray", x + 1);
}

static uint32_t initial_of_nothing(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                   uint32_t x)
{
    const struct dpb_initial zero = {.rule = DPB_INITIAL_CONSTANT};
    x = g->conv(b, "bare", x, &(struct dpb_conv_args){.channels = 3, .kernel_h = 1});
    return g->initial(b, x, &zero, &zero);
}

static uint32_t initial_of_bias(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                uint32_t x)
{
    return g->initial(b, g->dense(b, "biased", x, 3, true), NULL,
                      &(struct dpb_initial){.rule = DPB_INITIAL_GLOROT_UNIFORM});
}

static uint32_t initial_negative(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                 uint32_t x)
{
    return g->initial(b, g->dense(b, "odd", x, 3, true),
                      &(struct dpb_initial){.rule = DPB_INITIAL_NORMAL, .value = -1.0}, NULL);
}

static uint32_t initial_infinite(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                 uint32_t x)
{
    return g->initial(b, g->dense(b, "odd", x, 3, true),
                      &(struct dpb_initial){.rule = DPB_INITIAL_CONSTANT, .value = INFINITY}, NULL);
}

static uint32_t initial_unknown(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                uint32_t x)
{
    return g->initial(b, g->dense(b, "odd", x, 3, true),
                      &(struct dpb_initial){.rule = (dpb_initial_rule)77}, NULL);
}

static uint32_t initial_astray(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                               uint32_t x)
{
    return g->initial(b, x + 1, NULL, NULL);
}

static uint32_t node_unread(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)
{
    g->relu(b, "dangling", x);
    return x;
}

static uint32_t loss_too_early(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                               uint32_t x)
{
    return g->softmax_loss(b, "first_loss", g->dense(b, "first_fc", x, 5, true));
}

static uint32_t loss_of_wrong_classes(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                      uint32_t x)
{
    return g->softmax_loss(b, "wrong_loss", g->dense(b, "six", x, 6, true));
}

static uint32_t attention_of_image(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                   uint32_t x)
{
    return g->attention(b, "seeing", x, &(struct dpb_attention_args){.heads = 1});
}

static uint32_t heads_uneven(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)
{
    return g->attention(b, "uneven", g->dense(b, "six", x, 6, true),
                        &(struct dpb_attention_args){.heads = 4});
}

static uint32_t positions_too_many(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                   uint32_t x)
{
    return g->positions(b, "short", x, &(struct dpb_positions_args){.rows = 48});
}

static uint32_t embedding_of_image(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                   uint32_t x)
{
    return g->embedding(b, "rows", x, 4);
}

static uint32_t tied_to_nothing(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                uint32_t x)
{
    return g->tied(b, "twin", x, x);
}

static uint32_t epsilon_of_zero(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                uint32_t x)
{
    return g->layer_norm(b, "flat", x, 0);
}

/* The message names the node and the reason, the first mistake counts, nothing leaks. */
TEST(test_mistakes)
{
    static const struct {
        mistake *mistake;
        const char *node, *reason;
    } rows[] = {
        {window_too_large, "'big'", "8x8 window does not fit into 7x7"},
        {kernel_of_zero, "'empty'", "kernel"},
        {no_channels, "'none'", "no elements"},
        {groups_of_input, "'uneven'", "2 groups have to divide both its 3 input"},
        {groups_of_output, "'uneven'", "3 groups have to divide both its 3 input"},
        {padding_alone, "'padded'", "padding (0,2)"},
        {padding_unused, "'unused'", "padding (1,0)"},
        {name_twice, "'twin'", "used twice"},
        {name_of_nothing, "'a name'", "letters"},
        {concat_of_heights, "'joined'", "'input' of 7x7 pixels and 'half' of 4x4"},
        {concat_of_one, "'alone'", "joins 1 nodes"},
        {add_of_shapes, "'sum'", "'input' of 3x7x7 and 'wide' of 4x7x7"},
        {shortcut_to_fewer, "'narrow'", "makes 2 channels of 3"},
        {rate_of_one, "'drop'", "rate 1"},
        {tensor_too_large, "'huge'", "2^32"},
        {input_unknown, "'astray'", "not a node"},
        {initial_of_nothing, "'bare'", "has no bias"},
        {initial_of_bias, "'biased'",
         "its bias cannot begin by rule 3 and value 0: it has no fan-in"},
        {initial_negative, "'odd'", "its weight cannot begin by rule 1 and value -1"},
        {initial_infinite, "'odd'", "a constant is finite"},
        {initial_unknown, "'odd'", "no such rule"},
        {initial_astray, "", "no earlier call returned"},
        {attention_of_image, "'seeing'", "gets 3x7x7 for 1 heads"},
        {heads_uneven, "'uneven'", "heads that divide the width"},
        {positions_too_many, "'short'", "48 rows for 49 positions"},
        {embedding_of_image, "'rows'", "reads 'input' of 3x7x7"},
        {tied_to_nothing, "'twin'", "the weight of an embedding of 3 channels"},
        {epsilon_of_zero, "'flat'", "epsilon 0 has to be positive"},
        {node_unread, "'dangling'", "no other node uses it"},
        {loss_too_early, "'after'", "after the loss"},
        {loss_of_wrong_classes, "'wrong_loss'", "'six' of 6x1x1 for 5 classes"},
    };
    static const struct dpb_model_ops model = {.build = build_wrong};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_graph *graph = NULL;
        current_mistake = rows[i].mistake;
        dpb_first_error_clear();
        dpb_status status =
            dpb_graph_build("wrong", &model, NULL, (struct dpb_shape){3, 7, 7}, 5, &graph);
        const char *message = dpb_first_error(NULL);
        if (status != DPB_USAGE || graph || !strstr(message, "model 'wrong'") ||
            !strstr(message, rows[i].node) || !strstr(message, rows[i].reason))
            fail_msg("expected node %s: %s; got: %s", rows[i].node, rows[i].reason, message);
    }
    dpb_first_error_clear();
}

static dpb_status build_without_loss(const void *options, const struct dpb_graph_ops *g,
                                     struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    g->dense(b, "fc", g->input(b), nclass, true);
    return DPB_OK;
}

static dpb_status build_without_weights(const void *options, const struct dpb_graph_ops *g,
                                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    (void)nclass;
    g->softmax_loss(b, "loss", g->global_mean(b, "mean", g->input(b)));
    return DPB_OK;
}

static dpb_status build_failing(const void *options, const struct dpb_graph_ops *g,
                                struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    (void)nclass;
    g->relu(b, "relu", g->input(b));
    return DPB_UNSUPPORTED; /* a real model has written its message by now */
}

TEST(test_unfinished_models)
{
    static const struct dpb_model_ops without_loss = {.build = build_without_loss};
    static const struct dpb_model_ops without_weights = {.build = build_without_weights};
    static const struct dpb_model_ops failing = {.build = build_failing};
    const struct dpb_shape image = {3, 7, 7}, flat = {3, 0, 7}, deep = {5, 7, 7};
    struct dpb_graph *graph = NULL;
    dpb_first_error_clear();
    assert_int_equal(dpb_graph_build("m", &without_loss, NULL, image, 5, &graph), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "has no loss"));
    dpb_first_error_clear();
    assert_int_equal(dpb_graph_build("m", &without_weights, NULL, image, 3, &graph), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "nothing to train"));
    dpb_first_error_clear();
    assert_int_equal(dpb_graph_build("m", &failing, NULL, image, 3, &graph), DPB_UNSUPPORTED);
    assert_string_equal(dpb_first_error(NULL), "");
    assert_int_equal(dpb_graph_build("m", &without_loss, NULL, flat, 5, &graph), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "'input'"));
    dpb_first_error_clear();
    assert_int_equal(dpb_graph_build("m", &without_loss, NULL, deep, 5, &graph), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "1 to 4 channels, not 5"));
    dpb_first_error_clear();
    assert_null(graph);
}

TEST_MAIN(silence, NULL)
