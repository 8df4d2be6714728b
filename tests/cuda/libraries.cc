/*
 * libraries.cc - cuDNN and cuBLASLt without a GPU, for tests of the cuda device: as much of them as
 * the device calls, by plain loops. They hold the device to what the libraries want: an algorithm
 * that was offered for just that call and arithmetic, enough workspace, layouts that fit. What a
 * call may use of its workspace is written over with NaN.
 */
#include <algorithm>
#include <cublasLt.h>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cudnn.h>
#include <vector>

#include "cudnn_parts.h"

/* ---- cuDNN --------------------------------------------------------------------------------- */

struct cudnnTensorStruct {
    cudnnDataType_t type;
    int n, c, h, w;
    cudnnTensorFormat_t format;
};
struct cudnnFilterStruct {
    cudnnDataType_t type;
    int k, c, h, w;
    cudnnTensorFormat_t format;
};
struct cudnnConvolutionStruct {
    int pad_h, pad_w, stride_h, stride_w, groups;
    cudnnMathType_t math;
};

namespace
{
cudnnDataType_t element_type(cudaDataType_t type)
{
    return type == CUDA_R_16BF  ? CUDNN_DATA_BFLOAT16
           : type == CUDA_R_16F ? CUDNN_DATA_HALF
                                : CUDNN_DATA_FLOAT;
}

/* One multiplication of a convolution: elements of x, w and y. */
struct shape {
    cudnnTensorStruct x, y;
    cudnnFilterStruct w;
    cudnnConvolutionStruct by;
};

/* An element of an activation, or of a filter as one of k samples; and from it to the next
 * channel's. */
size_t at(const cudnnTensorStruct &t, int n, int h, int w, int c)
{
    return t.format == CUDNN_TENSOR_NCHW ? (((size_t)n * t.c + c) * t.h + h) * t.w + w
                                         : (((size_t)n * t.h + h) * t.w + w) * t.c + c;
}

size_t channels_apart(const cudnnTensorStruct &t)
{
    return t.format == CUDNN_TENSOR_NCHW ? (size_t)t.h * t.w : 1;
}

cudnnTensorStruct as_tensor(const cudnnFilterStruct &f)
{
    return {f.type, f.k, f.c, f.h, f.w, f.format};
}

/* each(x, w, y): elements that are multiplied, and one that the product is of. */
template <typename Each> void for_all(const shape &s, Each each)
{
    const cudnnTensorStruct filter = as_tensor(s.w);
    const size_t x_step = channels_apart(s.x), w_step = channels_apart(filter);
    for (int n = 0; n < s.y.n; n++)
        for (int h = 0; h < s.y.h; h++)
            for (int w = 0; w < s.y.w; w++)
                for (int kh = 0; kh < s.w.h; kh++)
                    for (int kw = 0; kw < s.w.w; kw++) {
                        const int ih = h * s.by.stride_h + kh - s.by.pad_h;
                        const int iw = w * s.by.stride_w + kw - s.by.pad_w;
                        if (ih < 0 || ih >= s.x.h || iw < 0 || iw >= s.x.w)
                            continue;
                        const size_t x = at(s.x, n, ih, iw, 0);
                        for (int k = 0; k < s.w.k; k++) {
                            const size_t f = at(filter, k, kh, kw, 0), y = at(s.y, n, h, w, k);
                            const size_t first = (size_t)(k / (s.w.k / s.by.groups)) * s.w.c;
                            for (int c = 0; c < s.w.c; c++)
                                each(x + (first + c) * x_step, f + c * w_step, y);
                        }
                    }
}

/* What a multiplication by `math` reads. */
std::vector<float> widen(cudnnDataType_t type, cudnnMathType_t math, const void *data, size_t n)
{
    const bool cut = type == CUDNN_DATA_FLOAT && math != CUDNN_FMA_MATH;
    std::vector<float> wide(n);
    for (size_t i = 0; i < n; i++)
        wide[i] = cut ? tf32(load(type, data, i)) : load(type, data, i);
    return wide;
}

size_t count(const cudnnTensorStruct &t)
{
    return (size_t)t.n * t.c * t.h * t.w;
}

size_t count(const cudnnFilterStruct &f)
{
    return (size_t)f.k * f.c * f.h * f.w;
}

void narrow(cudnnDataType_t type, void *data, const std::vector<double> &values)
{
    for (size_t i = 0; i < values.size(); i++)
        store(type, data, i, values[i]);
}

bool fits(const shape &s)
{
    const int h = (s.x.h + 2 * s.by.pad_h - s.w.h) / s.by.stride_h + 1;
    const int w = (s.x.w + 2 * s.by.pad_w - s.w.w) / s.by.stride_w + 1;
    return s.x.n == s.y.n && s.x.c == s.w.c * s.by.groups && s.y.c == s.w.k &&
           s.w.k % s.by.groups == 0 && s.y.h == h && s.y.w == w && s.x.type == s.y.type &&
           s.x.type == s.w.type && s.x.format == s.y.format && s.x.format == s.w.format;
}

/* What is offered for every call: the first is not deterministic, the second does not work, and of
 * algorithm 1 there are several kinds of arithmetic. Others want more workspace. */
enum { OFFERS = 6 };
const int offered[OFFERS] = {0, 2, 1, 1, 1, 3};

template <typename Perf> void offer(cudnnDataType_t type, int most, int *n, Perf *perf)
{
    const bool narrow = type != CUDNN_DATA_FLOAT;
    *n = OFFERS < most ? OFFERS : most;
    for (int i = 0; i < *n; i++) {
        perf[i].algo = static_cast<decltype(perf[i].algo)>(offered[i]);
        perf[i].status = i == 1 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
        perf[i].determinism = i == 0 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
        perf[i].mathType = i == 3 || narrow ? CUDNN_TENSOR_OP_MATH
                           : i == 2         ? CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION
                                            : CUDNN_DEFAULT_MATH;
        perf[i].memory = 0;
    }
}

size_t wanted(int algorithm)
{
    return algorithm == 3 ? 100000 : 1000;
}

cudnnStatus_t check(const shape &s, int algorithm, const void *workspace, size_t bytes)
{
    const bool right = s.x.type == CUDNN_DATA_FLOAT
                           ? s.by.math != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION
                           : s.by.math == CUDNN_TENSOR_OP_MATH;
    if (!fits(s) || (algorithm != 1 && algorithm != 3) || !right)
        return CUDNN_STATUS_BAD_PARAM;
    return workspace && bytes >= wanted(algorithm) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

/* DPB_STAND_IN_INFINITE=N: the N-th gradient by weights of a convolution on GPU 1 is not finite. */
void maybe_infinite(int gpu, std::vector<double> &values)
{
    static const char *text = getenv("DPB_STAND_IN_INFINITE");
    static long left = text ? atol(text) : -1;
    if (gpu == 1 && left > 0 && --left == 0)
        values[0] = INFINITY;
}

bool is_known(cudnnTensorFormat_t format)
{
    return format == CUDNN_TENSOR_NHWC || format == CUDNN_TENSOR_NCHW;
}

bool plain(const void *alpha, const void *beta)
{
    return *static_cast<const float *>(alpha) == 1.0f && *static_cast<const float *>(beta) == 0.0f;
}
} // namespace

extern "C" {

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM"
           : status == CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN
               ? "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN"
               : "CUDNN_STATUS_OTHER";
}

void cudnnGetLastErrorString(char *text, size_t bytes)
{
    snprintf(text, bytes, "the stand-in says no more");
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = new cudnnContext();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    if (handle->plans > 0) {
        fprintf(stderr, "the stand-in: cudnnDestroy with %d plans of the graph API left\n",
                (int)handle->plans);
        abort();
    }
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *desc)
{
    *desc = new cudnnTensorStruct();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t desc)
{
    delete desc;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t desc, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    *desc = {type, n, c, h, w, format};
    return is_known(format) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *desc)
{
    *desc = new cudnnFilterStruct();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t desc)
{
    delete desc;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t desc, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    *desc = {type, k, c, h, w, format};
    return is_known(format) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *desc)
{
    *desc = new cudnnConvolutionStruct();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t desc)
{
    delete desc;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t desc, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute)
{
    *desc = {pad_h, pad_w, stride_h, stride_w, 1, CUDNN_DEFAULT_MATH};
    bool ok = dilation_h == 1 && dilation_w == 1 && mode == CUDNN_CROSS_CORRELATION &&
              compute == CUDNN_DATA_FLOAT;
    return ok ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t desc, int groups)
{
    desc->groups = groups;
    return groups >= 1 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t desc, cudnnMathType_t math)
{
    desc->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t by,
                                                     const cudnnTensorDescriptor_t y,
                                                     const int most, int *n,
                                                     cudnnConvolutionFwdAlgoPerf_t *perf)
{
    offer(x->type, most, n, perf);
    return fits({*x, *y, *w, *by}) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t by, const cudnnTensorDescriptor_t x, const int most, int *n,
    cudnnConvolutionBwdDataAlgoPerf_t *perf)
{
    offer(x->type, most, n, perf);
    return fits({*x, *y, *w, *by}) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t by, const cudnnFilterDescriptor_t w, const int most, int *n,
    cudnnConvolutionBwdFilterAlgoPerf_t *perf)
{
    offer(x->type, most, n, perf);
    return fits({*x, *y, *w, *by}) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                      const cudnnFilterDescriptor_t,
                                                      const cudnnConvolutionDescriptor_t,
                                                      const cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t *bytes)
{
    *bytes = wanted((int)algorithm);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, const cudnnFilterDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t, const cudnnTensorDescriptor_t,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t *bytes)
{
    *bytes = wanted((int)algorithm);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t, const cudnnFilterDescriptor_t,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *bytes)
{
    *bytes = wanted((int)algorithm);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      const cudnnTensorDescriptor_t x, const void *x_data,
                                      const cudnnFilterDescriptor_t w, const void *w_data,
                                      const cudnnConvolutionDescriptor_t by,
                                      cudnnConvolutionFwdAlgo_t algorithm, void *workspace,
                                      size_t bytes, const void *beta,
                                      const cudnnTensorDescriptor_t y, void *y_data)
{
    const shape s = {*x, *y, *w, *by};
    if (check(s, (int)algorithm, workspace, bytes) != CUDNN_STATUS_SUCCESS || !plain(alpha, beta))
        return CUDNN_STATUS_BAD_PARAM;
    if ((algorithm == 1 && stand_in_broken("forward")) || stand_in_broken("every"))
        return CUDNN_STATUS_EXECUTION_FAILED;
    stand_in_enqueue(handle->stream, [=] {
        stand_in_dawdle("forward");
        std::vector<double> sum(count(s.y));
        const std::vector<float> xs = widen(s.x.type, s.by.math, x_data, count(s.x));
        const std::vector<float> ws = widen(s.w.type, s.by.math, w_data, count(s.w));
        memset(workspace, 0xff, bytes);
        for_all(s, [&](size_t xi, size_t wi, size_t yi) { sum[yi] += (double)xs[xi] * ws[wi]; });
        narrow(s.y.type, y_data, sum);
    });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           const cudnnFilterDescriptor_t w, const void *w_data,
                                           const cudnnTensorDescriptor_t y, const void *y_data,
                                           const cudnnConvolutionDescriptor_t by,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
                                           size_t bytes, const void *beta,
                                           const cudnnTensorDescriptor_t x, void *x_data)
{
    const shape s = {*x, *y, *w, *by};
    if (check(s, (int)algorithm, workspace, bytes) != CUDNN_STATUS_SUCCESS || !plain(alpha, beta))
        return CUDNN_STATUS_BAD_PARAM;
    stand_in_enqueue(handle->stream, [=] {
        stand_in_dawdle("data");
        std::vector<double> sum(count(s.x));
        const std::vector<float> ys = widen(s.y.type, s.by.math, y_data, count(s.y));
        const std::vector<float> ws = widen(s.w.type, s.by.math, w_data, count(s.w));
        memset(workspace, 0xff, bytes);
        for_all(s, [&](size_t xi, size_t wi, size_t yi) { sum[xi] += (double)ys[yi] * ws[wi]; });
        narrow(s.x.type, x_data, sum);
    });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             const cudnnTensorDescriptor_t x, const void *x_data,
                                             const cudnnTensorDescriptor_t y, const void *y_data,
                                             const cudnnConvolutionDescriptor_t by,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void *workspace, size_t bytes, const void *beta,
                                             const cudnnFilterDescriptor_t w, void *w_data)
{
    const shape s = {*x, *y, *w, *by};
    if (check(s, (int)algorithm, workspace, bytes) != CUDNN_STATUS_SUCCESS || !plain(alpha, beta))
        return CUDNN_STATUS_BAD_PARAM;
    int gpu = 0;
    cudaGetDevice(&gpu);
    stand_in_enqueue(handle->stream, [=] {
        std::vector<double> sum(count(s.w));
        const std::vector<float> xs = widen(s.x.type, s.by.math, x_data, count(s.x));
        const std::vector<float> ys = widen(s.y.type, s.by.math, y_data, count(s.y));
        memset(workspace, 0xff, bytes);
        for_all(s, [&](size_t xi, size_t wi, size_t yi) { sum[wi] += (double)ys[yi] * xs[xi]; });
        maybe_infinite(gpu, sum);
        narrow(s.w.type, w_data, sum);
    });
    return CUDNN_STATUS_SUCCESS;
}

/* ---- cuBLASLt ------------------------------------------------------------------------------ */
}

