/*
 * fuse.c - nodes that are carried out together, and the gradient that enters such a group.
 *
 * Each group ends in a ReLU and is known by it. Forward, it is one primitive or loop that writes
 * the ReLU's activation; backward, the next reader of the gradient applies ReLU's mask on the way.
 * A node before the ReLU has no activation, and a gradient only where a convolution or a shortcut
 * takes it.
 */
#include "ops.h"

/* ------------------------------------------------------------------------------ its gradient */

/* The place of dz: a part that is the node's own, where `inspect` need not see it, or a new one. */
static dpb_status place_dz(struct program *p, const struct dpb_node *node,
                           struct gradient_plan *plan)
{
    const struct node_plan *of = cpu_plan(p, node);
    const struct dpb_part *own = dpb_group_own_part(of->group);
    if (!own || p->args.inspect)
        return cpu_tensor(p, of->activation->desc, &plan->dz);
    plan->dz = own->tensor;
    return DPB_OK;
}

dpb_status cpu_plan_gradient(struct program *p, const struct dpb_node *node, bool write,
                             struct gradient_plan *plan)
{
    struct node_plan *of = cpu_plan(p, node);
    const_dnnl_memory_desc_t dense = of->activation->desc;
    struct dpb_part *parts = of->group->parts;
    uint32_t n = of->group->n_parts;
    *plan = (struct gradient_plan){{NULL, NULL}, NULL};
    bool direct = n <= 2;
    for (uint32_t i = 0; i < n && direct; i++)
        direct = dnnl_memory_desc_equal(parts[i].tensor->desc, dense);
    if (!direct) {
        DPB_TRY(cpu_join_gradient(p, node));
        parts[0] = (struct dpb_part){of->gradient, false};
        n = of->group->n_parts = 1;
    }
    for (uint32_t i = 0; i < n; i++)
        plan->part[i] = parts[i].tensor;
    if (n == 1)
        of->gradient = parts[0].tensor;
    return write || n == 2 ? place_dz(p, node, plan) : DPB_OK;
}

void cpu_use_gradient(struct program *p, const struct gradient_plan *plan,
                      const struct tensor *output)
{
    cpu_also(p, USE_PART, plan->part[0]);
    cpu_also(p, USE_SECOND_PART, plan->part[1]);
    cpu_also(p, USE_OUTPUT, output);
    cpu_also(p, USE_DZ, plan->dz);
}

struct gradient cpu_gradient(const struct program *p, const struct step *step, enum mask mask)
{
    return (struct gradient){
        .part = {cpu_matrix(p, step->node, step->also[USE_PART]),
                 cpu_matrix(p, step->node, step->also[USE_SECOND_PART])},
        .mask = mask,
        .y = cpu_matrix(p, step->node, step->also[USE_OUTPUT]),
        .dz = cpu_matrix(p, step->node, step->also[USE_DZ]),
    };
}

/* ----------------------------------------------------------------------------- behind a product */

/* Sums the gradient's columns, and masks the gradient on the way if cpu_gradient() says so. */
static void sum_columns(const struct program *p, const struct step *step, enum mask mask)
{
    const struct gradient gradient = cpu_gradient(p, step, mask);
    const struct matrix none = {0};
    const struct norm by = {0};
    const size_t n = step->node->shape.c;
    double *sum = step->aux->data, *product = sum + n;
    cpu_column_sums(&gradient, &none, &by, product + n, sum, product);
    float *bias = step->to ? step->to->data : NULL;
    for (size_t c = 0; bias && c < n; c++)
        bias[c] = (float)sum[c];
}

static void mask_gradient(const struct program *p, const struct step *step)
{
    sum_columns(p, step, MASK_OUTPUT);
}

static void sum_gradient(const struct program *p, const struct step *step)
{
    sum_columns(p, step, MASK_NONE);
}

dpb_status cpu_masked_gradient(struct program *p, const struct dpb_node *relu)
{
    const struct dpb_node *node = cpu_plan(p, relu)->group->from;
    struct gradient_plan plan;
    struct tensor *sums, *bias;
    p->node = node;
    DPB_TRY(cpu_plan_gradient(p, relu, true, &plan));
    cpu_plan(p, node)->gradient = plan.dz;
    DPB_TRY(cpu_partials(p, node, &sums));
    DPB_TRY(cpu_core_vector(p, p->core.gradients, node->bias, &bias));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, bias ? "backward ReLU, bias" : "backward ReLU", mask_gradient,
                     NULL, bias, sums));
    cpu_use_gradient(p, &plan, cpu_plan(p, relu)->activation);
    return DPB_OK;
}

dpb_status cpu_bias_gradient(struct program *p, const struct dpb_node *node)
{
    struct tensor *sums, *bias;
    if (node->bias == DPB_NONE || cpu_plan(p, node)->group->into)
        return DPB_OK;
    DPB_TRY(cpu_partials(p, node, &sums));
    DPB_TRY(cpu_core_vector(p, p->core.gradients, node->bias, &bias));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "backward bias", sum_gradient, NULL, bias, sums));
    cpu_also(p, USE_PART, cpu_plan(p, node)->gradient);
    return DPB_OK;
}
