/*
 * conv.c - convolutions by cuDNN's graph API: a graph of one operation for each of the three calls,
 * and the plans that cuDNN's engines offer for the graph. Activations and weights are in the
 * program's layout, NHWC and OHWI or NCHW and OIHW; sums are in fp32.
 *
 * cuDNN pads both sides alike: where the model does not, the input is copied into a frame of zeros
 * first, and the gradient by it is cut out of one.
 *
 * Plans are taken only if cuDNN brings their kernels compiled, and they give equal bits for equal
 * inputs, add in fp32 and without transforms, and multiply in run.precision. A plan is finalised
 * when the program is planned: then its workspace is known.
 */
#include <stdio.h>
#include <stdlib.h>

#include "products.h"

/* Numbers of a graph's tensors. */
enum uid { UID_X = 1, UID_W, UID_Y, UID_DX, UID_DW, UID_DY };

enum { RESULTS = 64 };

/* The making of a node's plans. After a failed call, calls do nothing until `status` is cleared. */
struct making {
    const struct program *p;
    const struct dpb_node *node;
    enum conv_call call;
    bool adds; /* the result to the content of its place */
    struct conv_plans *plans;
    cudnnStatus_t status;
    bool unexpected; /* plans->why is a failure other than "not supported" */
    int only;        /* the wanted rank; -1: all */
    int n_seen;      /* suitable configurations of engines */
    uint32_t most;   /* plans */
};

/* ---- descriptors --------------------------------------------------------------------------- */

static void note(struct making *m, cudnnStatus_t status, const char *call)
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

