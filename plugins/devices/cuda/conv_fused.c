/*
 * conv_fused.c - convolutions that also make a batch-norm's sums, by cuDNN's graph API. The kernel
 * that makes a tensor makes the tensor's sums, too, so no other kernel reads the tensor for them.
 *
 * Forward, for the batch-norm behind: each channel's sum and sum of squares of the result. The
 * graph is ConvolutionFwd -> y -> an addition of all pixels, and one of their squares. y is the
 * stored tensor, so the sums are those of stored values, as with our own kernel.
 *
 * cuDNN adds in fp32 and from zero; our kernel continues in fp64, with deviations from the first
 * row. So cuDNN's variance, E[y^2] - E[y]^2, loses as many bits as E[y]^2 is larger than it.
 *
 * By the input, if that is the result y of a batch-norm of x and a ReLU, and no other node reads y:
 * dz, the gradient where y > 0, and each channel's sums of dz and of dz times the normalised x. The
 * batch-norm's backward begins with these sums. The graph is ConvolutionBwdData -> ReLU's backward
 * by y -> dz -> two additions of all pixels. The mask is by the stored y, as our own kernel's is.
 * cuDNN's own pattern for this (DgradDreluBNBwdWeight) makes y anew from x, and has engines for
 * fp16 only.
 *
 * A block's result y, of an addition and a ReLU, is read by a convolution and, as a shortcut, by
 * one layer more. Backward reaches the reader last that is first in the graph. If this is a
 * convolution, its graph adds the shortcut's gradient before the mask.
 *
 * All additions ask to be deterministic (CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC). Others, GenStats
 * among them, cuDNN 9.19 mostly makes without a workspace, so by atomic additions in any order, of
 * which no numerical note warns.
 *
 * Convolutions of several groups stay without: no GPU has shown that such graphs are right.
 */
#include <stdlib.h>

#include "conv_plans.h"
#include "plan.h"

/* Bytes of a result that takes longer to read than a kernel takes to start: of a smaller one `auto`
 * makes no plans, which may take seconds. */
enum { WORTH_PLANNING = 1 << 18 };

/* ---- graphs ------------------------------------------------------------------------------ */

