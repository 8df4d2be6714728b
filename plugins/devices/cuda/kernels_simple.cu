/*
 * kernels_simple.cu - element by element: weights, samples, bias and ReLU, sums, copies of parts,
 * dropout, and the flag that the host waits for.
 */
#include "dpbench/random.h"
#include "kernel.h"

/* -------------------------------------------------------------------------------------- weights */

/* Whether a weight lies in memory as core has it, but for its type. */
static __host__ __device__ inline bool keeps_order(const packing &entry)
{
    return entry.hw == 1 && entry.wide == entry.i;
}

template <typename To, typename From, int N>
static __device__ inline void convert_packs(const From *from, To *to, index_t packs)
{
    for (EACH(k, packs)) {
        const pack<From, N> values = load_pack<From, N>(from, k);
        pack<To, N> converted;
        for (int i = 0; i < N; i++)
            converted.at[i] = from_fp32<To>(to_fp32(values.at[i]));
        store_pack(to, k, converted);
    }
}

/* A thread takes all pixels of one of n pairs of output and input: what a warp reads is one piece
 * of memory, and so is what the warp writes of a pixel. */
template <typename T, typename I>
static __device__ inline void permute(const packing &entry, const float *from, T *to, I n)
{
    for (EACH_OF(I, k, n)) {
        I o = k;
        const uint32_t i = part(&o, entry.by_wide);
        for (uint32_t pixel = 0; pixel < entry.hw; pixel++)
            to[(o * entry.hw + pixel) * entry.wide + i] =
                from_fp32<T>(i < entry.i ? from[(o * entry.i + i) * entry.hw + pixel] : 0.0f);
    }
}

template <typename T>
__global__ void pack_weights(const packing *table, const float *weights, bool long_indices)
{
    constexpr int N = PACK_BYTES / sizeof(T);
    const packing entry = table[blockIdx.y];
    const float *from = weights + entry.from;
    T *to = static_cast<T *>(entry.to);
    const index_t pairs = (index_t)entry.o * entry.wide, n = pairs * entry.hw;
    if (keeps_order(entry) && n % N == 0)
        convert_packs<T, float, N>(from, to, n / N);
    else if (n <= DIVISOR_MOST && !long_indices)
        permute<T, uint32_t>(entry, from, to, (uint32_t)pairs);
    else
        permute<T, index_t>(entry, from, to, pairs);
}

void cuda_pack_weights(cudaStream_t stream, enum cuda_type type, const struct packing *table,
                       uint32_t n, const float *weights)
{
    /* As many as the largest weights want, of which there are 100 million elements in VGG's first
     * dense layer; those of small ones end at once. */
    const dim3 blocks(256, n);
    BY_TYPE(type, LAUNCH(pack_weights<T>, blocks, THREADS, stream, table, weights, LONG_INDICES));
}

template <typename T, typename I>
__global__ void unpack_gradient(const T *from, float *to, divisor channels, divisor hw,
                                uint32_t wide, I n)
{
    for (EACH_OF(I, k, n)) {
        I o = k;
        const uint32_t pixel = part(&o, hw), i = part(&o, channels);
        to[k] = to_fp32(from[(o * hw.by + pixel) * wide + i]);
    }
}

template <typename T, int N>
__global__ void convert_gradient(const T *from, float *to, index_t packs)
{
    convert_packs<float, T, N>(from, to, packs);
}

void cuda_unpack_gradient(cudaStream_t stream, enum cuda_type type, const void *from, float *to,
                          const struct packing *by)
{
    const index_t n = (index_t)by->o * by->i * by->hw, most = (index_t)by->o * by->wide * by->hw;
    const divisor by_i = cuda_divisor(by->i), by_hw = cuda_divisor(by->hw);
    if (keeps_order(*by))
        BY_TYPE(type, BY_PACK(n, LAUNCH((convert_gradient<T, N>), blocks_for(n / N), THREADS,
                                        stream, static_cast<const T *>(from), to, n / N)));
    else
        BY_TYPE(type, BY_INDEX(most, LAUNCH((unpack_gradient<T, I>), blocks_for(n), THREADS, stream,
                                            static_cast<const T *>(from), to, by_i, by_hw, by->wide,
                                            (I)n)));
}

/* -------------------------------------------------------------------------------------- samples */

/* A pool may have more samples than the batch: it is indexed by 64 bits. A kernel would
 * copy indexed arguments, as scale and offset, to local memory. */
