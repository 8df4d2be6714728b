/*
 * reference.c - a device in plain C on one thread: the oracle that the tests hold other devices to.
 *
 * The ops (ops.c) compute in fp64. Under fp32 each activation, each gradient and each statistic is
 * rounded to fp32 once, when it is complete, as by a device with exact arithmetic inside an op.
 * Nothing is fused and every activation is kept. It is meant to be seen to be right; it is
 * not meant to be fast.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/plugin.h"
#include "lib/device/refuse.h"
#include "ops.h"

/* ---------------------------------------------------------------------------------------- state */

static const struct dpb_host *host;

struct device {
    uint64_t seed;
};

struct program {
    const struct dpb_graph *graph;
    struct dpb_compile_args args;
    uint32_t n;  /* samples a batch */
    bool single; /* fp32 */
    struct dpb_device_memory memory;
    struct ref_call *calls; /* by node */
    double *y, *dy;         /* activations of all nodes, gradients by them; dy when training */
    struct dpb_batch batch; /* of the last forward, with labels of our own */
    int32_t *labels;
    /* fp64 copies of core's arenas. */
    double *weights, *gradients, *state, *statistics;
    void *blocks[12]; /* all that is allocated */
    uint32_t n_blocks;
};

/* -------------------------------------------------------------------------------------- helpers */

static uint64_t node_elements(const struct dpb_node *node, uint32_t batch)
{
    return batch * dpb_shape_elements(node->shape);
}

/* The activations of all nodes. */
static uint64_t activation_elements(const struct dpb_graph *graph, uint32_t batch)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        elements += node_elements(&graph->nodes[i], batch);
    return elements;
}

static uint64_t input_count(const struct dpb_graph *graph)
{
    uint64_t inputs = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        inputs += graph->nodes[i].n_inputs;
    return inputs;
}

/* The gradient by the activation of a node. */
static double *gradient_of(const struct program *program, uint32_t node)
{
    return program->dy + (program->calls[node].y - program->y);
}

/* Between core's arenas, fp64 or fp32, and ours. */
static void load(const struct program *program, double *to, const void *from, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++)
        to[k] = program->single ? ((const float *)from)[k] : ((const double *)from)[k];
}

static void store(const struct program *program, void *to, const double *from, uint64_t offset,
                  uint64_t n)
{
    for (uint64_t k = offset; k < offset + n; k++) {
        if (program->single)
            ((float *)to)[k] = (float)from[k];
        else
            ((double *)to)[k] = from[k];
    }
}

static void round_values(const struct program *program, double *values, uint64_t n)
{
    for (uint64_t k = 0; program->single && k < n; k++)
        values[k] = (float)values[k];
}

/* ----------------------------------------------------------------------------- open and compile */

static dpb_status reference_open(const void *options, const struct dpb_device_args *args,
                                 void **device)
{
    (void)options;
    struct device *made = malloc(sizeof *made);
    if (!made)
        return host->fail(DPB_NO_MEMORY, "device 'reference': out of memory");
    if (args->threads > 1)
        host->warn("reference_one_thread",
                   "device 'reference' computes on one thread; device.threads = %u leaves %u idle",
                   args->threads, args->threads - 1);
    made->seed = args->seed;
    *device = made;
    return DPB_OK;
}

static uint64_t reference_memory_needed(const void *options, const struct dpb_compile_args *args)
{
    (void)options;
    const struct dpb_graph *graph = args->graph;
    uint64_t copies = args->training ? 2 : 1; /* activations and weights; their gradients */
    uint64_t elements = activation_elements(graph, args->batch) + graph->n_elements;
    return sizeof(double) * (copies * elements + 2 * graph->n_state_elements);
}

static dpb_status refuse(const struct dpb_compile_args *args)
{
    if (args->precision != DPB_PRECISION_FP64 && args->precision != DPB_PRECISION_FP32)
        return host->fail(DPB_UNSUPPORTED,
                          "device 'reference' computes in fp64 and fp32, not in "
                          "%s; set run.precision to one of them",
                          dpb_precision_name(args->precision));
    return dpb_refuse_compile(host, "reference", args);
}

