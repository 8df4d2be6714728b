/* opcheck.c - see opcheck.h. */
#include "lib/opcheck.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/vec.h"
#include "lib/plugin.h"
#include "lib/training.h"
#include "plugins/devices/reference/ops.h"

enum { MAX_NODES = 1024 };

/* Everything that an op's fp64 twin needs and gives; arrays by node are NULL where not used. */
struct oracle {
    const struct session *s;
    double *y[MAX_NODES], *dy[MAX_NODES];          /* the device's own */
    double *sum[MAX_NODES], *magnitude[MAX_NODES]; /* what dy should be, by the consumers */
    double *weights;                               /* as the device uses them */
    /* Fused away: y, or dy, is the reference's own, not rounded, from what the device did show. */
    bool no_y[MAX_NODES], no_dy[MAX_NODES];
    double *y_magnitude[MAX_NODES]; /* of such a y */
};

static uint64_t elements(const struct session *s, uint32_t node)
{
    return s->batch.n * dpb_shape_elements(s->graph->nodes[node].shape);
}

/*
 * How far a result may be off. Sums are made in fp32 in all precisions: 1e-5 of the magnitude. In
 * bf16 and fp16 an activation or its gradient is rounded once besides (half an ulp: 2^-8 or 2^-11
 * of the value); a gradient with several consumers once for each of them and once when they are
 * added, for which device.h's 2^-7 or 2^-9 of the magnitude is room enough. In tf32 the factors of
 * a sum of products are cut to 10 bits, so that each product errs by up to 2^-9 of it. Statistics
 * and, but for tf32's products, weights' gradients are fp32.
 */
enum rounding { NONE, ONCE, OFTEN };

static const struct {
    double half_ulp, often;
    double smallest; /* below it numbers are denormal, or nearly; of fp16 what a few roundings of
                        denormal ones come to */
} errors[DPB_PRECISIONS] = {
    [DPB_PRECISION_FP32] = {0, 0, 1e-30},
    [DPB_PRECISION_BF16] = {0x1p-8, 0x1p-7, 1e-30},
    [DPB_PRECISION_TF32] = {0, 0x1p-9, 1e-30},
    [DPB_PRECISION_FP16] = {0x1p-11, 0x1p-9, 0x1p-23},
};

static bool is_narrow(const struct session *s)
{
    return errors[s->precision].half_ulp > 0;
}

static double limit_of(dpb_precision precision, enum rounding rounding, double want,
                       double magnitude)
{
    double limit = 1e-5 * magnitude + errors[precision].smallest;
    if (rounding == ONCE)
        limit += errors[precision].half_ulp * fabs(want);
    if (rounding == OFTEN)
        limit += errors[precision].often * magnitude;
    return limit;
}

static bool is_product(const struct dpb_node *node)
{
    return node->op == DPB_OP_CONV || node->op == DPB_OP_DENSE;
}

static void compare(const struct session *s, uint32_t node, const char *what,
                    enum rounding rounding, const double *want, const double *magnitude,
                    const double *got, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        double limit = limit_of(s->precision, rounding, want[i], magnitude[i]);
        if (!(fabs(got[i] - want[i]) <= limit))
            fail_msg("%s, %s: node %u '%s': %s[%llu] is %.9g, should be %.9g +- %.3g",
                     s->graph->name, dpb_precision_name(s->precision), node,
                     s->graph->nodes[node].name, what, (unsigned long long)i, got[i], want[i],
                     limit);
    }
}

static void compare_fp32(const struct session *s, uint32_t node, const char *what,
                         enum rounding rounding, const double *want, const double *magnitude,
                         const float *got, uint64_t n)
{
    double *wide = allocate(n, sizeof *wide);
    for (uint64_t i = 0; i < n; i++)
        wide[i] = got[i];
    compare(s, node, what, rounding, want, magnitude, wide, n);
    free(wide);
}

/* Contractions use the weights rounded to the precision, all else is fp32. */
static double *used_weights(const struct session *s)
{
    const struct dpb_graph *graph = s->graph;
    double *weights = allocate(graph->n_elements, sizeof *weights);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &graph->tensors[t];
        for (uint64_t i = tensor->offset; i < tensor->offset + tensor->n_elements; i++) {
            bool rounded = is_narrow(s) && tensor->n_dims > 1;
            float value = s->weights[i];
            weights[i] = !rounded ? value
                         : s->precision == DPB_PRECISION_BF16
                             ? dpb_bf16_to_fp32(dpb_bf16_from_fp32(value))
                             : dpb_fp16_to_fp32(dpb_fp16_from_fp32(value));
        }
    }
    return weights;
}

