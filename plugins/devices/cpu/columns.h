/*
 * columns.h - activations as matrices (a row a pixel of a sample, a column a channel), and what
 * batch-norm, ReLU, the addition of a shortcut and biases do with them, fused: in as few passes
 * over memory as the definitions allow.
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
    COLUMN_TILE = 512 /* columns at a time: what a block works with stays in the L1 cache */
};

/* Matrices of one call have the same rows, columns and type. */
struct matrix {
    void *data; /* rows * columns, row by row; NULL: there is none */
    bool bf16;  /* else fp32 */
    size_t rows, columns;
};

/* What a column is normalised by; arrays of as many columns. */
struct norm {
    float *mean, *scale, *shift; /* z = (x - mean) * scale + shift */
    float *offset, *slope;       /* dx = scale * (dz - offset - (x - mean) * slope) */
};

/* Where ReLU lets a gradient through: dz = dy, or 0. */
enum mask {
    MASK_NONE,   /* everywhere */
    MASK_OUTPUT, /* where its output y is positive */
    MASK_INPUT   /* where z is, which is worked out again from x */
};

/* Room for the partial sums of the functions below, in doubles. */
size_t cpu_column_partials(size_t rows, size_t columns);

/* mean[c] and biased variance[c]; room for columns doubles each. near: room for columns floats. */
void cpu_column_moments(const struct matrix *x, float *near, double *partials, double *mean,
                        double *variance);

/* y = z, z + residual (unless it has no data), or either with ReLU; z by `by`. */
void cpu_column_normalise(const struct matrix *x, const struct matrix *residual, bool relu,
                          const struct norm *by, const struct matrix *y);

/* Where a gradient comes from: the sum of one or two parts, behind a ReLU or not. */
struct gradient {
    struct matrix part[2]; /* the second may have no data */
    enum mask mask;
    struct matrix y;  /* for MASK_OUTPUT */
    struct matrix dz; /* written unless it has no data; may be a part */
};

/* sum[c] = sum of dz (as written: rounded to its type); where x has data, product[c] = sum of
 * dz * (x - mean[c]). Two parts, or MASK_OUTPUT, need a dz to be written. */
void cpu_column_sums(const struct gradient *gradient, const struct matrix *x, const struct norm *by,
                     double *partials, double *sum, double *product);
/* dx of struct norm; dz = dy masked by MASK_NONE or MASK_INPUT. */
void cpu_column_normalise_backward(const struct matrix *dy, enum mask mask, const struct matrix *x,
                                   const struct norm *by, const struct matrix *dx);

#endif