/* Zeroed; NULL after the message. */
static void *allocate(struct program *program, uint64_t n, size_t size)
{
    assert(program->n_blocks < sizeof program->blocks / sizeof *program->blocks);
    void *block = calloc(n ? (size_t)n : 1, size);
    if (!block)
        host->fail(DPB_NO_MEMORY,
                   "device 'reference': no memory for %llu MB; take a smaller run.batch or model",
                   (unsigned long long)(n * size / 1000000));
    else
        program->blocks[program->n_blocks++] = block;
    return block;
}

static size_t label_count(const struct program *program)
{
    return (size_t)program->n * dpb_graph_labels(program->graph);
}

static bool allocate_arenas(struct program *program)
{
    const struct dpb_graph *graph = program->graph;
    uint64_t n_gradients = program->args.training ? graph->n_elements : 0;
    return (program->labels = allocate(program, label_count(program), sizeof(int32_t))) &&
           (program->weights = allocate(program, graph->n_elements, sizeof(double))) &&
           (program->gradients = allocate(program, n_gradients, sizeof(double))) &&
           (program->state = allocate(program, graph->n_state_elements, sizeof(double))) &&
           (program->statistics = allocate(program, graph->n_state_elements, sizeof(double)));
}

/* Sets the fields that belong to the node alone. */
static struct ref_call prepare_call(const struct program *program, uint32_t index, uint64_t seed)
{
    const struct dpb_graph *graph = program->graph;
    const struct dpb_node *node = &graph->nodes[index];
    struct ref_call call = {
        .node = node, .index = index, .n = program->n, .batch = &program->batch, .seed = seed};
    if (node->weight != DPB_NONE) {
        call.weight = program->weights + graph->tensors[node->weight].offset;
        call.dweight = program->gradients + graph->tensors[node->weight].offset;
        call.n_weights = graph->tensors[node->weight].n_elements;
    }
    if (node->bias != DPB_NONE) {
        call.bias = program->weights + graph->tensors[node->bias].offset;
        call.dbias = program->gradients + graph->tensors[node->bias].offset;
    }
    if (node->mean != DPB_NONE) {
        call.running_mean = program->state + graph->states[node->mean].offset;
        call.mean = program->statistics + graph->states[node->mean].offset;
        call.running_variance = program->state + graph->states[node->variance].offset;
        call.variance = program->statistics + graph->states[node->variance].offset;
    }
    return call;
}

/* All calls, each connected to the activations that it reads and writes. */
static bool prepare_calls(struct program *program, uint64_t seed)
{
    const struct dpb_graph *graph = program->graph;
    uint64_t elements = activation_elements(graph, program->n), inputs = input_count(graph);
    struct dpb_shape *in = allocate(program, inputs, sizeof *in);
    const double **x = allocate(program, inputs, sizeof *x);
    double **dx = allocate(program, inputs, sizeof *dx);
    program->y = allocate(program, elements, sizeof(double));
    program->dy = allocate(program, program->args.training ? elements : 0, sizeof(double));
    program->calls = allocate(program, graph->n_nodes, sizeof *program->calls);
    if (!in || !x || !dx || !program->y || !program->dy || !program->calls)
        return false;
    double *y = program->y;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        struct ref_call *call = &program->calls[i];
        *call = prepare_call(program, i, seed);
        call->y = y;
        y += node_elements(node, program->n);
        if (program->args.training)
            call->dy = gradient_of(program, i);
        call->in = in;
        call->x = x;
        call->dx = dx;
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            uint32_t input = node->inputs[k];
            bool wanted = program->args.training && input != 0; /* not the samples' gradient */
            *in++ = graph->nodes[input].shape;
            *x++ = program->calls[input].y;
            *dx++ = wanted ? gradient_of(program, input) : NULL;
        }
    }
    return true;
}