/* a and b, to `to`. */
static cudnnBackendDescriptor_t pointwise(struct making *m, cudnnPointwiseMode_t mode,
                                          cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                                          cudnnBackendDescriptor_t to)
{
    const bool masks = mode == CUDNN_POINTWISE_RELU_BWD; /* b by a */
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = cuda_desc_make(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cuda_desc_set(m, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    cuda_desc_set(m, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    cuda_desc_finalise(m, how, "the graph API's pointwise mode");
    cudnnBackendDescriptor_t op = cuda_desc_make(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    cuda_desc_set_one(m, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    cuda_desc_set_one(m, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a);
    cuda_desc_set_one(
        m, op, masks ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
        b);
    cuda_desc_set_one(
        m, op, masks ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        to);
    cuda_desc_finalise(m, op, "the graph API's pointwise operation");
    return op;
}

/* Adds all pixels of a channel. */
static cudnnBackendDescriptor_t addition(struct making *m, cudnnBackendDescriptor_t of,
                                         cudnnBackendDescriptor_t to)
{
    const cudnnReduceTensorOp_t mode = CUDNN_REDUCE_TENSOR_ADD;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const bool deterministic = true;
    cudnnBackendDescriptor_t how = cuda_desc_make(m, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cuda_desc_set(m, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                  &mode);
    cuda_desc_set(m, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    cuda_desc_set(m, how, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, 1,
                  &deterministic);
    cuda_desc_finalise(m, how, "the graph API's deterministic addition");
    cudnnBackendDescriptor_t op = cuda_desc_make(m, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    cuda_desc_set_one(m, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    cuda_desc_set_one(m, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, of);
    cuda_desc_set_one(m, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to);
    cuda_desc_finalise(m, op, "the graph API's reduction");
    return op;
}

/* A value of a tensor's elements that passes between operations. */
static cudnnBackendDescriptor_t passing(struct making *m, enum uid uid, struct grid grid)
{
    return cuda_graph_tensor(m, uid, CUDNN_DATA_FLOAT, grid, PLAN_ALIGN, false);
}

/* A stored value of each channel. */
static cudnnBackendDescriptor_t by_channel(struct making *m, enum uid uid, uint32_t c,
                                           int64_t align)
{
    const struct grid channels = {.n = 1, .h = 1, .w = 1, .c = c};
    return cuda_graph_tensor(m, uid, CUDNN_DATA_FLOAT, channels, align, true);
}

/* The operations that both graphs end on: each channel's sum of `value`, and of `value` times
 * `other`. */
enum { SUM_OPS = 3 };
static void add_sums(struct making *m, struct grid grid, cudnnBackendDescriptor_t value,
                     cudnnBackendDescriptor_t other, cudnnBackendDescriptor_t ops[SUM_OPS])
{
    cudnnBackendDescriptor_t product = passing(m, UID_PRODUCT, grid);
    ops[0] = addition(m, value, by_channel(m, UID_SUM, grid.c, PLAN_ALIGN));
    ops[1] = pointwise(m, CUDNN_POINTWISE_MUL, value, other, product);
    ops[2] = addition(m, product, by_channel(m, UID_PRODUCTS, grid.c, PLAN_ALIGN));
}

static cudnnBackendDescriptor_t forward_graph(struct making *m)
{
    const struct grid grid = cuda_grid(m->p, m->node->shape);
    cudnnBackendDescriptor_t y = cuda_graph_stored(m, UID_Y, grid);
    cudnnBackendDescriptor_t ops[1 + SUM_OPS] = {cuda_graph_conv(m, CONV_FORWARD, y)};
    add_sums(m, grid, y, y, ops + 1);
    return cuda_graph_of(m, 1 + SUM_OPS, ops);
}

/* dx with the shortcut's gradient, where the call joins one. */
static cudnnBackendDescriptor_t joined(struct making *m, cudnnBackendDescriptor_t dx,
                                       cudnnBackendDescriptor_t ops[], int64_t *n)
{
    const struct grid grid = cuda_grid(m->p, cuda_input(m->p, m->node, 0)->shape);
    if (cuda_fused_form(m->p, m->node, FUSED_DATA) != FUSED_JOINED)
        return dx;
    cudnnBackendDescriptor_t shortcut = cuda_graph_stored(m, UID_SHORTCUT, grid);
    cudnnBackendDescriptor_t sum = passing(m, UID_JOINED, grid);
    ops[(*n)++] = pointwise(m, CUDNN_POINTWISE_ADD, dx, shortcut, sum);
    return sum;
}

static cudnnBackendDescriptor_t data_graph(struct making *m)
{
    const struct grid grid = cuda_grid(m->p, cuda_input(m->p, m->node, 0)->shape);
    /* The inverse lies behind the mean. */
    const int64_t align = grid.c % 4 == 0 ? PLAN_ALIGN : (int64_t)sizeof(float);
    cudnnBackendDescriptor_t dx = passing(m, UID_DX, grid);
    cudnnBackendDescriptor_t y = cuda_graph_stored(m, UID_Y, grid);
    cudnnBackendDescriptor_t x = cuda_graph_stored(m, UID_X, grid);
    cudnnBackendDescriptor_t dz = cuda_graph_stored(m, UID_DZ, grid);
    cudnnBackendDescriptor_t mean = by_channel(m, UID_MEAN, grid.c, align);
    cudnnBackendDescriptor_t inverse = by_channel(m, UID_INVERSE, grid.c, align);
    cudnnBackendDescriptor_t centered = passing(m, UID_CENTERED, grid);
    cudnnBackendDescriptor_t normal = passing(m, UID_NORMAL, grid);
    cudnnBackendDescriptor_t ops[5 + SUM_OPS] = {cuda_graph_conv(m, CONV_DATA, dx)};
    int64_t n = 1;
    cudnnBackendDescriptor_t dy = joined(m, dx, ops, &n);
    ops[n++] = pointwise(m, CUDNN_POINTWISE_RELU_BWD, y, dy, dz);
    ops[n++] = pointwise(m, CUDNN_POINTWISE_SUB, x, mean, centered);
    ops[n++] = pointwise(m, CUDNN_POINTWISE_MUL, centered, inverse, normal);
    add_sums(m, grid, dz, normal, ops + n);
    return cuda_graph_of(m, n + SUM_OPS, ops);
}

/* By form, and whether device.fusion = on: then there is no choice but among plans. */
static const struct conv_kind kinds[FUSED_FORMS][2] = {
    [FUSED_STATISTICS] = {{"forward with statistics", forward_graph, .compiles = true,
                           .most = FUSED_CHOICES, .untuned = SEPARATE},
                          {"forward with statistics, on", forward_graph, .compiles = true,
                           .most = FUSED_CHOICES}},
    [FUSED_SUMS] = {{"data with sums", data_graph, .compiles = true, .most = FUSED_CHOICES,
                     .untuned = SEPARATE},
                    {"data with sums, on", data_graph, .compiles = true, .most = FUSED_CHOICES}},
    [FUSED_JOINED] = {
        {"data with shortcut and sums", data_graph, .compiles = true, .most = FUSED_CHOICES,
         .untuned = SEPARATE},
        {"data with shortcut and sums, on", data_graph, .compiles = true, .most = FUSED_CHOICES}}};

static const struct conv_kind *kind_of(const struct program *p, const struct dpb_node *node,
                                       enum fused_call call)
{
    return &kinds[cuda_fused_form(p, node, call)][p->device->options.fusion == FUSION_ON];
}

/* ---- open ---------------------------------------------------------------------------------- */

/* A batch-norm that is all that reads the node's result. */
static bool feeds_norm(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_group *group = cuda_plan(p, node)->group;
    return node->bias == DPB_NONE && !group->into && group->n_consumers == 1 &&
           cuda_first_reader(p, node)->op == DPB_OP_BATCH_NORM;
}

const struct dpb_node *cuda_masked_norm(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *relu = cuda_input(p, node, 0);
    const struct dpb_group *group = cuda_plan(p, relu)->group;
    if (!group->from || group->from->op != DPB_OP_BATCH_NORM ||
        group->n_consumers != (group->residual ? 2 : 1) || cuda_first_reader(p, relu) != node)
        return NULL;
    return group->from;
}

enum fused_form cuda_fused_form(const struct program *p, const struct dpb_node *node,
                                enum fused_call call)
{
    if (call == FUSED_FORWARD)
        return FUSED_STATISTICS;
    return cuda_plan(p, cuda_input(p, node, 0))->group->residual ? FUSED_JOINED : FUSED_SUMS;
}

/* shape: of the tensor that need not be read again. */
static bool wanted(const struct program *p, struct dpb_shape shape)
{
    const struct options *options = &p->device->options;
    if (!p->args.training || options->layout != LAYOUT_NHWC || options->fusion == FUSION_OFF)
        return false;
    return options->fusion == FUSION_ON ||
           (cuda_tunes(options) &&
            cuda_elements(p, shape) * cuda_type_size(p->type) >= WORTH_PLANNING);
}

/* device.fusion = on fails rather than leave one out. */
static dpb_status leave_groups(const struct program *p, const struct dpb_node *node)
{
    if (p->device->options.fusion != FUSION_ON)
        return DPB_OK;
    return cuda_host->fail(
        DPB_UNSUPPORTED,
        "device cuda: device.fusion = on, but the convolution '%s' has %u groups, and only those "
        "of one group add up a batch-norm's sums; auto leaves such ones as they are",
        node->name, node->groups);
}

static dpb_status say_none(const struct program *p, const struct dpb_node *node,
                           enum fused_call call, struct conv_plans *plans)
{
    static const char *const withs[FUSED_FORMS] = {
        [FUSED_STATISTICS] = "with the statistics of its result",
        [FUSED_SUMS] = "by its input, with the sums of the batch-norm before it,",
        [FUSED_JOINED] =
            "by its input, with the shortcut's and the sums of the batch-norm before it,"};
    const char *why = plans->why[0] ? plans->why : "it offered none";
    const char *with = withs[cuda_fused_form(p, node, call)];
    if (p->device->options.fusion == FUSION_ON)
        return cuda_host->fail(
            DPB_UNSUPPORTED,
            "device cuda: device.fusion = on, but cuDNN has no plan for '%s' (%u to %u channels, "
            "%ux%u, %s) %s on GPU %d (%s) that gives equal bits for equal inputs with at most "
            "device.workspace = %llu bytes: %s; auto leaves such ones as they are",
            node->name, cuda_input(p, node, 0)->shape.c, node->shape.c, node->window.kernel_h,
            node->window.kernel_w, dpb_precision_name(p->args.precision), with, p->device->id,
            p->device->name, (unsigned long long)p->device->options.workspace, why);
    if (plans->failed)
        cuda_host->warn("fusion_failed",
                        "device cuda: cuDNN's graph API failed for the convolution '%s' %s, which "
                        "stays without fusion: %s",
                        node->name, with, why);
    plans->failed = false; /* it is said */
    return DPB_OK;
}

/* Opens a node's call, with sums for `norm`'s channels. */
static dpb_status open_call(struct program *p, const struct dpb_node *node, enum fused_call call,
                            const struct dpb_node *norm)
{
    struct node_plan *plan = cuda_plan(p, node);
    struct conv_plans *plans;
    if (node->groups > 1)
        return leave_groups(p, node);
    DPB_TRY(cuda_plans_find(p, node, kind_of(p, node, call), &plans));
    if (plans->n == 0)
        return plans->tuned ? DPB_OK : say_none(p, node, call, plans);
    plan->fused[call] = plans;
    cuda_plans_scratch(p, plans);
    return cuda_tensor(p, 2 * cuda_fused_stride(norm) * sizeof(float), &plan->sums[call]);
}

/* With a stride cuDNN 9.19's heuristics offer kernels that it then cannot compile; each takes
 * seconds. */
static bool can_be_masked(const struct dpb_node *node)
{
    return node->window.stride_h == 1 && node->window.stride_w == 1;
}

static bool may_be_fused(const struct program *p, const struct dpb_node *node, enum fused_call call)
{
    if (call == FUSED_FORWARD)
        return wanted(p, node->shape) && feeds_norm(p, node);
    const struct dpb_node *norm = cuda_masked_norm(p, node);
    const struct frame frame = cuda_conv_frame(p, node);
    return norm && wanted(p, norm->shape) && !cuda_is_framed(&frame) &&
           (can_be_masked(node) || p->device->options.fusion == FUSION_ON);
}

bool cuda_is_masked_always(const struct program *p, const struct dpb_node *node)
{
    return p->device->options.fusion == FUSION_ON && may_be_fused(p, node, FUSED_DATA);
}

dpb_status cuda_fused_compile(struct program *p)
{
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        const struct dpb_node *node = &p->graph->nodes[i];
        struct conv_plans *plans;
        if (node->op != DPB_OP_CONV || node->groups > 1)
            continue;
        for (int call = 0; call < FUSED_CALLS; call++)
            if (may_be_fused(p, node, call))
                DPB_TRY(cuda_plans_begin(p, node, kind_of(p, node, call), &plans));
    }
    return cuda_plans_compile(p);
}

dpb_status cuda_fused_open(struct program *p, const struct dpb_node *node)
{
    return may_be_fused(p, node, FUSED_FORWARD) ? open_call(p, node, FUSED_FORWARD, node) : DPB_OK;
}

dpb_status cuda_masked_open(struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *norm = cuda_masked_norm(p, node);
    struct node_plan *plan = cuda_plan(p, node);
    if (!may_be_fused(p, node, FUSED_DATA))
        return DPB_OK;
    DPB_TRY(open_call(p, node, FUSED_DATA, norm));
    cuda_plan(p, norm)->fused[FUSED_DATA] = plan->fused[FUSED_DATA];
    cuda_plan(p, norm)->sums[FUSED_DATA] = plan->sums[FUSED_DATA];
    return DPB_OK;
}

/* ---- the steps --------------------------------------------------------------------------- */

void cuda_fused_takers(const struct program *p, enum fused_call call, size_t at,
                       struct step *takers[FUSED_TAKERS])
{
    const struct step_list *list = call == FUSED_DATA ? &p->backward : &p->forward;
    const struct step *step = &list->steps[at];
    const struct dpb_node *norm = call == FUSED_DATA ? cuda_masked_norm(p, step->node) : NULL;
    int n = 0;
    takers[0] = takers[1] = NULL;
    for (size_t i = at + 1; i < list->n && n < (call == FUSED_DATA ? 2 : 1); i++) {
        struct step *other = &list->steps[i];
        if (norm ? other->node == norm : other->t[FIFTH] == step->t[FOURTH])
            takers[n++] = other;
    }
}

const struct tensor *cuda_shown_gradient(const struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cuda_plan(p, node);
    const struct dpb_node *norm = plan->group->from ? plan->group->from : node;
    if (norm->op != DPB_OP_BATCH_NORM || !cuda_is_masked(p, norm))
        return plan->gradient;
    if (node != norm)
        return NULL;
    return plan->gradient ? plan->gradient : cuda_plan(p, plan->group->into)->gradient;
}

/* ---- run ----------------------------------------------------------------------------------- */

dpb_status cuda_fused_run(const struct program *p, const struct step *step)
{
    static const int64_t uids[] = {UID_X, UID_W, UID_Y, UID_SUM, UID_PRODUCTS};
    const struct dpb_node *node = step->node;
    float *const sums = step->t[FOURTH]->data;
    const void *pointers[] = {step->t[FROM]->data, cuda_packed(p, node), step->t[TO]->data, sums,
                              sums + cuda_fused_stride(node)};
    return cuda_plans_run(p, node, cuda_plan(p, node)->fused[FUSED_FORWARD],
                          sizeof uids / sizeof uids[0], uids, pointers);
}

dpb_status cuda_masked_run(const struct program *p, const struct step *step)
{
    static const int64_t uids[] = {UID_DY,   UID_W,       UID_Y,   UID_X,        UID_DZ,
                                   UID_MEAN, UID_INVERSE, UID_SUM, UID_PRODUCTS, UID_SHORTCUT};
    const struct dpb_node *node = step->node, *norm = cuda_masked_norm(p, node);
    const struct tensor *shortcut = cuda_shortcut_gradient(p, node);
    const struct norm_by by = cuda_norm_by(p, norm);
    float *const sums = cuda_plan(p, norm)->sums[FUSED_DATA]->data;
    const void *pointers[] = {step->t[FROM]->data,
                              cuda_packed(p, node),
                              step->t[FOURTH]->data,
                              step->t[FIFTH]->data,
                              step->t[TO]->data,
                              by.mean,
                              by.inverse,
                              sums,
                              sums + cuda_fused_stride(norm),
                              shortcut ? shortcut->data : NULL};
    return cuda_plans_run(p, node, cuda_plan(p, node)->fused[FUSED_DATA],
                          sizeof uids / sizeof uids[0] - !shortcut, uids, pointers);
}
