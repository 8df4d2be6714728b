/*
 * ops_products.c - convolutions (conv.c) and dense layers (gemm.c), also of a sequence's positions:
 * weights are packed from core's layout when they have changed, bias and ReLU follow in one kernel.
 */
#include "ops.h"
#include "products.h"

/* The step that was appended last makes this product; its weights or gradient by them are core's
 * own where they were not packed. */
static void is_product(struct program *p, enum conv_call call, const struct tensor *packed)
{
    cuda_last_step(p)->which = call;
    cuda_last_step(p)->flops = 2.0 * (double)p->node->macs * p->args.batch;
    if (!packed)
        cuda_use_core(p, p->node->weight);
}

/* ------------------------------------------------------ bias and ReLU in place, the bias by dy */

static dpb_status run_bias(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    cuda_bias_relu(p->device->stream, p->type, step->t[FROM]->data, cuda_weight(p, node->bias),
                   cuda_plan(p, node)->group->into != NULL, step->t[TO]->data,
                   cuda_grid(p, node->shape));
    return DPB_OK;
}

static dpb_status add_bias(struct program *p, const struct dpb_node *node)
{
    const struct tensor *y = cuda_plan(p, cuda_result(p, node))->activation;
    bool relu = cuda_plan(p, node)->group->into != NULL;
    if (node->bias == DPB_NONE && !relu)
        return DPB_OK;
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, relu ? "bias, ReLU" : "bias", run_bias, TENSORS(y, y)));
    cuda_use_core(p, node->bias);
    return DPB_OK;
}

static dpb_status run_bias_gradient(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    cuda_column_sums(p->device->stream, p->type, step->t[FROM]->data, cuda_grid(p, node->shape),
                     cuda_sum_room(p), cuda_gradient(p, node->bias));
    return DPB_OK;
}

static dpb_status sum_bias(struct program *p, const struct dpb_node *node)
{
    if (node->bias == DPB_NONE)
        return DPB_OK;
    cuda_need_sum_room(p, node);
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward bias", run_bias_gradient,
                      TENSORS(cuda_plan(p, node)->gradient)));
    cuda_use_core(p, node->bias);
    return DPB_OK;
}

/* ---------------------------------------------------------------------------------- convolution */

/* The input as cuDNN takes it. */
static const struct tensor *conv_input(const struct program *p, const struct dpb_node *node)
{
    const struct tensor *padded = cuda_plan(p, node)->padded;
    return padded ? padded : cuda_plan(p, cuda_input(p, node, 0))->activation;
}

static dpb_status run_pad(const struct program *p, const struct step *step)
{
    const struct frame frame = cuda_conv_frame(p, step->node);
    cuda_pad(p->device->stream, p->type, &frame, step->t[FROM]->data, step->t[TO]->data);
    return DPB_OK;
}

static dpb_status run_crop(const struct program *p, const struct step *step)
{
    const struct frame frame = cuda_conv_frame(p, step->node);
    cuda_crop(p->device->stream, p->type, &frame, step->t[FROM]->data, step->t[TO]->data);
    return DPB_OK;
}

static dpb_status framed(struct program *p, const struct dpb_node *node, struct tensor **tensor)
{
    const struct grid outer = cuda_conv_frame(p, node).outer;
    return cuda_tensor(p, cuda_grid_pixels(&outer) * outer.c * cuda_type_size(p->type), tensor);
}

static dpb_status run_conv(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const void *from = step->t[FROM]->data;
    if (step->which == CONV_WEIGHTS)
        return cuda_conv_run(p, node, CONV_WEIGHTS, from, step->t[AUX]->data,
                             cuda_weight_gradient_data(p, node));
    return cuda_conv_run(p, node, step->which, from, cuda_packed(p, node), step->t[TO]->data);
}

