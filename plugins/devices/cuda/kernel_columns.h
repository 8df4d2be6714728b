/*
 * kernel_columns.h - passes over the columns of a grid, for kernels (kernel.h).
 *
 * A pass goes over a tensor in packs of N elements. A column is N neighbouring channels of NHWC, or
 * one channel of NCHW; its rows are all of its packs. A thread stays in one column, so it loads the
 * channels' values once. The thread reads several rows before it computes with the first: a GPU's
 * memory reaches its rate only with many reads under way at once.
 *
 * A sum is made in one launch. Each block adds a slab of rows: a thread adds CHUNK values in fp32,
 * and the chunks in fp64. The last of the blocks with the same columns adds their slabs and
 * finishes the channels. The order of the additions is the same, whichever block is last.
 */
#ifndef DPB_CUDA_KERNEL_COLUMNS_H
#define DPB_CUDA_KERNEL_COLUMNS_H

#include "kernel.h"

enum { CHUNK = 32 };
/* A pass without a sum has as many blocks as run at once, or up to WAVES times as many, of at least
 * 128 rows of NHWC. */
enum { WAVES = 4, LEAST_ROWS = 4 /* of a thread */ };
/* A sum has about as many blocks as a GPU runs at once: Terms::blocks on each multiprocessor. One
 * block reads the slabs of all others with its columns. */
enum { MULTIPROCESSORS = 128, MOST_SUM_BLOCKS = 4 * MULTIPROCESSORS };
enum { MOST_SUMS = 3 /* of a channel, in one pass */ };
/* The most packs of a slab, with the packs of other channels between: a thread counts them in 32
 * bits. */
static const index_t MOST_PACKS = (index_t)1 << 31;
/* The most columns of a block: columns of packs fill a cache line, columns of elements a warp. */
enum { LANES = 8, LANES_OF_ELEMENTS = 32 };
/* Rows of each tensor that a thread reads at once; when normalising, packs of all tensors. */
enum { SUMMED_ROWS = 4, NORMALISED_PACKS = 4, BACKWARD_ROWS = 4 };
enum { POOLED_ROWS = 2 /* of a gradient by a max pool's input */ };

/* A grid, cut for a pass. */
struct table {
    uint32_t columns, lanes; /* lanes: the columns of a block, a power of two */
    index_t rows, slab;      /* of a column; of a block */
    uint32_t run;            /* NCHW: rows of a channel in one sample */
    uint32_t slabs;
    /* This block's first row, and the number of rows from this thread's first one on. */
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

/* For at most `blocks` blocks, whose threads have at least `thread_rows` rows each. */
static table table_of(const grid &shape, uint32_t n_in_pack, uint32_t blocks, uint32_t thread_rows)
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
    made.slab = cuda_slab_rows(made.rows, groups, blocks, THREADS / made.lanes * thread_rows);
    while (made.slab > 1 && made.slab * made.columns > MOST_PACKS)
        made.slab = (made.slab + 1) / 2;
    made.slabs = (uint32_t)((made.rows + made.slab - 1) / made.slab);
    return made;
}

/* Walks over the packs of a column in a block's slab, `step` rows at a time: for NHWC, and for
 * NCHW. `pack` counts from the slab's first pack, so that 32 bits suffice. */
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

/* The next rows of a walk. The first row stands in for rows behind the last, so that all are read
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
    /* Adds as cuda_sum adds two parts. */
    __device__ void add(const row_packs &more)
    {
        UNROLLED
        for (int r = 0; r < ROWS; r++) {
            UNROLLED
            for (int i = 0; i < N; i++)
                row[r].at[i] = from_fp32<T>(to_fp32(row[r].at[i]) + to_fp32(more.row[r].at[i]));
        }
    }
};

