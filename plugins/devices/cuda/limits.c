/*
 * limits.c - this GPU's limits, for run.profile: products of large matrices by cuBLASLt in the
 * program's own arithmetic, and copying and reading of memory that is larger than the caches.
 *
 * Work is made larger until it takes long enough to be timed, or is as large as it may be. Where
 * the GPU has no memory left for that nothing is known: less would be the caches' rate. Operands
 * are random: a GPU that multiplies equal numbers takes less power and clocks higher than in
 * training.
 */
#include <stdlib.h>

#include "products.h"
#include "streams.h"

enum { TRIES = 5, FIRST_EDGE = 64, LAST_EDGE = 8192 };
static const float long_enough_ms = 2.0f;
static const size_t first_bytes = (size_t)1 << 20, last_bytes = (size_t)1 << 30;
/* Memory for several operands, one behind the other, and their use. */
struct trial {
    const struct program *p;
    void *memory;
    size_t bytes; /* of each operand */
    struct gemm *gemm;
};

typedef dpb_status trial_work(const void *trial);

static void *operand(const struct trial *trial, int which)
{
    return (char *)trial->memory + (size_t)which * trial->bytes;
}

/* Times the fastest of TRIES runs. */
static dpb_status time_best(const struct trial *trial, trial_work *work, float *best_ms)
{
    cudaEvent_t ends[2] = {NULL, NULL};
    dpb_status status = DPB_OK;
    *best_ms = 1e30f;
    for (int i = 0; i < 2; i++)
        DPB_THEN(status, CUDA_CALL(cudaEventCreate(&ends[i])));
    for (int i = 0; i < TRIES && status == DPB_OK; i++) {
        float ms = 0.0f;
        status = cuda_time_runs(trial->p, NULL, "work to time", work, trial, 1, ends, &ms);
        *best_ms = status == DPB_OK && ms < *best_ms ? ms : *best_ms;
    }
    for (int i = 0; i < 2; i++) {
        if (ends[i])
            cudaEventDestroy(ends[i]);
    }
    return status;
}

/* With memory for n operands. *fits: false where the device has no more, which is no error. */
static dpb_status time_with_memory(struct trial *trial, trial_work *work, int n, bool *fits,
                                   float *ms)
{
    const struct program *p = trial->p;
    DPB_TRY(cuda_allocate((size_t)n * trial->bytes, &trial->memory, fits));
    if (!*fits)
        return DPB_OK;
    cuda_fill_random(p->device->stream, p->type, trial->memory,
                     (size_t)n * trial->bytes / cuda_type_size(p->type));
    dpb_status status = cuda_check(p, NULL, "filling of memory", cudaPeekAtLastError());
    DPB_THEN(status, time_best(trial, work, ms));
    cudaStreamSynchronize(p->device->stream);
    cudaFree(trial->memory);
    return status;
}

/* ---- products ------------------------------------------------------------------------------ */

static dpb_status multiply(const void *trial_)
{
    const struct trial *trial = trial_;
    return cuda_gemm_run(trial->p, NULL, trial->gemm, operand(trial, 0), operand(trial, 1),
                         operand(trial, 2));
}

static dpb_status time_product(struct trial *trial, uint64_t edge, bool *fits, float *ms)
{
    const struct program *p = trial->p;
    const struct gemm_shape shape = {.m = edge, .n = edge, .k = edge, .c_type = p->type};
    trial->bytes = edge * edge * cuda_type_size(p->type);
    trial->gemm = NULL;
    dpb_status status = cuda_gemm_open(p, NULL, &shape, &trial->gemm);
    DPB_THEN(status, time_with_memory(trial, multiply, 3, fits, ms));
    cuda_gemm_close(trial->gemm);
    return status;
}

static dpb_status measure_products(struct trial *trial, double *flops_per_s)
{
    float ms = 0.0f;
    for (uint64_t edge = FIRST_EDGE; edge <= LAST_EDGE && ms < long_enough_ms; edge *= 2) {
        bool fits = false;
        DPB_TRY(time_product(trial, edge, &fits, &ms));
        *flops_per_s =
            fits ? 2.0 * (double)edge * (double)edge * (double)edge / ((double)ms * 1e-3) : 0.0;
        if (!fits)
            break;
    }
    return DPB_OK;
}

/* ---- memory -------------------------------------------------------------------------------- */

static dpb_status copy(const void *trial_)
{
    const struct trial *trial = trial_;
    return CUDA_CALL(cudaMemcpyAsync(operand(trial, 1), operand(trial, 0), trial->bytes,
                                     cudaMemcpyDeviceToDevice, trial->p->device->stream));
}

/* Looks for infinite values, finds none, and writes nothing. */
static dpb_status read(const void *trial_)
{
    const struct trial *trial = trial_;
    const struct program *p = trial->p;
    cuda_find_infinite(p->device->stream, p->words->data, trial->memory,
                       trial->bytes / sizeof(float), &p->control->infinite);
    return cuda_check(p, NULL, "reading of memory", cudaPeekAtLastError());
}

/* `operands` are read and written once each. */
static dpb_status measure_memory(struct trial *trial, trial_work *work, int operands,
                                 double *bytes_per_s)
{
    float ms = 0.0f;
    for (trial->bytes = first_bytes; trial->bytes <= last_bytes && ms < long_enough_ms;
         trial->bytes *= 2) {
        bool fits = false;
        DPB_TRY(time_with_memory(trial, work, operands, &fits, &ms));
        *bytes_per_s = fits ? (double)operands * (double)trial->bytes / ((double)ms * 1e-3) : 0.0;
        if (!fits)
            break;
    }
    return DPB_OK;
}

dpb_status cuda_measure_limits(struct program *p, struct dpb_profile_limits *limits)
{
    struct trial trial = {.p = p};
    *limits = (struct dpb_profile_limits){0};
    DPB_TRY(measure_products(&trial, p->type == TYPE_FP32 ? &limits->fp32_flops_per_s
                                                          : &limits->bf16_flops_per_s));
    DPB_TRY(measure_memory(&trial, copy, 2, &limits->copy_bytes_per_s));
    return measure_memory(&trial, read, 1, &limits->read_bytes_per_s);
}
