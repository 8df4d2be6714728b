/* norms.c - see norms.h. */
#include "optim/norms.h"

#include <math.h>

#include "base/vec.h"
#include "optim/optimizer.h"

static double squares_of(dpb_dtype type, const void *arena, const struct dpb_tensor *tensor)
{
    return dpb_vec_squares(type, (const char *)arena + tensor->offset * dpb_dtype_size(type),
                           tensor->n_elements);
}

/* A gradient that is not finite gives no finite weights either. */
static double clipped(double clip_norm, double scale, double squares)
{
    const double factor = clip_norm / (scale * sqrt(squares) + 1e-6);
    return clip_norm > 0.0 && !(factor >= 1.0) ? factor : 1.0;
}

static double local_rate(const struct dpb_optimizer_args *args, const struct dpb_tensor *tensor,
                         double gradient_norm)
{
    if (!tensor->decays || !(gradient_norm > 0.0))
        return 1.0;
    const double norm = sqrt(squares_of(args->weight_type, args->weights, tensor));
    return norm > 0.0 ? args->settings->trust * norm /
                            (gradient_norm + args->settings->weight_decay * norm)
                      : 1.0;
}

void dpb_norms_factors(const struct dpb_optimizer_args *args, const struct dpb_step *step,
                       struct dpb_factors *factors)
{
    const struct dpb_optimizer_settings *settings = args->settings;
    const struct dpb_graph *graph = args->graph;
    double all = 0.0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        factors[t].scale = squares_of(args->gradient_type, args->gradients, &graph->tensors[t]);
        all += factors[t].scale;
    }
    const double scale = step->scale * clipped(settings->clip_norm, step->scale, all);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const double norm = scale * sqrt(factors[t].scale), rate = step->learning_rate;
        factors[t] = (struct dpb_factors){rate, scale, settings->weight_decay};
        if (settings->kind != DPB_LARS)
            continue;
        const double local = rate * local_rate(args, &graph->tensors[t], norm);
        factors[t] = (struct dpb_factors){1.0, local * scale, local * settings->weight_decay};
    }
}
