/*
 * ops_lrn.c - local response normalisation, in fp32 whatever the precision: oneDNN 3.2's bf16
 * backward on AVX-512 gives wrong values for more than one block of 16 channels in nhwc.
 */
#include "cpu.h"

/* oneDNN divides alpha by the size of the window; graph.h does not. */
static dnnl_dim_t lrn_size(const struct dpb_node *node)
{
    return 2 * (dnnl_dim_t)node->lrn_radius + 1;
}

static float lrn_alpha(const struct dpb_node *node)
{
    return (float)(node->lrn_alpha * (double)lrn_size(node));
}

dpb_status cpu_lrn_forward(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cpu_plan(p, node);
    struct tensor *activation, *dst;
    DPB_TRY(cpu_activation(p, node, &activation));
    DPB_TRY(cpu_read_fp32(p, cpu_plan(p, cpu_input(p, node, 0))->activation, node->shape,
                          &plan->input_fp32));
    DPB_TRY(cpu_write_fp32(p, activation, node->shape, &dst));
    dnnl_prop_kind_t kind = p->args.training ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_lrn_forward_primitive_desc_create(
        &created, p->engine, kind, dnnl_lrn_across_channels, dst->desc, dst->desc, lrn_size(node),
        lrn_alpha(node), (float)node->lrn_beta, (float)node->lrn_k, p->attributes);
    DPB_TRY(cpu_own(p, "forward", status, created, &plan->forward));
    DPB_TRY(cpu_workspace(p, plan->forward, &plan->workspace));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, "forward", plan->forward,
                     ARGS({DNNL_ARG_SRC, plan->input_fp32}, {DNNL_ARG_DST, dst},
                          {DNNL_ARG_WORKSPACE, plan->workspace})));
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
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_lrn_backward_primitive_desc_create(
        &created, p->engine, dnnl_lrn_across_channels, diff_src->desc, diff_src->desc,
        diff_src->desc, lrn_size(node), lrn_alpha(node), (float)node->lrn_beta, (float)node->lrn_k,
        plan->forward, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, "backward", status, created, &desc));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, "backward", desc,
                     ARGS({DNNL_ARG_SRC, plan->input_fp32}, {DNNL_ARG_DIFF_DST, diff_dst},
                          {DNNL_ARG_WORKSPACE, plan->workspace}, {DNNL_ARG_DIFF_SRC, diff_src})));
    return cpu_round_fp32(p, diff_src, part);
}
