/*
 * conv.c - convolutions by cuDNN's graph API, each of the three calls alone.
 *
 * cuDNN pads both sides alike: where the model does not, the input is copied into a frame of zeros
 * first, and the gradient by it is cut out of one.
 */
#include <stdlib.h>

#include "conv_plans.h"

static dpb_status find_plans(struct program *p, const struct dpb_node *node, struct conv *conv,
                             enum conv_call call)
{
    static const char *const names[CONV_CALLS] = {"forward", "backward data", "backward weights"};
    struct conv_plans *plans;
    DPB_TRY(cuda_plans_find(p, node, &cuda_conv_kinds[call], &plans));
    conv->call[call] = plans;
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

dpb_status cuda_conv_open(struct program *p, const struct dpb_node *node, struct conv **conv)
{
    struct conv *made = calloc(1, sizeof *made);
    if (!made)
        return cuda_no_memory();
    *conv = made; /* the program owns and closes it */
    made->frame = cuda_conv_frame(p, node);
    if (cuda_is_counted(p))
        return DPB_OK;
    DPB_TRY(find_plans(p, node, made, CONV_FORWARD));
    return p->args.training ? find_plans(p, node, made, CONV_WEIGHTS) : DPB_OK;
}

/* *found: whether cuDNN has plans that add. */
static dpb_status find_adding(struct program *p, const struct dpb_node *node, struct conv *conv,
                              bool *found)
{
    struct conv_plans *plans;
    DPB_TRY(cuda_plans_find(p, node, &cuda_conv_adding, &plans));
    *found = plans->n > 0;
    if (*found)
        conv->call[CONV_DATA] = plans;
    else
        cuda_host->log(DPB_LOG_INFO,
                       "device cuda: cuDNN has no plan for the backward data of '%s' that adds to "
                       "another gradient: a pass of its own adds them up%s%s",
                       node->name, plans->why[0] ? ": " : "", plans->why);
    return DPB_OK;
}

dpb_status cuda_conv_open_data(struct program *p, const struct dpb_node *node, bool *adds)
{
    struct conv *conv = cuda_plan(p, node)->conv;
    if (*adds)
        DPB_TRY(find_adding(p, node, conv, adds));
    if (*adds || cuda_is_counted(p) || cuda_is_masked_always(p, node))
        return DPB_OK;
    return find_plans(p, node, conv, CONV_DATA);
}

dpb_status cuda_conv_run(const struct program *p, const struct dpb_node *node, enum conv_call call,
                         const void *a, const void *b, void *to)
{
    static const int64_t uids[CONV_CALLS][3] = {[CONV_FORWARD] = {UID_X, UID_W, UID_Y},
                                                [CONV_DATA] = {UID_DY, UID_W, UID_DX},
                                                [CONV_WEIGHTS] = {UID_X, UID_DY, UID_DW}};
    const void *const pointers[3] = {a, b, to};
    return cuda_plans_run(p, node, cuda_plan(p, node)->conv->call[call], 3, uids[call], pointers);
}
