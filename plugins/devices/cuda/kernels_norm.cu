/*
 * kernels_norm.cu - sums over the pixels of a channel, and batch-norm, which is made of them.
 *
 * A pass goes over a tensor in packs of N elements. A column is N neighbouring channels of NHWC, or
 * one channel of NCHW; its rows are all of its packs. A thread stays in one column, so it loads the
 * channels' values once. It reads several rows before it computes with the first: a GPU's memory
 * gives its rate only to many reads that are under way at once.
 *
 * A sum is made in two launches. In the first each block adds a slab of rows: a thread adds CHUNK
 * values in fp32, then goes on in fp64. In the second a block adds the slabs of LANES channels and
 * finishes the channels.
 */
#include "kernel.h"

enum { CHUNK = 32, BLOCKS = 2048 /* about as many as fill a GPU */ };
/* Of a slab, with those of other channels between: a thread counts them in 32 bits. */
static const index_t MOST_PACKS = (index_t)1 << 31;
/* Columns of a block at most: of packs they fill a line of the cache, of elements a warp. */
enum { LANES = 8, LANES_OF_ELEMENTS = 32 };
/* Rows of each tensor that a thread reads at once; when normalising, packs of all tensors. */
enum { SUMMED_ROWS = 4, NORMALISED_PACKS = 4, BACKWARD_ROWS = 4 };

/* A grid as a pass goes over it. */
struct table {
    uint32_t columns, lanes; /* lanes: the columns of a block, a power of two */
    index_t rows, slab;      /* of a column; of a block */
    uint32_t run;            /* NCHW: rows of a channel in one sample */
    uint32_t slabs;
    /* This block's first row, and how many rows there are from this thread's first one on. */
    __device__ index_t begin() const
    {
        return blockIdx.y * slab;
    }
    __device__ uint32_t left() const
    {
        const uint32_t here = (uint32_t)(rows - begin() < slab ? rows - begin() : slab);
        return here > threadIdx.y ? here - threadIdx.y : 0;
    }
};

static table table_of(const grid &shape, uint32_t n_in_pack)
{
    const uint32_t most_lanes = n_in_pack == 1 ? LANES_OF_ELEMENTS : LANES;
    table made = {shape.planes ? shape.c : shape.c / n_in_pack, 1, 0, 0, 0, 0};
    made.rows = cuda_grid_pixels(&shape);
    if (shape.planes) {
        made.rows /= n_in_pack;
        made.run = shape.h * shape.w / n_in_pack;
    }
    while (!shape.planes && made.lanes < most_lanes && made.lanes < made.columns)
        made.lanes *= 2;
    const uint32_t groups = (made.columns + made.lanes - 1) / made.lanes;
    const index_t least = (index_t)THREADS / made.lanes * CHUNK;
    const index_t most = groups < BLOCKS ? BLOCKS / groups : 1;
    made.slab = (made.rows + most - 1) / most;
    if (made.slab < least)
        made.slab = least;
    while (made.slab > 1 && made.slab * made.columns > MOST_PACKS)
        made.slab = (made.slab + 1) / 2;
    made.slabs = (uint32_t)((made.rows + made.slab - 1) / made.slab);
    return made;
}

size_t cuda_partial_bytes(enum cuda_type type, const struct grid *grid)
{
    uint32_t slabs = 0;
    BY_TYPE(type, BY_PACK(run_length(*grid), slabs = table_of(*grid, N).slabs));
    return (size_t)slabs * 2 * grid->c * sizeof(double);
}

/* Go over the packs of a column in a block's slab, `step` rows at a time: of NHWC, and of NCHW.
 * `pack` counts from the slab's first pack, which leaves it 32 bits. */
struct pixel_walk {
    static constexpr bool planes = false;
    uint32_t left, step, pack, stride; /* left: rows of the slab from here on */
    index_t first;
    __device__ pixel_walk(const table &by, uint32_t column)
        : left(by.left()), step(blockDim.y), pack(threadIdx.y * by.columns + column),
          stride(blockDim.y * by.columns), first(by.begin() * by.columns)
    {
    }
    __device__ void go_on()
    {
        left = left > step ? left - step : 0;
        pack += stride;
    }
};

