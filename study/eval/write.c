/* write.c - see write.h. */
#include "study/eval/write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "dpbench/random.h"
#include "machine/cores.h"
#include "plan/fit.h"

enum { BYTES = 256 };

struct writer {
    const struct dpb_experiment *experiment;
    const struct dpb_device_ops *ops;
    void *device, *program;
    uint64_t weights_bytes, state_bytes;
    void *weights, *state, *statistics;
    uint32_t logits;          /* the node */
    uint32_t length;          /* ids of a window */
    uint32_t n;               /* of them that are known */
    int32_t *window, *labels; /* labels: any */
    double *activation;       /* {256, length} */
};

/* ---- what can write ------------------------------------------------------------------------ */

/* Whether a position of the node's output depends on no later position of its inputs. */
static bool is_causal(const struct dpb_node *node)
{
    switch (node->op) {
    case DPB_OP_ATTENTION:
        return node->causal;
    case DPB_OP_CONV:
        return node->window.kernel_h == 1 && node->window.kernel_w == 1 &&
               node->window.stride_h == 1 && node->window.stride_w == 1;
    case DPB_OP_MAX_POOL:
    case DPB_OP_MEAN_POOL:
    case DPB_OP_DENSE:
    case DPB_OP_SHORTCUT:
    case DPB_OP_PREPEND:
    case DPB_OP_TENSOR:
        return false;
    default:
        return true;
    }
}

static dpb_status check(const struct dpb_experiment *experiment)
{
    const struct dpb_graph *graph = experiment->graph;
    if (experiment->data_info.format.type != DPB_INT32 || experiment->data_info.nclass != BYTES)
        return dpb_config_fail(
            experiment->config, DPB_UNSUPPORTED, "data", "name",
            "--sample writes bytes, and data '%s' has %u %s; take data.name = "
            "tokens with data.type = bytes",
            experiment->settings.data.name, experiment->data_info.nclass,
            experiment->data_info.format.type == DPB_INT32 ? "tokens" : "classes of images");
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (!is_causal(&graph->nodes[i]))
            return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "model", "name",
                                   "--sample needs a network whose positions see no later ones, "
                                   "and in model '%s' those of '%s' do; take a GPT",
                                   graph->name, graph->nodes[i].name);
    return DPB_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

static dpb_status allocate(struct writer *w)
{
    const struct dpb_graph *graph = w->experiment->graph;
    const size_t element = dpb_dtype_size(w->experiment->weight_type);
    w->weights_bytes = graph->n_elements * element;
    w->state_bytes = (graph->n_state_elements + 1) * element;
    w->weights = dpb_alloc(w->weights_bytes);
    w->state = dpb_alloc(w->state_bytes);
    w->statistics = dpb_alloc(w->state_bytes);
    w->window = calloc(w->length, sizeof *w->window);
    w->labels = calloc(w->length, sizeof *w->labels);
    w->activation = calloc((size_t)BYTES * w->length, sizeof *w->activation);
    return dpb_allocated(w->weights && w->state && w->statistics && w->window && w->labels &&
                         w->activation);
}

static dpb_status compile(struct writer *w)
{
    const struct dpb_experiment *experiment = w->experiment;
    const struct dpb_settings *settings = &experiment->settings;
    struct dpb_device_args args = {.threads = (uint32_t)settings->device.threads,
                                   .seed = (uint64_t)settings->run.seed,
                                   .dilation = 1,
                                   .alone = true};
    const struct dpb_compile_args compile = {.graph = experiment->graph,
                                             .batch = 1,
                                             .precision = (dpb_precision)settings->run.precision,
                                             .format = &experiment->data_info.format,
                                             .inspect = true};
    const struct dpb_device_memory memory = {
        .weights = w->weights, .state = w->state, .statistics = w->statistics};
    if (args.threads == 0)
        DPB_TRY(dpb_cores_available(&args.threads));
    DPB_TRY(w->ops->open(experiment->options[DPB_PLUGIN_DEVICE], &args, &w->device));
    return w->ops->compile(w->device, &compile, &memory, &w->program);
}

