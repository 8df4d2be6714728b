/*
 * norms.h - updates by norms of whole tensors: the arithmetic that the host and a device share, bit
 * for bit. optim/optimizer.h has the rules and their sources.
 *
 * A rank cuts its owned parts of tensors into pieces. The squares of a piece are added in float64
 * in the order of a binary tree over its elements: neighbours, then pairs of neighbours, and so on.
 * The pieces of a tensor are added in their order, then owner by owner, then tensor by tensor.
 *
 * For devices with memory of their own (dpb_queue_ops.squares). A first plugin does not need this
 * header.
 */
#ifndef DPBENCH_NORMS_H
#define DPBENCH_NORMS_H

#include <math.h>

#include "types.h"

/* Of a tensor, or of an owner's part: the sums of squares of its gradients, in LAMB's second round
 * of Adam's way, and of its weights. */
struct dpb_squares {
    double gradients, weights;
};

/* A tensor's update: for SGD, w -= rate * (scale * g + decay * w). */
struct dpb_factors {
    double rate, scale, decay;
};

enum { DPB_NORM_PIECE = 1 << 14 /* elements, at most */ };

/* Arena elements [begin, begin + n) of one tensor, which this rank owns. */
struct dpb_norm_piece {
    uint64_t begin;
    uint64_t state; /* the place of their state in each array of it, in elements */
    uint32_t n, tensor;
    bool decays;
};

typedef enum dpb_norm_kind { DPB_NORM_CLIP, DPB_NORM_LARS, DPB_NORM_LAMB } dpb_norm_kind;

struct dpb_norm_rule {
    dpb_norm_kind kind;
    double clip_norm, trust, decay; /* 0: not clipped; LARS; weight decay */
};

/* The sum of n owners' entries of a tensor. `all` has n_tensors entries of each owner. */
DPB_EVERYWHERE struct dpb_squares dpb_norm_sum(const struct dpb_squares *all, uint32_t n,
                                               uint32_t n_tensors, uint32_t tensor)
{
    struct dpb_squares sum = all[tensor];
    for (uint64_t i = 1; i < n; i++) {
        sum.gradients += all[i * n_tensors + tensor].gradients;
        sum.weights += all[i * n_tensors + tensor].weights;
    }
    return sum;
}

/* The clip's factor, by the sum of squares of all gradients. Gradients that are not finite give no
 * finite weights either. */
DPB_EVERYWHERE double dpb_norm_clipped(double clip_norm, double scale, double squares)
{
    const double factor = clip_norm / (scale * sqrt(squares) + 1e-6);
    return clip_norm > 0.0 && !(factor >= 1.0) ? factor : 1.0;
}

/* A tensor's factors, from those that it has with the clip. Of LAMB the sums are of the second
 * round. */
DPB_EVERYWHERE struct dpb_factors dpb_norm_factors(const struct dpb_norm_rule *rule,
                                                   struct dpb_squares sums,
                                                   struct dpb_factors factors)
{
    const double norm = sqrt(sums.gradients), weights = sqrt(sums.weights);
    const double all =
        rule->kind == DPB_NORM_LAMB ? norm : factors.scale * norm + rule->decay * weights;
    if (rule->kind != DPB_NORM_CLIP && norm > 0.0 && weights > 0.0)
        factors.rate *= (rule->kind == DPB_NORM_LAMB ? 1.0 : rule->trust) * weights / all;
    if (rule->kind == DPB_NORM_LARS) { /* whose velocity has the rate */
        factors.scale *= factors.rate;
        factors.decay *= factors.rate;
        factors.rate = 1.0;
    }
    return factors;
}

#endif
