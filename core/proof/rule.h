/*
 * rule.h - one step of the optimizer's rule (optim/optimizer.h) on one element, in float64, with a
 * bound of what the step in the weights' type may differ by.
 */
#ifndef DPB_CORE_PROOF_RULE_H
#define DPB_CORE_PROOF_RULE_H

#include "base/settings.h"
#include "dpbench/types.h"

/* A number, and how far it may be off. */
struct dpb_known {
    double is, off;
};

/* SGD, LARS: first is the velocity. Adagrad: second is the sum of squares. Adam, LAMB: both
 * moments. RMSProp: the velocity, which includes the rate, and the mean square. */
struct dpb_rule_state {
    struct dpb_known first, second;
};

/* Of the weights' type: its unit roundoff, its smallest normal number and its largest. */
struct dpb_arithmetic {
    double unit, smallest, largest;
};

/* w -= rate * (scale * gradient + decay * w), for SGD. */
struct dpb_rule_factors {
    double rate, scale, decay;
};

struct dpb_arithmetic dpb_arithmetic_of(dpb_dtype weights);
double dpb_smallest_normal(dpb_dtype type);

/* Returns the weight after the n-th step (from 1) from `weight`, and moves the state. `sum`: of
 * gradients. Numbers that the weights' type may not hold make the result's `off` infinite. */
struct dpb_known dpb_rule_step(const struct dpb_optimizer_settings *rule,
                               const struct dpb_rule_factors *factors, uint64_t n, bool decays,
                               double weight, struct dpb_known sum,
                               const struct dpb_arithmetic *type, struct dpb_rule_state *state);

#endif
