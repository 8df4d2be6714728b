/*
 * gemm.c - products of matrices by cuBLASLt: dense layers, and attention's.
 *
 * Sums are made in fp32, of products of tf32's mantissas if this is the precision. So are partial
 * sums of a split product, in an order that does not vary. tuning.c takes the fastest of cuBLASLt's
 * algorithms, which come best first by its own estimate.
 */
#include <stdio.h>
#include <stdlib.h>

#include "products.h"

/* Weights begin at multiples of 16 elements of core's arena. */
enum { LEAST_ALIGNMENT = 32 /* bytes: of two each */ };

#define TRY_BLAS(call) DPB_TRY(cuda_check_blas(p, node, #call, call))

static cudaDataType_t data_type(enum cuda_type type)
{
    static const cudaDataType_t types[] = {
        [TYPE_FP32] = CUDA_R_32F, [TYPE_BF16] = CUDA_R_16BF, [TYPE_FP16] = CUDA_R_16F};
    return types[type];
}

/* A matrix of `rows` and `columns` as it lies in memory; as many as there are products. */
static dpb_status lay_out(const struct program *p, const struct dpb_node *node, cudaDataType_t type,
                          uint64_t rows, uint64_t columns, const struct gemm_operand *operand,
                          uint32_t products, cublasLtMatrixLayout_t *layout)
{
    const int32_t count = (int32_t)products;
    const int64_t column = (int64_t)(operand->column ? operand->column : rows);
    const int64_t stride = (int64_t)operand->stride;
    TRY_BLAS(cublasLtMatrixLayoutCreate(layout, type, rows, columns, column));
    if (count == 0)
        return DPB_OK;
    TRY_BLAS(cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count));
    TRY_BLAS(cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &stride, sizeof stride));
    return DPB_OK;
}

static dpb_status describe(const struct program *p, const struct dpb_node *node,
                           const struct gemm_shape *shape, struct gemm *gemm)
{
    const cublasOperation_t a = shape->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = shape->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t type = data_type(p->type);
    const uint64_t a_rows = shape->transpose_a ? shape->k : shape->m;
    const uint64_t a_columns = shape->transpose_a ? shape->m : shape->k;
    const uint64_t b_rows = shape->transpose_b ? shape->n : shape->k;
    const uint64_t b_columns = shape->transpose_b ? shape->k : shape->n;
    const cublasComputeType_t compute =
        p->args.precision == DPB_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    TRY_BLAS(cublasLtMatmulDescCreate(&gemm->desc, compute, CUDA_R_32F));
    TRY_BLAS(cublasLtMatmulDescSetAttribute(gemm->desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    TRY_BLAS(cublasLtMatmulDescSetAttribute(gemm->desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    const uint32_t n = shape->products;
    DPB_TRY(lay_out(p, node, type, a_rows, a_columns, &shape->a, n, &gemm->a));
    DPB_TRY(lay_out(p, node, type, b_rows, b_columns, &shape->b, n, &gemm->b));
    return lay_out(p, node, data_type(shape->c_type), shape->m, shape->n, &shape->c, n, &gemm->c);
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference)
{
    const size_t most = CUDA_GEMM_WORKSPACE;
    const uint32_t schemes =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t alignment = LEAST_ALIGNMENT;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    for (size_t i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment,
                                                      sizeof alignment);
    return status;
}

/* The key of a product in the file of tuning.c. Only single products are tuned. */
static void write_key(const struct program *p, const struct gemm_shape *shape,
                      char key[TUNING_KEY_BYTES])
{
    char gaps[80] = "";
    if (shape->a.column || shape->b.column || shape->c.column)
        snprintf(gaps, sizeof gaps, " columns of %llu,%llu,%llu",
                 (unsigned long long)shape->a.column, (unsigned long long)shape->b.column,
                 (unsigned long long)shape->c.column);
    snprintf(key, TUNING_KEY_BYTES, "%s\t%zu\tproduct %s m%llu n%llu k%llu %c%c%s%s",
             p->device->name, cublasLtGetVersion(), dpb_precision_name(p->args.precision),
             (unsigned long long)shape->m, (unsigned long long)shape->n,
             (unsigned long long)shape->k, shape->transpose_a ? 'T' : 'N',
             shape->transpose_b ? 'T' : 'N', shape->c_type == TYPE_FP32 ? " to fp32" : "", gaps);
}

static void keep_choices(struct gemm *gemm, const cublasLtMatmulHeuristicResult_t *found, int n)
{
    for (int i = 0; i < n; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            gemm->choices[gemm->n++] =
                (struct gemm_choice){found[i].algo, i, found[i].workspaceSize};
    }
}

static dpb_status choose(const struct program *p, const struct dpb_node *node, struct gemm *gemm)
{
    const int wanted = cuda_tunes(&p->device->options) ? GEMM_CHOICES : 1;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[GEMM_CHOICES] = {{.state = CUBLAS_STATUS_SUCCESS}};
    int n = 0;
    TRY_BLAS(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = prefer(preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(p->device->blas, gemm->desc, gemm->a, gemm->b,
                                                gemm->c, gemm->c, preference, wanted, found, &n);
    cublasLtMatmulPreferenceDestroy(preference);
    keep_choices(gemm, found, n);
    if (status == CUBLAS_STATUS_SUCCESS && gemm->n == 0)
        status = n > 0 ? found[0].state : CUBLAS_STATUS_NOT_SUPPORTED;
    return cuda_check_blas(p, node, "cublasLtMatmulAlgoGetHeuristic", status);
}

dpb_status cuda_gemm_open(const struct program *p, const struct dpb_node *node,
                          const struct gemm_shape *shape, struct gemm **gemm)
{
    struct gemm *made = calloc(1, sizeof *made);
    if (!made)
        return cuda_no_memory();
    *gemm = made; /* the program owns and closes it */
    made->adds = shape->adds;
    if (cuda_is_counted(p))
        return DPB_OK;
    write_key(p, shape, made->key);
    DPB_TRY(describe(p, node, shape, made));
    return choose(p, node, made);
}

size_t cuda_gemm_workspace(const struct gemm *gemm)
{
    size_t most = 0;
    for (uint32_t i = 0; i < gemm->n; i++)
        most = gemm->choices[i].workspace > most ? gemm->choices[i].workspace : most;
    return most;
}

void cuda_gemm_close(struct gemm *gemm)
{
    if (!gemm)
        return;
    if (gemm->c)
        cublasLtMatrixLayoutDestroy(gemm->c);
    if (gemm->b)
        cublasLtMatrixLayoutDestroy(gemm->b);
    if (gemm->a)
        cublasLtMatrixLayoutDestroy(gemm->a);
    if (gemm->desc)
        cublasLtMatmulDescDestroy(gemm->desc);
    free(gemm);
}

dpb_status cuda_gemm_run(const struct program *p, const struct dpb_node *node,
                         const struct gemm *gemm, const void *a, const void *b, void *c)
{
    const float one = 1.0f, beta = gemm->adds ? 1.0f : 0.0f;
    const struct gemm_choice *by = &gemm->choices[gemm->taken];
    TRY_BLAS(cublasLtMatmul(p->device->blas, gemm->desc, &one, a, gemm->a, b, gemm->b, &beta, c,
                            gemm->c, c, gemm->c, &by->algorithm, p->scratch, by->workspace,
                            p->device->stream));
    return DPB_OK;
}
