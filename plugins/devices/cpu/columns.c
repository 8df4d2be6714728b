/*
 * columns.c - see columns.h. Kernels take a few rows of a tile of columns; bf16 is widened and
 * rounded in registers. A matrix of few columns is folded first: several rows become one, so that
 * vectors are full and sums of different rows do not wait for one another.
 */
#include "columns.h"
#include "inner.h"

#include <assert.h>

#include "dpbench/types.h"

/* A block of rows and columns; elements are counted from the matrix's first. */
struct range {
    size_t row, rows, column, n, stride;
};

/* The operands of a kernel; arrays by column begin at the matrix's first column. */
struct work {
    struct matrix x, y, part[2], out; /* out: y forward, dz or dx backward */
    struct norm by;
};

/* -------------------------------------------------------------------------------------- kernels */

/* Sums of x - mean, a mean that is only near, and of its squares. */
INLINE void moments(const struct work *w, const struct range *range, float *restrict sum,
                    float *restrict squares, bool bf16)
{
    const void *x = w->x.data;
    const float *restrict mean = w->by.mean + range->column;
    const size_t n = range->n, stride = range->stride;
    size_t at = range->row * stride + range->column, r = 0;
    for (size_t c = 0; c < n; c++)
        sum[c] = squares[c] = 0.0f;
    for (; r + 4 <= range->rows; r += 4, at += 4 * stride) {
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            float a = get(x, at + c, bf16) - mean[c], b = get(x, at + stride + c, bf16) - mean[c];
            float d = get(x, at + 2 * stride + c, bf16) - mean[c];
            float e = get(x, at + 3 * stride + c, bf16) - mean[c];
            sum[c] += (a + b) + (d + e);
            squares[c] += (a * a + b * b) + (d * d + e * e);
        }
    }
    for (; r < range->rows; r++, at += stride) {
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            float a = get(x, at + c, bf16) - mean[c];
            sum[c] += a;
            squares[c] += a * a;
        }
    }
}

INLINE void normalise(const struct work *w, const struct range *range, bool bf16, bool residual,
                      bool relu)
{
    const void *x = w->x.data, *added = w->part[0].data;
    void *y = w->out.data;
    const float *restrict mean = w->by.mean + range->column;
    const float *restrict scale = w->by.scale + range->column;
    const float *restrict shift = w->by.shift + range->column;
    const size_t n = range->n;
    size_t at = range->row * range->stride + range->column;
    for (size_t r = 0; r < range->rows; r++, at += range->stride) {
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            float z = (get(x, at + c, bf16) - mean[c]) * scale[c] + shift[c];
            if (residual)
                z += get(added, at + c, bf16);
            if (relu)
                z = z < 0.0f ? 0.0f : z; /* NaN stays */
            put(y, at + c, z, bf16);
        }
    }
}

/* dz at element i of column c, d being x - mean there. */
INLINE float masked(const struct work *w, size_t i, float d, float scale, float shift, bool bf16,
                    int parts, enum mask mask)
{
    float dz = get(w->part[0].data, i, bf16);
    if (parts == 2)
        dz += get(w->part[1].data, i, bf16);
    if (mask == MASK_OUTPUT)
        dz = kept_if(get(w->y.data, i, bf16) > 0.0f, dz);
    if (mask == MASK_INPUT)
        dz = kept_if(d * scale + shift > 0.0f, dz);
    return dz;
}

INLINE void sums(const struct work *w, const struct range *range, float *restrict sum,
                 float *restrict product, bool bf16, bool with_x, int parts, enum mask mask,
                 bool write)
{
    const struct work by = *w;
    const float *restrict mean = with_x ? by.by.mean + range->column : NULL;
    const float *restrict scale = with_x ? by.by.scale + range->column : NULL;
    const float *restrict shift = with_x ? by.by.shift + range->column : NULL;
    const size_t n = range->n;
    size_t at = range->row * range->stride + range->column;
    for (size_t c = 0; c < n; c++)
        sum[c] = product[c] = 0.0f;
    for (size_t r = 0; r < range->rows; r++, at += range->stride) {
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            float d = with_x ? get(by.x.data, at + c, bf16) - mean[c] : 0.0f;
            float dz = masked(&by, at + c, d, mask == MASK_INPUT ? scale[c] : 0.0f,
                              mask == MASK_INPUT ? shift[c] : 0.0f, bf16, parts, mask);
            if (write)
                dz = put(by.out.data, at + c, dz, bf16);
            sum[c] += dz;
            if (with_x)
                product[c] += dz * d;
        }
    }
}