struct plane_walk {
    static constexpr bool planes = true;
    uint32_t left, step, pack, at, run, packs_a_step, stride, next;
    index_t first;
    __device__ plane_walk(const table &by, uint32_t column)
        : left(by.left()), step(blockDim.y), run(by.run)
    {
        const uint32_t ahead = (uint32_t)(by.begin() % run) + threadIdx.y;
        const uint32_t sample = by.columns * run; /* of all channels */
        at = ahead % run;
        pack = ahead / run * sample + column * run + at;
        packs_a_step = step % run;
        stride = step / run * sample + packs_a_step;
        next = sample - run;
        first = by.begin() / run * sample;
    }
    __device__ void go_on()
    {
        left = left > step ? left - step : 0;
        pack += stride;
        at += packs_a_step;
        if (at >= run) {
            at -= run;
            pack += next;
        }
    }
};

/* The next rows of a walk. Behind the last row the first one stands in, so that all are read
 * without a condition. */
template <int ROWS> struct row_group {
    index_t first;
    uint32_t place[ROWS];
    template <typename Walk> __device__ row_group(Walk &at, index_t from) : first(from)
    {
        UNROLLED
        for (int r = 0; r < ROWS; r++, at.go_on())
            place[r] = r == 0 || at.left > 0 ? at.pack : place[0];
    }
    /* Whether there is an r-th row. */
    __device__ bool has(int r) const
    {
        return r == 0 || place[r] != place[0];
    }
    template <typename T, int N> __device__ void store(T *to, int r, const pack<T, N> &values) const
    {
        if (has(r))
            store_pack(to, first + place[r], values);
    }
};

template <typename T, int N, int ROWS> struct row_packs {
    pack<T, N> row[ROWS];
    __device__ row_packs(const T *from, const row_group<ROWS> &rows)
    {
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            row[r] = load_pack<T, N>(from, rows.first + rows.place[r]);
    }
};

/* Which elements of a group of rows count: a bit each, in one register. */
template <typename T, int N, int ROWS> struct row_mask {
    uint32_t bits;
    static_assert(N * ROWS <= 32, "a bit for each element");
    /* Not those where y (NULL: none) <= 0. y leaves its registers before other tensors are read. */
    __device__ row_mask(const T *y, const row_group<ROWS> &rows) : bits(0)
    {
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            bits |= rows.has(r) ? ((1u << N) - 1) << (r * N) : 0;
        if (y)
            relu(row_packs<T, N, ROWS>(y, rows));
        asm volatile("" ::: "memory");
    }
    __device__ void relu(const row_packs<T, N, ROWS> &y)
    {
        UNROLLED
        for (int r = 0; r < ROWS; r++) {
            UNROLLED
            for (int i = 0; i < N; i++)
                bits &= to_fp32(y.row[r].at[i]) <= 0.0f ? ~(1u << (r * N + i)) : 0xffffffffu;
        }
    }
    __device__ bool has(int r, int i) const
    {
        return bits >> (r * N + i) & 1;
    }
    __device__ pack<T, N> of(const pack<T, N> &values, int r) const
    {
        pack<T, N> kept;
        UNROLLED
        for (int i = 0; i < N; i++)
            kept.at[i] = has(r, i) ? values.at[i] : from_fp32<T>(0.0f);
        return kept;
    }
};

/* Adds the lines of a block up, of S values of each thread; the results are the first line's. */
template <int S> static __device__ inline void add_lines(double (&values)[S][THREADS])
{
    const uint32_t at = threadIdx.y * blockDim.x + threadIdx.x;
    for (uint32_t lines = blockDim.y / 2; lines > 0; lines /= 2) {
        __syncthreads();
        if (threadIdx.y < lines) {
            UNROLLED
            for (int s = 0; s < S; s++)
                values[s][at] += values[s][at + lines * blockDim.x];
        }
    }
}

