/*
 * ops.c - the ops. Naming: x and y are a node's input and output, dx and dy the gradients of the
 * loss by them; c, h, w index channel, row and column; i counts samples.
 *
 * Every term of a sum passes through TERM, which magnitudes.c defines as the absolute value. So
 * magnitudes.c compiles this text a second time, with its three parts: ops_window.inc has
 * convolution and pools, ops_norm.inc batch-norm and LRN, ops_sequence.inc layer-norm, GELU,
 * attention and positions. There MAGNITUDE is 1.
 */
#include "ops.h"

#include <assert.h>
#include <math.h>

#include "dpbench/random.h"

#ifndef TERM
#define TERM(value) (value)
#define MAGNITUDE 0
#endif

static size_t plane(struct dpb_shape shape)
{
    return (size_t)shape.h * shape.w;
}

static void fill(double *to, size_t n, double value)
{
    for (size_t k = 0; k < n; k++)
        to[k] = value;
}

/* A range of indices along one axis. */
struct reach {
    uint32_t begin, end;
};

/* The bias of a convolution or dense layer. */
static void bias_backward(const struct ref_call *call)
{
    struct dpb_shape out = call->node->shape;
    const double *dy = call->dy;
    fill(call->dbias, out.c, 0);
    for (uint32_t i = 0; i < call->n; i++) {
        for (uint32_t o = 0; o < out.c; o++, dy += plane(out)) {
            for (size_t p = 0; p < plane(out); p++)
                call->dbias[o] += TERM(dy[p]);
        }
    }
}

static size_t total_elements(const struct ref_call *call)
{
    return (size_t)(call->n * dpb_shape_elements(call->node->shape));
}

#include "ops_norm.inc"
#include "ops_sequence.inc"
#include "ops_window.inc"

/* ---------------------------------------------------------------------------------------- input */

static double sample_value(const struct dpb_sample_format *format, const void *samples, size_t k)
{
    return format->type == DPB_UINT8 ? ((const uint8_t *)samples)[k] : ((const float *)samples)[k];
}

/* Ids stay as they are. */
static void input_forward(const struct ref_call *call)
{
    const struct dpb_sample_format *format = call->batch->format;
    struct dpb_shape shape = format->shape;
    size_t pixels = plane(shape);
    for (size_t k = 0; format->type == DPB_INT32 && k < total_elements(call); k++)
        call->y[k] = ((const int32_t *)call->batch->samples)[k];
    if (format->type == DPB_INT32)
        return;
    for (uint32_t i = 0; i < call->n; i++) {
        for (uint32_t c = 0; c < shape.c; c++) {
            for (size_t p = 0; p < pixels; p++) {
                size_t k = format->order == DPB_CHW ? c * pixels + p : p * shape.c + c;
                double value = sample_value(format, call->batch->samples, i * pixels * shape.c + k);
                call->y[(i * shape.c + c) * pixels + p] =
                    TERM(value * format->scale[c]) + TERM(format->offset[c]);
            }
        }
    }
}

/* ---------------------------------------------------------------------------------------- dense */

static void dense_forward(const struct ref_call *call)
{
    size_t features = (size_t)dpb_shape_elements(call->in[0]), outputs = call->node->shape.c;
    for (size_t o = 0; o < outputs; o++) {
        const double *weight = call->weight + o * features;
        for (uint32_t i = 0; i < call->n; i++) {
            const double *x = call->x[0] + i * features;
            double sum = call->bias ? TERM(call->bias[o]) : 0;
            for (size_t k = 0; k < features; k++)
                sum += TERM(weight[k] * x[k]);
            call->y[i * outputs + o] = sum;
        }
    }
}

static void dense_backward(const struct ref_call *call)
{
    size_t features = (size_t)dpb_shape_elements(call->in[0]), outputs = call->node->shape.c;
    fill(call->dweight, outputs * features, 0);
    for (size_t o = 0; o < outputs; o++) {
        const double *weight = call->weight + o * features;
        double *dweight = call->dweight + o * features;
        for (uint32_t i = 0; i < call->n; i++) {
            double dy = call->dy[i * outputs + o];
            const double *x = call->x[0] + i * features;
            for (size_t k = 0; k < features; k++)
                dweight[k] += TERM(dy * x[k]);
            if (!call->dx[0])
                continue;
            double *dx = call->dx[0] + i * features;
            for (size_t k = 0; k < features; k++)
                dx[k] += TERM(dy * weight[k]);
        }
    }
    if (call->dbias)
        bias_backward(call);
}

