/*
 * ops_lrn.c - local response normalisation, by own loops in fp32 whatever the precision:
 *
 *     n = k + alpha * sum of x^2 over the window    y = x n^-beta
 *     dx = dy n^-beta - 2 alpha beta x * sum of t over the window,  t = dy x n^(-beta - 1)
 *
 * With AVX2 oneDNN 3.2 runs its slow reference code for wide windows in nhwc. With AVX-512 its
 * backward in bf16 gives wrong values for more than one block of 16 channels.
 */
#include <math.h>

#include "ops.h"
#include "inner.h"

/* The channels of a pixel. */
struct row {
    const float *x, *dy;
    float *out, *n; /* out: y or dx */
    size_t channels;
};

/* to[c] += scale * sum of from[c + d] over the window, times x[c] if `by_x`. */
INLINE void add_window(const float *from, const float *x, bool by_x, float scale,
                       float *restrict to, size_t channels, size_t radius)
{
    radius = smaller(radius, channels);
    for (size_t d = 0; d <= 2 * radius; d++) {
        const size_t begin = d < radius ? radius - d : 0;
        const size_t end = d > radius ? channels - smaller(d - radius, channels) : channels;
#pragma omp simd
        for (size_t c = begin; c < end; c++)
            to[c] += (by_x ? scale * x[c] : scale) * from[c + d - radius];
    }
}

/* n^-beta; the usual exponents without powf, which is no vector instruction. */
INLINE float power(float n, float beta)
{
    const float root = sqrtf(n);
    if (beta == 0.75F)
        return 1.0F / (root * sqrtf(root));
    if (beta == 0.5F)
        return 1.0F / root;
    return beta == 1.0F ? 1.0F / n : powf(n, -beta);
}

INLINE void normalise(const struct row *row, const struct dpb_node *node, float beta)
{
    const size_t channels = row->channels;
    const float *restrict x = row->x;
    float *restrict n = row->n, *restrict y = row->out;
    for (size_t c = 0; c < channels; c++) {
        n[c] = (float)node->lrn_k;
        y[c] = x[c] * x[c];
    }
    add_window(y, x, false, (float)node->lrn_alpha, n, channels, node->lrn_radius);
#pragma omp simd
    for (size_t c = 0; c < channels; c++)
        y[c] = x[c] * power(n[c], beta);
}

/* n becomes t. */
INLINE void normalise_backward(const struct row *row, const struct dpb_node *node, float beta)
{
    const size_t channels = row->channels;
    const float *restrict x = row->x, *restrict dy = row->dy;
    float *restrict n = row->n, *restrict dx = row->out;
#pragma omp simd
    for (size_t c = 0; c < channels; c++) {
        dx[c] = dy[c] * power(n[c], beta);
        n[c] = dx[c] * x[c] / n[c];
    }
    add_window(n, x, true, (float)(-2.0 * node->lrn_alpha * node->lrn_beta), dx, channels,
               node->lrn_radius);
}

/* The loops once for each usual exponent: a branch on it in a loop is not vectorised. */
KERNEL void take_row(const struct row *row, const struct dpb_node *node)
{
    const float beta = (float)node->lrn_beta;
    if (beta == 0.75F)
        row->dy ? normalise_backward(row, node, 0.75F) : normalise(row, node, 0.75F);
    else if (beta == 0.5F)
        row->dy ? normalise_backward(row, node, 0.5F) : normalise(row, node, 0.5F);
    else
        row->dy ? normalise_backward(row, node, beta) : normalise(row, node, beta);
}

/* from: x; aux: n. Backward has also[USE_PART], dy. */
static void take_rows(const struct program *p, const struct step *step)
{
    const struct dpb_shape shape = step->node->shape;
    const size_t rows = (size_t)p->args.batch * shape.h * shape.w, channels = shape.c;
    const struct tensor *dy = step->also[USE_PART];
#pragma omp parallel for
    for (size_t i = 0; i < rows; i++) {
        const size_t at = i * channels;
        take_row(&(const struct row){.x = (const float *)step->from->data + at,
                                     .dy = dy ? (const float *)dy->data + at : NULL,
                                     .out = (float *)step->to->data + at,
                                     .n = (float *)step->aux->data + at,
                                     .channels = channels},
                 step->node);
    }
}

dpb_status cpu_lrn_forward(struct program *p, const struct dpb_node *node)
{
    const size_t elements = p->args.batch * dpb_shape_elements(node->shape);
    struct node_plan *plan = cpu_plan(p, node);
    struct tensor *activation, *dst;
    DPB_TRY(cpu_activation(p, node, &activation));
    DPB_TRY(cpu_read_fp32(p, cpu_plan(p, cpu_input(p, node, 0))->activation, node->shape,
                          &plan->input_fp32));
    DPB_TRY(cpu_write_fp32(p, activation, node->shape, &dst));
    DPB_TRY(cpu_buffer(p, elements * sizeof(float), &plan->workspace));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "forward", take_rows, plan->input_fp32, dst, plan->workspace));
    return cpu_round_fp32(p, dst, activation);
}

dpb_status cpu_lrn_backward(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cpu_plan(p, node);
    struct tensor *part, *diff_dst, *diff_src;
    DPB_TRY(cpu_input_gradient(p, node, 0, &part));
    if (!part)
        return DPB_OK;
    DPB_TRY(cpu_read_fp32(p, plan->gradient, node->shape, &diff_dst));
    DPB_TRY(cpu_write_fp32(p, part, node->shape, &diff_src));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "backward", take_rows, plan->input_fp32, diff_src,
                     plan->workspace));
    cpu_also(p, USE_PART, diff_dst);
    return cpu_round_fp32(p, diff_src, part);
}