template <typename T>
static __device__ inline T normalised(const samples &from, index_t at, uint32_t c)
{
    const float value = from.bytes ? (float)static_cast<const uint8_t *>(from.data)[at]
                                   : static_cast<const float *>(from.data)[at];
    return from_fp32<T>(value * from.scale[c] + from.offset[c]);
}

/* places: of packs. */
template <typename T, typename I, int N>
__global__ void normalise_samples(const __grid_constant__ samples from, T *y, parted places, I n)
{
    grid as_sent = places.shape;
    as_sent.c = from.channels;
    as_sent.planes = from.chw;
    for (EACH_OF(I, k, n)) {
        const place to = place_of(k, places);
        const uint32_t sample = from.numbers ? from.numbers[to.n] : to.n;
        pack<T, N> out;
        UNROLLED
        for (int i = 0; i < N; i++) {
            const uint32_t c = to.c * N + i;
            out.at[i] =
                c < from.channels
                    ? normalised<T>(from, element_of<index_t>(as_sent, sample, to.h, to.w, c), c)
                    : from_fp32<T>(0.0f);
        }
        store_pack(y, k, out);
    }
}

void cuda_normalise_samples(cudaStream_t stream, enum cuda_type type, const struct samples *from,
                            void *y, struct grid grid)
{
    const index_t most = elements(grid);
    BY_TYPE(type,
            BY_PACK(grid.planes ? 1 : grid.c, struct grid packs = grid; packs.c /= N;
                    const index_t n = elements(packs); const parted places = parted_of(packs);
                    BY_INDEX(most, LAUNCH((normalise_samples<T, I, N>), blocks_for(n), THREADS,
                                          stream, *from, static_cast<T *>(y), places, (I)n))));
}

/* ------------------------------------------------------------------------------ bias, ReLU, sum */

/* A NaN is not <= 0: it passes, so that it is seen. */
static __host__ __device__ inline float relu_of(float x)
{
    return x <= 0.0f ? 0.0f : x;
}

/* The packs of a grid, as the elements of another. A pack has N neighbouring channels of NHWC, or N
 * pixels of NCHW. */
template <int N> static grid packs_of(grid shape)
{
    if (shape.planes) {
        shape.w = shape.h * shape.w / N;
        shape.h = 1;
    } else {
        shape.c /= N;
    }
    return shape;
}

/* What a bias (NULL: none) adds to a pack: `column` is of packs_of. */
template <int N>
static __device__ inline pack<float, N> bias_of(const float *bias, uint32_t column, bool planes)
{
    pack<float, N> values;
    if (bias && !planes)
        return load_pack<float, N>(bias, column);
    for (int i = 0; i < N; i++)
        values.at[i] = bias ? bias[column] : 0.0f;
    return values;
}