/* Which elements of a group of rows count: a bit each, in one register. */
template <typename T, int N, int ROWS> struct row_mask {
    uint32_t bits;
    static_assert(N * ROWS <= 32, "a bit for each element");
    /* mask: a byte for each pack; NULL: all. */
    __device__ row_mask(const uint8_t *mask, const row_group<ROWS> &rows) : bits(0)
    {
        uint32_t row[ROWS];
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            row[r] = mask ? mask[rows.first + rows.place[r]] : (1u << N) - 1;
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            bits |= rows.has(r) ? row[r] << (r * N) : 0;
        asm volatile("" ::: "memory"); /* the bytes leave their registers before packs are read */
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

/* A block's threads as n lines of `wide` threads each, and this thread's place. */
struct lines {
    uint32_t wide, n, line, at;
};

/* Adds up the lines, S values of each thread; the first line has the results. */
template <int S, typename Values>
static __device__ inline void add_lines(Values &values, const lines &by)
{
    for (uint32_t n = by.n / 2; n > 0; n /= 2) {
        __syncthreads();
        if (by.line < n) {
            UNROLLED
            for (int s = 0; s < S; s++)
                values[s][by.at] += values[s][by.at + n * by.wide];
        }
    }
}

/* A thread's S sums of each of its channels. All but the first have an origin. The origins, as the
 * slab's begin, stay in shared memory: reads under way take the registers. */
template <int S, int CHANNELS> struct channel_sums {
    const volatile float *origins;
    float of[S][CHANNELS];
    __device__ float origin(int channel, int s) const
    {
        return origins[((s - 1) * CHANNELS + channel) * LANES_OF_ELEMENTS];
    }
};

/* Returns whether this block is the last one with these columns. If so, it sees all their slabs. */
static __device__ inline bool is_last(uint32_t *tickets, uint32_t slabs)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0)
        last = atomicInc(&tickets[blockIdx.x], slabs - 1) == slabs - 1;
    __syncthreads();
    __threadfence();
    return last;
}

/* The block's first line stores its sums. */
template <int S, int CHANNELS, int BLOCK>
static __device__ inline void keep_slab(const double (&sums)[S * CHANNELS][BLOCK], uint32_t column,
                                        const table &by, double *partial)
{
    const uint32_t c = by.columns * CHANNELS;
    double *const to = partial + (index_t)blockIdx.y * S * c + column * CHANNELS;
    for (int i = 0; i < CHANNELS; i++) {
        for (int s = 0; s < S; s++)
            to[s * c + i] = sums[s * CHANNELS + i][threadIdx.x];
    }
}

/* For the last block of these columns: adds all slabs in their order. */
template <int S, int CHANNELS, int BLOCK, typename Finish>
static __device__ inline void finish_columns(const Finish &finish,
                                             double (&sums)[S * CHANNELS][BLOCK], const table &by,
                                             const double *partial)
{
    const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x, c = by.columns * CHANNELS;
    const uint32_t wide = by.lanes * CHANNELS;
    const lines all = {wide, BLOCK / wide, thread / wide, thread};
    const uint32_t channel = blockIdx.x * wide + (thread & (wide - 1));
    double total[S] = {};
    UNROLLED
    for (uint32_t slab = all.line; slab < by.slabs && channel < c; slab += all.n) {
        UNROLLED
        for (int s = 0; s < S; s++)
            total[s] += __ldcg(partial + ((index_t)slab * S + s) * c + channel);
    }
    UNROLLED
    for (int s = 0; s < S; s++)
        sums[s][thread] = total[s];
    add_lines<S>(sums, all);
    if (all.line > 0 || channel >= c)
        return;
    UNROLLED
    for (int s = 0; s < S; s++)
        total[s] = sums[s][thread];
    finish(channel, total);
}

/* Terms::add adds the Terms::n_sums terms of each element of a group of Terms::at_once rows;
 * Finish::operator()(channel, sums) takes a channel's sums. A block has Terms::threads threads, so
 * that its sums fit into 48 KiB of shared memory. */