/* The one consumer of a node; NULL where there are several. */
static const struct dpb_node *sole_consumer(const struct session *s, uint32_t node)
{
    const struct dpb_node *consumer = NULL;
    for (uint32_t i = node + 1; i < s->graph->n_nodes; i++) {
        for (uint32_t k = 0; k < s->graph->nodes[i].n_inputs; k++) {
            if (s->graph->nodes[i].inputs[k] != node)
                continue;
            if (consumer)
                return NULL;
            consumer = &s->graph->nodes[i];
        }
    }
    return consumer;
}

/* A device may fuse a contraction or a batch-norm, an addition, and a ReLU; and a convolution's
 * gradient with the ReLU before it, where it shows the gradient that the ReLU lets pass. Nothing
 * else may hide from the test. */
static bool may_be_fused(const struct session *s, uint32_t node)
{
    const struct dpb_node *consumer = sole_consumer(s, node);
    dpb_op op = s->graph->nodes[node].op;
    if (!consumer ||
        (op != DPB_OP_CONV && op != DPB_OP_DENSE && op != DPB_OP_BATCH_NORM && op != DPB_OP_ADD))
        return false;
    if (consumer->op == DPB_OP_ADD && op != DPB_OP_ADD)
        consumer = sole_consumer(s, (uint32_t)(consumer - s->graph->nodes));
    return consumer && consumer->op == DPB_OP_RELU;
}

static bool inspected(const struct session *s, uint32_t node, double *y, double *dy)
{
    dpb_status status = s->ops->inspect(s->program, node, y, dy);
    if (status == DPB_UNSUPPORTED)
        dpb_first_error_clear();
    else
        expect_ok(status);
    return status == DPB_OK;
}

static void inspect(struct oracle *o, uint32_t i)
{
    const struct session *s = o->s;
    o->no_y[i] = !inspected(s, i, o->y[i], NULL);
    if (o->no_y[i] && !may_be_fused(s, i))
        fail_msg("%s: node %u '%s' does not show its activation", s->graph->name, i,
                 s->graph->nodes[i].name);
    if (!s->pass.training || i == 0)
        return;
    o->no_dy[i] = !inspected(s, i, NULL, o->dy[i]);
    const uint32_t before = s->graph->nodes[i].inputs[0];
    const struct dpb_node *consumer = sole_consumer(s, i);
    bool relu = s->graph->nodes[i].op == DPB_OP_RELU && o->no_y[before];
    bool masked = relu && consumer && consumer->op == DPB_OP_CONV && !o->no_dy[before];
    if (o->no_dy[i] && !o->no_y[i] && !(relu && !consumer) && !masked)
        fail_msg("%s: node %u '%s' does not show its gradient", s->graph->name, i,
                 s->graph->nodes[i].name);
}

static void open_oracle(const struct session *s, struct oracle *o)
{
    assert_true(s->graph->n_nodes <= MAX_NODES);
    *o = (struct oracle){.s = s, .weights = used_weights(s)};
    for (uint32_t i = 0; i < s->graph->n_nodes; i++) {
        uint64_t n = elements(s, i);
        o->y[i] = allocate(n, sizeof(double));
        o->dy[i] = allocate(n, sizeof(double));
        o->sum[i] = allocate(n, sizeof(double));
        o->magnitude[i] = allocate(n, sizeof(double));
        o->y_magnitude[i] = allocate(n, sizeof(double));
        inspect(o, i);
    }
}

static void close_oracle(struct oracle *o)
{
    for (uint32_t i = 0; i < o->s->graph->n_nodes; i++) {
        free(o->y[i]);
        free(o->dy[i]);
        free(o->sum[i]);
        free(o->magnitude[i]);
        free(o->y_magnitude[i]);
    }
    free(o->weights);
}

