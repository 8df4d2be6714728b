/*
 * ops.c - the ops. Naming: x and y are a node's input and output, dx and dy the gradients of the
 * loss by them; c, h, w index channel, row and column; i counts samples.
 *
 * Every term of a sum passes through TERM, which magnitudes.c defines as the absolute value.
 */
#include "ops.h"

#include <assert.h>
#include <math.h>

#include "dpbench/random.h"

#ifndef TERM
#define TERM(value) (value)
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

/* ---------------------------------------------------------------------------------------- input */

static double sample_value(const struct dpb_sample_format *format, const void *samples, size_t k)
{
    return format->type == DPB_UINT8 ? ((const uint8_t *)samples)[k] : ((const float *)samples)[k];
}

static void input_forward(const struct ref_call *call)
{
    const struct dpb_sample_format *format = call->batch->format;
    struct dpb_shape shape = format->shape;
    size_t pixels = plane(shape);
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

/* ---------------------------------------------------------------------------------- convolution */

/* The outputs o along one axis for which input o * stride + k - pad is not padding. */
struct reach {
    uint32_t begin, end;
};

static struct reach reach_of(uint32_t k, uint32_t stride, uint32_t pad, uint32_t in, uint32_t out)
{
    struct reach reach = {0, 0};
    if (pad > k)
        reach.begin = (pad - k + stride - 1) / stride;
    if (in + pad > k)
        reach.end = (in + pad - k - 1) / stride + 1;
    if (reach.end > out)
        reach.end = out;
    return reach;
}

/* One element (kh, kw) of a kernel on its way from an input plane to an output plane. */
struct tap {
    struct reach rows, columns;
    ptrdiff_t stride_h,
        stride_w; /* input row = output row * stride_h + shift_h; columns likewise */
    ptrdiff_t shift_h, shift_w;
    ptrdiff_t in_w, out_w;
};

static struct tap tap_of(const struct ref_call *call, uint32_t kh, uint32_t kw)
{
    const struct dpb_window *window = &call->node->window;
    struct dpb_shape in = call->in[0], out = call->node->shape;
    return (struct tap){
        .rows = reach_of(kh, window->stride_h, window->pad_top, in.h, out.h),
        .columns = reach_of(kw, window->stride_w, window->pad_left, in.w, out.w),
        .stride_h = window->stride_h,
        .stride_w = window->stride_w,
        .shift_h = (ptrdiff_t)kh - window->pad_top,
        .shift_w = (ptrdiff_t)kw - window->pad_left,
        .in_w = in.w,
        .out_w = out.w,
    };
}

static void tap_forward(const struct tap *tap, double weight, const double *x, double *y)
{
    for (ptrdiff_t h = tap->rows.begin; h < tap->rows.end; h++) {
        const double *x_row = x + (h * tap->stride_h + tap->shift_h) * tap->in_w;
        double *y_row = y + h * tap->out_w;
        for (ptrdiff_t w = tap->columns.begin; w < tap->columns.end; w++)
            y_row[w] += TERM(weight * x_row[w * tap->stride_w + tap->shift_w]);
    }
}

static void tap_backward_data(const struct tap *tap, double weight, const double *dy, double *dx)
{
    for (ptrdiff_t h = tap->rows.begin; h < tap->rows.end; h++) {
        double *dx_row = dx + (h * tap->stride_h + tap->shift_h) * tap->in_w;
        const double *dy_row = dy + h * tap->out_w;
        for (ptrdiff_t w = tap->columns.begin; w < tap->columns.end; w++)
            dx_row[w * tap->stride_w + tap->shift_w] += TERM(weight * dy_row[w]);
    }
}

static double tap_backward_weight(const struct tap *tap, const double *x, const double *dy)
{
    double sum = 0;
    for (ptrdiff_t h = tap->rows.begin; h < tap->rows.end; h++) {
        const double *x_row = x + (h * tap->stride_h + tap->shift_h) * tap->in_w;
        const double *dy_row = dy + h * tap->out_w;
        for (ptrdiff_t w = tap->columns.begin; w < tap->columns.end; w++)
            sum += TERM(dy_row[w] * x_row[w * tap->stride_w + tap->shift_w]);
    }
    return sum;
}

/* Where the input planes begin that output channel o of sample i reads: those of the channel's
 * group. */
static size_t first_plane(const struct ref_call *call, uint32_t i, uint32_t o)
{
    struct dpb_shape in = call->in[0];
    uint32_t groups = call->node->groups, group = o / (call->node->shape.c / groups);
    return ((size_t)i * in.c + (size_t)group * (in.c / groups)) * plane(in);
}

static void conv_forward(const struct ref_call *call)
{
    const struct dpb_window *window = &call->node->window;
    struct dpb_shape in = call->in[0], out = call->node->shape;
    uint32_t n_inputs = in.c / call->node->groups; /* of an output channel */
    double *y = call->y;
    for (uint32_t i = 0; i < call->n; i++) {
        const double *weight = call->weight;
        for (uint32_t o = 0; o < out.c; o++, y += plane(out)) {
            const double *x = call->x[0] + first_plane(call, i, o);
            fill(y, plane(out), call->bias ? TERM(call->bias[o]) : 0);
            for (uint32_t c = 0; c < n_inputs; c++, x += plane(in)) {
                for (uint32_t kh = 0; kh < window->kernel_h; kh++) {
                    for (uint32_t kw = 0; kw < window->kernel_w; kw++) {
                        struct tap tap = tap_of(call, kh, kw);
                        tap_forward(&tap, *weight++, x, y);
                    }
                }
            }
        }
    }
}

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

static void conv_backward(const struct ref_call *call)
{
    const struct dpb_window *window = &call->node->window;
    struct dpb_shape in = call->in[0], out = call->node->shape;
    uint32_t n_inputs = in.c / call->node->groups; /* of an output channel */
    size_t n_weights = (size_t)out.c * n_inputs * window->kernel_h * window->kernel_w;
    const double *dy = call->dy;
    fill(call->dweight, n_weights, 0);
    for (uint32_t i = 0; i < call->n; i++) {
        size_t k = 0;
        for (uint32_t o = 0; o < out.c; o++, dy += plane(out)) {
            size_t at = first_plane(call, i, o);
            for (uint32_t c = 0; c < n_inputs; c++, at += plane(in)) {
                for (uint32_t kh = 0; kh < window->kernel_h; kh++) {
                    for (uint32_t kw = 0; kw < window->kernel_w; kw++, k++) {
                        struct tap tap = tap_of(call, kh, kw);
                        call->dweight[k] += tap_backward_weight(&tap, call->x[0] + at, dy);
                        if (call->dx[0])
                            tap_backward_data(&tap, call->weight[k], dy, call->dx[0] + at);
                    }
                }
            }
        }
    }
    if (call->dbias)
        bias_backward(call);
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

/* ----------------------------------------------------------------------------------- batch-norm */

/* What a channel is normalised by. */
struct moments {
    double mean;
    double mean_term; /* of mean where it is subtracted: mean |x| when magnitudes are summed */
    double variance;  /* biased */
    double variance_term;
    double inverse; /* 1 / sqrt(variance + epsilon) */
};

static struct moments batch_moments(const struct ref_call *call, uint32_t c)
{
    size_t pixels = plane(call->in[0]), stride = call->in[0].c * pixels;
    const double *x = call->x[0] + c * pixels;
    double count = (double)call->n * (double)pixels;
    struct moments m = {0};
    for (uint32_t i = 0; i < call->n; i++) {
        for (size_t p = 0; p < pixels; p++) {
            m.mean += x[i * stride + p];
            m.mean_term += TERM(x[i * stride + p]);
        }
    }
    m.mean /= count;
    m.mean_term /= count;
    for (uint32_t i = 0; i < call->n; i++) {
        for (size_t p = 0; p < pixels; p++) {
            double centred = x[i * stride + p] - m.mean;
            double centred_term = TERM(x[i * stride + p]) + TERM(-m.mean_term);
            m.variance += centred * centred;
            m.variance_term += centred_term * centred_term;
        }
    }
    m.variance /= count;
    m.variance_term /= count;
    m.inverse = 1 / sqrt(m.variance + call->node->epsilon);
    return m;
}

static struct moments running_moments(const struct ref_call *call, uint32_t c)
{
    double mean = call->running_mean[c], variance = call->running_variance[c];
    return (struct moments){.mean = mean,
                            .mean_term = mean,
                            .variance = variance,
                            .variance_term = variance,
                            .inverse = 1 / sqrt(variance + call->node->epsilon)};
}

static void batch_norm_forward(const struct ref_call *call)
{
    size_t pixels = plane(call->in[0]), stride = call->in[0].c * pixels;
    double count = (double)call->n * (double)pixels;
    for (uint32_t c = 0; c < call->in[0].c; c++) {
        struct moments m = call->training ? batch_moments(call, c) : running_moments(call, c);
        double gamma = call->weight ? call->weight[c] : 1;
        for (uint32_t i = 0; i < call->n; i++) {
            for (size_t p = 0; p < pixels; p++) {
                size_t k = i * stride + c * pixels + p;
                double centred = TERM(call->x[0][k]) + TERM(-m.mean_term);
                call->y[k] = TERM(gamma * m.inverse * centred) + TERM(call->bias[c]);
            }
        }
        if (call->training) {
            call->mean[c] = m.mean_term;
            call->variance[c] = m.variance_term * (count > 1 ? count / (count - 1) : 1);
        }
    }
}

/*
 * With x^ = (x - mean) * inverse and both mean and variance functions of the batch,
 * dx = gamma * inverse * (dy - mean(dy) - x^ * mean(dy * x^)).
 */
static void batch_norm_backward(const struct ref_call *call)
{
    size_t pixels = plane(call->in[0]), stride = call->in[0].c * pixels;
    double count = (double)call->n * (double)pixels;
    for (uint32_t c = 0; c < call->in[0].c; c++) {
        struct moments m = batch_moments(call, c);
        double gamma = call->weight ? call->weight[c] : 1;
        double dgamma = 0, dbeta = 0;
        for (uint32_t i = 0; i < call->n; i++) {
            for (size_t p = 0; p < pixels; p++) {
                size_t k = i * stride + c * pixels + p;
                double normal = (TERM(call->x[0][k]) + TERM(-m.mean_term)) * m.inverse;
                dgamma += TERM(call->dy[k] * normal);
                dbeta += TERM(call->dy[k]);
            }
        }
        if (call->dweight)
            call->dweight[c] = dgamma;
        call->dbias[c] = dbeta;
        for (uint32_t i = 0; call->dx[0] && i < call->n; i++) {
            for (size_t p = 0; p < pixels; p++) {
                size_t k = i * stride + c * pixels + p;
                double normal = (TERM(call->x[0][k]) + TERM(-m.mean_term)) * m.inverse;
                call->dx[0][k] += TERM(gamma * m.inverse * call->dy[k]) +
                                  TERM(-gamma * m.inverse * dbeta / count) +
                                  TERM(-gamma * m.inverse * normal * dgamma / count);
            }
        }
    }
}

/* -------------------------------------------------------------------------- relu, add, dropout */

static size_t total_elements(const struct ref_call *call)
{
    return (size_t)(call->n * dpb_shape_elements(call->node->shape));
}

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

/* What dropout multiplies element e of sample i by. */
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

/* ---------------------------------------------------------------------------------------- pools */

/* The part of a window that lies in the input: rows [top, bottom), columns [left, right). */
struct view {
    uint32_t top, bottom, left, right;
};

static uint32_t clip(uint32_t position, uint32_t pad, uint32_t in)
{
    uint32_t inside = position > pad ? position - pad : 0;
    return inside < in ? inside : in;
}

static struct view view_of(const struct ref_call *call, uint32_t h, uint32_t w)
{
    const struct dpb_window *window = &call->node->window;
    struct dpb_shape in = call->in[0];
    uint32_t row = h * window->stride_h, column = w * window->stride_w;
    struct view view = {.top = clip(row, window->pad_top, in.h),
                        .bottom = clip(row + window->kernel_h, window->pad_top, in.h),
                        .left = clip(column, window->pad_left, in.w),
                        .right = clip(column + window->kernel_w, window->pad_left, in.w)};
    assert(view.top < view.bottom && view.left < view.right);
    return view;
}

/* Index of the first maximum in row order; the last NaN where there is one. */
static size_t first_maximum(const struct view *view, const double *x, size_t row_stride)
{
    size_t best = view->top * row_stride + view->left;
    for (size_t h = view->top; h < view->bottom; h++) {
        for (size_t w = view->left; w < view->right; w++) {
            double value = x[h * row_stride + w];
            if (value > x[best] || isnan(value))
                best = h * row_stride + w;
        }
    }
    return best;
}

static void max_pool_forward(const struct ref_call *call)
{
    struct dpb_shape in = call->in[0], out = call->node->shape;
    const double *x = call->x[0];
    double *y = call->y;
    for (size_t planes = (size_t)call->n * in.c; planes > 0; planes--, x += plane(in)) {
        for (uint32_t h = 0; h < out.h; h++) {
            for (uint32_t w = 0; w < out.w; w++) {
                struct view view = view_of(call, h, w);
                *y++ = TERM(x[first_maximum(&view, x, in.w)]);
            }
        }
    }
}

static void max_pool_backward(const struct ref_call *call)
{
    struct dpb_shape in = call->in[0], out = call->node->shape;
    const double *x = call->x[0], *dy = call->dy;
    double *dx = call->dx[0];
    if (!dx)
        return;
    for (size_t planes = (size_t)call->n * in.c; planes > 0; planes--) {
        for (uint32_t h = 0; h < out.h; h++) {
            for (uint32_t w = 0; w < out.w; w++) {
                struct view view = view_of(call, h, w);
                dx[first_maximum(&view, x, in.w)] += TERM(*dy);
                dy++;
            }
        }
        x += plane(in);
        dx += plane(in);
    }
}

static double view_size(const struct view *view)
{
    return (double)(view->bottom - view->top) * (double)(view->right - view->left);
}

static void mean_pool_forward(const struct ref_call *call)
{
    struct dpb_shape in = call->in[0], out = call->node->shape;
    const double *x = call->x[0];
    double *y = call->y;
    for (size_t planes = (size_t)call->n * in.c; planes > 0; planes--, x += plane(in)) {
        for (uint32_t h = 0; h < out.h; h++) {
            for (uint32_t w = 0; w < out.w; w++) {
                struct view view = view_of(call, h, w);
                double sum = 0;
                for (size_t r = view.top; r < view.bottom; r++) {
                    for (size_t s = view.left; s < view.right; s++)
                        sum += TERM(x[r * in.w + s]);
                }
                *y++ = sum / view_size(&view);
            }
        }
    }
}

static void mean_pool_backward(const struct ref_call *call)
{
    struct dpb_shape in = call->in[0], out = call->node->shape;
    const double *dy = call->dy;
    double *dx = call->dx[0];
    if (!dx)
        return;
    for (size_t planes = (size_t)call->n * in.c; planes > 0; planes--, dx += plane(in)) {
        for (uint32_t h = 0; h < out.h; h++) {
            for (uint32_t w = 0; w < out.w; w++, dy++) {
                struct view view = view_of(call, h, w);
                for (size_t r = view.top; r < view.bottom; r++) {
                    for (size_t s = view.left; s < view.right; s++)
                        dx[r * in.w + s] += TERM(*dy / view_size(&view));
                }
            }
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

/* ------------------------------------------------------------------------------------------ lrn */

/* Channels within the radius of c: [begin, end). */
static struct reach lrn_reach(const struct ref_call *call, uint32_t c)
{
    uint32_t radius = call->node->lrn_radius, channels = call->in[0].c;
    return (struct reach){.begin = c > radius ? c - radius : 0,
                          .end = channels - c > radius ? c + radius + 1 : channels};
}

/* s = k + alpha * (sum of squares), of channel c at a pixel; x points at the pixel in channel 0. */
static double lrn_denominator(const struct ref_call *call, const double *x, uint32_t c)
{
    struct reach near = lrn_reach(call, c);
    double sum = 0;
    for (uint32_t j = near.begin; j < near.end; j++) {
        double value = x[j * plane(call->in[0])];
        sum += value * value;
    }
    return call->node->lrn_k + call->node->lrn_alpha * sum;
}

static void lrn_forward(const struct ref_call *call)
{
    size_t pixels = plane(call->in[0]), channels = call->in[0].c;
    for (uint32_t i = 0; i < call->n; i++) {
        for (uint32_t c = 0; c < channels; c++) {
            for (size_t p = 0; p < pixels; p++) {
                const double *x = call->x[0] + i * channels * pixels + p;
                double s = lrn_denominator(call, x, c);
                call->y[(i * channels + c) * pixels + p] =
                    TERM(x[c * pixels] * pow(s, -call->node->lrn_beta));
            }
        }
    }
}

/* y_c = x_c s_c^-beta, so x_j gets dy_c s_c^-beta for j = c and, for every j near c,
 * -2 alpha beta dy_c x_c s_c^(-beta - 1) x_j. */
static void lrn_backward(const struct ref_call *call)
{
    size_t pixels = plane(call->in[0]), channels = call->in[0].c;
    double alpha = call->node->lrn_alpha, beta = call->node->lrn_beta;
    for (uint32_t i = 0; call->dx[0] && i < call->n; i++) {
        for (uint32_t c = 0; c < channels; c++) {
            struct reach near = lrn_reach(call, c);
            for (size_t p = 0; p < pixels; p++) {
                size_t at = i * channels * pixels + p;
                const double *x = call->x[0] + at;
                double *dx = call->dx[0] + at, dy = call->dy[at + c * pixels];
                double s = lrn_denominator(call, x, c), power = pow(s, -beta);
                dx[c * pixels] += TERM(dy * power);
                double common = -2 * alpha * beta * dy * x[c * pixels] * power / s;
                for (uint32_t j = near.begin; j < near.end; j++)
                    dx[j * pixels] += TERM(common * x[j * pixels]);
            }
        }
    }
}

/* ----------------------------------------------------------------------------------------- loss */

static double log_sum_exp(const double *logits, size_t n)
{
    double largest = logits[0], sum = 0;
    for (size_t k = 1; k < n; k++)
        largest = logits[k] > largest ? logits[k] : largest;
    for (size_t k = 0; k < n; k++)
        sum += exp(logits[k] - largest);
    return largest + log(sum);
}

static void softmax_loss_forward(const struct ref_call *call)
{
    size_t classes = call->in[0].c;
    for (uint32_t i = 0; i < call->n; i++) {
        const double *logits = call->x[0] + i * classes;
        int32_t label = call->batch->labels[i];
        double smoothing = call->node->smoothing, sum = 0;
        for (size_t k = 0; smoothing > 0 && k < classes; k++)
            sum += TERM(-smoothing / (double)classes * logits[k]);
        call->y[i] =
            TERM(log_sum_exp(logits, classes)) + TERM(-(1 - smoothing) * logits[label]) + sum;
    }
}

static void softmax_loss_backward(const struct ref_call *call)
{
    size_t classes = call->in[0].c;
    for (uint32_t i = 0; call->dx[0] && i < call->n; i++) {
        const double *logits = call->x[0] + i * classes;
        double *dx = call->dx[0] + i * classes, dy = call->dy[i];
        double normaliser = log_sum_exp(logits, classes), smoothing = call->node->smoothing;
        for (size_t k = 0; k < classes; k++)
            dx[k] +=
                TERM(dy * exp(logits[k] - normaliser)) + TERM(-dy * smoothing / (double)classes);
        dx[call->batch->labels[i]] += TERM(-dy * (1 - smoothing));
    }
}

/* --------------------------------------------------------------------------------------- tables */

static void nothing(const struct ref_call *call)
{
    (void)call;
}

typedef void kernel(const struct ref_call *call);

static kernel *const forward_of[DPB_OPS] = {
    [DPB_OP_INPUT] = input_forward,
    [DPB_OP_CONV] = conv_forward,
    [DPB_OP_BATCH_NORM] = batch_norm_forward,
    [DPB_OP_RELU] = relu_forward,
    [DPB_OP_MAX_POOL] = max_pool_forward,
    [DPB_OP_MEAN_POOL] = mean_pool_forward,
    [DPB_OP_DENSE] = dense_forward,
    [DPB_OP_ADD] = add_forward,
    [DPB_OP_CONCAT] = concat_forward,
    [DPB_OP_DROPOUT] = dropout_forward,
    [DPB_OP_LRN] = lrn_forward,
    [DPB_OP_SHORTCUT] = shortcut_forward,
    [DPB_OP_SOFTMAX_LOSS] = softmax_loss_forward,
};

static kernel *const backward_of[DPB_OPS] = {
    [DPB_OP_INPUT] = nothing,
    [DPB_OP_CONV] = conv_backward,
    [DPB_OP_BATCH_NORM] = batch_norm_backward,
    [DPB_OP_RELU] = relu_backward,
    [DPB_OP_MAX_POOL] = max_pool_backward,
    [DPB_OP_MEAN_POOL] = mean_pool_backward,
    [DPB_OP_DENSE] = dense_backward,
    [DPB_OP_ADD] = add_backward,
    [DPB_OP_CONCAT] = concat_backward,
    [DPB_OP_DROPOUT] = dropout_backward,
    [DPB_OP_LRN] = lrn_backward,
    [DPB_OP_SHORTCUT] = shortcut_backward,
    [DPB_OP_SOFTMAX_LOSS] = softmax_loss_backward,
};

void ref_forward(const struct ref_call *call)
{
    forward_of[call->node->op](call);
}

void ref_backward(const struct ref_call *call)
{
    backward_of[call->node->op](call);
}
