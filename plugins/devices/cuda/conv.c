/*
 * conv.c - convolutions by cuDNN's own algorithms (the calls that take one by number), NHWC or
 * NCHW.
 *
 * Only algorithms that give equal bits for equal inputs are taken; for fp32 only those that
 * multiply in fp32, for tf32 none that converts to fp16, whose range is smaller. cuDNN pads both
 * sides alike: where the model does not, the input is copied into a frame of zeros first, and the
 * gradient by it is cut out of one.
 */
#include <stdlib.h>

#include "products.h"

cudnnDataType_t cuda_cudnn_type(const struct program *p)
{
    static const cudnnDataType_t types[] = {[TYPE_FP32] = CUDNN_DATA_FLOAT,
                                            [TYPE_BF16] = CUDNN_DATA_BFLOAT16,
                                            [TYPE_FP16] = CUDNN_DATA_HALF};
    return types[p->type];
}

/* What algorithms are asked for with. Of fp32 the default is tf32 where that is faster. */
static cudnnMathType_t math_type(const struct program *p)
{
    if (p->args.precision == DPB_PRECISION_FP32)
        return CUDNN_FMA_MATH;
    return p->args.precision == DPB_PRECISION_TF32 ? CUDNN_DEFAULT_MATH : CUDNN_TENSOR_OP_MATH;
}

#define TRY_CUDNN(call, expression) DPB_TRY(cuda_check_cudnn(p, node, call, expression))

/* --------------------------------------------------------------------------------- descriptions */

/* Of activations and weights alike: OHWI or OIHW. */
static cudnnTensorFormat_t format_of(const struct program *p)
{
    return p->device->options.layout == LAYOUT_NCHW ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
}

static dpb_status set_tensor(const struct program *p, const struct dpb_node *node, struct grid grid,
                             cudnnTensorDescriptor_t *desc)
{
    TRY_CUDNN("cudnnCreateTensorDescriptor", cudnnCreateTensorDescriptor(desc));
    TRY_CUDNN("cudnnSetTensor4dDescriptor",
              cudnnSetTensor4dDescriptor(*desc, format_of(p), cuda_cudnn_type(p), (int)grid.n,
                                         (int)grid.c, (int)grid.h, (int)grid.w));
    return DPB_OK;
}

static dpb_status describe(const struct program *p, const struct dpb_node *node, struct conv *conv)
{
    const struct dpb_window *w = &node->window;
    const struct grid in = conv->frame.inner;
    const bool alike = !cuda_conv_framed(conv);
    DPB_TRY(set_tensor(p, node, conv->frame.outer, &conv->x));
    DPB_TRY(set_tensor(p, node, cuda_grid(p, node->shape), &conv->y));
    TRY_CUDNN("cudnnCreateFilterDescriptor", cudnnCreateFilterDescriptor(&conv->w));
    TRY_CUDNN("cudnnSetFilter4dDescriptor",
              cudnnSetFilter4dDescriptor(conv->w, cuda_cudnn_type(p), format_of(p),
                                         (int)node->shape.c, (int)(in.c / node->groups),
                                         (int)w->kernel_h, (int)w->kernel_w));
    for (int call = 0; call < CONV_CALLS; call++) {
        cudnnConvolutionDescriptor_t *desc = &conv->call[call].conv;
        TRY_CUDNN("cudnnCreateConvolutionDescriptor", cudnnCreateConvolutionDescriptor(desc));
        TRY_CUDNN("cudnnSetConvolution2dDescriptor",
                  cudnnSetConvolution2dDescriptor(*desc, alike ? (int)w->pad_top : 0,
                                                  alike ? (int)w->pad_left : 0, (int)w->stride_h,
                                                  (int)w->stride_w, 1, 1, CUDNN_CROSS_CORRELATION,
                                                  CUDNN_DATA_FLOAT));
        TRY_CUDNN("cudnnSetConvolutionGroupCount",
                  cudnnSetConvolutionGroupCount(*desc, (int)node->groups));
        TRY_CUDNN("cudnnSetConvolutionMathType", cudnnSetConvolutionMathType(*desc, math_type(p)));
    }
    return DPB_OK;
}

