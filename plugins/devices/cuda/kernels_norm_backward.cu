/*
 * kernels_norm_backward.cu - batch-norm backward: the sums of a gradient, then the gradient by the
 * input; of one batch-norm, or of both that an addition takes.
 */
#include "kernel_columns.h"
#include "kernel_norm.h"
#include "kernel_window.h"

/* The gradient that enters, as it is stored, masked or not. */
template <typename T, int N> struct stored_gradient {
    static constexpr int at_once = BACKWARD_ROWS;
    const T *dy;
    const uint8_t *mask;
    template <int ROWS> struct read {
        row_mask<T, N, ROWS> counts;
        row_packs<T, N, ROWS> dz;
        __device__ read(const stored_gradient &from, const row_group<ROWS> &rows)
            : counts(from.mask, rows), dz(from.dy, rows)
        {
        }
        __device__ float value(int r, int i) const
        {
            return counts.has(r, i) ? to_fp32(dz.row[r].at[i]) : 0.0f;
        }
    };
};

/* The same as a max pool hands it back, which has masked it (cuda_max_pool). */
template <typename T, int N, typename I> struct pooled_gradient {
    static constexpr int at_once = POOLED_ROWS;
    pooling pool;
    const T *dy;
    const pack_places<N> *where;
    template <int ROWS> struct read {
        pack<T, N> row[ROWS];
        __device__ read(const pooled_gradient &from, const row_group<ROWS> &rows)
        {
            UNROLLED
            for (int r = 0; r < ROWS; r++)
                row[r] = pool_gradient<T, N>(from.pool, from.dy, from.where,
                                             (I)(rows.first + rows.place[r]));
        }
        __device__ float value(int r, int i) const
        {
            return to_fp32(row[r].at[i]);
        }
    };
};

/* Adds values of dz, by row and channel of a pack, to the sum of dz and to the sum of dz times the
 * deviation of x. */
template <typename T, int N, int ROWS, int CHANNELS, typename Value>
static __device__ void add_gradient(const row_packs<T, N, ROWS> &x, Value dz,
                                    channel_sums<2, CHANNELS> *sums)
{
    UNROLLED
    for (int i = 0; i < N; i++) {
        const float origin = sums->origin(i % CHANNELS, 1);
        UNROLLED
        for (int r = 0; r < ROWS; r++) {
            const float value = dz(r, i);
            sums->of[0][i % CHANNELS] += value;
            sums->of[1][i % CHANNELS] += value * (to_fp32(x.row[r].at[i]) - origin);
        }
    }
}

/* Sums dz, and dz times the deviation from the mean; norm_finish normalises the deviation. */
template <typename T, int N> struct norm_terms {
    static constexpr int n_sums = 2, threads = THREADS, blocks = 3, at_once = SUMMED_ROWS;
    const T *dy, *x;
    const uint8_t *mask;
    T *dz; /* may be dy */
    const float *mean;
    __device__ float origin(uint32_t channel, int) const
    {
        return mean[channel];
    }
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, channel_sums<2, CHANNELS> *sums) const
    {
        const row_mask<T, N, ROWS> counts(mask, rows);
        add_masked(rows, counts, row_packs<T, N, ROWS>(dy, rows), sums);
    }
    template <int ROWS, int CHANNELS>
    __device__ void add_masked(const row_group<ROWS> &rows, const row_mask<T, N, ROWS> &counts,
                               const row_packs<T, N, ROWS> &gradient,
                               channel_sums<2, CHANNELS> *sums) const
    {
        UNROLLED
        for (int r = 0; r < ROWS && dz; r++)
            rows.store(dz, r, counts.of(gradient.row[r], r));
        const row_packs<T, N, ROWS> in(x, rows);
        add_gradient(
            in,
            [&](int r, int i) { return counts.has(r, i) ? to_fp32(gradient.row[r].at[i]) : 0.0f; },
            sums);
    }
};

/* The same of a gradient in two parts. */
template <typename T, int N> struct joined_terms : norm_terms<T, N> {
    static constexpr int at_once = SUMMED_ROWS / 2; /* of two tensors at once */
    const T *more;
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, channel_sums<2, CHANNELS> *sums) const
    {
        const row_mask<T, N, ROWS> counts(this->mask, rows);
        row_packs<T, N, ROWS> gradient(this->dy, rows);
        gradient.add(row_packs<T, N, ROWS>(more, rows));
        this->add_masked(rows, counts, gradient, sums);
    }
};

/* For two batch-norms that take the same gradient, in one part or two: the gradient's sum, and the
 * sums of its products with the deviations of either x. */