dpb_status cuda_conv_forward(struct program *p, const struct dpb_node *node)
{
    const struct frame frame = cuda_conv_frame(p, node);
    struct node_plan *plan = cuda_plan(p, node);
    struct tensor *y;
    if (cuda_multiplies_positions(p, node))
        return cuda_dense_forward(p, node);
    DPB_TRY(cuda_conv_open(p, node, CONV_FORWARD));
    DPB_TRY(cuda_pack_weights_of(p, node));
    if (cuda_is_framed(&frame)) {
        DPB_TRY(framed(p, node, &plan->padded));
        DPB_TRY(cuda_step(p, WHEN_ALWAYS, "padding", run_pad,
                          TENSORS(cuda_plan(p, cuda_input(p, node, 0))->activation, plan->padded)));
    }
    DPB_TRY(cuda_activation(p, cuda_result(p, node), &y));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "forward", run_conv,
                      TENSORS(conv_input(p, node), y, plan->packed)));
    is_product(p, CONV_FORWARD, plan->packed);
    return add_bias(p, node);
}

/* The part of the input's gradient by a layer behind this one, to which the convolution may add its
 * own part; NULL: there is none. The sums of a block's batch-norm add up the block's two parts. */
static struct tensor *part_to_add_to(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_group *group = cuda_plan(p, cuda_input(p, node, 0))->group;
    const struct dpb_part *part = dpb_group_own_part(group);
    const bool joins_in_sums = group->residual && group->n_consumers == 2;
    return part && !joins_in_sums && !cuda_plan(p, node)->padded ? part->tensor : NULL;
}

static dpb_status added_data(struct program *p, const struct dpb_node *node, struct tensor *part)
{
    const struct node_plan *plan = cuda_plan(p, node);
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward data added to another", run_conv,
                      TENSORS(plan->gradient, part, plan->packed)));
    cuda_use(p, part); /* it is read, too */
    is_product(p, CONV_DATA, plan->packed);
    return DPB_OK;
}

static dpb_status conv_data(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cuda_plan(p, node);
    struct tensor *dx, *to, *part = part_to_add_to(p, node);
    bool adds = part;
    if (node->inputs[0] == 0)
        return DPB_OK;
    DPB_TRY(cuda_conv_open_data(p, node, &adds));
    if (adds)
        return added_data(p, node, part);
    DPB_TRY(cuda_input_gradient(p, node, 0, &dx));
    to = dx;
    if (plan->padded)
        DPB_TRY(framed(p, node, &to));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward data", run_conv,
                      TENSORS(plan->gradient, to, plan->packed)));
    is_product(p, CONV_DATA, plan->packed);
    if (to == dx)
        return DPB_OK;
    return cuda_step(p, WHEN_ALWAYS, "cropping", run_crop, TENSORS(to, dx));
}

/* The gradient by the weights comes in the program's type: cuDNN gives no other for bf16 and
 * fp16. */
dpb_status cuda_conv_backward(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cuda_plan(p, node);
    if (cuda_multiplies_positions(p, node))
        return cuda_dense_backward(p, node);
    DPB_TRY(cuda_conv_open(p, node, CONV_WEIGHTS));
    DPB_TRY(cuda_weight_gradient(p, node, p->type));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward weights", run_conv,
                      TENSORS(conv_input(p, node), plan->packed_gradient, plan->gradient)));
    is_product(p, CONV_WEIGHTS, plan->packed_gradient);
    DPB_TRY(cuda_unpack_weights(p, node));
    DPB_TRY(sum_bias(p, node));
    return conv_data(p, node);
}

/* ---------------------------------------------------------------------------------------- dense */

/*
 * By columns, as cuBLASLt has it: x is (features x rows), y is (outputs x rows), and the weights,
 * rows of features in core's eyes, are (features x outputs). A row is a sample, or a position of
 * one.
 */
struct dense {
    uint64_t features, outputs, rows;
    struct gemm_operand y; /* has gaps if the activation has added channels */
};