namespace
{
struct matmul_desc {
    cublasOperation_t a, b;
    bool tf32;
};
struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
};
/* What is offered takes more and more room; the third, as it turns out, cannot be had. */
enum { GEMM_BYTES = 5000, MAGIC = 4711, OFFERED = 5, NOT_TO_BE_HAD = 2 };

template <typename Handle, typename T> T *as(Handle handle)
{
    return reinterpret_cast<T *>(handle);
}

float load(const layout &m, const void *data, size_t i)
{
    return load(element_type(m.type), data, i);
}

float element(const layout &m, const void *data, cublasOperation_t op, uint64_t row,
              uint64_t column)
{
    return op == CUBLAS_OP_T ? load(m, data, row * (size_t)m.ld + column)
                             : load(m, data, column * (size_t)m.ld + row);
}

uint64_t rows_of(const layout &m, cublasOperation_t op)
{
    return op == CUBLAS_OP_T ? m.columns : m.rows;
}

uint64_t columns_of(const layout &m, cublasOperation_t op)
{
    return op == CUBLAS_OP_T ? m.rows : m.columns;
}

void multiply(const matmul_desc &by, const layout &a, const void *a_data, const layout &b,
              const void *b_data, const layout &c, void *c_data)
{
    const uint64_t k = columns_of(a, by.a);
    const bool cut = by.tf32 && a.type == CUDA_R_32F;
    for (uint64_t column = 0; column < c.columns; column++) {
        for (uint64_t row = 0; row < c.rows; row++) {
            double sum = 0;
            for (uint64_t i = 0; i < k; i++) {
                const float left = element(a, a_data, by.a, row, i);
                const float right = element(b, b_data, by.b, i, column);
                sum += cut ? (double)tf32(left) * tf32(right) : (double)left * right;
            }
            const size_t at = column * (size_t)c.ld + row;
            store(element_type(c.type), c_data, at, sum);
        }
    }
}
} // namespace

