/*
 * local_sgd - every worker trains alone for comm.period steps, then all take the mean of their
 * weights.
 *
 *     each step:         w_i <- optimizer(w_i, g_i)
 *     each period-th:    w_i <- (w_1 + ... + w_W) / W                 (averaging.h)
 *
 * With comm.average_state = yes all of the optimizer's state is averaged with the weights. With
 * a period of 1, plain SGD and equal learning rates, training is synchronous except for rounding.
 * The model between two meetings is the mean of all weights.
 *
 * Bytes moved per meeting and rank, M bytes of weights: (W - 1)/W M read and as many written; with
 * average_state as many again for each array of state. None in other steps.
 *
 * Stich: Local SGD converges fast and communicates little. ICLR 2019. McMahan et al.:
 * Communication-efficient learning of deep networks from decentralized data. AISTATS 2017.
 */
#include "lib/averaging/averaging.h"

static const struct dpb_option option_rows[] = {
    {"period", DPB_OPT_INT, "steps", "8", 1, 4096, NULL, DPB_AVERAGING_AT(period),
     DPB_AVERAGING_PERIOD, NULL},
    {"average_state", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, DPB_AVERAGING_AT(average_state),
     DPB_AVERAGING_STATE, NULL},
    {0}};

static struct dpb_averaging_rule rule_of(const void *given, const struct dpb_comm_args *args)
{
    const struct dpb_averaging_options *options = given;
    (void)args;
    return (struct dpb_averaging_rule){.period = (uint64_t)options->period,
                                       .average_state = options->average_state};
}

DPB_AVERAGING_CODED_PLUGIN(
    rule_of, .name = "local_sgd", .version = DPB_VERSION,
    .summary = "workers train alone and average their weights every period steps",
    .options = option_rows, .options_size = sizeof(struct dpb_averaging_options));
