/*
 * easgd - elastic averaging: every worker trains a replica of its own, and a centre z draws it.
 *
 *     each step:         w_i <- optimizer(w_i, g_i)
 *     each period-th:    c_i = alpha (w_i before its update - z)      (averaging.h)
 *                        w_i <- w_i - c_i
 *                        z <- z + c_1 + ... + c_W
 *
 * The optimizer applies weight decay to w_i before the update. The model is z.
 *
 * Bytes moved per meeting and rank, M bytes of weights: M of z and (W - 1)/W M of c read, M / W of
 * z read and written. None in other steps.
 *
 * Zhang, Choromanska, LeCun: Deep learning with elastic averaging SGD. NIPS 2015, algorithm 1 with
 * all workers in the same step.
 */
#include "lib/averaging/averaging.h"

static const struct dpb_option option_rows[] = {
    {"period", DPB_OPT_INT, "steps", "4", 1, 4096, NULL, DPB_AVERAGING_AT(period),
     DPB_AVERAGING_PERIOD, NULL},
    {"alpha", DPB_OPT_REAL, NULL, "0", 0, 1, NULL, DPB_AVERAGING_AT(alpha),
     DPB_AVERAGING_ALPHA "0.9 / workers", NULL},
    {0}};

static struct dpb_averaging_rule rule_of(const void *given, const struct dpb_comm_args *args)
{
    const struct dpb_averaging_options *options = given;
    return (struct dpb_averaging_rule){.period = (uint64_t)options->period,
                                       .centre = true,
                                       .alpha = options->alpha > 0 ? options->alpha
                                                                   : 0.9 / args->n_workers};
}

DPB_AVERAGING_PLUGIN(
    rule_of, .name = "easgd", .version = DPB_VERSION,
    .summary = "elastic averaging: replicas that a centre draws every period steps",
    .options = option_rows, .options_size = sizeof(struct dpb_averaging_options));
