/*
 * libraries.cc - cuDNN's handles and cuBLASLt without a GPU, for tests of the cuda device: as much
 * of them as the device calls, by plain loops. They hold the device to what the libraries want: an
 * algorithm that was offered, enough workspace, layouts that fit. What a call may use of its
 * workspace is written over with NaN. Convolutions: graphs.cc.
 */
#include <algorithm>
#include <cublasLt.h>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cudnn.h>
#include <vector>

#include "cudnn_parts.h"

/* ---- cuDNN --------------------------------------------------------------------------------- */

namespace
{
cudnnDataType_t element_type(cudaDataType_t type)
{
    return type == CUDA_R_16BF  ? CUDNN_DATA_BFLOAT16
           : type == CUDA_R_16F ? CUDNN_DATA_HALF
                                : CUDNN_DATA_FLOAT;
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
                handle->plans);
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
    int32_t products = 1;
    int64_t stride = 0; /* elements from a product's matrix to the next */
};
struct preference { /* alignments of operands in bytes, to which an algorithm holds the caller */
    uint32_t a, b, c;
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

/* The matrix of one of the products. */
const void *part(const layout &m, const void *data, int32_t product)
{
    const size_t size = m.type == CUDA_R_32F ? 4 : 2;
    return static_cast<const char *>(data) + (size_t)(product * m.stride) * size;
}

bool is_aligned(const layout &m, const void *data, uint32_t bytes)
{
    return (uintptr_t)data % bytes == 0 && (uintptr_t)part(m, data, m.products - 1) % bytes == 0;
}

/* Columns do not overlap; products' results do not either. */
bool is_layout(const layout &m, bool is_result)
{
    return m.ld >= (int64_t)m.rows && m.products > 0 &&
           (m.products == 1 || !is_result ||
            m.stride >= m.ld * (int64_t)(m.columns - 1) + (int64_t)m.rows);
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
              const void *b_data, float beta, const layout &c, void *c_data)
{
    const uint64_t k = columns_of(a, by.a);
    const bool cut = by.tf32 && a.type == CUDA_R_32F;
    const auto value = [cut](float of) { return (double)(cut ? tf32(of) : of); };
    std::vector<double> rows(c.rows * k), of_column(k);
    for (uint64_t row = 0; row < c.rows; row++)
        for (uint64_t i = 0; i < k; i++)
            rows[row * k + i] = value(element(a, a_data, by.a, row, i));
    for (uint64_t column = 0; column < c.columns; column++) {
        for (uint64_t i = 0; i < k; i++)
            of_column[i] = value(element(b, b_data, by.b, i, column));
        for (uint64_t row = 0; row < c.rows; row++) {
            const size_t at = column * (size_t)c.ld + row;
            double sum = beta == 0.0f ? 0 : (double)load(c, c_data, at);
            for (uint64_t i = 0; i < k; i++)
                sum += rows[row * k + i] * of_column[i];
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
    *made = reinterpret_cast<cublasLtMatrixLayout_t>(new layout{type, rows, columns, ld, 1, 0});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t made,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t bytes)
{
    layout *to = as<cublasLtMatrixLayout_t, layout>(made);
    if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof to->products)
        memcpy(&to->products, value, bytes);
    else if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof to->stride)
        memcpy(&to->stride, value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made)
{
    delete as<cublasLtMatrixLayout_t, layout>(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made)
{
    *made = reinterpret_cast<cublasLtMatmulPreference_t>(new preference{16, 16, 16});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made)
{
    delete as<cublasLtMatmulPreference_t, preference>(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t bytes)
{
    preference *to = as<cublasLtMatmulPreference_t, preference>(made);
    uint32_t *const alignment = which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES   ? &to->a
                                : which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES ? &to->b
                                : which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES ? &to->c
                                                                                      : nullptr;
    if (alignment && bytes == sizeof *alignment)
        memcpy(alignment, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a_desc,
                                              cublasLtMatrixLayout_t b_desc,
                                              cublasLtMatrixLayout_t c_desc, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preferred, int most,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    const matmul_desc by = *as<cublasLtMatmulDesc_t, matmul_desc>(desc);
    const layout a = *as<cublasLtMatrixLayout_t, layout>(a_desc);
    const layout b = *as<cublasLtMatrixLayout_t, layout>(b_desc);
    const layout c = *as<cublasLtMatrixLayout_t, layout>(c_desc);
    bool fits = rows_of(a, by.a) == c.rows && columns_of(b, by.b) == c.columns &&
                columns_of(a, by.a) == rows_of(b, by.b) && a.type == b.type &&
                is_layout(a, false) && is_layout(b, false) && is_layout(c, true) &&
                a.products == c.products && b.products == c.products;
    const preference aligned = *as<cublasLtMatmulPreference_t, preference>(preferred);
    *n = fits ? std::min<int>(most, OFFERED) : 0;
    for (int i = 0; i < *n; i++) {
        memset(&found[i], 0, sizeof *found);
        found[i].algo.data[0] = MAGIC;
        found[i].algo.data[1] = (uint64_t)i;
        memcpy(&found[i].algo.data[2], &aligned, sizeof aligned);
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
    const float factor = *static_cast<const float *>(beta);
    preference aligned;
    memcpy(&aligned, &algorithm->data[2], sizeof aligned);
    if (algorithm->data[0] != MAGIC || rank == NOT_TO_BE_HAD || !workspace ||
        bytes < GEMM_BYTES * (rank + 1) || c_data != d_data ||
        *static_cast<const float *>(alpha) != 1.0f || (factor != 0.0f && factor != 1.0f) ||
        !is_aligned(a, a_data, aligned.a) || !is_aligned(b, b_data, aligned.b) ||
        !is_aligned(c, d_data, aligned.c))
        return CUBLAS_STATUS_INVALID_VALUE;
    stand_in_enqueue(stream, [=] {
        if (rank != 3)
            stand_in_dawdle("product");
        memset(workspace, 0xff, bytes);
        for (int32_t i = 0; i < c.products; i++)
            multiply(by, a, part(a, a_data, i), b, part(b, b_data, i), factor, c,
                     const_cast<void *>(part(c, d_data, i)));
    });
    return CUBLAS_STATUS_SUCCESS;
}
}
