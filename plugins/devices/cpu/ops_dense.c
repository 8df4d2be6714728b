/*
 * ops_dense.c - dense layers as products of matrices: Y = X W', dW = dY' X, dX = dY W. So are the
 * dense layers of a sequence's positions, 1 x 1 convolutions: each position is a row of X.
 *
 * Core's weights are O rows over the CHW-flattened input. oneDNN's matrix product reads and writes
 * them as they lie: no weight and no gradient is ever repacked. So X must have that order: where
 * the input has pixels, a copy of X is flattened, and dX unflattened. Both are small beside the
 * weights.
 */
#include "ops.h"

/* The matrices of a dense layer: as they lie and, where a product takes them so, transposed. */
struct dense {
    const_dnnl_memory_desc_t x, y, y_transposed; /* rows x inputs; rows x outputs */
    const_dnnl_memory_desc_t w, w_transposed;    /* outputs x inputs */
    const_dnnl_memory_desc_t core_w;             /* the same in fp32 */
    const_dnnl_memory_desc_t bias;               /* one row; NULL: none */
};

bool cpu_multiplies_positions(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *window = &node->window;
    return node->op == DPB_OP_CONV && cpu_input(p, node, 0)->shape.h == 1 &&
           window->kernel_h == 1 && window->kernel_w == 1 && window->stride_w == 1 &&
           window->pad_left == 0 && window->pad_right == 0 && window->pad_top == 0 &&
           window->pad_bottom == 0 && node->groups == 1;
}

/* Rows, inputs and outputs of the layer. */
struct sizes {
    size_t n, inputs, outputs;
};

static struct sizes sizes_of(const struct program *p, const struct dpb_node *node)
{
    return (struct sizes){(size_t)p->args.batch * node->shape.w,
                          p->graph->tensors[node->weight].n_elements / node->shape.c,
                          node->shape.c};
}

static dpb_status describe(struct program *p, const struct dpb_node *node, struct dense *dense)
{
    const struct sizes of = sizes_of(p, node);
    const dnnl_dim_t n = (dnnl_dim_t)of.n, inputs = (dnnl_dim_t)of.inputs,
                     outputs = (dnnl_dim_t)of.outputs;
    const dnnl_dims_t x = {n, inputs}, y = {n, outputs};
    const dnnl_dims_t y_transposed = {outputs, n}, down = {1, outputs};
    const dnnl_dims_t w = {outputs, inputs}, rows = {inputs, 1};
    const dnnl_dims_t w_transposed = {inputs, outputs}, columns = {1, inputs};
    const dnnl_dims_t bias = {1, outputs}, row = {outputs, 1};
    *dense = (struct dense){0};
    DPB_TRY(cpu_strided_desc(p, 2, x, rows, p->type, &dense->x));
    DPB_TRY(cpu_strided_desc(p, 2, y, row, p->type, &dense->y));
    DPB_TRY(cpu_strided_desc(p, 2, y_transposed, down, p->type, &dense->y_transposed));
    DPB_TRY(cpu_strided_desc(p, 2, w, rows, p->type, &dense->w));
    DPB_TRY(cpu_strided_desc(p, 2, w_transposed, columns, p->type, &dense->w_transposed));
    DPB_TRY(cpu_strided_desc(p, 2, w, rows, dnnl_f32, &dense->core_w));
    if (node->bias != DPB_NONE)
        DPB_TRY(cpu_strided_desc(p, 2, bias, row, dnnl_f32, &dense->bias));
    return DPB_OK;
}

/* An activation (or a gradient like it) of a node that has pixels, in the order of the weights. */
static dpb_status flattened_desc(struct program *p, const struct dpb_node *input,
                                 const_dnnl_memory_desc_t *desc)
{
    const struct dpb_shape in = input->shape;
    const dnnl_dims_t dims = {p->args.batch, in.c, in.h, in.w};
    return cpu_desc(p, 4, dims, p->type, dnnl_nchw, desc);
}

/* Whether the input's rows are X's. */
static bool is_flat(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_shape in = cpu_input(p, node, 0)->shape;
    return node->op == DPB_OP_CONV || (in.h == 1 && in.w == 1);
}

static dpb_status multiply(struct program *p, const char *what, const struct tensor *left,
                           const struct tensor *right, const struct tensor *bias,
                           const struct tensor *product, const_dnnl_primitive_attr_t attributes)
{
    dnnl_primitive_desc_t created = NULL;
    const_dnnl_primitive_desc_t desc;
    dnnl_status_t status =
        dnnl_matmul_primitive_desc_create(&created, p->engine, left->desc, right->desc,
                                          bias ? bias->desc : NULL, product->desc, attributes);
    DPB_TRY(cpu_own(p, what, status, created, &desc));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, what, desc,
                     ARGS({DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_BIAS, bias},
                          {DNNL_ARG_DST, product})));
    cpu_set_flops(p, p->node);
    return DPB_OK;
}