/* The call of a node's op on the device's own inputs; x, dx and in have room for all inputs. */
static struct ref_call prepare(const struct oracle *o, uint32_t index, double *const *dx_of,
                               const double **x, double **dx, struct dpb_shape *in)
{
    const struct session *s = o->s;
    const struct dpb_node *node = &s->graph->nodes[index];
    struct ref_call call = {.node = node,
                            .index = index,
                            .n = s->batch.n,
                            .training = s->pass.training,
                            .in = in,
                            .x = x,
                            .dx = dx,
                            .dy = o->dy[index],
                            .batch = &s->batch,
                            .seed = SEED,
                            .step = s->pass.step,
                            .first_sample = s->pass.first_sample};
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        x[k] = o->y[node->inputs[k]];
        dx[k] = node->inputs[k] ? dx_of[node->inputs[k]] : NULL;
        in[k] = s->graph->nodes[node->inputs[k]].shape;
    }
    if (node->weight != DPB_NONE)
        call.weight = o->weights + s->graph->tensors[node->weight].offset;
    if (node->bias != DPB_NONE)
        call.bias = o->weights + s->graph->tensors[node->bias].offset;
    return call;
}

static void check_statistics(const struct session *s, uint32_t index, const double *mean,
                             const double *variance, const double *mean_magnitude,
                             const double *variance_magnitude)
{
    const struct dpb_node *node = &s->graph->nodes[index];
    const struct dpb_state *states = s->graph->states;
    compare_fp32(s, index, "mean", NONE, mean, mean_magnitude,
                 s->statistics + states[node->mean].offset, node->shape.c);
    compare_fp32(s, index, "variance", NONE, variance, variance_magnitude,
                 s->statistics + states[node->variance].offset, node->shape.c);
}

/* The magnitude of what hangs on inputs that were fused away is theirs. */
static void widen_magnitude(const struct oracle *o, const struct dpb_node *node, double *magnitude,
                            uint64_t n)
{
    if (node->op != DPB_OP_RELU && node->op != DPB_OP_ADD)
        return;
    for (uint64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            uint32_t input = node->inputs[k];
            sum += o->no_y[input] ? o->y_magnitude[input][i] : fabs(o->y[input][i]);
        }
        magnitude[i] = o->no_y[node->inputs[0]] || node->op == DPB_OP_ADD ? sum : magnitude[i];
    }
}

/* What was fused away is known now; where rounding decides whether it is positive, the device does,
 * for backward's sake. */
static void keep_fused(struct oracle *o, uint32_t index, const double *y, const double *magnitude)
{
    const struct dpb_node *node = &o->s->graph->nodes[index];
    uint64_t n = elements(o->s, index);
    if (o->no_y[index]) {
        memcpy(o->y[index], y, n * sizeof *y);
        memcpy(o->y_magnitude[index], magnitude, n * sizeof *magnitude);
    }
    if (node->op != DPB_OP_RELU || !o->no_y[node->inputs[0]])
        return;
    for (uint64_t i = 0; i < n; i++)
        o->y[node->inputs[0]][i] = o->y[index][i] > 0 ? 1 : -1;
}

static enum rounding activation_rounding(const struct oracle *o, const struct dpb_node *node)
{
    const struct session *s = o->s;
    const struct dpb_node *sum = node;
    if (node->op == DPB_OP_RELU && o->no_y[node->inputs[0]])
        sum = &s->graph->nodes[node->inputs[0]];
    if (s->precision == DPB_PRECISION_TF32)
        return is_product(sum) ? OFTEN : NONE;
    if (!is_narrow(s) || node->op == DPB_OP_SOFTMAX_LOSS)
        return NONE;
    return is_product(sum) && sum->bias != DPB_NONE && tested_device()->rounds_sums ? OFTEN : ONCE;
}