/* -------------------------------------------------------------------------- relu, add, dropout */

/* A NaN passes, so that it is seen. */
static void relu_forward(const struct ref_call *call)
{
    for (size_t k = 0; k < total_elements(call); k++)
        call->y[k] = call->x[0][k] <= 0 ? 0 : TERM(call->x[0][k]);
}

static void relu_backward(const struct ref_call *call)
{
    for (size_t k = 0; call->dx[0] && k < total_elements(call); k++)
        call->dx[0][k] += call->x[0][k] <= 0 ? 0 : TERM(call->dy[k]);
}

static void add_forward(const struct ref_call *call)
{
    for (size_t k = 0; k < total_elements(call); k++)
        call->y[k] = TERM(call->x[0][k]) + TERM(call->x[1][k]);
}

static void add_backward(const struct ref_call *call)
{
    for (uint32_t input = 0; input < 2; input++) {
        for (size_t k = 0; call->dx[input] && k < total_elements(call); k++)
            call->dx[input][k] += TERM(call->dy[k]);
    }
}

/* The factor of dropout for element e of sample i. */
static double dropout_factor(const struct ref_call *call, uint32_t i, uint32_t e)
{
    if (!call->training)
        return 1;
    double rate = call->node->rate;
    bool keeps =
        dpb_dropout_keeps(call->seed, call->step, call->first_sample + i, call->index, e, rate);
    return keeps ? 1 / (1 - rate) : 0;
}

static void dropout_forward(const struct ref_call *call)
{
    uint32_t elements = (uint32_t)dpb_shape_elements(call->node->shape);
    for (uint32_t i = 0; i < call->n; i++) {
        for (uint32_t e = 0; e < elements; e++) {
            size_t k = (size_t)i * elements + e;
            call->y[k] = TERM(call->x[0][k] * dropout_factor(call, i, e));
        }
    }
}

static void dropout_backward(const struct ref_call *call)
{
    uint32_t elements = (uint32_t)dpb_shape_elements(call->node->shape);
    for (uint32_t i = 0; call->dx[0] && i < call->n; i++) {
        for (uint32_t e = 0; e < elements; e++) {
            size_t k = (size_t)i * elements + e;
            call->dx[0][k] += TERM(call->dy[k] * dropout_factor(call, i, e));
        }
    }
}

/* ----------------------------------------------------------------------------- concat, shortcut */

static void concat_forward(const struct ref_call *call)
{
    double *y = call->y;
    for (uint32_t i = 0; i < call->n; i++) {
        for (uint32_t input = 0; input < call->node->n_inputs; input++) {
            size_t elements = (size_t)dpb_shape_elements(call->in[input]);
            for (size_t e = 0; e < elements; e++)
                *y++ = TERM(call->x[input][i * elements + e]);
        }
    }
}

static void concat_backward(const struct ref_call *call)
{
    const double *dy = call->dy;
    for (uint32_t i = 0; i < call->n; i++) {
        for (uint32_t input = 0; input < call->node->n_inputs; input++) {
            size_t elements = (size_t)dpb_shape_elements(call->in[input]);
            for (size_t e = 0; call->dx[input] && e < elements; e++)
                call->dx[input][i * elements + e] += TERM(dy[e]);
            dy += elements;
        }
    }
}

/* The input element that output element (i, c, h, w) copies. */
static size_t shortcut_source(const struct ref_call *call, size_t i, size_t c, size_t h, size_t w)
{
    const struct dpb_window *window = &call->node->window;
    struct dpb_shape in = call->in[0];
    return ((i * in.c + c) * in.h + h * window->stride_h) * in.w + w * window->stride_w;
}

static void shortcut_forward(const struct ref_call *call)
{
    struct dpb_shape out = call->node->shape;
    double *y = call->y;
    for (uint32_t i = 0; i < call->n; i++) {
        for (uint32_t c = 0; c < out.c; c++) {
            for (uint32_t h = 0; h < out.h; h++) {
                for (uint32_t w = 0; w < out.w; w++) {
                    bool copied = c < call->in[0].c;
                    *y++ = copied ? TERM(call->x[0][shortcut_source(call, i, c, h, w)]) : 0;
                }
            }
        }
    }
}

