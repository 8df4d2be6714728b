/*
 * ops_pool.c - max and mean pooling. oneDNN's maximum is the first in row order, as graph.h wants;
 * where it was is in the workspace.
 */
#include "ops.h"

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

/* Then backward adds gradients up, which oneDNN does in the type of its output: too coarse in bf16.
 */
static bool windows_overlap(const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    return (node->shape.h > 1 && w->stride_h < w->kernel_h) ||
           (node->shape.w > 1 && w->stride_w < w->kernel_w);
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
    struct tensor *part, *diff_dst = plan->gradient, *diff_src;
    DPB_TRY(cpu_input_gradient(p, node, 0, &part));
    if (!part)
        return DPB_OK;
    diff_src = part;
    if (windows_overlap(node)) {
        DPB_TRY(cpu_read_fp32(p, plan->gradient, node->shape, &diff_dst));
        DPB_TRY(cpu_write_fp32(p, part, cpu_input(p, node, 0)->shape, &diff_src));
    }
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_pooling_backward_primitive_desc_create(
        &created, p->engine, pool.kind, diff_src->desc, diff_dst->desc, pool.strides, pool.kernel,
        pool.dilation, pool.padding_before, pool.padding_after, plan->forward, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, "backward", status, created, &desc));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, "backward", desc,
                     ARGS({DNNL_ARG_DIFF_DST, diff_dst}, {DNNL_ARG_WORKSPACE, plan->workspace},
                          {DNNL_ARG_DIFF_SRC, diff_src})));
    return cpu_round_fp32(p, diff_src, part);
}