template <typename T, int N> struct both_terms {
    static constexpr int n_sums = 3, threads = THREADS / 2, blocks = 2, at_once = SUMMED_ROWS / 2;
    const T *dy, *more, *x[2];
    const uint8_t *mask;
    T *dz;
    const float *mean[2];
    __device__ float origin(uint32_t channel, int s) const
    {
        return mean[s - 1][channel];
    }
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, channel_sums<3, CHANNELS> *sums) const
    {
        const row_mask<T, N, ROWS> counts(mask, rows);
        row_packs<T, N, ROWS> gradient(dy, rows);
        const row_packs<T, N, ROWS> added(more ? more : dy, rows); /* read in any case, at once */
        const row_packs<T, N, ROWS> first(x[0], rows), second(x[1], rows);
        if (more)
            gradient.add(added);
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            rows.store(dz, r, counts.of(gradient.row[r], r));
        UNROLLED
        for (int i = 0; i < N; i++) {
            const int k = i % CHANNELS;
            const float origin[] = {sums->origin(k, 1), sums->origin(k, 2)};
            UNROLLED
            for (int r = 0; r < ROWS; r++) {
                const float value = counts.has(r, i) ? to_fp32(gradient.row[r].at[i]) : 0.0f;
                sums->of[0][k] += value;
                sums->of[1][k] += value * (to_fp32(first.row[r].at[i]) - origin[0]);
                sums->of[2][k] += value * (to_fp32(second.row[r].at[i]) - origin[1]);
            }
        }
    }
};

/* norm_terms' sums, of a gradient that a max pool hands back. A thread has more registers, for the
 * windows, but the slabs are norm_terms', so that the sums have the same bits. */
template <typename T, int N, typename I> struct pooled_terms {
    static constexpr int n_sums = 2, threads = THREADS, blocks = 2, at_once = 1;
    pooled_gradient<T, N, I> gradient;
    const T *x;
    const float *mean;
    __device__ float origin(uint32_t channel, int) const
    {
        return mean[channel];
    }
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, channel_sums<2, CHANNELS> *sums) const
    {
        const row_packs<T, N, ROWS> in(x, rows);
        const typename pooled_gradient<T, N, I>::template read<ROWS> dz(gradient, rows);
        add_gradient(
            in, [&](int r, int i) { return rows.has(r) ? dz.value(r, i) : 0.0f; }, sums);
    }
};

/* Packs are of channels. */
template <typename T, int N, typename I>
static pooled_gradient<T, N, I> pooled_of(const norm_gradient &gradient)
{
    window by = gradient.pool;
    by.in.c /= N;
    by.out.c /= N;
    return {pooling_of(by, by.in), static_cast<const T *>(gradient.dy),
            reinterpret_cast<const pack_places<N> *>(gradient.where)};
}

struct norm_finish {
    float *sums, *dgamma, *dbeta;
    const float *inverse;
    uint32_t c;
    __device__ void set(uint32_t column, double a, double b) const
    {
        b *= (double)inverse[column];
        sums[column] = (float)a;
        sums[c + column] = (float)b;
        if (dgamma)
            dgamma[column] = (float)b;
        if (dbeta)
            dbeta[column] = (float)a;
    }
    __device__ void operator()(uint32_t column, const double (&made)[2]) const
    {
        set(column, made[0], made[1]);
    }
};

struct both_finish {
    norm_finish side[2];
    __device__ void operator()(uint32_t column, const double (&made)[3]) const
    {
        side[0].set(column, made[0], made[1]);
        side[1].set(column, made[0], made[2]);
    }
};

template <typename T, int N>
static void launch_norm_sums(cudaStream_t stream, const norm_gradient &gradient,
                             const norm_side *sides, uint32_t n, const grid &grid,
                             const sum_room &room)
{
    const T *const dy = static_cast<const T *>(gradient.dy);
    const T *const more = static_cast<const T *>(gradient.more);
    T *const dz = static_cast<T *>(gradient.dz);
    const T *x[2];
    norm_finish finish[2];
    for (uint32_t i = 0; i < n; i++) {
        x[i] = static_cast<const T *>(sides[i].x);
        finish[i] = {sides[i].sums, sides[i].dgamma, sides[i].dbeta, sides[i].by.inverse, grid.c};
    }
    if (gradient.where) {
        BY_INDEX(elements(grid), const pooled_terms<T, N, I> pooled = {pooled_of<T, N, I>(gradient),
                                                                       x[0], sides[0].by.mean};
                 sum_by<T, N, pixel_walk>(stream, pooled, finish[0], grid, room,
                                          norm_terms<T, N>::blocks));
        return;
    }
    if (n == 2) {
        const both_terms<T, N> both = {
            dy, more, {x[0], x[1]}, gradient.mask, dz, {sides[0].by.mean, sides[1].by.mean}};
        sum_columns<T, N>(stream, both, both_finish{{finish[0], finish[1]}}, grid, room);
        return;
    }
    const norm_terms<T, N> terms = {dy, x[0], gradient.mask, dz, sides[0].by.mean};
    const joined_terms<T, N> joined = {terms, more};
    if (more)
        sum_columns<T, N>(stream, joined, finish[0], grid, room);
    else
        sum_columns<T, N>(stream, terms, finish[0], grid, room);
}

void cuda_norm_sums(cudaStream_t stream, enum cuda_type type, const struct norm_gradient *gradient,
                    const struct norm_side *sides, uint32_t n, struct grid grid,
                    struct sum_room room)
{
    BY_TYPE(type, BY_PACK(run_length(grid),
                          launch_norm_sums<T, N>(stream, *gradient, sides, n, grid, room)));
}

