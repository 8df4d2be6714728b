/*
 * conv.c - convolutions by cuDNN's graph API, each of the three calls alone.
 *
 * cuDNN pads both sides alike: where the model does not, the input is copied into a frame of zeros
 * first, and the gradient by it is cut out of one.
 */
#include "conv_plans.h"

/* Takes the plans for the call. */
static void take(struct program *p, const struct dpb_node *node, enum conv_call call,
                 struct conv_plans *plans)
{
    cuda_plan(p, node)->conv[call] = plans;
    cuda_plans_scratch(p, plans);
}

dpb_status cuda_conv_open(struct program *p, const struct dpb_node *node, enum conv_call call)
{
    static const char *const names[CONV_CALLS] = {"forward", "backward data", "backward weights"};
    struct conv_plans *plans;
    if (cuda_is_counted(p))
        return DPB_OK;
    DPB_TRY(cuda_plans_find(p, node, &cuda_conv_kinds[call], &plans));
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
    DPB_TRY(cuda_plans_find(p, node, &cuda_conv_adding, &plans));
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
    if (*adds || cuda_is_masked_always(p, node))
        return DPB_OK;
    return cuda_conv_open(p, node, CONV_DATA);
}

dpb_status cuda_conv_run(const struct program *p, const struct dpb_node *node, enum conv_call call,
                         const void *a, const void *b, void *to)
{
    static const int64_t uids[CONV_CALLS][3] = {[CONV_FORWARD] = {UID_X, UID_W, UID_Y},
                                                [CONV_DATA] = {UID_DY, UID_W, UID_DX},
                                                [CONV_WEIGHTS] = {UID_X, UID_DY, UID_DW}};
    const void *const pointers[3] = {a, b, to};
    return cuda_plans_run(p, node, cuda_plan(p, node)->conv[call], 3, uids[call], pointers);
}
