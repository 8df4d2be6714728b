/*
 * ops_norm.c - batch-norm: training normalises by the batch's mean and biased variance, and hands
 * the mean and the unbiased variance to core; evaluation normalises by core's running averages. An
 * addition and a ReLU that follow are part of the same kernels (lib/device/groups.h).
 */
#include "ops.h"
#include "plan.h"

static const struct tensor *input_of(const struct program *p, const struct dpb_node *node)
{
    return cuda_plan(p, cuda_input(p, node, 0))->activation;
}

static float *sums_of(const struct program *p, const struct dpb_node *node)
{
    return (float *)cuda_plan(p, node)->workspace->data + 2 * (size_t)node->shape.c;
}

static float *state_of(const struct program *p, const struct mirror *mirror, uint32_t index)
{
    return (float *)mirror->tensor->data + p->graph->states[index].offset;
}

/* A batch-norm's plan by its node, of the node's own steps or of those of its group. */
static dpb_status run_batch_moments(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct grid grid = cuda_grid(p, node->shape);
    const struct moments to = {.by = cuda_norm_by(p, node),
                               .rows = (double)cuda_grid_pixels(&grid),
                               .mean = state_of(p, &p->statistics, node->mean),
                               .variance = state_of(p, &p->statistics, node->variance)};
    cuda_batch_moments(p->device->stream, p->type, step->t[FROM]->data, grid, cuda_sum_room(p),
                       &to);
    return DPB_OK;
}

static dpb_status run_running_moments(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct norm_by by = cuda_norm_by(p, node);
    cuda_running_moments(p->device->stream, state_of(p, &p->state, node->mean),
                         state_of(p, &p->state, node->variance), node->shape.c, &by);
    return DPB_OK;
}

/* Whether a batch-norm's kernel also normalises the node `added` that is added behind it. The
 * node's own result is then stored nowhere. */
static bool is_joined(const struct program *p, const struct dpb_node *added)
{
    const struct node_plan *plan = cuda_plan(p, added);
    if (added->op != DPB_OP_BATCH_NORM || plan->group->into || plan->group->n_consumers != 1)
        return false;
    for (uint32_t i = cuda_index(p, added) + 1; i < p->graph->n_nodes; i++) {
        if (p->nodes[i].group->residual == added)
            return true;
    }
    return false;
}

const struct dpb_node *cuda_other_side(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *relu = cuda_plan(p, node)->group->into;
    const struct dpb_node *residual = relu ? cuda_plan(p, relu)->group->residual : NULL;
    return residual && !cuda_plan(p, residual)->activation ? residual : NULL;
}

/* A window of WINDOW_MAX elements has no place left that says that nothing passes. Inspection shows
 * the ReLU's result. Behind an addition a shortcut may read it, too. In NCHW the neighbours of a
 * pack lie in different windows. */
const struct dpb_node *cuda_pooled_norm(const struct program *p, const struct dpb_node *pool)
{
    const uint32_t elements = pool->window.kernel_h * pool->window.kernel_w;
    const struct dpb_group *relu = cuda_plan(p, cuda_input(p, pool, 0))->group;
    const bool possible = !p->args.inspect && p->device->options.layout == LAYOUT_NHWC &&
                          elements < WINDOW_MAX && relu->from && !relu->residual &&
                          relu->n_consumers == 1;
    return possible && relu->from->op == DPB_OP_BATCH_NORM ? relu->from : NULL;
}

/* The pool whose cuda_pooled_norm is this batch-norm, or NULL. */
static const struct dpb_node *pool_of(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *relu = cuda_plan(p, node)->group->into;
    const struct dpb_node *reader = relu ? cuda_first_reader(p, relu) : NULL;
    const bool pools = reader && reader->op == DPB_OP_MAX_POOL && cuda_pooled_norm(p, reader);
    return pools ? reader : NULL;
}

static dpb_status run_normalise(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node, *other = cuda_other_side(p, node);
    const struct norm_by by = cuda_norm_by(p, node),
                         by_other = cuda_norm_by(p, other ? other : node);
    const struct norm_added added = {.values = step->t[AUX] ? step->t[AUX]->data : NULL,
                                     .norm = other ? &by_other : NULL};
    cuda_normalise(p->device->stream, p->type, step->t[FROM]->data, &by, &added,
                   cuda_plan(p, node)->group->into != NULL, step->t[TO]->data,
                   step->t[FIFTH] ? step->t[FIFTH]->data : NULL, cuda_grid(p, node->shape));
    return DPB_OK;
}