INLINE void normalise_backward(const struct work *w, const struct range *range, bool bf16,
                               enum mask mask)
{
    const struct work by = *w;
    const float *restrict mean = by.by.mean + range->column;
    const float *restrict scale = by.by.scale + range->column;
    const float *restrict shift = by.by.shift + range->column;
    const float *restrict offset = by.by.offset + range->column;
    const float *restrict slope = by.by.slope + range->column;
    const size_t n = range->n;
    size_t at = range->row * range->stride + range->column;
    for (size_t r = 0; r < range->rows; r++, at += range->stride) {
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            float d = get(by.x.data, at + c, bf16) - mean[c];
            float dz = masked(&by, at + c, d, scale[c], shift[c], bf16, 1, mask);
            put(by.out.data, at + c, scale[c] * (dz - offset[c] - d * slope[c]), bf16);
        }
    }
}

/* The types of the kernels, fp32 and bf16: sums by column, and maps of the elements. */
typedef void sums_kernel(const struct work *w, const struct range *range, float *first,
                         float *second);
typedef void map_kernel(const struct work *w, const struct range *range);

#define SUMS_KERNEL(name, body, ...)                                                       \
    KERNEL void name##_fp32(const struct work *w, const struct range *range, float *first, \
                            float *second)                                                 \
    {                                                                                      \
        body(w, range, first, second, false __VA_ARGS__);                                  \
    }                                                                                      \
    KERNEL void name##_bf16(const struct work *w, const struct range *range, float *first, \
                            float *second)                                                 \
    {                                                                                      \
        body(w, range, first, second, true __VA_ARGS__);                                   \
    }
#define MAP_KERNEL(name, body, ...)                                          \
    KERNEL void name##_fp32(const struct work *w, const struct range *range) \
    {                                                                        \
        body(w, range, false, __VA_ARGS__);                                  \
    }                                                                        \
    KERNEL void name##_bf16(const struct work *w, const struct range *range) \
    {                                                                        \
        body(w, range, true, __VA_ARGS__);                                   \
    }

SUMS_KERNEL(moments_kernel, moments, )
/* name: the sum, parts of dy, mask; kernels with two parts or the output's mask write dz. */
SUMS_KERNEL(sum_1, sums, , false, 1, MASK_NONE, false)
SUMS_KERNEL(sum_1_output, sums, , false, 1, MASK_OUTPUT, true)
SUMS_KERNEL(sum_2_output, sums, , false, 2, MASK_OUTPUT, true)
SUMS_KERNEL(product_1, sums, , true, 1, MASK_NONE, false)
SUMS_KERNEL(product_2, sums, , true, 2, MASK_NONE, true)
SUMS_KERNEL(product_1_input, sums, , true, 1, MASK_INPUT, false)
SUMS_KERNEL(product_2_input, sums, , true, 2, MASK_INPUT, true)
SUMS_KERNEL(product_1_output, sums, , true, 1, MASK_OUTPUT, true)
SUMS_KERNEL(product_2_output, sums, , true, 2, MASK_OUTPUT, true)

MAP_KERNEL(normalise_alone, normalise, false, false)
MAP_KERNEL(normalise_relu, normalise, false, true)
MAP_KERNEL(normalise_add, normalise, true, false)
MAP_KERNEL(normalise_add_relu, normalise, true, true)
MAP_KERNEL(backward_alone, normalise_backward, MASK_NONE)
MAP_KERNEL(backward_relu, normalise_backward, MASK_INPUT)

/* ---------------------------------------------------------------------------- blocks and chunks */

/* How many rows become one. */
static size_t fold_of(size_t rows, size_t columns)
{
    enum { WIDE = 128, MOST = 16 };
    size_t fold = 1;
    while (fold < MOST && 2 * fold * columns <= WIDE && rows % (2 * fold) == 0)
        fold *= 2;
    return fold;
}

