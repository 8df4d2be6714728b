/* device.c - the conformance suite of devices: every op, in every precision that the device
 * declares, against the reference's ops; and a network as a whole: see opcheck.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conform/conform.h"
#include "conform/networks.h"
#include "conform/opcheck.h"
#include "conform/slope.h"

static dpb_status ignore_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    (void)context;
    (void)frontier;
    (void)event;
    return DPB_OK;
}

static dpb_status ignore_progress(void *context)
{
    (void)context;
    return DPB_OK;
}

static double *widen(const struct dpb_session *s, const void *arena, uint64_t n)
{
    double *wide = dpb_session_allocate(n, sizeof *wide);
    for (uint64_t i = 0; wide && i < n; i++)
        wide[i] = dpb_session_value(s, arena, i);
    return wide;
}

static dpb_status run_reference(const struct dpb_session *s, const struct dpb_device_ops *ops,
                                const struct dpb_device_memory *memory, struct dpb_outcome *outcome)
{
    const struct dpb_device_args device_args = {.threads = 1, .seed = DPB_SESSION_SEED};
    const struct dpb_compile_args args = {.graph = s->graph,
                                          .batch = s->batch.n,
                                          .precision = DPB_PRECISION_FP64,
                                          .training = s->pass.training,
                                          .format = &s->format};
    const struct dpb_hooks hooks = {.final = ignore_final, .progress = ignore_progress};
    void *device = NULL, *program = NULL;
    DPB_TRY(ops->open(NULL, &device_args, &device));
    dpb_status status = ops->compile(device, &args, memory, &program);
    DPB_THEN(status, ops->forward(program, &s->pass, &s->batch, &hooks, outcome));
    ops->release(program);
    ops->close(device);
    return status;
}

/* The same pass by the reference device in fp64. */
static dpb_status reference_outcome(const struct dpb_session *s, const struct dpb_device_ops *ops,
                                    struct dpb_outcome *outcome)
{
    double *weights = widen(s, s->weights, s->graph->n_elements);
    double *gradients = dpb_session_allocate(s->graph->n_elements, sizeof *gradients);
    double *state = widen(s, s->state, s->graph->n_state_elements);
    double *statistics = dpb_session_allocate(s->graph->n_state_elements, sizeof *statistics);
    const struct dpb_device_memory memory = {
        .weights = weights, .gradients = gradients, .state = state, .statistics = statistics};
    dpb_status status = weights && gradients && state && statistics
                            ? run_reference(s, ops, &memory, outcome)
                            : DPB_NO_MEMORY;
    free(weights);
    free(gradients);
    free(state);
    free(statistics);
    return status;
}

/* Where logits are rounded to few bits, one in fifty labels may change places with another. */
static bool is_off(const struct dpb_session *s, uint32_t count, uint32_t want)
{
    const bool rounds = s->precision != DPB_PRECISION_FP32 && s->precision != DPB_PRECISION_FP64;
    const uint32_t labels = s->pass.valid * dpb_graph_labels(s->graph);
    return (count > want ? count - want : want - count) > (rounds ? labels / 50 : 0);
}

dpb_status dpb_opcheck_loss(const struct dpb_session *s, const struct dpb_device_ops *reference,
                            double share)
{
    static const double bounds[DPB_PRECISIONS] = {[DPB_PRECISION_FP32] = 1e-4,
                                                  [DPB_PRECISION_BF16] = 5e-2,
                                                  [DPB_PRECISION_FP64] = 1e-10,
                                                  [DPB_PRECISION_TF32] = 5e-2,
                                                  [DPB_PRECISION_FP16] = 5e-2};
    struct dpb_outcome want = {0};
    DPB_TRY(reference_outcome(s, reference, &want));
    const double bound = fmax(bounds[s->precision], share * fabs(want.loss));
    if (!(fabs(s->outcome.loss - want.loss) <= bound))
        return dpb_fail(DPB_VERIFICATION, "%s, %s: loss is %.9g, should be %.9g +- %g",
                        s->graph->name, dpb_precision_name(s->precision), s->outcome.loss,
                        want.loss, bound);
    if (!s->pass.training && (is_off(s, s->outcome.correct, want.correct) ||
                              is_off(s, s->outcome.in_top5, want.in_top5)))
        return dpb_fail(DPB_VERIFICATION,
                        "%s, %s: %u of %u labels correct, %u in the top 5, should be %u and %u",
                        s->graph->name, dpb_precision_name(s->precision), s->outcome.correct,
                        s->pass.valid * dpb_graph_labels(s->graph), s->outcome.in_top5,
                        want.correct, want.in_top5);
    return DPB_OK;
}

/* ---- again ---------------------------------------------------------------------------------- */

/* The results of a training step. */
struct left {
    struct dpb_outcome outcome;
    void *gradients, *statistics, *weights;
    size_t bytes, state_bytes;
};

static void *copy_of(const void *memory, size_t bytes)
{
    void *copy = dpb_session_allocate(bytes, 1);
    return copy ? memcpy(copy, memory, bytes) : NULL;
}

