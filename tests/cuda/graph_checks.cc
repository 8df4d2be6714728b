/*
 * graph_checks.cc - what the stand-in's graph API takes: tensors, operations and graphs that are as
 * they should be, and for which there is an engine. There is none for channels that do not fill 4
 * bytes, as in cuDNN, nor for sums that are not deterministic.
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
            d.attributes.count(CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
                d.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
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

static std::vector<const descriptor *> ops_of(const descriptor &graph)
{
    return graph.all<const descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
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
    const descriptor &conv = *ops_of(graph)[0];
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

/* Of a gradient with sums: whether a shortcut's gradient is added first. */
static bool joins(const std::vector<const descriptor *> &ops)
{
    return ops.size() == 8;
}

kind kind_of(const descriptor &graph)
{
    const size_t n = ops_of(graph).size();
    return n == 1 ? ALONE : n == 4 ? SUMS : GRADIENT;
}

pattern read_pattern(const descriptor &graph)
{
    const auto ops = ops_of(graph);
    return {read_convolution(graph), read(ops[2]->to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)),
            read(ops[1]->to(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)),
            read(ops[3]->to(CUDNN_ATTR_OPERATION_REDUCTION_YDESC))};
}

gradient read_gradient(const descriptor &graph)
{
    auto ops = ops_of(graph);
    std::vector<tensor> shortcut, joined;
    if (joins(ops)) {
        shortcut.push_back(read(ops[1]->to(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)));
        joined.push_back(read(ops[1]->to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)));
        ops.erase(ops.begin() + 1);
    }
    const descriptor &mask = *ops[1];
    return {read_convolution(graph),
            shortcut,
            joined,
            read(mask.to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
            read(mask.to(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC)),
            read(ops[2]->to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
            read(ops[2]->to(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)),
            read(ops[2]->to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)),
            read(ops[3]->to(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)),
            read(ops[3]->to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)),
            read(ops[5]->to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)),
            read(ops[4]->to(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)),
            read(ops[6]->to(CUDNN_ATTR_OPERATION_REDUCTION_YDESC))};
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

