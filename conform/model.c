/* model.c - the conformance suite of models: see conform.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conform/conform.h"
#include "conform/networks.h"
#include "conform/opcheck.h"

struct subject {
    const struct dpb_plugin *plugin;
    const struct dpb_model_ops *ops;
    const void *options;
    struct dpb_model_info info;
    const struct dpb_device_ops *reference;
};

static dpb_status build(const struct subject *subject, struct dpb_shape input, uint32_t nclass,
                        struct dpb_graph **graph)
{
    return dpb_graph_build(subject->plugin->name, subject->ops, subject->options, input, nclass,
                           graph);
}

static dpb_status try_description(const struct subject *subject)
{
    const struct dpb_shape in = subject->info.input;
    struct dpb_model_info again = {.batch = 0};
    subject->ops->describe(subject->options, &again);
    if (in.c == 0 || in.h == 0 || in.w == 0 || in.c > DPB_MAX_CHANNELS)
        return dpb_fail(DPB_VERIFICATION,
                        "describe: input is %u x %u x %u; 1 to %d channels and at least one pixel "
                        "are wanted",
                        in.c, in.h, in.w, DPB_MAX_CHANNELS);
    if (subject->info.ids && (in.c != 1 || in.h != 1 || subject->info.any_channels))
        return dpb_fail(DPB_VERIFICATION,
                        "describe: ids of tokens in an input of %u x %u x %u%s; 1 x 1 x length is "
                        "wanted",
                        in.c, in.h, in.w, subject->info.any_channels ? " and any channels" : "");
    if (subject->info.nclass < 2 || subject->info.batch == 0)
        return dpb_fail(DPB_VERIFICATION,
                        "describe: %u classes and a batch of %u; at least 2 and 1 are wanted",
                        subject->info.nclass, subject->info.batch);
    if (memcmp(&again.input, &in, sizeof in) != 0 || again.nclass != subject->info.nclass ||
        again.batch != subject->info.batch || again.any_image != subject->info.any_image ||
        again.any_channels != subject->info.any_channels || again.ids != subject->info.ids)
        return dpb_fail(DPB_VERIFICATION, "describe says something else the second time");
    return DPB_OK;
}

/* The published network, counted, and built twice alike. */
static dpb_status try_counts(const struct subject *subject)
{
    struct dpb_graph *graph = NULL, *again = NULL;
    dpb_status status = build(subject, subject->info.input, subject->info.nclass, &graph);
    DPB_THEN(status, build(subject, subject->info.input, subject->info.nclass, &again));
    if (status == DPB_OK && dpb_graph_hash(graph) != dpb_graph_hash(again))
        status = dpb_fail(DPB_VERIFICATION, "build makes another network the second time");
    if (status == DPB_OK)
        printf("  counts   %u x %u x %u, %u classes: %u nodes, %u tensors, %llu parameters, %llu "
               "multiply-accumulates a sample\n",
               subject->info.input.c, subject->info.input.h, subject->info.input.w,
               subject->info.nclass, graph->n_nodes, graph->n_tensors,
               (unsigned long long)graph->n_parameters, (unsigned long long)graph->macs);
    dpb_graph_destroy(graph);
    dpb_graph_destroy(again);
    return status;
}

/* Data may bring other classes, and other inputs that `describe` allows. */
static dpb_status try_others(const struct subject *subject)
{
    static const uint32_t classes[] = {2, 1000};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        struct dpb_graph *graph = NULL;
        DPB_TRY(build(subject, subject->info.input, classes[i], &graph));
        dpb_graph_destroy(graph);
    }
    struct dpb_shape other = subject->info.input;
    if (subject->info.any_image && subject->info.ids) {
        other.w = other.w / 2 + 1; /* a table of positions has rows for its own length */
    } else if (subject->info.any_image) {
        other.h += 3;
        other.w += 5;
    }
    if (subject->info.any_channels)
        other.c = other.c == 1 ? 3 : 1;
    struct dpb_graph *graph = NULL;
    DPB_TRY(build(subject, other, subject->info.nclass, &graph));
    dpb_graph_destroy(graph);
    return DPB_OK;
}

static double direction(uint64_t i)
{
    return (double)((i * UINT64_C(2654435761)) % 1000) / 500.0 - 1.0;
}

/* Loss of the weights moved by `by` along the direction. */
static dpb_status loss_at(struct dpb_session *s, const double *weights, double by, double *loss)
{
    for (uint64_t i = 0; i < s->graph->n_elements; i++)
        dpb_session_set(s, s->weights, i, weights[i] + by * direction(i));
    s->pass.weights_changed = true;
    DPB_TRY(dpb_session_forward(s));
    *loss = s->outcome.loss;
    return DPB_OK;
}