static void check_forward(struct oracle *o, uint32_t index)
{
    const struct session *s = o->s;
    const struct dpb_node *node = &s->graph->nodes[index];
    const double *x[DPB_MAX_INPUTS];
    double *dx[DPB_MAX_INPUTS];
    struct dpb_shape in[DPB_MAX_INPUTS];
    struct ref_call call = prepare(o, index, o->sum, x, dx, in);
    uint64_t n = elements(s, index);
    double *y = allocate(n, sizeof *y), *magnitude = allocate(n, sizeof *magnitude);
    double *moments = allocate(4 * (size_t)node->shape.c, sizeof *moments);
    double *running = allocate(2 * (size_t)node->shape.c, sizeof *running);
    bool norm = node->op == DPB_OP_BATCH_NORM;
    for (uint32_t c = 0; norm && c < node->shape.c; c++) {
        running[c] = s->state[s->graph->states[node->mean].offset + c];
        running[node->shape.c + c] = s->state[s->graph->states[node->variance].offset + c];
    }
    call.running_mean = running;
    call.running_variance = running + node->shape.c;
    call.y = y;
    call.mean = moments;
    call.variance = moments + node->shape.c;
    ref_forward(&call);
    call.y = magnitude;
    call.mean = moments + 2 * node->shape.c;
    call.variance = moments + 3 * node->shape.c;
    ref_forward_magnitude(&call);
    widen_magnitude(o, node, magnitude, n);
    if (!o->no_y[index])
        compare(s, index, "activation", activation_rounding(o, node), y, magnitude, o->y[index], n);
    keep_fused(o, index, y, magnitude);
    if (norm && s->pass.training)
        check_statistics(s, index, moments, moments + node->shape.c, moments + 2 * node->shape.c,
                         moments + 3 * node->shape.c);
    free(y);
    free(magnitude);
    free(moments);
    free(running);
}

static void check_tensor(const struct session *s, uint32_t index, uint32_t tensor,
                         const double *want, const double *magnitude)
{
    if (tensor == DPB_NONE)
        return;
    const struct dpb_tensor *t = &s->graph->tensors[tensor];
    bool rounded = tested_device()->rounds_weights && is_narrow(s) &&
                   s->graph->nodes[index].op == DPB_OP_CONV && t->n_dims > 1;
    bool cut = s->precision == DPB_PRECISION_TF32 && t->n_dims > 1;
    compare_fp32(s, index, t->name,
                 cut       ? OFTEN
                 : rounded ? ONCE
                           : NONE,
                 want, magnitude, s->gradients + t->offset, t->n_elements);
}

static enum rounding gradient_rounding(const struct oracle *o, uint32_t index)
{
    const struct session *s = o->s;
    const struct dpb_node *consumer = sole_consumer(s, index);
    uint32_t consumers = 0, products = 0;
    if (consumer && o->no_dy[consumer - s->graph->nodes]) /* its parts come with their rounding */
        return gradient_rounding(o, (uint32_t)(consumer - s->graph->nodes));
    for (uint32_t i = index + 1; i < s->graph->n_nodes; i++) {
        for (uint32_t k = 0; k < s->graph->nodes[i].n_inputs; k++) {
            consumers += s->graph->nodes[i].inputs[k] == index;
            products += s->graph->nodes[i].inputs[k] == index && is_product(&s->graph->nodes[i]);
        }
    }
    if (s->precision == DPB_PRECISION_TF32)
        return products > 0 ? OFTEN : NONE;
    if (!is_narrow(s))
        return NONE;
    return consumers > 1 ? OFTEN : ONCE;
}

/* Checks the gradient by the node's output, which its consumers have summed up by now, then adds
 * the node's part to those of its inputs and checks its weights' gradients. */
static void check_backward(struct oracle *o, uint32_t index)
{
    const struct session *s = o->s;
    const struct dpb_graph *graph = s->graph;
    const struct dpb_node *node = &graph->nodes[index];
    if (o->no_dy[index])
        memcpy(o->dy[index], o->sum[index], elements(s, index) * sizeof(double));
    else if (index + 1 < graph->n_nodes)
        compare(s, index, "gradient", gradient_rounding(o, index), o->sum[index],
                o->magnitude[index], o->dy[index], elements(s, index));
    const double *x[DPB_MAX_INPUTS];
    double *dx[DPB_MAX_INPUTS];
    struct dpb_shape in[DPB_MAX_INPUTS];
    uint64_t n_weight = node->weight == DPB_NONE ? 0 : graph->tensors[node->weight].n_elements;
    uint64_t n_bias = node->bias == DPB_NONE ? 0 : graph->tensors[node->bias].n_elements;
    double *want = allocate(n_weight + n_bias, sizeof *want);
    double *magnitude = allocate(n_weight + n_bias, sizeof *magnitude);

    struct ref_call call = prepare(o, index, o->sum, x, dx, in);
    call.dweight = n_weight ? want : NULL;
    call.dbias = n_bias ? want + n_weight : NULL;
    ref_backward(&call);
    call = prepare(o, index, o->magnitude, x, dx, in);
    if (o->no_dy[index])
        call.dy = o->magnitude[index];
    call.dweight = n_weight ? magnitude : NULL;
    call.dbias = n_bias ? magnitude + n_weight : NULL;
    ref_backward_magnitude(&call);
    check_tensor(s, index, node->weight, want, magnitude);
    check_tensor(s, index, node->bias, want + n_weight, magnitude + n_weight);
    free(want);
    free(magnitude);
}

