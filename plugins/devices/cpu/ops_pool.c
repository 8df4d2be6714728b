/*
 * ops_pool.c - max and mean pooling. oneDNN's maximum is the first in row order, as graph.h wants;
 * where it was is in the workspace.
 */
#include "cpu.h"

struct pool {
    dnnl_alg_kind_t kind;
    dnnl_dims_t strides, kernel, dilation, padding_before, padding_after;
};

static struct pool describe(const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    return (struct pool){
        .kind = node->op == DPB_OP_MAX_POOL ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding,
        .strides = {w->stride_h, w->stride_w},
        .kernel = {w->kernel_h, w->kernel_w},
        .padding_before = {w->pad_top, w->pad_left},
        .padding_after = {w->pad_bottom, w->pad_right},
    };
}

dpb_status cpu_pool_forward(struct program *p, const struct dpb_node *node)
{
    const struct pool pool = describe(node);
    const struct tensor *src = cpu_plan(p, cpu_input(p, node, 0))->activation;
    struct node_plan *plan = cpu_plan(p, node);
    struct tensor *dst;
    DPB_TRY(cpu_activation(p, node, &dst));
    dnnl_prop_kind_t kind = p->args.training ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_pooling_forward_primitive_desc_create(
        &created, p->engine, kind, pool.kind, src->desc, dst->desc, pool.strides, pool.kernel,
        pool.dilation, pool.padding_before, pool.padding_after, p->attributes);
    DPB_TRY(cpu_own(p, "forward", status, created, &plan->forward));
    DPB_TRY(cpu_workspace(p, plan->forward, &plan->workspace));
    return cpu_step(
        p, WHEN_ALWAYS, "forward", plan->forward,
        ARGS({DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}, {DNNL_ARG_WORKSPACE, plan->workspace}));
}

dpb_status cpu_pool_backward(struct program *p, const struct dpb_node *node)
{
    const struct pool pool = describe(node);
    const struct node_plan *plan = cpu_plan(p, node);
    struct tensor *diff_src;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src)
        return DPB_OK;
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_pooling_backward_primitive_desc_create(
        &created, p->engine, pool.kind, diff_src->desc, plan->activation->desc, pool.strides,
        pool.kernel, pool.dilation, pool.padding_before, pool.padding_after, plan->forward,
        p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, "backward", status, created, &desc));
    return cpu_step(p, WHEN_ALWAYS, "backward", desc,
                    ARGS({DNNL_ARG_DIFF_DST, plan->gradient}, {DNNL_ARG_WORKSPACE, plan->workspace},
                         {DNNL_ARG_DIFF_SRC, diff_src}));
}
