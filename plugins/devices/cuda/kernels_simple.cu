/*
 * kernels_simple.cu - element by element: weights, samples, bias and ReLU, sums, copies of parts,
 * dropout, and the flag that the host waits for.
 */
#include "dpbench/random.h"
#include "kernel.h"

/* -------------------------------------------------------------------------------------- weights */

template <typename T> __global__ void pack_weights(const packing *table, const float *weights)
{
    const packing entry = table[blockIdx.y];
    T *to = static_cast<T *>(entry.to);
    const float *from = weights + entry.from;
    const index_t n = (index_t)entry.o * entry.i * entry.hw;
    for (EACH(k, n)) {
        const index_t i = k % entry.i, hw = k / entry.i % entry.hw, o = k / entry.i / entry.hw;
        to[k] = from_fp32<T>(from[(o * entry.i + i) * entry.hw + hw]);
    }
}

void cuda_pack_weights(cudaStream_t stream, enum cuda_type type, const struct packing *table,
                       uint32_t n, const float *weights)
{
    /* As many as the largest weights want, of which there are 100 million elements in VGG's first
     * dense layer; those of small ones end at once. */
    const dim3 blocks(256, n);
    BY_TYPE(type, LAUNCH(pack_weights<T>, blocks, THREADS, stream, table, weights));
}

template <typename T>
__global__ void unpack_gradient(const T *from, float *to, uint32_t channels, uint32_t hw, index_t n)
{
    for (EACH(k, n)) {
        const index_t pixel = k % hw, i = k / hw % channels, o = k / hw / channels;
        to[k] = to_fp32(from[(o * hw + pixel) * channels + i]);
    }
}

void cuda_unpack_gradient(cudaStream_t stream, enum cuda_type type, const void *from, float *to,
                          uint32_t o, uint32_t i, uint32_t hw)
{
    const index_t n = (index_t)o * i * hw;
    BY_TYPE(type, LAUNCH(unpack_gradient<T>, blocks_for(n), THREADS, stream,
                         static_cast<const T *>(from), to, i, hw, n));
}

/* -------------------------------------------------------------------------------------- samples */

template <typename T> __global__ void normalise_samples(samples from, T *y, grid shape, index_t n)
{
    grid as_sent = shape;
    as_sent.planes = from.chw;
    for (EACH(k, n)) {
        const place to = place_of(k, shape);
        const uint32_t c = to.c;
        const index_t sample = from.numbers ? from.numbers[to.n] : to.n;
        const index_t at = element_of(as_sent, sample, to.h, to.w, c);
        const float value = from.bytes ? (float)static_cast<const uint8_t *>(from.data)[at]
                                       : static_cast<const float *>(from.data)[at];
        y[k] = from_fp32<T>(value * from.scale[c] + from.offset[c]);
    }
}

void cuda_normalise_samples(cudaStream_t stream, enum cuda_type type, const struct samples *from,
                            void *y, struct grid grid)
{
    const index_t n = elements(grid);
    BY_TYPE(type, LAUNCH(normalise_samples<T>, blocks_for(n), THREADS, stream, *from,
                         static_cast<T *>(y), grid, n));
}

/* ------------------------------------------------------------------------------ bias, ReLU, sum */

/* A NaN is not <= 0: it passes, so that it is seen. */
static __host__ __device__ inline float relu_of(float x)
{
    return x <= 0.0f ? 0.0f : x;
}

/* Of n packs. */
template <typename T, int N>
__global__ void bias_relu(const T *x, const float *bias, bool relu, T *y, index_t n, grid shape)
{
    const bool same = same_channels<N>(shape);
    channel_values<N> add = {};
    bool known = false;
    for (EACH(k, n)) {
        pack<T, N> values = load_pack<T, N>(x, k);
        if (!known || !same)
            add = values_of<N>(bias, 0.0f, channel_of(k * N, shape), shape);
        known = true;
        for (int i = 0; i < N; i++) {
            const float value = to_fp32(values.at[i]) + add.at[i];
            values.at[i] = from_fp32<T>(relu ? relu_of(value) : value);
        }
        store_pack(y, k, values);
    }
}

void cuda_bias_relu(cudaStream_t stream, enum cuda_type type, const void *x, const float *bias,
                    bool relu, void *y, struct grid grid)
{
    BY_TYPE(type,
            BY_PACK(run_length(grid), const index_t n = elements(grid) / N;
                    LAUNCH((bias_relu<T, N>), blocks_for_packs(n), THREADS, stream,
                           static_cast<const T *>(x), bias, relu, static_cast<T *>(y), n, grid)));
}

