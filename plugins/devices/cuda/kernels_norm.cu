/*
 * kernels_norm.cu - sums over the pixels of a channel, and batch-norm forward, which needs them.
 */
#include "kernel_columns.h"
#include "kernel_norm.h"

size_t cuda_partial_bytes(enum cuda_type type, const struct grid *grid)
{
    uint32_t slabs = 0;
    BY_TYPE(type,
            BY_PACK(run_length(*grid), slabs = table_of(*grid, N, MOST_SUM_BLOCKS, CHUNK).slabs));
    return (size_t)slabs * MOST_SUMS * grid->c * sizeof(double);
}

size_t cuda_mask_bytes(enum cuda_type type, const struct grid *grid)
{
    size_t bytes = 0;
    BY_TYPE(type, BY_PACK(run_length(*grid), bytes = elements(*grid) / N));
    return bytes;
}

/* ----------------------------------------------------------------------------------- plain sums */

template <typename T, int N> struct plain_terms {
    static constexpr int n_sums = 2, threads = THREADS, blocks = 4, at_once = SUMMED_ROWS;
    const T *x;
    __device__ float origin(uint32_t, int) const
    {
        return 0.0f;
    }
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, channel_sums<2, CHANNELS> *sums) const
    {
        const row_packs<T, N, ROWS> in(x, rows);
        UNROLLED
        for (int i = 0; i < N; i++) {
            UNROLLED
            for (int r = 0; r < ROWS; r++)
                sums->of[0][i % CHANNELS] += rows.has(r) ? to_fp32(in.row[r].at[i]) : 0.0f;
        }
    }
};

struct plain_finish {
    float *to;
    __device__ void operator()(uint32_t column, const double (&sums)[2]) const
    {
        to[column] = (float)sums[0];
    }
};

void cuda_column_sums(cudaStream_t stream, enum cuda_type type, const void *x, struct grid grid,
                      struct sum_room room, float *to)
{
    const plain_finish finish = {to};
    BY_TYPE(type,
            BY_PACK(run_length(grid), const plain_terms<T, N> terms = {static_cast<const T *>(x)};
                    sum_columns<T, N>(stream, terms, finish, grid, room)));
}

/* -------------------------------------------------------------------------------------- forward */

/* Sums deviations from the first pixel's values, so that squares of small deviations from a large
 * mean are not lost. */
template <typename T, int N> struct moment_terms {
    static constexpr int n_sums = 2, threads = THREADS, blocks = 4, at_once = SUMMED_ROWS;
    const T *x;
    index_t stride; /* of channels */
    __device__ float origin(uint32_t channel, int) const
    {
        return to_fp32(x[channel * stride]);
    }
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, channel_sums<2, CHANNELS> *sums) const
    {
        const row_packs<T, N, ROWS> in(x, rows);
        UNROLLED
        for (int i = 0; i < N; i++) {
            const float origin = sums->origin(i % CHANNELS, 1);
            UNROLLED
            for (int r = 0; r < ROWS; r++) {
                const float value = rows.has(r) ? to_fp32(in.row[r].at[i]) - origin : 0.0f;
                sums->of[0][i % CHANNELS] += value;
                sums->of[1][i % CHANNELS] += value * value;
            }
        }
    }
};

/* From the sums of deviations from the first value and of their squares. */
template <typename T> struct moment_finish {
    const T *x;
    index_t stride;
    moments to;
    __device__ void operator()(uint32_t column, const double (&sums)[2]) const
    {
        const double shifted = sums[0] / to.rows;
        const double m = shifted + (double)to_fp32(x[column * stride]);
        double v = sums[1] / to.rows - shifted * shifted;
        v = v < 0.0 ? 0.0 : v;
        to.by.mean[column] = (float)m;
        to.by.inverse[column] = (float)(1.0 / sqrt(v + to.by.epsilon));
        to.mean[column] = (float)m;
        to.variance[column] = (float)(to.rows > 1.0 ? v * (to.rows / (to.rows - 1.0)) : v);
    }
};