/* ----------------------------------------------------------------------------------- algorithms */

/* What the three kinds of answers of cuDNN have in common. */
struct answer {
    int algorithm;
    cudnnStatus_t status;
    cudnnDeterminism_t determinism;
    cudnnMathType_t math;
};

#define ANSWERS(kind, function, first, second, third)                                             \
    do {                                                                                          \
        cudnnConvolution##kind##AlgoPerf_t perf[CONV_CHOICES];                                    \
        TRY_CUDNN(#function,                                                                      \
                  function(p->device->cudnn, first, second, desc, third, CONV_CHOICES, n, perf)); \
        for (int i = 0; i < *n; i++)                                                              \
            answers[i] = (struct answer){(int)perf[i].algo, perf[i].status, perf[i].determinism,  \
                                         perf[i].mathType};                                       \
    } while (0)

/* Best first, by cuDNN's own estimate. */
static dpb_status ask(const struct program *p, const struct dpb_node *node, const struct conv *conv,
                      enum conv_call call, struct answer answers[CONV_CHOICES], int *n)
{
    cudnnConvolutionDescriptor_t desc = conv->call[call].conv;
    if (call == CONV_FORWARD)
        ANSWERS(Fwd, cudnnGetConvolutionForwardAlgorithm_v7, conv->x, conv->w, conv->y);
    else if (call == CONV_DATA)
        ANSWERS(BwdData, cudnnGetConvolutionBackwardDataAlgorithm_v7, conv->w, conv->y, conv->x);
    else
        ANSWERS(BwdFilter, cudnnGetConvolutionBackwardFilterAlgorithm_v7, conv->x, conv->y,
                conv->w);
    return DPB_OK;
}

static cudnnStatus_t workspace_of(const struct program *p, const struct conv *conv,
                                  enum conv_call call, int algorithm, size_t *bytes)
{
    cudnnConvolutionDescriptor_t desc = conv->call[call].conv;
    cudnnHandle_t cudnn = p->device->cudnn;
    if (call == CONV_FORWARD)
        return cudnnGetConvolutionForwardWorkspaceSize(cudnn, conv->x, conv->w, desc, conv->y,
                                                       (cudnnConvolutionFwdAlgo_t)algorithm, bytes);
    if (call == CONV_DATA)
        return cudnnGetConvolutionBackwardDataWorkspaceSize(
            cudnn, conv->w, conv->y, desc, conv->x, (cudnnConvolutionBwdDataAlgo_t)algorithm,
            bytes);
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(
        cudnn, conv->x, conv->y, desc, conv->w, (cudnnConvolutionBwdFilterAlgo_t)algorithm, bytes);
}

/* An fp32 description never says more than FMA, whatever the answer does. */
static cudnnMathType_t math_for(const struct program *p, cudnnMathType_t answered)
{
    return p->args.precision == DPB_PRECISION_FP32 ? CUDNN_FMA_MATH : answered;
}

static bool takes(const struct program *p, const struct answer *answer)
{
    const bool converts = answer->math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
    const bool tensor_cores = answer->math == CUDNN_TENSOR_OP_MATH || converts;
    if (answer->status != CUDNN_STATUS_SUCCESS || answer->determinism != CUDNN_DETERMINISTIC)
        return false;
    return p->args.precision == DPB_PRECISION_FP32 ? !tensor_cores
                                                   : p->type != TYPE_FP32 || !converts;
}

