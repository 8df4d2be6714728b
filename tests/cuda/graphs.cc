/*
 * graphs.cc - cuDNN's graph API without a GPU, for tests of the cuda device, by plain loops: a
 * convolution forward whose result's statistics are made by GenStats; and one by its input, masked
 * by a ReLU's result, with the sums of the batch-norm's backward before it. Strict: descriptors
 * take the attributes that they have, in their types and numbers, before they are finalised and
 * never after; what they refer to is finalised; a plan gets exactly the tensors of its graph,
 * aligned as was said. Of what cuDNN's documentation has no engine for there is none here:
 * statistics of bf16, and channels that do not fill 4 bytes. Nor is there one for sums that are not
 * deterministic.
 */
#include <map>
#include <set>
#include <vector>

#include "cudnn_parts.h"

namespace
{
/* An attribute as descriptors of a type have it. */
struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most; /* elements; least 0: may be left out */
};

const cudnnBackendAttributeType_t DESC = CUDNN_TYPE_BACKEND_DESCRIPTOR;

const rule rules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, 4},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, 4},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 0, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
     1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
     CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1,
     1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2,
     2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64,
     2, 2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2,
     2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
     2, 2},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, 1},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
     1},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
     1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, DESC, 1,
     1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, DESC, 0,
     1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, DESC, 0,
     1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, DESC, 0,
     1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, DESC, 0,
     1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, 1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, 1},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
     CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
     1},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN,
     0, 1},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, DESC, 1,
     1},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, DESC, 1,
     1},
    {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_ATTR_OPERATION_GENSTATS_MODE,
     CUDNN_TYPE_GENSTATS_MODE, 1, 1},
    {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC,
     CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, DESC, 1, 1},
    {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, DESC, 1,
     1},
    {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, DESC, 1,
     1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, DESC, 1, 8},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
     1, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, DESC, 1, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
     1, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, DESC, 1, 1},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1,
     16},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
     CUDNN_TYPE_VOID_PTR, 1, 16},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
     1, 1},
};

size_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
        return 1;
    default:
        return 4;
    }
}

/* What can be made, and with nothing set by whoever calls: filled in by
 * cudnnBackendGetAttribute. */
bool is_answer(cudnnBackendDescriptorType_t type)
{
    return type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || type == CUDNN_BACKEND_ENGINE_DESCRIPTOR;
}

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool final = false;
    std::map<int, std::vector<unsigned char>> attributes;
    int engine = -1;                   /* of configurations, engines and plans */
    const descriptor *graph = nullptr; /* of these: what is computed */

    template <typename T> std::vector<T> all(cudnnBackendAttributeName_t name) const
    {
        const std::vector<unsigned char> &raw = attributes.at(name);
        std::vector<T> values(raw.size() / sizeof(T));
        memcpy(values.data(), raw.data(), raw.size());
        return values;
    }
    template <typename T> T get(cudnnBackendAttributeName_t name) const
    {
        T value;
        memcpy(&value, attributes.at(name).data(), sizeof value);
        return value;
    }
    const descriptor &to(cudnnBackendAttributeName_t name) const
    {
        return *get<const descriptor *>(name);
    }
    bool has(cudnnBackendAttributeName_t name) const
    {
        return attributes.count(name) > 0;
    }
};

const rule *rule_of(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name)
{
    for (const rule &r : rules)
        if (r.of == of && r.name == name)
            return &r;
    return nullptr;
}

/* ---- what tensors are ---------------------------------------------------------------------- */

struct tensor {
    const descriptor *desc;
    cudnnDataType_t type;
    int64_t id, align;
    bool is_virtual;
    std::vector<int64_t> dims;
    size_t count() const
    {
        return (size_t)(dims[0] * dims[1] * dims[2] * dims[3]);
    }
};

tensor read(const descriptor &d)
{
    return {&d,
            d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
            d.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
            d.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
            d.attributes.count(CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
                d.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
            d.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)};
}