static struct dense dense_of(const struct program *p, const struct dpb_node *node)
{
    const uint32_t wide = cuda_stored_shape(p, node).c;
    return (struct dense){
        .features = p->graph->tensors[node->weight].n_elements / node->shape.c,
        .outputs = node->shape.c,
        .rows = (uint64_t)p->args.batch * node->shape.h * node->shape.w,
        .y = {.column = wide == node->shape.c ? 0 : wide},
    };
}

static dpb_status open_gemm(struct program *p, const struct dpb_node *node, enum conv_call call,
                            const struct gemm_shape *shape)
{
    struct gemm **gemm = &cuda_plan(p, node)->gemm[call];
    DPB_TRY(cuda_gemm_open(p, node, shape, gemm));
    cuda_need_scratch(p, cuda_gemm_workspace(*gemm));
    return DPB_OK;
}

static dpb_status run_dense(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct gemm *gemm = cuda_gemm_of(p, step);
    const void *from = step->t[FROM]->data;
    if (step->which == CONV_WEIGHTS)
        return cuda_gemm_run(p, node, gemm, from, step->t[AUX]->data,
                             cuda_weight_gradient_data(p, node));
    return cuda_gemm_run(p, node, gemm, cuda_packed(p, node), from, step->t[TO]->data);
}

dpb_status cuda_dense_forward(struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *input = cuda_input(p, node, 0);
    const struct dense by = dense_of(p, node);
    const struct gemm_shape shape = {.m = by.outputs,
                                     .n = by.rows,
                                     .k = by.features,
                                     .transpose_a = true,
                                     .c_type = p->type,
                                     .c = by.y};
    struct tensor *y;
    DPB_TRY(cuda_pack_weights_of(p, node));
    DPB_TRY(open_gemm(p, node, CONV_FORWARD, &shape));
    DPB_TRY(cuda_activation(p, cuda_result(p, node), &y));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "forward", run_dense,
                      TENSORS(cuda_plan(p, input)->activation, y, cuda_plan(p, node)->packed)));
    is_product(p, CONV_FORWARD, cuda_plan(p, node)->packed);
    return add_bias(p, node);
}

static dpb_status dense_data(struct program *p, const struct dpb_node *node)
{
    const struct dense by = dense_of(p, node);
    const struct gemm_shape shape = {
        .m = by.features, .n = by.rows, .k = by.outputs, .c_type = p->type, .b = by.y};
    struct tensor *dx;
    DPB_TRY(cuda_input_gradient(p, node, 0, &dx));
    if (!dx)
        return DPB_OK;
    DPB_TRY(open_gemm(p, node, CONV_DATA, &shape));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward data", run_dense,
                      TENSORS(cuda_plan(p, node)->gradient, dx, cuda_plan(p, node)->packed)));
    is_product(p, CONV_DATA, cuda_plan(p, node)->packed);
    return DPB_OK;
}

dpb_status cuda_dense_backward(struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *input = cuda_input(p, node, 0);
    const struct dense by = dense_of(p, node);
    const struct gemm_shape shape = {.m = by.features,
                                     .n = by.outputs,
                                     .k = by.rows,
                                     .transpose_b = true,
                                     .c_type = TYPE_FP32,
                                     .b = by.y};
    DPB_TRY(open_gemm(p, node, CONV_WEIGHTS, &shape));
    DPB_TRY(cuda_weight_gradient(p, node, TYPE_FP32));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward weights", run_dense,
                      TENSORS(cuda_plan(p, input)->activation, cuda_plan(p, node)->packed_gradient,
                              cuda_plan(p, node)->gradient)));
    is_product(p, CONV_WEIGHTS, cuda_plan(p, node)->packed_gradient);
    DPB_TRY(cuda_unpack_weights(p, node));
    DPB_TRY(sum_bias(p, node));
    return dense_data(p, node);
}

/* ------------------------------------------------------------------------------- kinds of steps */

bool cuda_is_conv(const struct step *step)
{
    return step->run == run_conv;
}

struct gemm *cuda_gemm_of(const struct program *p, const struct step *step)
{
    return step->run == run_dense ? cuda_plan(p, step->node)->gemm[step->which] : NULL;
}
