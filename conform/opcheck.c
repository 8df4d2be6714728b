/* opcheck.c - see opcheck.h. */
#include "conform/opcheck.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "devices/reference/ops.h"

enum { MAX_NODES = 1024 };

/* Everything that an op's fp64 twin needs and gives; arrays by node are NULL where not used. */
struct oracle {
    const struct dpb_session *s;
    double *y[MAX_NODES], *dy[MAX_NODES];          /* the device's own */
    double *sum[MAX_NODES], *magnitude[MAX_NODES]; /* the expected dy, by the consumers */
    double *weights;                               /* as the device uses them */
    /* Fused away: y, or dy, is the reference's own, not rounded, from values the device showed. */
    bool no_y[MAX_NODES], no_dy[MAX_NODES];
    double *y_magnitude[MAX_NODES]; /* of such a y */
    double *tied[2]; /* a tied product's gradient, and its magnitude, until the embedding's turn */
    /* One allocation for all arrays; those of one node begin at `scratch` again. */
    double *memory, *scratch, *free;
};

static double *take(struct oracle *o, uint64_t n)
{
    double *taken = o->free;
    o->free += n;
    return taken;
}

static uint64_t elements(const struct dpb_session *s, uint32_t node)
{
    return s->batch.n * dpb_shape_elements(s->graph->nodes[node].shape);
}

/*
 * How far a result may be off. Sums are made in fp32 in all precisions: 1e-5 of the magnitude. In
 * bf16 and fp16 an activation or its gradient is rounded once besides (half an ulp: 2^-8 or 2^-11
 * of the value); a gradient with several consumers once for each of them and once when they are
 * added, for which device.h's 2^-7 or 2^-9 of the magnitude is room enough. So is a gradient by the
 * weights of a convolution with groups, of which a library may round each part of the sum. In tf32
 * the factors of a sum of products are cut to 10 bits, so that each product errs by up to 2^-9 of
 * it. Statistics and, but for tf32's products, weights' gradients are fp32.
 */
enum rounding { NONE, ONCE, OFTEN };

static const struct {
    double sum, half_ulp, often;
    double smallest; /* below it numbers are denormal, or nearly; for fp16 the size of a few
                        roundings of denormals */
} errors[DPB_PRECISIONS] = {
    [DPB_PRECISION_FP32] = {1e-5, 0, 0, 1e-30},
    [DPB_PRECISION_BF16] = {1e-5, 0x1p-8, 0x1p-7, 1e-30},
    [DPB_PRECISION_FP64] = {1e-12, 0, 0, 1e-300},
    [DPB_PRECISION_TF32] = {1e-5, 0, 0x1p-9, 1e-30},
    [DPB_PRECISION_FP16] = {1e-5, 0x1p-11, 0x1p-9, 0x1p-23},
};

static bool is_narrow(const struct dpb_session *s)
{
    return errors[s->precision].half_ulp > 0;
}

static double limit_of(dpb_precision precision, enum rounding rounding, double want,
                       double magnitude)
{
    double limit = errors[precision].sum * magnitude + errors[precision].smallest;
    if (rounding == ONCE)
        limit += errors[precision].half_ulp * fabs(want);
    if (rounding == OFTEN)
        limit += errors[precision].often * magnitude;
    return limit;
}

static bool is_product(const struct dpb_node *node)
{
    return node->op == DPB_OP_CONV || node->op == DPB_OP_DENSE || node->op == DPB_OP_ATTENTION;
}

/* Whether a device may round the tensor to the precision before it computes. */
static bool is_factor(const struct dpb_graph *graph, const struct dpb_tensor *tensor)
{
    const struct dpb_node *node = &graph->nodes[tensor->node];
    return tensor->n_dims > 1 && (is_product(node) || node->tied);
}