static dpb_status plan_mask(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cuda_plan(p, node);
    const struct grid grid = cuda_grid(p, node->shape);
    if (!p->args.training || !plan->group->into)
        return DPB_OK;
    return cuda_tensor(p, cuda_mask_bytes(p->type, &grid), &plan->mask);
}

static dpb_status plan_moments(struct program *p, const struct dpb_node *node)
{
    const struct tensor *x = input_of(p, node);
    struct node_plan *plan = cuda_plan(p, node);
    p->node = node;
    DPB_TRY(cuda_tensor(p, 4 * (size_t)node->shape.c * sizeof(float), &plan->workspace));
    cuda_need_sum_room(p, node);
    if (p->args.training)
        DPB_TRY(cuda_step(p, WHEN_TRAINING, "moments of the batch", run_batch_moments,
                          TENSORS(x, NULL, NULL, plan->workspace)));
    return cuda_step(p, WHEN_EVALUATION, "running averages", run_running_moments,
                     TENSORS(NULL, NULL, NULL, plan->workspace));
}

/* The step appended last uses these tensors of a side (NULL: none) beside x; bias: the bias or its
 * gradient, too. */
static void use_side(struct program *p, const struct dpb_node *node, bool bias)
{
    if (!node)
        return;
    cuda_use(p, cuda_plan(p, node)->workspace);
    cuda_use_core(p, node->weight);
    cuda_use_core(p, bias ? node->bias : DPB_NONE);
}

/* A batch-norm alone, or with the addition and the ReLU that it was fused with. */
static dpb_status plan_forward(struct program *p, const struct dpb_node *node,
                               const struct dpb_node *residual)
{
    const struct tensor *x = input_of(p, node), *added = NULL;
    const struct dpb_node *other = cuda_other_side(p, node);
    struct node_plan *plan = cuda_plan(p, node);
    struct tensor *y;
    DPB_TRY(plan_moments(p, node));
    DPB_TRY(cuda_activation(p, cuda_result(p, node), &y));
    DPB_TRY(plan_mask(p, node));
    if (residual)
        added = other ? input_of(p, other) : cuda_plan(p, residual)->activation;
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, added ? "forward, add, ReLU" : "forward", run_normalise,
                      TENSORS(x, y, added, NULL, plan->mask)));
    use_side(p, node, true);
    use_side(p, other, true);
    return DPB_OK;
}

/* slots: FROM x, TO dz (NULL: not written) or dx, AUX dy, FOURTH the mask (NULL: no ReLU) or the
 * places of a pool's maxima, FIFTH dx of the other side. */
static struct norm_gradient gradient_of(const struct program *p, const struct step *step)
{
    const struct dpb_node *pool = pool_of(p, step->node);
    if (pool)
        return (struct norm_gradient){
            .dy = step->t[AUX]->data, .pool = cuda_window(p, pool), .where = step->t[FOURTH]->data};
    return (struct norm_gradient){.dy = step->t[AUX]->data,
                                  .mask = step->t[FOURTH] ? step->t[FOURTH]->data : NULL};
}

static struct norm_side side_of(const struct program *p, const struct dpb_node *node)
{
    return (struct norm_side){.x = input_of(p, node)->data,
                              .by = cuda_norm_by(p, node),
                              .sums = sums_of(p, node),
                              .dgamma = cuda_gradient(p, node->weight),
                              .dbeta = cuda_gradient(p, node->bias)};
}

static dpb_status run_norm_sums(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node, *other = cuda_other_side(p, node);
    const struct norm_side sides[] = {side_of(p, node), side_of(p, other ? other : node)};
    struct norm_gradient gradient = gradient_of(p, step);
    gradient.dz = step->t[TO] ? step->t[TO]->data : NULL;
    const struct dpb_group *end = cuda_plan(p, cuda_result(p, node))->group;
    if (cuda_joins_in_sums(end))
        gradient.more = end->parts[1].tensor->data;
    cuda_norm_sums(p->device->stream, p->type, &gradient, sides, other ? 2 : 1,
                   cuda_grid(p, node->shape), cuda_sum_room(p));
    return DPB_OK;
}