/* As a kernel's argument. */
template <int SIDES> struct norm_sides {
    norm_side at[SIDES];
};

/* dx = scale * (dz - mean of dz - deviation of x * slope), where the slope is the mean of dz x^,
 * times the inverse; of each side. */
template <typename T, int N, typename Walk, int SIDES, typename Gradient>
KERNEL_OF(SIDES == 1 ? 3 : 2)
void norm_backward(Gradient gradient, norm_sides<SIDES> sides, float share, table by)
{
    constexpr int CHANNELS = Walk::planes ? 1 : N, ROWS = Gradient::at_once / SIDES;
    __shared__ float values[SIDES][3 * CHANNELS][LANES_OF_ELEMENTS];
    __shared__ index_t first;
    const volatile index_t *const begin = &first;
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    /* A thread for each value, so that they are read at once. */
    for (int i = threadIdx.y; i < SIDES * CHANNELS && column < by.columns; i += blockDim.y) {
        const uint32_t channel = column * CHANNELS + i % CHANNELS;
        const norm_side &side = SIDES > 1 && i >= CHANNELS ? sides.at[SIDES - 1] : sides.at[0];
        const float inverse = side.by.inverse[channel];
        float(*const of)[LANES_OF_ELEMENTS] = &values[i / CHANNELS][3 * (i % CHANNELS)];
        of[0][threadIdx.x] = side.by.mean[channel];
        of[1][threadIdx.x] = side.sums[channel] * share;
        of[2][threadIdx.x] = inverse * (side.sums[by.columns * CHANNELS + channel] * share);
    }
    Walk at(by, column);
    if (threadIdx.x == 0 && threadIdx.y == 0)
        first = at.first;
    __syncthreads();
    if (column >= by.columns)
        return;
    const channel_scales<CHANNELS> scales[] = {{sides.at[0].by, column},
                                               {sides.at[SIDES - 1].by, column}};
    ROLLED
    while (at.left > 0) {
        const row_group<ROWS> rows(at, *begin);
        const typename Gradient::template read<ROWS> from(gradient, rows);
        pack<T, N> in[SIDES][ROWS];
        UNROLLED
        for (int k = 0; k < SIDES * ROWS; k++)
            in[k / ROWS][k % ROWS] = load_pack<T, N>(static_cast<const T *>(sides.at[k / ROWS].x),
                                                     rows.first + rows.place[k % ROWS]);
        UNROLLED
        for (int k = 0; k < SIDES * ROWS; k++) {
            const int s = k / ROWS, r = k % ROWS;
            const volatile float *const of = &values[s][0][threadIdx.x];
            pack<T, N> out;
            UNROLLED
            for (int i = 0; i < N; i++) {
                const int c = i % CHANNELS;
                const float mean = of[(3 * c + 0) * LANES_OF_ELEMENTS];
                const float mean_dz = of[(3 * c + 1) * LANES_OF_ELEMENTS];
                const float slope = of[(3 * c + 2) * LANES_OF_ELEMENTS];
                const float dz = from.value(r, i);
                const float less = mean_dz + (to_fp32(in[s][r].at[i]) - mean) * slope;
                out.at[i] = from_fp32<T>(scales[s].at[c] * (dz - less));
            }
            rows.store(static_cast<T *>(sides.at[s].dx), r, out);
        }
    }
}

template <typename T, int N, typename Walk, int SIDES, typename Gradient>
static void launch_backward(cudaStream_t stream, const Gradient &gradient,
                            const norm_sides<SIDES> &sides, const grid &grid)
{
    const float share = (float)(1.0 / (double)cuda_grid_pixels(&grid));
    const table by =
        table_of(grid, N, pass_blocks(norm_backward<T, N, Walk, SIDES, Gradient>), LEAST_ROWS);
    LAUNCH_BLOCKS((norm_backward<T, N, Walk, SIDES, Gradient>), slab_blocks(by), slab_threads(by),
                  stream, gradient, sides, share, by);
}

template <typename T, int N, int SIDES>
static void launch_norm_backward(cudaStream_t stream, const norm_gradient &gradient,
                                 const norm_side *sides, const grid &grid)
{
    const stored_gradient<T, N> stored = {static_cast<const T *>(gradient.dy), gradient.mask};
    norm_sides<SIDES> all;
    for (int i = 0; i < SIDES; i++)
        all.at[i] = sides[i];
    if (gradient.where)
        BY_INDEX(elements(grid),
                 launch_backward<T, N, pixel_walk>(stream, pooled_of<T, N, I>(gradient),
                                                   norm_sides<1>{{sides[0]}}, grid));
    else
        BY_WALK(grid.planes, launch_backward<T, N, Walk>(stream, stored, all, grid));
}

void cuda_norm_backward(cudaStream_t stream, enum cuda_type type,
                        const struct norm_gradient *gradient, const struct norm_side *sides,
                        uint32_t n, struct grid grid)
{
    BY_TYPE(type,
            BY_PACK(run_length(grid), auto *const launch = n == 1 ? launch_norm_backward<T, N, 1>
                                                                  : launch_norm_backward<T, N, 2>;
                    launch(stream, *gradient, sides, grid)));
}
