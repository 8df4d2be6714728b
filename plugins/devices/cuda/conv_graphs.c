/*
 * conv_graphs.c - convolutions in the descriptors of cuDNN's graph API: activations and weights in
 * the program's layout, NHWC and OHWI or NCHW and OIHW, sums in fp32.
 */
#include <stdio.h>
#include <stdlib.h>

#include "conv_plans.h"

/* ---- descriptors --------------------------------------------------------------------------- */

void cuda_making_note(struct making *m, cudnnStatus_t status, const char *call)
{
    if (status == CUDNN_STATUS_SUCCESS || m->status != CUDNN_STATUS_SUCCESS)
        return;
    const bool nothing = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
    m->status = status;
    if (m->unexpected || (nothing && m->plans->why[0]))
        return;
    m->unexpected = !nothing;
    snprintf(m->plans->why, sizeof m->plans->why, "%s gave %s", call, cudnnGetErrorString(status));
}

cudnnBackendDescriptor_t cuda_desc_make(struct making *m, cudnnBackendDescriptorType_t type)
{
    struct conv_plans *plans = m->plans;
    cudnnBackendDescriptor_t desc = NULL;
    if (m->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (plans->n_made % 64 == 0) {
        void *more = realloc(plans->made, (plans->n_made + 64) * sizeof *plans->made);
        if (!more) {
            cuda_making_note(m, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "realloc");
            return NULL;
        }
        plans->made = more;
    }
    cuda_making_note(m, cudnnBackendCreateDescriptor(type, &desc), "cudnnBackendCreateDescriptor");
    if (m->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    plans->made[plans->n_made++] = desc;
    return desc;
}

void cuda_desc_set(struct making *m, cudnnBackendDescriptor_t desc,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                   const void *values)
{
    if (m->status == CUDNN_STATUS_SUCCESS)
        cuda_making_note(m, cudnnBackendSetAttribute(desc, name, type, n, values),
                         "cudnnBackendSetAttribute");
}

void cuda_desc_set_one(struct making *m, cudnnBackendDescriptor_t desc,
                       cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other)
{
    cuda_desc_set(m, desc, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

void cuda_desc_finalise(struct making *m, cudnnBackendDescriptor_t desc, const char *what)
{
    if (m->status == CUDNN_STATUS_SUCCESS)
        cuda_making_note(m, cudnnBackendFinalize(desc), what);
}

cudnnBackendDescriptor_t cuda_graph_tensor(struct making *m, enum uid uid, cudnnDataType_t type,
                                           struct grid grid, int64_t align, bool stored)
{
    const int64_t id = uid, n = grid.n, c = grid.c, h = grid.h, w = grid.w;
    const int64_t dims[] = {n, c, h, w}, nhwc[] = {h * w * c, 1, w * c, c};
    const int64_t nchw[] = {c * h * w, h * w, w, 1};
    const bool planes = m->p->device->options.layout == LAYOUT_NCHW, is_virtual = !stored;
    cudnnBackendDescriptor_t desc = cuda_desc_make(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    cuda_desc_set(m, desc, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    cuda_desc_set(m, desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    cuda_desc_set(m, desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, planes ? nchw : nhwc);
    cuda_desc_set(m, desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    cuda_desc_set(m, desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    cuda_desc_set(m, desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    cuda_desc_finalise(m, desc, "the graph API's tensor");
    return desc;
}

cudnnBackendDescriptor_t cuda_graph_stored(struct making *m, enum uid uid, struct grid grid)
{
    static const cudnnDataType_t types[] = {[TYPE_FP32] = CUDNN_DATA_FLOAT,
                                            [TYPE_BF16] = CUDNN_DATA_BFLOAT16,
                                            [TYPE_FP16] = CUDNN_DATA_HALF};
    return cuda_graph_tensor(m, uid, types[m->p->type], grid, PLAN_ALIGN, true);
}

/* ---- convolutions -------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t how_of(struct making *m)
{
    const struct dpb_window *w = &m->node->window;
    const struct frame frame = cuda_conv_frame(m->p, m->node);
    const bool framed = cuda_is_framed(&frame);
    const int64_t spatial = 2, ones[] = {1, 1}, strides[] = {w->stride_h, w->stride_w};
    const int64_t pads[] = {framed ? 0 : w->pad_top, framed ? 0 : w->pad_left};
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t how = cuda_desc_make(m, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cuda_desc_set(m, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    cuda_desc_set(m, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    cuda_desc_set(m, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    cuda_desc_set(m, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, spatial, pads);
    cuda_desc_set(m, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, spatial, pads);
    cuda_desc_set(m, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, spatial, ones);
    cuda_desc_set(m, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, spatial,
                  strides);
    cuda_desc_finalise(m, how, "the graph API's convolution");
    return how;
}

/* The side that is padded. */
static cudnnBackendDescriptor_t input(struct making *m, enum uid uid)
{
    return cuda_graph_stored(m, uid, cuda_conv_frame(m->p, m->node).outer);
}

static cudnnBackendDescriptor_t output(struct making *m, enum uid uid)
{
    return cuda_graph_stored(m, uid, cuda_grid(m->p, m->node->shape));
}

/* Its channels are those of a group: that is how cuDNN knows of groups. */
static cudnnBackendDescriptor_t filter(struct making *m, enum uid uid)
{
    const struct dpb_window *w = &m->node->window;
    const struct grid grid = {.n = m->node->shape.c,
                              .h = w->kernel_h,
                              .w = w->kernel_w,
                              .c = cuda_stored_shape(m->p, cuda_input(m->p, m->node, 0)).c /
                                   m->node->groups};
    return cuda_graph_stored(m, uid, grid);
}

/* The attributes of the three operations. */
struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t how, x, w, y, alpha, beta;
    enum uid x_uid, w_uid, y_uid;
};
static const struct operation operations[CONV_CALLS] = {
    [CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, UID_X, UID_W, UID_Y},
    [CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, UID_DX, UID_W, UID_DY},
    [CONV_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, UID_X, UID_DW, UID_DY}};

cudnnBackendDescriptor_t cuda_graph_conv(struct making *m, enum conv_call call,
                                         cudnnBackendDescriptor_t to)
{
    const struct operation *by = &operations[call];
    const float one = 1.0f, beta = m->kind->adds ? 1.0f : 0.0f;
    cudnnBackendDescriptor_t how = how_of(m);
    cudnnBackendDescriptor_t op = cuda_desc_make(m, by->type);
    cuda_desc_set_one(m, op, by->how, how);
    cuda_desc_set_one(m, op, by->x, to && call == CONV_DATA ? to : input(m, by->x_uid));
    cuda_desc_set_one(m, op, by->w, filter(m, by->w_uid));
    cuda_desc_set_one(m, op, by->y, to && call == CONV_FORWARD ? to : output(m, by->y_uid));
    cuda_desc_set(m, op, by->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    cuda_desc_set(m, op, by->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    cuda_desc_finalise(m, op, "the graph API's convolution");
    return op;
}

/* ---- graphs -------------------------------------------------------------------------------- */

cudnnBackendDescriptor_t cuda_graph_of(struct making *m, int64_t n,
                                       const cudnnBackendDescriptor_t *ops)
{
    cudnnBackendDescriptor_t made = cuda_desc_make(m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cuda_desc_set(m, made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
    cuda_desc_set(m, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &m->cudnn);
    cuda_desc_finalise(m, made, "the graph of a convolution");
    return made;
}

static cudnnBackendDescriptor_t alone(struct making *m, enum conv_call call)
{
    cudnnBackendDescriptor_t op = cuda_graph_conv(m, call, NULL);
    return cuda_graph_of(m, 1, &op);
}

static cudnnBackendDescriptor_t forward_graph(struct making *m)
{
    return alone(m, CONV_FORWARD);
}

static cudnnBackendDescriptor_t data_graph(struct making *m)
{
    return alone(m, CONV_DATA);
}

static cudnnBackendDescriptor_t weights_graph(struct making *m)
{
    return alone(m, CONV_WEIGHTS);
}

const struct conv_kind cuda_conv_kinds[CONV_CALLS] = {
    [CONV_FORWARD] = {"forward", forward_graph, .most = PLAN_CHOICES},
    [CONV_DATA] = {"data", data_graph, .most = PLAN_CHOICES},
    [CONV_WEIGHTS] = {"weights", weights_graph, .most = PLAN_CHOICES}};
const struct conv_kind cuda_conv_adding = {"data added to another", data_graph,
                                           .most = PLAN_CHOICES, .adds = true};
