/*
 * kernels_norm.cu - sums over the pixels of a channel, and batch-norm, which is made of them.
 *
 * A sum is made in two launches. In the first each block takes some neighbouring channels and a
 * slab of pixels, of which its lines of threads take turns; a thread adds CHUNK values in fp32,
 * then goes on in fp64. In the second a block adds the slabs of LANES channels up and finishes the
 * channel.
 *
 * Neighbouring threads read neighbouring elements: of NHWC they are at LANES channels of a pixel,
 * of NCHW at THREADS pixels of a channel.
 */
#include "kernel.h"

enum { LANES = 32, LINES = 8, CHUNK = 32, BLOCKS = 2048 /* about as many as fill a GPU */ };
static_assert(LANES * LINES == THREADS, "blocks of both layouts have as many threads");

static inline uint32_t lanes_of(const grid &shape)
{
    return shape.planes ? 1 : LANES;
}

struct slabs cuda_slabs(const struct grid *grid)
{
    const uint64_t rows = cuda_grid_pixels(grid);
    const uint32_t lanes = lanes_of(*grid);
    const uint64_t least = (uint64_t)THREADS / lanes * CHUNK,
                   groups = (grid->c + lanes - 1) / lanes;
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

/* Adds the lines of a block up; the result is the first line's. Many lines are halved first. */
static __device__ pair add_lines(pair mine)
{
    __shared__ double a[THREADS], b[THREADS];
    const uint32_t at = threadIdx.y * blockDim.x + threadIdx.x;
    uint32_t lines = blockDim.y;
    a[at] = mine.a;
    b[at] = mine.b;
    __syncthreads();
    for (; lines > LINES; lines /= 2) {
        if (threadIdx.y < lines / 2) {
            a[at] += a[at + lines / 2 * blockDim.x];
            b[at] += b[at + lines / 2 * blockDim.x];
        }
        __syncthreads();
    }
    pair total = {0.0, 0.0};
    for (uint32_t line = 0; line < lines && threadIdx.y == 0; line++) {
        total.a += a[line * blockDim.x + threadIdx.x];
        total.b += b[line * blockDim.x + threadIdx.x];
    }
    return total;
}

/* Go over the pixels of a channel, `step` at a time: of NHWC, and of NCHW. */
struct pixel_walk {
    index_t row, step, element, stride;
    __device__ pixel_walk(const grid &shape, uint32_t channel, index_t first, index_t by)
        : row(first), step(by), element(first * shape.c + channel), stride(by * shape.c)
    {
    }
    __device__ void go_on()
    {
        row += step;
        element += stride;
    }
};

struct plane_walk {
    index_t row, step, element, sample, pixel, samples_a_step, pixels_a_step, pixels, channel;
    uint32_t c;
    __device__ plane_walk(const grid &shape, uint32_t of, index_t first, index_t by)
        : row(first), step(by), pixels((index_t)shape.h * shape.w), channel(of), c(shape.c)
    {
        sample = row / pixels;
        pixel = row % pixels;
        samples_a_step = step / pixels;
        pixels_a_step = step % pixels;
        element = (sample * c + channel) * pixels + pixel;
    }
    __device__ void go_on()
    {
        row += step;
        sample += samples_a_step;
        pixel += pixels_a_step;
        if (pixel >= pixels) {
            pixel -= pixels;
            sample++;
        }
        element = (sample * c + channel) * pixels + pixel;
    }
};

/* terms.of(column)(element, &a, &b) gives an element's two terms. Where a whole chunk is left its
 * reads are begun together. */
template <typename Walk, typename Terms>
__global__ void sum_slabs(Terms terms, grid shape, index_t rows, index_t slab, double *partial)
{
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x, c = shape.c;
    const index_t begin = blockIdx.y * slab, end = begin + slab < rows ? begin + slab : rows;
    pair total = {0.0, 0.0};
    if (column < c) {
        const auto of = terms.of(column);
        Walk at(shape, column, begin + threadIdx.y, blockDim.y);
        while (at.row < end) {
            float a = 0.0f, b = 0.0f;
            if (at.row + (CHUNK - 1) * at.step < end) {
                UNROLLED
                for (int k = 0; k < CHUNK; k++, at.go_on())
                    of(at.element, &a, &b);
            } else {
                for (; at.row < end; at.go_on())
                    of(at.element, &a, &b);
            }
            total.a += a;
            total.b += b;
        }
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
static void sum_columns(cudaStream_t stream, Terms terms, Finish finish, const grid &shape,
                        double *partial)
{
    const struct slabs slabs = cuda_slabs(&shape);
    const uint32_t lanes = lanes_of(shape), c = shape.c;
    const dim3 lines(lanes, THREADS / lanes), block(LANES, LINES);
    const dim3 grid((c + lanes - 1) / lanes, (unsigned)slabs.n), groups((c + LANES - 1) / LANES);
    const index_t rows = cuda_grid_pixels(&shape);
    if (shape.planes)
        LAUNCH_BLOCKS((sum_slabs<plane_walk, Terms>), grid, lines, stream, terms, shape, rows,
                      slabs.rows, partial);
    else
        LAUNCH_BLOCKS((sum_slabs<pixel_walk, Terms>), grid, lines, stream, terms, shape, rows,
                      slabs.rows, partial);
    LAUNCH_BLOCKS(finish_slabs<Finish>, groups, block, stream, finish, partial, slabs.n, c);
}

/* ----------------------------------------------------------------------------------- plain sums */

template <typename T> struct plain_terms {
    const T *x;
    __device__ plain_terms of(uint32_t) const
    {
        return *this;
    }
    __device__ void operator()(index_t at, float *a, float *) const
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

void cuda_column_sums(cudaStream_t stream, enum cuda_type type, const void *x, struct grid grid,
                      double *partial, float *to)
{
    const plain_finish finish = {to};
    BY_TYPE(type,
            sum_columns(stream, plain_terms<T>{static_cast<const T *>(x)}, finish, grid, partial));
}

/* -------------------------------------------------------------------------------------- forward */

/* By the first pixel's values: so that squares of small deviations from a large mean are not
 * lost. */
template <typename T> struct moment_terms_of {
    const T *x;
    float origin;
    __device__ void operator()(index_t at, float *a, float *b) const
    {
        const float value = to_fp32(x[at]) - origin;
        *a += value;
        *b += value * value;
    }
};

template <typename T> struct moment_terms {
    const T *x;
    index_t stride; /* of channels */
    __device__ moment_terms_of<T> of(uint32_t column) const
    {
        return {x, to_fp32(x[column * stride])};
    }
};

/* Where a channel's moments go. */
struct moments_to {
    norm_by by;
    double rows;
    float *mean, *variance; /* statistics */
};

/* From the sums of deviations from `origin` and of their squares. */
static __device__ void set_moments(const moments_to &to, uint32_t column, double origin, double a,
                                   double b)
{
    const double shifted = a / to.rows, m = shifted + origin;
    double v = b / to.rows - shifted * shifted;
    v = v < 0.0 ? 0.0 : v;
    to.by.mean[column] = (float)m;
    to.by.inverse[column] = (float)(1.0 / sqrt(v + to.by.epsilon));
    to.mean[column] = (float)m;
    to.variance[column] = (float)(to.rows > 1.0 ? v * (to.rows / (to.rows - 1.0)) : v);
}

template <typename T> struct moment_finish {
    const T *x;
    index_t stride;
    moments_to to;
    __device__ void operator()(uint32_t column, double a, double b) const
    {
        set_moments(to, column, (double)to_fp32(x[column * stride]), a, b);
    }
};

void cuda_batch_moments(cudaStream_t stream, enum cuda_type type, const void *x, struct grid grid,
                        double *partial, const struct norm_by *norm, float *statistics_mean,
                        float *statistics_variance)
{
    const index_t stride = channel_stride(grid);
    const double rows = (double)cuda_grid_pixels(&grid);
    BY_TYPE(type, const T *values = static_cast<const T *>(x);
            const moment_terms<T> terms = {values, stride};
            const moment_finish<T> finish = {values,
                                             stride,
                                             {*norm, rows, statistics_mean, statistics_variance}};
            sum_columns(stream, terms, finish, grid, partial));
}

__global__ void moments_of_sums(const float *sums, size_t stride, uint32_t c, moments_to to)
{
    for (EACH(k, c))
        set_moments(to, (uint32_t)k, 0.0, sums[k], sums[stride + k]);
}

void cuda_moments_of_sums(cudaStream_t stream, const float *sums, size_t stride, uint64_t rows,
                          uint32_t c, const struct norm_by *norm, float *statistics_mean,
                          float *statistics_variance)
{
    const moments_to to = {*norm, (double)rows, statistics_mean, statistics_variance};
    LAUNCH(moments_of_sums, blocks_for(c), THREADS, stream, sums, stride, c, to);
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

/* What is done to the channels of a pack. */
template <int N> struct normalising {
    channel_values<N> mean, inverse, scale, beta;
};

template <int N>
static __device__ inline normalising<N> normalising_of(const norm_by &by, uint32_t channel,
                                                       const grid &shape)
{
    normalising<N> of;
    const channel_values<N> gamma = values_of<N>(by.gamma, 1.0f, channel, shape);
    of.mean = values_of<N>(by.mean, 0.0f, channel, shape);
    of.inverse = values_of<N>(by.inverse, 0.0f, channel, shape);
    of.beta = values_of<N>(by.beta, 0.0f, channel, shape);
    for (int i = 0; i < N; i++)
        of.scale.at[i] = of.inverse.at[i] * gamma.at[i];
    return of;
}

/* Of n packs. */
template <typename T, int N>
__global__ void normalise(const T *x, norm_by by, const T *added, bool relu, T *y, index_t n,
                          grid shape)
{
    const bool same = same_channels<N>(shape);
    normalising<N> of = {};
    bool known = false;
    for (EACH(k, n)) {
        pack<T, N> values = load_pack<T, N>(x, k), more = {};
        if (added)
            more = load_pack<T, N>(added, k);
        if (!known || !same)
            of = normalising_of<N>(by, channel_of(k * N, shape), shape);
        known = true;
        for (int i = 0; i < N; i++) {
            float value = (to_fp32(values.at[i]) - of.mean.at[i]) * of.scale.at[i];
            value += of.beta.at[i];
            value += added ? to_fp32(more.at[i]) : 0.0f;
            values.at[i] = from_fp32<T>(relu && value <= 0.0f ? 0.0f : value);
        }
        store_pack(y, k, values);
    }
}

void cuda_normalise(cudaStream_t stream, enum cuda_type type, const void *x,
                    const struct norm_by *norm, const void *added, bool relu, void *y,
                    struct grid grid)
{
    BY_TYPE(type, BY_PACK(run_length(grid), const index_t n = elements(grid) / N;
                          LAUNCH((normalise<T, N>), blocks_for_packs(n), THREADS, stream,
                                 static_cast<const T *>(x), *norm, static_cast<const T *>(added),
                                 relu, static_cast<T *>(y), n, grid)));
}

/* ------------------------------------------------------------------------------------- backward */

template <typename T> struct norm_terms_of {
    const T *dy, *y, *x;
    T *dz;
    float mean, inverse;
    __device__ void operator()(index_t at, float *a, float *b) const
    {
        const T value = y && to_fp32(y[at]) <= 0.0f ? from_fp32<T>(0.0f) : dy[at];
        const float normal = (to_fp32(x[at]) - mean) * inverse;
        if (dz)
            dz[at] = value;
        *a += to_fp32(value);
        *b += to_fp32(value) * normal;
    }
};

template <typename T> struct norm_terms {
    const T *dy, *y, *x;
    T *dz;
    norm_by by;
    __device__ norm_terms_of<T> of(uint32_t column) const
    {
        return {dy, y, x, dz, by.mean[column], by.inverse[column]};
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
                    const struct norm_by *norm, struct grid grid, double *partial, float *sums,
                    float *dgamma, float *dbeta)
{
    const norm_finish finish = {sums, dgamma, dbeta, grid.c};
    BY_TYPE(type, const norm_terms<T> terms = {static_cast<const T *>(gradient->dy),
                                               static_cast<const T *>(gradient->y),
                                               static_cast<const T *>(gradient->x),
                                               static_cast<T *>(gradient->dz), *norm};
            sum_columns(stream, terms, finish, grid, partial));
}

__global__ void norm_sums_made(const float *made, size_t stride, uint32_t c, norm_finish finish)
{
    for (EACH(k, c))
        finish((uint32_t)k, made[k], made[stride + k]);
}

void cuda_norm_sums_made(cudaStream_t stream, const float *made, size_t stride, uint32_t c,
                         float *sums, float *dgamma, float *dbeta)
{
    const norm_finish finish = {sums, dgamma, dbeta, c};
    LAUNCH(norm_sums_made, blocks_for(c), THREADS, stream, made, stride, c, finish);
}

template <typename T, int N>
__global__ void norm_backward(const T *dy, const T *y, const T *x, norm_by by, const float *sums,
                              float rows, T *dx, index_t n, grid shape)
{
    const bool same = same_channels<N>(shape);
    normalising<N> of = {};
    channel_values<N> mean_dz = {}, mean_product = {}; /* of dz, and of dz times x^ */
    bool known = false;
    for (EACH(k, n)) {
        const pack<T, N> in = load_pack<T, N>(x, k);
        pack<T, N> gradient = load_pack<T, N>(dy, k), out = {};
        if (y)
            out = load_pack<T, N>(y, k);
        if (!known || !same) {
            const uint32_t channel = channel_of(k * N, shape);
            of = normalising_of<N>(by, channel, shape);
            mean_dz = values_of<N>(sums, 0.0f, channel, shape);
            mean_product = values_of<N>(sums + shape.c, 0.0f, channel, shape);
            for (int i = 0; i < N; i++) {
                mean_dz.at[i] /= rows;
                mean_product.at[i] /= rows;
            }
        }
        known = true;
        for (int i = 0; i < N; i++) {
            const float dz = y && to_fp32(out.at[i]) <= 0.0f ? 0.0f : to_fp32(gradient.at[i]);
            const float normal = (to_fp32(in.at[i]) - of.mean.at[i]) * of.inverse.at[i];
            gradient.at[i] =
                from_fp32<T>(of.scale.at[i] * (dz - mean_dz.at[i] - normal * mean_product.at[i]));
        }
        store_pack(dx, k, gradient);
    }
}

void cuda_norm_backward(cudaStream_t stream, enum cuda_type type,
                        const struct norm_gradient *gradient, const struct norm_by *norm,
                        const float *sums, void *dx, struct grid grid)
{
    const float rows = (float)cuda_grid_pixels(&grid);
    BY_TYPE(type,
            BY_PACK(run_length(grid), const index_t n = elements(grid) / N;
                    LAUNCH((norm_backward<T, N>), blocks_for_packs(n), THREADS, stream,
                           static_cast<const T *>(gradient->dy),
                           static_cast<const T *>(gradient->y), static_cast<const T *>(gradient->x),
                           *norm, sums, rows, static_cast<T *>(dx), n, grid)));
}
