/*
 * kernels_loss.cu - softmax and cross-entropy: a block a sample, whose threads take turns of the
 * classes; the exponentials are fp32, their sum and what follows fp64.
 */
#include "kernel.h"

enum { LOSS_THREADS = 128 };

template <typename T> __global__ void softmax_loss(loss by, const T *logits)
{
    __shared__ float best[LOSS_THREADS];
    __shared__ uint32_t larger_part[LOSS_THREADS];
    __shared__ double part[LOSS_THREADS], logit_part[LOSS_THREADS];
    const index_t i = blockIdx.x;
    const T *mine = logits + i * by.classes;
    const uint32_t label = (uint32_t)by.labels[i];
    const float wanted = to_fp32(mine[label]);
    float largest = -INFINITY; /* a NaN is never larger: it shows in the sum */
    uint32_t larger = 0;
    for (uint32_t k = threadIdx.x; k < by.classes; k += LOSS_THREADS) {
        const float logit = to_fp32(mine[k]);
        largest = logit > largest ? logit : largest;
        larger += k != label && !(logit < wanted || (logit == wanted && k > label));
    }
    best[threadIdx.x] = largest;
    larger_part[threadIdx.x] = larger;
    __syncthreads();
    for (uint32_t k = 0; k < LOSS_THREADS; k++)
        largest = best[k] > largest ? best[k] : largest;
    double sum = 0.0, all = 0.0;
    for (uint32_t k = threadIdx.x; k < by.classes; k += LOSS_THREADS) {
        const float logit = to_fp32(mine[k]);
        sum += (double)expf(logit - largest);
        all += by.smoothing > 0.0f ? (double)logit : 0.0;
    }
    part[threadIdx.x] = sum;
    logit_part[threadIdx.x] = all;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    sum = all = 0.0;
    larger = 0;
    for (uint32_t k = 0; k < LOSS_THREADS; k++) {
        sum += part[k];
        all += logit_part[k];
        larger += larger_part[k];
    }
    const double log_sum = (double)largest + log(sum);
    by.log_sum[i] = log_sum;
    const double smoothing = (double)by.smoothing;
    by.sample_loss[i] = log_sum - (1.0 - smoothing) * (double)wanted - smoothing / by.classes * all;
    by.label_rank[i] = larger;
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
    __shared__ uint32_t rank[LOSS_THREADS];
    const uint32_t valid = words->valid;
    double total = 0.0;
    uint32_t correct = 0, in_top5 = 0;
    for (uint32_t begin = 0; begin < valid; begin += LOSS_THREADS) {
        const uint32_t mine = begin + threadIdx.x;
        losses[threadIdx.x] = mine < valid ? by.sample_loss[mine] : 0.0;
        rank[threadIdx.x] = mine < valid ? by.label_rank[mine] : 0;
        __syncthreads();
        for (uint32_t i = 0; threadIdx.x == 0 && i < LOSS_THREADS && begin + i < valid; i++) {
            total += losses[i];
            correct += rank[i] == 0;
            in_top5 += rank[i] < 5;
        }
        __syncthreads();
    }
    if (threadIdx.x != 0)
        return;
    outcome->loss = total / valid;
    outcome->correct = correct;
    outcome->in_top5 = in_top5;
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
