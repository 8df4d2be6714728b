/*
 * dump.c - runs one training pass of a model on the reference device in fp64 and writes all that
 * goes in and comes out, for compare.py.
 *
 *   dump --list                                              names of the models that are there
 *   dump DIRECTORY MODEL BATCH CHANNELS HEIGHT WIDTH [KEY=VALUE...]    KEY: options of the model
 *
 * DIRECTORY gets graph.json and flat files of little-endian numbers: weights, gradients, statistics
 * (arenas), input (NCHW; ids), logits, mask_NODE (dropout's factors) as fp64, labels as int32.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/log.h"
#include "base/options.h"
#include "dpbench/random.h"
#include "graph/graph.h"
#include "lib/device/op_name.h"
#include "plugin/plugins.h"
#include "plan/experiment.h"

enum { SEED = 11, STEP = 2, FIRST_SAMPLE = 3, NCLASS = 11 };

/* ---------------------------------------------------------------------------------------- outpu */

static void *allocate(uint64_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (!memory)
        abort();
    return memory;
}

static dpb_status write_file(const char *directory, const char *name, const void *data,
                             size_t bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    bool written = file && fwrite(data, 1, bytes, file) == bytes;
    if (file && fclose(file) != 0)
        written = false;
    return written ? DPB_OK : dpb_fail(DPB_IO, "%s: %s", path, strerror(errno));
}

static json_t *shape_json(struct dpb_shape shape)
{
    return json_pack("[i,i,i]", (int)shape.c, (int)shape.h, (int)shape.w);
}

/* An index into tensors or states; null where there is none. */
static json_t *index_json(uint32_t index)
{
    return index == DPB_NONE ? json_null() : json_integer(index);
}

static json_t *node_json(const struct dpb_node *node)
{
    const struct dpb_window *v = &node->window;
    json_t *inputs = json_array();
    for (uint32_t k = 0; k < node->n_inputs; k++)
        json_array_append_new(inputs, json_integer(node->inputs[k]));
    return json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:[i,i],s:[i,i],s:[i,i,i,i],"
                     "s:i,s:i,s:b,s:b,s:b,s:f,s:i,s:f,s:f,s:f}",
                     "op", dpb_op_name(node->op), "name", node->name, "inputs", inputs, "shape",
                     shape_json(node->shape), "weight", index_json(node->weight), "bias",
                     index_json(node->bias), "mean", index_json(node->mean), "variance",
                     index_json(node->variance), "kernel", (int)v->kernel_h, (int)v->kernel_w,
                     "stride", (int)v->stride_h, (int)v->stride_w, "pad", (int)v->pad_left,
                     (int)v->pad_right, (int)v->pad_top, (int)v->pad_bottom, "groups",
                     (int)node->groups, "heads", (int)node->heads, "tied", (int)node->tied,
                     "causal", (int)node->causal, "tanh", (int)node->tanh, "epsilon", node->epsilon,
                     "lrn_radius", (int)node->lrn_radius, "lrn_k", node->lrn_k, "lrn_alpha",
                     node->lrn_alpha, "lrn_beta", node->lrn_beta);
}

static dpb_status write_graph(const char *directory, const struct dpb_graph *graph, uint32_t batch,
                              const struct dpb_outcome *outcome)
{
    json_t *nodes = json_array(), *tensors = json_array(), *states = json_array();
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        json_array_append_new(nodes, node_json(&graph->nodes[i]));
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        json_t *dims = json_array();
        for (uint32_t k = 0; k < graph->tensors[t].n_dims; k++)
            json_array_append_new(dims, json_integer(graph->tensors[t].dims[k]));
        json_array_append_new(tensors,
                              json_pack("{s:s,s:o,s:I}", "name", graph->tensors[t].name, "dims",
                                        dims, "offset", (json_int_t)graph->tensors[t].offset));
    }
    for (uint32_t s = 0; s < graph->n_states; s++)
        json_array_append_new(states,
                              json_pack("{s:I,s:I}", "offset", (json_int_t)graph->states[s].offset,
                                        "n", (json_int_t)graph->states[s].n_elements));
    json_t *json =
        json_pack("{s:i,s:i,s:f,s:i,s:o,s:o,s:o}", "batch", (int)batch, "nclass",
                  (int)graph->nclass, "loss", outcome->loss, "correct", (int)outcome->correct,
                  "nodes", nodes, "tensors", tensors, "states", states);
    char path[1024];
    snprintf(path, sizeof path, "%s/graph.json", directory);
    int failed = json_dump_file(json, path, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(json);
    return failed ? dpb_fail(DPB_IO, "%s: cannot be written", path) : DPB_OK;
}