void cuda_batch_moments(cudaStream_t stream, enum cuda_type type, const void *x, struct grid grid,
                        struct sum_room room, const struct moments *to)
{
    const index_t stride = channel_stride(grid);
    BY_TYPE(type, BY_PACK(run_length(grid), const T *values = static_cast<const T *>(x);
                          const moment_terms<T, N> terms = {values, stride};
                          const moment_finish<T> finish = {values, stride, *to};
                          sum_columns<T, N>(stream, terms, finish, grid, room)));
}

__global__ void running_moments(const float *mean, const float *variance, uint32_t c, norm_by by)
{
    for (EACH(k, c)) {
        by.mean[k] = mean[k];
        by.inverse[k] = (float)(1.0 / sqrt((double)variance[k] + by.epsilon));
    }
}

void cuda_running_moments(cudaStream_t stream, const float *running_mean,
                          const float *running_variance, uint32_t c, const struct norm_by *norm)
{
    LAUNCH(running_moments, blocks_for(c), THREADS, stream, running_mean, running_variance, c,
           *norm);
}

/* The term that a normalising pass adds. */
enum adding { NOTHING, VALUES, NORMALISED };

/* ROWS at once; `added` only where ADDS says so, and `added_norm` likewise. */
template <typename T, int N, typename Walk, adding ADDS>
KERNEL_OF(ADDS == NORMALISED ? 2 : 3)
void normalise(const T *__restrict__ x, norm_by norm, const T *__restrict__ added,
               norm_by added_norm, bool relu, T *__restrict__ y, uint8_t *__restrict__ mask,
               table by)
{
    constexpr int CHANNELS = Walk::planes ? 1 : N;
    constexpr int ROWS = NORMALISED_PACKS / (ADDS == NOTHING ? 1 : 2);
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= by.columns)
        return;
    Walk at(by, column);
    const normalising<CHANNELS> of(norm, column);
    const normalising<CHANNELS> of_added(ADDS == NORMALISED ? added_norm : norm, column);
    ROLLED
    while (at.left > 0) {
        const row_group<ROWS> rows(at, at.first);
        const row_packs<T, N, ROWS> in(x, rows), more(ADDS == NOTHING ? x : added, rows);
        UNROLLED
        for (int r = 0; r < ROWS; r++) {
            pack<T, N> out;
            uint32_t bits = 0;
            UNROLLED
            for (int i = 0; i < N; i++) {
                const int k = i % CHANNELS;
                float value = of.value(k, to_fp32(in.row[r].at[i]));
                const float other = to_fp32(more.row[r].at[i]);
                value += ADDS == NORMALISED ? of_added.value(k, other)
                         : ADDS == VALUES   ? other
                                            : 0.0f;
                out.at[i] = from_fp32<T>(relu && value <= 0.0f ? 0.0f : value);
                bits |= is_zero(out.at[i]) ? 0 : 1u << i;
            }
            rows.store(y, r, out);
            if (mask && rows.has(r))
                mask[rows.first + rows.place[r]] = (uint8_t)bits;
        }
    }
}

template <typename T, int N, adding ADDS>
static void launch_normalise(cudaStream_t stream, const void *x, const norm_by &norm,
                             const norm_added &added, bool relu, void *y, uint8_t *mask,
                             const grid &shape)
{
    const norm_by &more = added.norm ? *added.norm : norm;
    BY_WALK(shape.planes, const table by = table_of(
                              shape, N, pass_blocks(normalise<T, N, Walk, ADDS>), LEAST_ROWS);
            LAUNCH((normalise<T, N, Walk, ADDS>), slab_blocks(by), slab_threads(by), stream,
                   static_cast<const T *>(x), norm, static_cast<const T *>(added.values), more,
                   relu, static_cast<T *>(y), mask, by));
}

void cuda_normalise(cudaStream_t stream, enum cuda_type type, const void *x,
                    const struct norm_by *norm, const struct norm_added *added, bool relu, void *y,
                    uint8_t *mask, struct grid grid)
{
    BY_TYPE(type, BY_PACK(run_length(grid),
                          auto *const launch = !added->values ? launch_normalise<T, N, NOTHING>
                                               : !added->norm ? launch_normalise<T, N, VALUES>
                                                              : launch_normalise<T, N, NORMALISED>;
                          launch(stream, x, *norm, *added, relu, y, mask, grid)));
}
