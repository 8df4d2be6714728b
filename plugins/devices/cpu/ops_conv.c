/*
 * ops_conv.c - convolution: weights are repacked from core's OIHW into the formats that oneDNN
 * picks for forward and for backward data; their gradient is asked for in fp32 whatever the
 * precision. With several groups, oneDNN's weights have five dimensions and lie as core's do.
 */
#include "ops.h"

/* Descriptions that the three primitives of a convolution share. */
struct conv {
    const_dnnl_memory_desc_t src, dst;  /* nhwc, also of the gradients */
    const_dnnl_memory_desc_t canonical; /* core's weights: fp32, oihw; goihw of groups */
    const_dnnl_memory_desc_t bias;      /* NULL: none; its gradient is no matter of oneDNN's */
    int n_weight_dims;
    dnnl_dims_t weight_dims, strides, dilates, padding_before, padding_after;
};

static void describe_weights(const struct dpb_node *node, struct dpb_shape in, struct conv *conv)
{
    const dnnl_dim_t groups = node->groups;
    dnnl_dim_t *dims = conv->weight_dims;
    if (groups > 1)
        *dims++ = groups;
    *dims++ = node->shape.c / groups;
    *dims++ = in.c / groups;
    *dims++ = node->window.kernel_h;
    *dims++ = node->window.kernel_w;
    conv->n_weight_dims = (int)(dims - conv->weight_dims);
}

static dpb_status weights_desc(struct program *p, const struct conv *conv, dnnl_data_type_t type,
                               dnnl_format_tag_t tag, const_dnnl_memory_desc_t *desc)
{
    return cpu_desc(p, conv->n_weight_dims, conv->weight_dims, type, tag, desc);
}

static dpb_status describe(struct program *p, const struct dpb_node *node, struct conv *conv)
{
    const struct dpb_window *w = &node->window;
    const struct dpb_node *input = cpu_input(p, node, 0);
    *conv = (struct conv){
        .src = cpu_plan(p, input)->activation->desc,
        .strides = {w->stride_h, w->stride_w},
        .padding_before = {w->pad_top, w->pad_left},
        .padding_after = {w->pad_bottom, w->pad_right},
    };
    const dnnl_dims_t channels = {node->shape.c};
    describe_weights(node, input->shape, conv);
    if (node->bias != DPB_NONE)
        DPB_TRY(cpu_desc(p, 1, channels, dnnl_f32, dnnl_a, &conv->bias));
    DPB_TRY(cpu_activation_desc(p, node->shape, p->type, &conv->dst));
    return weights_desc(p, conv, dnnl_f32, node->groups > 1 ? dnnl_goihw : dnnl_oihw,
                        &conv->canonical);
}

dpb_status cpu_conv_forward(struct program *p, const struct dpb_node *node)
{
    struct conv c;
    if (cpu_multiplies_positions(p, node))
        return cpu_dense_forward(p, node);
    const_dnnl_memory_desc_t weights_any;
    DPB_TRY(describe(p, node, &c));
    DPB_TRY(weights_desc(p, &c, p->type, dnnl_format_tag_any, &weights_any));
    dnnl_prop_kind_t kind = p->args.training ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_convolution_forward_primitive_desc_create(
        &created, p->engine, kind, dnnl_convolution_direct, c.src, weights_any, c.bias, c.dst,
        c.strides, c.dilates, c.padding_before, c.padding_after,
        cpu_plan(p, node)->group->into ? p->with_relu : p->attributes);
    struct node_plan *plan = cpu_plan(p, node);
    DPB_TRY(cpu_own(p, "forward", status, created, &plan->forward));

    struct tensor *bias, *dst;
    DPB_TRY(cpu_packed_weights(
        p, node->weight, c.canonical,
        dnnl_primitive_desc_query_md(plan->forward, dnnl_query_weights_md, 0), &plan->weights));
    DPB_TRY(cpu_core_vector(p, p->core.weights, node->bias, &bias));
    DPB_TRY(cpu_activation(p, cpu_result(p, node), &dst));
    DPB_TRY(cpu_step(
        p, WHEN_ALWAYS, cpu_plan(p, node)->group->into ? "forward, ReLU" : "forward", plan->forward,
        ARGS({DNNL_ARG_SRC, cpu_plan(p, cpu_input(p, node, 0))->activation},
             {DNNL_ARG_WEIGHTS, plan->weights}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, dst})));
    cpu_set_flops(p, node);
    return DPB_OK;
}

