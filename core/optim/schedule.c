/* schedule.c - see schedule.h. */
#include "optim/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* 0.14 epochs of 100 steps are 14 steps, not the 14.000000000000002 of the product. */
static double steps_of(double epochs, double steps_per_epoch)
{
    const double steps = epochs * steps_per_epoch, whole = round(steps);
    return fabs(steps - whole) <= 1e-9 * whole ? whole : steps;
}

static dpb_status parse_decays(const char *text, double steps_per_epoch,
                               struct dpb_schedule *schedule)
{
    double last = 0.0;
    for (const char *at = text; *at;) {
        char *end;
        double epoch = strtod(at, &end);
        while (*end == ' ')
            end++;
        bool dangling = *end == ',' && end[1] == '\0';
        if (end == at || dangling || (*end != ',' && *end != '\0') || !(epoch > last) ||
            isinf(epoch))
            return dpb_fail(
                DPB_USAGE,
                "optimizer.decay_at: '%s' is not a rising list of epochs, as in 30,60,80", text);
        if (schedule->n_decays == DPB_SCHEDULE_DECAYS)
            return dpb_fail(DPB_USAGE, "optimizer.decay_at: more than %d epochs",
                            DPB_SCHEDULE_DECAYS);
        schedule->decay_steps[schedule->n_decays++] = steps_of(epoch, steps_per_epoch);
        last = epoch;
        at = *end == ',' ? end + 1 : end;
    }
    return DPB_OK;
}

dpb_status dpb_schedule_make(const struct dpb_optimizer_settings *settings, uint64_t global_batch,
                             uint64_t steps_per_epoch, uint64_t total_steps,
                             struct dpb_schedule *schedule)
{
    memset(schedule, 0, sizeof *schedule);
    schedule->kind = (dpb_schedule_kind)settings->schedule;
    schedule->start = settings->linear_scaling ? settings->learning_rate : 0.0;
    schedule->full = settings->learning_rate;
    if (settings->linear_scaling)
        schedule->full *= (double)global_batch / (double)settings->linear_base;
    schedule->warmup_steps = steps_of(settings->warmup_epochs, (double)steps_per_epoch);
    schedule->decay_factor = settings->decay_factor;
    schedule->total_steps = (double)total_steps;
    schedule->power = settings->decay_power;
    schedule->end = settings->end_rate;
    const bool polynomial = schedule->kind == DPB_POLYNOMIAL;
    if ((schedule->kind == DPB_COSINE || polynomial) && total_steps == 0)
        return dpb_fail(DPB_USAGE,
                        "optimizer.schedule = %s needs a run whose length is known: give "
                        "run.epochs, or run.steps with run.steady_limit_s = 0",
                        polynomial ? "polynomial" : "cosine");
    if (polynomial && schedule->end > schedule->full)
        return dpb_fail(DPB_USAGE,
                        "optimizer.end_rate = %g is above the rate it decays from, %g; give a "
                        "lower one",
                        schedule->end, schedule->full);
    if (schedule->kind == DPB_STEPWISE)
        return parse_decays(settings->decay_at, (double)steps_per_epoch, schedule);
    return DPB_OK;
}

/* The part of the decay that is over; it begins with the end of warm-up. */
static double share_done(const struct dpb_schedule *schedule, double at)
{
    return fmin((at - schedule->warmup_steps) / (schedule->total_steps - schedule->warmup_steps),
                1.0);
}

double dpb_schedule_rate(const struct dpb_schedule *schedule, uint64_t step)
{
    double at = (double)step;
    if (at < schedule->warmup_steps)
        return schedule->start +
               (schedule->full - schedule->start) * (at + 1.0) / ceil(schedule->warmup_steps);
    double rate = schedule->full;
    if (schedule->kind == DPB_COSINE)
        rate *= 0.5 * (1.0 + cos(3.14159265358979323846 * share_done(schedule, at)));
    if (schedule->kind == DPB_POLYNOMIAL)
        rate = schedule->end +
               (rate - schedule->end) * pow(1.0 - share_done(schedule, at), schedule->power);
    for (uint32_t i = 0; i < schedule->n_decays && at >= schedule->decay_steps[i]; i++)
        rate *= schedule->decay_factor;
    return rate;
}