template <typename T, int N, typename I>
__global__ void bias_relu(const T *x, const float *bias, bool relu, T *y, I n, parted packs)
{
    const grid &shape = packs.shape;
    const bool same = !shape.planes && gridDim.x * blockDim.x % shape.c == 0; /* of all packs */
    pack<float, N> add = {};
    bool known = false;
    for (EACH_OF(I, k, n)) {
        pack<T, N> values = load_pack<T, N>(x, k);
        if (!known || !same)
            add = bias_of<N>(bias, place_of(k, packs).c, shape.planes);
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
    BY_TYPE(type, BY_PACK(run_length(grid), const parted packs = parted_of(packs_of<N>(grid));
                          const index_t n = elements(packs.shape);
                          BY_INDEX(n, LAUNCH((bias_relu<T, N, I>), blocks_for_packs(n), THREADS,
                                             stream, static_cast<const T *>(x), bias, relu,
                                             static_cast<T *>(y), (I)n, packs))));
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

/* A copy does not look at elements. Does the rest with W as the widest word that divides `bytes`.
 * Arrays begin at multiples of PACK_BYTES. */
#define BY_WORD(bytes, ...)            \
    do {                               \
        if ((bytes) % 16 == 0) {       \
            using W = uint4;           \
            __VA_ARGS__;               \
        } else if ((bytes) % 8 == 0) { \
            using W = uint2;           \
            __VA_ARGS__;               \
        } else if ((bytes) % 4 == 0) { \
            using W = uint32_t;        \
            __VA_ARGS__;               \
        } else {                       \
            using W = uint16_t;        \
            __VA_ARGS__;               \
        }                              \
    } while (0)

/* Columns of a wide matrix, counted in words. */
struct columns {
    uint32_t wide, at;
    divisor c;
};

template <typename W, typename I>
__global__ void gather_columns(columns by, const W *from, W *to, I n)
{
    for (EACH_OF(I, k, n)) {
        I row = k;
        const uint32_t column = part(&row, by.c);
        to[k] = from[row * by.wide + by.at + column];
    }
}

template <typename W, typename I>
__global__ void scatter_columns(columns by, const W *from, W *to, I n)
{
    for (EACH_OF(I, k, n)) {
        I row = k;
        const uint32_t column = part(&row, by.c);
        to[row * by.wide + by.at + column] = from[k];
    }
}

#define LAUNCH_COLUMNS(kernel, from, to)                                                      \
    do {                                                                                      \
        const index_t size = cuda_type_size(type), unit = (wide | at | c) * size;             \
        BY_WORD(unit, const uint32_t in_word = sizeof(W) / size;                              \
                const index_t n = rows * c / in_word;                                         \
                const columns by = {wide / in_word, at / in_word, cuda_divisor(c / in_word)}; \
                BY_INDEX(rows * by.wide,                                                      \
                         LAUNCH((kernel<W, I>), blocks_for(n), THREADS, stream, by,           \
                                static_cast<const W *>(from), static_cast<W *>(to), (I)n)));  \
    } while (0)

void cuda_gather_columns(cudaStream_t stream, enum cuda_type type, const void *wide_matrix,
                         uint32_t wide, uint32_t at, void *to, uint64_t rows, uint32_t c)
{
    LAUNCH_COLUMNS(gather_columns, wide_matrix, to);
}

void cuda_scatter_columns(cudaStream_t stream, enum cuda_type type, const void *from,
                          void *wide_matrix, uint32_t wide, uint32_t at, uint64_t rows, uint32_t c)
{
    LAUNCH_COLUMNS(scatter_columns, from, wide_matrix);
}

template <typename T, typename I>
__global__ void sample(sampling by, parted places, const T *large, T *small, I n)
{
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, places);
        small[k] =
            at.c < by.large.c
                ? large[element_of<I>(by.large, at.n, at.h * by.stride_h, at.w * by.stride_w, at.c)]
                : from_fp32<T>(0.0f);
    }
}

void cuda_sample(cudaStream_t stream, enum cuda_type type, const struct sampling *sampling,
                 const void *large, void *small)
{
    const index_t n = elements(sampling->small), most = most_of(sampling->large, sampling->small);
    const parted places = parted_of(sampling->small);
    BY_TYPE(type,
            BY_INDEX(most, LAUNCH((sample<T, I>), blocks_for(n), THREADS, stream, *sampling, places,
                                  static_cast<const T *>(large), static_cast<T *>(small), (I)n)));
}

template <typename T, typename I>
__global__ void spread(sampling by, parted places, divisor stride_h, divisor stride_w,
                       const T *small, T *large, I n)
{
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, places);
        uint32_t h = at.h, w = at.w;
        const bool falls = part(&h, stride_h) == 0 && part(&w, stride_w) == 0;
        const bool shown = falls && h < by.small.h && w < by.small.w;
        large[k] = shown ? small[element_of<I>(by.small, at.n, h, w, at.c)] : from_fp32<T>(0.0f);
    }
}

void cuda_spread(cudaStream_t stream, enum cuda_type type, const struct sampling *sampling,
                 const void *small, void *large)
{
    const index_t n = elements(sampling->large), most = most_of(sampling->large, sampling->small);
    const parted places = parted_of(sampling->large);
    const divisor stride_h = cuda_divisor(sampling->stride_h);
    const divisor stride_w = cuda_divisor(sampling->stride_w);
    BY_TYPE(type, BY_INDEX(most, LAUNCH((spread<T, I>), blocks_for(n), THREADS, stream, *sampling,
                                        places, stride_h, stride_w, static_cast<const T *>(small),
                                        static_cast<T *>(large), (I)n)));
}

template <typename W, typename I>
__global__ void pad(frame by, parted places, const W *inner, W *outer, I n)
{
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, places);
        const uint32_t h = at.h - by.top, w = at.w - by.left; /* outside they wrap round */
        outer[k] = h < by.inner.h && w < by.inner.w
                       ? inner[element_of<I>(by.inner, at.n, h, w, at.c)]
                       : W(); /* zeros in every type */
    }
}

template <typename W, typename I>
__global__ void crop(frame by, parted places, const W *outer, W *inner, I n)
{
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, places);
        inner[k] = outer[element_of<I>(by.outer, at.n, at.h + by.top, at.w + by.left, at.c)];
    }
}

