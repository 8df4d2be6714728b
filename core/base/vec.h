/*
 * vec.h - arithmetic on ranges of host memory: dpb_vec_ops of host.h, and functions for core alone.
 */
#ifndef DPB_CORE_BASE_VEC_H
#define DPB_CORE_BASE_VEC_H

#include "dpbench/host.h"

extern const struct dpb_vec_ops dpb_vec;

bool dpb_vec_finite(dpb_dtype type, const void *x, uint64_t n);
/* A checksum of the bits and their order; equal arrays have equal checksums. */
uint64_t dpb_vec_checksum(dpb_dtype type, const void *x, uint64_t n);

/* The sum of the squares in float64, in the order of a binary tree over the elements: neighbours,
 * then pairs of neighbours, then fours, and so on. */
double dpb_vec_squares(dpb_dtype type, const void *x, uint64_t n);

/* A sum in that order, of sums of subtrees of equal height that come one after the other; the last
 * subtree may lack elements. Begins zeroed. */
struct dpb_vec_tree {
    double sums[64]; /* of the subtrees on the left, the largest first */
    uint64_t n;      /* subtrees added */
    uint32_t n_sums;
};
void dpb_vec_tree_add(struct dpb_vec_tree *tree, double sum);
double dpb_vec_tree_total(struct dpb_vec_tree *tree); /* the end of the sum */

#endif
