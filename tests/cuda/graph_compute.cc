/*
 * graph_compute.cc - the plans of the stand-in's graph API, by plain loops.
 */
#include "graph_parts.h"

namespace graphs
{
namespace
{
/* A tensor's values as they are multiplied. */
std::vector<float> values_of(const tensor &t, const void *data, bool cut)
{
    std::vector<float> values(t.count());
    for (size_t i = 0; i < values.size(); i++) {
        const float value = load(t.type, data, i);
        values[i] = cut && t.type == CUDNN_DATA_FLOAT ? tf32(value) : value;
    }
    return values;
}

double pixel(const pattern &p, const std::vector<float> &x, const std::vector<float> &w,
             const int64_t at[4])
{
    const std::vector<int64_t> &xd = p.x.dims, &wd = p.w.dims;
    double sum = 0;
    for (int64_t r = 0; r < wd[2]; r++) {
        const int64_t h = at[2] * p.strides[0] + r - p.pads[0];
        for (int64_t s = 0; s < wd[3] && h >= 0 && h < xd[2]; s++) {
            const int64_t v = at[3] * p.strides[1] + s - p.pads[1];
            if (v < 0 || v >= xd[3])
                continue;
            const float *from = &x[(size_t)(((at[0] * xd[2] + h) * xd[3] + v) * xd[1])];
            const float *by = &w[(size_t)(((at[1] * wd[2] + r) * wd[3] + s) * wd[1])];
            for (int64_t c = 0; c < xd[1]; c++)
                sum += (double)from[c] * by[c];
        }
    }
    return sum;
}

/* The gradient by one element of the input. */
double gradient_of_pixel(const gradient &g, const std::vector<float> &dy,
                         const std::vector<float> &w, const int64_t at[4])
{
    const std::vector<int64_t> &yd = g.dy.dims, &wd = g.w.dims;
    double sum = 0;
    for (int64_t r = 0; r < wd[2]; r++) {
        const int64_t h = at[2] + g.pads[0] - r;
        if (h < 0 || h % g.strides[0] != 0 || h / g.strides[0] >= yd[2])
            continue;
        for (int64_t s = 0; s < wd[3]; s++) {
            const int64_t v = at[3] + g.pads[1] - s;
            if (v < 0 || v % g.strides[1] != 0 || v / g.strides[1] >= yd[3])
                continue;
            const float *from = &dy[(
                size_t)(((at[0] * yd[2] + h / g.strides[0]) * yd[3] + v / g.strides[1]) * yd[1])];
            for (int64_t k = 0; k < yd[1]; k++)
                sum += (double)from[k] * w[(size_t)(((k * wd[2] + r) * wd[3] + s) * wd[1] + at[1])];
        }
    }
    return sum;
}

/* Stores each value of `out` and adds up, by channels, the values as they are stored and what
 * `second` makes of them; in fp32, a few values at a time. */
template <typename Value, typename Second>
void store_and_sum(const tensor &out, void *data, float *sums, float *seconds, Value value_at,
                   Second second)
{
    const std::vector<int64_t> &d = out.dims;
    for (int64_t c = 0; c < d[1]; c++) {
        float total[2] = {0, 0};
        for (int64_t n = 0; n < d[0]; n++)
            for (int64_t h = 0; h < d[2]; h++) {
                float row[2] = {0, 0};
                for (int64_t v = 0; v < d[3]; v++) {
                    const int64_t place[4] = {n, c, h, v};
                    const size_t i = (size_t)(((n * d[2] + h) * d[3] + v) * d[1] + c);
                    store(out.type, data, i, value_at(place, i));
                    const float value = load(out.type, data, i);
                    row[0] += value;
                    row[1] += second(value, i, c);
                }
                total[0] += row[0];
                total[1] += row[1];
            }
        sums[c] = total[0];
        seconds[c] = total[1];
    }
}
} // namespace

void compute(const pattern &p, int engine, const places &at)
{
    const std::vector<float> x = values_of(p.x, at.at(p.x.id), engine == TENSOR);
    const std::vector<float> w = values_of(p.w, at.at(p.w.id), engine == TENSOR);
    store_and_sum(
        p.y, at.at(p.y.id), static_cast<float *>(at.at(p.sum.id)),
        static_cast<float *>(at.at(p.squares.id)),
        [&](const int64_t place[4], size_t) { return pixel(p, x, w, place); },
        [](float value, size_t, int64_t) { return value * value; });
}

void compute(const gradient &g, int engine, const places &at)
{
    const std::vector<float> dy = values_of(g.dy, at.at(g.dy.id), engine == TENSOR);
    const std::vector<float> w = values_of(g.w, at.at(g.w.id), engine == TENSOR);
    const std::vector<float> y = values_of(g.y, at.at(g.y.id), false);
    const std::vector<float> x = values_of(g.x, at.at(g.x.id), false);
    const float *mean = static_cast<float *>(at.at(g.mean.id));
    const float *inverse = static_cast<float *>(at.at(g.inverse.id));
    store_and_sum(
        g.dz, at.at(g.dz.id), static_cast<float *>(at.at(g.sum.id)),
        static_cast<float *>(at.at(g.products.id)),
        [&](const int64_t place[4], size_t i) {
            return y[i] > 0 ? gradient_of_pixel(g, dy, w, place) : 0.0;
        },
        [&](float value, size_t i, int64_t c) { return value * ((x[i] - mean[c]) * inverse[c]); });
}
} // namespace graphs
