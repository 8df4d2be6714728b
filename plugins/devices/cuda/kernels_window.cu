/*
 * kernels_window.cu - pools and LRN: a thread an element, or a pack of them. Backward each input
 * element gathers from the windows that it is in, so nothing is added by atomics and equal inputs
 * give equal bits.
 */
#include "kernel.h"

/* [begin, end) along one axis. */
struct reach {
    uint32_t begin, end;
};

/* Input positions of the window at output position `out`. */
static __host__ __device__ inline reach input_reach(uint32_t out, uint32_t kernel, uint32_t stride,
                                                    uint32_t pad, uint32_t in)
{
    const uint32_t first = out * stride, last = first + kernel;
    reach r = {first > pad ? first - pad : 0, last > pad ? last - pad : 0};
    r.begin = r.begin < in ? r.begin : in;
    r.end = r.end < in ? r.end : in;
    return r;
}

/* Output positions whose windows hold input position `in`. */
static __host__ __device__ inline reach
output_reach(uint32_t in, uint32_t kernel, const divisor &stride, uint32_t pad, uint32_t out)
{
    const uint32_t at = in + pad; /* first window: out * stride + kernel > at */
    reach r = {at < kernel ? 0 : cuda_quotient(at - kernel, stride) + 1,
               cuda_quotient(at, stride) + 1};
    r.end = r.end < out ? r.end : out;
    return r;
}

/* ---------------------------------------------------------------------------------------- pools */

/* Of a thread an element of `places`, which is the window's input or output. */
struct pooling {
    window by;
    parted places;
    divisor stride_h, stride_w;
};

static pooling pooling_of(const window &by, const grid &places)
{
    return {by, parted_of(places), cuda_divisor(by.stride_h), cuda_divisor(by.stride_w)};
}

/* A thread for each element of `places`; then the kernel's arguments but the first and last. */
#define LAUNCH_POOL(kernel, places, ...)                                                    \
    do {                                                                                    \
        const index_t n = elements(places);                                                 \
        const pooling pool = pooling_of(*window, places);                                   \
        BY_TYPE(type, BY_INDEX(most_of(window->in, window->out),                            \
                               LAUNCH((kernel<T, I>), blocks_for(n), THREADS, stream, pool, \
                                      __VA_ARGS__, (I)n)));                                 \
    } while (0)

template <typename T, typename I>
__global__ void max_pool(pooling pool, const T *x, T *y, uint8_t *where, I n)
{
    const window &by = pool.by;
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, pool.places);
        const reach rows = input_reach(at.h, by.kernel_h, by.stride_h, by.pad_top, by.in.h);
        const reach columns = input_reach(at.w, by.kernel_w, by.stride_w, by.pad_left, by.in.w);
        uint32_t best_h = rows.begin, best_w = columns.begin;
        T best = x[element_of<I>(by.in, at.n, best_h, best_w, at.c)];
        for (uint32_t h = rows.begin; h < rows.end; h++) {
            for (uint32_t w = columns.begin; w < columns.end; w++) {
                const T value = x[element_of<I>(by.in, at.n, h, w, at.c)];
                const float candidate = to_fp32(value);
                if (candidate > to_fp32(best) || candidate != candidate) {
                    best = value;
                    best_h = h;
                    best_w = w;
                }
            }
        }
        y[k] = best;
        if (where)
            where[k] = (uint8_t)((best_h + by.pad_top - at.h * by.stride_h) * by.kernel_w +
                                 (best_w + by.pad_left - at.w * by.stride_w));
    }
}

void cuda_max_pool(cudaStream_t stream, enum cuda_type type, const struct window *window,
                   const void *x, void *y, uint8_t *where)
{
    LAUNCH_POOL(max_pool, window->out, static_cast<const T *>(x), static_cast<T *>(y), where);
}

/* Of each element of a pack, its maximum's place. */
template <int N> struct alignas(N) pack_places {
    uint8_t at[N];
};

/* Of n packs of neighbouring channels, which lie in the same windows: the pool's channels count
 * packs. */
