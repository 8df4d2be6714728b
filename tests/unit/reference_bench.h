/*
 * reference_bench.h - what the tests of the reference device share: the plugin, and a small net
 * compiled on it with arenas, a batch and hooks that remember what they saw.
 */
#ifndef REFERENCE_BENCH_H
#define REFERENCE_BENCH_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dpbench/random.h"
#include "graph/graph.h"
#include "lib/plugin.h"
#include "lib/test.h"

enum { SEED = 7, STEP = 3, FIRST_SAMPLE = 5, GAP = -77 };

/* -------------------------------------------------------------------------------------- fixture */

static const struct dpb_device_ops *device_ops;
static const struct dpb_plugin *plugin;

static inline int load_plugin(void **state)
{
    (void)state;
    plugin = plugin_load(DPB_PLUGIN_DEVICE, "reference", &plugin_host);
    device_ops = plugin->ops;
    return 0;
}

/* A network from its middle part: gets the builder and the node to begin at, returns its last node.
 * A dense layer makes the logits of it; a second one, around it, adds to the gradient that the
 * middle part has to add its own to. */
typedef uint32_t middle(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x);

struct net {
    const char *name;
    middle *build;
    struct dpb_shape input;
    bool bare; /* nothing around the middle, which has a feature a class */
};

static inline dpb_status build_net(const void *options, const struct dpb_graph_ops *g,
                                   struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct net *net = options;
    const struct dpb_conv_args stem = {.channels = 4, .kernel_h = 2, .bias = true};
    uint32_t x = g->input(b);
    if (net->bare) {
        x = net->build(g, b, x);
    } else {
        x = g->conv(b, "stem", x, &stem);
        uint32_t y = g->dense(b, "head", net->build(g, b, x), nclass, true);
        x = g->add(b, "logits", y, g->dense(b, "bypass", x, nclass, false));
    }
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

/* A compiled net with all that it works on. */
struct bench {
    struct dpb_graph *graph;
    void *device, *program;
    uint32_t n;
    bool single;
    void *weights, *gradients, *state, *statistics;
    float *samples;
    int32_t *labels;
    struct dpb_sample_format format;
    struct dpb_batch batch;
    struct dpb_pass pass;
    struct dpb_hooks hooks;
    struct dpb_outcome outcome;
    /* What the hooks saw. */
    uint32_t n_final, n_progress, fail_final, fail_progress;
    uint64_t frontier[64];
};

static inline dpb_status on_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    struct bench *bench = context;
    assert_null(event);
    assert_true(bench->n_final < 64);
    bench->frontier[bench->n_final++] = frontier;
    return bench->n_final == bench->fail_final ? DPB_PEER : DPB_OK;
}

static inline dpb_status on_progress(void *context)
{
    struct bench *bench = context;
    return ++bench->n_progress == bench->fail_progress ? DPB_PEER : DPB_OK;
}

static inline double get(const struct bench *bench, const void *arena, uint64_t k)
{
    return bench->single ? (double)((const float *)arena)[k] : ((const double *)arena)[k];
}

static inline void set(const struct bench *bench, void *arena, uint64_t k, double value)
{
    if (bench->single)
        ((float *)arena)[k] = (float)value;
    else
        ((double *)arena)[k] = value;
}

static inline double normal(uint32_t k)
{
    struct dpb_random4 bits = dpb_random(SEED, DPB_STREAM_SYNTHETIC, k, 0, 0, 0);
    double pair[2];
    dpb_random_normal(bits.v[0], bits.v[1], pair);
    return pair[0];
}

static const struct dpb_model_ops net_ops = {.build = build_net};

static inline void fill_arenas(struct bench *bench)
{
    const struct dpb_graph *graph = bench->graph;
    bench->weights = calloc(graph->n_elements, sizeof(double));
    bench->gradients = calloc(graph->n_elements, sizeof(double));
    bench->state = calloc(graph->n_state_elements + 1, sizeof(double));
    bench->statistics = calloc(graph->n_state_elements + 1, sizeof(double));
    /* Biases, gammas and betas too are no round numbers, so that a mistake shows. */
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &graph->tensors[t];
        for (uint64_t k = 0; k < tensor->n_elements; k++)
            set(bench, bench->weights, tensor->offset + k,
                tensor->init_value + 0.5 * normal((uint32_t)(tensor->offset + k)));
    }
    for (uint64_t k = 0; k < graph->n_elements; k++)
        set(bench, bench->gradients, k, GAP);
    dpb_graph_initialise_state(graph, bench->single ? DPB_FP32 : DPB_FP64, bench->state);
}

static inline void fill_batch(struct bench *bench)
{
    size_t elements = (size_t)dpb_shape_elements(bench->format.shape);
    bench->samples = calloc(bench->n * elements, sizeof *bench->samples);
    bench->labels = calloc(bench->n, sizeof *bench->labels);
    for (size_t k = 0; k < bench->n * elements; k++)
        bench->samples[k] = (float)normal(1000000 + (uint32_t)k);
    for (uint32_t i = 0; i < bench->n; i++)
        bench->labels[i] = (int32_t)(i % bench->graph->nclass);
    bench->batch = (struct dpb_batch){.format = &bench->format,
                                      .samples = bench->samples,
                                      .labels = bench->labels,
                                      .n = bench->n};
}