/* Of a thread: of each of its channels two sums. The origins stay in shared memory, as the slab's
 * begin does: reads under way take the registers. */
template <int CHANNELS> struct pair_sums {
    const volatile float *origins;
    float a[CHANNELS], b[CHANNELS];
    __device__ float origin(int channel) const
    {
        return origins[channel * LANES_OF_ELEMENTS];
    }
};

/* Terms::add adds the two terms of each element of a group of rows. */
template <typename T, int N, typename Walk, typename Terms>
KERNEL_OF(4)
void sum_slabs(Terms terms, table by, double *partial)
{
    constexpr int CHANNELS = Walk::planes ? 1 : N, ROWS_IN_FP32 = CHUNK * CHANNELS / N;
    __shared__ double sums[2 * CHANNELS][THREADS];
    __shared__ float origins[CHANNELS][LANES_OF_ELEMENTS];
    __shared__ index_t first;
    const volatile index_t *const begin = &first;
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
    UNROLLED
    for (int s = 0; s < 2 * CHANNELS; s++)
        sums[s][thread] = 0.0;
    for (int i = 0; i < CHANNELS && threadIdx.y == 0 && column < by.columns; i++)
        origins[i][threadIdx.x] = terms.origin(column * CHANNELS + i);
    Walk at(by, column);
    if (thread == 0)
        first = at.first;
    __syncthreads();
    if (column < by.columns) {
        ROLLED
        while (at.left > 0) {
            pair_sums<CHANNELS> chunk = {&origins[0][threadIdx.x], {}, {}};
            ROLLED
            for (int k = 0; k < ROWS_IN_FP32 && at.left > 0; k += SUMMED_ROWS)
                terms.add(row_group<SUMMED_ROWS>(at, *begin), &chunk);
            UNROLLED
            for (int i = 0; i < CHANNELS; i++) {
                sums[i][thread] += chunk.a[i];
                sums[CHANNELS + i][thread] += chunk.b[i];
            }
        }
    }
    add_lines<2 * CHANNELS>(sums);
    if (threadIdx.y != 0 || column >= by.columns)
        return;
    const index_t c = (index_t)by.columns * CHANNELS;
    for (int i = 0; i < CHANNELS; i++) {
        partial[((index_t)blockIdx.y * 2 + 0) * c + column * CHANNELS + i] = sums[i][thread];
        partial[((index_t)blockIdx.y * 2 + 1) * c + column * CHANNELS + i] =
            sums[CHANNELS + i][thread];
    }
}

/* Finish::operator()(channel, a, b) takes a channel's sums. */
template <typename Finish>
__global__ void finish_slabs(Finish finish, const double *partial, uint32_t n_slabs, uint32_t c)
{
    __shared__ double sums[2][THREADS];
    const uint32_t channel = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
    double a = 0.0, b = 0.0;
    UNROLLED
    for (uint32_t slab = threadIdx.y; slab < n_slabs; slab += blockDim.y) {
        if (channel < c) {
            a += partial[((index_t)slab * 2 + 0) * c + channel];
            b += partial[((index_t)slab * 2 + 1) * c + channel];
        }
    }
    sums[0][thread] = a;
    sums[1][thread] = b;
    add_lines<2>(sums);
    if (threadIdx.y == 0 && channel < c)
        finish(channel, sums[0][thread], sums[1][thread]);
}

static dim3 slab_blocks(const table &by)
{
    return dim3((by.columns + by.lanes - 1) / by.lanes, by.slabs);
}

static dim3 slab_threads(const table &by)
{
    return dim3(by.lanes, THREADS / by.lanes);
}

/* Does what follows with Walk as the walk of the layout. */
#define BY_WALK(planes, ...)         \
    do {                             \
        if (planes) {                \
            using Walk = plane_walk; \
            __VA_ARGS__;             \
        } else {                     \
            using Walk = pixel_walk; \
            __VA_ARGS__;             \
        }                            \
    } while (0)

