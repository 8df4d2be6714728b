/*
 * device_skeleton.c - the smallest device: softmax regression (input, one dense layer, loss) in
 * float64, with plain loops. It refuses every other network by name, as every device has to refuse
 * what it cannot do. See model_skeleton.c for how to build it.
 */
#include <math.h>

#include "dpbench/plugin.h"

static const struct dpb_host *host;

/* A graph that was compiled for a batch: all that forward and backward need. */
struct program {
    const struct dpb_graph *graph;
    struct dpb_device_memory memory;
    uint64_t n_inputs, n_classes;
    size_t bytes;                     /* of `values` */
    double *values, *inputs, *errors; /* batch x n_inputs; batch x n_classes: softmax - one-hot */
    uint32_t n;
};

/* ---- open and compile ---------------------------------------------------------------------- */

static dpb_status open_device(const void *options, const struct dpb_device_args *args,
                              void **device)
{
    (void)options, (void)args;
    *device = NULL; /* nothing to keep; a real one makes its engine, stream or thread pool */
    return DPB_OK;
}

static uint64_t memory_needed(const void *options, const struct dpb_compile_args *args)
{
    (void)options;
    const struct dpb_graph *graph = args->graph;
    uint64_t row = dpb_shape_elements(graph->nodes[0].shape) + graph->nclass;
    return sizeof(struct program) + sizeof(double) * args->batch * row;
}

static dpb_status compile(void *device, const struct dpb_compile_args *args,
                          const struct dpb_device_memory *memory, void **program)
{
    const struct dpb_graph *graph = args->graph;
    (void)device;
    if (graph->n_nodes != 3 || graph->nodes[1].op != DPB_OP_DENSE ||
        graph->nodes[1].bias == DPB_NONE || args->format->type != DPB_FP32)
        return host->fail(
            DPB_UNSUPPORTED,
            "device 'skeleton' computes one dense layer with bias on fp32 samples, and "
            "model '%s' is more than that; take device.name = reference",
            graph->name);
    struct program *made = host->alloc(sizeof *made);
    if (!made)
        return DPB_NO_MEMORY;
    made->graph = graph;
    made->memory = *memory;
    made->n_inputs = dpb_shape_elements(graph->nodes[0].shape);
    made->n_classes = graph->nclass;
    made->bytes = sizeof(double) * args->batch * (made->n_inputs + made->n_classes);
    made->values = host->alloc(made->bytes);
    if (!made->values) {
        host->release(made, sizeof *made);
        return DPB_NO_MEMORY;
    }
    made->inputs = made->values;
    made->errors = made->values + args->batch * made->n_inputs;
    *program = made;
    return DPB_OK;
}

/* ---- passes -------------------------------------------------------------------------------- */

/* The tensor's place in an arena of core's; float64 is all that this device declares. */
static double *tensor(const struct program *p, const void *arena, uint32_t index)
{
    return (double *)arena + p->graph->tensors[index].offset;
}

/* Logits of a sample in, softmax minus the label's one out; returns the loss. */
static double softmax(double *logits, uint64_t n, int32_t label, bool *correct)
{
    uint64_t best = 0;
    double sum = 0.0, of_label;
    for (uint64_t k = 1; k < n; k++)
        best = logits[k] > logits[best] ? k : best;
    double largest = logits[best];
    for (uint64_t k = 0; k < n; k++)
        sum += exp(logits[k] - largest);
    of_label = logits[label] - largest;
    for (uint64_t k = 0; k < n; k++)
        logits[k] = exp(logits[k] - largest) / sum - (k == (uint64_t)label ? 1.0 : 0.0);
    *correct = best == (uint64_t)label;
    return log(sum) - of_label;
}

static dpb_status forward(void *program, const struct dpb_pass *pass, const struct dpb_batch *batch,
                          const struct dpb_hooks *hooks, struct dpb_outcome *outcome)
{
    struct program *p = program;
    const struct dpb_node *dense = &p->graph->nodes[1];
    const double *weight = tensor(p, p->memory.weights, dense->weight);
    const double *bias = tensor(p, p->memory.weights, dense->bias);
    uint64_t plane = p->n_inputs / batch->format->shape.c;
    *outcome = (struct dpb_outcome){0};
    p->n = pass->valid;
    for (uint64_t i = 0; i < p->n; i++) {
        const float *sample = (const float *)batch->samples + i * p->n_inputs;
        double *x = p->inputs + i * p->n_inputs, *y = p->errors + i * p->n_classes;
        bool correct;
        for (uint64_t j = 0; j < p->n_inputs; j++)
            x[j] = (double)sample[j] * batch->format->scale[j / plane] +
                   batch->format->offset[j / plane];
        for (uint64_t k = 0; k < p->n_classes; k++) {
            y[k] = bias[k];
            for (uint64_t j = 0; j < p->n_inputs; j++)
                y[k] += weight[k * p->n_inputs + j] * x[j];
        }
        outcome->loss += softmax(y, p->n_classes, batch->labels[i], &correct) / p->n;
        outcome->correct += correct;
    }
    return hooks->progress(hooks->context); /* the strategy's turn, now and then */
}

static dpb_status backward(void *program, const struct dpb_pass *pass,
                           const struct dpb_hooks *hooks)
{
    struct program *p = program;
    const struct dpb_node *dense = &p->graph->nodes[1];
    double *weight = tensor(p, p->memory.gradients, dense->weight);
    double *bias = tensor(p, p->memory.gradients, dense->bias);
    (void)pass;
    for (uint64_t k = 0; k < p->n_classes; k++) {
        bias[k] = 0.0;
        for (uint64_t i = 0; i < p->n; i++)
            bias[k] += p->errors[i * p->n_classes + k] / p->n;
        for (uint64_t j = 0; j < p->n_inputs; j++) {
            double sum = 0.0;
            for (uint64_t i = 0; i < p->n; i++)
                sum += p->errors[i * p->n_classes + k] * p->inputs[i * p->n_inputs + j];
            weight[k * p->n_inputs + j] = sum / p->n;
        }
    }
    /* All gradients are final at once; a device of many layers calls this after each. */
    return hooks->final(hooks->context, p->graph->n_elements, NULL);
}

static dpb_status inspect(void *program, uint32_t node, double *activation, double *gradient)
{
    (void)program, (void)activation, (void)gradient;
    return host->fail(DPB_UNSUPPORTED, "device 'skeleton' keeps no activations (node %u)", node);
}

static void release(void *program)
{
    struct program *p = program;
    if (p)
        host->release(p->values, p->bytes);
    host->release(p, sizeof *p);
}

static void close_device(void *device)
{
    (void)device;
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_device_ops ops = {
    .open = open_device,
    .memory_needed = memory_needed,
    .compile = compile,
    .forward = forward,
    .backward = backward,
    .inspect = inspect,
    .release = release,
    .close = close_device,
};

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(DEVICE, ops),
    .capabilities = DPB_DEVICE_FP64,
    .name = "skeleton",
    .version = "1",
    .summary = "the smallest device: softmax regression in float64",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &plugin;
}