static inline struct dpb_compile_args compile_args(const struct bench *bench, bool training)
{
    return (struct dpb_compile_args){.graph = bench->graph,
                                     .batch = bench->n,
                                     .precision =
                                         bench->single ? DPB_PRECISION_FP32 : DPB_PRECISION_FP64,
                                     .training = training,
                                     .format = &bench->format,
                                     .inspect = true};
}

static inline struct bench *open_bench(const struct net *net, uint32_t n, uint32_t nclass,
                                       bool single)
{
    struct bench *bench = calloc(1, sizeof *bench);
    assert_int_equal(dpb_graph_build(net->name, &net_ops, net, net->input, nclass, &bench->graph),
                     DPB_OK);
    bench->n = n;
    bench->single = single;
    bench->format = (struct dpb_sample_format){.shape = net->input, .type = DPB_FP32};
    for (uint32_t c = 0; c < DPB_MAX_CHANNELS; c++)
        bench->format.scale[c] = 1;
    fill_arenas(bench);
    fill_batch(bench);
    bench->pass = (struct dpb_pass){.training = true,
                                    .weights_changed = true,
                                    .step = STEP,
                                    .first_sample = FIRST_SAMPLE,
                                    .valid = n};
    bench->hooks = (struct dpb_hooks){.context = bench, .final = on_final, .progress = on_progress};
    const struct dpb_device_args device_args = {.threads = 1, .seed = SEED};
    assert_int_equal(device_ops->open(NULL, &device_args, &bench->device), DPB_OK);
    const struct dpb_compile_args args = compile_args(bench, true);
    const struct dpb_device_memory memory = {.weights = bench->weights,
                                             .gradients = bench->gradients,
                                             .state = bench->state,
                                             .statistics = bench->statistics};
    assert_int_equal(device_ops->compile(bench->device, &args, &memory, &bench->program), DPB_OK);
    return bench;
}

static inline void close_bench(struct bench *bench)
{
    device_ops->release(bench->program);
    device_ops->close(bench->device);
    dpb_graph_destroy(bench->graph);
    free(bench->weights);
    free(bench->gradients);
    free(bench->state);
    free(bench->statistics);
    free(bench->samples);
    free(bench->labels);
    free(bench);
}

static inline dpb_status forward(struct bench *bench)
{
    return device_ops->forward(bench->program, &bench->pass, &bench->batch, &bench->hooks,
                               &bench->outcome);
}

static inline dpb_status backward(struct bench *bench)
{
    bench->n_final = bench->n_progress = 0;
    return device_ops->backward(bench->program, &bench->pass, &bench->hooks);
}

static inline uint32_t node_called(const struct bench *bench, const char *name)
{
    for (uint32_t i = 0; i < bench->graph->n_nodes; i++) {
        if (strcmp(bench->graph->nodes[i].name, name) == 0)
            return i;
    }
    fail_msg("no node '%s'", name);
    return DPB_NONE;
}

static inline uint64_t elements_of(const struct bench *bench, uint32_t node)
{
    return bench->n * dpb_shape_elements(bench->graph->nodes[node].shape);
}

/* cmocka's own comparison takes a NaN for equal. */
static inline void expect_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.15g is not %.15g", value, expected);
}

/* What inspect() says of a node. @owned: free(). */
static inline double *activation_of(const struct bench *bench, uint32_t node)
{
    double *values = calloc(elements_of(bench, node), sizeof *values);
    assert_int_equal(device_ops->inspect(bench->program, node, values, NULL), DPB_OK);
    return values;
}

static inline double *gradient_of(const struct bench *bench, uint32_t node)
{
    double *values = calloc(elements_of(bench, node), sizeof *values);
    assert_int_equal(device_ops->inspect(bench->program, node, NULL, values), DPB_OK);
    return values;
}

/* ------------------------------------------------------------------------------ describing a ne */

#define CONV(...)                 \
    &(const struct dpb_conv_args) \
    {                             \
        __VA_ARGS__               \
    }
#define POOL(...)                 \
    &(const struct dpb_pool_args) \
    {                             \
        __VA_ARGS__               \
    }
#define NORM(...)                       \
    &(const struct dpb_batch_norm_args) \
    {                                   \
        __VA_ARGS__                     \
    }
#define NET(name) \
    static uint32_t name(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)

/* A net with nearly every op. */
NET(everything)
{
    const struct dpb_lrn_args args = {.radius = 1, .k = 1, .alpha = 0.2, .beta = 0.5};
    x = g->batch_norm(b, "bn1", x, NORM(0));
    x = g->relu(b, "relu1", x);
    x = g->max_pool(b, "max", x, POOL(.kernel = 3, .stride = 2));
    uint32_t y = g->conv(b, "conv2", x, CONV(.channels = 5, .kernel_h = 3, .stride = 2));
    y = g->batch_norm(b, "bn2", y, NORM(.no_gamma = true));
    x = g->add(b, "add", g->shortcut(b, "shortcut", x, 5, 2), y);
    x = g->lrn(b, "lrn", x, &args);
    y = g->mean_pool(b, "mean", x, POOL(.kernel = 2, .stride = 1));
    x = g->concat(b, "concat", (const uint32_t[]){x, y}, 2);
    x = g->dropout(b, "dropout", x, 0.4);
    return g->dense(b, "fc", x, 7, true);
}

/* Odd sizes, not square. */
#define ODD     \
    {           \
        2, 5, 7 \
    }

static const struct net whole = {"everything", everything, ODD, false};

#endif