static void shortcut_backward(const struct ref_call *call)
{
    struct dpb_shape out = call->node->shape;
    for (uint32_t i = 0; call->dx[0] && i < call->n; i++) {
        const double *dy = call->dy + i * dpb_shape_elements(out);
        for (uint32_t c = 0; c < call->in[0].c; c++) {
            for (uint32_t h = 0; h < out.h; h++) {
                for (uint32_t w = 0; w < out.w; w++, dy++)
                    call->dx[0][shortcut_source(call, i, c, h, w)] += TERM(*dy);
            }
        }
    }
}

/* ----------------------------------------------------------------------------------------- loss */

static double log_sum_exp(const double *logits, size_t n, size_t stride)
{
    double largest = logits[0], sum = 0;
    for (size_t k = 1; k < n; k++)
        largest = logits[k * stride] > largest ? logits[k * stride] : largest;
    for (size_t k = 0; k < n; k++)
        sum += exp(logits[k * stride] - largest);
    return largest + log(sum);
}

/* Label i is that of position i % positions of sample i / positions. */
static size_t first_logit(const struct ref_call *call, size_t i)
{
    size_t positions = plane(call->in[0]);
    return i / positions * call->in[0].c * positions + i % positions;
}

static void softmax_loss_forward(const struct ref_call *call)
{
    size_t classes = call->in[0].c, positions = plane(call->in[0]);
    for (size_t i = 0; i < call->n * positions; i++) {
        const double *logits = call->x[0] + first_logit(call, i);
        int32_t label = call->batch->labels[i];
        double smoothing = call->node->smoothing, sum = 0;
        for (size_t k = 0; smoothing > 0 && k < classes; k++)
            sum += TERM(-smoothing / (double)classes * logits[k * positions]);
        call->y[i] = TERM(log_sum_exp(logits, classes, positions)) +
                     TERM(-(1 - smoothing) * logits[label * positions]) + sum;
    }
}

static void softmax_loss_backward(const struct ref_call *call)
{
    size_t classes = call->in[0].c, positions = plane(call->in[0]);
    for (size_t i = 0; call->dx[0] && i < call->n * positions; i++) {
        const double *logits = call->x[0] + first_logit(call, i);
        double *dx = call->dx[0] + first_logit(call, i), dy = call->dy[i];
        double normaliser = log_sum_exp(logits, classes, positions);
        double smoothing = call->node->smoothing;
        for (size_t k = 0; k < classes; k++)
            dx[k * positions] += TERM(dy * exp(logits[k * positions] - normaliser)) +
                                 TERM(-dy * smoothing / (double)classes);
        dx[call->batch->labels[i] * positions] += TERM(-dy * (1 - smoothing));
    }
}

/* ---------------------------------------------------------------------------------------- table */

static const struct {
    void (*forward)(const struct ref_call *call), (*backward)(const struct ref_call *call);
} ops[DPB_OPS] = {
    [DPB_OP_INPUT] = {.forward = input_forward},
    [DPB_OP_CONV] = {conv_forward, conv_backward},
    [DPB_OP_BATCH_NORM] = {batch_norm_forward, batch_norm_backward},
    [DPB_OP_RELU] = {relu_forward, relu_backward},
    [DPB_OP_MAX_POOL] = {max_pool_forward, max_pool_backward},
    [DPB_OP_MEAN_POOL] = {mean_pool_forward, mean_pool_backward},
    [DPB_OP_DENSE] = {dense_forward, dense_backward},
    [DPB_OP_ADD] = {add_forward, add_backward},
    [DPB_OP_CONCAT] = {concat_forward, concat_backward},
    [DPB_OP_DROPOUT] = {dropout_forward, dropout_backward},
    [DPB_OP_LRN] = {lrn_forward, lrn_backward},
    [DPB_OP_SHORTCUT] = {shortcut_forward, shortcut_backward},
    [DPB_OP_EMBEDDING] = {embedding_forward, embedding_backward},
    [DPB_OP_LAYER_NORM] = {layer_norm_forward, layer_norm_backward},
    [DPB_OP_GELU] = {gelu_forward, gelu_backward},
    [DPB_OP_ATTENTION] = {attention_forward, attention_backward},
    [DPB_OP_POSITIONS] = {positions_forward, positions_backward},
    [DPB_OP_PREPEND] = {prepend_forward, prepend_backward},
    [DPB_OP_SOFTMAX_LOSS] = {softmax_loss_forward, softmax_loss_backward},
};

void ref_forward(const struct ref_call *call)
{
    ops[call->node->op].forward(call);
}

void ref_backward(const struct ref_call *call)
{
    ops[call->node->op].backward(call);
}
