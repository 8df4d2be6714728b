/*
 * kernels_window.cu - pools and LRN: a thread an element, or a pack of them. Backward each input
 * element gathers from the windows that it is in, so nothing is added by atomics and equal inputs
 * give equal bits.
 */
#include "kernel_norm.h"
#include "kernel_window.h"

/* ---------------------------------------------------------------------------------------- pools */

/* In NCHW neighbours lie in different windows. */
static uint32_t channels_in_pack(const struct window &by)
{
    return by.in.planes || by.out.planes ? 1 : by.in.c;
}

/* A thread for each pack of the window's `side`; then the kernel's arguments but the first and
 * last. The pool's channels count packs. */
#define LAUNCH_POOL(kernel, side, ...)                                                           \
    do {                                                                                         \
        struct window packs = *window;                                                           \
        BY_TYPE(type, BY_PACK(channels_in_pack(*window), packs.in.c /= N; packs.out.c /= N;      \
                              const index_t n = elements(packs.side);                            \
                              const pooling pool = pooling_of(packs, packs.side);                \
                              BY_INDEX(most_of(packs.in, packs.out),                             \
                                       LAUNCH((kernel<T, N, I>), blocks_for(n), THREADS, stream, \
                                              pool, __VA_ARGS__, (I)n))));                       \
    } while (0)

/* In place of a norm_by: x is not normalised. */
struct as_it_is {
};

/* The values of a column's channels that a max pool compares: x as it is, or normalised, behind a
 * ReLU, and rounded as if it were stored. */
template <typename T, int N, typename By> struct pooled_values {
    static constexpr bool normalises = false;
    __device__ pooled_values(const By &, uint32_t)
    {
    }
    __device__ T of(int, T x) const
    {
        return x;
    }
};

template <typename T, int N> struct pooled_values<T, N, norm_by> : normalising<N> {
    static constexpr bool normalises = true;
    using normalising<N>::normalising;
    __device__ T of(int i, T x) const
    {
        const float value = this->value(i, to_fp32(x));
        return from_fp32<T>(value <= 0.0f ? 0.0f : value);
    }
};

/* Works on n packs of neighbouring channels, which lie in the same windows: the pool's channels
 * count packs. */
template <typename T, int N, typename I, typename By>
KERNEL_OF(3)
void max_pool(pooling pool, const T *__restrict__ x, By norm, T *__restrict__ y,
              pack_places<N> *__restrict__ where, I n)
{
    using Values = pooled_values<T, N, By>;
    const window &by = pool.by;
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, pool.places);
        const reach rows = input_reach(at.h, by.kernel_h, by.stride_h, by.pad_top, by.in.h);
        const reach columns = input_reach(at.w, by.kernel_w, by.stride_w, by.pad_left, by.in.w);
        const Values values(norm, at.c);
        const uint32_t top = at.h * by.stride_h - by.pad_top;
        const uint32_t left = at.w * by.stride_w - by.pad_left; /* both modulo 2^32 */
        pack<T, N> best =
            load_pack<T, N>(x, element_of<I>(by.in, at.n, rows.begin, columns.begin, at.c));
        uint32_t place[N];
        UNROLLED
        for (int i = 0; i < N; i++) {
            best.at[i] = values.of(i, best.at[i]);
            place[i] = (rows.begin - top) * by.kernel_w + (columns.begin - left);
        }
        for (uint32_t h = rows.begin; h < rows.end; h++) {
            for (uint32_t w = columns.begin; w < columns.end; w++) {
                const pack<T, N> in = load_pack<T, N>(x, element_of<I>(by.in, at.n, h, w, at.c));
                const uint32_t here = (h - top) * by.kernel_w + (w - left);
                UNROLLED
                for (int i = 0; i < N; i++) {
                    const T value = values.of(i, in.at[i]);
                    const float candidate = to_fp32(value);
                    const bool better = candidate > to_fp32(best.at[i]) || candidate != candidate;
                    best.at[i] = better ? value : best.at[i];
                    place[i] = better ? here : place[i];
                }
            }
        }
        store_pack(y, k, best);
        pack_places<N> places;
        UNROLLED
        for (int i = 0; i < N; i++)
            places.at[i] =
                (uint8_t)(Values::normalises && is_zero(best.at[i]) ? (uint32_t)POOLED_NOTHING
                                                                    : place[i]);
        if (where)
            where[k] = places;
    }
}