template <typename T, int N>
__global__ void relu_backward(const T *dy, const T *y, T *dx, index_t n)
{
    for (EACH(k, n)) {
        const pack<T, N> out = load_pack<T, N>(y, k);
        pack<T, N> gradient = load_pack<T, N>(dy, k);
        for (int i = 0; i < N; i++)
            gradient.at[i] = to_fp32(out.at[i]) <= 0.0f ? from_fp32<T>(0.0f) : gradient.at[i];
        store_pack(dx, k, gradient);
    }
}

void cuda_relu_backward(cudaStream_t stream, enum cuda_type type, const void *dy, const void *y,
                        void *dx, uint64_t n)
{
    BY_TYPE(type, BY_PACK(n, LAUNCH((relu_backward<T, N>), blocks_for(n / N), THREADS, stream,
                                    static_cast<const T *>(dy), static_cast<const T *>(y),
                                    static_cast<T *>(dx), n / N)));
}

template <typename T, int N> __global__ void sum(sum_parts parts, T *to, index_t n)
{
    for (EACH(k, n)) {
        float total[N] = {};
        pack<T, N> rounded;
        for (uint32_t part = 0; part < parts.n; part++) {
            const pack<T, N> values = load_pack<T, N>(static_cast<const T *>(parts.part[part]), k);
            for (int i = 0; i < N; i++)
                total[i] += to_fp32(values.at[i]);
        }
        for (int i = 0; i < N; i++)
            rounded.at[i] = from_fp32<T>(total[i]);
        store_pack(to, k, rounded);
    }
}

void cuda_sum(cudaStream_t stream, enum cuda_type type, const struct sum_parts *parts, void *to,
              uint64_t n)
{
    BY_TYPE(type, BY_PACK(n, LAUNCH((sum<T, N>), blocks_for(n / N), THREADS, stream, *parts,
                                    static_cast<T *>(to), n / N)));
}

/* ----------------------------------------------------------------------------- parts of tensors */

template <typename T>
__global__ void gather_columns(const T *from, uint32_t wide, uint32_t at, T *to, index_t n,
                               uint32_t c)
{
    for (EACH(k, n))
        to[k] = from[k / c * wide + at + k % c];
}

void cuda_gather_columns(cudaStream_t stream, enum cuda_type type, const void *wide_matrix,
                         uint32_t wide, uint32_t at, void *to, uint64_t rows, uint32_t c)
{
    const index_t n = rows * c;
    BY_TYPE(type,
            LAUNCH(gather_columns<T>, blocks_for(n), THREADS, stream,
                   static_cast<const T *>(wide_matrix), wide, at, static_cast<T *>(to), n, c));
}

template <typename T>
__global__ void scatter_columns(const T *from, T *to, uint32_t wide, uint32_t at, index_t n,
                                uint32_t c)
{
    for (EACH(k, n))
        to[k / c * wide + at + k % c] = from[k];
}

void cuda_scatter_columns(cudaStream_t stream, enum cuda_type type, const void *from,
                          void *wide_matrix, uint32_t wide, uint32_t at, uint64_t rows, uint32_t c)
{
    const index_t n = rows * c;
    BY_TYPE(type,
            LAUNCH(scatter_columns<T>, blocks_for(n), THREADS, stream, static_cast<const T *>(from),
                   static_cast<T *>(wide_matrix), wide, at, n, c));
}

template <typename T> __global__ void sample(sampling by, const T *large, T *small, index_t n)
{
    for (EACH(k, n)) {
        const place at = place_of(k, by.small);
        small[k] =
            at.c < by.large.c
                ? large[element_of(by.large, at.n, at.h * by.stride_h, at.w * by.stride_w, at.c)]
                : from_fp32<T>(0.0f);
    }
}

void cuda_sample(cudaStream_t stream, enum cuda_type type, const struct sampling *sampling,
                 const void *large, void *small)
{
    const index_t n = elements(sampling->small);
    BY_TYPE(type, LAUNCH(sample<T>, blocks_for(n), THREADS, stream, *sampling,
                         static_cast<const T *>(large), static_cast<T *>(small), n));
}

