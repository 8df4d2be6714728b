/*
 * ops_sequence.c - layer-norm, positions and a prepended token, in one pass over memory each: a row
 * is a position of a sample, and its channels lie one after the other.
 *
 * Sums over rows (gradients of weights) are fp64, in chunks that rows and columns alone decide, so
 * results do not depend on the number of threads.
 */
#include <math.h>

#include "inner.h"
#include "ops.h"

enum { MAX_CHUNKS = 64, CHUNK_ROWS = 32 /* at least */ };

static size_t chunks_of(size_t rows)
{
    return smaller(MAX_CHUNKS, (rows + CHUNK_ROWS - 1) / CHUNK_ROWS);
}

/* ----------------------------------------------------------------------------------- layer-norm */

/* The operands of a row; moments: its mean, and 1 / sqrt(variance + epsilon). */
struct row {
    const void *x, *dy;
    void *out; /* y or dx; NULL: not wanted */
    const float *gamma, *beta;
    float *moments;
    double *dgamma, *dbeta; /* of the chunk */
    size_t n;
    float epsilon;
};

INLINE void normalise(const struct row *row, bool bf16)
{
    const size_t n = row->n;
    const void *x = row->x;
    const float *restrict gamma = row->gamma, *restrict beta = row->beta;
    float sum = 0.0F, squares = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (size_t c = 0; c < n; c++)
        sum += get(x, c, bf16);
    const float mean = sum / (float)n;
#pragma omp simd reduction(+ : squares)
    for (size_t c = 0; c < n; c++) {
        const float centred = get(x, c, bf16) - mean;
        squares += centred * centred;
    }
    const float inverse = 1.0F / sqrtf(squares / (float)n + row->epsilon);
    row->moments[0] = mean;
    row->moments[1] = inverse;
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        put(row->out, c, (get(x, c, bf16) - mean) * inverse * gamma[c] + beta[c], bf16);
}

/* dx = inverse (g - mean(g) - x^ mean(g x^)), g = gamma dy. */
INLINE void normalise_backward(const struct row *row, bool bf16)
{
    const size_t n = row->n;
    const void *x = row->x, *given = row->dy;
    const float *restrict gamma = row->gamma, mean = row->moments[0], inverse = row->moments[1];
    double *restrict dgamma = row->dgamma, *restrict dbeta = row->dbeta;
    float sum = 0.0F, product = 0.0F;
#pragma omp simd reduction(+ : sum, product)
    for (size_t c = 0; c < n; c++) {
        const float g = get(given, c, bf16) * gamma[c];
        sum += g;
        product += g * ((get(x, c, bf16) - mean) * inverse);
    }
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        const float dy = get(given, c, bf16);
        dgamma[c] += (double)(dy * ((get(x, c, bf16) - mean) * inverse));
        dbeta[c] += (double)dy;
    }
    sum /= (float)n;
    product /= (float)n;
    if (!row->out)
        return;
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        const float normal = (get(x, c, bf16) - mean) * inverse;
        put(row->out, c, inverse * (get(given, c, bf16) * gamma[c] - sum - normal * product), bf16);
    }
}

KERNEL void take_row(const struct row *row, bool bf16)
{
    if (row->dy)
        bf16 ? normalise_backward(row, true) : normalise_backward(row, false);
    else
        bf16 ? normalise(row, true) : normalise(row, false);
}

static void *at(const struct tensor *tensor, size_t element, bool bf16)
{
    return tensor ? (char *)tensor->data + element * (bf16 ? sizeof(uint16_t) : sizeof(float))
                  : NULL;
}

static struct row row_of(const struct program *p, const struct step *step, size_t row)
{
    const struct dpb_node *node = step->node;
    const bool bf16 = p->type == dnnl_bf16;
    const size_t n = node->shape.c;
    return (struct row){.x = at(step->from, row * n, bf16),
                        .dy = at(step->also[USE_PART], row * n, bf16),
                        .out = at(step->to, row * n, bf16),
                        .gamma = cpu_weights(p, node->weight),
                        .beta = cpu_weights(p, node->bias),
                        .moments = (float *)cpu_plan(p, node)->workspace->data + 2 * row,
                        .n = n,
                        .epsilon = (float)node->epsilon};
}