void cuda_max_pool(cudaStream_t stream, enum cuda_type type, const struct window *window,
                   const void *x, const struct norm_by *norm, void *y, uint8_t *where)
{
    if (norm)
        LAUNCH_POOL(max_pool, out, static_cast<const T *>(x), *norm, static_cast<T *>(y),
                    reinterpret_cast<pack_places<N> *>(where));
    else
        LAUNCH_POOL(max_pool, out, static_cast<const T *>(x), as_it_is(), static_cast<T *>(y),
                    reinterpret_cast<pack_places<N> *>(where));
}

template <typename T, int N, typename I>
__global__ void max_pool_backward(pooling pool, const T *dy, const pack_places<N> *where, T *dx,
                                  I n)
{
    for (EACH_OF(I, k, n))
        store_pack(dx, k, pool_gradient<T, N>(pool, dy, where, k));
}

void cuda_max_pool_backward(cudaStream_t stream, enum cuda_type type, const struct window *window,
                            const void *dy, const uint8_t *where, void *dx)
{
    LAUNCH_POOL(max_pool_backward, in, static_cast<const T *>(dy),
                reinterpret_cast<const pack_places<N> *>(where), static_cast<T *>(dx));
}

template <typename T, int N, typename I>
__global__ void mean_pool(pooling pool, const T *x, T *y, I n)
{
    const window &by = pool.by;
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, pool.places);
        const reach rows = input_reach(at.h, by.kernel_h, by.stride_h, by.pad_top, by.in.h);
        const reach columns = input_reach(at.w, by.kernel_w, by.stride_w, by.pad_left, by.in.w);
        float total[N] = {};
        for (uint32_t h = rows.begin; h < rows.end; h++) {
            for (uint32_t w = columns.begin; w < columns.end; w++) {
                const pack<T, N> in = load_pack<T, N>(x, element_of<I>(by.in, at.n, h, w, at.c));
                for (int i = 0; i < N; i++)
                    total[i] += to_fp32(in.at[i]);
            }
        }
        const uint32_t size = (rows.end - rows.begin) * (columns.end - columns.begin);
        pack<T, N> out;
        for (int i = 0; i < N; i++)
            out.at[i] = from_fp32<T>(total[i] / (float)size);
        store_pack(y, k, out);
    }
}

void cuda_mean_pool(cudaStream_t stream, enum cuda_type type, const struct window *window,
                    const void *x, void *y)
{
    LAUNCH_POOL(mean_pool, out, static_cast<const T *>(x), static_cast<T *>(y));
}

template <typename T, int N, typename I>
__global__ void mean_pool_backward(pooling pool, const T *dy, T *dx, I n)
{
    const window &by = pool.by;
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, pool.places);
        const reach rows = output_reach(at.h, by.kernel_h, pool.stride_h, by.pad_top, by.out.h);
        const reach columns = output_reach(at.w, by.kernel_w, pool.stride_w, by.pad_left, by.out.w);
        float total[N] = {};
        for (uint32_t h = rows.begin; h < rows.end; h++) {
            const reach of_h = input_reach(h, by.kernel_h, by.stride_h, by.pad_top, by.in.h);
            for (uint32_t w = columns.begin; w < columns.end; w++) {
                const reach of_w = input_reach(w, by.kernel_w, by.stride_w, by.pad_left, by.in.w);
                const uint32_t size = (of_h.end - of_h.begin) * (of_w.end - of_w.begin);
                const float share = 1.0f / (float)size; /* one division for all of the pack */
                const pack<T, N> out = load_pack<T, N>(dy, element_of<I>(by.out, at.n, h, w, at.c));
                for (int i = 0; i < N; i++)
                    total[i] += to_fp32(out.at[i]) * share;
            }
        }
        pack<T, N> in;
        for (int i = 0; i < N; i++)
            in.at[i] = from_fp32<T>(total[i]);
        store_pack(dx, k, in);
    }
}

