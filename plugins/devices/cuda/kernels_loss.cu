/*
 * kernels_loss.cu - softmax and cross-entropy: a block a label, whose threads take turns of packs
 * of classes. Exponentials are fp32, their sum and all behind it fp64. A pack may reach into the
 * gap behind the last class, whose content is arbitrary.
 */
#include "kernel.h"

enum { LOSS_THREADS = 128 };

/* The packs of a label's classes. */
template <int N> static uint32_t packs_of(const loss &by)
{
    return (by.classes + N - 1) / N;
}

/* Calls each(class, logit) for this thread's classes. */
template <typename T, int N, typename Each>
static __device__ inline void for_classes(const T *logits, uint32_t packs, uint32_t classes,
                                          Each each)
{
    for (uint32_t k = threadIdx.x; k < packs; k += LOSS_THREADS) {
        const pack<T, N> values = load_pack<T, N>(logits, k);
        UNROLLED
        for (int i = 0; i < N; i++)
            if (k * N + i < classes)
                each(k * N + i, to_fp32(values.at[i]));
    }
}

template <typename T, int N> __global__ void softmax_loss(loss by, const T *logits, uint32_t packs)
{
    __shared__ float best[LOSS_THREADS];
    __shared__ uint32_t larger_part[LOSS_THREADS];
    __shared__ double part[LOSS_THREADS], logit_part[LOSS_THREADS];
    const index_t i = blockIdx.x;
    const T *mine = logits + i * by.wide;
    const uint32_t label = (uint32_t)by.labels[i];
    const float wanted = to_fp32(mine[label]);
    float largest = -INFINITY; /* a NaN is never larger: it shows in the sum */
    uint32_t larger = 0;
    for_classes<T, N>(mine, packs, by.classes, [&](uint32_t k, float logit) {
        largest = logit > largest ? logit : largest;
        larger += k != label && !(logit < wanted || (logit == wanted && k > label));
    });
    best[threadIdx.x] = largest;
    larger_part[threadIdx.x] = larger;
    __syncthreads();
    for (uint32_t k = 0; k < LOSS_THREADS; k++)
        largest = best[k] > largest ? best[k] : largest;
    double sum = 0.0, all = 0.0;
    for_classes<T, N>(mine, packs, by.classes, [&](uint32_t, float logit) {
        sum += (double)expf(logit - largest);
        all += by.smoothing > 0.0f ? (double)logit : 0.0;
    });
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
    by.label_loss[i] = log_sum - (1.0 - smoothing) * (double)wanted - smoothing / by.classes * all;
    by.label_rank[i] = larger;
}

void cuda_softmax_loss(cudaStream_t stream, enum cuda_type type, const struct loss *loss,
                       const void *logits)
{
    const dim3 blocks(loss->n);
    BY_TYPE(type, BY_PACK(loss->wide,
                          LAUNCH_BLOCKS((softmax_loss<T, N>), blocks, LOSS_THREADS, stream, *loss,
                                        static_cast<const T *>(logits), packs_of<N>(*loss))));
}

/* Each thread adds up its labels, then one the threads' sums: always in the same order. */
__global__ void outcome_of(loss by, const pass_words *words, outcome_words *outcome)
{
    __shared__ double losses[LOSS_THREADS];
    __shared__ uint32_t right[LOSS_THREADS], near[LOSS_THREADS];
    const uint32_t valid = words->valid * by.in_sample;
    double total = 0.0;
    uint32_t correct = 0, in_top5 = 0;
    for (uint32_t i = threadIdx.x; i < valid; i += LOSS_THREADS) {
        total += by.label_loss[i];
        correct += by.label_rank[i] == 0;
        in_top5 += by.label_rank[i] < 5;
    }
    losses[threadIdx.x] = total;
    right[threadIdx.x] = correct;
    near[threadIdx.x] = in_top5;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (uint32_t i = 1; i < LOSS_THREADS; i++) {
        total += losses[i];
        correct += right[i];
        in_top5 += near[i];
    }
    outcome->loss = total / valid;
    outcome->correct = correct;
    outcome->in_top5 = in_top5;
}

void cuda_outcome(cudaStream_t stream, const struct loss *loss, const struct pass_words *words,
                  struct outcome_words *outcome)
{
    LAUNCH_BLOCKS(outcome_of, 1, LOSS_THREADS, stream, *loss, words, outcome);
}

template <typename T, int N>
__global__ void softmax_loss_backward(loss by, const pass_words *words, const T *logits, T *dx,
                                      uint32_t packs)
{
    const index_t i = blockIdx.x;
    const uint32_t label = (uint32_t)by.labels[i];
    const double log_sum = by.log_sum[i];
    const float share = by.smoothing / (float)by.classes, scale = words->loss_scale;
    for (uint32_t k = threadIdx.x; k < packs; k += LOSS_THREADS) {
        pack<T, N> values = load_pack<T, N>(logits + i * by.wide, k);
        UNROLLED
        for (int j = 0; j < N; j++) {
            const float probability = expf((float)((double)to_fp32(values.at[j]) - log_sum));
            const float wanted = share + (k * N + j == label ? 1.0f - by.smoothing : 0.0f);
            values.at[j] = from_fp32<T>((probability - wanted) / (float)by.n * scale);
        }
        store_pack(dx + i * by.wide, k, values);
    }
}

void cuda_softmax_loss_backward(cudaStream_t stream, enum cuda_type type, const struct loss *loss,
                                const struct pass_words *words, const void *logits, void *dx)
{
    const dim3 blocks(loss->n);
    BY_TYPE(type, BY_PACK(loss->wide, LAUNCH((softmax_loss_backward<T, N>), blocks, LOSS_THREADS,
                                             stream, *loss, words, static_cast<const T *>(logits),
                                             static_cast<T *>(dx), packs_of<N>(*loss))));
}