/* Chunks are work for threads: enough of them, but not smaller than two blocks. */
static size_t chunk_rows(size_t rows)
{
    enum { CHUNKS = 128, LEAST = 2 * COLUMN_ROWS };
    size_t size = (rows + CHUNKS - 1) / CHUNKS;
    return larger(LEAST, rounded_up(size, COLUMN_ROWS));
}

/* A matrix cut into chunks, folded. */
struct cut {
    size_t rows, columns, fold, step, chunks;
};

static struct cut cut_of(size_t rows, size_t columns)
{
    size_t fold = fold_of(rows, columns), step = chunk_rows(rows / fold);
    return (struct cut){.rows = rows / fold,
                        .columns = columns * fold,
                        .fold = fold,
                        .step = step,
                        .chunks = (rows / fold + step - 1) / step};
}

size_t cpu_column_partials(size_t rows, size_t columns)
{
    const struct cut cut = cut_of(rows, columns);
    return cut.chunks * 2 * cut.columns;
}

/* Coefficients for folded columns: each as often as rows were folded. */
struct folded {
    float values[5][128];
};

static struct norm fold_norm(const struct norm *by, const struct cut *cut, struct folded *folded)
{
    const float *const from[5] = {by->mean, by->scale, by->shift, by->offset, by->slope};
    if (cut->fold == 1)
        return *by;
    for (int k = 0; k < 5; k++) {
        for (size_t c = 0; from[k] && c < cut->columns; c++)
            folded->values[k][c] = from[k][c % (cut->columns / cut->fold)];
    }
    return (struct norm){folded->values[0], folded->values[1], folded->values[2], folded->values[3],
                         folded->values[4]};
}

/* The first block of a chunk, or the one after: all tiles of some rows, then the next rows. */
static bool next_block(const struct cut *cut, size_t chunk, struct range *range)
{
    const size_t end = smaller((chunk + 1) * cut->step, cut->rows);
    if (range->n == 0)
        *range = (struct range){.row = chunk * cut->step, .stride = cut->columns};
    else if ((range->column += range->n) == cut->columns) {
        range->column = 0;
        range->row += range->rows;
    }
    if (range->row >= end)
        return false;
    range->rows = smaller(COLUMN_ROWS, end - range->row);
    range->n = smaller(COLUMN_TILE, cut->columns - range->column);
    return true;
}

static void map_chunks(const struct work *w, const struct cut *cut, map_kernel *kernel)
{
    const size_t chunks = cut->chunks;
#pragma omp parallel for
    for (size_t k = 0; k < chunks; k++) {
        for (struct range range = {0}; next_block(cut, k, &range);)
            kernel(w, &range);
    }
}

/* Blocks are summed in fp32, chunks and the whole in fp64. */
static void sum_chunks(const struct work *w, const struct cut *cut, sums_kernel *kernel,
                       double *partials, double *first, double *second)
{
    const size_t chunks = cut->chunks, columns = cut->columns, n = columns / cut->fold;
#pragma omp parallel for
    for (size_t k = 0; k < chunks; k++) {
        float block[2][COLUMN_TILE];
        double *sum = partials + 2 * k * columns, *other = sum + columns;
        for (size_t c = 0; c < columns; c++)
            sum[c] = other[c] = 0.0;
        for (struct range range = {0}; next_block(cut, k, &range);) {
            kernel(w, &range, block[0], block[1]);
#pragma omp simd
            for (size_t c = 0; c < range.n; c++) {
                sum[range.column + c] += (double)block[0][c];
                other[range.column + c] += (double)block[1][c];
            }
        }
    }
    for (size_t c = 0; c < n; c++)
        first[c] = second[c] = 0.0;
    for (size_t k = 0; k < chunks * cut->fold; k++) {
        const double *sum = partials + 2 * (k / cut->fold) * columns + k % cut->fold * n;
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            first[c] += sum[c];
            second[c] += sum[columns + c];
        }
    }
}

/* ------------------------------------------------------------------------------------ functions */

