/*
 * graph_compute.cc - the plans of the stand-in's graph API, by plain loops.
 */
#include <cmath>

#include "graph_parts.h"

namespace graphs
{
namespace
{
/* A tensor's values as they are multiplied. */
std::vector<double> values_of(const tensor &t, const void *data, bool cut)
{
    std::vector<double> values(t.count());
    for (size_t i = 0; i < values.size(); i++) {
        const float value = load(t.type, data, i);
        values[i] = cut && t.type == CUDNN_DATA_FLOAT ? tf32(value) : value;
    }
    return values;
}

size_t at_of(const tensor &t, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (size_t)(n * t.strides[0] + c * t.strides[1] + h * t.strides[2] + w * t.strides[3]);
}

/* each(x, w, y): of the group's channels that are multiplied the first element of x, of a filter
 * and of y. */
template <typename Each> void for_all(const convolution &by, Each each)
{
    const std::vector<int64_t> &x = by.x.dims, &w = by.w.dims, &y = by.y.dims;
    const int64_t outputs = w[0] / by.groups();
    for (int64_t n = 0; n < y[0]; n++)
        for (int64_t h = 0; h < y[2]; h++)
            for (int64_t v = 0; v < y[3]; v++)
                for (int64_t r = 0; r < w[2]; r++)
                    for (int64_t s = 0; s < w[3]; s++) {
                        const int64_t ih = h * by.strides[0] + r - by.pads[0];
                        const int64_t iv = v * by.strides[1] + s - by.pads[1];
                        if (ih < 0 || ih >= x[2] || iv < 0 || iv >= x[3])
                            continue;
                        for (int64_t k = 0; k < w[0]; k += outputs) {
                            const size_t xi = at_of(by.x, n, k / outputs * w[1], ih, iv);
                            for (int64_t o = k; o < k + outputs; o++)
                                each(xi, at_of(by.w, o, 0, r, s), at_of(by.y, n, o, h, v));
                        }
                    }
}

/* What the call gives: of x, w and y the two others' values. `dense`: channels lie side by side in
 * x and w; the compiler then makes vectors of these loops, where most of a test's time passes. */
template <bool dense>
std::vector<double> multiply_as(const convolution &by, int engine, const places &at)
{
    const tensor &to = by.which == FORWARD ? by.y : by.which == DATA ? by.x : by.w;
    const bool cut = engine == TENSOR;
    const int64_t n = by.w.dims[1];
    const int64_t xs = dense ? 1 : by.x.strides[1], ws = dense ? 1 : by.w.strides[1];
    std::vector<double> x, w, y;
    if (by.which != DATA)
        x = values_of(by.x, at.at(by.x.id), cut);
    if (by.which != WEIGHTS)
        w = values_of(by.w, at.at(by.w.id), cut);
    if (by.which != FORWARD)
        y = values_of(by.y, at.at(by.y.id), cut);
    std::vector<double> sums(to.count());
    double *sum = sums.data();
    if (by.which == FORWARD)
        for_all(by, [&](size_t xi, size_t wi, size_t yi) {
            double part[4] = {0, 0, 0, 0};
            int64_t c = 0;
            for (; c + 4 <= n; c += 4)
                for (int64_t k = 0; k < 4; k++)
                    part[k] += x[xi + (size_t)((c + k) * xs)] * w[wi + (size_t)((c + k) * ws)];
            for (; c < n; c++)
                part[0] += x[xi + (size_t)(c * xs)] * w[wi + (size_t)(c * ws)];
            sum[yi] += part[0] + part[1] + part[2] + part[3];
        });
    else if (by.which == DATA)
        for_all(by, [&](size_t xi, size_t wi, size_t yi) {
            for (int64_t c = 0; c < n; c++)
                sum[xi + (size_t)(c * xs)] += y[yi] * w[wi + (size_t)(c * ws)];
        });
    else
        for_all(by, [&](size_t xi, size_t wi, size_t yi) {
            for (int64_t c = 0; c < n; c++)
                sum[wi + (size_t)(c * ws)] += y[yi] * x[xi + (size_t)(c * xs)];
        });
    return sums;
}

std::vector<double> multiply(const convolution &by, int engine, const places &at)
{
    return by.x.strides[1] == 1 && by.w.strides[1] == 1 ? multiply_as<true>(by, engine, at)
                                                        : multiply_as<false>(by, engine, at);
}

} // namespace

void compute(const convolution &c, int engine, const places &at, bool infinite)
{
    const tensor &to = c.which == FORWARD ? c.y : c.which == DATA ? c.x : c.w;
    std::vector<double> values = multiply(c, engine, at);
    for (size_t i = 0; c.adds && i < values.size(); i++)
        values[i] += load(to.type, at.at(to.id), i);
    if (infinite)
        values[0] = INFINITY;
    for (size_t i = 0; i < values.size(); i++)
        store(to.type, at.at(to.id), i, values[i]);
}
} // namespace graphs