cudnnStatus_t check_tensor(const descriptor &d)
{
    const tensor t = read(d);
    const std::vector<int64_t> n = t.dims, s = d.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    for (int64_t dim : n)
        if (dim < 1)
            return CUDNN_STATUS_BAD_PARAM;
    if (t.align < 1 || (t.align & (t.align - 1)) != 0)
        return CUDNN_STATUS_BAD_PARAM;
    if (s != std::vector<int64_t>{n[1] * n[2] * n[3], 1, n[3] * n[1], n[1]})
        return CUDNN_STATUS_NOT_SUPPORTED_LAYOUT;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- what graphs are ----------------------------------------------------------------------- */

/* A convolution and the statistics of its result, by way of `wide` where that has another type. */
struct pattern {
    tensor x, w, y, wide, sum, squares;
    std::vector<int64_t> pads, strides;
    bool widened;
};

pattern read_pattern(const descriptor &graph)
{
    const auto ops = graph.all<const descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const descriptor &conv = *ops[0], &stats = *ops.back();
    const descriptor &how = conv.to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    return {read(conv.to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X)),
            read(conv.to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W)),
            read(conv.to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)),
            read(stats.to(CUDNN_ATTR_OPERATION_GENSTATS_XDESC)),
            read(stats.to(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC)),
            read(stats.to(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC)),
            how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
            how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
            ops.size() == 3};
}

/* A convolution by its input, whose result is masked by y and stored as dz; the sums of dz, and of
 * dz times x less the mean times the inverse. */
struct gradient {
    tensor dy, w, dx, y, dz, x, mean, centered, inverse, normal, product, sum, products;
    std::vector<int64_t> pads, strides;

    std::vector<const tensor *> virtuals() const
    {
        return {&dx, &centered, &normal, &product};
    }
    std::vector<const tensor *> large() const
    {
        return {&y, &dz, &x, &dx, &centered, &normal, &product};
    }
    std::vector<const tensor *> channels() const
    {
        return {&mean, &inverse, &sum, &products};
    }
    std::vector<const tensor *> stored() const
    {
        return {&dy, &w, &y, &dz, &x, &mean, &inverse, &sum, &products};
    }
};

bool is_gradient(const descriptor &graph)
{
    return graph.all<const descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS)[0]->type ==
           CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
}

gradient read_gradient(const descriptor &graph)
{
    const auto ops = graph.all<const descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const descriptor &conv = *ops[0], &mask = *ops[1];
    const descriptor &how = conv.to(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
    return {read(conv.to(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY)),
            read(conv.to(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W)),
            read(conv.to(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX)),
            read(mask.to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
            read(mask.to(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC)),
            read(ops[3]->to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
            read(ops[3]->to(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)),
            read(ops[3]->to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)),
            read(ops[4]->to(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)),
            read(ops[4]->to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)),
            read(ops[5]->to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)),
            read(ops[2]->to(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)),
            read(ops[6]->to(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)),
            how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
            how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)};
}

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

/* x, y: of the side that is padded, and of the other. */
cudnnStatus_t check_shapes(const tensor &x, const tensor &w, const tensor &y, const descriptor &how,
                           float alpha, float beta)
{
    const auto pads = how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
               strides = how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    if (x.dims[0] != y.dims[0] || x.dims[1] != w.dims[1] || y.dims[1] != w.dims[0] ||
        alpha != 1.0f || beta != 0.0f)
        return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < 2; i++) {
        const int64_t room = x.dims[2 + i] + 2 * pads[i] - w.dims[2 + i];
        if (pads[i] < 0 || strides[i] < 1 || room < 0 || room / strides[i] + 1 != y.dims[2 + i])
            return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_convolution(const descriptor &d)
{
    return check_shapes(read(d.to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X)),
                        read(d.to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W)),
                        read(d.to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)),
                        d.to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
                        d.get<float>(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA),
                        d.get<float>(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA));
}

cudnnStatus_t check_convolution_data(const descriptor &d)
{
    return check_shapes(read(d.to(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX)),
                        read(d.to(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W)),
                        read(d.to(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY)),
                        d.to(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
                        d.get<float>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA),
                        d.get<float>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA));
}

