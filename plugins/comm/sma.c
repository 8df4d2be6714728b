/*
 * sma - synchronous model averaging, as in Crossbow: replicas with momentum of their own, and a
 * centre z that has momentum, too.
 *
 *     each step:         v_i <- momentum v_i - rate g_i;  w_i <- w_i + v_i     (core's optimizer)
 *     each period-th:    c_i = alpha (w_i before its update - z)      (averaging.h)
 *                        w_i <- w_i - c_i
 *                        z <- z + c_1 + ... + c_W + center_momentum (z - z before)
 *     the rate drops:    first w_i <- z, z before <- z
 *
 * With comm.local_centers = yes a centre y of each place (run.learners) replaces z above, and each
 * y meets z (averaging.h).
 *
 * Core's optimizer keeps v / rate (optim/optimizer.h), which is equivalent while the rate does not
 * change. The model is z. With comm.momentum_on_center = yes the centre's momentum is
 * comm.center_momentum. Its term is kept as d = z - z before.
 *
 * Bytes moved per meeting and rank, M bytes of weights: M of z and (W - 1)/W M of c read, M / W of
 * z read and written, and of d as much. None in other steps.
 *
 * Koliousis, Watcharapichat, Weidlich, Mai, Costa, Pietzuch: CROSSBOW: scaling deep learning with
 * small batch sizes on multi-GPU servers. VLDB 2019, algorithm 1.
 */
#include "lib/averaging/averaging.h"

static const struct dpb_option option_rows[] = {
    {"period", DPB_OPT_INT, "steps", "1", 1, 4096, NULL, DPB_AVERAGING_AT(period),
     DPB_AVERAGING_PERIOD, NULL},
    {"alpha", DPB_OPT_REAL, NULL, "0", 0, 1, NULL, DPB_AVERAGING_AT(alpha),
     DPB_AVERAGING_ALPHA "1 / workers, with comm.local_centers 1 / run.learners", NULL},
    {"local_centers", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, DPB_AVERAGING_AT(local_centers),
     "learners of a place meet a centre of their own; these centres meet z", NULL},
    {"momentum_on_center", DPB_OPT_BOOL, NULL, "yes", 0, 0, NULL,
     DPB_AVERAGING_AT(momentum_on_center), "z has momentum", NULL},
    {"center_momentum", DPB_OPT_REAL, NULL, "0.9", 0, 0.9999, NULL,
     DPB_AVERAGING_AT(center_momentum), "of z, with comm.momentum_on_center",
     "comm.momentum_on_center"},
    {"restart", DPB_OPT_REAL, NULL, "0.2", 0, 0.49, NULL, DPB_AVERAGING_AT(restart),
     "where the rate falls at once to this share or less, all replicas begin anew at z; 0: never",
     NULL},
    {0}};

static struct dpb_averaging_rule rule_of(const void *given, const struct dpb_comm_args *args)
{
    const struct dpb_averaging_options *options = given;
    const uint32_t learners = options->local_centers ? args->learners : 0;
    const double alpha = 1.0 / (learners > 0 ? learners : args->n_workers);
    return (struct dpb_averaging_rule){
        .period = (uint64_t)options->period,
        .centre = true,
        .alpha = options->alpha > 0 ? options->alpha : alpha,
        .learners = learners,
        .centre_momentum = options->momentum_on_center ? options->center_momentum : 0.0,
        .restart = options->restart};
}

DPB_AVERAGING_PLUGIN(rule_of, .name = "sma", .version = DPB_VERSION,
                     .summary = "Crossbow's model averaging: replicas, and a centre with momentum",
                     .options = option_rows, .options_size = sizeof(struct dpb_averaging_options));