void check_ops(const struct session *s)
{
    struct oracle o;
    open_oracle(s, &o);
    for (uint32_t i = 0; i < s->graph->n_nodes; i++)
        check_forward(&o, i);
    for (uint32_t i = s->graph->n_nodes; s->pass.training && i-- > 1;)
        check_backward(&o, i);
    close_oracle(&o);
}

/* ---- whole models -------------------------------------------------------------------------- */

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

static double *widen(const float *values, uint64_t n)
{
    double *wide = allocate(n, sizeof *wide);
    for (uint64_t i = 0; i < n; i++)
        wide[i] = values[i];
    return wide;
}

/* The same pass by the reference device in fp64. */
static struct dpb_outcome reference_outcome(const struct session *s)
{
    const struct dpb_device_ops *ops =
        plugin_load(DPB_PLUGIN_DEVICE, "reference", &plugin_host)->ops;
    const struct dpb_device_args device_args = {.threads = 1, .seed = SEED};
    const struct dpb_compile_args args = {.graph = s->graph,
                                          .batch = s->batch.n,
                                          .precision = DPB_PRECISION_FP64,
                                          .training = s->pass.training,
                                          .format = &s->format};
    double *weights = widen(s->weights, s->graph->n_elements);
    double *gradients = allocate(s->graph->n_elements, sizeof *gradients);
    double *state = widen(s->state, s->graph->n_state_elements);
    double *statistics = allocate(s->graph->n_state_elements, sizeof *statistics);
    const struct dpb_device_memory memory = {
        .weights = weights, .gradients = gradients, .state = state, .statistics = statistics};
    const struct dpb_hooks hooks = {.final = ignore_final, .progress = ignore_progress};
    struct dpb_outcome outcome;
    void *device, *program;
    expect_ok(ops->open(NULL, &device_args, &device));
    expect_ok(ops->compile(device, &args, &memory, &program));
    expect_ok(ops->forward(program, &s->pass, &s->batch, &hooks, &outcome));
    ops->release(program);
    ops->close(device);
    free(weights);
    free(gradients);
    free(state);
    free(statistics);
    return outcome;
}

void check_loss(const struct session *s)
{
    struct dpb_outcome want = reference_outcome(s);
    double bound = s->precision == DPB_PRECISION_FP32 ? 1e-4 : 5e-2;
    if (!(fabs(s->outcome.loss - want.loss) <= bound))
        fail_msg("%s: loss is %.9g, should be %.9g +- %g", s->graph->name, s->outcome.loss,
                 want.loss, bound);
}

/* A training step, op by op; the same again gives the same bits, though backward's weights vanish
 * as soon as it has let them go. */
static void check_repeat(struct session *s)
{
    size_t bytes = s->graph->n_elements * sizeof(float);
    struct dpb_outcome first = s->outcome;
    float *gradients = allocate(s->graph->n_elements, sizeof(float));
    float *weights = allocate(s->graph->n_elements, sizeof(float));
    memcpy(gradients, s->gradients, bytes);
    memcpy(weights, s->weights, bytes);
    s->pass.weights_changed = false;
    session_forward(s);
    s->spoil = true;
    session_backward(s);
    s->spoil = false;
    assert_memory_equal(&first, &s->outcome, sizeof first);
    assert_memory_equal(gradients, s->gradients, bytes);
    memcpy(s->weights, weights, bytes);
    free(gradients);
    free(weights);
}

/* Training's own programs keep nothing for a test: tensors share memory, dz is written over dy. The
 * same kernels, so the same bits. */
