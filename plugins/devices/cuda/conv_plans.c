/*
 * conv_plans.c - the plans that cuDNN's engines offer for a convolution's call: of the call alone,
 * and of the call with a batch-norm's sums (conv_fused.c).
 *
 * Plans are taken only if they give equal bits for equal inputs, add in fp32 and without
 * transforms, and multiply in run.precision; for a call alone only if cuDNN brings the kernel
 * compiled. A plan is finalised, which may compile its kernel, when the program is planned: then
 * its workspace is known. Compiled plans are kept (plan_file.h), and so is the fastest plan: the
 * next process makes plans from the files, and asks no heuristic.
 *
 * Threads of their own compile (conv_compile.c). A plan belongs to the handle by which it was made.
 * So a thread leaves the plan's text, and the plan is remade of the text by the device's handle.
 */
#include <stdlib.h>

#include "conv_plans.h"
#include "plan.h"
#include "plan_file.h"

enum { RESULTS = 64 };

/* ---- engines ------------------------------------------------------------------------------- */

/* An engine says of itself up to `most` values of an attribute; -1: it does not. */
static int64_t ask(struct making *m, cudnnBackendDescriptor_t engine,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                   void *values)
{
    int64_t n = 0;
    cuda_making_note(m, cudnnBackendGetAttribute(engine, name, type, most, &n, values),
                     "an engine of the graph API");
    return m->status == CUDNN_STATUS_SUCCESS ? (n < most ? n : most) : -1;
}

/* The tensor cores read 10 bits of a mantissa of fp32. A sum by transforms errs in proportion to
 * the whole tensor, not to its own terms: more than device.h allows, and seen on a GPU. */
