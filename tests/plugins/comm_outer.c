/*
 * comm_outer.c - DiLoCo's outer optimizer by averaging.h's `meet`, on the host and on devices: the
 * strategy of docs/writing-plugins.md with fixed options, for tests/unit/test_ranks.c.
 */
#include "lib/averaging/averaging.h"

static const double rate = 0.7, momentum = 0.9;

static const struct dpb_option option_rows[] = {{"period", DPB_OPT_INT, "steps", "3", 1, 4096, NULL,
                                                 DPB_AVERAGING_AT(period), DPB_AVERAGING_PERIOD},
                                                {"average_state", DPB_OPT_BOOL, NULL, "no", 0, 0,
                                                 NULL, DPB_AVERAGING_AT(average_state),
                                                 "average the optimizer's state, too"},
                                                {0}};

static void move(const struct dpb_averaging_meeting *m)
{
    dpb_averaging_axpby(m, -1, m->start, 1, m->weights);
    dpb_averaging_axpby(m, 1, m->weights, momentum, m->velocity);
    dpb_averaging_axpby(m, rate * momentum, m->velocity, rate, m->weights);
    dpb_averaging_axpby(m, 1, m->start, 1, m->weights);
}

static struct dpb_averaging_rule rule_of(const void *given, const struct dpb_comm_args *args)
{
    const struct dpb_averaging_options *options = given;
    return (struct dpb_averaging_rule){
        .period = (uint64_t)options->period,
        .average_state = options->average_state,
        .meet = move,
        .start_coefficient = args->n_workers * ((1 - momentum) / rate - 1),
        .velocity_coefficient = args->n_workers * momentum * momentum};
}

DPB_AVERAGING_PLUGIN(rule_of, .name = "outer", .version = "1",
                     .summary = "for tests: an outer optimizer moves the mean",
                     .options = option_rows, .options_size = sizeof(struct dpb_averaging_options));