cudnnStatus_t check_pointwise(const descriptor &d)
{
    static const std::set<cudnnPointwiseMode_t> modes = {CUDNN_POINTWISE_IDENTITY,
                                                         CUDNN_POINTWISE_SUB, CUDNN_POINTWISE_MUL,
                                                         CUDNN_POINTWISE_RELU_BWD};
    return modes.count(d.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)) &&
                   d.get<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC) == CUDNN_DATA_FLOAT
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnPointwiseMode_t mode_of(const descriptor &d)
{
    return d.to(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
        .get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
}

/* A mode's operands are there, and no others; b may be one value a channel. */
cudnnStatus_t check_pointwise_operation(const descriptor &d)
{
    const bool masks = mode_of(d) == CUDNN_POINTWISE_RELU_BWD,
               alone = mode_of(d) == CUDNN_POINTWISE_IDENTITY;
    if (d.has(CUDNN_ATTR_OPERATION_POINTWISE_YDESC) == masks ||
        d.has(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC) != masks ||
        d.has(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC) != masks ||
        d.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) != (!masks && !alone))
        return CUDNN_STATUS_BAD_PARAM;
    const auto dims = read(d.to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)).dims;
    bool same = read(d.to(masks ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                                : CUDNN_ATTR_OPERATION_POINTWISE_YDESC))
                    .dims == dims;
    if (masks)
        same = same && read(d.to(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC)).dims == dims;
    else if (!alone) {
        const auto b = read(d.to(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)).dims;
        same = same && (b == dims || b == std::vector<int64_t>{1, dims[1], 1, 1});
    }
    return same ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
}