/* X as backward will read it, too. */
static dpb_status flatten(struct program *p, const struct dpb_node *node, const struct dense *d,
                          struct tensor **x)
{
    const struct dpb_node *input = cpu_input(p, node, 0);
    struct tensor *activation = cpu_plan(p, input)->activation;
    if (is_flat(p, node))
        return cpu_view(p, activation, d->x, x);
    const_dnnl_memory_desc_t desc;
    struct tensor *copy;
    DPB_TRY(flattened_desc(p, input, &desc));
    DPB_TRY(cpu_tensor(p, desc, &copy));
    DPB_TRY(cpu_reorder(p, WHEN_ALWAYS, "flattening", activation, copy));
    return cpu_view(p, copy, d->x, x);
}

dpb_status cpu_dense_forward(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cpu_plan(p, node);
    struct dense d;
    struct tensor *w, *bias = NULL, *activation, *y;
    DPB_TRY(describe(p, node, &d));
    DPB_TRY(flatten(p, node, &d, &plan->flattened));
    DPB_TRY(cpu_packed_weights(p, node->weight, d.core_w, d.w, &plan->weights));
    DPB_TRY(cpu_view(p, plan->weights, d.w_transposed, &w));
    if (d.bias)
        DPB_TRY(cpu_core_tensor(p, p->core.weights, p->graph->tensors[node->bias].offset, d.bias,
                                &bias));
    DPB_TRY(cpu_activation(p, cpu_result(p, node), &activation));
    DPB_TRY(cpu_view(p, activation, d.y, &y));
    return multiply(p, plan->group->into ? "forward, ReLU" : "forward", plan->flattened, w, bias, y,
                    plan->group->into ? p->with_relu : p->attributes);
}

/* to = from' aux, or from aux: row by row, without gaps. */
static void multiply_rows(const struct step *step, char transpose, size_t m, size_t n, size_t k)
{
    dnnl_sgemm(transpose, 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1.0F, step->from->data,
               (dnnl_dim_t)(transpose == 'T' ? m : k), step->aux->data, (dnnl_dim_t)n, 0.0F,
               step->to->data, (dnnl_dim_t)n);
}

static void multiply_weights(const struct program *p, const struct step *step)
{
    const struct sizes of = sizes_of(p, step->node);
    multiply_rows(step, 'T', of.outputs, of.inputs, of.n);
}

static void multiply_data(const struct program *p, const struct step *step)
{
    const struct sizes of = sizes_of(p, step->node);
    multiply_rows(step, 'N', of.n, of.inputs, of.outputs);
}

/* In fp32 oneDNN's older product is the faster one: up to twice, where a row has 3,072 elements. */
static dpb_status multiply_fp32(struct program *p, const char *what, step_loop *loop,
                                const struct tensor *left, const struct tensor *right,
                                const struct tensor *product)
{
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, what, loop, left, product, right));
    cpu_set_flops(p, p->node);
    return DPB_OK;
}

static dpb_status backward_weights(struct program *p, const struct dpb_node *node,
                                   const struct dense *d)
{
    struct tensor *dy, *dw;
    DPB_TRY(cpu_view(p, cpu_plan(p, node)->gradient, d->y_transposed, &dy));
    if (node->tied) { /* until the embedding's turn, which adds it to its own */
        DPB_TRY(cpu_tensor(p, d->core_w, &p->tied));
        dw = p->tied;
    } else {
        DPB_TRY(cpu_core_tensor(p, p->core.gradients, p->graph->tensors[node->weight].offset,
                                d->core_w, &dw));
    }
    if (p->type == dnnl_f32)
        return multiply_fp32(p, "backward weights", multiply_weights, dy,
                             cpu_plan(p, node)->flattened, dw);
    return multiply(p, "backward weights", dy, cpu_plan(p, node)->flattened, NULL, dw,
                    p->attributes);
}

static dpb_status backward_data(struct program *p, const struct dpb_node *node,
                                const struct dense *d)
{
    const struct dpb_node *input = cpu_input(p, node, 0);
    struct tensor *dy, *part, *flat, *dx;
    DPB_TRY(cpu_input_gradient(p, node, 0, &part));
    if (!part)
        return DPB_OK;
    flat = part;
    if (!is_flat(p, node)) {
        const_dnnl_memory_desc_t desc;
        DPB_TRY(flattened_desc(p, input, &desc));
        DPB_TRY(cpu_tensor(p, desc, &flat));
    }
    DPB_TRY(cpu_view(p, cpu_plan(p, node)->gradient, d->y, &dy));
    DPB_TRY(cpu_view(p, flat, d->x, &dx));
    if (p->type == dnnl_f32)
        DPB_TRY(
            multiply_fp32(p, "backward data", multiply_data, dy, cpu_plan(p, node)->weights, dx));
    else
        DPB_TRY(
            multiply(p, "backward data", dy, cpu_plan(p, node)->weights, NULL, dx, p->attributes));
    return is_flat(p, node) ? DPB_OK : cpu_reorder(p, WHEN_ALWAYS, "unflattening", flat, part);
}

dpb_status cpu_dense_backward(struct program *p, const struct dpb_node *node)
{
    struct dense d;
    DPB_TRY(describe(p, node, &d));
    DPB_TRY(backward_weights(p, node, &d));
    DPB_TRY(cpu_bias_gradient(p, node));
    return backward_data(p, node, &d);
}