/* Means of some rows that are spread over the matrix: near enough to subtract before squaring. */
static void near_means(const struct matrix *x, float *mean)
{
    const size_t samples = smaller(COLUMN_ROWS, x->rows);
    for (size_t c = 0; c < x->columns; c++)
        mean[c] = 0.0f;
    for (size_t s = 0; s < samples; s++) {
        const size_t at = s * (x->rows / samples) * x->columns;
        for (size_t c = 0; c < x->columns; c++)
            mean[c] += get(x->data, at + c, x->bf16);
    }
    for (size_t c = 0; c < x->columns; c++)
        mean[c] /= (float)samples;
}

void cpu_column_moments(const struct matrix *x, float *near, double *partials, double *mean,
                        double *variance)
{
    const struct cut cut = cut_of(x->rows, x->columns);
    const struct norm by = {.mean = near};
    struct folded folded;
    near_means(x, near);
    const struct work w = {.x = *x, .by = fold_norm(&by, &cut, &folded)};
    sum_chunks(&w, &cut, x->bf16 ? moments_kernel_bf16 : moments_kernel_fp32, partials, mean,
               variance);
    for (size_t c = 0; c < x->columns; c++) {
        double distance = mean[c] / (double)x->rows; /* of the mean from the near one */
        double squares = variance[c] / (double)x->rows - distance * distance;
        mean[c] = (double)near[c] + distance;
        variance[c] = squares > 0.0 ? squares : 0.0;
    }
}

void cpu_column_normalise(const struct matrix *x, const struct matrix *residual, bool relu,
                          const struct norm *by, const struct matrix *y)
{
    map_kernel *const kernels[2][2][2] = {
        {{normalise_alone_fp32, normalise_alone_bf16}, {normalise_relu_fp32, normalise_relu_bf16}},
        {{normalise_add_fp32, normalise_add_bf16},
         {normalise_add_relu_fp32, normalise_add_relu_bf16}}};
    const struct cut cut = cut_of(x->rows, x->columns);
    struct folded folded;
    const struct work w = {
        .x = *x, .part = {*residual}, .out = *y, .by = fold_norm(by, &cut, &folded)};
    map_chunks(&w, &cut, kernels[residual->data != NULL][relu][x->bf16]);
}

void cpu_column_sums(const struct gradient *gradient, const struct matrix *x, const struct norm *by,
                     double *partials, double *sum, double *product)
{
    sums_kernel *const without_x[3][2][2] = {
        [MASK_NONE] = {{sum_1_fp32, sum_1_bf16}},
        [MASK_OUTPUT] = {{sum_1_output_fp32, sum_1_output_bf16},
                         {sum_2_output_fp32, sum_2_output_bf16}}};
    sums_kernel *const with_x[3][2][2] = {
        [MASK_NONE] = {{product_1_fp32, product_1_bf16}, {product_2_fp32, product_2_bf16}},
        [MASK_OUTPUT] = {{product_1_output_fp32, product_1_output_bf16},
                         {product_2_output_fp32, product_2_output_bf16}},
        [MASK_INPUT] = {{product_1_input_fp32, product_1_input_bf16},
                        {product_2_input_fp32, product_2_input_bf16}}};
    const struct matrix *dy = &gradient->part[0];
    const bool two = gradient->part[1].data != NULL;
    const struct cut cut = cut_of(dy->rows, dy->columns);
    struct folded folded;
    const struct work w = {.x = *x,
                           .y = gradient->y,
                           .part = {*dy, gradient->part[1]},
                           .out = gradient->dz,
                           .by = fold_norm(by, &cut, &folded)};
    sums_kernel *kernel = (x->data ? with_x : without_x)[gradient->mask][two][dy->bf16];
    assert(kernel);
    assert((gradient->dz.data != NULL) == (two || gradient->mask == MASK_OUTPUT));
    sum_chunks(&w, &cut, kernel, partials, sum, product);
}

void cpu_column_normalise_backward(const struct matrix *dy, enum mask mask, const struct matrix *x,
                                   const struct norm *by, const struct matrix *dx)
{
    map_kernel *const kernels[2][2] = {{backward_alone_fp32, backward_alone_bf16},
                                       {backward_relu_fp32, backward_relu_bf16}};
    const struct cut cut = cut_of(x->rows, x->columns);
    struct folded folded;
    const struct work w = {.x = *x, .part = {*dy}, .out = *dx, .by = fold_norm(by, &cut, &folded)};
    map_chunks(&w, &cut, kernels[mask == MASK_INPUT][x->bf16]);
}