template <typename T, int N, typename Terms, typename Finish>
static void sum_columns(cudaStream_t stream, const Terms &terms, const Finish &finish,
                        const grid &shape, double *partial)
{
    const table by = table_of(shape, N);
    const dim3 groups((shape.c + LANES - 1) / LANES), lanes(LANES, THREADS / LANES);
    BY_WALK(shape.planes, LAUNCH_BLOCKS((sum_slabs<T, N, Walk, Terms>), slab_blocks(by),
                                        slab_threads(by), stream, terms, by, partial));
    LAUNCH_BLOCKS(finish_slabs<Finish>, groups, lanes, stream, finish, partial, by.slabs, shape.c);
}

/* ----------------------------------------------------------------------------------- plain sums */

template <typename T, int N> struct plain_terms {
    const T *x;
    __device__ float origin(uint32_t) const
    {
        return 0.0f;
    }
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, pair_sums<CHANNELS> *sums) const
    {
        const row_packs<T, N, ROWS> in(x, rows);
        UNROLLED
        for (int i = 0; i < N; i++) {
            UNROLLED
            for (int r = 0; r < ROWS; r++)
                sums->a[i % CHANNELS] += rows.has(r) ? to_fp32(in.row[r].at[i]) : 0.0f;
        }
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
            BY_PACK(run_length(grid), const plain_terms<T, N> terms = {static_cast<const T *>(x)};
                    sum_columns<T, N>(stream, terms, finish, grid, partial)));
}

/* -------------------------------------------------------------------------------------- forward */

/* Of deviations from the first pixel's values, so that squares of small deviations from a large
 * mean are not lost. */
template <typename T, int N> struct moment_terms {
    const T *x;
    index_t stride; /* of channels */
    __device__ float origin(uint32_t channel) const
    {
        return to_fp32(x[channel * stride]);
    }
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, pair_sums<CHANNELS> *sums) const
    {
        const row_packs<T, N, ROWS> in(x, rows);
        UNROLLED
        for (int i = 0; i < N; i++) {
            const float origin = sums->origin(i % CHANNELS);
            UNROLLED
            for (int r = 0; r < ROWS; r++) {
                const float value = rows.has(r) ? to_fp32(in.row[r].at[i]) - origin : 0.0f;
                sums->a[i % CHANNELS] += value;
                sums->b[i % CHANNELS] += value * value;
            }
        }
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
    const moments_to to = {*norm, (double)cuda_grid_pixels(&grid), statistics_mean,
                           statistics_variance};
    BY_TYPE(type, BY_PACK(run_length(grid), const T *values = static_cast<const T *>(x);
                          const moment_terms<T, N> terms = {values, stride};
                          const moment_finish<T> finish = {values, stride, to};
                          sum_columns<T, N>(stream, terms, finish, grid, partial)));
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

/* What is done to the channels of a column: y = (x - mean) * scale + beta. */
template <int CHANNELS> struct normalising {
    float mean[CHANNELS], scale[CHANNELS], beta[CHANNELS];
    __device__ normalising(const norm_by &by, uint32_t column)
    {
        UNROLLED
        for (int i = 0; i < CHANNELS; i++) {
            const uint32_t channel = column * CHANNELS + i;
            mean[i] = by.mean[channel];
            scale[i] = by.inverse[channel] * (by.gamma ? by.gamma[channel] : 1.0f);
            beta[i] = by.beta ? by.beta[channel] : 0.0f;
        }
    }
};

/* ROWS at once; `added` only where ADDS says so. */
template <typename T, int N, typename Walk, bool ADDS>
KERNEL_OF(4)
void normalise(const T *__restrict__ x, norm_by norm, const T *__restrict__ added, bool relu,
               T *__restrict__ y, table by)
{
    constexpr int CHANNELS = Walk::planes ? 1 : N;
    constexpr int ROWS = NORMALISED_PACKS / (ADDS ? 2 : 1);
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= by.columns)
        return;
    Walk at(by, column);
    const normalising<CHANNELS> of(norm, column);
    ROLLED
    while (at.left > 0) {
        const row_group<ROWS> rows(at, at.first);
        const row_packs<T, N, ROWS> in(x, rows), more(ADDS ? added : x, rows);
        UNROLLED
        for (int r = 0; r < ROWS; r++) {
            pack<T, N> out;
            UNROLLED
            for (int i = 0; i < N; i++) {
                const int k = i % CHANNELS;
                float value = (to_fp32(in.row[r].at[i]) - of.mean[k]) * of.scale[k];
                value += of.beta[k];
                value += ADDS ? to_fp32(more.row[r].at[i]) : 0.0f;
                out.at[i] = from_fp32<T>(relu && value <= 0.0f ? 0.0f : value);
            }
            rows.store(y, r, out);
        }
    }
}