void cuda_mean_pool_backward(cudaStream_t stream, enum cuda_type type, const struct window *window,
                             const void *dy, void *dx)
{
    LAUNCH_POOL(mean_pool_backward, in, static_cast<const T *>(dy), static_cast<T *>(dx));
}

/* ------------------------------------------------------------------------------------------ LRN */

static __host__ __device__ inline reach channels_near(const lrn &by, uint32_t channel, uint32_t c)
{
    reach r = {channel > by.radius ? channel - by.radius : 0,
               c - channel > by.radius ? channel + by.radius + 1 : c};
    return r;
}

/* s = k + alpha * (sum of squares near the channel); x points at the pixel's first channel. */
template <typename T>
static __host__ __device__ float denominator(const lrn &by, const T *x, uint32_t channel,
                                             const grid &shape)
{
    const reach near = channels_near(by, channel, shape.c);
    float total = 0.0f;
    for (uint32_t j = near.begin; j < near.end; j++) {
        const float value = to_fp32(x[j * channel_stride(shape)]);
        total += value * value;
    }
    return by.k + by.alpha * total;
}

template <typename T, typename I>
__global__ void lrn_forward(lrn by, const T *x, T *y, I n, parted places)
{
    const grid &shape = places.shape;
    for (EACH_OF(I, k, n)) {
        const uint32_t channel = place_of(k, places).c;
        const T *pixel = x + (k - channel * channel_stride(shape));
        const float s = denominator(by, pixel, channel, shape);
        y[k] = from_fp32<T>(to_fp32(x[k]) * powf(s, -by.beta));
    }
}

void cuda_lrn(cudaStream_t stream, enum cuda_type type, const struct lrn *lrn, const void *x,
              void *y, struct grid grid)
{
    const index_t n = elements(grid);
    const parted places = parted_of(grid);
    BY_TYPE(type,
            BY_INDEX(n, LAUNCH((lrn_forward<T, I>), blocks_for(n), THREADS, stream, *lrn,
                               static_cast<const T *>(x), static_cast<T *>(y), (I)n, places)));
}

/* dx_j = dy_j s_j^-beta - 2 alpha beta x_j * (sum over c near j of dy_c x_c s_c^(-beta - 1)) */
template <typename T, typename I>
__global__ void lrn_backward(lrn by, const T *x, const T *dy, T *dx, I n, parted places)
{
    const grid &shape = places.shape;
    const index_t stride = channel_stride(shape);
    for (EACH_OF(I, k, n)) {
        const uint32_t channel = place_of(k, places).c;
        const T *pixel_x = x + (k - channel * stride), *pixel_dy = dy + (k - channel * stride);
        const reach near = channels_near(by, channel, shape.c);
        float direct = 0.0f, total = 0.0f;
        for (uint32_t j = near.begin; j < near.end; j++) {
            const float s = denominator(by, pixel_x, j, shape), power = powf(s, -by.beta);
            const float dy_j = to_fp32(pixel_dy[j * stride]);
            if (j == channel)
                direct = dy_j * power;
            total += dy_j * to_fp32(pixel_x[j * stride]) * power / s;
        }
        dx[k] = from_fp32<T>(direct - 2.0f * by.alpha * by.beta * to_fp32(x[k]) * total);
    }
}

void cuda_lrn_backward(cudaStream_t stream, enum cuda_type type, const struct lrn *lrn,
                       const void *x, const void *dy, void *dx, struct grid grid)
{
    const index_t n = elements(grid);
    const parted places = parted_of(grid);
    BY_TYPE(type, BY_INDEX(n, LAUNCH((lrn_backward<T, I>), blocks_for(n), THREADS, stream, *lrn,
                                     static_cast<const T *>(x), static_cast<const T *>(dy),
                                     static_cast<T *>(dx), (I)n, places)));
}
