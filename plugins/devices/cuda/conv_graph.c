/*
 * conv_graph.c - convolutions that add up what a batch-norm needs, by cuDNN's graph API: the sums
 * come out of the kernel that makes what they are of, which then need not be read once more for
 * them.
 *
 * Forward, for the batch-norm behind: each channel's sum and sum of squares of the result. The
 * graph is ConvolutionFwd -> y -> an addition of all pixels, and one of their squares. y is the
 * tensor that is stored, so the sums are of y as it is stored, as our own kernel's are.
 *
 * cuDNN adds in fp32 and from zero, where our kernel goes on in fp64 and takes deviations from the
 * first row: the variance, E[y^2] - E[y]^2, loses as many bits as E[y]^2 is larger than it.
 *
 * By the input, where that is a ReLU's result y of a batch-norm of x, and nobody else reads it: dz,
 * the gradient where y > 0, and each channel's sums of dz and of dz times the normalised x, with
 * which the batch-norm's backward begins. The graph is ConvolutionBwdData -> ReLU's backward by y
 * -> dz -> two additions of all pixels. The mask is by y as it is stored, as our own kernel's is;
 * cuDNN's own pattern for this (DgradDreluBNBwdWeight) makes y anew from x, and has engines for
 * fp16 only.
 *
 * All additions ask to be deterministic (CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC). Others, GenStats
 * among them, cuDNN 9.19 mostly makes without a workspace, so by atomic additions in any order, of
 * which no numerical note warns.
 *
 * Convolutions of several groups stay without: no GPU has shown that such graphs are right.
 */
#include <stdlib.h>

#include "conv_graph.h"
#include "plan.h"

/* Bytes of a result that takes longer to read than a kernel takes to start: of a smaller one `auto`
 * makes no plans, which may take seconds. */
enum { WORTH_PLANNING = 1 << 18 };

/* ---- open, close --------------------------------------------------------------------------- */

/* A batch-norm that is all that reads the node's result. */
static bool feeds_norm(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_group *group = cuda_plan(p, node)->group;
    if (node->bias != DPB_NONE || group->into || group->n_consumers != 1)
        return false;
    for (uint32_t i = cuda_index(p, node) + 1; i < p->graph->n_nodes; i++) {
        const struct dpb_node *other = &p->graph->nodes[i];
        for (uint32_t k = 0; k < other->n_inputs; k++) {
            if (other->inputs[k] == cuda_index(p, node))
                return other->op == DPB_OP_BATCH_NORM;
        }
    }
    return false;
}

const struct dpb_node *cuda_masked_norm(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *relu = cuda_input(p, node, 0);
    const struct dpb_group *group = cuda_plan(p, relu)->group;
    const bool alone = group->from && !group->residual && group->n_consumers == 1;
    return alone && group->from->op == DPB_OP_BATCH_NORM ? group->from : NULL;
}

/* shape: of what need not be read again. */
static bool wanted(const struct program *p, struct dpb_shape shape)
{
    const struct options *options = &p->device->options;
    if (!p->args.training || options->layout != LAYOUT_NHWC || options->fusion == FUSION_OFF)
        return false;
    return options->fusion == FUSION_ON ||
           (strcmp(options->tuning, "no") != 0 &&
            cuda_elements(p, shape) * cuda_type_size(p->type) >= WORTH_PLANNING);
}

static dpb_status find_or_make(struct program *p, const struct dpb_node *node, enum fused_call call,
                               struct fused **found)
{
    static const char *const names[FUSED_CALLS][2] = {
        {"forward with statistics", "forward with statistics, on"},
        {"data with sums", "data with sums, on"}};
    char key[TUNING_KEY_BYTES];
    cuda_tuning_key(p, node, names[call][p->device->options.fusion == FUSION_ON], key);
    for (struct fused *fused = p->fused; fused; fused = fused->next) {
        if (strcmp(fused->key, key) == 0) {
            *found = fused;
            return DPB_OK;
        }
    }
    struct fused *made = calloc(1, sizeof *made);
    if (!made)
        return cuda_no_memory();
    memcpy(made->key, key, sizeof key);
    made->next = p->fused;
    p->fused = made;
    *found = made;
    if (cuda_is_counted(p)) {
        made->n = 1;
        return DPB_OK;
    }
    return cuda_fused_plan(p, node, call, made);
}