template <typename T> __global__ void spread(sampling by, const T *small, T *large, index_t n)
{
    for (EACH(k, n)) {
        const place at = place_of(k, by.large);
        const uint32_t h = at.h / by.stride_h, w = at.w / by.stride_w;
        const bool shown =
            at.h % by.stride_h == 0 && at.w % by.stride_w == 0 && h < by.small.h && w < by.small.w;
        large[k] = shown ? small[element_of(by.small, at.n, h, w, at.c)] : from_fp32<T>(0.0f);
    }
}

void cuda_spread(cudaStream_t stream, enum cuda_type type, const struct sampling *sampling,
                 const void *small, void *large)
{
    const index_t n = elements(sampling->large);
    BY_TYPE(type, LAUNCH(spread<T>, blocks_for(n), THREADS, stream, *sampling,
                         static_cast<const T *>(small), static_cast<T *>(large), n));
}

template <typename T> __global__ void pad(frame by, const T *inner, T *outer, index_t n)
{
    for (EACH(k, n)) {
        const place at = place_of(k, by.outer);
        const uint32_t h = at.h - by.top, w = at.w - by.left; /* outside they wrap round */
        outer[k] = h < by.inner.h && w < by.inner.w ? inner[element_of(by.inner, at.n, h, w, at.c)]
                                                    : from_fp32<T>(0.0f);
    }
}

void cuda_pad(cudaStream_t stream, enum cuda_type type, const struct frame *frame,
              const void *inner, void *outer)
{
    const index_t n = elements(frame->outer);
    BY_TYPE(type, LAUNCH(pad<T>, blocks_for(n), THREADS, stream, *frame,
                         static_cast<const T *>(inner), static_cast<T *>(outer), n));
}

template <typename T> __global__ void crop(frame by, const T *outer, T *inner, index_t n)
{
    for (EACH(k, n)) {
        const place at = place_of(k, by.inner);
        inner[k] = outer[element_of(by.outer, at.n, at.h + by.top, at.w + by.left, at.c)];
    }
}

void cuda_crop(cudaStream_t stream, enum cuda_type type, const struct frame *frame,
               const void *outer, void *inner)
{
    const index_t n = elements(frame->inner);
    BY_TYPE(type, LAUNCH(crop<T>, blocks_for(n), THREADS, stream, *frame,
                         static_cast<const T *>(outer), static_cast<T *>(inner), n));
}

/* -------------------------------------------------------------------------------------- dropout */

template <typename T> __global__ void drop(dropout by, const T *x, T *y, grid shape, index_t n)
{
    const float scale = (float)(1.0 / (1.0 - by.rate));
    const pass_words words = *by.words;
    for (EACH(k, n)) {
        const place at = place_of(k, shape);
        const uint32_t element = (at.c * shape.h + at.h) * shape.w + at.w;
        const bool keeps = dpb_dropout_keeps(
            by.seed, words.step, words.first_sample + (uint32_t)at.n, by.node, element, by.rate);
        y[k] = from_fp32<T>(keeps ? to_fp32(x[k]) * scale : 0.0f);
    }
}

void cuda_dropout(cudaStream_t stream, enum cuda_type type, const struct dropout *dropout,
                  const void *x, void *y, struct grid grid)
{
    const index_t n = elements(grid);
    BY_TYPE(type, LAUNCH(drop<T>, blocks_for(n), THREADS, stream, *dropout,
                         static_cast<const T *>(x), static_cast<T *>(y), grid, n));
}

/* ----------------------------------------------------------------------------------------- flag */

__global__ void raise_flag(const pass_words *words, volatile uint32_t *flag)
{
    __threadfence_system();
    *flag = words->serial;
}

void cuda_raise(cudaStream_t stream, const struct pass_words *words, uint32_t *flag)
{
    LAUNCH(raise_flag, 1, 1, stream, words, flag);
}

__global__ void find_infinite(const pass_words *words, const float *values, index_t n,
                              volatile uint32_t *flag)
{
    for (EACH(k, n)) {
        if (!(fabsf(values[k]) <= 3.402823466e38f)) /* FLT_MAX */
            *flag = words->serial;
    }
}

void cuda_find_infinite(cudaStream_t stream, const struct pass_words *words, const float *values,
                        uint64_t n, uint32_t *flag)
{
    LAUNCH(find_infinite, blocks_for(n), THREADS, stream, words, values, (index_t)n, flag);
}
