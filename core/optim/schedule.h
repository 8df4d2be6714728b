/*
 * schedule.h - the learning rate of a step.
 *
 * constant; step: times decay_factor at each epoch of decay_at, but not below end_rate; piecewise:
 * one of `rates` from each epoch of decay_at on; cosine: half a cosine from the full rate to
 * end_rate over the run (Loshchilov, Hutter 2017); polynomial: end_rate + (full rate - end_rate) x
 * the share of the run that is left ^ decay_power (You et al. 2017, with 2 and 0). Linear scaling
 * multiplies the rate, and `rates`, by global batch / linear_base; end_rate stays. Over the
 * first warmup_epochs the rate rises linearly, step by step: from the unscaled rate with linear
 * scaling (Goyal et al. 2017), else from 0. Cosine and polynomial begin where warm-up ends.
 */
#ifndef DPB_CORE_OPTIM_SCHEDULE_H
#define DPB_CORE_OPTIM_SCHEDULE_H

#include "base/settings.h"
#include "dpbench/status.h"

enum { DPB_SCHEDULE_DECAYS = 16 };

struct dpb_schedule {
    dpb_schedule_kind kind;
    double start, full;  /* before and after warm-up */
    double warmup_steps; /* of the schedule: not the untimed ones */
    double decay_factor, decay_steps[DPB_SCHEDULE_DECAYS];
    double rates[DPB_SCHEDULE_DECAYS]; /* piecewise */
    uint32_t n_decays;
    double total_steps; /* cosine, polynomial */
    double power;       /* polynomial */
    double end;         /* the least rate: step, cosine, polynomial */
};

/* Steps of so many epochs: 0.14 epochs of 100 steps are 14 steps, not the 14.000000000000002 of the
 * product. */
double dpb_schedule_steps(double epochs, double steps_per_epoch);

/* Refuses a malformed decay_at, `rates` that are malformed or not one for each of decay_at, an
 * end_rate above the full rate, and a cosine or polynomial where the length of the run is not known
 * in steps (total_steps = 0). */
dpb_status dpb_schedule_make(const struct dpb_optimizer_settings *settings, uint64_t global_batch,
                             uint64_t steps_per_epoch, uint64_t total_steps,
                             struct dpb_schedule *schedule);
double dpb_schedule_rate(const struct dpb_schedule *schedule, uint64_t step);

#endif
