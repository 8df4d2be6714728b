/*
 * kernels_norm.cu - sums over the rows of a matrix, and batch-norm, which is made of them.
 *
 * A sum is made in two launches. In the first each block takes LANES neighbouring columns and a
 * slab of rows, of which its LINES lines of threads take turns; a thread adds CHUNK values in fp32,
 * then goes on in fp64. In the second a block adds the slabs of LANES columns up and finishes the
 * channel.
 */
#include "kernel.h"

enum { LANES = 32, LINES = 8, CHUNK = 32, BLOCKS = 2048 /* about as many as fill a GPU */ };

struct slabs cuda_slabs(uint64_t rows, uint32_t c)
{
    const uint64_t least = (uint64_t)LINES * CHUNK, groups = (c + LANES - 1) / LANES;
    const uint64_t most = groups < BLOCKS ? BLOCKS / groups : 1;
    struct slabs slabs = {(rows + most - 1) / most, 0};
    if (slabs.rows < least)
        slabs.rows = least;
    slabs.n = (rows + slabs.rows - 1) / slabs.rows;
    return slabs;
}

struct pair {
    double a, b;
};

/* Adds the lines of a block up; the result is the first line's. */
static __device__ pair add_lines(pair mine)
{
    __shared__ double a[LINES][LANES], b[LINES][LANES];
    a[threadIdx.y][threadIdx.x] = mine.a;
    b[threadIdx.y][threadIdx.x] = mine.b;
    __syncthreads();
    pair total = {0.0, 0.0};
    for (int line = 0; line < LINES && threadIdx.y == 0; line++) {
        total.a += a[line][threadIdx.x];
        total.b += b[line][threadIdx.x];
    }
    return total;
}

/* Terms::operator()(element, column, &a, &b) gives an element's two terms. */
template <typename Terms>
__global__ void sum_slabs(Terms terms, index_t rows, uint32_t c, index_t slab, double *partial)
{
    const uint32_t column = blockIdx.x * LANES + threadIdx.x;
    const index_t begin = blockIdx.y * slab, end = begin + slab < rows ? begin + slab : rows;
    pair total = {0.0, 0.0};
    index_t row = begin + threadIdx.y;
    while (column < c && row < end) {
        float a = 0.0f, b = 0.0f;
        for (int k = 0; k < CHUNK && row < end; k++, row += LINES)
            terms(row * c + column, column, &a, &b);
        total.a += a;
        total.b += b;
    }
    total = add_lines(total);
    if (threadIdx.y == 0 && column < c) {
        partial[((index_t)blockIdx.y * 2 + 0) * c + column] = total.a;
        partial[((index_t)blockIdx.y * 2 + 1) * c + column] = total.b;
    }
}

/* Finish::operator()(column, a, b) takes a column's sums. */
template <typename Finish>
__global__ void finish_slabs(Finish finish, const double *partial, index_t n_slabs, uint32_t c)
{
    const uint32_t column = blockIdx.x * LANES + threadIdx.x;
    pair total = {0.0, 0.0};
    for (index_t slab = threadIdx.y; column < c && slab < n_slabs; slab += LINES) {
        total.a += partial[(slab * 2 + 0) * c + column];
        total.b += partial[(slab * 2 + 1) * c + column];
    }
    total = add_lines(total);
    if (threadIdx.y == 0 && column < c)
        finish(column, total.a, total.b);
}

template <typename Terms, typename Finish>
static void sum_columns(cudaStream_t stream, Terms terms, Finish finish, uint64_t rows, uint32_t c,
                        double *partial)
{
    const struct slabs slabs = cuda_slabs(rows, c);
    const dim3 block(LANES, LINES), groups((c + LANES - 1) / LANES);
    const dim3 grid(groups.x, (unsigned)slabs.n);
    LAUNCH_BLOCKS(sum_slabs<Terms>, grid, block, stream, terms, rows, c, slabs.rows, partial);
    LAUNCH_BLOCKS(finish_slabs<Finish>, groups, block, stream, finish, partial, slabs.n, c);
}

/* ----------------------------------------------------------------------------------- plain sums */

template <typename T> struct plain_terms {
    const T *x;
    __device__ void operator()(index_t at, uint32_t, float *a, float *) const
    {
        *a += to_fp32(x[at]);
    }
};

struct plain_finish {
    float *to;
    __device__ void operator()(uint32_t column, double a, double) const
    {
        to[column] = (float)a;
    }
};

void cuda_column_sums(cudaStream_t stream, enum cuda_type type, const void *x, uint64_t rows,
                      uint32_t c, double *partial, float *to)
{
    const plain_finish finish = {to};
    BY_TYPE(type, sum_columns(stream, plain_terms<T>{static_cast<const T *>(x)}, finish, rows, c,
                              partial));
}

/* -------------------------------------------------------------------------------------- forward */

/* By the first row's values: so that squares of small deviations from a large mean are not lost. */
template <typename T> struct moment_terms {
    const T *x;
    __device__ void operator()(index_t at, uint32_t column, float *a, float *b) const
    {
        const float value = to_fp32(x[at]) - to_fp32(x[column]);
        *a += value;
        *b += value * value;
    }
};