static dpb_status keep(const struct dpb_session *s, struct left *left)
{
    const size_t size = dpb_dtype_size(dpb_session_type(s));
    *left = (struct left){.outcome = s->outcome,
                          .bytes = s->graph->n_elements * size,
                          .state_bytes = s->graph->n_state_elements * size};
    left->gradients = copy_of(s->gradients, left->bytes);
    left->weights = copy_of(s->weights, left->bytes);
    left->statistics = copy_of(s->statistics, left->state_bytes);
    return left->gradients && left->weights && left->statistics ? DPB_OK : DPB_NO_MEMORY;
}

static dpb_status same_bits(const struct dpb_session *s, const struct left *left, const char *what)
{
    const char *differs =
        s->outcome.loss != left->outcome.loss || s->outcome.correct != left->outcome.correct
            ? "the loss"
        : memcmp(s->gradients, left->gradients, left->bytes) != 0         ? "a gradient"
        : memcmp(s->statistics, left->statistics, left->state_bytes) != 0 ? "a batch statistic"
                                                                          : NULL;
    if (!differs)
        return DPB_OK;
    return dpb_fail(DPB_VERIFICATION, "%s, %s: %s: %s has other bits", s->graph->name,
                    dpb_precision_name(s->precision), what, differs);
}

static dpb_status step(struct dpb_session *s)
{
    DPB_TRY(dpb_session_forward(s));
    return dpb_session_backward(s);
}

/* `kept`: NULL, or the weights, of which a node's alone are there when it is entered. */
static dpb_status repeat(struct dpb_session *s, const struct left *left, const void *kept)
{
    s->pass.weights_changed = kept != NULL; /* packed copies would hide a node's absence */
    s->spoil = true;
    s->kept = kept;
    dpb_status status = step(s);
    s->spoil = false;
    memcpy(s->weights, left->weights, left->bytes);
    DPB_TRY(status);
    return same_bits(s, left,
                     kept ? "the same step again, with weights of the node entered last alone"
                          : "the same step again, while final weights are overwritten");
}

/* Training's own programs keep nothing for a test: tensors share memory. */
static dpb_status repeat_without_inspect(struct dpb_session *s, const struct left *left)
{
    const struct dpb_compile_args args = {.graph = s->graph,
                                          .batch = s->batch.n,
                                          .precision = s->precision,
                                          .training = true,
                                          .format = &s->format};
    const struct dpb_device_memory memory = dpb_session_memory(s);
    void *const inspected = s->program;
    memset(s->statistics, 0, left->state_bytes);
    s->pass.weights_changed = true;
    dpb_status status = s->ops->compile(s->device, &args, &memory, &s->program);
    /* Twice: the second time memory is full of the first. */
    for (int i = 0; i < 2 && status == DPB_OK; i++) {
        status = step(s);
        DPB_THEN(status, same_bits(s, left, "a program compiled without inspect"));
    }
    if (s->program != inspected)
        s->ops->release(s->program);
    s->program = inspected;
    return status;
}

dpb_status dpb_opcheck_repeat(struct dpb_session *s)
{
    struct left left;
    dpb_status status = keep(s, &left);
    DPB_THEN(status, repeat(s, &left, NULL));
    if (s->node_by_node)
        DPB_THEN(status, repeat(s, &left, left.weights));
    DPB_THEN(status, repeat_without_inspect(s, &left));
    free(left.gradients);
    free(left.weights);
    free(left.statistics);
    return status;
}

dpb_status dpb_opcheck_evaluation(struct dpb_session *s, const struct dpb_device_ops *reference)
{
    /* Near the batch's: with others activations would explode. */
    for (uint64_t i = 0; i < s->graph->n_state_elements; i++)
        dpb_session_set(s, s->state, i, 1.1 * dpb_session_value(s, s->statistics, i));
    s->pass.training = false;
    s->pass.valid = s->batch.n - 1;
    DPB_TRY(dpb_session_forward(s));
    DPB_TRY(dpb_opcheck_ops(s));
    DPB_TRY(dpb_opcheck_loss(s, reference, 0));

    /* Training passes must not miss weights that an evaluation saw first. */
    for (uint64_t i = 0; i < s->graph->n_elements; i++)
        dpb_session_set(s, s->weights, i,
                        dpb_session_value(s, s->weights, i) * (i % 3 ? 1.25 : 0.5));
    s->pass.weights_changed = true;
    DPB_TRY(dpb_session_forward(s));
    s->pass.training = true;
    s->pass.valid = s->batch.n;
    s->pass.weights_changed = false;
    s->pass.step++;
    DPB_TRY(step(s));
    return dpb_opcheck_ops(s);
}

/* ---- models ---------------------------------------------------------------------------------- */

/* The loss of all samples by all layers, and gradients that are the loss's. */
static dpb_status hold_model(struct dpb_session *s, const struct dpb_device_ops *reference)
{
    const int64_t until_ns = dpb_now_ns() + INT64_C(2000000000);
    uint32_t n;
    DPB_TRY(dpb_session_forward(s));
    DPB_TRY(dpb_opcheck_loss(s, reference, 1e-3)); /* a deep network multiplies roundings */
    DPB_TRY(dpb_slope_check(s, until_ns, &n));
    if (n < s->graph->n_tensors)
        printf("  partly   %s: %u of %u tensors in the time\n", s->graph->name, n,
               s->graph->n_tensors);
    return DPB_OK;
}