static size_t rows_of(const struct program *p, const struct dpb_node *node)
{
    return (size_t)p->args.batch * node->shape.h * node->shape.w;
}

static void layer_norm(const struct program *p, const struct step *step)
{
    const size_t rows = rows_of(p, step->node);
#pragma omp parallel for
    for (size_t i = 0; i < rows; i++) {
        const struct row row = row_of(p, step, i);
        take_row(&row, p->type == dnnl_bf16);
    }
}

/* to[c] = the sum over all chunks of partial[chunk][c]. */
static void add_chunks(const double *partial, size_t n_chunks, size_t stride, size_t n, float *to)
{
    for (size_t c = 0; c < n; c++) {
        double sum = 0.0;
        for (size_t i = 0; i < n_chunks; i++)
            sum += partial[i * stride + c];
        to[c] = (float)sum;
    }
}

/* aux: for each chunk gamma's gradient, then beta's. */
static void layer_norm_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const size_t rows = rows_of(p, node), n = node->shape.c, n_chunks = chunks_of(rows);
    double *partial = step->aux->data;
#pragma omp parallel for
    for (size_t chunk = 0; chunk < n_chunks; chunk++) {
        double *sums = partial + chunk * 2 * n;
        memset(sums, 0, 2 * n * sizeof *sums);
        for (size_t i = rows * chunk / n_chunks; i < rows * (chunk + 1) / n_chunks; i++) {
            struct row row = row_of(p, step, i);
            row.dgamma = sums;
            row.dbeta = sums + n;
            take_row(&row, p->type == dnnl_bf16);
        }
    }
    add_chunks(partial, n_chunks, 2 * n, n, cpu_gradients(p, node->weight));
    add_chunks(partial + n, n_chunks, 2 * n, n, cpu_gradients(p, node->bias));
}

dpb_status cpu_layer_norm_forward(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cpu_plan(p, node);
    struct tensor *dst;
    DPB_TRY(cpu_activation(p, node, &dst));
    DPB_TRY(cpu_buffer(p, 2 * rows_of(p, node) * sizeof(float), &plan->workspace));
    return cpu_loop(p, WHEN_ALWAYS, "forward", layer_norm,
                    cpu_plan(p, cpu_input(p, node, 0))->activation, dst, plan->workspace);
}

dpb_status cpu_layer_norm_backward(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cpu_plan(p, node);
    const size_t n_chunks = chunks_of(rows_of(p, node));
    struct tensor *diff_src, *partials;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    DPB_TRY(cpu_scratch(p, n_chunks * 2 * node->shape.c * sizeof(double), &partials));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "backward", layer_norm_backward,
                     cpu_plan(p, cpu_input(p, node, 0))->activation, diff_src, partials));
    cpu_also(p, USE_PART, plan->gradient);
    cpu_also(p, USE_OUTPUT, plan->workspace);
    return DPB_OK;
}

/* --------------------------------------------------------------------------- positions, prepend */

/* Of the prepended token there is no x. */
INLINE void add_weights(const struct row *row, bool has_x, bool bf16)
{
    const float *restrict weights = row->gamma;
#pragma omp simd
    for (size_t c = 0; c < row->n; c++)
        put(row->out, c, has_x ? get(row->x, c, bf16) + weights[c] : weights[c], bf16);
}

INLINE void add_to_sums(const struct row *row, bool bf16)
{
    double *restrict sums = row->dgamma;
#pragma omp simd
    for (size_t c = 0; c < row->n; c++)
        sums[c] += (double)get(row->dy, c, bf16);
}

KERNEL void take_position(const struct row *row, bool bf16)
{
    if (row->dy)
        bf16 ? add_to_sums(row, true) : add_to_sums(row, false);
    else if (row->x)
        bf16 ? add_weights(row, true, true) : add_weights(row, true, false);
    else
        bf16 ? add_weights(row, false, true) : add_weights(row, false, false);
}

