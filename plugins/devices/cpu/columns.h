/*
 * columns.h - activations as matrices: a row is a pixel of a sample, a column a channel.
 * Batch-norm, ReLU, the addition of a shortcut and biases work on these matrices, fused: in as few
 * passes over memory as the definitions allow.
 *
 * Columns are summed in fp32 over blocks of COLUMN_ROWS rows and in fp64 from there on. So the
 * error does not grow with image and batch. The error of oneDNN's own batch-norm and bias gradients
 * does: 2e-4 at 112x112 pixels and 32 images, where 1e-5 is allowed. The matrix alone decides how
 * rows are cut into chunks, so results do not depend on the number of threads.
 */
#ifndef DPB_CPU_COLUMNS_H
#define DPB_CPU_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COLUMN_ROWS = 32,
    COLUMN_TILE = 512 /* columns at a time: a block's data stay in the L1 cache */
};

/* Matrices of one call have the same rows, columns and type. */
struct matrix {
    void *data; /* rows * columns, row by row; NULL: there is none */
    bool bf16;  /* else fp32 */
    size_t rows, columns;
};

/* How columns are normalised. Each array has an element for each column. */
struct norm {
    float *mean, *scale, *shift; /* z = (x - mean) * scale + shift */
    float *offset, *slope;       /* dx = scale * (dz - offset - (x - mean) * slope) */
};

/* Where ReLU lets a gradient through: dz = dy, or 0. */
enum mask {
    MASK_NONE,   /* everywhere */
    MASK_OUTPUT, /* where its output y is positive */
    MASK_INPUT   /* where z is positive; z is computed again from x */
};

/* Room for the partial sums of the functions below, in doubles. */
size_t cpu_column_partials(size_t rows, size_t columns);

/* mean[c] and biased variance[c]; room for columns doubles each. near: room for columns floats. */
void cpu_column_moments(const struct matrix *x, float *near, double *partials, double *mean,
                        double *variance);

/* y = z, or z + residual if `residual` has data; then ReLU if `relu`. `by` normalises x to z. */
void cpu_column_normalise(const struct matrix *x, const struct matrix *residual, bool relu,
                          const struct norm *by, const struct matrix *y);

/* A gradient: the sum of one or two parts, with a ReLU's mask or without. */
struct gradient {
    struct matrix part[2]; /* the second may have no data */
    enum mask mask;
    struct matrix y;  /* for MASK_OUTPUT */
    struct matrix dz; /* written unless it has no data; may be a part */
};

/* sum[c] = sum of dz (as written: rounded to its type). If x has data, product[c] = sum of dz * (x
 * - mean[c]). Two parts, or MASK_OUTPUT, require a dz with data. */
void cpu_column_sums(const struct gradient *gradient, const struct matrix *x, const struct norm *by,
                     double *partials, double *sum, double *product);
/* Writes dx of struct norm. dz is dy with the mask MASK_NONE or MASK_INPUT. */
void cpu_column_normalise_backward(const struct matrix *dy, enum mask mask, const struct matrix *x,
                                   const struct norm *by, const struct matrix *dx);

#endif