/* NULL: none could be made. Is destroyed with the plans. */
static cudnnBackendDescriptor_t make(struct making *m, cudnnBackendDescriptorType_t type)
{
    struct conv_plans *plans = m->plans;
    cudnnBackendDescriptor_t desc = NULL;
    if (m->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (plans->n_made % 64 == 0) {
        void *more = realloc(plans->made, (plans->n_made + 64) * sizeof *plans->made);
        if (!more) {
            note(m, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "realloc");
            return NULL;
        }
        plans->made = more;
    }
    note(m, cudnnBackendCreateDescriptor(type, &desc), "cudnnBackendCreateDescriptor");
    if (m->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    plans->made[plans->n_made++] = desc;
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

/* ---- graphs -------------------------------------------------------------------------------- */

/* Packed, in the program's type and layout. Core's own weights, if not packed, have this alignment,
 * too (DPB_TENSOR_ALIGN). */
static cudnnBackendDescriptor_t tensor(struct making *m, enum uid uid, struct grid grid)
{
    static const cudnnDataType_t types[] = {[TYPE_FP32] = CUDNN_DATA_FLOAT,
                                            [TYPE_BF16] = CUDNN_DATA_BFLOAT16,
                                            [TYPE_FP16] = CUDNN_DATA_HALF};
    const int64_t id = uid, align = 16, n = grid.n, c = grid.c, h = grid.h, w = grid.w;
    const int64_t dims[] = {n, c, h, w}, nhwc[] = {h * w * c, 1, w * c, c};
    const int64_t nchw[] = {c * h * w, h * w, w, 1};
    const bool planes = m->p->device->options.layout == LAYOUT_NCHW;
    cudnnBackendDescriptor_t desc = make(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(m, desc, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &types[m->p->type]);
    set(m, desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(m, desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, planes ? nchw : nhwc);
    set(m, desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(m, desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    finalise(m, desc, "the graph API's tensor");
    return desc;
}

static cudnnBackendDescriptor_t how_of(struct making *m)
{
    const struct dpb_window *w = &m->node->window;
    const struct frame frame = cuda_conv_frame(m->p, m->node);
    const bool framed = cuda_is_framed(&frame);
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

/* The filter's channels are those of a group: that is how cuDNN knows of groups. */
static struct grid filter_grid(const struct program *p, const struct dpb_node *node)
{
    return (struct grid){.n = node->shape.c,
                         .h = node->window.kernel_h,
                         .w = node->window.kernel_w,
                         .c = cuda_stored_shape(p, cuda_input(p, node, 0)).c / node->groups};
}

/* The attributes of the three operations; x is the side that is padded. */
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

static cudnnBackendDescriptor_t graph_of(struct making *m)
{
    const struct operation *by = &operations[m->call];
    const float one = 1.0f, beta = m->adds ? 1.0f : 0.0f;
    cudnnBackendDescriptor_t how = how_of(m), op = make(m, by->type);
    set_one(m, op, by->how, how);
    set_one(m, op, by->x, tensor(m, by->x_uid, cuda_conv_frame(m->p, m->node).outer));
    set_one(m, op, by->w, tensor(m, by->w_uid, filter_grid(m->p, m->node)));
    set_one(m, op, by->y, tensor(m, by->y_uid, cuda_grid(m->p, m->node->shape)));
    set(m, op, by->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(m, op, by->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    finalise(m, op, "the graph API's convolution");
    cudnnBackendDescriptor_t graph = make(m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set_one(m, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
    set(m, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &m->p->device->cudnn);
    finalise(m, graph, "the graph of a convolution");
    return graph;
}

/* ---- engines ------------------------------------------------------------------------------- */

/* An engine says of itself up to `most` values of an attribute; -1: it does not. */
static int64_t ask(struct making *m, cudnnBackendDescriptor_t engine,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                   void *values)
{
    int64_t n = 0;
    note(m, cudnnBackendGetAttribute(engine, name, type, most, &n, values),
         "an engine of the graph API");
    return m->status == CUDNN_STATUS_SUCCESS ? (n < most ? n : most) : -1;
}

/* The tensor cores read 10 bits of a mantissa of fp32. A sum by transforms errs in proportion to
 * the whole tensor, not to its own terms: more than device.h allows, and seen on a GPU. */
static bool is_exact(const struct making *m, cudnnBackendNumericalNote_t numerical)
{
    switch (numerical) {
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return m->p->args.precision != DPB_PRECISION_FP32;
    case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
        return true;
    default:
        return false;
    }
}

/* Whether the configuration's engine computes as the program is to. */
static bool takes(struct making *m, cudnnBackendDescriptor_t config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviours[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = make(m, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine ||
        ask(m, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine) < 0)
        return false;
    const int64_t n = ask(m, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
    for (int64_t i = 0; i < n; i++)
        if (!is_exact(m, notes[i]))
            return false;
    const int64_t n_behaviours =
        ask(m, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
            CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, behaviours);
    for (int64_t i = 0; i < n_behaviours; i++)
        if (behaviours[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return false;
    return m->status == CUDNN_STATUS_SUCCESS;
}

/* ---- plans --------------------------------------------------------------------------------- */

/* Adds the configuration's plan, unless the plan wants more memory than it may have. */
static void make_plan(struct making *m, cudnnBackendDescriptor_t config, int rank)
{
    int64_t bytes = 0, n = 0;
    cudnnBackendDescriptor_t plan = make(m, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(m, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &m->p->device->cudnn);
    set_one(m, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalise(m, plan, "a plan of a convolution");
    if (m->status != CUDNN_STATUS_SUCCESS)
        return;
    note(m,
         cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                  1, &n, &bytes),
         "a plan's workspace");
    if (m->status == CUDNN_STATUS_SUCCESS && (size_t)bytes <= m->p->device->options.workspace)
        m->plans->plans[m->plans->n++] = (struct conv_plan){plan, rank, (size_t)bytes};
}

/* Adds a heuristic's plans for the graph, best first. */
static void add_answers(struct making *m, cudnnBackendDescriptor_t of, cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t configs[RESULTS];
    m->status = CUDNN_STATUS_SUCCESS;
    cudnnBackendDescriptor_t heuristic = make(m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_one(m, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, of);
    set(m, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalise(m, heuristic, "the graph API's heuristic");
    for (int i = 0; i < RESULTS; i++)
        configs[i] = make(m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (m->status != CUDNN_STATUS_SUCCESS)
        return;
    const int64_t n = ask(m, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, RESULTS, configs);
    for (int64_t i = 0; i < n && m->plans->n < m->most; i++) {
        m->status = CUDNN_STATUS_SUCCESS;
        if (!takes(m, configs[i]))
            continue;
        const int rank = m->n_seen++;
        if (rank == m->only || m->only < 0)
            make_plan(m, configs[i], rank);
    }
}

/* Engines of the fallback, many without tensor cores, only where heuristic A has none that suits.
 * A configuration's rank depends on the order alone. */
static void add_plans(struct making *m)
{
    m->n_seen = 0;
    m->status = CUDNN_STATUS_SUCCESS;
    cudnnBackendDescriptor_t of = graph_of(m);
    if (m->status != CUDNN_STATUS_SUCCESS)
        return;
    add_answers(m, of, CUDNN_HEUR_MODE_A);
    if (m->plans->n == 0)
        add_answers(m, of, CUDNN_HEUR_MODE_FALLBACK);
}

/* Makes only the plan that the tuning's file names; without one, or if it fails, all plans. */
static void make_plans(struct making *m)
{
    if (cuda_tuning_known(m->p->device, m->plans->key, &m->only) && m->only >= 0) {
        add_plans(m);
        m->plans->tuned = m->plans->n > 0;
    }
    m->only = -1;
    if (m->plans->n == 0)
        add_plans(m);
    cudaGetLastError(); /* an error that cuDNN left concerns no later kernel */
}

/* The key of a node's call in the tuning's file. */
static void write_key(const struct program *p, const struct dpb_node *node, const char *call,
                      char key[TUNING_KEY_BYTES])
{
    const struct dpb_window *w = &node->window;
    const struct dpb_shape in = cuda_stored_shape(p, cuda_input(p, node, 0));
    char groups[20] = "";
    if (node->groups > 1)
        snprintf(groups, sizeof groups, " groups %u", node->groups);
    snprintf(key, TUNING_KEY_BYTES,
             "%s\t%zu\t%s %s n%u c%u h%u w%u k%u %ux%u stride %ux%u pad %u,%u,%u,%u%s%s",
             p->device->name, cudnnGetVersion(), call, dpb_precision_name(p->args.precision),
             p->args.batch, in.c, in.h, in.w, node->shape.c, w->kernel_h, w->kernel_w, w->stride_h,
             w->stride_w, w->pad_top, w->pad_bottom, w->pad_left, w->pad_right, groups,
             p->device->options.layout == LAYOUT_NCHW ? " NCHW" : "");
}

/* Returns the plans of a node's call, @borrowed from the program: another node's with equal shapes,
 * or plans as device.tuning and its file want them. There may be none. */
static dpb_status find_plans(struct program *p, const struct dpb_node *node, enum conv_call call,
                             bool adds, struct conv_plans **plans)
{
    static const char *const names[CONV_CALLS] = {"forward", "data", "weights"};
    char key[TUNING_KEY_BYTES];
    write_key(p, node, adds ? "data added to another" : names[call], key);
    for (struct conv_plans *known = p->plans; known; known = known->next) {
        if (strcmp(known->key, key) == 0) {
            *plans = known;
            return DPB_OK;
        }
    }
    struct conv_plans *made = calloc(1, sizeof *made);
    if (!made)
        return cuda_no_memory();
    memcpy(made->key, key, sizeof key);
    made->next = p->plans;
    *plans = p->plans = made;
    if (cuda_is_counted(p)) {
        made->n = 1;
        return DPB_OK;
    }
    struct making m = {.p = p,
                       .node = node,
                       .call = call,
                       .adds = adds,
                       .plans = made,
                       .most = cuda_tunes(&p->device->options) ? PLAN_CHOICES : 1};
    make_plans(&m);
    return DPB_OK;
}

void cuda_plans_close(struct conv_plans *all)
{
    while (all) {
        struct conv_plans *next = all->next;
        while (all->n_made > 0)
            cudnnBackendDestroyDescriptor(all->made[--all->n_made]);
        free(all->made);
        free(all);
        all = next;
    }
}

/* ---- calls --------------------------------------------------------------------------------- */

/* Takes the plans for the call, and plans scratch for their largest workspace: tuning takes one of
 * them. */
static void take(struct program *p, const struct dpb_node *node, enum conv_call call,
                 struct conv_plans *plans)
{
    cuda_plan(p, node)->conv[call] = plans;
    for (uint32_t i = 0; i < plans->n; i++)
        cuda_need_scratch(p, plans->plans[i].workspace);
}

dpb_status cuda_conv_open(struct program *p, const struct dpb_node *node, enum conv_call call)
{
    static const char *const names[CONV_CALLS] = {"forward", "backward data", "backward weights"};
    struct conv_plans *plans;
    if (cuda_is_counted(p))
        return DPB_OK;
    DPB_TRY(find_plans(p, node, call, false, &plans));
    take(p, node, call, plans);
    if (plans->n > 0)
        return DPB_OK;
    return cuda_host->fail(
        DPB_UNSUPPORTED,
        "device cuda: cuDNN has no plan for the %s of '%s' (%u to %u channels, %ux%u, groups: %u, "
        "%s, %s) that gives equal bits for equal inputs with at most device.workspace = %llu "
        "bytes%s%s",
        names[call], node->name, cuda_input(p, node, 0)->shape.c, node->shape.c,
        node->window.kernel_h, node->window.kernel_w, node->groups,
        dpb_precision_name(p->args.precision),
        p->device->options.layout == LAYOUT_NCHW ? "NCHW" : "NHWC",
        (unsigned long long)p->device->options.workspace, plans->why[0] ? ": " : "", plans->why);
}

/* *found: whether cuDNN has plans that add. */
static dpb_status find_adding(struct program *p, const struct dpb_node *node, bool *found)
{
    struct conv_plans *plans;
    DPB_TRY(find_plans(p, node, CONV_DATA, true, &plans));
    *found = plans->n > 0;
    if (*found)
        take(p, node, CONV_DATA, plans);
    else
        cuda_host->log(DPB_LOG_INFO,
                       "device cuda: cuDNN has no plan for the backward data of '%s' that adds to "
                       "another gradient: a pass of its own adds them up%s%s",
                       node->name, plans->why[0] ? ": " : "", plans->why);
    return DPB_OK;
}

dpb_status cuda_conv_open_data(struct program *p, const struct dpb_node *node, bool *adds)
{
    if (*adds)
        DPB_TRY(find_adding(p, node, adds));
    return *adds ? DPB_OK : cuda_conv_open(p, node, CONV_DATA);
}

dpb_status cuda_conv_run(const struct program *p, const struct dpb_node *node, enum conv_call call,
                         const void *a, const void *b, void *to)
{
    static const int64_t uids[CONV_CALLS][3] = {[CONV_FORWARD] = {UID_X, UID_W, UID_Y},
                                                [CONV_DATA] = {UID_DY, UID_W, UID_DX},
                                                [CONV_WEIGHTS] = {UID_X, UID_DY, UID_DW}};
    const struct conv_plans *plans = cuda_plan(p, node)->conv[call];
    const void *const pointers[3] = {a, b, to};
    void *workspace = p->scratch;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, 3, uids[call]);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, 3, pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendExecute(p->device->cudnn, plans->plans[plans->taken].plan, pack);
    if (pack)
        cudnnBackendDestroyDescriptor(pack);
    return cuda_check_cudnn(p, node, "cudnnBackendExecute", status);
}
