/*
 * graph_checks.cc - what the stand-in's graph API takes: tensors, operations and graphs of one
 * convolution that are as they should be, and for which there is an engine.
 */
#include <set>

#include "graph_parts.h"

namespace graphs
{
namespace
{
tensor read(const descriptor &d)
{
    return {&d,
            d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
            d.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
            d.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
            d.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
            d.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES)};
}

cudnnStatus_t check_tensor(const descriptor &d)
{
    const tensor t = read(d);
    const std::vector<int64_t> n = t.dims;
    for (int64_t dim : n)
        if (dim < 1)
            return CUDNN_STATUS_BAD_PARAM;
    if (t.align < 1 || (t.align & (t.align - 1)) != 0)
        return CUDNN_STATUS_BAD_PARAM;
    if (t.strides != std::vector<int64_t>{n[1] * n[2] * n[3], 1, n[3] * n[1], n[1]} &&
        t.strides != std::vector<int64_t>{n[1] * n[2] * n[3], n[2] * n[3], n[3], 1})
        return CUDNN_STATUS_NOT_SUPPORTED_LAYOUT;
    return CUDNN_STATUS_SUCCESS;
}
} // namespace

/* The attributes of the three operations. */
static const struct names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t how, x, w, y, alpha, beta;
} operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

static const descriptor &operation_of(const descriptor &graph)
{
    return graph.to(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

/* -1: it is another operation. */
static int call_of(const descriptor &operation)
{
    for (int i = FORWARD; i <= WEIGHTS; i++)
        if (operations[i].type == operation.type)
            return i;
    return -1;
}

convolution read_convolution(const descriptor &graph)
{
    const descriptor &conv = operation_of(graph);
    const names &by = operations[call_of(conv)];
    const descriptor &how = conv.to(by.how);
    return {(call)call_of(conv),
            read(conv.to(by.x)),
            read(conv.to(by.w)),
            read(conv.to(by.y)),
            how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
            how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
            conv.get<float>(by.beta) == 1.0f};
}

namespace
{
cudnnStatus_t check_how(const descriptor &d)
{
    const auto ones = std::vector<int64_t>{1, 1};
    return d.get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
                   d.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) ==
                       CUDNN_CROSS_CORRELATION &&
                   d.get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2 &&
                   d.all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS) == ones &&
                   d.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) ==
                       d.all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t check_convolution(const descriptor &d)
{
    const names &by = operations[call_of(d)];
    const tensor x = read(d.to(by.x)), w = read(d.to(by.w)), y = read(d.to(by.y));
    const auto pads = d.to(by.how).all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
               strides = d.to(by.how).all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    if (x.dims[0] != y.dims[0] || x.dims[1] % w.dims[1] != 0 || y.dims[1] != w.dims[0] ||
        w.dims[0] % (x.dims[1] / w.dims[1]) != 0 || d.get<float>(by.alpha) != 1.0f ||
        (d.get<float>(by.beta) != 0.0f && (call_of(d) != DATA || d.get<float>(by.beta) != 1.0f)))
        return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < 2; i++) {
        const int64_t room = x.dims[2 + i] + 2 * pads[i] - w.dims[2 + i];
        if (pads[i] < 0 || strides[i] < 1 || room < 0 || room / strides[i] + 1 != y.dims[2 + i])
            return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_graph(const descriptor &d)
{
    std::set<int64_t> ids;
    if (!d.get<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (call_of(operation_of(d)) < 0)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    const convolution c = read_convolution(d);
    for (const tensor *t : c.stored())
        ids.insert(t->id);
    return ids.size() == 3 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
}

bool has_engines(const descriptor &graph)
{
    const convolution c = read_convolution(graph);
    return c.w.type == c.x.type && c.y.type == c.x.type && !(c.adds && stand_in_broken("added"));
}

cudnnStatus_t check_heuristic(const descriptor &d)
{
    return has_engines(d.to(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH))
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
}

cudnnStatus_t check_plan(descriptor &d)
{
    const descriptor &config = d.to(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (config.engine == BROKEN) {
        last_error = cudaErrorInvalidValue; /* as a library leaves it that has tried */
        return CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING;
    }
    d.engine = config.engine;
    d.graph = config.graph;
    d.get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)->plans++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_pack(const descriptor &d)
{
    return d.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() ==
                   d.all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size()
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_BAD_PARAM;
}
} // namespace

cudnnStatus_t check(descriptor &d)
{
    switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return check_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return check_how(d);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return check_convolution(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return check_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return check_heuristic(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return check_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return check_pack(d);
    default:
        return CUDNN_STATUS_BAD_PARAM;
    }
}
} // namespace graphs
