/*
 * kernels_sequence.cu - the ops of sequences: ids and embedding, layer-norm, GELU, positions, and
 * attention's work between its products. A row is a position of a sample (NHWC), or a query's
 * scores.
 *
 * Layer-norm and softmax give a row to ROW_LANES threads. They read the row several times, which
 * all but the first time lies in the cache.
 */
#include "kernel_columns.h"

enum { ROW_LANES = 32, ROWS_AT_ONCE = THREADS / ROW_LANES };

/* for (EACH_ROW(row, rows)): this thread's rows. All threads of a block take equally many turns,
 * so the row may lie behind the last. */
#define EACH_ROW(row, rows)                                         \
    index_t row = (index_t)blockIdx.x * ROWS_AT_ONCE + threadIdx.y; \
    row - threadIdx.y < (rows);                                     \
    row += (index_t)gridDim.x * ROWS_AT_ONCE

/* for (EACH_PACK(k, packs)): this thread's packs of its row. */
#define EACH_PACK(k, packs)   \
    uint32_t k = threadIdx.x; \
    k < (packs);              \
    k += ROW_LANES

#define LAUNCH_ROWS(kernel, rows, stream, ...)                                                \
    LAUNCH_BLOCKS(kernel, grid_of(rows, ROWS_AT_ONCE), dim3(ROW_LANES, ROWS_AT_ONCE), stream, \
                  __VA_ARGS__)

/* Joins the values of a row's threads, in their order, for each of them. All threads of the block
 * call this together. */