static bool is_exact(const struct making *m, cudnnBackendNumericalNote_t note)
{
    switch (note) {
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
    cudnnBackendDescriptor_t engine = cuda_desc_make(m, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
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
    for (int64_t i = 0; i < n_behaviours && !m->kind->compiles; i++)
        if (behaviours[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return false;
    return m->status == CUDNN_STATUS_SUCCESS;
}

/* ---- plans that are kept ------------------------------------------------------------------- */

/* As cuDNN writes the plan down, @owned; NULL: cuDNN cannot, or no memory. */
static char *text_of(cudnnBackendDescriptor_t plan, size_t *bytes)
{
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t most = 0, n = 0;
    if (cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, 0, &most, NULL) !=
            CUDNN_STATUS_SUCCESS ||
        most < 1)
        return NULL;
    char *text = malloc((size_t)most);
    if (text && cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, most, &n, text) !=
                    CUDNN_STATUS_SUCCESS) {
        free(text);
        return NULL;
    }
    *bytes = (size_t)most;
    return text;
}

void cuda_plans_keep(const struct program *p, struct conv_plans *plans)
{
    struct conv_plan *plan = plans->taken < 0 ? NULL : &plans->plans[plans->taken];
    size_t bytes;
    if (!plan || plan->kept)
        return;
    plan->kept = true;
    char *text = text_of(plan->plan, &bytes);
    if (text)
        cuda_plan_file_write(p->device, plans->key, plan->rank, text, bytes);
    free(text);
}

/* ---- making -------------------------------------------------------------------------------- */

static struct making making_of(const struct program *p, struct conv_plans *plans,
                               cudnnHandle_t cudnn)
{
    return (struct making){.p = p,
                           .node = plans->node,
                           .kind = plans->kind,
                           .plans = plans,
                           .cudnn = cudnn,
                           .most = cuda_tunes(&p->device->options) ? plans->kind->most : 1};
}

static cudnnBackendDescriptor_t new_plan(struct making *m)
{
    cudnnBackendDescriptor_t plan = cuda_desc_make(m, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    cuda_desc_set(m, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &m->cudnn);
    return plan;
}

/* One that is finalised, unless it wants more than it may have. True: it was added, and `text` with
 * it. */
static bool add_plan(struct making *m, struct conv_plan plan)
{
    int64_t bytes = 0, n = 0;
    cuda_making_note(m,
                     cudnnBackendGetAttribute(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                              CUDNN_TYPE_INT64, 1, &n, &bytes),
                     "a plan's workspace");
    plan.workspace = (size_t)bytes;
    if (m->status != CUDNN_STATUS_SUCCESS || plan.workspace > m->p->device->options.workspace)
        return false;
    m->plans->plans[m->plans->n++] = plan;
    return true;
}

/* NULL: cuDNN does not take the text. */
static cudnnBackendDescriptor_t plan_of(struct making *m, const char *text, size_t bytes)
{
    cudnnBackendDescriptor_t plan = new_plan(m);
    const bool taken =
        m->status == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, (int64_t)bytes, text) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS;
    return taken ? plan : NULL;
}

/* The plan of that rank as it was kept. False: it was not, or cuDNN does not take it. */
static bool add_kept(struct making *m, int rank)
{
    size_t bytes = 0;
    char *text = cuda_plan_file_read(m->p->device, m->plans->key, rank, &bytes);
    if (!text)
        return false;
    cudnnBackendDescriptor_t plan = plan_of(m, text, bytes);
    const struct conv_plan kept = {
        .plan = plan, .rank = rank, .kept = true, .text = text, .text_bytes = bytes};
    if (!plan)
        cuda_plan_file_refuse(m->p->device, m->plans->key, rank, "is not taken by cuDNN");
    if (!plan || !add_plan(m, kept))
        free(text);
    return plan != NULL;
}

static void make_plan(struct making *m, cudnnBackendDescriptor_t config, int rank)
{
    struct conv_plan plan = {.plan = new_plan(m), .rank = rank, .kept = m->kind->compiles};
    cuda_desc_set_one(m, plan.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    cuda_desc_finalise(m, plan.plan, "a plan of a convolution");
    if (m->status == CUDNN_STATUS_SUCCESS && plan.kept) {
        plan.text = text_of(plan.plan, &plan.text_bytes);
        if (!plan.text)
            cuda_making_note(m, CUDNN_STATUS_INTERNAL_ERROR, "the text of a plan");
    }
    if (m->status != CUDNN_STATUS_SUCCESS)
        return;
    if (plan.kept)
        cuda_plan_file_write(m->p->device, m->plans->key, rank, plan.text, plan.text_bytes);
    if (!add_plan(m, plan))
        free(plan.text);
}

/* Adds a heuristic's plans for the graph, best first. */
static void add_answers(struct making *m, cudnnBackendDescriptor_t of, cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t configs[RESULTS];
    m->status = CUDNN_STATUS_SUCCESS;
    cudnnBackendDescriptor_t heuristic = cuda_desc_make(m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cuda_desc_set_one(m, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, of);
    cuda_desc_set(m, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    cuda_desc_finalise(m, heuristic, "the graph API's heuristic");
    for (int i = 0; i < RESULTS; i++)
        configs[i] = cuda_desc_make(m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (m->status != CUDNN_STATUS_SUCCESS)
        return;
    const int64_t n = ask(m, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, RESULTS, configs);
    for (int64_t i = 0; i < n && m->plans->n < m->most; i++) {
        m->status = CUDNN_STATUS_SUCCESS;
        if (!takes(m, configs[i]))
            continue;
        const int rank = m->n_seen++;
        if ((rank == m->plans->only || m->plans->only < 0) && !add_kept(m, rank))
            make_plan(m, configs[i], rank);
    }
}

/* A configuration's rank depends on the order alone. */
static void add_plans(struct making *m)
{
    m->n_seen = 0;
    m->status = CUDNN_STATUS_SUCCESS;
    cudnnBackendDescriptor_t of = m->kind->graph(m);
    if (m->status != CUDNN_STATUS_SUCCESS)
        return;
    add_answers(m, of, CUDNN_HEUR_MODE_A);
    add_answers(m, of, CUDNN_HEUR_MODE_FALLBACK);
}

/* Takes the plan that the tuning's file names, if it was kept. True: no other plan need be made. */
static bool take_kept(struct making *m)
{
    struct conv_plans *plans = m->plans;
    int rank;
    plans->only = -1;
    plans->first = plans->taken = m->kind->untuned;
    if (!cuda_tuning_known(m->p->device, plans->key, &rank))
        return false;
    plans->tuned = rank == SEPARATE && plans->first == SEPARATE;
    if (plans->tuned)
        return true;
    plans->only = rank < 0 ? INT32_MAX : rank;
    add_kept(m, plans->only);
    plans->tuned = plans->n > 0;
    if (plans->tuned)
        plans->taken = 0;
    return plans->tuned;
}

/* Makes only the plan that the tuning's file names; without one, or if it fails, all plans. */
static void make_plans(struct making *m)
{
    struct conv_plans *plans = m->plans;
    if (plans->only >= 0) {
        add_plans(m);
        plans->tuned = plans->n > 0;
        if (plans->tuned) {
            plans->taken = 0;
            cuda_plans_keep(m->p, plans);
        }
    }
    plans->only = -1;
    if (plans->n == 0)
        add_plans(m);
    plans->failed = m->unexpected && plans->n == 0;
}

static void destroy_made(struct conv_plans *plans)
{
    while (plans->n_made > 0)
        cudnnBackendDestroyDescriptor(plans->made[--plans->n_made]);
}

void cuda_plans_write(const struct program *p, struct conv_plans *plans, cudnnHandle_t cudnn)
{
    struct making m = making_of(p, plans, cudnn);
    make_plans(&m);
    for (uint32_t i = 0; i < plans->n; i++)
        plans->plans[i].plan = NULL;
    destroy_made(plans);
}

void cuda_plans_remake(const struct program *p, struct conv_plans *plans)
{
    struct making m = making_of(p, plans, p->device->cudnn);
    uint32_t n = 0;
    for (uint32_t i = 0; i < plans->n; i++) {
        struct conv_plan plan = plans->plans[i];
        m.status = CUDNN_STATUS_SUCCESS;
        if (!plan.plan)
            plan.plan = plan_of(&m, plan.text, plan.text_bytes);
        if (!plan.plan)
            cuda_making_note(&m, CUDNN_STATUS_INTERNAL_ERROR, "a plan of its text");
        free(plan.text);
        plan.text = NULL;
        if (plan.plan)
            plans->plans[n++] = plan;
    }
    plans->failed = plans->failed || (n == 0 && m.unexpected);
    plans->tuned = plans->tuned && (n > 0 || plans->n == 0);
    plans->n = n;
    plans->found = true;
    cudaGetLastError(); /* an error that cuDNN left concerns no later kernel */
}

dpb_status cuda_plans_begin(struct program *p, const struct dpb_node *node,
                            const struct conv_kind *kind, struct conv_plans **plans)
{
    char key[TUNING_KEY_BYTES];
    cuda_tuning_key(p, node, kind->name, key);
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
    made->node = node;
    made->kind = kind;
    made->next = p->plans;
    *plans = p->plans = made;
    if (cuda_is_counted(p)) {
        made->n = 1;
        made->found = true;
        return DPB_OK;
    }
    struct making m = making_of(p, made, p->device->cudnn);
    const bool all = take_kept(&m);
    if (!all && !kind->compiles)
        make_plans(&m);
    if (all || !kind->compiles)
        cuda_plans_remake(p, made);
    return DPB_OK;
}

void cuda_plans_scratch(struct program *p, const struct conv_plans *plans)
{
    for (uint32_t i = 0; i < plans->n; i++)
        cuda_need_scratch(p, plans->plans[i].workspace);
}

void cuda_plans_close(struct conv_plans *all)
{
    while (all) {
        struct conv_plans *next = all->next;
        destroy_made(all);
        for (uint32_t i = 0; i < all->n; i++)
            free(all->plans[i].text);
        free(all->made);
        free(all);
        all = next;
    }
}

/* ---- run ----------------------------------------------------------------------------------- */

dpb_status cuda_plans_run(const struct program *p, const struct dpb_node *node,
                          const struct conv_plans *plans, int64_t n, const int64_t uids[],
                          const void *const pointers[])
{
    void *workspace = p->scratch;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, n, uids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, n, pointers);
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