static void check_shared_memory(struct session *s)
{
    const struct dpb_graph *graph = s->graph;
    struct dpb_compile_args args = {.graph = graph,
                                    .batch = s->batch.n,
                                    .precision = s->precision,
                                    .training = true,
                                    .format = &s->format};
    const struct dpb_device_memory memory = {.weights = s->weights,
                                             .gradients = s->gradients,
                                             .state = s->state,
                                             .statistics = s->statistics};
    size_t bytes = graph->n_elements * sizeof(float);
    size_t state_bytes = graph->n_state_elements * sizeof(float);
    struct dpb_outcome first = s->outcome;
    float *gradients = allocate(graph->n_elements, sizeof(float));
    float *statistics = allocate(graph->n_state_elements, sizeof(float));
    double *shown = allocate(elements(s, 1), sizeof(double));
    void *inspected = s->program;
    memcpy(gradients, s->gradients, bytes);
    memcpy(statistics, s->statistics, state_bytes);
    memset(s->statistics, 0, state_bytes);
    uint64_t shared = s->ops->memory_needed(NULL, &args);
    expect_ok(s->ops->compile(s->device, &args, &memory, &s->program));
    args.inspect = true;
    assert_true(tested_device()->own_memory || shared < s->ops->memory_needed(NULL, &args));
    assert_int_equal(s->ops->inspect(s->program, 1, shown, NULL), DPB_UNSUPPORTED);
    s->pass.weights_changed = true;
    session_forward(s);
    session_backward(s);
    assert_memory_equal(&first, &s->outcome, sizeof first);
    assert_memory_equal(gradients, s->gradients, bytes);
    assert_memory_equal(statistics, s->statistics, state_bytes);
    session_forward(s); /* again, on memory that is full of the pass before */
    session_backward(s);
    assert_memory_equal(gradients, s->gradients, bytes);
    s->ops->release(s->program);
    s->program = inspected;
    free(gradients);
    free(statistics);
    free(shown);
}

/* Running averages, no dropout, and samples that do not count; then other weights, which training
 * passes must not miss when an evaluation saw them first. */
static void check_evaluation(struct session *s)
{
    for (uint64_t i = 0; i < s->graph->n_state_elements; i++)
        s->state[i] = 1.1f * s->statistics[i]; /* near the batch's, or activations would explode */
    s->pass.training = false;
    s->pass.valid = s->batch.n - 1;
    session_forward(s);
    check_ops(s);
    check_loss(s);
    assert_true(s->outcome.correct <= s->pass.valid);
    assert_int_equal(reference_outcome(s).correct, s->outcome.correct);

    for (uint64_t i = 0; i < s->graph->n_elements; i++)
        s->weights[i] *= i % 3 ? 1.25f : 0.5f;
    s->pass.weights_changed = true;
    session_forward(s);
    s->pass.training = true;
    s->pass.valid = s->batch.n;
    s->pass.weights_changed = false;
    s->pass.step++;
    session_forward(s);
    session_backward(s);
    check_ops(s);
}

/* In place of numbers in bf16, where the device says that it has none: no model compiles. */
static void check_no_bf16(void)
{
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    struct session s;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    session_expect_refused(&s, DPB_PRECISION_BF16,
                           "in bf16 on this processor; use run.precision = fp32");
    session_close(&s);
}

void check_in(dpb_precision precision, const struct subject *subject, int what)
{
    struct session s;
    if (precision == DPB_PRECISION_BF16 && strcmp(tested_device()->name, "cpu") == 0 &&
        !cpu_has_bf16()) {
        check_no_bf16();
        return;
    }
    session_open(subject, precision, true, &s);
    session_forward(&s);
    session_backward(&s);
    if (what & OPS)
        check_ops(&s);
    if (what & LOSS)
        check_loss(&s);
    if (what & REPEAT) {
        check_repeat(&s);
        check_shared_memory(&s);
    }
    if (what & EVALUATION)
        check_evaluation(&s);
    session_close(&s);
}

void check_subject(const struct subject *subject, int what)
{
    check_in(DPB_PRECISION_FP32, subject, what);
    check_in(DPB_PRECISION_BF16, subject, what);
    if (!tested_device()->tensor_cores)
        return;
    check_in(DPB_PRECISION_TF32, subject, what & ~(REPEAT | EVALUATION));
    check_in(DPB_PRECISION_FP16, subject, what & ~(REPEAT | EVALUATION));
}