/* device.fusion = on fails rather than leave one out. */
static dpb_status leave_groups(const struct program *p, const struct dpb_node *node)
{
    if (p->device->options.fusion != FUSION_ON)
        return DPB_OK;
    return cuda_host->fail(
        DPB_UNSUPPORTED,
        "device cuda: device.fusion = on, but the convolution '%s' has %u groups, and only those "
        "of "
        "one group add up a batch-norm's sums; auto leaves such ones as they are",
        node->name, node->groups);
}

/* Of a node's call, with sums for `norm`'s channels. */
static dpb_status open_call(struct program *p, const struct dpb_node *node, enum fused_call call,
                            const struct dpb_node *norm)
{
    struct node_plan *plan = cuda_plan(p, node);
    struct fused *fused;
    struct tensor *unused;
    if (node->groups > 1)
        return leave_groups(p, node);
    DPB_TRY(find_or_make(p, node, call, &fused));
    if (fused->n == 0)
        return DPB_OK;
    plan->fused[call] = fused;
    for (uint32_t i = 0; i < fused->n; i++)
        DPB_TRY(cuda_scratch(p, fused->plans[i].workspace, &unused));
    return cuda_tensor(p, 2 * cuda_fused_stride(norm) * sizeof(float), &plan->sums[call]);
}

dpb_status cuda_fused_open(struct program *p, const struct dpb_node *node)
{
    if (!wanted(p, node->shape) || !feeds_norm(p, node))
        return DPB_OK;
    return open_call(p, node, FUSED_FORWARD, node);
}

/* With a stride cuDNN 9.19's heuristics offer kernels that it then cannot compile; each takes
 * seconds. */
static bool can_be_masked(const struct dpb_node *node)
{
    return node->window.stride_h == 1 && node->window.stride_w == 1;
}

dpb_status cuda_masked_open(struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *norm = cuda_masked_norm(p, node);
    struct node_plan *plan = cuda_plan(p, node);
    if (!norm || !wanted(p, norm->shape) || cuda_conv_framed(plan->conv))
        return DPB_OK;
    if (!can_be_masked(node) && p->device->options.fusion != FUSION_ON)
        return DPB_OK;
    DPB_TRY(open_call(p, node, FUSED_DATA, norm));
    cuda_plan(p, norm)->fused[FUSED_DATA] = plan->fused[FUSED_DATA];
    cuda_plan(p, norm)->sums[FUSED_DATA] = plan->sums[FUSED_DATA];
    return DPB_OK;
}

void cuda_fused_close(struct fused *all)
{
    while (all) {
        struct fused *next = all->next;
        while (all->n_made > 0)
            cudnnBackendDestroyDescriptor(all->made[--all->n_made]);
        free(all->made);
        free(all);
        all = next;
    }
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
    return node == norm ? cuda_plan(p, plan->group->into)->gradient : NULL;
}

/* ---- run ----------------------------------------------------------------------------------- */

static dpb_status execute(const struct program *p, const struct dpb_node *node,
                          const struct fused *fused, int64_t n, const int64_t uids[],
                          const void *const pointers[])
{
    void *workspace = p->scratch.data;
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
        status = cudnnBackendExecute(p->device->cudnn, fused->plans[fused->taken].plan, pack);
    if (pack)
        cudnnBackendDestroyDescriptor(pack);
    return cuda_check_cudnn(p, node, "cudnnBackendExecute", status);
}

dpb_status cuda_fused_run(const struct program *p, const struct dpb_node *node, const void *x,
                          const void *w, void *y, void *sums)
{
    static const int64_t uids[] = {UID_X, UID_W, UID_Y, UID_SUM, UID_PRODUCTS};
    const void *pointers[] = {x, w, y, sums, (float *)sums + cuda_fused_stride(node)};
    return execute(p, node, cuda_plan(p, node)->fused[FUSED_FORWARD], sizeof uids / sizeof uids[0],
                   uids, pointers);
}

dpb_status cuda_masked_run(const struct program *p, const struct dpb_node *node,
                           const struct masked_tensors *t)
{
    static const int64_t uids[] = {UID_DY,   UID_W,       UID_Y,   UID_X,       UID_DZ,
                                   UID_MEAN, UID_INVERSE, UID_SUM, UID_PRODUCTS};
    const size_t stride = cuda_fused_stride(cuda_masked_norm(p, node));
    const void *pointers[] = {
        t->dy, t->w, t->y, t->x, t->dz, t->mean, t->inverse, t->sums, t->sums + stride};
    return execute(p, node, cuda_plan(p, node)->fused[FUSED_DATA], sizeof uids / sizeof uids[0],
                   uids, pointers);
}
