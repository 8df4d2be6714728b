/*
 * conv_graph_plans.c - the graphs of convolutions with sums (conv_graph.c), in cuDNN's descriptors,
 * and the plans that its engines offer for them.
 *
 * Of cuDNN's engines only those are taken that give equal bits for equal inputs, add in fp32, and
 * multiply as run.precision says. A plan is finalised, which may compile its kernel, when the
 * program is planned: how much it needs to work with is known then. It is kept (plan_file.h), and
 * the next process makes it of what was kept.
 */
#include <stdio.h>
#include <stdlib.h>

#include "conv_graph.h"
#include "plan_file.h"

enum { RESULTS = 16 };
/* Bytes. Core's own weights, where they are not packed, lie so as well (DPB_TENSOR_ALIGN). */
enum { PLAN_ALIGN = 16 };

/* The making of a node's plans. Once a call has failed nothing more is done until `status` is
 * cleared. */
struct making {
    const struct program *p;
    const struct dpb_node *node;
    enum fused_call call;
    struct fused *fused;
    cudnnStatus_t status;
    char why[160];   /* of the first call that did not just say that it has nothing */
    bool unexpected; /* there was one */
    int n_seen;      /* engines' configurations that would do */
    int only;        /* the one of them that is wanted; -1: the best */
    uint32_t most;   /* plans */
};

/* ---- descriptors --------------------------------------------------------------------------- */

static void note(struct making *m, cudnnStatus_t status, const char *call)
{
    if (status == CUDNN_STATUS_SUCCESS || m->status != CUDNN_STATUS_SUCCESS)
        return;
    const bool nothing = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
    m->status = status;
    if (m->unexpected || (nothing && m->why[0]))
        return;
    m->unexpected = !nothing;
    snprintf(m->why, sizeof m->why, "%s gave %s", call, cudnnGetErrorString(status));
}

