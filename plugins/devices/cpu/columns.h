/*
 * columns.h - an activation as a matrix: a row a pixel of a sample, a column a channel; and what
 * batch-norm and biases need of its columns.
 *
 * Columns are summed in fp32 over blocks of COLUMN_ROWS rows and in fp64 from there on. So the
 * error does not grow with the size of the image and the batch, which oneDNN's own batch-norm and
 * bias gradients cannot say (2e-4 where 1e-5 is allowed, at 112x112 pixels and 32 images). Work is
 * cut into chunks of rows by the matrix alone: results do not depend on the number of threads.
 */
#ifndef DPB_CPU_COLUMNS_H
#define DPB_CPU_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COLUMN_ROWS = 32,
    COLUMN_TILE = 128 /* channels at a time: a block stays in the L1 cache */
};

struct matrix {
    void *data; /* rows * columns, row by row */
    bool bf16;  /* else fp32 */
    size_t rows, columns;
};

/* Room for the partial sums of the functions below, in doubles. */
size_t cpu_column_partials(size_t rows, size_t columns);

/* mean[c] and biased variance[c]; room for columns doubles each. Ignores nothing, allocates
 * nothing. */
void cpu_column_moments(const struct matrix *x, double *partials, double *mean, double *variance);
/* sum[c] = sum of dy; where x is not NULL, product[c] = sum of dy * (x - mean[c]). */
void cpu_column_sums(const struct matrix *dy, const struct matrix *x, const float *mean,
                     double *partials, double *sum, double *product);
/* y = (x - mean[c]) * scale[c] + shift[c] */
void cpu_column_normalise(const struct matrix *x, const float *mean, const float *scale,
                          const float *shift, const struct matrix *y);
/* dx = scale[c] * (dy - offset[c] - (x - mean[c]) * slope[c]) */
void cpu_column_normalise_backward(const struct matrix *dy, const struct matrix *x,
                                   const float *mean, const float *scale, const float *offset,
                                   const float *slope, const struct matrix *dx);

#endif