static dpb_status choose(const struct program *p, const struct dpb_node *node, struct conv *conv,
                         enum conv_call call)
{
    static const char *const names[CONV_CALLS] = {"forward", "backward data", "backward weights"};
    struct answer answers[CONV_CHOICES];
    uint32_t *n_choices = &conv->call[call].n;
    int n = 0;
    DPB_TRY(ask(p, node, conv, call, answers, &n));
    for (int i = 0; i < n; i++) {
        const cudnnMathType_t math = math_for(p, answers[i].math);
        size_t bytes = 0;
        if (!takes(p, &answers[i]))
            continue;
        TRY_CUDNN("cudnnSetConvolutionMathType",
                  cudnnSetConvolutionMathType(conv->call[call].conv, math));
        if (workspace_of(p, conv, call, answers[i].algorithm, &bytes) == CUDNN_STATUS_SUCCESS &&
            bytes <= p->device->options.workspace)
            conv->call[call].choices[(*n_choices)++] =
                (struct conv_choice){answers[i].algorithm, math, bytes};
    }
    if (*n_choices > 0)
        return DPB_OK;
    return cuda_host->fail(
        DPB_UNSUPPORTED,
        "device cuda: cuDNN has no algorithm for the %s of '%s' (%u to %u "
        "channels, %ux%u, groups: %u, %s, %s) that gives equal bits for equal inputs with at "
        "most device.workspace = %llu bytes; it offered %d of other kinds",
        names[call], node->name, cuda_input(p, node, 0)->shape.c, node->shape.c,
        node->window.kernel_h, node->window.kernel_w, node->groups,
        dpb_precision_name(p->args.precision),
        p->device->options.layout == LAYOUT_NCHW ? "NCHW" : "NHWC",
        (unsigned long long)p->device->options.workspace, n);
}

dpb_status cuda_conv_open(struct program *p, const struct dpb_node *node, struct conv **conv)
{
    struct conv *made = calloc(1, sizeof *made);
    if (!made)
        return cuda_no_memory();
    *conv = made; /* the program's, which closes it whatever comes */
    made->frame = cuda_conv_frame(p, node);
    if (cuda_is_counted(p))
        return DPB_OK;
    DPB_TRY(describe(p, node, made));
    DPB_TRY(choose(p, node, made, CONV_FORWARD));
    if (!p->args.training)
        return DPB_OK;
    if (node->inputs[0] != 0)
        DPB_TRY(choose(p, node, made, CONV_DATA));
    return choose(p, node, made, CONV_WEIGHTS);
}

void cuda_conv_close(struct conv *conv)
{
    if (!conv)
        return;
    for (int call = 0; call < CONV_CALLS; call++) {
        if (conv->call[call].conv)
            cudnnDestroyConvolutionDescriptor(conv->call[call].conv);
    }
    if (conv->x)
        cudnnDestroyTensorDescriptor(conv->x);
    if (conv->y)
        cudnnDestroyTensorDescriptor(conv->y);
    if (conv->w)
        cudnnDestroyFilterDescriptor(conv->w);
    free(conv);
}

/* ----------------------------------------------------------------------------------------- run */

/* forward: a is x, b the weights; data: a is dy, b the weights; weights: a is x, b is dy. */
dpb_status cuda_conv_run(const struct program *p, const struct dpb_node *node, enum conv_call call,
                         const void *a, const void *b, void *to)
{
    const struct conv *conv = cuda_plan(p, node)->conv;
    const struct conv_choice *by = &conv->call[call].choices[conv->call[call].taken];
    cudnnConvolutionDescriptor_t desc = conv->call[call].conv;
    cudnnHandle_t cudnn = p->device->cudnn;
    void *workspace = p->scratch.data;
    const float one = 1.0f, zero = 0.0f;
    TRY_CUDNN("cudnnSetConvolutionMathType", cudnnSetConvolutionMathType(desc, by->math));
    if (call == CONV_FORWARD)
        TRY_CUDNN("cudnnConvolutionForward",
                  cudnnConvolutionForward(cudnn, &one, conv->x, a, conv->w, b, desc,
                                          (cudnnConvolutionFwdAlgo_t)by->algorithm, workspace,
                                          by->workspace, &zero, conv->y, to));
    else if (call == CONV_DATA)
        TRY_CUDNN("cudnnConvolutionBackwardData",
                  cudnnConvolutionBackwardData(cudnn, &one, conv->w, b, conv->y, a, desc,
                                               (cudnnConvolutionBwdDataAlgo_t)by->algorithm,
                                               workspace, by->workspace, &zero, conv->x, to));
    else
        TRY_CUDNN("cudnnConvolutionBackwardFilter",
                  cudnnConvolutionBackwardFilter(cudnn, &one, conv->x, a, conv->y, b, desc,
                                                 (cudnnConvolutionBwdFilterAlgo_t)by->algorithm,
                                                 workspace, by->workspace, &zero, conv->w, to));
    return DPB_OK;
}