static dpb_status compare(const struct dpb_session *s, uint32_t node, const char *what,
                          enum rounding rounding, const double *want, const double *magnitude,
                          const double *got, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        double limit = limit_of(s->precision, rounding, want[i], magnitude[i]);
        if (!(fabs(got[i] - want[i]) <= limit))
            return dpb_fail(
                DPB_VERIFICATION, "%s, %s: node %u '%s': %s[%llu] is %.9g, should be %.9g +- %.3g",
                s->graph->name, dpb_precision_name(s->precision), node, s->graph->nodes[node].name,
                what, (unsigned long long)i, got[i], want[i], limit);
    }
    return DPB_OK;
}

/* The same for elements of an arena, from `offset` on. */
static dpb_status compare_arena(struct oracle *o, uint32_t node, const char *what,
                                enum rounding rounding, const double *want, const double *magnitude,
                                const void *arena, uint64_t offset, uint64_t n)
{
    double *wide = take(o, n);
    for (uint64_t i = 0; i < n; i++)
        wide[i] = dpb_session_value(o->s, arena, offset + i);
    return compare(o->s, node, what, rounding, want, magnitude, wide, n);
}

/* Contractions use the weights rounded to the precision, all else is fp32. */
static void fill_weights(struct oracle *o)
{
    const struct dpb_session *s = o->s;
    const struct dpb_graph *graph = s->graph;
    o->weights = take(o, graph->n_elements);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &graph->tensors[t];
        for (uint64_t i = tensor->offset; i < tensor->offset + tensor->n_elements; i++) {
            bool rounded = is_narrow(s) && is_factor(graph, tensor);
            double value = dpb_session_value(s, s->weights, i);
            o->weights[i] = !rounded ? value
                            : s->precision == DPB_PRECISION_BF16
                                ? dpb_bf16_to_fp32(dpb_bf16_from_fp32((float)value))
                                : dpb_fp16_to_fp32(dpb_fp16_from_fp32((float)value));
        }
    }
}

/* The one consumer of a node; NULL where there are several. */
static const struct dpb_node *sole_consumer(const struct dpb_session *s, uint32_t node)
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
static bool may_be_fused(const struct dpb_session *s, uint32_t node)
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

/* *hidden: the device has fused it away. */
static dpb_status inspected(const struct dpb_session *s, uint32_t node, double *y, double *dy,
                            bool *hidden)
{
    dpb_status status = s->ops->inspect(s->program, node, y, dy);
    *hidden = status == DPB_UNSUPPORTED;
    if (*hidden)
        dpb_first_error_clear();
    return *hidden ? DPB_OK : status;
}

static dpb_status not_shown(const struct dpb_session *s, uint32_t node, const char *what)
{
    return dpb_fail(DPB_VERIFICATION,
                    "%s: node %u '%s' does not show its %s; only fused nodes may refuse `inspect`",
                    s->graph->name, node, s->graph->nodes[node].name, what);
}

static dpb_status inspect(struct oracle *o, uint32_t i)
{
    const struct dpb_session *s = o->s;
    const bool ids = i == 0 && dpb_graph_reads_ids(s->graph);
    DPB_TRY(inspected(s, i, o->y[i], NULL, &o->no_y[i]));
    if (o->no_y[i] && !ids && !may_be_fused(s, i))
        return not_shown(s, i, "activation");
    if (!s->pass.training || i == 0)
        return DPB_OK;
    DPB_TRY(inspected(s, i, NULL, o->dy[i], &o->no_dy[i]));
    const uint32_t before = s->graph->nodes[i].inputs[0];
    const struct dpb_node *consumer = sole_consumer(s, i);
    bool relu = s->graph->nodes[i].op == DPB_OP_RELU && o->no_y[before];
    bool masked = relu && consumer && consumer->op == DPB_OP_CONV && !o->no_dy[before];
    if (o->no_dy[i] && !o->no_y[i] && !(relu && !consumer) && !masked)
        return not_shown(s, i, "gradient");
    return DPB_OK;
}

/* The scratch that a node needs beside its five arrays, in forward or in backward. */
static uint64_t scratch_elements(const struct dpb_session *s, uint32_t i)
{
    const struct dpb_graph *graph = s->graph;
    const struct dpb_node *node = &graph->nodes[i];
    uint64_t n = 2 * elements(s, i) + 8 * (uint64_t)node->shape.c, n_weights = 0;
    if (node->weight != DPB_NONE)
        n_weights += graph->tensors[node->weight].n_elements;
    if (node->bias != DPB_NONE)
        n_weights += graph->tensors[node->bias].n_elements;
    return n > 3 * n_weights ? n : 3 * n_weights;
}