/* ------------------------------------------------------------------------------------- the pass */

/* One training pass: what goes in and what comes out. */
struct pass {
    const struct dpb_device_ops *device;
    struct dpb_graph *graph;
    void *program;
    double *weights, *gradients, *state, *statistics;
    struct dpb_sample_format format;
    struct dpb_batch batch;
    void *samples;
    int32_t *labels;
    struct dpb_outcome outcome;
};

static double normal(uint32_t what, uint32_t k)
{
    struct dpb_random4 bits = dpb_random(SEED, DPB_STREAM_SYNTHETIC, what, k, 0, 0);
    double pair[2];
    dpb_random_normal(bits.v[0], bits.v[1], pair);
    return pair[0];
}

static void fill(struct pass *pass, uint32_t n)
{
    const struct dpb_graph *graph = pass->graph;
    struct dpb_shape shape = graph->nodes[0].shape;
    uint64_t elements = n * dpb_shape_elements(shape);
    pass->weights = allocate(graph->n_elements, sizeof(double));
    pass->gradients = allocate(graph->n_elements, sizeof(double));
    pass->state = allocate(graph->n_state_elements, sizeof(double));
    pass->statistics = allocate(graph->n_state_elements, sizeof(double));
    const bool ids = dpb_graph_reads_ids(graph);
    const uint32_t n_labels = n * dpb_graph_labels(graph);
    pass->samples = allocate(elements, sizeof(float));
    pass->labels = allocate(n_labels, sizeof(int32_t));
    dpb_graph_initialise(graph, SEED, DPB_FP64, pass->weights);
    dpb_graph_initialise_state(graph, DPB_FP64, pass->state);
    /* Biases of 0 and gammas of 1 would hide their being left out. */
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &graph->tensors[t];
        for (uint64_t k = 0; tensor->n_dims == 1 && k < tensor->n_elements; k++)
            pass->weights[tensor->offset + k] += 0.1 * normal(t, (uint32_t)k);
    }
    for (uint64_t k = 0; k < elements; k++)
        if (ids)
            ((int32_t *)pass->samples)[k] = (int32_t)(k * k % graph->nclass);
        else
            ((float *)pass->samples)[k] = (float)normal(UINT32_MAX, (uint32_t)k);
    for (uint32_t i = 0; i < n_labels; i++)
        pass->labels[i] = (int32_t)(7 * i % graph->nclass);
    pass->format = (struct dpb_sample_format){.shape = shape,
                                              .type = ids ? DPB_INT32 : DPB_FP32,
                                              .order = DPB_CHW,
                                              .scale = {1, 1, 1, 1}};
    pass->batch = (struct dpb_batch){
        .format = &pass->format, .samples = pass->samples, .labels = pass->labels, .n = n};
}

static dpb_status on_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    (void)context;
    (void)frontier;
    (void)event;
    return DPB_OK;
}

static dpb_status on_progress(void *context)
{
    (void)context;
    return DPB_OK;
}

static dpb_status compute(struct pass *pass)
{
    const struct dpb_plugin *plugin;
    DPB_TRY(dpb_plugin_load(DPB_PLUGIN_DEVICE, "reference", NULL, &dpb_host, &plugin));
    pass->device = plugin->ops;
    const struct dpb_device_args device_args = {.threads = 1, .seed = SEED};
    const struct dpb_compile_args args = {.graph = pass->graph,
                                          .batch = pass->batch.n,
                                          .precision = DPB_PRECISION_FP64,
                                          .training = true,
                                          .format = &pass->format,
                                          .inspect = true};
    const struct dpb_device_memory memory = {.weights = pass->weights,
                                             .gradients = pass->gradients,
                                             .state = pass->state,
                                             .statistics = pass->statistics};
    const struct dpb_pass parameters = {.training = true,
                                        .weights_changed = true,
                                        .step = STEP,
                                        .first_sample = FIRST_SAMPLE,
                                        .valid = pass->batch.n};
    const struct dpb_hooks hooks = {.final = on_final, .progress = on_progress};
    void *device;
    DPB_TRY(pass->device->open(NULL, &device_args, &device));
    DPB_TRY(pass->device->compile(device, &args, &memory, &pass->program));
    DPB_TRY(
        pass->device->forward(pass->program, &parameters, &pass->batch, &hooks, &pass->outcome));
    return pass->device->backward(pass->program, &parameters, &hooks);
}

/* ------------------------------------------------------------------------------------- the dump */