template <typename T, int N, typename I>
__global__ void max_pool_backward(pooling pool, const T *dy, const pack_places<N> *where, T *dx,
                                  I n)
{
    const window &by = pool.by;
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, pool.places);
        const reach rows = output_reach(at.h, by.kernel_h, pool.stride_h, by.pad_top, by.out.h);
        const reach columns = output_reach(at.w, by.kernel_w, pool.stride_w, by.pad_left, by.out.w);
        float total[N] = {};
        for (uint32_t h = rows.begin; h < rows.end; h++) {
            for (uint32_t w = columns.begin; w < columns.end; w++) {
                const I from = element_of<I>(by.out, at.n, h, w, at.c);
                const uint32_t mine = (at.h + by.pad_top - h * by.stride_h) * by.kernel_w +
                                      (at.w + by.pad_left - w * by.stride_w);
                const pack<T, N> gradient = load_pack<T, N>(dy, from);
                const pack_places<N> places = where[from];
                for (int i = 0; i < N; i++)
                    total[i] += places.at[i] == mine ? to_fp32(gradient.at[i]) : 0.0f;
            }
        }
        pack<T, N> out;
        for (int i = 0; i < N; i++)
            out.at[i] = from_fp32<T>(total[i]);
        store_pack(dx, k, out);
    }
}

/* In NCHW neighbours lie in different windows. */
static uint32_t channels_in_pack(const grid &shape)
{
    return shape.planes ? 1 : shape.c;
}

void cuda_max_pool_backward(cudaStream_t stream, enum cuda_type type, const struct window *window,
                            const void *dy, const uint8_t *where, void *dx)
{
    struct window packs = *window;
    BY_TYPE(type, BY_PACK(channels_in_pack(window->in), packs.in.c /= N; packs.out.c /= N;
                          const index_t n = elements(packs.in);
                          const pooling pool = pooling_of(packs, packs.in);
                          BY_INDEX(most_of(packs.in, packs.out),
                                   LAUNCH((max_pool_backward<T, N, I>), blocks_for(n), THREADS,
                                          stream, pool, static_cast<const T *>(dy),
                                          reinterpret_cast<const pack_places<N> *>(where),
                                          static_cast<T *>(dx), (I)n))));
}

template <typename T, typename I> __global__ void mean_pool(pooling pool, const T *x, T *y, I n)
{
    const window &by = pool.by;
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, pool.places);
        const reach rows = input_reach(at.h, by.kernel_h, by.stride_h, by.pad_top, by.in.h);
        const reach columns = input_reach(at.w, by.kernel_w, by.stride_w, by.pad_left, by.in.w);
        float total = 0.0f;
        for (uint32_t h = rows.begin; h < rows.end; h++) {
            for (uint32_t w = columns.begin; w < columns.end; w++)
                total += to_fp32(x[element_of<I>(by.in, at.n, h, w, at.c)]);
        }
        const uint32_t size = (rows.end - rows.begin) * (columns.end - columns.begin);
        y[k] = from_fp32<T>(total / (float)size);
    }
}

void cuda_mean_pool(cudaStream_t stream, enum cuda_type type, const struct window *window,
                    const void *x, void *y)
{
    LAUNCH_POOL(mean_pool, window->out, static_cast<const T *>(x), static_cast<T *>(y));
}

template <typename T, typename I>
__global__ void mean_pool_backward(pooling pool, const T *dy, T *dx, I n)
{
    const window &by = pool.by;
    for (EACH_OF(I, k, n)) {
        const place at = place_of(k, pool.places);
        const reach rows = output_reach(at.h, by.kernel_h, pool.stride_h, by.pad_top, by.out.h);
        const reach columns = output_reach(at.w, by.kernel_w, pool.stride_w, by.pad_left, by.out.w);
        float total = 0.0f;
        for (uint32_t h = rows.begin; h < rows.end; h++) {
            const reach of_h = input_reach(h, by.kernel_h, by.stride_h, by.pad_top, by.in.h);
            for (uint32_t w = columns.begin; w < columns.end; w++) {
                const reach of_w = input_reach(w, by.kernel_w, by.stride_w, by.pad_left, by.in.w);
                const uint32_t size = (of_h.end - of_h.begin) * (of_w.end - of_w.begin);
                total += to_fp32(dy[element_of<I>(by.out, at.n, h, w, at.c)]) / (float)size;
            }
        }
        dx[k] = from_fp32<T>(total);
    }
}

void cuda_mean_pool_backward(cudaStream_t stream, enum cuda_type type, const struct window *window,
                             const void *dy, void *dx)
{
    LAUNCH_POOL(mean_pool_backward, window->in, static_cast<const T *>(dy), static_cast<T *>(dx));
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