/* NULL where there is none. It goes with the plans. */
static cudnnBackendDescriptor_t make(struct making *m, cudnnBackendDescriptorType_t type)
{
    struct fused *fused = m->fused;
    cudnnBackendDescriptor_t desc = NULL;
    if (m->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (fused->n_made % 64 == 0) {
        void *more = realloc(fused->made, (fused->n_made + 64) * sizeof *fused->made);
        if (!more) {
            note(m, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "realloc");
            return NULL;
        }
        fused->made = more;
    }
    note(m, cudnnBackendCreateDescriptor(type, &desc), "cudnnBackendCreateDescriptor");
    if (m->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    fused->made[fused->n_made++] = desc;
    return desc;
}

static void set(struct making *m, cudnnBackendDescriptor_t desc, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (m->status == CUDNN_STATUS_SUCCESS)
        note(m, cudnnBackendSetAttribute(desc, name, type, n, values), "cudnnBackendSetAttribute");
}

static void set_one(struct making *m, cudnnBackendDescriptor_t desc,
                    cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other)
{
    set(m, desc, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

static void finalise(struct making *m, cudnnBackendDescriptor_t desc, const char *what)
{
    if (m->status == CUDNN_STATUS_SUCCESS)
        note(m, cudnnBackendFinalize(desc), what);
}

/* `grid` in NHWC, packed; not `stored`: a value on its way between operations. */
static cudnnBackendDescriptor_t tensor(struct making *m, enum uid uid, cudnnDataType_t type,
                                       struct grid grid, int64_t align, bool stored)
{
    const int64_t id = uid, n = grid.n, c = grid.c, h = grid.h, w = grid.w;
    const int64_t dims[] = {n, c, h, w}, strides[] = {h * w * c, 1, w * c, c};
    const bool is_virtual = !stored;
    cudnnBackendDescriptor_t desc = make(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(m, desc, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(m, desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(m, desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(m, desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(m, desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    set(m, desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    finalise(m, desc, "the graph API's tensor");
    return desc;
}

/* ---- the graph ----------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t convolution_how(struct making *m)
{
    const struct dpb_window *w = &m->node->window;
    const bool framed = cuda_conv_framed(cuda_plan(m->p, m->node)->conv);
    const int64_t spatial = 2, ones[] = {1, 1}, strides[] = {w->stride_h, w->stride_w};
    const int64_t pads[] = {framed ? 0 : w->pad_top, framed ? 0 : w->pad_left};
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t how = make(m, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(m, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(m, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(m, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    set(m, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, spatial, pads);
    set(m, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, spatial, pads);
    set(m, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, spatial, ones);
    set(m, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, spatial, strides);
    finalise(m, how, "the graph API's convolution");
    return how;
}

static cudnnBackendDescriptor_t filter(struct making *m)
{
    const struct dpb_window *w = &m->node->window;
    const struct grid grid = {.n = m->node->shape.c,
                              .h = w->kernel_h,
                              .w = w->kernel_w,
                              .c = cuda_input(m->p, m->node, 0)->shape.c};
    return tensor(m, UID_W, cuda_cudnn_type(m->p), grid, PLAN_ALIGN, true);
}

static cudnnBackendDescriptor_t convolution(struct making *m, cudnnBackendDescriptor_t y)
{
    const struct grid outer = cuda_plan(m->p, m->node)->conv->frame.outer;
    const float one = 1.0f, zero = 0.0f;
    cudnnBackendDescriptor_t how = convolution_how(m);
    cudnnBackendDescriptor_t op = make(m, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set_one(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how);
    set_one(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            tensor(m, UID_X, cuda_cudnn_type(m->p), outer, PLAN_ALIGN, true));
    set_one(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, filter(m));
    set_one(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    set(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    finalise(m, op, "the graph API's forward convolution");
    return op;
}

/* a and b, to `to`. */
static cudnnBackendDescriptor_t pointwise(struct making *m, cudnnPointwiseMode_t mode,
                                          cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                                          cudnnBackendDescriptor_t to)
{
    const bool masks = mode == CUDNN_POINTWISE_RELU_BWD; /* b by a */
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = make(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(m, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(m, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalise(m, how, "the graph API's pointwise mode");
    cudnnBackendDescriptor_t op = make(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_one(m, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_one(m, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a);
    set_one(m, op,
            masks ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            b);
    set_one(m, op,
            masks ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
            to);
    finalise(m, op, "the graph API's pointwise operation");
    return op;
}

/* Of all pixels of a channel. */
static cudnnBackendDescriptor_t addition(struct making *m, cudnnBackendDescriptor_t of,
                                         cudnnBackendDescriptor_t to)
{
    const cudnnReduceTensorOp_t mode = CUDNN_REDUCE_TENSOR_ADD;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const bool deterministic = true;
    cudnnBackendDescriptor_t how = make(m, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(m, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(m, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(m, how, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, 1, &deterministic);
    finalise(m, how, "the graph API's deterministic addition");
    cudnnBackendDescriptor_t op = make(m, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_one(m, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_one(m, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, of);
    set_one(m, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to);
    finalise(m, op, "the graph API's reduction");
    return op;
}

static cudnnBackendDescriptor_t graph_of(struct making *m, int64_t n,
                                         const cudnnBackendDescriptor_t *ops)
{
    cudnnBackendDescriptor_t made = make(m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(m, made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
    set(m, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &m->p->device->cudnn);
    finalise(m, made, "the graph of a convolution and its sums");
    return made;
}

static cudnnBackendDescriptor_t forward_graph(struct making *m)
{
    const struct grid grid = cuda_grid(m->p, m->node->shape);
    const struct grid channels = {.n = 1, .h = 1, .w = 1, .c = grid.c};
    const cudnnDataType_t wide = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t y = tensor(m, UID_Y, cuda_cudnn_type(m->p), grid, PLAN_ALIGN, true);
    cudnnBackendDescriptor_t product = tensor(m, UID_PRODUCT, wide, grid, PLAN_ALIGN, false);
    cudnnBackendDescriptor_t sum = tensor(m, UID_SUM, wide, channels, PLAN_ALIGN, true);
    cudnnBackendDescriptor_t products = tensor(m, UID_PRODUCTS, wide, channels, PLAN_ALIGN, true);
    const cudnnBackendDescriptor_t ops[] = {convolution(m, y), addition(m, y, sum),
                                            pointwise(m, CUDNN_POINTWISE_MUL, y, y, product),
                                            addition(m, product, products)};
    return graph_of(m, sizeof ops / sizeof ops[0], ops);
}

static cudnnBackendDescriptor_t convolution_data(struct making *m, cudnnBackendDescriptor_t dx)
{
    const struct grid grid = cuda_grid(m->p, m->node->shape);
    const float one = 1.0f, zero = 0.0f;
    cudnnBackendDescriptor_t how = convolution_how(m);
    cudnnBackendDescriptor_t op =
        make(m, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    set_one(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, how);
    set_one(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            tensor(m, UID_DY, cuda_cudnn_type(m->p), grid, PLAN_ALIGN, true));
    set_one(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, filter(m));
    set_one(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx);
    set(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    finalise(m, op, "the graph API's convolution by its input");
    return op;
}

static cudnnBackendDescriptor_t data_graph(struct making *m)
{
    const struct grid grid = cuda_grid(m->p, cuda_input(m->p, m->node, 0)->shape);
    const struct grid channels = {.n = 1, .h = 1, .w = 1, .c = grid.c};
    const cudnnDataType_t type = cuda_cudnn_type(m->p), wide = CUDNN_DATA_FLOAT;
    /* The inverse lies behind the mean. */
    const int64_t align = grid.c % 4 == 0 ? PLAN_ALIGN : (int64_t)sizeof(float);
    cudnnBackendDescriptor_t dx = tensor(m, UID_DX, wide, grid, PLAN_ALIGN, false);
    cudnnBackendDescriptor_t y = tensor(m, UID_Y, type, grid, PLAN_ALIGN, true);
    cudnnBackendDescriptor_t x = tensor(m, UID_X, type, grid, PLAN_ALIGN, true);
    cudnnBackendDescriptor_t dz = tensor(m, UID_DZ, type, grid, PLAN_ALIGN, true);
    cudnnBackendDescriptor_t mean = tensor(m, UID_MEAN, wide, channels, align, true);
    cudnnBackendDescriptor_t inverse = tensor(m, UID_INVERSE, wide, channels, align, true);
    cudnnBackendDescriptor_t centered = tensor(m, UID_CENTERED, wide, grid, PLAN_ALIGN, false);
    cudnnBackendDescriptor_t normal = tensor(m, UID_NORMAL, wide, grid, PLAN_ALIGN, false);
    cudnnBackendDescriptor_t product = tensor(m, UID_PRODUCT, wide, grid, PLAN_ALIGN, false);
    cudnnBackendDescriptor_t sum = tensor(m, UID_SUM, wide, channels, PLAN_ALIGN, true);
    cudnnBackendDescriptor_t products = tensor(m, UID_PRODUCTS, wide, channels, PLAN_ALIGN, true);
    const cudnnBackendDescriptor_t ops[] = {
        convolution_data(m, dx),
        pointwise(m, CUDNN_POINTWISE_RELU_BWD, y, dx, dz),
        addition(m, dz, sum),
        pointwise(m, CUDNN_POINTWISE_SUB, x, mean, centered),
        pointwise(m, CUDNN_POINTWISE_MUL, centered, inverse, normal),
        pointwise(m, CUDNN_POINTWISE_MUL, dz, normal, product),
        addition(m, product, products)};
    return graph_of(m, sizeof ops / sizeof ops[0], ops);
}

/* ---- plans --------------------------------------------------------------------------------- */

/* Whether the configuration's engine computes as the program is to. */
static bool takes(struct making *m, cudnnBackendDescriptor_t config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = make(m, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t n = 0;
    if (!engine)
        return false;
    note(m,
         cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine),
         "an engine of the graph API");
    note(m,
         cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                  CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n,
                                  notes),
         "an engine's numerical notes");
    n = n < CUDNN_NUMERICAL_NOTE_TYPE_COUNT ? n : CUDNN_NUMERICAL_NOTE_TYPE_COUNT;
    for (int64_t i = 0; i < n && m->status == CUDNN_STATUS_SUCCESS; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
            notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
            return false;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE &&
            m->p->args.precision == DPB_PRECISION_FP32)
            return false;
    }
    return m->status == CUDNN_STATUS_SUCCESS;
}

static cudnnBackendDescriptor_t new_plan(struct making *m)
{
    cudnnBackendDescriptor_t plan = make(m, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(m, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &m->p->device->cudnn);
    return plan;
}

/* One that is finalised, unless it wants more than it may have. */
static void add_plan(struct making *m, cudnnBackendDescriptor_t plan, int rank)
{
    struct fused *fused = m->fused;
    int64_t bytes = 0, n = 0;
    if (m->status == CUDNN_STATUS_SUCCESS)
        note(m,
             cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                      CUDNN_TYPE_INT64, 1, &n, &bytes),
             "a plan's workspace");
    if (m->status == CUDNN_STATUS_SUCCESS && (uint64_t)bytes <= m->p->device->options.workspace)
        fused->plans[fused->n++] =
            (struct fused_plan){.plan = plan, .rank = rank, .workspace = (size_t)bytes};
}

/* For the next process: compiling takes seconds. */
static void keep_plan(const struct making *m, cudnnBackendDescriptor_t plan, int rank)
{
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t bytes = 0, n = 0;
    if (cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, 0, &bytes, NULL) !=
            CUDNN_STATUS_SUCCESS ||
        bytes < 1)
        return;
    char *text = malloc((size_t)bytes);
    if (text && cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, bytes, &n, text) ==
                    CUDNN_STATUS_SUCCESS)
        cuda_plan_file_write(m->p->device, m->fused->key, rank, text, (size_t)bytes);
    free(text);
}

/* The plan of that rank as it was kept. False: it was not, or cuDNN does not take it. */
static bool add_kept(struct making *m, int rank)
{
    size_t bytes = 0;
    char *text = cuda_plan_file_read(m->p->device, m->fused->key, rank, &bytes);
    if (!text)
        return false;
    struct making trial = *m;
    trial.status = CUDNN_STATUS_SUCCESS;
    cudnnBackendDescriptor_t plan = new_plan(&trial);
    set(&trial, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        (int64_t)bytes, text);
    finalise(&trial, plan, "a plan that was kept");
    free(text);
    if (trial.status == CUDNN_STATUS_SUCCESS)
        add_plan(m, plan, rank);
    else
        cuda_plan_file_refuse(m->p->device, "is not taken by cuDNN");
    return trial.status == CUDNN_STATUS_SUCCESS;
}

static void make_plan(struct making *m, cudnnBackendDescriptor_t config, int rank)
{
    cudnnBackendDescriptor_t plan = new_plan(m);
    set_one(m, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalise(m, plan, "a plan of a convolution with sums");
    if (m->status == CUDNN_STATUS_SUCCESS)
        keep_plan(m, plan, rank);
    add_plan(m, plan, rank);
}

/* What a heuristic answers for the graph, best first. */
static void add_answers(struct making *m, cudnnBackendDescriptor_t of, cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t configs[RESULTS];
    int64_t n = 0;
    m->status = CUDNN_STATUS_SUCCESS;
    cudnnBackendDescriptor_t heuristic = make(m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_one(m, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, of);
    set(m, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalise(m, heuristic, "the graph API's heuristic");
    for (int i = 0; i < RESULTS; i++)
        configs[i] = make(m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (m->status == CUDNN_STATUS_SUCCESS)
        note(m,
             cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, RESULTS, &n, configs),
             "the graph API's heuristic");
    if (m->status != CUDNN_STATUS_SUCCESS)
        return;
    for (int64_t i = 0; i < n && i < RESULTS && m->fused->n < m->most; i++) {
        m->status = CUDNN_STATUS_SUCCESS;
        if (!takes(m, configs[i]))
            continue;
        const int rank = m->n_seen++;
        if ((rank == m->only || m->only < 0) && !add_kept(m, rank))
            make_plan(m, configs[i], rank);
    }
}

/* Of the order alone it depends which rank a configuration has. */
static void add_plans(struct making *m)
{
    m->n_seen = 0;
    m->status = CUDNN_STATUS_SUCCESS;
    cudnnBackendDescriptor_t of = m->call == FUSED_FORWARD ? forward_graph(m) : data_graph(m);
    if (m->status != CUDNN_STATUS_SUCCESS)
        return;
    add_answers(m, of, CUDNN_HEUR_MODE_A);
    add_answers(m, of, CUDNN_HEUR_MODE_FALLBACK);
}

static dpb_status say_none(const struct making *m)
{
    const struct dpb_node *node = m->node;
    const struct program *p = m->p;
    const char *why = m->why[0] ? m->why : "it offered none";
    const char *with = m->call == FUSED_FORWARD
                           ? "with the statistics of its result"
                           : "by its input, with the sums of the batch-norm before it,";
    if (p->device->options.fusion == FUSION_ON)
        return cuda_host->fail(
            DPB_UNSUPPORTED,
            "device cuda: device.fusion = on, but cuDNN has no plan for '%s' (%u to %u channels, "
            "%ux%u, %s) %s on GPU %d (%s) that gives equal bits for equal inputs with at most "
            "device.workspace = %llu bytes: %s; auto leaves such ones as they are",
            node->name, cuda_input(p, node, 0)->shape.c, node->shape.c, node->window.kernel_h,
            node->window.kernel_w, dpb_precision_name(p->args.precision), with, p->device->id,
            p->device->name, (unsigned long long)p->device->options.workspace, why);
    if (m->unexpected)
        cuda_host->warn("fusion_failed",
                        "device cuda: cuDNN's graph API failed for the convolution '%s' %s, which "
                        "stays without fusion: %s",
                        node->name, with, why);
    return DPB_OK;
}

/* What the file names is made alone; where it cannot be, all is tried anew. */
dpb_status cuda_fused_plan(const struct program *p, const struct dpb_node *node,
                           enum fused_call call, struct fused *fused)
{
    const bool tuned = strcmp(p->device->options.tuning, "no") != 0;
    struct making m = {.p = p,
                       .node = node,
                       .call = call,
                       .fused = fused,
                       .only = -1,
                       .most = tuned ? FUSED_CHOICES : 1};
    int rank, unused;
    fused->taken = p->device->options.fusion == FUSION_ON ? 0 : SEPARATE;
    if (cuda_tuning_known(p->device, fused->key, &rank, &unused)) {
        if (rank == SEPARATE && fused->taken == SEPARATE) {
            fused->tuned = true;
            return DPB_OK;
        }
        m.only = rank < 0 ? INT32_MAX : rank;
        if (!add_kept(&m, m.only))
            add_plans(&m);
        fused->tuned = fused->n > 0;
        if (fused->tuned)
            fused->taken = 0;
    }
    m.only = -1;
    if (fused->n == 0)
        add_plans(&m);
    return fused->n == 0 ? say_none(&m) : DPB_OK;
}