static dpb_status write_activation(const struct pass *pass, const char *directory, uint32_t node,
                                   const char *name)
{
    uint64_t n = pass->batch.n * dpb_shape_elements(pass->graph->nodes[node].shape);
    double *values = allocate(n, sizeof *values);
    dpb_status status = pass->device->inspect(pass->program, node, values, NULL);
    if (status == DPB_OK)
        status = write_file(directory, name, values, n * sizeof *values);
    free(values);
    return status;
}

static dpb_status write_mask(const struct pass *pass, const char *directory, uint32_t index)
{
    const struct dpb_node *node = &pass->graph->nodes[index];
    uint64_t elements = dpb_shape_elements(node->shape);
    double *mask = allocate(pass->batch.n * elements, sizeof *mask);
    for (uint32_t i = 0; i < pass->batch.n; i++) {
        for (uint32_t e = 0; e < elements; e++) {
            bool keeps = dpb_dropout_keeps(SEED, STEP, FIRST_SAMPLE + i, index, e, node->rate);
            mask[i * elements + e] = keeps ? 1 / (1 - node->rate) : 0;
        }
    }
    char name[32];
    snprintf(name, sizeof name, "mask_%u", index);
    dpb_status status = write_file(directory, name, mask, pass->batch.n * elements * sizeof *mask);
    free(mask);
    return status;
}

static dpb_status write_pass(const struct pass *pass, const char *directory)
{
    const struct dpb_graph *graph = pass->graph;
    DPB_TRY(write_graph(directory, graph, pass->batch.n, &pass->outcome));
    DPB_TRY(write_file(directory, "weights", pass->weights, graph->n_elements * sizeof(double)));
    DPB_TRY(
        write_file(directory, "gradients", pass->gradients, graph->n_elements * sizeof(double)));
    DPB_TRY(write_file(directory, "statistics", pass->statistics,
                       graph->n_state_elements * sizeof(double)));
    DPB_TRY(write_file(directory, "labels", pass->labels,
                       pass->batch.n * dpb_graph_labels(graph) * sizeof(int32_t)));
    DPB_TRY(write_activation(pass, directory, 0, "input"));
    DPB_TRY(
        write_activation(pass, directory, graph->nodes[graph->n_nodes - 1].inputs[0], "logits"));
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i].op == DPB_OP_DROPOUT)
            DPB_TRY(write_mask(pass, directory, i));
    }
    return DPB_OK;
}

static dpb_status build_graph(char **arguments, struct dpb_graph **graph)
{
    const struct dpb_plugin *plugin;
    DPB_TRY(dpb_plugin_load(DPB_PLUGIN_MODEL, arguments[1], NULL, &dpb_host, &plugin));
    struct dpb_config *config = dpb_config_create();
    if (!config)
        return DPB_NO_MEMORY;
    for (char **option = arguments + 6; *option; option++) {
        char text[256];
        snprintf(text, sizeof text, "model.%s", *option);
        DPB_TRY(dpb_config_assign(config, text, "command line"));
    }
    void *options = allocate(plugin->options_size, 1);
    const struct dpb_option_table table = {"model", plugin->name, plugin->options, options};
    if (plugin->options)
        DPB_TRY(dpb_options_parse(&table, 1, config));
    struct dpb_shape input = {(uint32_t)atoi(arguments[3]), (uint32_t)atoi(arguments[4]),
                              (uint32_t)atoi(arguments[5])};
    return dpb_graph_build(plugin->name, plugin->ops, options, input, NCLASS, graph);
}

static dpb_status list_models(void)
{
    struct dpb_plugin_row *rows;
    size_t n_rows;
    DPB_TRY(dpb_plugin_list(&dpb_host, 1u << DPB_PLUGIN_MODEL, NULL, &rows, &n_rows));
    for (size_t i = 0; i < n_rows; i++)
        if (rows[i].plugin)
            puts(rows[i].plugin->name);
    free(rows);
    return DPB_OK;
}

static dpb_status dump(char **arguments)
{
    struct pass pass = {0};
    DPB_TRY(build_graph(arguments, &pass.graph));
    fill(&pass, (uint32_t)atoi(arguments[2]));
    DPB_TRY(compute(&pass));
    return write_pass(&pass, arguments[0]);
}

/* The process ends after one pass: what it holds goes with it. */
int main(int argc, char **argv)
{
    dpb_status status;
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        status = list_models();
    else if (argc >= 7)
        status = dump(argv + 1);
    else
        status = dpb_fail(DPB_USAGE, "usage: dump --list | DIRECTORY MODEL BATCH CHANNELS HEIGHT "
                                     "WIDTH [KEY=VALUE...]");
    return dpb_status_exit_code(status);
}
