/*
 * ops_dense.c - dense layers by oneDNN's inner product.
 *
 * Core's weights are OI over the CHW-flattened input, which is OIHW with the input's height and
 * width as the kernel's: so described, oneDNN reads an nhwc input without a copy.
 */
#include "cpu.h"

struct dense {
    const_dnnl_memory_desc_t src, dst;
    const_dnnl_memory_desc_t canonical; /* core's weights: fp32, oihw or oi */
    const_dnnl_memory_desc_t bias;      /* NULL: none */
    int n_dims;                         /* of src and weights: 4, or 2 where the input is flat */
    dnnl_dims_t weight_dims;
};

static dpb_status describe(struct program *p, const struct dpb_node *node, struct dense *dense)
{
    const struct dpb_node *input = cpu_input(p, node, 0);
    const struct dpb_shape in = input->shape;
    bool flat = in.h == 1 && in.w == 1;
    *dense =
        (struct dense){.n_dims = flat ? 2 : 4, .weight_dims = {node->shape.c, in.c, in.h, in.w}};
    if (flat)
        DPB_TRY(cpu_matrix_desc(p, in.c, p->type, &dense->src));
    else
        dense->src = cpu_plan(p, input)->activation->desc;
    if (node->bias != DPB_NONE)
        DPB_TRY(cpu_desc(p, 1, dense->weight_dims, dnnl_f32, dnnl_a, &dense->bias));
    DPB_TRY(cpu_matrix_desc(p, node->shape.c, p->type, &dense->dst));
    return cpu_desc(p, dense->n_dims, dense->weight_dims, dnnl_f32, flat ? dnnl_oi : dnnl_oihw,
                    &dense->canonical);
}

dpb_status cpu_dense_forward(struct program *p, const struct dpb_node *node)
{
    struct dense d;
    const_dnnl_memory_desc_t weights_any;
    DPB_TRY(describe(p, node, &d));
    DPB_TRY(cpu_desc(p, d.n_dims, d.weight_dims, p->type, dnnl_format_tag_any, &weights_any));
    dnnl_prop_kind_t kind = p->args.training ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_inner_product_forward_primitive_desc_create(
        &created, p->engine, kind, d.src, weights_any, d.bias, d.dst,
        cpu_plan(p, node)->into ? p->with_relu : p->attributes);
    struct node_plan *plan = cpu_plan(p, node);
    DPB_TRY(cpu_own(p, "forward", status, created, &plan->forward));

    struct tensor *src, *bias, *activation, *dst;
    DPB_TRY(cpu_packed_weights(
        p, node->weight, d.canonical,
        dnnl_primitive_desc_query_md(plan->forward, dnnl_query_weights_md, 0), &plan->weights));
    DPB_TRY(cpu_core_vector(p, p->core.weights, node->bias, &bias));
    DPB_TRY(cpu_activation(p, cpu_result(p, node), &activation));
    DPB_TRY(cpu_view(p, activation, d.dst, &dst));
    DPB_TRY(cpu_view(p, cpu_plan(p, cpu_input(p, node, 0))->activation, d.src, &src));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, cpu_plan(p, node)->into ? "forward, ReLU" : "forward",
                     plan->forward,
                     ARGS({DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, plan->weights},
                          {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, dst})));
    cpu_count_macs(p, node);
    return DPB_OK;
}

static dpb_status backward_weights(struct program *p, const struct dpb_node *node,
                                   const struct dense *d, const struct tensor *diff_dst)
{
    const char *what = "backward weights";
    const struct node_plan *plan = cpu_plan(p, node);
    const_dnnl_memory_desc_t diff_any;
    DPB_TRY(cpu_desc(p, d->n_dims, d->weight_dims, dnnl_f32, dnnl_format_tag_any, &diff_any));
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_inner_product_backward_weights_primitive_desc_create(
        &created, p->engine, d->src, diff_any, d->bias, d->dst, plan->forward, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, what, status, created, &desc));

    struct tensor *src, *diff, *bias;
    DPB_TRY(cpu_weight_gradient(p, node->weight, d->canonical,
                                dnnl_primitive_desc_query_md(desc, dnnl_query_diff_weights_md, 0),
                                &diff));
    DPB_TRY(cpu_core_vector(p, p->core.gradients, node->bias, &bias));
    DPB_TRY(cpu_view(p, cpu_plan(p, cpu_input(p, node, 0))->activation, d->src, &src));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, what, desc,
                     ARGS({DNNL_ARG_SRC, src}, {DNNL_ARG_DIFF_DST, diff_dst},
                          {DNNL_ARG_DIFF_WEIGHTS, diff}, {DNNL_ARG_DIFF_BIAS, bias})));
    cpu_count_macs(p, node);
    return cpu_unpack_gradient(p, node->weight, d->canonical, diff);
}

dpb_status cpu_dense_backward(struct program *p, const struct dpb_node *node)
{
    const char *what = "backward data";
    const struct node_plan *plan = cpu_plan(p, node);
    struct dense d;
    struct tensor *diff_dst, *part, *diff_src, *weights;
    DPB_TRY(describe(p, node, &d));
    DPB_TRY(cpu_view(p, plan->gradient, d.dst, &diff_dst));
    DPB_TRY(backward_weights(p, node, &d, diff_dst));
    DPB_TRY(cpu_input_gradient(p, node, 0, &part));
    if (!part)
        return DPB_OK;

    const_dnnl_memory_desc_t weights_any;
    DPB_TRY(cpu_desc(p, d.n_dims, d.weight_dims, p->type, dnnl_format_tag_any, &weights_any));
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_inner_product_backward_data_primitive_desc_create(
        &created, p->engine, d.src, weights_any, d.dst, plan->forward, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, what, status, created, &desc));
    DPB_TRY(cpu_packed_weights(p, node->weight, d.canonical,
                               dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0),
                               &weights));
    DPB_TRY(cpu_view(p, part, d.src, &diff_src));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, what, desc,
                     ARGS({DNNL_ARG_DIFF_DST, diff_dst}, {DNNL_ARG_WEIGHTS, weights},
                          {DNNL_ARG_DIFF_SRC, diff_src})));
    cpu_count_macs(p, node);
    return DPB_OK;
}
