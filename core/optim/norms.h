/*
 * norms.h - the factors of update rules that need norms of whole tensors: optimizer.clip_norm,
 * LARS.
 *
 * clip_norm, X: the mean gradient g of all weights is scaled by min(1, X / (||g|| + 1e-6)), as
 * PyTorch's clip_grad_norm_ does it.
 *
 * LARS (You, Gitman, Ginsburg: Large Batch Training of Convolutional Networks. 2017): a tensor w
 * that decays has the local rate  l = trust ||w|| / (||g|| + decay ||w||),  others have 1, as has a
 * tensor whose ||w|| or ||g|| is 0. Then v = momentum * v + rate * l * (g + decay * w); w -= v.
 *
 * Norms are float64. Tensors are summed in one order (dpb_vec_squares), so equal mean gradients
 * give equal bits, whatever the strategy.
 */
#ifndef DPB_CORE_OPTIM_NORMS_H
#define DPB_CORE_OPTIM_NORMS_H

#include "dpbench/host.h"
#include "base/settings.h"

/* The factors in a rule: w -= rate * (scale * g + decay * w), for SGD. */
struct dpb_factors {
    double rate, scale, decay;
};

static inline bool dpb_norms_needed(const struct dpb_optimizer_settings *settings)
{
    return settings->kind == DPB_LARS || settings->clip_norm > 0.0;
}

struct dpb_optimizer_args;

/* At the end of an exchange, when the arenas hold old weights and the summed gradients: fills in
 * `factors` for each of the graph's tensors. */
void dpb_norms_factors(const struct dpb_optimizer_args *args, const struct dpb_step *step,
                       struct dpb_factors *factors);

#endif