template <typename T, int N>
static void launch_normalise(cudaStream_t stream, const T *x, const norm_by &norm, const T *added,
                             bool relu, T *y, const grid &shape)
{
    const table by = table_of(shape, N);
    const dim3 blocks = slab_blocks(by), threads = slab_threads(by);
    if (added)
        BY_WALK(shape.planes, LAUNCH((normalise<T, N, Walk, true>), blocks, threads, stream, x,
                                     norm, added, relu, y, by));
    else
        BY_WALK(shape.planes, LAUNCH((normalise<T, N, Walk, false>), blocks, threads, stream, x,
                                     norm, added, relu, y, by));
}

void cuda_normalise(cudaStream_t stream, enum cuda_type type, const void *x,
                    const struct norm_by *norm, const void *added, bool relu, void *y,
                    struct grid grid)
{
    BY_TYPE(type,
            BY_PACK(run_length(grid), const T *from = static_cast<const T *>(x);
                    const T *more = static_cast<const T *>(added); T *to = static_cast<T *>(y);
                    launch_normalise<T, N>(stream, from, *norm, more, relu, to, grid)));
}

/* ------------------------------------------------------------------------------------- backward */

/* Of dz, and of dz times the deviation from the mean, which norm_finish normalises. */
template <typename T, int N> struct norm_terms {
    const T *dy, *y, *x;
    T *dz; /* may be dy */
    const float *mean;
    __device__ float origin(uint32_t channel) const
    {
        return mean[channel];
    }
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, pair_sums<CHANNELS> *sums) const
    {
        const row_mask<T, N, ROWS> mask(y, rows);
        const row_packs<T, N, ROWS> gradient(dy, rows);
        UNROLLED
        for (int r = 0; r < ROWS && dz; r++)
            rows.store(dz, r, mask.of(gradient.row[r], r));
        const row_packs<T, N, ROWS> in(x, rows);
        UNROLLED
        for (int i = 0; i < N; i++) {
            const float origin = sums->origin(i % CHANNELS);
            UNROLLED
            for (int r = 0; r < ROWS; r++) {
                const float value = mask.has(r, i) ? to_fp32(gradient.row[r].at[i]) : 0.0f;
                sums->a[i % CHANNELS] += value;
                sums->b[i % CHANNELS] += value * (to_fp32(in.row[r].at[i]) - origin);
            }
        }
    }
};