static dpb_status open_writer(struct writer *w)
{
    struct dpb_checkpoint checkpoint = {.graph = w->experiment->graph,
                                        .type = w->experiment->weight_type};
    DPB_TRY(allocate(w));
    checkpoint.weights = w->weights;
    checkpoint.state = w->state;
    DPB_TRY(dpb_checkpoint_load(w->experiment->settings.checkpoint.load, &checkpoint));
    return compile(w);
}

static void close_writer(struct writer *w)
{
    w->ops->release(w->program);
    w->ops->close(w->device);
    dpb_release(w->weights, w->weights_bytes);
    dpb_release(w->state, w->state_bytes);
    dpb_release(w->statistics, w->state_bytes);
    free(w->window);
    free(w->labels);
    free(w->activation);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* The oldest byte leaves a full window. */
static void append(struct writer *w, uint8_t byte)
{
    if (w->n == w->length)
        memmove(w->window, w->window + 1, --w->n * sizeof *w->window);
    w->window[w->n++] = byte;
}

static dpb_status progress(void *context)
{
    (void)context;
    return DPB_OK;
}

/* The logits of the byte behind the window. */
static dpb_status predict(struct writer *w, bool first, double logits[BYTES])
{
    const struct dpb_hooks hooks = {.progress = progress};
    const struct dpb_pass pass = {.weights_changed = first, .valid = 1};
    const struct dpb_batch batch = {.format = &w->experiment->data_info.format,
                                    .samples = w->window,
                                    .labels = w->labels,
                                    .n = 1};
    struct dpb_outcome outcome;
    DPB_TRY(w->ops->forward(w->program, &pass, &batch, &hooks, &outcome));
    DPB_TRY(w->ops->inspect(w->program, w->logits, w->activation, NULL));
    for (uint32_t byte = 0; byte < BYTES; byte++) {
        logits[byte] = w->activation[(size_t)byte * w->length + w->n - 1];
        if (!isfinite(logits[byte]))
            return dpb_fail(DPB_DATA,
                            "%s: the network's logits are not finite: take a checkpoint "
                            "from before",
                            w->experiment->settings.checkpoint.load);
    }
    return DPB_OK;
}

/* By a number in [0, 1). */
static uint8_t choose(const double logits[BYTES], double temperature, double number)
{
    uint32_t best = 0;
    double weights[BYTES], sum = 0;
    for (uint32_t byte = 1; byte < BYTES; byte++)
        best = logits[byte] > logits[best] ? byte : best;
    if (temperature == 0)
        return (uint8_t)best;
    for (uint32_t byte = 0; byte < BYTES; byte++)
        sum += weights[byte] = exp((logits[byte] - logits[best]) / temperature);
    number *= sum;
    for (uint32_t byte = 0; byte < BYTES; byte++) {
        if (number < weights[byte])
            return (uint8_t)byte;
        number -= weights[byte];
    }
    return (uint8_t)best; /* the sum was rounded up */
}

static dpb_status write_bytes(struct writer *w, const struct dpb_write_args *args, FILE *out)
{
    const uint64_t seed = (uint64_t)w->experiment->settings.run.seed;
    for (const char *at = args->prompt; *at; at++)
        append(w, (uint8_t)*at);
    for (int64_t i = 0; i < args->n_bytes && !ferror(out); i++) {
        double logits[BYTES];
        DPB_TRY(predict(w, i == 0, logits));
        const struct dpb_random4 r = dpb_random(seed, DPB_STREAM_TEXT, (uint32_t)i, 0, 0, 0);
        const uint8_t byte = choose(logits, args->temperature, (double)dpb_random_uniform(r.v[0]));
        append(w, byte);
        fputc(byte, out);
        fflush(out);
    }
    return DPB_OK;
}

dpb_status dpb_write_text(struct dpb_experiment *experiment, const struct dpb_write_args *args,
                          FILE *out)
{
    struct writer w = {.experiment = experiment,
                       .ops = experiment->plugins[DPB_PLUGIN_DEVICE]->ops};
    DPB_TRY(dpb_fit_build(experiment, 0, true));
    DPB_TRY(check(experiment));
    w.logits = experiment->graph->nodes[experiment->graph->n_nodes - 1].inputs[0];
    w.length = experiment->data_info.format.shape.w;
    dpb_status status = open_writer(&w);
    DPB_THEN(status, write_bytes(&w, args, out));
    close_writer(&w);
    return status;
}
