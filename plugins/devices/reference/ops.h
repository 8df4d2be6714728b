/*
 * ops.h - every op of graph.h, forward and backward, as a pure function on fp64 arrays in NCHW
 * order.
 *
 * Written so that a reader sees that an op is right: one loop a sum, nothing saved from forward for
 * backward (a maximum, a mask, a batch's mean are found again from the inputs). No state, no
 * allocation, no precision but fp64: a caller that wants results of fp32 rounds them.
 *
 * Each op exists a second time as its *magnitude*: the same inputs, the same sums, but the absolute
 * value of every term. The magnitude measures an op's rounding error: an op computed with unit
 * roundoff u is right if each element is within a small multiple of u * magnitude. Both come from
 * one source (magnitudes.c), so they cannot drift apart. Factors that an op computes from its
 * inputs (inverse standard deviations, LRN's denominators, the loss's probabilities) are taken as
 * given; attention's are not: device.h has their terms. If an op subtracts a mean, the mean's terms
 * count: |x| + mean |x|. For ops that only choose or copy
 * (relu, max pool, concat, dropout, shortcut) the magnitude is the result's.
 */
#ifndef DPB_REFERENCE_OPS_H
#define DPB_REFERENCE_OPS_H

#include "dpbench/data.h"
#include "dpbench/graph.h"

/* One call of a node on `n` samples. The caller owns all arrays, which do not overlap. */
struct ref_call {
    const struct dpb_node *node;
    uint32_t index; /* of the node in its graph */
    uint32_t n;
    bool training; /* as in struct dpb_pass */

    const struct dpb_shape *in; /* of each input */
    const double *const *x;     /* activation of each input */
    double *const *dx;          /* gradient by each input; NULL entries: not wanted */
    double *y;                  /* forward: the activation. The loss has one element a label */
    const double *dy;           /* backward: the gradient by y */

    const double *weight, *bias; /* NULL: the node has none */
    double *dweight, *dbias;
    size_t n_weights; /* elements of weight: of positions, which may have more rows than are used */

    /* Batch-norm: evaluation reads the first two, training writes the others (unbiased). */
    const double *running_mean, *running_variance;
    double *mean, *variance;

    const struct dpb_batch *batch; /* input: format and samples; loss: labels */

    uint64_t seed, step; /* dropout */
    uint32_t first_sample;
};

/* Writes y and, for batch-norm in training, mean and variance. */
void ref_forward(const struct ref_call *call);
/* ADDS to dx (nodes may share an input), ASSIGNS dweight and dbias. For training passes. */
void ref_backward(const struct ref_call *call);

/* The same with the sums of magnitudes in place of y, mean, variance; dx, dweight, dbias. */
void ref_forward_magnitude(const struct ref_call *call);
void ref_backward_magnitude(const struct ref_call *call);

#endif