static dpb_status run_norm_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node,
                          *other = step->t[FIFTH] ? cuda_other_side(p, node) : NULL;
    const struct norm_gradient gradient = gradient_of(p, step);
    struct norm_side sides[] = {side_of(p, node), side_of(p, other ? other : node)};
    sides[0].dx = step->t[TO]->data;
    sides[1].dx = other ? step->t[FIFTH]->data : NULL;
    cuda_norm_backward(p->device->stream, p->type, &gradient, sides, other ? 2 : 1,
                       cuda_grid(p, node->shape));
    return DPB_OK;
}

/* The gradients by the inputs, of one side or two; dz: masked already where mask is NULL. */
static dpb_status plan_input_gradients(struct program *p, const struct dpb_node *node,
                                       const struct tensor *dz, const struct tensor *mask)
{
    const struct dpb_node *other = cuda_other_side(p, node);
    struct tensor *dx, *dx_other = NULL;
    DPB_TRY(cuda_input_gradient(p, node, 0, &dx));
    if (other)
        DPB_TRY(cuda_input_gradient(p, other, 0, &dx_other));
    if (!dx && dx_other) { /* a batch-norm of the samples on one side */
        p->node = node = other;
        dx = dx_other;
        dx_other = NULL;
    }
    if (!dx)
        return DPB_OK;
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward", run_norm_backward,
                      TENSORS(input_of(p, node), dx, dz, mask, dx_other)));
    use_side(p, node, false);
    if (!dx_other)
        return DPB_OK;
    cuda_use(p, input_of(p, other));
    use_side(p, other, false);
    return DPB_OK;
}

/* `end`: the node itself, or the ReLU whose gradient it is that comes in. */
static dpb_status plan_backward(struct program *p, const struct dpb_node *node,
                                const struct dpb_node *end)
{
    const struct dpb_group *group = cuda_plan(p, end)->group;
    const bool joins = cuda_joins_in_sums(group);
    const struct dpb_node *other = cuda_other_side(p, node), *pool = pool_of(p, node);
    const struct tensor *dy =
        joins ? group->parts[0].tensor : cuda_plan(p, pool ? pool : end)->gradient;
    struct node_plan *plan = cuda_plan(p, node);
    const struct tensor *mask = pool ? cuda_plan(p, pool)->workspace : plan->mask;
    struct tensor *dz = NULL;
    p->node = node;
    if (group->residual) {
        DPB_TRY(cuda_over_gradient(p, end, &dz));
        plan->gradient = dz;
    }
    cuda_need_sum_room(p, node);
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward sums", run_norm_sums,
                      TENSORS(input_of(p, node), dz, dy, mask)));
    cuda_use(p, joins ? group->parts[1].tensor : NULL);
    use_side(p, node, true);
    use_side(p, other, true);
    cuda_use(p, other ? input_of(p, other) : NULL);
    return plan_input_gradients(p, node, dz ? dz : dy, dz ? NULL : mask);
}

dpb_status cuda_norm_forward(struct program *p, const struct dpb_node *node)
{
    if (cuda_plan(p, node)->group->into)
        return DPB_OK;
    return is_joined(p, node) ? plan_moments(p, node) : plan_forward(p, node, NULL);
}

/* One without a result of its own is part of a group. */
dpb_status cuda_norm_backward_plan(struct program *p, const struct dpb_node *node)
{
    return cuda_plan(p, node)->activation ? plan_backward(p, node, node) : DPB_OK;
}

dpb_status cuda_fused_norm_forward(struct program *p, const struct dpb_node *relu)
{
    const struct dpb_group *group = cuda_plan(p, relu)->group;
    if (pool_of(p, group->from))
        return plan_moments(p, group->from);
    return plan_forward(p, group->from, group->residual);
}

dpb_status cuda_fused_norm_backward(struct program *p, const struct dpb_node *relu)
{
    const struct dpb_group *group = cuda_plan(p, relu)->group;
    DPB_TRY(plan_backward(p, group->from, relu));
    if (!group->residual)
        return DPB_OK;
    const struct dpb_node *add = cuda_input(p, relu, 0);
    struct tensor *dz = cuda_plan(p, group->from)->gradient;
    cuda_plan(p, add)->gradient = dz;
    cuda_share_input_gradient(p, add, cuda_input(p, add, 0) == group->residual ? 0 : 1, dz);
    return DPB_OK;
}