/* A thread for each word of the frame's `side`; channels count words. */
#define LAUNCH_FRAME(kernel, side, from, to)                                                   \
    do {                                                                                       \
        struct frame by = *frame;                                                              \
        const uint32_t size = cuda_type_size(type);                                            \
        const uint32_t bytes = size * (by.outer.planes ? 1 : by.outer.c);                      \
        BY_WORD(bytes, by.inner.c /= sizeof(W) / size; by.outer.c = by.inner.c;                \
                const index_t n = elements(by.side); const parted places = parted_of(by.side); \
                BY_INDEX(elements(by.outer),                                                   \
                         LAUNCH((kernel<W, I>), blocks_for(n), THREADS, stream, by, places,    \
                                static_cast<const W *>(from), static_cast<W *>(to), (I)n)));   \
    } while (0)

void cuda_pad(cudaStream_t stream, enum cuda_type type, const struct frame *frame,
              const void *inner, void *outer)
{
    LAUNCH_FRAME(pad, outer, inner, outer);
}

void cuda_crop(cudaStream_t stream, enum cuda_type type, const struct frame *frame,
               const void *outer, void *inner)
{
    LAUNCH_FRAME(crop, inner, outer, inner);
}

/* -------------------------------------------------------------------------------------- dropout */

template <typename T, typename I>
__global__ void drop(dropout by, const T *x, T *y, parted places, I n)
{
    const grid &shape = places.shape;
    const float scale = (float)(1.0 / (1.0 - by.rate));
    const pass_words words = *by.words;
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, places);
        const uint32_t element = (at.c * shape.h + at.h) * shape.w + at.w;
        const bool keeps = dpb_dropout_keeps(by.seed, words.step, words.first_sample + at.n,
                                             by.node, element, by.rate);
        y[k] = from_fp32<T>(keeps ? to_fp32(x[k]) * scale : 0.0f);
    }
}

void cuda_dropout(cudaStream_t stream, enum cuda_type type, const struct dropout *dropout,
                  const void *x, void *y, struct grid grid)
{
    const index_t n = elements(grid);
    const parted places = parted_of(grid);
    BY_TYPE(type,
            BY_INDEX(n, LAUNCH((drop<T, I>), blocks_for(n), THREADS, stream, *dropout,
                               static_cast<const T *>(x), static_cast<T *>(y), places, (I)n)));
}

/* --------------------------------------------------------------------------------------- random */

template <typename T> __global__ void fill_random(T *to, index_t n)
{
    for (EACH(k, (n + 3) / 4)) {
        const dpb_random4 bits =
            dpb_random(1, DPB_STREAM_SYNTHETIC, (uint32_t)k, (uint32_t)(k >> 32), 0, 0);
        for (index_t i = 0; i < 4 && 4 * k + i < n; i++)
            to[4 * k + i] = from_fp32<T>(2.0f * dpb_random_uniform(bits.v[i]) - 1.0f);
    }
}

void cuda_fill_random(cudaStream_t stream, enum cuda_type type, void *to, uint64_t n)
{
    BY_TYPE(type, LAUNCH(fill_random<T>, blocks_for((n + 3) / 4), THREADS, stream,
                         static_cast<T *>(to), (index_t)n));
}

/* ---------------------------------------------------------------------------------------- flags */

__global__ void raise_flag(const pass_words *words, volatile uint32_t *flag)
{
    __threadfence_system();
    *flag = words->serial;
}

void cuda_raise(cudaStream_t stream, const struct pass_words *words, uint32_t *flag)
{
    LAUNCH(raise_flag, 1, 1, stream, words, flag);
}

/* The flag is stored once a thread, so that several packs are on their way at a time. */
template <int N>
__global__ void find_infinite(const pass_words *words, const float *values, index_t packs,
                              volatile uint32_t *flag)
{
    bool found = false;
    for (EACH(k, packs)) {
        const pack<float, N> value = load_pack<float, N>(values, k);
        for (int i = 0; i < N; i++)
            found |= !(fabsf(value.at[i]) <= 3.402823466e38f); /* FLT_MAX */
    }
    if (found)
        *flag = words->serial;
}

void cuda_find_infinite(cudaStream_t stream, const struct pass_words *words, const float *values,
                        uint64_t n, uint32_t *flag)
{
    using T = float;
    BY_PACK(n, const index_t packs = (index_t)(n / N);
            LAUNCH(find_infinite<N>, blocks_for_packs(packs), THREADS, stream, words, values, packs,
                   flag));
}