dpb_status dpb_conform_device_model(const struct dpb_plugin *plugin, const void *options,
                                    const struct dpb_device_ops *reference,
                                    const struct dpb_plugin *model, const void *model_options)
{
    const bool fp32 = plugin->capabilities & DPB_DEVICE_FP32;
    struct dpb_session_args args = {.ops = plugin->ops,
                                    .options = options,
                                    .type = DPB_FP32,
                                    .order = DPB_CHW,
                                    .precision = fp32 ? DPB_PRECISION_FP32 : DPB_PRECISION_FP64,
                                    .training = true,
                                    .plain = true,
                                    .node_by_node = plugin->capabilities & DPB_DEVICE_NODE_BY_NODE};
    struct dpb_session session;
    /* In fp32 a batch-norm of single pixels is so steep that no step shows its slope. */
    DPB_TRY(dpb_network_small(model, model_options, 4, &args.graph));
    args.batch = args.graph->n_states > 0 ? 4 : 2;
    dpb_status status = dpb_session_open(&args, &session);
    if (status != DPB_OK) {
        dpb_graph_destroy(args.graph);
        return status;
    }
    status = dpb_conform_promised(hold_model(&session, reference));
    dpb_session_close(&session);
    return status;
}

/* ---- the suite ------------------------------------------------------------------------------- */

struct subject {
    const struct dpb_device_ops *ops, *reference;
    const void *options;
    const struct dpb_network *network;
    dpb_precision precision;
    uint32_t batch;
    bool node_by_node;
};

/* Everything between the session's opening and its close. */
static dpb_status hold(struct dpb_session *session, const struct subject *subject)
{
    DPB_TRY(dpb_session_forward(session));
    DPB_TRY(dpb_session_backward(session));
    DPB_TRY(dpb_opcheck_ops(session));
    DPB_TRY(dpb_opcheck_loss(session, subject->reference, 0));
    if (subject->batch == 1)
        return DPB_OK;
    DPB_TRY(dpb_opcheck_repeat(session));
    return dpb_opcheck_evaluation(session, subject->reference);
}

static dpb_status try_batch(const struct subject *subject)
{
    const struct dpb_network *network = subject->network;
    struct dpb_model_info info = {.batch = 0};
    struct dpb_session_args args = {.ops = subject->ops,
                                    .options = subject->options,
                                    .batch = subject->batch,
                                    .type = network->type,
                                    .order = network->order,
                                    .precision = subject->precision,
                                    .training = true,
                                    .node_by_node = subject->node_by_node,
                                    .rounds_weights = true,
                                    .rounds_sums = true};
    struct dpb_session session;
    network->model->describe(network, &info);
    DPB_TRY(dpb_graph_build(network->name, network->model, network, info.input, info.nclass,
                            &args.graph));
    dpb_graph_smooth_labels(args.graph, network->smoothing);
    dpb_status status = dpb_session_open(&args, &session);
    if (status != DPB_OK) {
        dpb_graph_destroy(args.graph);
        return status;
    }
    status = dpb_conform_promised(hold(&session, subject)); /* compiling alone may be refused */
    dpb_session_close(&session);
    return status;
}

/* The network's own batch, and a batch of one sample. */
static dpb_status try_network(const struct subject *subject)
{
    struct subject one = *subject, own = *subject;
    struct dpb_model_info info = {.batch = 0};
    subject->network->model->describe(subject->network, &info);
    own.batch = info.batch;
    one.batch = 1;
    DPB_TRY(try_batch(&own));
    return try_batch(&one);
}

static void try_precision(struct dpb_conform *conform, const struct subject *subject)
{
    struct subject trial = *subject;
    dpb_conform_heading(conform, "%s", dpb_precision_name(subject->precision));
    for (trial.network = dpb_networks; trial.network->name; trial.network++)
        dpb_conform_trial(conform, try_network(&trial), trial.network->name);
    dpb_conform_end(conform);
}

void dpb_conform_device(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                        const void *options, const struct dpb_device_ops *reference)
{
    struct subject subject = {.ops = plugin->ops,
                              .reference = reference,
                              .options = options,
                              .node_by_node = plugin->capabilities & DPB_DEVICE_NODE_BY_NODE};
    for (int precision = 0; precision < DPB_PRECISIONS; precision++) {
        subject.precision = (dpb_precision)precision;
        if (plugin->capabilities & (UINT64_C(1) << precision))
            try_precision(conform, &subject);
    }
    puts("each network: every activation, batch statistic and gradient against the reference's op "
         "in fp64, within device.h's bound;\n"
         "  the loss; the same bits again, with final weights overwritten and without inspect; "
         "evaluation; a batch of one sample\n"
         "not shown: speed, memory_needed, how often hooks->progress is called, profile, links, "
         "monitor");
    if (subject.ops->queues)
        puts("not shown: arenas in the device's memory, queues and events");
}
