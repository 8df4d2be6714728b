/*
 * ops_norm.c - batch-norm: training normalises by the batch's mean and biased variance, and hands
 * the mean and the unbiased variance to core; evaluation normalises by core's running averages.
 *
 * With x^ = (x - mean) / sqrt(variance + epsilon): y = gamma x^ + beta, and
 * dx = gamma / sqrt(variance + epsilon) * (dy - mean(dy) - x^ mean(dy x^)). An addition and a ReLU
 * that follow are part of the same passes (fuse.c).
 */
#include <math.h>

#include "columns.h"
#include "ops.h"

/* Arrays by channel that a node works with, and keeps from forward to backward. */
struct channels {
    float *inverse;         /* 1 / sqrt(variance + epsilon) */
    struct norm by;         /* scale = gamma * inverse, shift = beta */
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
                             .inverse = rest,
                             .by = {.mean = rest + n,
                                    .scale = rest + 2 * n,
                                    .shift = rest + 3 * n,
                                    .offset = rest + 4 * n,
                                    .slope = rest + 5 * n}};
}

/* The node normalises channel c by this mean and variance. */
static void set_channel(const struct program *p, const struct dpb_node *node, uint32_t c,
                        double mean, double variance)
{
    const struct channels to = channels_of(p, node);
    const float *gamma = cpu_weights(p, node->weight), *beta = cpu_weights(p, node->bias);
    double inverse = 1.0 / sqrt(variance + node->epsilon);
    to.by.mean[c] = (float)mean;
    to.inverse[c] = (float)inverse;
    to.by.scale[c] = (float)(gamma ? gamma[c] * inverse : inverse);
    to.by.shift[c] = beta ? beta[c] : 0.0f;
}

static void take_batch_moments(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct channels by = channels_of(p, node);
    const struct matrix x = cpu_matrix(p, node, step->from);
    float *mean = (float *)p->core.statistics + p->graph->states[node->mean].offset;
    float *variance = (float *)p->core.statistics + p->graph->states[node->variance].offset;
    double unbiased = x.rows > 1 ? (double)x.rows / (double)(x.rows - 1) : 1.0;
    cpu_column_moments(&x, by.by.mean, step->aux->data, by.first, by.second);
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

/* aux: the residual that is added. */
static void normalise(const struct program *p, const struct step *step)
{
    const struct channels by = channels_of(p, step->node);
    const struct matrix x = cpu_matrix(p, step->node, step->from);
    const struct matrix residual = cpu_matrix(p, step->node, step->aux);
    const struct matrix y = cpu_matrix(p, step->node, step->to);
    cpu_column_normalise(&x, &residual, cpu_plan(p, step->node)->group->into != NULL, &by.by, &y);
}

/* The mask of a fused ReLU: where a residual was added, x alone does not determine the mask. */
static enum mask mask_of(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *relu = cpu_plan(p, node)->group->into;
    if (!relu)
        return MASK_NONE;
    return cpu_plan(p, relu)->group->residual ? MASK_OUTPUT : MASK_INPUT;
}

static void sum_gradients(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct channels by = channels_of(p, node);
    const struct gradient gradient = cpu_gradient(p, step, mask_of(p, node));
    const struct matrix x = cpu_matrix(p, node, step->from);
    float *dgamma = cpu_gradients(p, node->weight), *dbeta = cpu_gradients(p, node->bias);
    double n = (double)x.rows;
    cpu_column_sums(&gradient, &x, &by.by, step->aux->data, by.first, by.second);
    for (uint32_t c = 0; c < node->shape.c; c++) {
        double inverse = by.inverse[c];
        if (dgamma)
            dgamma[c] = (float)(by.second[c] * inverse);
        if (dbeta)
            dbeta[c] = (float)by.first[c];
        by.by.offset[c] = (float)(by.first[c] / n);
        by.by.slope[c] = (float)(by.second[c] * inverse * inverse / n);
    }
}

/* aux: the gradient; USE_DZ: the gradient is dz already. */
static void normalise_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct channels by = channels_of(p, node);
    const struct matrix dy = cpu_matrix(p, node, step->aux);
    const struct matrix x = cpu_matrix(p, node, step->from);
    const struct matrix dx = cpu_matrix(p, node, step->to);
    cpu_column_normalise_backward(&dy, step->also[USE_DZ] ? MASK_NONE : mask_of(p, node), &x,
                                  &by.by, &dx);
}

