/*
 * columns.c - see columns.h. Kernels work on blocks of fp32 that lie in the L1 cache: a block of
 * bf16 is widened first, and narrowed when it has been written.
 */
#include "columns.h"

#include "dpbench/types.h"

/* Compiled for several instruction sets, chosen when the plugin is loaded. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define KERNEL
#endif

/* -------------------------------------------------------------------------------------- kernels */

KERNEL static void widen(size_t n, const uint16_t *from, float *to)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        to[i] = dpb_bf16_to_fp32(from[i]);
}

KERNEL static void narrow(size_t n, const float *from, uint16_t *to)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        to[i] = dpb_bf16_from_fp32(from[i]);
}

/* Rows of a block and the distance between them. */
struct block {
    float *data;
    size_t stride;
};

/* sum[c] and the sum of squared distances from the block's own mean. */
KERNEL static void block_moments(size_t rows, size_t n, struct block x, float *sum, float *squares)
{
    for (size_t c = 0; c < n; c++)
        sum[c] = squares[c] = 0.0f;
    for (size_t r = 0; r < rows; r++) {
        const float *row = x.data + r * x.stride;
#pragma omp simd
        for (size_t c = 0; c < n; c++)
            sum[c] += row[c];
    }
    float share = 1.0f / (float)rows;
    for (size_t r = 0; r < rows; r++) {
        const float *row = x.data + r * x.stride;
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            float distance = row[c] - sum[c] * share;
            squares[c] += distance * distance;
        }
    }
}

KERNEL static void block_sums(size_t rows, size_t n, struct block dy, float *sum)
{
    for (size_t c = 0; c < n; c++)
        sum[c] = 0.0f;
    for (size_t r = 0; r < rows; r++) {
        const float *row = dy.data + r * dy.stride;
#pragma omp simd
        for (size_t c = 0; c < n; c++)
            sum[c] += row[c];
    }
}

KERNEL static void block_products(size_t rows, size_t n, struct block dy, struct block x,
                                  const float *mean, float *product)
{
    for (size_t c = 0; c < n; c++)
        product[c] = 0.0f;
    for (size_t r = 0; r < rows; r++) {
        const float *dy_row = dy.data + r * dy.stride, *x_row = x.data + r * x.stride;
#pragma omp simd
        for (size_t c = 0; c < n; c++)
            product[c] += dy_row[c] * (x_row[c] - mean[c]);
    }
}

KERNEL static void block_normalise(size_t rows, size_t n, struct block x, const float *mean,
                                   const float *scale, const float *shift, struct block y)
{
    for (size_t r = 0; r < rows; r++) {
        const float *x_row = x.data + r * x.stride;
        float *y_row = y.data + r * y.stride;
#pragma omp simd
        for (size_t c = 0; c < n; c++)
            y_row[c] = (x_row[c] - mean[c]) * scale[c] + shift[c];
    }
}

/* The coefficients of a channel in cpu_column_normalise_backward(). */
struct backward {
    const float *mean, *scale, *offset, *slope;
};

KERNEL static void block_normalise_backward(size_t rows, size_t n, struct block dy, struct block x,
                                            const struct backward *by, struct block dx)
{
    const float *mean = by->mean, *scale = by->scale, *offset = by->offset, *slope = by->slope;
    for (size_t r = 0; r < rows; r++) {
        const float *dy_row = dy.data + r * dy.stride, *x_row = x.data + r * x.stride;
        float *dx_row = dx.data + r * dx.stride;
#pragma omp simd
        for (size_t c = 0; c < n; c++)
            dx_row[c] = scale[c] * (dy_row[c] - offset[c] - (x_row[c] - mean[c]) * slope[c]);
    }
}

/* ------------------------------------------------------------------------------ blocks and chunks
 */