/* A 1x1 convolution of one group that takes every pixel is a product of matrices. */
static bool is_matrix_product(const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    return node->groups == 1 && w->kernel_h == 1 && w->kernel_w == 1 && w->stride_h == 1 &&
           w->stride_w == 1 && !w->pad_top && !w->pad_bottom && !w->pad_left && !w->pad_right;
}

/* dW = dY' X over all pixels of the batch, straight into core's arena. On 14x14 and 7x7 pixels it
 * takes half the time of oneDNN's convolution, and nowhere clearly more; and its sums over pixels
 * are made in pieces, so that their error does not grow with the batch. */
static dpb_status multiply_weights(struct program *p, const struct dpb_node *node)
{
    const char *what = "backward weights";
    const struct node_plan *plan = cpu_plan(p, node);
    struct tensor *input = cpu_plan(p, cpu_input(p, node, 0))->activation;
    const dnnl_dim_t pixels = (dnnl_dim_t)p->args.batch * node->shape.h * node->shape.w;
    const dnnl_dim_t from = cpu_input(p, node, 0)->shape.c, to = node->shape.c;
    const dnnl_dims_t dy_dims = {to, pixels}, x_dims = {pixels, from}, dw_dims = {to, from};
    const dnnl_dims_t transposed = {1, to}, by_pixel = {from, 1};
    const_dnnl_memory_desc_t dy_desc, x_desc, dw_desc;
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_strided_desc(p, 2, dy_dims, transposed, p->type, &dy_desc));
    DPB_TRY(cpu_strided_desc(p, 2, x_dims, by_pixel, p->type, &x_desc));
    DPB_TRY(cpu_strided_desc(p, 2, dw_dims, by_pixel, dnnl_f32, &dw_desc));
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_matmul_primitive_desc_create(&created, p->engine, dy_desc, x_desc,
                                                             NULL, dw_desc, p->attributes);
    DPB_TRY(cpu_own(p, what, status, created, &desc));
    struct tensor *dy, *x, *dw;
    DPB_TRY(cpu_view(p, plan->gradient, dy_desc, &dy));
    DPB_TRY(cpu_view(p, input, x_desc, &x));
    DPB_TRY(cpu_core_tensor(p, p->core.gradients, p->graph->tensors[node->weight].offset, dw_desc,
                            &dw));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, what, desc,
                     ARGS({DNNL_ARG_SRC, dy}, {DNNL_ARG_WEIGHTS, x}, {DNNL_ARG_DST, dw})));
    cpu_set_flops(p, node);
    return DPB_OK;
}

/* In bf16, oneDNN 3.2 lays out a row by strides, in its scratchpad. Of an image that is no wider
 * than the window it reads columns that it has not written. */
static bool reads_unwritten(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    return p->type == dnnl_bf16 && w->stride_w > 1 && cpu_input(p, node, 0)->shape.w <= w->kernel_w;
}

static void write_zeros(const struct program *p, const struct step *step)
{
    (void)p;
    memset(step->to->data, 0, dnnl_memory_desc_get_size(step->to->desc));
}