template <typename Join> static __device__ inline float join_row(float own, Join join)
{
    __shared__ float room[ROWS_AT_ONCE][ROW_LANES];
    room[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    float joined = room[threadIdx.y][0];
    UNROLLED
    for (int i = 1; i < ROW_LANES; i++)
        joined = join(joined, room[threadIdx.y][i]);
    __syncthreads();
    return joined;
}

static __device__ inline float sum_of_row(float own)
{
    return join_row(own, [](float a, float b) { return a + b; });
}

/* Of what is no number the sum knows. */
static __device__ inline float largest_of_row(float own)
{
    return join_row(own, [](float a, float b) { return b > a ? b : a; });
}

/* ----------------------------------------------------------------------------------------- ids */

__global__ void copy_ids(const int32_t *from, const uint32_t *numbers, uint32_t length, int32_t *to,
                         index_t n)
{
    for (EACH(k, n)) {
        const index_t sample = k / length;
        to[k] = from[(numbers ? numbers[sample] : sample) * length + k % length];
    }
}

void cuda_copy_ids(cudaStream_t stream, const int32_t *from, const uint32_t *numbers,
                   uint32_t length, int32_t *to, uint64_t n)
{
    LAUNCH(copy_ids, blocks_for(n), THREADS, stream, from, numbers, length, to, (index_t)n);
}

/* A thread counts the places before its own: n^2 comparisons, which for 65,536 ids is little beside
 * a network's products. Ids behind the last would be larger than all. */
__global__ void sort_ids(const int32_t *ids, uint32_t n, uint32_t *order)
{
    __shared__ int32_t some[THREADS];
    const uint32_t own = blockIdx.x * THREADS + threadIdx.x;
    const int32_t id = own < n ? ids[own] : INT32_MAX;
    uint32_t before = 0;
    for (uint32_t begin = 0; begin < n; begin += THREADS) {
        const uint32_t count = n - begin < THREADS ? n - begin : (uint32_t)THREADS;
        if (threadIdx.x < count)
            some[threadIdx.x] = ids[begin + threadIdx.x];
        __syncthreads();
        for (uint32_t i = 0; i < count; i++)
            before += some[i] < id || (some[i] == id && begin + i < own);
        __syncthreads();
    }
    if (own < n)
        order[before] = own;
}

void cuda_sort_ids(cudaStream_t stream, const int32_t *ids, uint32_t n, uint32_t *order)
{
    LAUNCH_BLOCKS(sort_ids, dim3((n + THREADS - 1) / THREADS), THREADS, stream, ids, n, order);
}

/* ----------------------------------------------------------------------------------- embedding */

template <typename T, int N, typename I>
__global__ void embed(const int32_t *ids, const float *weights, T *y, divisor packs, I n)
{
    for (EACH_OF(I, k, n)) {
        I row = k;
        const uint32_t column = part(&row, packs);
        const pack<float, N> from =
            load_pack<float, N>(weights, (index_t)ids[row] * packs.by + column);
        pack<T, N> values;
        UNROLLED
        for (int i = 0; i < N; i++)
            values.at[i] = from_fp32<T>(from.at[i]);
        store_pack(y, k, values);
    }
}

void cuda_embed(cudaStream_t stream, enum cuda_type type, const int32_t *ids, const float *weights,
                void *y, uint64_t rows, uint32_t channels)
{
    BY_TYPE(type,
            BY_PACK(channels, const index_t n = rows * channels / N; BY_INDEX(
                        n, LAUNCH((embed<T, N, I>), blocks_for(n), THREADS, stream, ids, weights,
                                  static_cast<T *>(y), cuda_divisor(channels / N), (I)n))));
}

/* A block for each place in the order, and for the columns of ROW_LANES packs. Only the first place
 * of an id has work: all of the id's rows, which its threads' lines take by turns. */
template <typename T, int N>
__global__ void embed_backward(const int32_t *ids, const uint32_t *order, uint32_t n, const T *dy,
                               float *to, uint32_t packs, bool adds)
{
    __shared__ double room[N][THREADS];
    const uint32_t place = blockIdx.x, column = blockIdx.y * ROW_LANES + threadIdx.x;
    const int32_t id = ids[order[place]];
    if (place > 0 && ids[order[place - 1]] == id)
        return;
    const uint32_t thread = threadIdx.y * ROW_LANES + threadIdx.x;
    double sums[N] = {};
    for (uint32_t at = place + threadIdx.y; column < packs && at < n && ids[order[at]] == id;) {
        float some[N] = {};
        for (int k = 0; k < CHUNK && at < n && ids[order[at]] == id; k++, at += ROWS_AT_ONCE) {
            const pack<T, N> values = load_pack<T, N>(dy, (index_t)order[at] * packs + column);
            UNROLLED
            for (int i = 0; i < N; i++)
                some[i] += to_fp32(values.at[i]);
        }
        UNROLLED
        for (int i = 0; i < N; i++)
            sums[i] += (double)some[i];
    }
    UNROLLED
    for (int i = 0; i < N; i++)
        room[i][thread] = sums[i];
    add_lines<N>(room, {ROW_LANES, ROWS_AT_ONCE, threadIdx.y, thread});
    for (int i = 0; threadIdx.y == 0 && column < packs && i < N; i++) {
        float *const one = to + ((index_t)id * packs + column) * N + i;
        *one = (float)(room[i][thread] + (adds ? (double)*one : 0.0));
    }
}

void cuda_embed_backward(cudaStream_t stream, enum cuda_type type, const int32_t *ids,
                         const uint32_t *order, uint32_t n, const void *dy, float *to,
                         uint32_t channels, bool adds)
{
    BY_TYPE(type, BY_PACK(channels, const uint32_t packs = channels / N;
                          const dim3 blocks(n, (packs + ROW_LANES - 1) / ROW_LANES); LAUNCH_BLOCKS(
                              (embed_backward<T, N>), blocks, dim3(ROW_LANES, ROWS_AT_ONCE), stream,
                              ids, order, n, static_cast<const T *>(dy), to, packs, adds)));
}

/* ---------------------------------------------------------------------------------- layer-norm */

template <typename T, int N>
__global__ void layer_norm(const T *x, row_norm by, T *y, uint32_t packs, index_t rows)
{
    const float c = (float)by.channels;
    for (EACH_ROW(row, rows)) {
        const uint32_t here = row < rows ? packs : 0;
        const index_t first = row * packs;
        float sum = 0.0f, squares = 0.0f;
        for (EACH_PACK(k, here)) {
            const pack<T, N> in = load_pack<T, N>(x, first + k);
            UNROLLED
            for (int i = 0; i < N; i++)
                sum += to_fp32(in.at[i]);
        }
        const float mean = sum_of_row(sum) / c;
        for (EACH_PACK(k, here)) {
            const pack<T, N> in = load_pack<T, N>(x, first + k);
            UNROLLED
            for (int i = 0; i < N; i++)
                squares += (to_fp32(in.at[i]) - mean) * (to_fp32(in.at[i]) - mean);
        }
        const float inverse = 1.0f / sqrtf(sum_of_row(squares) / c + by.epsilon);
        if (threadIdx.x == 0 && row < rows)
            by.moments[row] = {mean, inverse};
        for (EACH_PACK(k, here)) {
            const pack<float, N> gamma = load_pack<float, N>(by.gamma, k);
            const pack<float, N> beta = load_pack<float, N>(by.beta, k);
            pack<T, N> values = load_pack<T, N>(x, first + k);
            UNROLLED
            for (int i = 0; i < N; i++)
                values.at[i] = from_fp32<T>((to_fp32(values.at[i]) - mean) * inverse * gamma.at[i] +
                                            beta.at[i]);
            store_pack(y, first + k, values);
        }
    }
}

void cuda_layer_norm(cudaStream_t stream, enum cuda_type type, const void *x,
                     const struct row_norm *norm, void *y, uint64_t rows)
{
    BY_TYPE(type,
            BY_PACK(norm->channels,
                    LAUNCH_ROWS((layer_norm<T, N>), rows, stream, static_cast<const T *>(x), *norm,
                                static_cast<T *>(y), norm->channels / N, (index_t)rows)));
}

/* dx = inverse (g - mean(g) - x^ mean(g x^)), g = gamma dy. */
template <typename T, int N>
__global__ void layer_norm_backward(const T *dy, const T *x, row_norm by, T *dx, uint32_t packs,
                                    index_t rows)
{
    const float c = (float)by.channels;
    for (EACH_ROW(row, rows)) {
        const uint32_t here = row < rows ? packs : 0;
        const index_t first = row * packs;
        const row_moments moments = row < rows ? by.moments[row] : row_moments{0.0f, 0.0f};
        float sum = 0.0f, product = 0.0f;
        for (EACH_PACK(k, here)) {
            const pack<T, N> gradient = load_pack<T, N>(dy, first + k);
            const pack<T, N> in = load_pack<T, N>(x, first + k);
            const pack<float, N> gamma = load_pack<float, N>(by.gamma, k);
            UNROLLED
            for (int i = 0; i < N; i++) {
                const float g = to_fp32(gradient.at[i]) * gamma.at[i];
                sum += g;
                product += g * (to_fp32(in.at[i]) - moments.mean) * moments.inverse;
            }
        }
        sum = sum_of_row(sum) / c;
        product = sum_of_row(product) / c;
        for (EACH_PACK(k, here)) {
            const pack<T, N> in = load_pack<T, N>(x, first + k);
            const pack<float, N> gamma = load_pack<float, N>(by.gamma, k);
            pack<T, N> values = load_pack<T, N>(dy, first + k);
            UNROLLED
            for (int i = 0; i < N; i++) {
                const float normal = (to_fp32(in.at[i]) - moments.mean) * moments.inverse;
                const float g = to_fp32(values.at[i]) * gamma.at[i];
                values.at[i] = from_fp32<T>(moments.inverse * (g - sum - normal * product));
            }
            store_pack(dx, first + k, values);
        }
    }
}

void cuda_layer_norm_backward(cudaStream_t stream, enum cuda_type type, const void *dy,
                              const void *x, const struct row_norm *norm, void *dx, uint64_t rows)
{
    BY_TYPE(type, BY_PACK(norm->channels,
                          LAUNCH_ROWS((layer_norm_backward<T, N>), rows, stream,
                                      static_cast<const T *>(dy), static_cast<const T *>(x), *norm,
                                      static_cast<T *>(dx), norm->channels / N, (index_t)rows)));
}

/* Sums dy, and dy times the normalised x. */
template <typename T, int N> struct row_norm_terms {
    static constexpr int n_sums = 2, threads = THREADS, blocks = 3, at_once = SUMMED_ROWS;
    const T *dy, *x;
    const row_moments *moments;
    divisor columns;
    __device__ float origin(uint32_t, int) const
    {
        return 0.0f;
    }
    template <int ROWS, int CHANNELS>
    __device__ void add(const row_group<ROWS> &rows, channel_sums<2, CHANNELS> *sums) const
    {
        const row_packs<T, N, ROWS> gradient(dy, rows), in(x, rows);
        const row_moments *const from = moments + rows.first / columns.by;
        UNROLLED
        for (int r = 0; r < ROWS; r++) {
            const row_moments by = from[cuda_quotient(rows.place[r], columns)];
            UNROLLED
            for (int i = 0; i < N; i++) {
                const float value = rows.has(r) ? to_fp32(gradient.row[r].at[i]) : 0.0f;
                sums->of[0][i] += value;
                sums->of[1][i] += value * (to_fp32(in.row[r].at[i]) - by.mean) * by.inverse;
            }
        }
    }
};

struct row_norm_finish {
    float *gamma, *beta;
    __device__ void operator()(uint32_t channel, const double (&sums)[2]) const
    {
        beta[channel] = (float)sums[0];
        gamma[channel] = (float)sums[1];
    }
};

void cuda_layer_norm_weights(cudaStream_t stream, enum cuda_type type, const void *dy,
                             const void *x, const struct row_moments *moments, struct grid grid,
                             struct sum_room room, float *gamma, float *beta)
{
    const row_norm_finish finish = {gamma, beta};
    BY_TYPE(type,
            BY_PACK(grid.c, const row_norm_terms<T, N> terms = {static_cast<const T *>(dy),
                                                                static_cast<const T *>(x), moments,
                                                                cuda_divisor(grid.c / N)};
                    sum_by<T, N, pixel_walk>(stream, terms, finish, grid, room)));
}

/* ---------------------------------------------------------------------------------------- GELU */

/* sqrt(2 / pi), the factor of x^3 within the tangent, and sqrt(1 / 2). */
#define GELU_SCALE 0.79788456080286535588f
#define GELU_CUBE 0.044715f
#define ROOT_OF_HALF 0.70710678118654752440f

/* y = x (1 + g(x)) / 2. */
static __device__ inline float gelu_g(float x, bool tanh)
{
    return tanh ? tanhf(GELU_SCALE * (x + GELU_CUBE * x * x * x)) : erff(x * ROOT_OF_HALF);
}

/* Of g, at x. */
static __device__ inline float gelu_slope(float x, float g, bool tanh)
{
    return tanh ? (1.0f - g * g) * GELU_SCALE * (1.0f + 3.0f * GELU_CUBE * x * x)
                : GELU_SCALE * expf(-0.5f * x * x);
}

template <typename T, int N> __global__ void gelu(const T *x, bool tanh, T *y, index_t n)
{
    for (EACH(k, n)) {
        pack<T, N> values = load_pack<T, N>(x, k);
        UNROLLED
        for (int i = 0; i < N; i++) {
            const float in = to_fp32(values.at[i]);
            values.at[i] = from_fp32<T>(0.5f * in * (1.0f + gelu_g(in, tanh)));
        }
        store_pack(y, k, values);
    }
}

void cuda_gelu(cudaStream_t stream, enum cuda_type type, const void *x, bool tanh, void *y,
               uint64_t n)
{
    BY_TYPE(type, BY_PACK(n, LAUNCH((gelu<T, N>), blocks_for(n / N), THREADS, stream,
                                    static_cast<const T *>(x), tanh, static_cast<T *>(y), n / N)));
}

template <typename T, int N>
__global__ void gelu_backward(const T *dy, const T *x, bool tanh, T *dx, index_t n)
{
    for (EACH(k, n)) {
        const pack<T, N> inputs = load_pack<T, N>(x, k);
        pack<T, N> values = load_pack<T, N>(dy, k);
        UNROLLED
        for (int i = 0; i < N; i++) {
            const float in = to_fp32(inputs.at[i]), g = gelu_g(in, tanh);
            values.at[i] = from_fp32<T>(0.5f * to_fp32(values.at[i]) *
                                        (1.0f + g + in * gelu_slope(in, g, tanh)));
        }
        store_pack(dx, k, values);
    }
}

void cuda_gelu_backward(cudaStream_t stream, enum cuda_type type, const void *dy, const void *x,
                        bool tanh, void *dx, uint64_t n)
{
    BY_TYPE(type, BY_PACK(n, LAUNCH((gelu_backward<T, N>), blocks_for(n / N), THREADS, stream,
                                    static_cast<const T *>(dy), static_cast<const T *>(x), tanh,
                                    static_cast<T *>(dx), n / N)));
}

/* -------------------------------------------------------------------------- positions, prepend */

template <typename T, int N, typename I>
__global__ void add_rows(const T *x, const float *weights, T *y, divisor packs, uint32_t stride,
                         I n)
{
    for (EACH_OF(I, k, n)) {
        I sample = k;
        const uint32_t column = part(&sample, packs);
        const pack<float, N> add = load_pack<float, N>(weights, column);
        pack<T, N> values = {};
        if (x)
            values = load_pack<T, N>(x, k);
        UNROLLED
        for (int i = 0; i < N; i++)
            values.at[i] = from_fp32<T>((x ? to_fp32(values.at[i]) : 0.0f) + add.at[i]);
        store_pack(y, sample * stride + column, values);
    }
}

void cuda_add_rows(cudaStream_t stream, enum cuda_type type, const void *x, const float *weights,
                   void *y, const struct sample_rows *rows)
{
    BY_TYPE(type,
            BY_PACK(rows->n | rows->stride, const index_t n = (index_t)rows->samples * rows->n / N;
                    BY_INDEX((index_t)rows->samples * rows->stride,
                             LAUNCH((add_rows<T, N, I>), blocks_for(n), THREADS, stream,
                                    static_cast<const T *>(x), weights, static_cast<T *>(y),
                                    cuda_divisor(rows->n / N), rows->stride / N, (I)n))));
}

template <typename T, int N>
__global__ void sum_samples(const T *x, float *to, uint32_t samples, uint32_t stride, index_t n)
{
    for (EACH(k, n)) {
        double sums[N] = {};
        for (uint32_t begin = 0; begin < samples; begin += CHUNK) {
            float some[N] = {};
            for (uint32_t i = begin; i < samples && i < begin + CHUNK; i++) {
                const pack<T, N> values = load_pack<T, N>(x, (index_t)i * stride + k);
                UNROLLED
                for (int j = 0; j < N; j++)
                    some[j] += to_fp32(values.at[j]);
            }
            UNROLLED
            for (int j = 0; j < N; j++)
                sums[j] += (double)some[j];
        }
        pack<float, N> rounded;
        UNROLLED
        for (int j = 0; j < N; j++)
            rounded.at[j] = (float)sums[j];
        store_pack(to, k, rounded);
    }
}

void cuda_sum_samples(cudaStream_t stream, enum cuda_type type, const void *x, float *to,
                      const struct sample_rows *rows)
{
    BY_TYPE(type, BY_PACK(rows->n | rows->stride,
                          LAUNCH((sum_samples<T, N>), blocks_for(rows->n / N), THREADS, stream,
                                 static_cast<const T *>(x), to, rows->samples, rows->stride / N,
                                 (index_t)(rows->n / N))));
}

/* ----------------------------------------------------------------------------------- attention */

struct head_places {
    divisor width, length, heads, samples; /* width: packs */
    uint32_t parts;
};

/* Copies packs between rows and heads; k counts the heads' packs. JOINS: to rows. */
template <typename From, typename To, int N, bool JOINS, typename I>
__global__ void move_heads(head_places by, const From *from, To *to, I n)
{
    for (EACH_OF(I, k, n)) {
        I rest = k;
        const uint32_t column = part(&rest, by.width), position = part(&rest, by.length);
        const uint32_t head = part(&rest, by.heads), sample = part(&rest, by.samples);
        const I row = ((I)sample * by.length.by + position) * by.parts + rest;
        const I there = (row * by.heads.by + head) * by.width.by + column;
        const pack<From, N> values = load_pack<From, N>(from, JOINS ? k : there);
        pack<To, N> converted;
        UNROLLED
        for (int i = 0; i < N; i++)
            converted.at[i] = from_fp32<To>(to_fp32(values.at[i]));
        store_pack(to, JOINS ? there : k, converted);
    }
}

template <typename From, typename To, int N, bool JOINS>
static void move_by(cudaStream_t stream, const heads &by, uint32_t parts, const void *from,
                    void *to)
{
    const head_places places = {cuda_divisor(by.width / N), cuda_divisor(by.length),
                                cuda_divisor(by.heads), cuda_divisor(by.samples), parts};
    const index_t n = (index_t)parts * by.samples * by.heads * by.length * (by.width / N);
    BY_INDEX(n, LAUNCH((move_heads<From, To, N, JOINS, I>), blocks_for(n), THREADS, stream, places,
                       static_cast<const From *>(from), static_cast<To *>(to), (I)n));
}

void cuda_split_heads(cudaStream_t stream, enum cuda_type type, const struct heads *heads,
                      uint32_t parts, const void *from, void *to)
{
    BY_TYPE(type, constexpr int N = PACK_BYTES / sizeof(T);
            move_by<T, T, N, false>(stream, *heads, parts, from, to));
}

void cuda_join_heads(cudaStream_t stream, enum cuda_type type, const struct heads *heads,
                     uint32_t parts, const float *from, void *to)
{
    BY_TYPE(type, constexpr int N = PACK_BYTES / sizeof(T);
            move_by<float, T, N, true>(stream, *heads, parts, from, to));
}

/* A row of scores: how many keys its query sees, and its place among all queries. */
static __device__ inline uint32_t seen_of(const score_block &by, index_t row)
{
    return by.causal ? by.first + (uint32_t)(row % by.queries) + 1 : by.keys;
}

static __device__ inline index_t query_of(const score_block &by, index_t row)
{
    return row / by.queries * by.length + by.first + row % by.queries;
}

template <typename T, int N>
__global__ void softmax(score_block by, const float *scores, T *p, uint32_t packs, index_t rows)
{
    for (EACH_ROW(row, rows)) {
        const uint32_t here = row < rows ? packs : 0, seen = seen_of(by, row);
        const index_t first = row * (by.wide / N);
        float largest = -INFINITY, sum = 0.0f;
        for (EACH_PACK(k, here)) {
            const pack<float, N> values = load_pack<float, N>(scores, first + k);
            UNROLLED
            for (int i = 0; i < N; i++)
                largest = k * N + i < seen && values.at[i] > largest ? values.at[i] : largest;
        }
        largest = largest_of_row(largest);
        for (EACH_PACK(k, here)) {
            const pack<float, N> values = load_pack<float, N>(scores, first + k);
            UNROLLED
            for (int i = 0; i < N; i++)
                sum += k * N + i < seen ? expf((values.at[i] - largest) * by.scale) : 0.0f;
        }
        sum = sum_of_row(sum);
        const float inverse = 1.0f / sum;
        if (threadIdx.x == 0 && row < rows)
            by.log_sum[query_of(by, row)] = largest * by.scale + logf(sum);
        for (EACH_PACK(k, here)) {
            const pack<float, N> values = load_pack<float, N>(scores, first + k);
            pack<T, N> to;
            UNROLLED
            for (int i = 0; i < N; i++)
                to.at[i] = from_fp32<T>(
                    k * N + i < seen ? expf((values.at[i] - largest) * by.scale) * inverse : 0.0f);
            store_pack(p, first + k, to);
        }
    }
}

void cuda_softmax(cudaStream_t stream, enum cuda_type type, const struct score_block *block,
                  const float *scores, void *p)
{
    const index_t rows = (index_t)block->heads * block->queries;
    BY_TYPE(type, constexpr int N = PACK_BYTES / sizeof(T);
            LAUNCH_ROWS((softmax<T, N>), rows, stream, *block, scores, static_cast<T *>(p),
                        (block->keys + N - 1) / N, rows));
}

/* Rounding may make a score exceed the logarithm of the sum. */
static __device__ inline float probability(const score_block &by, float score, float log_sum)
{
    const float below = score * by.scale - log_sum;
    return expf(below > 0.0f ? 0.0f : below);
}

/* ds = scale p (dp - sum of p dp). */
template <typename T, int N>
__global__ void softmax_backward(score_block by, const float *scores, const float *dp, T *p, T *ds,
                                 uint32_t packs, index_t rows)
{
    for (EACH_ROW(row, rows)) {
        const uint32_t here = row < rows ? packs : 0, seen = seen_of(by, row);
        const index_t first = row * (by.wide / N);
        const float log_sum = row < rows ? by.log_sum[query_of(by, row)] : 0.0f;
        float d = 0.0f;
        for (EACH_PACK(k, here)) {
            const pack<float, N> values = load_pack<float, N>(scores, first + k);
            const pack<float, N> gradient = load_pack<float, N>(dp, first + k);
            UNROLLED
            for (int i = 0; i < N; i++)
                d += k * N + i < seen ? probability(by, values.at[i], log_sum) * gradient.at[i]
                                      : 0.0f;
        }
        d = sum_of_row(d);
        for (EACH_PACK(k, here)) {
            const pack<float, N> values = load_pack<float, N>(scores, first + k);
            const pack<float, N> gradient = load_pack<float, N>(dp, first + k);
            pack<T, N> to_p, to_ds;
            UNROLLED
            for (int i = 0; i < N; i++) {
                const bool is_seen = k * N + i < seen;
                const float one = is_seen ? probability(by, values.at[i], log_sum) : 0.0f;
                to_p.at[i] = from_fp32<T>(one);
                to_ds.at[i] = from_fp32<T>(is_seen ? one * (gradient.at[i] - d) * by.scale : 0.0f);
            }
            store_pack(p, first + k, to_p);
            store_pack(ds, first + k, to_ds);
        }
    }
}

void cuda_softmax_backward(cudaStream_t stream, enum cuda_type type,
                           const struct score_block *block, const float *scores, const float *dp,
                           void *p, void *ds)
{
    const index_t rows = (index_t)block->heads * block->queries;
    BY_TYPE(type, constexpr int N = PACK_BYTES / sizeof(T); LAUNCH_ROWS(
                (softmax_backward<T, N>), rows, stream, *block, scores, dp, static_cast<T *>(p),
                static_cast<T *>(ds), (block->keys + N - 1) / N, rows));
}