extern "C" {

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t)
{
    return "CUBLAS_STATUS_OF_THE_STAND_IN";
}

const char *cublasLtGetStatusString(cublasStatus_t)
{
    return "an error of the stand-in";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete as<cublasLtHandle_t, int>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new matmul_desc{CUBLAS_OP_N, CUBLAS_OP_N, tf32});
    return (tf32 || compute == CUBLAS_COMPUTE_32F) && scale == CUDA_R_32F
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete as<cublasLtMatmulDesc_t, matmul_desc>(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes)
{
    matmul_desc *to = as<cublasLtMatmulDesc_t, matmul_desc>(desc);
    if (bytes != sizeof(cublasOperation_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(which == CUBLASLT_MATMUL_DESC_TRANSA ? &to->a : &to->b, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    *made = reinterpret_cast<cublasLtMatrixLayout_t>(new layout{type, rows, columns, ld});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made)
{
    delete as<cublasLtMatrixLayout_t, layout>(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made)
{
    *made = reinterpret_cast<cublasLtMatmulPreference_t>(new int(0));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made)
{
    delete as<cublasLtMatmulPreference_t, int>(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a_desc,
                                              cublasLtMatrixLayout_t b_desc,
                                              cublasLtMatrixLayout_t c_desc, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    const matmul_desc by = *as<cublasLtMatmulDesc_t, matmul_desc>(desc);
    const layout a = *as<cublasLtMatrixLayout_t, layout>(a_desc);
    const layout b = *as<cublasLtMatrixLayout_t, layout>(b_desc);
    const layout c = *as<cublasLtMatrixLayout_t, layout>(c_desc);
    bool fits = rows_of(a, by.a) == c.rows && columns_of(b, by.b) == c.columns &&
                columns_of(a, by.a) == rows_of(b, by.b) && a.type == b.type;
    *n = fits ? std::min<int>(most, OFFERED) : 0;
    for (int i = 0; i < *n; i++) {
        memset(&found[i], 0, sizeof *found);
        found[i].algo.data[0] = MAGIC;
        found[i].algo.data[1] = (uint64_t)i;
        found[i].workspaceSize = (size_t)GEMM_BYTES * (i + 1);
        found[i].state = i == NOT_TO_BE_HAD ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a_data, cublasLtMatrixLayout_t a_desc, const void *b_data,
                              cublasLtMatrixLayout_t b_desc, const void *beta, const void *c_data,
                              cublasLtMatrixLayout_t c_desc, void *d_data, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    const matmul_desc by = *as<cublasLtMatmulDesc_t, matmul_desc>(desc);
    const layout a = *as<cublasLtMatrixLayout_t, layout>(a_desc);
    const layout b = *as<cublasLtMatrixLayout_t, layout>(b_desc);
    const layout c = *as<cublasLtMatrixLayout_t, layout>(c_desc);
    const uint64_t rank = algorithm->data[1];
    if (algorithm->data[0] != MAGIC || rank == NOT_TO_BE_HAD || !workspace ||
        bytes < GEMM_BYTES * (rank + 1) || c_data != d_data || !plain(alpha, beta))
        return CUBLAS_STATUS_INVALID_VALUE;
    stand_in_enqueue(stream, [=] {
        if (rank != 3)
            stand_in_dawdle("product");
        memset(workspace, 0xff, bytes);
        multiply(by, a, a_data, b, b_data, c, d_data);
    });
    return CUBLAS_STATUS_SUCCESS;
}
}