static void positions(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const size_t n = node->shape.c, length = (size_t)node->shape.h * node->shape.w;
    const size_t rows = p->args.batch * length;
    const bool bf16 = p->type == dnnl_bf16;
#pragma omp parallel for
    for (size_t i = 0; i < rows; i++)
        take_position(&(const struct row){.x = at(step->from, i * n, bf16),
                                          .out = at(step->to, i * n, bf16),
                                          .gamma = cpu_weights(p, node->weight) + i % length * n,
                                          .n = n},
                      bf16);
}

/* The sum over the batch of a position's gradient. aux: room for one position a thread's turn. */
static void sum_position(const struct program *p, const struct step *step, size_t position,
                         double *sums, float *to)
{
    const struct dpb_node *node = step->node;
    const size_t n = node->shape.c, length = (size_t)node->shape.h * node->shape.w;
    const bool bf16 = p->type == dnnl_bf16;
    memset(sums, 0, n * sizeof *sums);
    for (size_t i = 0; i < p->args.batch; i++)
        take_position(&(const struct row){.dy = at(step->from, (i * length + position) * n, bf16),
                                          .dgamma = sums,
                                          .n = n},
                      bf16);
    for (size_t c = 0; c < n; c++)
        to[c] = (float)sums[c];
}

/* Rows beyond the positions have no gradient. */
static void positions_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct dpb_tensor *table = &p->graph->tensors[node->weight];
    const size_t n = node->shape.c, length = (size_t)node->shape.h * node->shape.w;
    float *to = cpu_gradients(p, node->weight);
    double *sums = step->aux->data;
#pragma omp parallel for
    for (size_t i = 0; i < length; i++)
        sum_position(p, step, i, sums + i * n, to + i * n);
    memset(to + length * n, 0, (table->n_elements - length * n) * sizeof *to);
}

dpb_status cpu_positions_forward(struct program *p, const struct dpb_node *node)
{
    return cpu_forward_loop(p, node, positions);
}

dpb_status cpu_positions_backward(struct program *p, const struct dpb_node *node)
{
    struct tensor *gradient = cpu_plan(p, node)->gradient, *sums;
    cpu_share_input_gradient(p, node, 0, gradient);
    DPB_TRY(cpu_scratch(p, dpb_shape_elements(node->shape) * sizeof(double), &sums));
    return cpu_loop(p, WHEN_ALWAYS, "backward weights", positions_backward, gradient, NULL, sums);
}

static void prepend(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const bool bf16 = p->type == dnnl_bf16;
    const size_t n = node->shape.c, length = node->shape.w, size = bf16 ? 2 : 4;
#pragma omp parallel for
    for (size_t i = 0; i < p->args.batch; i++) {
        take_position(&(const struct row){.out = at(step->to, i * length * n, bf16),
                                          .gamma = cpu_weights(p, node->weight),
                                          .n = n},
                      bf16);
        memcpy(at(step->to, (i * length + 1) * n, bf16), at(step->from, i * (length - 1) * n, bf16),
               (length - 1) * n * size);
    }
}

static void prepend_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const bool bf16 = p->type == dnnl_bf16;
    const size_t n = node->shape.c, length = node->shape.w, size = bf16 ? 2 : 4;
    sum_position(p, step, 0, step->aux->data, cpu_gradients(p, node->weight));
#pragma omp parallel for
    for (size_t i = 0; i < (step->to ? p->args.batch : 0); i++)
        memcpy(at(step->to, i * (length - 1) * n, bf16), at(step->from, (i * length + 1) * n, bf16),
               (length - 1) * n * size);
}

dpb_status cpu_prepend_forward(struct program *p, const struct dpb_node *node)
{
    return cpu_forward_loop(p, node, prepend);
}

dpb_status cpu_prepend_backward(struct program *p, const struct dpb_node *node)
{
    struct tensor *diff_src, *sums;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    DPB_TRY(cpu_scratch(p, node->shape.c * sizeof(double), &sums));
    return cpu_loop(p, WHEN_ALWAYS, "backward", prepend_backward, cpu_plan(p, node)->gradient,
                    diff_src, sums);
}