/* Every tensor takes part; together they give the loss's slope along a direction. */
static dpb_status check_slope(struct dpb_session *s, const double *weights)
{
    const struct dpb_graph *graph = s->graph;
    double slope = 0, magnitude = 0, above, below;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &graph->tensors[t];
        double largest = 0;
        for (uint64_t i = tensor->offset; i < tensor->offset + tensor->n_elements; i++) {
            double gradient = dpb_session_value(s, s->gradients, i);
            slope += gradient * direction(i);
            magnitude += fabs(gradient * direction(i));
            largest = fmax(largest, fabs(gradient));
        }
        if (!(largest > 0 && isfinite(largest)))
            return dpb_fail(DPB_VERIFICATION,
                            "the gradient by '%s' is %s: the loss does not depend on it",
                            tensor->name, largest == 0 ? "0 in every element" : "not finite");
    }
    /* So near that the loss moves by 1e-4 at most: in a deep network it bends. */
    const double by = fmin(1e-6, 1e-4 / fabs(slope));
    DPB_TRY(loss_at(s, weights, by, &above));
    DPB_TRY(loss_at(s, weights, -by, &below));
    const double measured = (above - below) / (2 * by);
    if (!(fabs(measured - slope) <= 1e-3 * magnitude + 1e-6))
        return dpb_fail(DPB_VERIFICATION,
                        "the loss rises by %.9g along a direction, its gradients say %.9g",
                        measured, slope);
    return DPB_OK;
}

static dpb_status check_training(struct dpb_session *s)
{
    dpb_graph_initialise(s->graph, DPB_SESSION_SEED, DPB_FP64, s->weights);
    DPB_TRY(dpb_session_forward(s));
    const double guessing = log(s->graph->nclass);
    if (!(s->outcome.loss < 20 * guessing)) /* NaN too */
        return dpb_fail(DPB_VERIFICATION,
                        "the loss of the initial weights is %.4g, that of guessing %.4g; are the "
                        "initial values right?",
                        s->outcome.loss, guessing);
    DPB_TRY(dpb_session_backward(s));
    double *weights = dpb_session_allocate(s->graph->n_elements, sizeof *weights);
    if (!weights)
        return DPB_NO_MEMORY;
    memcpy(weights, s->weights, s->graph->n_elements * sizeof *weights);
    dpb_status status = check_slope(s, weights);
    free(weights);
    return status;
}

static dpb_status try_gradients(const struct subject *subject)
{
    struct dpb_session_args args = {.ops = subject->reference,
                                    .type = subject->info.ids ? DPB_INT32 : DPB_FP32,
                                    .order = DPB_CHW,
                                    .precision = DPB_PRECISION_FP64,
                                    .training = true};
    struct dpb_session session;
    DPB_TRY(dpb_network_small(subject->plugin, subject->options, 1, &args.graph));
    /* A small image's last layers have one pixel: a batch-norm of two values has no usable
     * gradient, and in a deep network these errors multiply. */
    args.batch = args.graph->n_states > 0 ? 8 : 2;
    const struct dpb_shape in = args.graph->nodes[0].shape;
    dpb_status status = dpb_session_open(&args, &session);
    if (status != DPB_OK) {
        dpb_graph_destroy(args.graph);
        return status;
    }
    status = check_training(&session);
    if (status == DPB_OK)
        printf("  gradients on %u x %u x %u, batch %u: initial loss %.4f, guessing %.4f\n", in.c,
               in.h, in.w, args.batch, session.outcome.loss, log(session.graph->nclass));
    dpb_session_close(&session);
    return status;
}

void dpb_conform_model(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                       const void *options, const struct dpb_device_ops *reference)
{
    struct subject subject = {
        .plugin = plugin, .ops = plugin->ops, .options = options, .reference = reference};
    subject.ops->describe(options, &subject.info);
    dpb_conform_heading(conform, "model");
    dpb_status status = try_description(&subject);
    dpb_conform_trial(conform, status, "description");
    if (status == DPB_OK) {
        dpb_conform_trial(conform, dpb_conform_promised(try_counts(&subject)),
                          "the same network twice");
        dpb_conform_trial(conform, dpb_conform_promised(try_others(&subject)),
                          subject.info.ids ? "other classes and lengths, as described"
                                           : "other classes, images and channels, as described");
        dpb_conform_trial(conform, dpb_conform_promised(try_gradients(&subject)), "gradients");
    }
    dpb_conform_end(conform);
    puts("gradients: on the reference device in fp64, the slope of the loss along a direction; "
         "every tensor takes part\n"
         "not shown: that this is the published network (compare the counts), accuracy");
}