cudnnStatus_t check_reduction(const descriptor &d)
{
    return d.get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD &&
                   d.get<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
                   d.has(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC) &&
                   d.get<bool>(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC)
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t check_reduction_operation(const descriptor &d)
{
    const tensor x = read(d.to(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)),
                 y = read(d.to(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    return y.dims == std::vector<int64_t>{1, x.dims[1], 1, 1} && y.type == CUDNN_DATA_FLOAT
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t check_statistics(const descriptor &d)
{
    const tensor x = read(d.to(CUDNN_ATTR_OPERATION_GENSTATS_XDESC));
    const std::vector<int64_t> channels = {1, x.dims[1], 1, 1};
    for (auto name :
         {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC}) {
        const tensor t = read(d.to(name));
        if (t.dims != channels || t.type != CUDNN_DATA_FLOAT)
            return CUDNN_STATUS_BAD_PARAM;
    }
    return d.get<cudnnGenStatsMode_t>(CUDNN_ATTR_OPERATION_GENSTATS_MODE) ==
                       CUDNN_GENSTATS_SUM_SQSUM &&
                   d.get<cudnnDataType_t>(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC) ==
                       CUDNN_DATA_FLOAT
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_BAD_PARAM;
}

bool is_operation(const descriptor &d, cudnnPointwiseMode_t mode, const descriptor *x,
                  const descriptor *b)
{
    return mode_of(d) == mode && (!x || &d.to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC) == x) &&
           (!b ||
            &d.to(mode == CUDNN_POINTWISE_RELU_BWD ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                                                   : CUDNN_ATTR_OPERATION_POINTWISE_BDESC) == b);
}

cudnnStatus_t check_gradient(const descriptor &d)
{
    static const cudnnBackendDescriptorType_t P = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                                              R = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
    static const cudnnBackendDescriptorType_t types[] = {P, R, P, P, P, R};
    const auto ops = d.all<const descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (ops.size() != 7)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    for (size_t i = 1; i < 7; i++)
        if (ops[i]->type != types[i - 1])
            return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    if (mode_of(*ops[1]) != CUDNN_POINTWISE_RELU_BWD || mode_of(*ops[3]) != CUDNN_POINTWISE_SUB ||
        mode_of(*ops[4]) != CUDNN_POINTWISE_MUL || mode_of(*ops[5]) != CUDNN_POINTWISE_MUL)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    const gradient g = read_gradient(d);
    if (!is_operation(*ops[1], CUDNN_POINTWISE_RELU_BWD, nullptr, g.dx.desc) ||
        &ops[2]->to(CUDNN_ATTR_OPERATION_REDUCTION_XDESC) != g.dz.desc ||
        !is_operation(*ops[4], CUDNN_POINTWISE_MUL, g.centered.desc, nullptr) ||
        !is_operation(*ops[5], CUDNN_POINTWISE_MUL, g.dz.desc, g.normal.desc) ||
        &ops[6]->to(CUDNN_ATTR_OPERATION_REDUCTION_XDESC) != g.product.desc)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    std::set<int64_t> ids;
    std::set<const descriptor *> all;
    for (const tensor *t : g.virtuals()) {
        if (!t->is_virtual || t->type != CUDNN_DATA_FLOAT)
            return CUDNN_STATUS_BAD_PARAM;
        ids.insert(t->id);
        all.insert(t->desc);
    }
    for (const tensor *t : g.stored()) {
        if (t->is_virtual)
            return CUDNN_STATUS_BAD_PARAM;
        ids.insert(t->id);
        all.insert(t->desc);
    }
    for (const tensor *t : g.large())
        if (t->dims != g.dx.dims)
            return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    for (const tensor *t : g.channels())
        if (t->type != CUDNN_DATA_FLOAT || t->dims != std::vector<int64_t>{1, g.dx.dims[1], 1, 1})
            return CUDNN_STATUS_BAD_PARAM;
    return ids.size() == 13 && all.size() == 13 ? CUDNN_STATUS_SUCCESS
                                                : CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
}

/* One descriptor a tensor: that is what connects operations. */
cudnnStatus_t check_graph(const descriptor &d)
{
    const auto ops = d.all<const descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (!d.get<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (is_gradient(d))
        return check_gradient(d);
    if (ops.size() < 2 || ops.size() > 3 ||
        ops[0]->type != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
        ops.back()->type != CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    const pattern p = read_pattern(d);
    const descriptor *from = p.y.desc;
    if (p.widened) {
        if (ops[1]->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
            mode_of(*ops[1]) != CUDNN_POINTWISE_IDENTITY ||
            &ops[1]->to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != from)
            return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
        from = &ops[1]->to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    }
    std::map<int64_t, const descriptor *> seen;
    for (const tensor *t : {&p.x, &p.w, &p.y, &p.wide, &p.sum, &p.squares}) {
        if (t->is_virtual != (p.widened && t == &p.wide))
            return CUDNN_STATUS_BAD_PARAM;
        if (seen.count(t->id) && seen[t->id] != t->desc)
            return CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
        seen[t->id] = t->desc;
    }
    return p.wide.desc == from && seen.size() == (p.widened ? 6 : 5) ? CUDNN_STATUS_SUCCESS
                                                                     : CUDNN_STATUS_BAD_PARAM;
}

/* ---- engines ------------------------------------------------------------------------------- */

/* In the order of heuristic A: not deterministic; of which no plan can be made; tensor cores;
 * adding in the narrow type; without tensor cores. Then the fallback: likewise, with more to
 * work with. */
enum { RANDOM, BROKEN, TENSOR, ROUGH, PLAIN, ENGINES_OF_A, LARGE = ENGINES_OF_A, ENGINES };

int64_t workspace_of(const descriptor &graph, int engine)
{
    static const int64_t bytes[ENGINES] = {0, 0, 3000, 0, 2500, 200000};
    return bytes[engine] > 0 && is_gradient(graph) ? bytes[engine] + 200 : bytes[engine];
}

std::vector<cudnnBackendNumericalNote_t> notes_of(int engine)
{
    switch (engine) {
    case RANDOM:
        return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    case ROUGH:
        return {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
    case TENSOR:
        return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    default:
        return {};
    }
}

bool has_engines_of_gradient(const gradient &g)
{
    const size_t element = g.dy.type == CUDNN_DATA_FLOAT ? 4 : 2;
    for (const tensor *t : {&g.w, &g.y, &g.dz, &g.x})
        if (t->type != g.dy.type)
            return false;
    for (const tensor *t : g.stored())
        if (t->align < 4)
            return false;
    return g.dy.dims[1] * element % 4 == 0 && g.dx.dims[1] * element % 4 == 0;
}

bool has_engines(const descriptor &graph)
{
    if (is_gradient(graph))
        return has_engines_of_gradient(read_gradient(graph));
    const pattern p = read_pattern(graph);
    const size_t element = p.x.type == CUDNN_DATA_FLOAT ? 4 : 2;
    const bool types = p.x.type == p.w.type && p.x.type == p.y.type &&
                       p.wide.type != CUDNN_DATA_BFLOAT16 &&
                       (!p.widened || p.wide.type == CUDNN_DATA_FLOAT);
    return types && p.x.dims[1] * element % 4 == 0 && p.y.dims[1] * element % 4 == 0 &&
           p.x.align >= 4 && p.w.align >= 4 && p.y.align >= 4;
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
    if (config.engine == BROKEN)
        return CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING;
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

cudnnStatus_t check(descriptor &d)
{
    switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return check_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return check_how(d);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return check_convolution(d);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        return check_pointwise(d);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return check_pointwise_operation(d);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return check_convolution_data(d);
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
        return check_reduction(d);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return check_reduction_operation(d);
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
        return check_statistics(d);
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

/* ---- what attributes say ------------------------------------------------------------------- */

/* Fills the caller's descriptors in: configurations of a heuristic, the engine of one of these. */
cudnnStatus_t answer(cudnnBackendDescriptorType_t type, int first, int n, const descriptor *graph,
                     int64_t most, int64_t *given, void *values)
{
    descriptor **to = static_cast<descriptor **>(values);
    *given = most == 0 ? n : most < n ? most : n;
    for (int64_t i = 0; i < *given && most > 0; i++) {
        if (!to || !to[i] || to[i]->type != type || to[i]->final)
            return CUDNN_STATUS_BAD_PARAM;
        to[i]->engine = first + (int)i;
        to[i]->graph = graph;
        to[i]->final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get(const descriptor &d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t most, int64_t *given, void *values)
{
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == DESC &&
        d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
        const auto mode = d.get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
        const bool fallback = mode == CUDNN_HEUR_MODE_FALLBACK;
        return answer(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, fallback ? (int)ENGINES_OF_A : 0,
                      fallback ? ENGINES - ENGINES_OF_A : (int)ENGINES_OF_A,
                      &d.to(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), most, given, values);
    }
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == DESC &&
        d.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
        return answer(CUDNN_BACKEND_ENGINE_DESCRIPTOR, d.engine, 1, d.graph, most, given, values);
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE &&
        d.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
        const auto notes = notes_of(d.engine);
        *given = (int64_t)notes.size() < most ? (int64_t)notes.size() : most;
        memcpy(values, notes.data(), (size_t)*given * sizeof notes[0]);
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && most == 1 &&
        d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        *given = 1;
        const int64_t bytes = workspace_of(*d.graph, d.engine);
        memcpy(values, &bytes, sizeof bytes);
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_BAD_PARAM;
}

/* ---- computing ----------------------------------------------------------------------------- */

/* A tensor's values as they are multiplied. */
std::vector<float> values_of(const tensor &t, const void *data, bool cut)
{
    std::vector<float> values(t.count());
    for (size_t i = 0; i < values.size(); i++) {
        const float value = load(t.type, data, i);
        values[i] = cut && t.type == CUDNN_DATA_FLOAT ? tf32(value) : value;
    }
    return values;
}

double pixel(const pattern &p, const std::vector<float> &x, const std::vector<float> &w,
             const int64_t at[4])
{
    const std::vector<int64_t> &xd = p.x.dims, &wd = p.w.dims;
    double sum = 0;
    for (int64_t r = 0; r < wd[2]; r++) {
        const int64_t h = at[2] * p.strides[0] + r - p.pads[0];
        for (int64_t s = 0; s < wd[3] && h >= 0 && h < xd[2]; s++) {
            const int64_t v = at[3] * p.strides[1] + s - p.pads[1];
            if (v < 0 || v >= xd[3])
                continue;
            const float *from = &x[(size_t)(((at[0] * xd[2] + h) * xd[3] + v) * xd[1])];
            const float *by = &w[(size_t)(((at[1] * wd[2] + r) * wd[3] + s) * wd[1])];
            for (int64_t c = 0; c < xd[1]; c++)
                sum += (double)from[c] * by[c];
        }
    }
    return sum;
}

/* The statistics are of y as it is stored; sums are fp32's, a few values at a time. */
void compute(const pattern &p, int engine, const std::map<int64_t, void *> &at)
{
    const std::vector<float> x = values_of(p.x, at.at(p.x.id), engine == TENSOR);
    const std::vector<float> w = values_of(p.w, at.at(p.w.id), engine == TENSOR);
    const std::vector<int64_t> &d = p.y.dims;
    void *y = at.at(p.y.id);
    float *sums = static_cast<float *>(at.at(p.sum.id));
    float *squares = static_cast<float *>(at.at(p.squares.id));
    for (int64_t k = 0; k < d[1]; k++) {
        float total[2] = {0, 0};
        for (int64_t n = 0; n < d[0]; n++)
            for (int64_t h = 0; h < d[2]; h++) {
                float row[2] = {0, 0};
                for (int64_t v = 0; v < d[3]; v++) {
                    const int64_t place[4] = {n, k, h, v};
                    const size_t i = (size_t)(((n * d[2] + h) * d[3] + v) * d[1] + k);
                    store(p.y.type, y, i, pixel(p, x, w, place));
                    const float value = load(p.y.type, y, i);
                    row[0] += value;
                    row[1] += value * value;
                }
                total[0] += row[0];
                total[1] += row[1];
            }
        sums[k] = total[0];
        squares[k] = total[1];
    }
}

/* The gradient by one element of the input. */
double gradient_of_pixel(const gradient &g, const std::vector<float> &dy,
                         const std::vector<float> &w, const int64_t at[4])
{
    const std::vector<int64_t> &yd = g.dy.dims, &wd = g.w.dims;
    double sum = 0;
    for (int64_t r = 0; r < wd[2]; r++) {
        const int64_t h = at[2] + g.pads[0] - r;
        if (h < 0 || h % g.strides[0] != 0 || h / g.strides[0] >= yd[2])
            continue;
        for (int64_t s = 0; s < wd[3]; s++) {
            const int64_t v = at[3] + g.pads[1] - s;
            if (v < 0 || v % g.strides[1] != 0 || v / g.strides[1] >= yd[3])
                continue;
            const float *from = &dy[(
                size_t)(((at[0] * yd[2] + h / g.strides[0]) * yd[3] + v / g.strides[1]) * yd[1])];
            for (int64_t k = 0; k < yd[1]; k++)
                sum += (double)from[k] * w[(size_t)(((k * wd[2] + r) * wd[3] + s) * wd[1] + at[1])];
        }
    }
    return sum;
}

/* The sums are of dz as it is stored, in fp32, a few values at a time. */
void compute_gradient(const gradient &g, int engine, const std::map<int64_t, void *> &at)
{
    const std::vector<float> dy = values_of(g.dy, at.at(g.dy.id), engine == TENSOR);
    const std::vector<float> w = values_of(g.w, at.at(g.w.id), engine == TENSOR);
    const std::vector<float> y = values_of(g.y, at.at(g.y.id), false);
    const std::vector<float> x = values_of(g.x, at.at(g.x.id), false);
    const float *mean = static_cast<float *>(at.at(g.mean.id));
    const float *inverse = static_cast<float *>(at.at(g.inverse.id));
    float *sums = static_cast<float *>(at.at(g.sum.id));
    float *products = static_cast<float *>(at.at(g.products.id));
    const std::vector<int64_t> &d = g.dx.dims;
    void *dz = at.at(g.dz.id);
    for (int64_t c = 0; c < d[1]; c++) {
        float total[2] = {0, 0};
        for (int64_t n = 0; n < d[0]; n++)
            for (int64_t h = 0; h < d[2]; h++) {
                float row[2] = {0, 0};
                for (int64_t v = 0; v < d[3]; v++) {
                    const int64_t place[4] = {n, c, h, v};
                    const size_t i = (size_t)(((n * d[2] + h) * d[3] + v) * d[1] + c);
                    store(g.dz.type, dz, i, y[i] > 0 ? gradient_of_pixel(g, dy, w, place) : 0.0);
                    const float value = load(g.dz.type, dz, i);
                    row[0] += value;
                    row[1] += value * ((x[i] - mean[c]) * inverse[c]);
                }
                total[0] += row[0];
                total[1] += row[1];
            }
        sums[c] = total[0];
        products[c] = total[1];
    }
}

/* Of a graph: what its variant packs give. */
std::vector<tensor> given(const descriptor &graph)
{
    std::vector<tensor> all;
    if (is_gradient(graph)) {
        const gradient g = read_gradient(graph);
        for (const tensor *t : g.stored())
            all.push_back(*t);
    } else {
        const pattern p = read_pattern(graph);
        all = {p.x, p.w, p.y, p.sum, p.squares};
    }
    return all;
}
} // namespace

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *made)
{
    bool known = is_answer(type);
    for (const rule &r : rules)
        known = known || r.of == type;
    if (!known || !made)
        return CUDNN_STATUS_BAD_PARAM;
    descriptor *d = new descriptor();
    d->type = type;
    *made = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t desc)
{
    descriptor *d = static_cast<descriptor *>(desc);
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && d->final)
        d->get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)->plans--;
    delete d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t desc,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    descriptor *d = static_cast<descriptor *>(desc);
    if (!d || !values)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    const rule *r = rule_of(d->type, name);
    if (!r || d->final || n < 1 || n < r->least || n > r->most)
        return CUDNN_STATUS_BAD_PARAM;
    if (type != r->type)
        return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
    for (int64_t i = 0; type == DESC && i < n; i++) {
        const descriptor *other = static_cast<descriptor *const *>(values)[i];
        if (!other || !other->final)
            return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
    const unsigned char *raw = static_cast<const unsigned char *>(values);
    d->attributes[name].assign(raw, raw + (size_t)n * bytes_of(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const desc,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t *given, void *values)
{
    const descriptor *d = static_cast<const descriptor *>(desc);
    if (!d || !given)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    return d->final ? get(*d, name, type, most, given, values)
                    : CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t desc)
{
    descriptor *d = static_cast<descriptor *>(desc);
    if (!d || d->final || is_answer(d->type))
        return CUDNN_STATUS_BAD_PARAM;
    for (const rule &r : rules)
        if (r.of == d->type && r.least > 0 && !d->attributes.count(r.name))
            return CUDNN_STATUS_BAD_PARAM;
    const cudnnStatus_t status = check(*d);
    d->final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_desc,
                                  cudnnBackendDescriptor_t pack_desc)
{
    const descriptor *plan = static_cast<descriptor *>(plan_desc);
    const descriptor *pack = static_cast<descriptor *>(pack_desc);
    if (!plan || !pack || !plan->final || !pack->final ||
        plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR ||
        plan->get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != handle)
        return CUDNN_STATUS_BAD_PARAM;
    const auto ids = pack->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = pack->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    void *workspace = pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    const std::vector<tensor> wanted = given(*plan->graph);
    const size_t bytes = (size_t)workspace_of(*plan->graph, plan->engine);
    std::map<int64_t, void *> at;
    for (size_t i = 0; i < ids.size(); i++)
        at[ids[i]] = pointers[i];
    std::set<void *> distinct(pointers.begin(), pointers.end());
    if (at.size() != wanted.size() || ids.size() != wanted.size() ||
        distinct.size() != wanted.size() || (bytes > 0 && !stand_in_has(workspace, bytes)))
        return CUDNN_STATUS_BAD_PARAM;
    for (const tensor &t : wanted) {
        const size_t element = t.type == CUDNN_DATA_FLOAT ? 4 : 2;
        if (!at.count(t.id) || !stand_in_has(at[t.id], t.count() * element))
            return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
        if (reinterpret_cast<uintptr_t>(at[t.id]) % (uintptr_t)t.align != 0)
            return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
    }
    if (plan->engine == RANDOM || plan->engine == ROUGH || stand_in_broken("graph"))
        return CUDNN_STATUS_EXECUTION_FAILED; /* the device has not read its notes */
    const int engine = plan->engine;
    const bool backward = is_gradient(*plan->graph);
    const gradient g = backward ? read_gradient(*plan->graph) : gradient();
    const pattern p = backward ? pattern() : read_pattern(*plan->graph);
    stand_in_enqueue(handle->stream, [=] {
        stand_in_dawdle(backward ? "graph_data" : "graph");
        memset(workspace, 0xff, bytes);
        if (backward)
            compute_gradient(g, engine, at);
        else
            compute(p, engine, at);
    });
    return CUDNN_STATUS_SUCCESS;
}
}