static void reference_release(void *handle)
{
    struct program *program = handle;
    if (!program)
        return;
    for (uint32_t i = 0; i < program->n_blocks; i++)
        free(program->blocks[i]);
    free(program);
}

static dpb_status reference_compile(void *handle, const struct dpb_compile_args *args,
                                    const struct dpb_device_memory *memory, void **program)
{
    const struct device *device = handle;
    DPB_TRY(refuse(args));
    struct program *made = calloc(1, sizeof *made);
    if (!made)
        return host->fail(DPB_NO_MEMORY, "device 'reference': out of memory");
    made->graph = args->graph;
    made->args = *args;
    made->n = args->batch;
    made->single = args->precision == DPB_PRECISION_FP32;
    made->memory = *memory;
    if (!allocate_arenas(made) || !prepare_calls(made, device->seed)) {
        reference_release(made);
        return DPB_NO_MEMORY;
    }
    *program = made;
    return DPB_OK;
}

/* --------------------------------------------------------------------------------------- passes */

static void begin_pass(struct program *program, const struct dpb_pass *pass,
                       const struct dpb_batch *batch)
{
    const struct dpb_graph *graph = program->graph;
    memcpy(program->labels, batch->labels, label_count(program) * sizeof *program->labels);
    program->batch = *batch;
    program->batch.labels = program->labels;
    if (!pass->training)
        load(program, program->state, program->memory.state, graph->n_state_elements);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        program->calls[i].training = pass->training;
        program->calls[i].step = pass->step;
        program->calls[i].first_sample = pass->first_sample;
    }
}

/* How many of the values, `stride` apart, are larger than that of the label. */
static uint32_t rank_of(const double *values, size_t stride, uint32_t n, uint32_t label)
{
    const double wanted = values[label * stride];
    uint32_t rank = 0;
    for (uint32_t k = 0; k < n; k++) {
        const double value = values[k * stride];
        rank += k != label && !(value < wanted || (value == wanted && k > label));
    }
    return rank;
}

static struct dpb_outcome outcome_of(const struct program *program, uint32_t valid)
{
    const struct ref_call *loss = &program->calls[program->graph->n_nodes - 1];
    const size_t nclass = loss->in[0].c, positions = dpb_graph_labels(program->graph);
    struct dpb_outcome outcome = {0};
    for (size_t i = 0; i < valid * positions; i++) {
        outcome.loss += loss->y[i] / (double)(valid * positions);
        const double *logits = loss->x[0] + i / positions * nclass * positions + i % positions;
        const uint32_t rank =
            rank_of(logits, positions, (uint32_t)nclass, (uint32_t)program->labels[i]);
        outcome.correct += rank == 0;
        outcome.in_top5 += rank < 5;
    }
    return outcome;
}

/* Backward has the copies. */
static void load_weights(const struct program *program, const struct dpb_node *node)
{
    const uint32_t tensors[] = {node->weight, node->bias};
    const size_t size = program->single ? sizeof(float) : sizeof(double);
    for (int i = 0; i < 2; i++) {
        if (tensors[i] == DPB_NONE)
            continue;
        const struct dpb_tensor *tensor = &program->graph->tensors[tensors[i]];
        load(program, program->weights + tensor->offset,
             (const char *)program->memory.weights + tensor->offset * size, tensor->n_elements);
    }
}

static dpb_status enter(const struct dpb_hooks *hooks, uint32_t node)
{
    return hooks->enter ? hooks->enter(hooks->context, node) : DPB_OK;
}

static dpb_status reference_forward(void *handle, const struct dpb_pass *pass,
                                    const struct dpb_batch *batch, const struct dpb_hooks *hooks,
                                    struct dpb_outcome *outcome)
{
    struct program *program = handle;
    const struct dpb_graph *graph = program->graph;
    DPB_TRY(dpb_refuse_pass(host, "reference", &program->args, pass, batch));
    begin_pass(program, pass, batch);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct ref_call *call = &program->calls[i];
        DPB_TRY(enter(hooks, i));
        load_weights(program, call->node);
        ref_forward(call);
        round_values(program, call->y, node_elements(call->node, program->n));
        DPB_TRY(hooks->progress(hooks->context));
    }
    if (pass->training) {
        for (uint32_t i = 0; i < graph->n_states; i++)
            store(program, program->memory.statistics, program->statistics, graph->states[i].offset,
                  graph->states[i].n_elements);
    }
    *outcome = outcome_of(program, pass->valid);
    return DPB_OK;
}

