/*
 * graphs.cc - cuDNN's graph API without a GPU, for tests of the cuda device, by plain loops:
 * convolutions, in NHWC or NCHW. Strict: descriptors take the attributes that they have, in their
 * types and numbers, before they are finalised and never after; what they refer to is finalised
 * (graph_checks.cc); a plan gets exactly the tensors of its graph, aligned as was said.
 */
#include <set>

#include "graph_parts.h"

using namespace graphs;

namespace
{
/* An attribute as descriptors of a type have it. */
struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most; /* elements */
};

const cudnnBackendAttributeType_t DESC = CUDNN_TYPE_BACKEND_DESCRIPTOR;

#define RULE(of, name, type, least, most)                                                  \
    {                                                                                      \
        CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, least, most \
    }

const rule rules[] = {
    RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, 1),
    RULE(TENSOR, TENSOR_DIMENSIONS, INT64, 4, 4),
    RULE(TENSOR, TENSOR_STRIDES, INT64, 4, 4),
    RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, 1),
    RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, 1),
    RULE(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, 1),
    RULE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, 1),
    RULE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, 1),
    RULE(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 2, 2),
    RULE(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 2, 2),
    RULE(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 2, 2),
    RULE(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 2, 2),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_CONV_DESC, BACKEND_DESCRIPTOR,
         1, 1),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_X, BACKEND_DESCRIPTOR, 1, 1),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_W, BACKEND_DESCRIPTOR, 1, 1),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_Y, BACKEND_DESCRIPTOR, 1, 1),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_ALPHA, FLOAT, 1, 1),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_BETA, FLOAT, 1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         BACKEND_DESCRIPTOR, 1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA_DY, BACKEND_DESCRIPTOR,
         1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA_W, BACKEND_DESCRIPTOR,
         1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA_DX, BACKEND_DESCRIPTOR,
         1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA_ALPHA, FLOAT, 1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA_BETA, FLOAT, 1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         BACKEND_DESCRIPTOR, 1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER_DY,
         BACKEND_DESCRIPTOR, 1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER_DW,
         BACKEND_DESCRIPTOR, 1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER_X,
         BACKEND_DESCRIPTOR, 1, 1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, FLOAT, 1,
         1),
    RULE(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER_BETA, FLOAT, 1, 1),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, 1),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, 1),
    RULE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, 1),
    RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, 1),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, 1),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, 1),
    RULE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 1, 16),
    RULE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, 16),
    RULE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, 1),
};

#undef RULE

size_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
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

const rule *rule_of(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name)
{
    for (const rule &r : rules)
        if (r.of == of && r.name == name)
            return &r;
    return nullptr;
}

bool has_all(const descriptor &d)
{
    for (const rule &r : rules)
        if (r.of == d.type && !d.attributes.count(r.name))
            return false;
    return true;
}

/* ---- what attributes say ------------------------------------------------------------------- */

int64_t workspace_of(int engine)
{
    static const int64_t bytes[ENGINES] = {0, 0, 0, 70000, 0, 1000, 100000};
    return bytes[engine];
}

std::vector<cudnnBackendNumericalNote_t> notes_of(int engine)
{
    switch (engine) {
    case RANDOM:
        return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    case ROUGH:
        return {CUDNN_NUMERICAL_NOTE_WINOGRAD};
    case TENSOR:
        return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    default:
        return {};
    }
}

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
        const int of_a = stand_in_broken("heuristic") ? 0 : (int)ENGINES_OF_A;
        return answer(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, fallback ? (int)ENGINES_OF_A : 0,
                      fallback ? ENGINES - ENGINES_OF_A : of_a,
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
    if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE && type == CUDNN_TYPE_BEHAVIOR_NOTE &&
        d.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && most > 0) {
        const cudnnBackendBehaviorNote_t note = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
        *given = d.engine == COMPILED;
        memcpy(values, &note, (size_t)*given * sizeof note);
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && most == 1 &&
        d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        *given = 1;
        const int64_t bytes = workspace_of(d.engine);
        memcpy(values, &bytes, sizeof bytes);
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_BAD_PARAM;
}

/* What DPB_STAND_IN_BROKEN has fail. */
bool is_broken(const convolution &c, int engine)
{
    return c.which == FORWARD &&
           ((engine == PLAIN && stand_in_broken("forward")) || stand_in_broken("every"));
}

/* DPB_STAND_IN_INFINITE=N: the N-th gradient by weights of a convolution on GPU 1 is not finite. */
bool is_infinite(int gpu)
{
    static const char *text = getenv("DPB_STAND_IN_INFINITE");
    static long left = text ? atol(text) : -1;
    return gpu == 1 && left > 0 && --left == 0;
}

void enqueue(cudaStream_t stream, const convolution &c, int engine, const places &at,
             void *workspace, size_t bytes)
{
    static const char *const slow[] = {"forward", "data", "weights"};
    int gpu = 0;
    cudaGetDevice(&gpu);
    stand_in_enqueue(stream, [=] {
        stand_in_dawdle(slow[c.which]);
        if (bytes > 0)
            memset(workspace, 0xff, bytes);
        compute(c, engine, at, c.which == WEIGHTS && is_infinite(gpu));
    });
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
    if (!has_all(*d))
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
    const convolution conv = read_convolution(*plan->graph);
    const std::vector<const tensor *> wanted = conv.stored();
    const size_t bytes = (size_t)workspace_of(plan->engine);
    places at;
    for (size_t i = 0; i < ids.size(); i++)
        at[ids[i]] = pointers[i];
    std::set<void *> distinct(pointers.begin(), pointers.end());
    if (at.size() != wanted.size() || ids.size() != wanted.size() ||
        distinct.size() != wanted.size() || (bytes > 0 && !stand_in_has(workspace, bytes)))
        return CUDNN_STATUS_BAD_PARAM;
    for (const tensor *t : wanted) {
        const size_t element = t->type == CUDNN_DATA_FLOAT ? 4 : 2;
        if (!at.count(t->id) || !stand_in_has(at[t->id], t->count() * element))
            return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
        if (reinterpret_cast<uintptr_t>(at[t->id]) % (uintptr_t)t->align != 0)
            return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
    }
    if (plan->engine == RANDOM || plan->engine == ROUGH || plan->engine == COMPILED)
        return CUDNN_STATUS_EXECUTION_FAILED; /* the device has not read its notes */
    if (is_broken(conv, plan->engine))
        return CUDNN_STATUS_EXECUTION_FAILED;
    enqueue(handle->stream, conv, plan->engine, at, workspace, bytes);
    return CUDNN_STATUS_SUCCESS;
}
}