cudnnStatus_t check_pointwise(const descriptor &d)
{
    static const std::set<cudnnPointwiseMode_t> modes = {
        CUDNN_POINTWISE_ADD, CUDNN_POINTWISE_SUB, CUDNN_POINTWISE_MUL, CUDNN_POINTWISE_RELU_BWD};
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
    const bool masks = mode_of(d) == CUDNN_POINTWISE_RELU_BWD;
    if (d.has(CUDNN_ATTR_OPERATION_POINTWISE_YDESC) == masks ||
        d.has(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC) != masks ||
        d.has(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC) != masks ||
        d.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) == masks)
        return CUDNN_STATUS_BAD_PARAM;
    const auto dims = read(d.to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)).dims;
    bool same = read(d.to(masks ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                                : CUDNN_ATTR_OPERATION_POINTWISE_YDESC))
                    .dims == dims;
    if (masks)
        same = same && read(d.to(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC)).dims == dims;
    else {
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
    static const cudnnBackendDescriptorType_t types[] = {P, P, P, R, P, R};
    auto ops = ops_of(d);
    const descriptor *added = joins(ops) ? ops[1] : nullptr;
    if (added && (added->type != P || mode_of(*added) != CUDNN_POINTWISE_ADD))
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    if (added)
        ops.erase(ops.begin() + 1);
    if (ops.size() != 7 || call_of(*ops[0]) != DATA)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    for (size_t i = 1; i < 7; i++)
        if (ops[i]->type != types[i - 1])
            return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    if (mode_of(*ops[1]) != CUDNN_POINTWISE_RELU_BWD || mode_of(*ops[2]) != CUDNN_POINTWISE_SUB ||
        mode_of(*ops[3]) != CUDNN_POINTWISE_MUL || mode_of(*ops[5]) != CUDNN_POINTWISE_MUL)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    const gradient g = read_gradient(d);
    if (g.conv.adds)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    if (added && !is_operation(*added, CUDNN_POINTWISE_ADD, g.conv.x.desc, nullptr))
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    if (!is_operation(*ops[1], CUDNN_POINTWISE_RELU_BWD, nullptr,
                      added ? g.joined[0].desc : g.conv.x.desc) ||
        &ops[4]->to(CUDNN_ATTR_OPERATION_REDUCTION_XDESC) != g.dz.desc ||
        !is_operation(*ops[3], CUDNN_POINTWISE_MUL, g.centered.desc, nullptr) ||
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
        if (t->dims != g.conv.x.dims)
            return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    for (const tensor *t : g.channels())
        if (t->type != CUDNN_DATA_FLOAT ||
            t->dims != std::vector<int64_t>{1, g.conv.x.dims[1], 1, 1})
            return CUDNN_STATUS_BAD_PARAM;
    const size_t n = added ? 15 : 13;
    return ids.size() == n && all.size() == n ? CUDNN_STATUS_SUCCESS
                                              : CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
}

/* One descriptor a tensor: that is what connects operations. */
cudnnStatus_t check_sums(const descriptor &d)
{
    static const cudnnBackendDescriptorType_t P = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                                              R = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
    const auto ops = ops_of(d);
    if (ops.size() != 4 || ops[1]->type != R || ops[2]->type != P || ops[3]->type != R ||
        call_of(*ops[0]) != FORWARD)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    const pattern p = read_pattern(d);
    if (&ops[1]->to(CUDNN_ATTR_OPERATION_REDUCTION_XDESC) != p.conv.y.desc ||
        !is_operation(*ops[2], CUDNN_POINTWISE_MUL, p.conv.y.desc, p.conv.y.desc) ||
        &ops[3]->to(CUDNN_ATTR_OPERATION_REDUCTION_XDESC) != p.square.desc)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    if (!p.square.is_virtual || p.square.type != CUDNN_DATA_FLOAT)
        return CUDNN_STATUS_BAD_PARAM;
    std::set<int64_t> ids = {p.square.id};
    for (const tensor *t : p.stored()) {
        if (t->is_virtual)
            return CUDNN_STATUS_BAD_PARAM;
        ids.insert(t->id);
    }
    return ids.size() == 6 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
}

cudnnStatus_t check_alone(const descriptor &d)
{
    std::set<int64_t> ids;
    if (call_of(*ops_of(d)[0]) < 0)
        return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    const convolution c = read_convolution(d);
    for (const tensor *t : c.stored()) {
        if (t->is_virtual)
            return CUDNN_STATUS_BAD_PARAM;
        ids.insert(t->id);
    }
    return ids.size() == 3 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
}

cudnnStatus_t check_graph(const descriptor &d)
{
    if (!d.get<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    const kind is = kind_of(d);
    return is == ALONE ? check_alone(d) : is == SUMS ? check_sums(d) : check_gradient(d);
}

/* Of more than a convolution: channels last, that fill 4 bytes, and one group. */
bool has_engines_with_sums(const convolution &c, const std::vector<const tensor *> &stored)
{
    const int64_t element = c.y.type == CUDNN_DATA_FLOAT ? 4 : 2;
    for (const tensor *t : stored)
        if (t->align < 4)
            return false;
    return c.groups() == 1 && c.x.strides[1] == 1 && c.y.strides[1] == 1 &&
           c.x.dims[1] * element % 4 == 0 && c.y.dims[1] * element % 4 == 0;
}

bool same_types(const tensor &a, const std::vector<const tensor *> &others)
{
    for (const tensor *t : others)
        if (t->type != a.type)
            return false;
    return true;
}

bool has_engines(const descriptor &graph)
{
    if (kind_of(graph) == ALONE) {
        const convolution c = read_convolution(graph);
        return same_types(c.x, {&c.w, &c.y}) && !(c.adds && stand_in_broken("added"));
    }
    if (kind_of(graph) == SUMS) {
        const pattern p = read_pattern(graph);
        return same_types(p.conv.x, {&p.conv.w, &p.conv.y}) &&
               has_engines_with_sums(p.conv, p.stored());
    }
    const gradient g = read_gradient(graph);
    return same_types(g.conv.y, gradient::with({&g.conv.w, &g.y, &g.dz, &g.x}, g.shortcut)) &&
           has_engines_with_sums(g.conv, g.stored());
}

cudnnStatus_t check_heuristic(const descriptor &d)
{
    return has_engines(d.to(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH))
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
}

/* Of a configuration, or of a plan's text. */
cudnnStatus_t check_plan(descriptor &d)
{
    const bool remade = d.has(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    if (remade == d.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))
        return CUDNN_STATUS_BAD_PARAM;
    if (remade) {
        const auto text = d.all<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
        if (!take_text(d, std::string(text.begin(), text.end())))
            return CUDNN_STATUS_BAD_PARAM;
        d.get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)->plans++;
        return CUDNN_STATUS_SUCCESS;
    }
    const descriptor &config = d.to(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const bool compiles = kind_of(*config.graph) != ALONE || config.engine == COMPILED;
    if (config.engine == BROKEN || (config.engine == COMPILED && kind_of(*config.graph) != ALONE) ||
        (compiles && stand_in_broken("plan"))) {
        last_error = cudaErrorInvalidValue; /* as a library leaves it that has tried */
        return CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING;
    }
    if (compiles)
        stand_in_compile();
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
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        return check_pointwise(d);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return check_pointwise_operation(d);
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
        return check_reduction(d);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return check_reduction_operation(d);
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
