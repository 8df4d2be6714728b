/*
 * diloco - every worker trains alone for comm.period steps, with an optimizer of its own. Then an
 * outer optimizer takes the way that the mean of all weights went as its gradient.
 *
 *     each step:         w_i <- optimizer(w_i, g_i)
 *     each period-th:    d = (w_1 + ... + w_W) / W - z                (averaging.h)
 *                        v <- momentum v + d
 *                        z <- z + rate (d + momentum v);  w_i <- z
 *
 * This is SGD with Nesterov's momentum in PyTorch's form on the gradient -d; comm.outer_rate and
 * comm.outer_momentum are its own. z is what all replicas held after the meeting before. With a
 * rate of 1 and no momentum this is local_sgd. The optimizer's state stays with its worker, as in
 * the paper, unless comm.average_state = yes. The model between two meetings is the mean of all
 * weights.
 *
 * With comm.outer_late = 1 a meeting takes the differences of the meeting before, so their exchange
 * overlaps a period (difference.h).
 *
 * Bytes moved per meeting and rank, M bytes of weights: as local_sgd. A worker keeps z and v of its
 * own slices.
 *
 * Douillard et al.: DiLoCo: Distributed low-communication training of language models. 2023,
 * algorithm 1.
 */
#include "lib/averaging/averaging.h"

static const struct dpb_option option_rows[] = {
    {"period", DPB_OPT_INT, "steps", "64", 1, 4096, NULL, DPB_AVERAGING_AT(period),
     DPB_AVERAGING_PERIOD, NULL},
    {"outer_rate", DPB_OPT_REAL, NULL, "0.7", 1e-6, 10, NULL, DPB_AVERAGING_AT(outer_rate),
     "of the outer optimizer, on the difference that a meeting finds", NULL},
    {"outer_momentum", DPB_OPT_REAL, NULL, "0.9", 0, 0.9999, NULL, DPB_AVERAGING_AT(outer_momentum),
     "of the outer optimizer, Nesterov's", NULL},
    {"outer_late", DPB_OPT_INT, "meetings", "0", 0, 1, NULL, DPB_AVERAGING_AT(outer_late),
     "1: a meeting takes the differences of the one before, which were exchanged in between", NULL},
    {"average_state", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, DPB_AVERAGING_AT(average_state),
     DPB_AVERAGING_STATE, NULL},
    {0}};

static void move(const struct dpb_averaging_meeting *m)
{
    const double rate = m->rule->outer_rate, momentum = m->rule->outer_momentum;
    dpb_averaging_axpby(m, -1, m->start, 1, m->weights);          /* d */
    dpb_averaging_axpby(m, 1, m->weights, momentum, m->velocity); /* v */
    dpb_averaging_axpby(m, rate * momentum, m->velocity, rate, m->weights);
    dpb_averaging_axpby(m, 1, m->start, 1, m->weights); /* z */
}

/* With W (z + d) + s z + c v as before, and equal factors of z, d and v on both sides:
 * s = W ((1 - momentum) / rate - 1), c = W momentum^2. */
static struct dpb_averaging_rule rule_of(const void *given, const struct dpb_comm_args *args)
{
    const struct dpb_averaging_options *options = given;
    const double rate = options->outer_rate, momentum = options->outer_momentum;
    return (struct dpb_averaging_rule){
        .period = (uint64_t)options->period,
        .average_state = options->average_state,
        .meet = move,
        .outer_rate = rate,
        .outer_momentum = momentum,
        .late = options->outer_late > 0,
        .start_coefficient = args->n_workers * ((1 - momentum) / rate - 1),
        .velocity_coefficient = args->n_workers * momentum * momentum};
}

DPB_AVERAGING_CODED_PLUGIN(rule_of, .name = "diloco", .version = DPB_VERSION,
                           .summary = "workers train alone; an outer optimizer moves the mean",
                           .options = option_rows,
                           .options_size = sizeof(struct dpb_averaging_options));