/* A block of a matrix: `rows` rows from `row`, `n` columns from `column`. */
struct range {
    size_t row, rows, column, n;
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t element(const struct matrix *m, size_t row, size_t column)
{
    return row * m->columns + column;
}

/* The block as fp32: in place, or in `buffer`, filled when it is going to be read. */
static struct block open_block(const struct matrix *m, const struct range *range, float *buffer,
                               bool read)
{
    if (!m->bf16)
        return (struct block){(float *)m->data + element(m, range->row, range->column), m->columns};
    for (size_t r = 0; read && r < range->rows; r++)
        widen(range->n, (const uint16_t *)m->data + element(m, range->row + r, range->column),
              buffer + r * COLUMN_TILE);
    return (struct block){buffer, COLUMN_TILE};
}

/* Brings a block that has been written to where it belongs. */
static void close_block(const struct matrix *m, const struct range *range, struct block block)
{
    for (size_t r = 0; m->bf16 && r < range->rows; r++)
        narrow(range->n, block.data + r * block.stride,
               (uint16_t *)m->data + element(m, range->row + r, range->column));
}

/* The first block of a chunk's rows, or the one after: tile by tile, each from top to bottom. */
static bool next_block(const struct matrix *m, size_t begin, size_t end, struct range *range)
{
    if (range->rows == 0) {
        range->row = begin;
    } else {
        range->row += range->rows;
        if (range->row >= end) {
            range->row = begin;
            range->column += range->n;
        }
    }
    range->rows = smaller(COLUMN_ROWS, end - range->row);
    range->n = smaller(COLUMN_TILE, m->columns - range->column);
    return range->n > 0;
}

/* Chunks are work for threads: enough of them, but not smaller than two blocks. */
static size_t chunk_rows(size_t rows)
{
    enum { CHUNKS = 128, LEAST = 2 * COLUMN_ROWS };
    size_t size = (rows + CHUNKS - 1) / CHUNKS;
    size = (size + COLUMN_ROWS - 1) / COLUMN_ROWS * COLUMN_ROWS;
    return size > LEAST ? size : LEAST;
}

static size_t n_chunks(size_t rows)
{
    return (rows + chunk_rows(rows) - 1) / chunk_rows(rows);
}

size_t cpu_column_partials(size_t rows, size_t columns)
{
    return n_chunks(rows) * 2 * columns;
}

/* ------------------------------------------------------------------------------------- functions
 */

/* Adds a set of values to a larger one: counts, means, sums of squared distances from the mean.
 * Chan, Golub, LeVeque: Algorithms for computing the sample variance. Am. Statistician 37(3), 1983.
 */
static void merge(double count, double *mean, double *squares, double more, double more_mean,
                  double more_squares)
{
    double delta = more_mean - *mean, total = count + more;
    *mean += delta * more / total;
    *squares += more_squares + delta * delta * count * more / total;
}

static void chunk_moments(const struct matrix *x, size_t begin, size_t end, double *mean,
                          double *squares)
{
    float buffer[COLUMN_ROWS * COLUMN_TILE], sum[COLUMN_TILE], distances[COLUMN_TILE];
    for (size_t c = 0; c < x->columns; c++)
        mean[c] = squares[c] = 0.0;
    for (struct range range = {0}; next_block(x, begin, end, &range);) {
        block_moments(range.rows, range.n, open_block(x, &range, buffer, true), sum, distances);
        for (size_t c = 0; c < range.n; c++)
            merge((double)(range.row - begin), &mean[range.column + c], &squares[range.column + c],
                  (double)range.rows, (double)sum[c] / (double)range.rows, distances[c]);
    }
}

void cpu_column_moments(const struct matrix *x, double *partials, double *mean, double *variance)
{
    const size_t columns = x->columns, chunks = n_chunks(x->rows), step = chunk_rows(x->rows);
#pragma omp parallel for
    for (size_t k = 0; k < chunks; k++)
        chunk_moments(x, k * step, smaller((k + 1) * step, x->rows), partials + 2 * k * columns,
                      partials + (2 * k + 1) * columns);
#pragma omp parallel for
    for (size_t c = 0; c < columns; c++) {
        mean[c] = variance[c] = 0.0;
        for (size_t k = 0; k < chunks; k++)
            merge((double)(k * step), &mean[c], &variance[c],
                  (double)(smaller((k + 1) * step, x->rows) - k * step),
                  partials[2 * k * columns + c], partials[(2 * k + 1) * columns + c]);
        variance[c] /= (double)x->rows;
    }
}

static void chunk_sums(const struct matrix *dy, const struct matrix *x, const float *mean,
                       size_t begin, size_t end, double *sum, double *product)
{
    float dy_buffer[COLUMN_ROWS * COLUMN_TILE], x_buffer[COLUMN_ROWS * COLUMN_TILE];
    float block_sum[COLUMN_TILE], block_product[COLUMN_TILE];
    for (size_t c = 0; c < dy->columns; c++)
        sum[c] = product[c] = 0.0;
    for (struct range range = {0}; next_block(dy, begin, end, &range);) {
        struct block dy_block = open_block(dy, &range, dy_buffer, true);
        block_sums(range.rows, range.n, dy_block, block_sum);
        for (size_t c = 0; c < range.n; c++)
            sum[range.column + c] += block_sum[c];
        if (!x)
            continue;
        block_products(range.rows, range.n, dy_block, open_block(x, &range, x_buffer, true),
                       mean + range.column, block_product);
        for (size_t c = 0; c < range.n; c++)
            product[range.column + c] += block_product[c];
    }
}

void cpu_column_sums(const struct matrix *dy, const struct matrix *x, const float *mean,
                     double *partials, double *sum, double *product)
{
    const size_t columns = dy->columns, chunks = n_chunks(dy->rows), step = chunk_rows(dy->rows);
#pragma omp parallel for
    for (size_t k = 0; k < chunks; k++)
        chunk_sums(dy, x, mean, k * step, smaller((k + 1) * step, dy->rows),
                   partials + 2 * k * columns, partials + (2 * k + 1) * columns);
#pragma omp parallel for
    for (size_t c = 0; c < columns; c++) {
        double total = 0.0, total_product = 0.0;
        for (size_t k = 0; k < chunks; k++) {
            total += partials[2 * k * columns + c];
            total_product += partials[(2 * k + 1) * columns + c];
        }
        sum[c] = total;
        if (x)
            product[c] = total_product;
    }
}

void cpu_column_normalise(const struct matrix *x, const float *mean, const float *scale,
                          const float *shift, const struct matrix *y)
{
    const size_t chunks = n_chunks(x->rows), step = chunk_rows(x->rows);
#pragma omp parallel for
    for (size_t k = 0; k < chunks; k++) {
        float x_buffer[COLUMN_ROWS * COLUMN_TILE], y_buffer[COLUMN_ROWS * COLUMN_TILE];
        const size_t end = smaller((k + 1) * step, x->rows);
        for (struct range range = {0}; next_block(x, k * step, end, &range);) {
            const size_t c = range.column;
            struct block out = open_block(y, &range, y_buffer, false);
            block_normalise(range.rows, range.n, open_block(x, &range, x_buffer, true), mean + c,
                            scale + c, shift + c, out);
            close_block(y, &range, out);
        }
    }
}

void cpu_column_normalise_backward(const struct matrix *dy, const struct matrix *x,
                                   const float *mean, const float *scale, const float *offset,
                                   const float *slope, const struct matrix *dx)
{
    const size_t chunks = n_chunks(x->rows), step = chunk_rows(x->rows);
#pragma omp parallel for
    for (size_t k = 0; k < chunks; k++) {
        float dy_buffer[COLUMN_ROWS * COLUMN_TILE], x_buffer[COLUMN_ROWS * COLUMN_TILE];
        float dx_buffer[COLUMN_ROWS * COLUMN_TILE];
        const size_t end = smaller((k + 1) * step, x->rows);
        for (struct range range = {0}; next_block(x, k * step, end, &range);) {
            const size_t c = range.column;
            const struct backward by = {mean + c, scale + c, offset + c, slope + c};
            struct block out = open_block(dx, &range, dx_buffer, false);
            block_normalise_backward(range.rows, range.n, open_block(dy, &range, dy_buffer, true),
                                     open_block(x, &range, x_buffer, true), &by, out);
            close_block(dx, &range, out);
        }
    }
}