/* Of both arrays, counted with the product. */
static uint64_t tied_elements(const struct dpb_session *s, uint32_t i)
{
    const struct dpb_node *node = &s->graph->nodes[i];
    const bool keeps = node->tied && node->op != DPB_OP_EMBEDDING;
    return keeps ? 2 * s->graph->tensors[node->weight].n_elements : 0;
}

static dpb_status open_oracle(const struct dpb_session *s, struct oracle *o)
{
    const struct dpb_graph *graph = s->graph;
    uint64_t n = graph->n_elements, scratch = 0;
    *o = (struct oracle){.s = s};
    if (graph->n_nodes > MAX_NODES)
        return dpb_fail(DPB_UNSUPPORTED, "%s: %u nodes; at most %d can be checked op by op",
                        graph->name, graph->n_nodes, MAX_NODES);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        uint64_t wanted = scratch_elements(s, i);
        n += 5 * elements(s, i) + tied_elements(s, i);
        scratch = wanted > scratch ? wanted : scratch;
    }
    o->memory = o->free = dpb_session_allocate(n + scratch, sizeof(double));
    if (!o->memory)
        return DPB_NO_MEMORY;
    fill_weights(o);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        uint64_t of_node = elements(s, i);
        o->y[i] = take(o, of_node);
        o->dy[i] = take(o, of_node);
        o->sum[i] = take(o, of_node);
        o->magnitude[i] = take(o, of_node);
        o->y_magnitude[i] = take(o, of_node);
        if (tied_elements(s, i) > 0) {
            o->tied[0] = take(o, tied_elements(s, i) / 2);
            o->tied[1] = take(o, tied_elements(s, i) / 2);
        }
    }
    o->scratch = o->free;
    return DPB_OK;
}

/* The call of a node's op on the device's own inputs; x, dx and in have room for all inputs. */
static struct ref_call prepare(const struct oracle *o, uint32_t index, double *const *dx_of,
                               const double **x, double **dx, struct dpb_shape *in)
{
    const struct dpb_session *s = o->s;
    const struct dpb_node *node = &s->graph->nodes[index];
    struct ref_call call = {.node = node,
                            .index = index,
                            .n = s->pass.valid,
                            .training = s->pass.training,
                            .in = in,
                            .x = x,
                            .dx = dx,
                            .dy = o->dy[index],
                            .batch = &s->batch,
                            .seed = DPB_SESSION_SEED,
                            .step = s->pass.step,
                            .first_sample = s->pass.first_sample};
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        x[k] = o->y[node->inputs[k]];
        dx[k] = node->inputs[k] ? dx_of[node->inputs[k]] : NULL;
        in[k] = s->graph->nodes[node->inputs[k]].shape;
    }
    if (node->weight != DPB_NONE) {
        call.weight = o->weights + s->graph->tensors[node->weight].offset;
        call.n_weights = s->graph->tensors[node->weight].n_elements;
    }
    if (node->bias != DPB_NONE)
        call.bias = o->weights + s->graph->tensors[node->bias].offset;
    return call;
}

static dpb_status check_statistics(struct oracle *o, uint32_t index, const double *moments)
{
    const struct dpb_session *s = o->s;
    const struct dpb_node *node = &s->graph->nodes[index];
    const struct dpb_state *states = s->graph->states;
    const uint32_t c = node->shape.c;
    DPB_TRY(compare_arena(o, index, "mean", NONE, moments, moments + 2 * c, s->statistics,
                          states[node->mean].offset, c));
    return compare_arena(o, index, "variance", NONE, moments + c, moments + 3 * c, s->statistics,
                         states[node->variance].offset, c);
}

/* A value that hangs on inputs that were fused away has the magnitude of these inputs. */
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

/* Keeps values that were fused away, now known. Where rounding decides whether one is positive, the
 * device decides, for backward's sake. */