template <typename T> struct moment_finish {
    const T *x;
    norm_by by;
    double rows;
    float *mean, *variance; /* statistics */
    __device__ void operator()(uint32_t column, double a, double b) const
    {
        const double shifted = a / rows, m = shifted + (double)to_fp32(x[column]);
        double v = b / rows - shifted * shifted;
        v = v < 0.0 ? 0.0 : v;
        by.mean[column] = (float)m;
        by.inverse[column] = (float)(1.0 / sqrt(v + by.epsilon));
        mean[column] = (float)m;
        variance[column] = (float)(rows > 1.0 ? v * (rows / (rows - 1.0)) : v);
    }
};

void cuda_batch_moments(cudaStream_t stream, enum cuda_type type, const void *x, uint64_t rows,
                        uint32_t c, double *partial, const struct norm_by *norm,
                        float *statistics_mean, float *statistics_variance)
{
    BY_TYPE(type, const T *values = static_cast<const T *>(x);
            const moment_finish<T> finish = {values, *norm, (double)rows, statistics_mean,
                                             statistics_variance};
            sum_columns(stream, moment_terms<T>{values}, finish, rows, c, partial));
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

template <typename T>
__global__ void normalise(const T *x, norm_by by, const T *added, bool relu, T *y, index_t n,
                          uint32_t c)
{
    for (EACH(k, n)) {
        const uint32_t column = (uint32_t)(k % c);
        const float scale = by.inverse[column] * (by.gamma ? by.gamma[column] : 1.0f);
        float value = (to_fp32(x[k]) - by.mean[column]) * scale;
        value += by.beta ? by.beta[column] : 0.0f;
        value += added ? to_fp32(added[k]) : 0.0f;
        y[k] = from_fp32<T>(relu && value <= 0.0f ? 0.0f : value);
    }
}

void cuda_normalise(cudaStream_t stream, enum cuda_type type, const void *x,
                    const struct norm_by *norm, const void *added, bool relu, void *y,
                    uint64_t rows, uint32_t c)
{
    const index_t n = rows * c;
    BY_TYPE(type, LAUNCH(normalise<T>, blocks_for(n), THREADS, stream, static_cast<const T *>(x),
                         *norm, static_cast<const T *>(added), relu, static_cast<T *>(y), n, c));
}

/* ------------------------------------------------------------------------------------- backward */

template <typename T> struct norm_terms {
    const T *dy, *y, *x;
    T *dz;
    norm_by by;
    __device__ void operator()(index_t at, uint32_t column, float *a, float *b) const
    {
        const T value = y && to_fp32(y[at]) <= 0.0f ? from_fp32<T>(0.0f) : dy[at];
        const float normal = (to_fp32(x[at]) - by.mean[column]) * by.inverse[column];
        if (dz)
            dz[at] = value;
        *a += to_fp32(value);
        *b += to_fp32(value) * normal;
    }
};

struct norm_finish {
    float *sums, *dgamma, *dbeta;
    uint32_t c;
    __device__ void operator()(uint32_t column, double a, double b) const
    {
        sums[column] = (float)a;
        sums[c + column] = (float)b;
        if (dgamma)
            dgamma[column] = (float)b;
        if (dbeta)
            dbeta[column] = (float)a;
    }
};

void cuda_norm_sums(cudaStream_t stream, enum cuda_type type, const struct norm_gradient *gradient,
                    const struct norm_by *norm, uint64_t rows, uint32_t c, double *partial,
                    float *sums, float *dgamma, float *dbeta)
{
    const norm_finish finish = {sums, dgamma, dbeta, c};
    BY_TYPE(type, const norm_terms<T> terms = {static_cast<const T *>(gradient->dy),
                                               static_cast<const T *>(gradient->y),
                                               static_cast<const T *>(gradient->x),
                                               static_cast<T *>(gradient->dz), *norm};
            sum_columns(stream, terms, finish, rows, c, partial));
}

template <typename T>
__global__ void norm_backward(const T *dy, const T *y, const T *x, norm_by by, const float *sums,
                              float rows, T *dx, index_t n, uint32_t c)
{
    for (EACH(k, n)) {
        const uint32_t column = (uint32_t)(k % c);
        const float inverse = by.inverse[column];
        const float scale = inverse * (by.gamma ? by.gamma[column] : 1.0f);
        const float dz = y && to_fp32(y[k]) <= 0.0f ? 0.0f : to_fp32(dy[k]);
        const float normal = (to_fp32(x[k]) - by.mean[column]) * inverse;
        dx[k] =
            from_fp32<T>(scale * (dz - sums[column] / rows - normal * (sums[c + column] / rows)));
    }
}

void cuda_norm_backward(cudaStream_t stream, enum cuda_type type,
                        const struct norm_gradient *gradient, const struct norm_by *norm,
                        const float *sums, void *dx, uint64_t rows, uint32_t c)
{
    const index_t n = rows * c;
    BY_TYPE(type, LAUNCH(norm_backward<T>, blocks_for(n), THREADS, stream,
                         static_cast<const T *>(gradient->dy), static_cast<const T *>(gradient->y),
                         static_cast<const T *>(gradient->x), *norm, sums, (float)rows,
                         static_cast<T *>(dx), n, c));
}