/* A batch-norm alone, or with the addition and the ReLU that it was fused with. */
static dpb_status plan_forward(struct program *p, const struct dpb_node *node,
                               const struct dpb_node *residual)
{
    const struct tensor *src = cpu_plan(p, cpu_input(p, node, 0))->activation;
    const struct tensor *added = residual ? cpu_plan(p, residual)->activation : NULL;
    const struct dpb_node *result = cpu_result(p, node);
    const char *what = residual ? "forward, add, ReLU" : "forward, ReLU";
    struct tensor *dst, *partials;
    p->node = node;
    DPB_TRY(cpu_activation(p, result, &dst));
    DPB_TRY(cpu_buffer(p, channels_bytes(node->shape.c), &cpu_plan(p, node)->workspace));
    cpu_keep(cpu_plan(p, node)->workspace);
    if (p->args.training) {
        DPB_TRY(cpu_partials(p, node, &partials));
        DPB_TRY(cpu_loop(p, WHEN_TRAINING, "moments of the batch", take_batch_moments, src, NULL,
                         partials));
    }
    DPB_TRY(
        cpu_loop(p, WHEN_EVALUATION, "running averages", take_running_averages, NULL, NULL, NULL));
    return cpu_loop(p, WHEN_ALWAYS, result == node ? "forward" : what, normalise, src, dst, added);
}

/* `end`: the node whose gradient comes in, which is the node itself or the ReLU. */
static dpb_status plan_backward(struct program *p, const struct dpb_node *node,
                                const struct dpb_node *end)
{
    const struct tensor *src = cpu_plan(p, cpu_input(p, node, 0))->activation;
    const struct dpb_node *residual = cpu_plan(p, end)->group->residual;
    const struct tensor *dy;
    struct gradient_plan gradient;
    struct tensor *partials, *diff_src;
    p->node = node;
    DPB_TRY(cpu_plan_gradient(p, end, residual != NULL, &gradient));
    DPB_TRY(cpu_partials(p, node, &partials));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "backward sums", sum_gradients, src, NULL, partials));
    cpu_use_gradient(p, &gradient, residual ? cpu_plan(p, end)->activation : NULL);
    dy = gradient.dz ? gradient.dz : gradient.part[0];
    if (gradient.dz)
        cpu_plan(p, node)->gradient = gradient.dz;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src)
        return DPB_OK;
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "backward", normalise_backward, src, diff_src, dy));
    if (gradient.dz)
        cpu_also(p, USE_DZ, gradient.dz);
    return DPB_OK;
}

dpb_status cpu_batch_norm_forward(struct program *p, const struct dpb_node *node)
{
    return cpu_plan(p, node)->group->into ? DPB_OK : plan_forward(p, node, NULL);
}

dpb_status cpu_batch_norm_backward(struct program *p, const struct dpb_node *node)
{
    return cpu_plan(p, node)->group->into ? DPB_OK : plan_backward(p, node, node);
}

dpb_status cpu_fused_norm_forward(struct program *p, const struct dpb_node *relu)
{
    return plan_forward(p, cpu_plan(p, relu)->group->from, cpu_plan(p, relu)->group->residual);
}

dpb_status cpu_fused_norm_backward(struct program *p, const struct dpb_node *relu)
{
    const struct node_plan *plan = cpu_plan(p, relu);
    DPB_TRY(plan_backward(p, plan->group->from, relu));
    if (!plan->group->residual)
        return DPB_OK;
    const struct dpb_node *add = cpu_input(p, relu, 0);
    struct tensor *dz = cpu_plan(p, plan->group->from)->gradient;
    cpu_plan(p, add)->gradient = dz;
    cpu_share_input_gradient(p, add, cpu_input(p, add, 0) == plan->group->residual ? 0 : 1, dz);
    return DPB_OK;
}
