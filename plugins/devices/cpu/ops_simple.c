/*
 * ops_simple.c - relu, gelu, add, concat: forward is one primitive; backward takes existing tensors
 * where they are enough.
 */
#include <stdlib.h>

#include "ops.h"

/* ----------------------------------------------------------------------------------- relu, gelu */

static dpb_status eltwise_forward(struct program *p, const struct dpb_node *node,
                                  dnnl_alg_kind_t function)
{
    struct node_plan *plan = cpu_plan(p, node);
    struct tensor *dst;
    DPB_TRY(cpu_activation(p, node, &dst));
    dnnl_prop_kind_t kind = p->args.training ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_eltwise_forward_primitive_desc_create(
        &created, p->engine, kind, function, dst->desc, dst->desc, 0.0f, 0.0f, p->attributes);
    DPB_TRY(cpu_own(p, "forward", status, created, &plan->forward));
    return cpu_step(
        p, WHEN_ALWAYS, "forward", plan->forward,
        ARGS({DNNL_ARG_SRC, cpu_plan(p, cpu_input(p, node, 0))->activation}, {DNNL_ARG_DST, dst}));
}

/* `known` is the node's input or output, as argument `name`: what the derivative is found from. */
static dpb_status eltwise_backward(struct program *p, const struct dpb_node *node,
                                   dnnl_alg_kind_t function, int name, const struct tensor *known)
{
    const struct node_plan *plan = cpu_plan(p, node);
    struct tensor *diff_src;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src)
        return DPB_OK;
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_eltwise_backward_primitive_desc_create(
        &created, p->engine, function, diff_src->desc, diff_src->desc, diff_src->desc, 0.0f, 0.0f,
        plan->forward, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, "backward", status, created, &desc));
    return cpu_step(
        p, WHEN_ALWAYS, "backward", desc,
        ARGS({name, known}, {DNNL_ARG_DIFF_DST, plan->gradient}, {DNNL_ARG_DIFF_SRC, diff_src}));
}

dpb_status cpu_relu_forward(struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *from = cpu_plan(p, node)->group->from;
    if (from)
        return from->op == DPB_OP_BATCH_NORM ? cpu_fused_norm_forward(p, node) : DPB_OK;
    return eltwise_forward(p, node, dnnl_eltwise_relu_use_dst_for_bwd);
}

dpb_status cpu_relu_backward(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cpu_plan(p, node);
    if (plan->group->from)
        return plan->group->from->op == DPB_OP_BATCH_NORM ? cpu_fused_norm_backward(p, node)
                                                          : cpu_masked_gradient(p, node);
    return eltwise_backward(p, node, dnnl_eltwise_relu_use_dst_for_bwd, DNNL_ARG_DST,
                            plan->activation);
}

static dnnl_alg_kind_t gelu_of(const struct dpb_node *node)
{
    return node->tanh ? dnnl_eltwise_gelu_tanh : dnnl_eltwise_gelu_erf;
}

dpb_status cpu_gelu_forward(struct program *p, const struct dpb_node *node)
{
    return eltwise_forward(p, node, gelu_of(node));
}

dpb_status cpu_gelu_backward(struct program *p, const struct dpb_node *node)
{
    return eltwise_backward(p, node, gelu_of(node), DNNL_ARG_SRC,
                            cpu_plan(p, cpu_input(p, node, 0))->activation);
}

/* ------------------------------------------------------------------------------------------ add */

dpb_status cpu_add_forward(struct program *p, const struct dpb_node *node)
{
    struct tensor *dst;
    if (cpu_plan(p, node)->group->into)
        return DPB_OK;
    DPB_TRY(cpu_activation(p, node, &dst));
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_binary_primitive_desc_create(
        &created, p->engine, dnnl_binary_add, dst->desc, dst->desc, dst->desc, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, "forward", status, created, &desc));
    return cpu_step(p, WHEN_ALWAYS, "forward", desc,
                    ARGS({DNNL_ARG_SRC_0, cpu_plan(p, cpu_input(p, node, 0))->activation},
                         {DNNL_ARG_SRC_1, cpu_plan(p, cpu_input(p, node, 1))->activation},
                         {DNNL_ARG_DST, dst}));
}

dpb_status cpu_add_backward(struct program *p, const struct dpb_node *node)
{
    if (cpu_plan(p, node)->group->into)
        return DPB_OK;
    cpu_share_input_gradient(p, node, 0, cpu_plan(p, node)->gradient);
    cpu_share_input_gradient(p, node, 1, cpu_plan(p, node)->gradient);
    return DPB_OK;
}

/* --------------------------------------------------------------------------------------- concat */

dpb_status cpu_concat_forward(struct program *p, const struct dpb_node *node)
{
    enum { CHANNELS = 1 /* the dimension */ };
    const_dnnl_memory_desc_t sources[DPB_MAX_INPUTS];
    struct arg args[DPB_MAX_INPUTS + 2] = {{0, NULL}};
    struct tensor *dst;
    DPB_TRY(cpu_activation(p, node, &dst));
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct tensor *src = cpu_plan(p, cpu_input(p, node, i))->activation;
        sources[i] = src->desc;
        args[i] = (struct arg){DNNL_ARG_MULTIPLE_SRC + (int)i, src};
    }
    args[node->n_inputs] = (struct arg){DNNL_ARG_DST, dst};
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_concat_primitive_desc_create(
        &created, p->engine, dst->desc, (int)node->n_inputs, CHANNELS, sources, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, "forward", status, created, &desc));
    return cpu_step(p, WHEN_ALWAYS, "forward", desc, args);
}

/* The part of each input is a range of channels of the existing gradient: no copy. */
dpb_status cpu_concat_backward(struct program *p, const struct dpb_node *node)
{
    const struct tensor *whole = cpu_plan(p, node)->gradient;
    dnnl_dims_t offsets = {0};
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct dpb_shape shape = cpu_input(p, node, i)->shape;
        const dnnl_dims_t dims = {p->args.batch, shape.c, shape.h, shape.w};
        const_dnnl_memory_desc_t desc;
        struct tensor *part;
        DPB_TRY(cpu_part_desc(p, whole->desc, dims, offsets, &desc));
        DPB_TRY(cpu_view(p, whole, desc, &part));
        cpu_share_input_gradient(p, node, i, part);
        offsets[1] += shape.c;
    }
    return DPB_OK;
}