static void keep_fused(struct oracle *o, uint32_t index, const double *y, const double *magnitude)
{
    const struct dpb_node *node = &o->s->graph->nodes[index];
    uint64_t n = o->s->pass.valid * dpb_shape_elements(node->shape);
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
    const struct dpb_session *s = o->s;
    const struct dpb_node *sum = node;
    if (node->op == DPB_OP_RELU && o->no_y[node->inputs[0]])
        sum = &s->graph->nodes[node->inputs[0]];
    if (s->precision == DPB_PRECISION_TF32)
        return is_product(sum) ? OFTEN : NONE;
    if (!is_narrow(s) || node->op == DPB_OP_SOFTMAX_LOSS)
        return NONE;
    if (node->op == DPB_OP_ATTENTION) /* probabilities are rounded, too */
        return OFTEN;
    return is_product(sum) && sum->bias != DPB_NONE && s->rounds_sums ? OFTEN : ONCE;
}

static dpb_status check_forward(struct oracle *o, uint32_t index)
{
    const struct dpb_session *s = o->s;
    const struct dpb_node *node = &s->graph->nodes[index];
    const double *x[DPB_MAX_INPUTS];
    double *dx[DPB_MAX_INPUTS];
    struct dpb_shape in[DPB_MAX_INPUTS];
    struct ref_call call = prepare(o, index, o->sum, x, dx, in);
    /* A device need not compute samples that do not count. */
    const uint64_t n = s->pass.valid * dpb_shape_elements(node->shape);
    const uint32_t c = node->shape.c;
    o->free = o->scratch;
    double *y = take(o, n), *magnitude = take(o, n);
    double *moments = take(o, 4 * (uint64_t)c), *running = take(o, 2 * (uint64_t)c);
    bool norm = node->op == DPB_OP_BATCH_NORM;
    for (uint32_t i = 0; norm && i < c; i++) {
        const struct dpb_state *states = s->graph->states;
        running[i] = dpb_session_value(s, s->state, states[node->mean].offset + i);
        running[c + i] = dpb_session_value(s, s->state, states[node->variance].offset + i);
    }
    call.running_mean = running;
    call.running_variance = running + c;
    call.y = y;
    call.mean = moments;
    call.variance = moments + c;
    ref_forward(&call);
    call.y = magnitude;
    call.mean = moments + 2 * c;
    call.variance = moments + 3 * c;
    ref_forward_magnitude(&call);
    widen_magnitude(o, node, magnitude, n);
    if (!o->no_y[index])
        DPB_TRY(compare(s, index, "activation", activation_rounding(o, node), y, magnitude,
                        o->y[index], n));
    keep_fused(o, index, y, magnitude);
    return norm && s->pass.training ? check_statistics(o, index, moments) : DPB_OK;
}

static dpb_status check_tensor(struct oracle *o, uint32_t index, uint32_t tensor,
                               const double *want, const double *magnitude)
{
    const struct dpb_session *s = o->s;
    if (tensor == DPB_NONE)
        return DPB_OK;
    const struct dpb_tensor *t = &s->graph->tensors[tensor];
    bool rounded = s->rounds_weights && is_narrow(s) && s->graph->nodes[index].op == DPB_OP_CONV &&
                   t->n_dims > 1;
    bool cut = s->precision == DPB_PRECISION_TF32 && is_factor(s->graph, t);
    bool in_parts = rounded && s->graph->nodes[index].groups > 1;
    enum rounding rounding = cut || in_parts ? OFTEN : rounded ? ONCE : NONE;
    return compare_arena(o, index, t->name, rounding, want, magnitude, s->gradients, t->offset,
                         t->n_elements);
}