struct norm_finish {
    float *sums, *dgamma, *dbeta;
    const float *inverse; /* NULL: b is of normalised values */
    uint32_t c;
    __device__ void operator()(uint32_t column, double a, double b) const
    {
        b *= inverse ? (double)inverse[column] : 1.0;
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
    const norm_finish finish = {sums, dgamma, dbeta, norm->inverse, grid.c};
    BY_TYPE(type,
            BY_PACK(run_length(grid),
                    const norm_terms<T, N> terms = {static_cast<const T *>(gradient->dy),
                                                    static_cast<const T *>(gradient->y),
                                                    static_cast<const T *>(gradient->x),
                                                    static_cast<T *>(gradient->dz), norm->mean};
                    sum_columns<T, N>(stream, terms, finish, grid, partial)));
}

__global__ void norm_sums_made(const float *made, size_t stride, uint32_t c, norm_finish finish)
{
    for (EACH(k, c))
        finish((uint32_t)k, made[k], made[stride + k]);
}

void cuda_norm_sums_made(cudaStream_t stream, const float *made, size_t stride, uint32_t c,
                         float *sums, float *dgamma, float *dbeta)
{
    const norm_finish finish = {sums, dgamma, dbeta, NULL, c};
    LAUNCH(norm_sums_made, blocks_for(c), THREADS, stream, made, stride, c, finish);
}

/* dx = scale * (dz - mean of dz - deviation of x * slope), where the slope is the mean of dz x^,
 * times the inverse. */
template <typename T, int N, typename Walk>
KERNEL_OF(3)
void norm_backward(const T *dy, const T *y, const T *x, norm_by norm, const float *sums,
                   float share, T *dx, table by)
{
    constexpr int CHANNELS = Walk::planes ? 1 : N, ROWS = BACKWARD_ROWS;
    __shared__ float values[3 * CHANNELS][LANES_OF_ELEMENTS];
    __shared__ index_t first;
    const volatile index_t *const begin = &first;
    const volatile float *const of = &values[0][threadIdx.x];
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < CHANNELS && threadIdx.y == 0 && column < by.columns; i++) {
        const uint32_t channel = column * CHANNELS + i;
        const float inverse = norm.inverse[channel];
        values[3 * i + 0][threadIdx.x] = norm.mean[channel];
        values[3 * i + 1][threadIdx.x] = sums[channel] * share;
        values[3 * i + 2][threadIdx.x] = inverse * (sums[by.columns * CHANNELS + channel] * share);
    }
    Walk at(by, column);
    if (threadIdx.x == 0 && threadIdx.y == 0)
        first = at.first;
    __syncthreads();
    if (column >= by.columns)
        return;
    float scale[CHANNELS];
    UNROLLED
    for (int i = 0; i < CHANNELS; i++) {
        const uint32_t channel = column * CHANNELS + i;
        scale[i] = norm.inverse[channel] * (norm.gamma ? norm.gamma[channel] : 1.0f);
    }
    ROLLED
    while (at.left > 0) {
        const row_group<ROWS> rows(at, *begin);
        const row_mask<T, N, ROWS> mask(y, rows);
        const row_packs<T, N, ROWS> gradient(dy, rows), in(x, rows);
        UNROLLED
        for (int r = 0; r < ROWS; r++) {
            pack<T, N> out;
            UNROLLED
            for (int i = 0; i < N; i++) {
                const int k = i % CHANNELS;
                const float mean = of[(3 * k + 0) * LANES_OF_ELEMENTS];
                const float mean_dz = of[(3 * k + 1) * LANES_OF_ELEMENTS];
                const float slope = of[(3 * k + 2) * LANES_OF_ELEMENTS];
                const float dz = mask.has(r, i) ? to_fp32(gradient.row[r].at[i]) : 0.0f;
                const float less = mean_dz + (to_fp32(in.row[r].at[i]) - mean) * slope;
                out.at[i] = from_fp32<T>(scale[k] * (dz - less));
            }
            rows.store(dx, r, out);
        }
    }
}

void cuda_norm_backward(cudaStream_t stream, enum cuda_type type,
                        const struct norm_gradient *gradient, const struct norm_by *norm,
                        const float *sums, void *dx, struct grid grid)
{
    const float share = (float)(1.0 / (double)cuda_grid_pixels(&grid));
    BY_TYPE(type,
            BY_PACK(run_length(grid), const table by = table_of(grid, N);
                    const T *dy = static_cast<const T *>(gradient->dy);
                    const T *y = static_cast<const T *>(gradient->y);
                    const T *x = static_cast<const T *>(gradient->x);
                    BY_WALK(grid.planes, LAUNCH_BLOCKS((norm_backward<T, N, Walk>), slab_blocks(by),
                                                       slab_threads(by), stream, dy, y, x, *norm,
                                                       sums, share, static_cast<T *>(dx), by))));
}
