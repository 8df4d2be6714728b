/* rule.c - see rule.h. */
#include "proof/rule.h"

#include <float.h>
#include <math.h>

#include "proof/proving.h"

struct dpb_arithmetic dpb_arithmetic_of(dpb_dtype weights)
{
    return (struct dpb_arithmetic){.unit = dpb_proof_roundoff(weights),
                                   .smallest = dpb_smallest_normal(weights),
                                   .largest = weights == DPB_FP64 ? DBL_MAX : (double)FLT_MAX};
}

double dpb_smallest_normal(dpb_dtype type)
{
    static const double smallest[] = {[DPB_FP64] = DBL_MIN,
                                      [DPB_FP32] = (double)FLT_MIN,
                                      [DPB_BF16] = (double)FLT_MIN,
                                      [DPB_FP16] = 0x1p-14};
    return smallest[type];
}

/* Adds two numbers after factors that are rounded, too; u: a unit of the weights' type. */
static struct dpb_known add(double a, struct dpb_known x, double b, struct dpb_known y, double u)
{
    return (struct dpb_known){.is = a * x.is + b * y.is,
                              .off = fabs(a) * x.off + fabs(b) * y.off +
                                     4.0 * u * (fabs(a * x.is) + fabs(b * y.is))};
}

/* A number that the weights' type may not hold is infinite there, and everything after it. */
static struct dpb_known within(double largest, struct dpb_known x)
{
    if (!(fabs(x.is) + x.off <= largest))
        x.off = INFINITY;
    return x;
}

/* The square of a number; tiny ones may vanish. */
static struct dpb_known square(struct dpb_known x, const struct dpb_arithmetic *type)
{
    const struct dpb_known squared = {.is = x.is * x.is,
                                      .off = (2.0 * fabs(x.is) + x.off) * x.off +
                                             2.0 * type->unit * x.is * x.is + type->smallest};
    return within(type->largest, squared);
}

/* x / (sqrt(s + inside) + epsilon): where the root may be 0, anything. */
static struct dpb_known divide_by_root(struct dpb_known x, struct dpb_known s, double inside,
                                       double epsilon, const struct dpb_arithmetic *type)
{
    const double least = sqrt(inside + (s.off < s.is ? s.is - s.off : 0.0)) + epsilon;
    const double most = sqrt(inside + s.is + s.off) + epsilon;
    const double is = x.is / (sqrt(inside + s.is) + epsilon);
    const double above = (fabs(x.is) + x.off) / least - fabs(is);
    const double below = fabs(is) - (fabs(x.is) - x.off) / most;
    const struct dpb_known root = within(type->largest, s);
    return (struct dpb_known){
        .is = is,
        .off = isfinite(root.off) ? fmax(above, below) + 8.0 * type->unit * fabs(is) : INFINITY};
}

/* The weight's way down in a step of rate 1, given g with its decay. The n-th step, from 1.
 * RMSProp's way includes the rate. */
static struct dpb_known go_down(const struct dpb_optimizer_settings *rule, uint64_t n, double rate,
                                struct dpb_known g, const struct dpb_arithmetic *type,
                                struct dpb_rule_state *state)
{
    const struct dpb_known none = {0.0, 0.0};
    const double u = type->unit;
    if (rule->kind == DPB_ADAGRAD) {
        state->second = add(1.0, state->second, 1.0, square(g, type), u);
        return divide_by_root(g, state->second, 0.0, rule->epsilon, type);
    }
    if (dpb_optimizer_has_moments(rule)) {
        const double first = 1.0 / (1.0 - pow(rule->beta1, (double)n));
        const double second = 1.0 / (1.0 - pow(rule->beta2, (double)n));
        state->first = add(rule->beta1, state->first, 1.0 - rule->beta1, g, u);
        state->second = add(rule->beta2, state->second, 1.0 - rule->beta2, square(g, type), u);
        return divide_by_root(add(first, state->first, 0.0, none, u),
                              add(second, state->second, 0.0, none, u), 0.0, rule->epsilon, type);
    }
    if (rule->kind == DPB_RMSPROP) {
        const double kept = rule->rms_decay;
        state->second = add(kept, state->second, 1.0 - kept, square(g, type), u);
        state->first = add(rule->momentum, state->first, rate,
                           divide_by_root(g, state->second, rule->epsilon, 0.0, type), u);
        return state->first;
    }
    state->first = add(rule->momentum, state->first, 1.0, g, u);
    return rule->nesterov ? add(1.0, g, rule->momentum, state->first, u) : state->first;
}

struct dpb_known dpb_rule_step(const struct dpb_optimizer_settings *rule,
                               const struct dpb_rule_factors *factors, uint64_t n, bool decays,
                               double weight, struct dpb_known sum,
                               const struct dpb_arithmetic *type, struct dpb_rule_state *state)
{
    const struct dpb_known from = {weight, 0.0};
    const double u = type->unit;
    const double decay = decays ? factors->decay : 0.0;
    const bool apart = dpb_optimizer_has_moments(rule) && rule->decoupled_decay;
    const struct dpb_known g = add(factors->scale, sum, apart ? 0.0 : decay, from, u);
    const struct dpb_known down =
        add(1.0, go_down(rule, n, factors->rate, g, type, state), apart ? decay : 0.0, from, u);
    return add(1.0, from, rule->kind == DPB_RMSPROP ? -1.0 : -factors->rate, down, u);
}