template <typename T, int N, typename Walk, typename Terms, typename Finish>
KERNEL_OF(Terms::blocks)
void sum_slabs(Terms terms, Finish finish, table by, sum_room room)
{
    constexpr int CHANNELS = Walk::planes ? 1 : N, ROWS_IN_FP32 = CHUNK * CHANNELS / N;
    constexpr int S = Terms::n_sums, BLOCK = Terms::threads;
    __shared__ double sums[S * CHANNELS][BLOCK];
    __shared__ float origins[(S - 1) * CHANNELS][LANES_OF_ELEMENTS];
    __shared__ index_t first;
    const volatile index_t *const begin = &first;
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
    UNROLLED
    for (int s = 0; s < S * CHANNELS; s++)
        sums[s][thread] = 0.0;
    UNROLLED
    for (int s = 1; s < S; s++) {
        for (int i = 0; i < CHANNELS && threadIdx.y == 0 && column < by.columns; i++)
            origins[(s - 1) * CHANNELS + i][threadIdx.x] = terms.origin(column * CHANNELS + i, s);
    }
    Walk at(by, column);
    if (thread == 0)
        first = at.first;
    __syncthreads();
    if (column < by.columns) {
        ROLLED
        while (at.left > 0) {
            channel_sums<S, CHANNELS> chunk = {&origins[0][threadIdx.x], {}};
            ROLLED
            for (int k = 0; k < ROWS_IN_FP32 && at.left > 0; k += Terms::at_once)
                terms.add(row_group<Terms::at_once>(at, *begin), &chunk);
            UNROLLED
            for (int s = 0; s < S; s++) {
                UNROLLED
                for (int i = 0; i < CHANNELS; i++)
                    sums[s * CHANNELS + i][thread] += chunk.of[s][i];
            }
        }
    }
    add_lines<S * CHANNELS>(sums, {blockDim.x, blockDim.y, threadIdx.y, thread});
    if (threadIdx.y == 0 && column < by.columns)
        keep_slab<S, CHANNELS>(sums, column, by, room.partial);
    if (is_last(room.tickets, by.slabs))
        finish_columns<S, CHANNELS>(finish, sums, by, room.partial);
}

/* The most blocks of a pass without a sum. A failure shows when the kernel is launched. */
template <typename Kernel> static uint32_t pass_blocks(Kernel *kernel)
{
    int gpu = 0, multiprocessors = 1, blocks = 1;
    cudaGetDevice(&gpu);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, gpu);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void *>(kernel),
                                                  THREADS, 0);
    return (uint32_t)(WAVES * multiprocessors * blocks);
}

static dim3 slab_blocks(const table &by)
{
    return dim3((by.columns + by.lanes - 1) / by.lanes, by.slabs);
}

static dim3 slab_threads(const table &by, uint32_t threads = THREADS)
{
    return dim3(by.lanes, threads / by.lanes);
}

/* Does the rest with Walk as the walk of the layout. */
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

template <typename T, int N, typename Walk, typename Terms, typename Finish>
static void sum_by(cudaStream_t stream, const Terms &terms, const Finish &finish, const grid &shape,
                   const sum_room &room, int blocks = Terms::blocks)
{
    constexpr int PARTS = THREADS / Terms::threads; /* blocks in the room of a full one */
    static_assert(Terms::blocks * PARTS * MULTIPROCESSORS <= MOST_SUM_BLOCKS &&
                      Terms::n_sums <= MOST_SUMS,
                  "what partial has room for");
    const table by = table_of(shape, N, blocks * PARTS * MULTIPROCESSORS, CHUNK);
    LAUNCH_BLOCKS((sum_slabs<T, N, Walk, Terms, Finish>), slab_blocks(by),
                  slab_threads(by, Terms::threads), stream, terms, finish, by, room);
}

template <typename T, int N, typename Terms, typename Finish>
static void sum_columns(cudaStream_t stream, const Terms &terms, const Finish &finish,
                        const grid &shape, const sum_room &room)
{
    BY_WALK(shape.planes, sum_by<T, N, Walk>(stream, terms, finish, shape, room));
}

#endif
