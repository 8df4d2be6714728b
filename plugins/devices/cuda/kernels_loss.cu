/*
 * kernels_loss.cu - softmax and cross-entropy: a block a sample, whose threads take turns of the
 * classes; the exponentials are fp32, their sum and what follows fp64.
 */
#include "kernel.h"

enum { LOSS_THREADS = 128 };

/* The largest value and the first class that has it. A NaN is never larger: it shows in the sum. */
struct largest {
    float value;
    uint32_t at;
};

static __device__ inline bool beats(const largest &a, const largest &b)
{
    return a.value > b.value || (a.value == b.value && a.at < b.at);
}

template <typename T> __global__ void softmax_loss(loss by, const T *logits)
{
    __shared__ largest best[LOSS_THREADS];
    __shared__ double part[LOSS_THREADS], logit_part[LOSS_THREADS];
    const index_t i = blockIdx.x;
    const T *mine = logits + i * by.classes;
    largest found = {-INFINITY, UINT32_MAX};
    for (uint32_t k = threadIdx.x; k < by.classes; k += LOSS_THREADS) {
        const largest candidate = {to_fp32(mine[k]), k};
        found = beats(candidate, found) ? candidate : found;
    }
    best[threadIdx.x] = found;
    __syncthreads();
    for (uint32_t k = 0; k < LOSS_THREADS; k++)
        found = beats(best[k], found) ? best[k] : found;
    double sum = 0.0, all = 0.0;
    for (uint32_t k = threadIdx.x; k < by.classes; k += LOSS_THREADS) {
        const float logit = to_fp32(mine[k]);
        sum += (double)expf(logit - found.value);
        all += by.smoothing > 0.0f ? (double)logit : 0.0;
    }
    part[threadIdx.x] = sum;
    logit_part[threadIdx.x] = all;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    sum = all = 0.0;
    for (uint32_t k = 0; k < LOSS_THREADS; k++) {
        sum += part[k];
        all += logit_part[k];
    }
    const uint32_t label = (uint32_t)by.labels[i];
    const double log_sum = (double)found.value + log(sum);
    by.log_sum[i] = log_sum;
    const double smoothing = (double)by.smoothing;
    by.sample_loss[i] =
        log_sum - (1.0 - smoothing) * (double)to_fp32(mine[label]) - smoothing / by.classes * all;
    by.correct[i] = found.at == label;
}

void cuda_softmax_loss(cudaStream_t stream, enum cuda_type type, const struct loss *loss,
                       const void *logits)
{
    const dim3 blocks(loss->n);
    BY_TYPE(type, LAUNCH_BLOCKS(softmax_loss<T>, blocks, LOSS_THREADS, stream, *loss,
                                static_cast<const T *>(logits)));
}

/* Read by all threads, added up by one: the order of the sum is the samples'. */
__global__ void outcome_of(loss by, const pass_words *words, outcome_words *outcome)
{
    __shared__ double losses[LOSS_THREADS];
    __shared__ uint32_t correct[LOSS_THREADS];
    const uint32_t valid = words->valid;
    double total = 0.0;
    uint32_t n_correct = 0;
    for (uint32_t begin = 0; begin < valid; begin += LOSS_THREADS) {
        const uint32_t mine = begin + threadIdx.x;
        losses[threadIdx.x] = mine < valid ? by.sample_loss[mine] : 0.0;
        correct[threadIdx.x] = mine < valid ? by.correct[mine] : 0;
        __syncthreads();
        for (uint32_t i = 0; threadIdx.x == 0 && i < LOSS_THREADS && begin + i < valid; i++) {
            total += losses[i];
            n_correct += correct[i];
        }
        __syncthreads();
    }
    if (threadIdx.x != 0)
        return;
    outcome->loss = total / valid;
    outcome->correct = n_correct;
}

void cuda_outcome(cudaStream_t stream, const struct loss *loss, const struct pass_words *words,
                  struct outcome_words *outcome)
{
    LAUNCH_BLOCKS(outcome_of, 1, LOSS_THREADS, stream, *loss, words, outcome);
}

template <typename T>
__global__ void softmax_loss_backward(loss by, const pass_words *words, const T *logits, T *dx,
                                      index_t n)
{
    const float share = by.smoothing / (float)by.classes;
    for (EACH(k, n)) {
        const index_t i = k / by.classes;
        const uint32_t at = (uint32_t)(k % by.classes);
        const float probability = expf((float)((double)to_fp32(logits[k]) - by.log_sum[i]));
        const float wanted = share + (at == (uint32_t)by.labels[i] ? 1.0f - by.smoothing : 0.0f);
        dx[k] = from_fp32<T>((probability - wanted) / (float)by.n * words->loss_scale);
    }
}

void cuda_softmax_loss_backward(cudaStream_t stream, enum cuda_type type, const struct loss *loss,
                                const struct pass_words *words, const void *logits, void *dx)
{
    const index_t n = (index_t)loss->n * loss->classes;
    BY_TYPE(type, LAUNCH(softmax_loss_backward<T>, blocks_for(n), THREADS, stream, *loss, words,
                         static_cast<const T *>(logits), static_cast<T *>(dx), n));
}
