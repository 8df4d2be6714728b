/*
 * ops_norm.c - batch-norm: training normalises by the batch's mean and biased variance, and hands
 * the mean and the unbiased variance to core; evaluation normalises by core's running averages.
 *
 * With x^ = (x - mean) / sqrt(variance + epsilon): y = gamma x^ + beta, and
 * dx = gamma / sqrt(variance + epsilon) * (dy - mean(dy) - x^ mean(dy x^)).
 */
#include <math.h>

#include "columns.h"
#include "cpu.h"

/* What a node keeps from forward to backward, and works with: an array of channels each. */
struct channels {
    float *mean, *inverse;  /* 1 / sqrt(variance + epsilon) */
    float *scale, *shift;   /* gamma * inverse and beta */
    float *offset, *slope;  /* backward: of columns.h */
    double *first, *second; /* moments or sums in fp64 */
};

static size_t channels_bytes(size_t n)
{
    return n * (6 * sizeof(float) + 2 * sizeof(double));
}

static struct channels channels_of(const struct program *p, const struct dpb_node *node)
{
    const size_t n = node->shape.c;
    double *first = cpu_plan(p, node)->workspace->data;
    float *rest = (float *)(first + 2 * n);
    return (struct channels){.first = first,
                             .second = first + n,
                             .mean = rest,
                             .inverse = rest + n,
                             .scale = rest + 2 * n,
                             .shift = rest + 3 * n,
                             .offset = rest + 4 * n,
                             .slope = rest + 5 * n};
}

static const float *weights_of(const struct program *p, uint32_t tensor)
{
    return tensor == DPB_NONE ? NULL
                              : (const float *)p->core.weights + p->graph->tensors[tensor].offset;
}

static float *gradient_of(const struct program *p, uint32_t tensor)
{
    return tensor == DPB_NONE ? NULL
                              : (float *)p->core.gradients + p->graph->tensors[tensor].offset;
}

/* mean[c] and variance[c] become what the node normalises by. */
static void set_channel(const struct program *p, const struct dpb_node *node, uint32_t c,
                        double mean, double variance)
{
    const struct channels to = channels_of(p, node);
    const float *gamma = weights_of(p, node->weight), *beta = weights_of(p, node->bias);
    double inverse = 1.0 / sqrt(variance + node->epsilon);
    to.mean[c] = (float)mean;
    to.inverse[c] = (float)inverse;
    to.scale[c] = (float)(gamma ? gamma[c] * inverse : inverse);
    to.shift[c] = beta ? beta[c] : 0.0f;
}

static void take_batch_moments(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct channels by = channels_of(p, node);
    const struct matrix x = cpu_matrix(p, node, step->from);
    float *mean = (float *)p->core.statistics + p->graph->states[node->mean].offset;
    float *variance = (float *)p->core.statistics + p->graph->states[node->variance].offset;
    double unbiased = x.rows > 1 ? (double)x.rows / (double)(x.rows - 1) : 1.0;
    cpu_column_moments(&x, step->aux->data, by.first, by.second);
    for (uint32_t c = 0; c < node->shape.c; c++) {
        set_channel(p, node, c, by.first[c], by.second[c]);
        mean[c] = (float)by.first[c];
        variance[c] = (float)(by.second[c] * unbiased);
    }
}

static void take_running_averages(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const float *mean = (const float *)p->core.state + p->graph->states[node->mean].offset;
    const float *variance = (const float *)p->core.state + p->graph->states[node->variance].offset;
    for (uint32_t c = 0; c < node->shape.c; c++)
        set_channel(p, node, c, mean[c], variance[c]);
}

static void normalise(const struct program *p, const struct step *step)
{
    const struct channels by = channels_of(p, step->node);
    const struct matrix x = cpu_matrix(p, step->node, step->from);
    const struct matrix y = cpu_matrix(p, step->node, step->to);
    cpu_column_normalise(&x, by.mean, by.scale, by.shift, &y);
}

static void sum_gradients(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct channels by = channels_of(p, node);
    const struct matrix dy = cpu_matrix(p, node, cpu_plan(p, node)->gradient);
    const struct matrix x = cpu_matrix(p, node, step->from);
    float *dgamma = gradient_of(p, node->weight), *dbeta = gradient_of(p, node->bias);
    double n = (double)x.rows;
    cpu_column_sums(&dy, &x, by.mean, step->aux->data, by.first, by.second);
    for (uint32_t c = 0; c < node->shape.c; c++) {
        double inverse = by.inverse[c];
        if (dgamma)
            dgamma[c] = (float)(by.second[c] * inverse);
        if (dbeta)
            dbeta[c] = (float)by.first[c];
        by.offset[c] = (float)(by.first[c] / n);
        by.slope[c] = (float)(by.second[c] * inverse * inverse / n);
    }
}

static void normalise_backward(const struct program *p, const struct step *step)
{
    const struct channels by = channels_of(p, step->node);
    const struct matrix dy = cpu_matrix(p, step->node, cpu_plan(p, step->node)->gradient);
    const struct matrix x = cpu_matrix(p, step->node, step->from);
    const struct matrix dx = cpu_matrix(p, step->node, step->to);
    cpu_column_normalise_backward(&dy, &x, by.mean, by.scale, by.offset, by.slope, &dx);
}

dpb_status cpu_batch_norm_forward(struct program *p, const struct dpb_node *node)
{
    const struct tensor *src = cpu_plan(p, cpu_input(p, node, 0))->activation;
    struct tensor *dst, *partials;
    DPB_TRY(cpu_activation(p, node, &dst));
    DPB_TRY(cpu_buffer(p, channels_bytes(node->shape.c), &cpu_plan(p, node)->workspace));
    if (p->args.training) {
        DPB_TRY(cpu_partials(p, node, &partials));
        DPB_TRY(cpu_loop(p, WHEN_TRAINING, "moments of the batch", take_batch_moments, src, NULL,
                         partials));
    }
    DPB_TRY(
        cpu_loop(p, WHEN_EVALUATION, "running averages", take_running_averages, NULL, NULL, NULL));
    return cpu_loop(p, WHEN_ALWAYS, "forward", normalise, src, dst, NULL);
}

dpb_status cpu_batch_norm_backward(struct program *p, const struct dpb_node *node)
{
    const struct tensor *src = cpu_plan(p, cpu_input(p, node, 0))->activation;
    struct tensor *partials, *diff_src;
    DPB_TRY(cpu_partials(p, node, &partials));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "backward sums", sum_gradients, src, NULL, partials));
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src)
        return DPB_OK;
    return cpu_loop(p, WHEN_ALWAYS, "backward", normalise_backward, src, diff_src, NULL);
}