/* All gradients zero but the loss's own: each label has its share of the mean. */
static void begin_backward(struct program *program)
{
    const struct dpb_graph *graph = program->graph;
    memset(program->dy, 0, activation_elements(graph, program->n) * sizeof(double));
    double *loss = gradient_of(program, graph->n_nodes - 1);
    for (size_t i = 0; i < label_count(program); i++)
        loss[i] = 1.0 / (double)label_count(program);
}

/* Hands out the gradients of the node's tensors, which continue at tensor *next of the arena. */
static dpb_status finish_tensors(struct program *program, uint32_t node, uint32_t *next,
                                 const struct dpb_hooks *hooks)
{
    const struct dpb_graph *graph = program->graph;
    uint32_t first = *next;
    for (; *next < graph->n_tensors && graph->tensors[*next].node == node; ++*next)
        store(program, program->memory.gradients, program->gradients, graph->tensors[*next].offset,
              graph->tensors[*next].n_elements);
    if (*next == first)
        return DPB_OK;
    bool last = *next == graph->n_tensors;
    return hooks->final(hooks->context, last ? graph->n_elements : graph->tensors[*next].offset,
                        NULL);
}

static dpb_status reference_backward(void *handle, const struct dpb_pass *pass,
                                     const struct dpb_hooks *hooks)
{
    struct program *program = handle;
    const struct dpb_graph *graph = program->graph;
    assert(program->args.training && pass->training);
    (void)pass;
    begin_backward(program);
    uint32_t next_tensor = 0;
    for (uint32_t i = graph->n_nodes; i-- > 1;) {
        struct ref_call *call = &program->calls[i];
        round_values(program, gradient_of(program, i), node_elements(call->node, program->n));
        ref_backward(call);
        DPB_TRY(finish_tensors(program, i, &next_tensor, hooks));
        DPB_TRY(hooks->progress(hooks->context));
    }
    return DPB_OK;
}

static dpb_status reference_inspect(void *handle, uint32_t node, double *activation,
                                    double *gradient)
{
    struct program *program = handle;
    DPB_TRY(dpb_refuse_inspect(host, "reference", &program->args, node));
    const struct ref_call *call = &program->calls[node];
    size_t bytes = (size_t)node_elements(call->node, program->n) * sizeof(double);
    if (gradient && (node == 0 || !program->args.training))
        return host->fail(DPB_UNSUPPORTED, "device 'reference' has no gradient by node '%s'%s",
                          call->node->name,
                          node == 0 ? ", the samples" : ": the program was compiled to evaluate");
    if (activation)
        memcpy(activation, call->y, bytes);
    if (gradient)
        memcpy(gradient, call->dy, bytes);
    return DPB_OK;
}

static void reference_close(void *device)
{
    free(device);
}

/* --------------------------------------------------------------------------------------- plugin */

static const struct dpb_device_ops reference_ops = {
    .open = reference_open,
    .memory_needed = reference_memory_needed,
    .compile = reference_compile,
    .forward = reference_forward,
    .backward = reference_backward,
    .inspect = reference_inspect,
    .release = reference_release,
    .close = reference_close,
};

static const struct dpb_plugin reference_plugin = {
    DPB_PLUGIN_HEAD(DEVICE, reference_ops),
    .capabilities = DPB_DEVICE_FP64 | DPB_DEVICE_FP32 | DPB_DEVICE_NODE_BY_NODE,
    .name = "reference",
    .version = DPB_VERSION,
    .summary = "plain C in fp64 or fp32 on one thread: the oracle of the tests",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *from_core)
{
    host = from_core;
    return &reference_plugin;
}