static enum rounding gradient_rounding(const struct oracle *o, uint32_t index)
{
    const struct dpb_session *s = o->s;
    const struct dpb_node *consumer = sole_consumer(s, index);
    uint32_t consumers = 0, products = 0, attentions = 0;
    if (consumer && o->no_dy[consumer - s->graph->nodes]) /* its parts come with their rounding */
        return gradient_rounding(o, (uint32_t)(consumer - s->graph->nodes));
    for (uint32_t i = index + 1; i < s->graph->n_nodes; i++) {
        for (uint32_t k = 0; k < s->graph->nodes[i].n_inputs; k++) {
            consumers += s->graph->nodes[i].inputs[k] == index;
            products += s->graph->nodes[i].inputs[k] == index && is_product(&s->graph->nodes[i]);
            attentions +=
                s->graph->nodes[i].inputs[k] == index && s->graph->nodes[i].op == DPB_OP_ATTENTION;
        }
    }
    if (s->precision == DPB_PRECISION_TF32)
        return products > 0 ? OFTEN : NONE;
    if (!is_narrow(s))
        return NONE;
    return consumers > 1 || attentions > 0 ? OFTEN : ONCE;
}

/* The gradient of the mean loss by each label's loss. */
static dpb_status check_loss_gradient(struct oracle *o, uint32_t index)
{
    const struct dpb_session *s = o->s;
    const double scale = s->precision == DPB_PRECISION_FP16 ? s->pass.loss_scale : 1;
    const uint64_t n = elements(s, index);
    for (uint64_t i = 0; i < n; i++)
        o->sum[index][i] = o->magnitude[index][i] = scale / (double)n;
    return compare(s, index, "gradient", NONE, o->sum[index], o->magnitude[index], o->dy[index], n);
}

/* Checks the gradient by the node's output, which its consumers have summed up by now, then adds
 * the node's part to those of its inputs and checks its weights' gradients. */
static dpb_status check_backward(struct oracle *o, uint32_t index)
{
    const struct dpb_session *s = o->s;
    const struct dpb_graph *graph = s->graph;
    const struct dpb_node *node = &graph->nodes[index];
    if (index + 1 == graph->n_nodes)
        DPB_TRY(check_loss_gradient(o, index));
    else if (o->no_dy[index])
        memcpy(o->dy[index], o->sum[index], elements(s, index) * sizeof(double));
    else
        DPB_TRY(compare(s, index, "gradient", gradient_rounding(o, index), o->sum[index],
                        o->magnitude[index], o->dy[index], elements(s, index)));
    const double *x[DPB_MAX_INPUTS];
    double *dx[DPB_MAX_INPUTS];
    struct dpb_shape in[DPB_MAX_INPUTS];
    uint64_t n_weight = node->weight == DPB_NONE ? 0 : graph->tensors[node->weight].n_elements;
    uint64_t n_bias = node->bias == DPB_NONE ? 0 : graph->tensors[node->bias].n_elements;
    o->free = o->scratch;
    double *want = take(o, n_weight + n_bias), *magnitude = take(o, n_weight + n_bias);
    const bool adds = node->tied && node->op == DPB_OP_EMBEDDING;
    if (adds) {
        memcpy(want, o->tied[0], n_weight * sizeof *want);
        memcpy(magnitude, o->tied[1], n_weight * sizeof *magnitude);
    }
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
    if (node->tied && !adds) {
        memcpy(o->tied[0], want, n_weight * sizeof *want);
        memcpy(o->tied[1], magnitude, n_weight * sizeof *magnitude);
        return DPB_OK;
    }
    DPB_TRY(check_tensor(o, index, node->weight, want, magnitude));
    return check_tensor(o, index, node->bias, want + n_weight, magnitude + n_weight);
}

static dpb_status check_nodes(struct oracle *o)
{
    const uint32_t n_nodes = o->s->graph->n_nodes;
    for (uint32_t i = 0; i < n_nodes; i++)
        DPB_TRY(inspect(o, i));
    for (uint32_t i = 0; i < n_nodes; i++)
        DPB_TRY(check_forward(o, i));
    for (uint32_t i = n_nodes; o->s->pass.training && i-- > 1;)
        DPB_TRY(check_backward(o, i));
    return DPB_OK;
}

dpb_status dpb_opcheck_ops(const struct dpb_session *s)
{
    struct oracle o;
    dpb_status status = open_oracle(s, &o);
    DPB_THEN(status, check_nodes(&o));
    free(o.memory);
    return status;
}
