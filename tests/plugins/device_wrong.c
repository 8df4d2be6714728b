/*
 * device_wrong.c - the device `reference` with one mistake, in programs for training without
 * `inspect` whose images have one channel. So the networks of `dpbench conform`, which have more
 * channels, do not show the mistake op by op, and models like lenet have it.
 */
#include "fault.h"

#define MISTAKES(X) X(none) X(constant) X(layer) X(sample) X(gradient) X(stops)
enum {
#define MISTAKE(name) MISTAKE_##name,
    MISTAKES(MISTAKE)
};
#define NAME(name) #name,
static const char *const mistakes[] = {MISTAKES(NAME) NULL};

struct options {
    int mistake;
};

static const struct dpb_option option_rows[] = {
    {"mistake", DPB_OPT_CHOICE, NULL, "none", 0, 0, mistakes, offsetof(struct options, mistake),
     "a constant loss; a ReLU left out; a sample left out of both passes, or of backward; backward "
     "stops halfway",
     NULL},
    {0},
};

static const struct dpb_host *host;
static const struct dpb_device_ops *inner;
static int wanted;

/* A process has one device, and a program for training. */
static struct program {
    void *inner;
    int mistake;
    uint64_t n_elements;
    float *gradients;
    void *samples; /* copies */
    int32_t labels[4096];
    const struct dpb_hooks *hooks; /* of the backward under way */
    uint64_t frontier;
} program;

static dpb_status wrong_open(const void *options, const struct dpb_device_args *args, void **device)
{
    wanted = ((const struct options *)options)->mistake;
    return inner->open(NULL, args, device);
}

static uint64_t wrong_memory_needed(const void *options, const struct dpb_compile_args *args)
{
    (void)options;
    return inner->memory_needed(NULL, args);
}

/* The first ReLU becomes a pool of one pixel, which changes nothing. */
static const struct dpb_graph *without_layer(const struct dpb_graph *graph)
{
    static struct dpb_node nodes[1024];
    static struct dpb_graph copy;
    copy = *graph;
    memcpy(nodes, graph->nodes, graph->n_nodes * sizeof *nodes);
    copy.nodes = nodes;
    uint32_t i = 0;
    while (nodes[i].op != DPB_OP_RELU)
        i++;
    nodes[i].op = DPB_OP_MAX_POOL;
    nodes[i].window =
        (struct dpb_window){.kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1};
    return &copy;
}

static dpb_status wrong_compile(void *device, const struct dpb_compile_args *args,
                                const struct dpb_device_memory *memory, void **made)
{
    struct dpb_compile_args given = *args;
    const bool is_wrong = args->training && !args->inspect && args->graph->nodes[0].shape.c == 1;
    if (is_wrong && wanted == MISTAKE_layer)
        given.graph = without_layer(args->graph);
    DPB_TRY(inner->compile(device, &given, memory, made));
    if (args->training)
        program = (struct program){.inner = *made,
                                   .mistake = is_wrong ? wanted : MISTAKE_none,
                                   .n_elements = args->graph->n_elements,
                                   .gradients = memory->gradients};
    return DPB_OK;
}

/* The last sample becomes the first once more. */
static struct dpb_batch without_sample(const struct dpb_batch *batch)
{
    const size_t bytes =
        dpb_shape_elements(batch->format->shape) * dpb_dtype_size(batch->format->type);
    struct dpb_batch copy = *batch;
    free(program.samples);
    program.samples = malloc(batch->n * bytes);
    memcpy(program.samples, batch->samples, batch->n * bytes);
    memcpy((char *)program.samples + (batch->n - 1) * bytes, program.samples, bytes);
    memcpy(program.labels, batch->labels, batch->n * sizeof *batch->labels);
    program.labels[batch->n - 1] = program.labels[0];
    copy.samples = program.samples;
    copy.labels = program.labels;
    return copy;
}

static dpb_status wrong_forward(void *made, const struct dpb_pass *pass,
                                const struct dpb_batch *batch, const struct dpb_hooks *hooks,
                                struct dpb_outcome *outcome)
{
    const int mistake = made == program.inner ? program.mistake : MISTAKE_none;
    const struct dpb_batch fewer =
        mistake == MISTAKE_sample || mistake == MISTAKE_gradient ? without_sample(batch) : *batch;
    DPB_TRY(inner->forward(made, pass, &fewer, hooks, outcome));
    if (mistake == MISTAKE_constant)
        outcome->loss = 2.3;
    if (mistake != MISTAKE_gradient)
        return DPB_OK;
    DPB_TRY(inner->forward(made, pass, batch, hooks, outcome));
    struct dpb_outcome none; /* backward's activations */
    return inner->forward(made, pass, &fewer, hooks, &none);
}

static dpb_status stop_halfway(void *context, uint64_t frontier, struct dpb_event *event)
{
    (void)context;
    if (frontier > program.n_elements / 2)
        memset(program.gradients + program.frontier, 0,
               (frontier - program.frontier) * sizeof *program.gradients);
    program.frontier = frontier;
    return program.hooks->final(program.hooks->context, frontier, event);
}

static dpb_status wrong_backward(void *made, const struct dpb_pass *pass,
                                 const struct dpb_hooks *hooks)
{
    struct dpb_hooks own = *hooks;
    if (made == program.inner && program.mistake == MISTAKE_stops) {
        program.hooks = hooks;
        program.frontier = 0;
        own.final = stop_halfway;
    }
    return inner->backward(made, pass, &own);
}

static dpb_status wrong_inspect(void *made, uint32_t node, double *activation, double *gradient)
{
    return inner->inspect(made, node, activation, gradient);
}

static void wrong_release(void *made)
{
    free(program.samples);
    program.samples = NULL;
    inner->release(made);
}

static void wrong_close(void *device)
{
    inner->close(device);
}

static const struct dpb_device_ops wrong_ops = {.open = wrong_open,
                                                .memory_needed = wrong_memory_needed,
                                                .compile = wrong_compile,
                                                .forward = wrong_forward,
                                                .backward = wrong_backward,
                                                .inspect = wrong_inspect,
                                                .release = wrong_release,
                                                .close = wrong_close};

static const struct dpb_plugin plugin_wrong = {
    DPB_PLUGIN_HEAD(DEVICE, wrong_ops),
    .capabilities = DPB_DEVICE_FP32,
    .name = "wrong",
    .version = "1",
    .summary = "for tests: a device with one mistake in some models",
    .options = option_rows,
    .options_size = sizeof(struct options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    const struct dpb_plugin *plugin = fault_inner(host, "device_reference");
    if (!plugin)
        return NULL;
    inner = plugin->ops;
    return &plugin_wrong;
}