/* The scratchpad of the step that comes next. */
static dpb_status clear_scratchpad(struct program *p, const_dnnl_primitive_desc_t desc)
{
    const_dnnl_memory_desc_t wanted =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    struct tensor *scratch;
    if (!wanted || dnnl_memory_desc_get_size(wanted) == 0)
        return DPB_OK;
    DPB_TRY(cpu_view(p, &p->scratch, wanted, &scratch));
    return cpu_loop(p, WHEN_ALWAYS, "zeros to work on", write_zeros, NULL, scratch, NULL);
}

static dpb_status convolve_weights(struct program *p, const struct dpb_node *node,
                                   const struct conv *c)
{
    const char *what = "backward weights";
    const struct node_plan *plan = cpu_plan(p, node);
    const_dnnl_memory_desc_t diff_any;
    DPB_TRY(weights_desc(p, c, dnnl_f32, dnnl_format_tag_any, &diff_any));
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_convolution_backward_weights_primitive_desc_create(
        &created, p->engine, dnnl_convolution_direct, c->src, diff_any, NULL, c->dst, c->strides,
        c->dilates, c->padding_before, c->padding_after, plan->forward, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, what, status, created, &desc));

    struct tensor *diff;
    DPB_TRY(cpu_weight_gradient(p, node->weight, c->canonical,
                                dnnl_primitive_desc_query_md(desc, dnnl_query_diff_weights_md, 0),
                                &diff));
    if (reads_unwritten(p, node))
        DPB_TRY(clear_scratchpad(p, desc));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, what, desc,
                     ARGS({DNNL_ARG_SRC, cpu_plan(p, cpu_input(p, node, 0))->activation},
                          {DNNL_ARG_DIFF_DST, plan->gradient}, {DNNL_ARG_DIFF_WEIGHTS, diff})));
    cpu_set_flops(p, node);
    return cpu_unpack_gradient(p, node->weight, c->canonical, diff);
}

/* With AVX2, oneDNN 3.2 makes wrong sums for fewer than 8 channels if the stride divides the image:
 * fewer than a vector has. A vector of AVX-512 has 16. */
static bool is_sparse_product(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    return node->groups == 1 && w->kernel_h == 1 && w->kernel_w == 1 &&
           w->stride_h * w->stride_w > 1 && cpu_input(p, node, 0)->shape.c < 16;
}

static dpb_status backward_weights(struct program *p, const struct dpb_node *node,
                                   const struct conv *c)
{
    if (cpu_reads_images(p, node) || is_sparse_product(p, node))
        return cpu_image_weights(p, node, c->canonical);
    if (cpu_multiplies_weights(p, node))
        return cpu_weights_product(p, node, c->canonical);
    return is_matrix_product(node) ? multiply_weights(p, node) : convolve_weights(p, node, c);
}

dpb_status cpu_conv_backward(struct program *p, const struct dpb_node *node)
{
    const char *what = "backward data";
    struct conv c;
    if (cpu_multiplies_positions(p, node))
        return cpu_dense_backward(p, node);
    DPB_TRY(describe(p, node, &c));
    DPB_TRY(backward_weights(p, node, &c));
    DPB_TRY(cpu_bias_gradient(p, node));
    struct tensor *diff_src, *weights;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src)
        return DPB_OK;

    const struct node_plan *plan = cpu_plan(p, node);
    const_dnnl_memory_desc_t weights_any;
    DPB_TRY(weights_desc(p, &c, p->type, dnnl_format_tag_any, &weights_any));
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_convolution_backward_data_primitive_desc_create(
        &created, p->engine, dnnl_convolution_direct, c.src, weights_any, c.dst, c.strides,
        c.dilates, c.padding_before, c.padding_after, plan->forward, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, what, status, created, &desc));
    DPB_TRY(cpu_packed_weights(p, node->weight, c.canonical,
                               dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0),
                               &weights));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, what, desc,
                     ARGS({DNNL_ARG_DIFF_DST, plan->gradient}, {DNNL_ARG_WEIGHTS, weights},
                          {DNNL_ARG_DIFF_SRC, diff_src})));
    cpu_set_flops(p, node);
    return DPB_OK;
}
