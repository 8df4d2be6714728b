/*
 * kernel_window.h - windows over a grid, and the gradient by a max pool's input, for kernels
 * (kernel.h).
 */
#ifndef DPB_CUDA_KERNEL_WINDOW_H
#define DPB_CUDA_KERNEL_WINDOW_H

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

/* Each thread has an element of `places`, which is the window's input or output. */
struct pooling {
    window by;
    parted places;
    divisor stride_h, stride_w;
};

static pooling pooling_of(const window &by, const grid &places)
{
    return {by, parted_of(places), cuda_divisor(by.stride_h), cuda_divisor(by.stride_w)};
}

/* The place of its maximum, for each element of a pack. */
template <int N> struct alignas(N) pack_places {
    uint8_t at[N];
};

/* The gradient by pack k of a max pool's input: neighbouring channels, which lie in the same
 * windows. The pool's channels count packs. Gathers from these windows in row order, and rounds
 * once. */
template <typename T, int N, typename I>
static __device__ inline pack<T, N> pool_gradient(const pooling &pool, const T *dy,
                                                  const pack_places<N> *where, I k)
{
    const window &by = pool.by;
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
    return out;
}

#endif
