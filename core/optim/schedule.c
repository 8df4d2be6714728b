/* schedule.c - see schedule.h. */
#include "optim/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define PI 3.14159265358979323846

double dpb_schedule_steps(double epochs, double steps_per_epoch)
{
    const double steps = epochs * steps_per_epoch, whole = round(steps);
    return fabs(steps - whole) <= 1e-9 * whole ? whole : steps;
}

/* Positive rising numbers, or any that are not negative. `form`: what the list is, as in what. */
static dpb_status read_list(const char *key, const char *text, bool rising, const char *form,
                            double values[DPB_SCHEDULE_DECAYS], uint32_t *n)
{
    double last = 0.0;
    *n = 0;
    for (const char *at = text; *at;) {
        char *end;
        const double value = strtod(at, &end);
        while (*end == ' ')
            end++;
        const bool dangling = *end == ',' && end[1] == '\0';
        if (end == at || dangling || (*end != ',' && *end != '\0') ||
            !(rising ? value > last : value >= 0.0) || isinf(value))
            return dpb_fail(DPB_USAGE, "optimizer.%s: '%s' is not a %s", key, text, form);
        if (*n == DPB_SCHEDULE_DECAYS)
            return dpb_fail(DPB_USAGE, "optimizer.%s: more than %d numbers", key,
                            DPB_SCHEDULE_DECAYS);
        values[(*n)++] = last = value;
        at = *end == ',' ? end + 1 : end;
    }
    return DPB_OK;
}

static dpb_status read_decays(const struct dpb_optimizer_settings *settings, double steps_per_epoch,
                              double scaling, struct dpb_schedule *schedule)
{
    uint32_t n_rates;
    DPB_TRY(read_list("decay_at", settings->decay_at, true, "rising list of epochs, as in 30,60,80",
                      schedule->decay_steps, &schedule->n_decays));
    for (uint32_t i = 0; i < schedule->n_decays; i++)
        schedule->decay_steps[i] = dpb_schedule_steps(schedule->decay_steps[i], steps_per_epoch);
    if (schedule->kind != DPB_PIECEWISE)
        return DPB_OK;
    DPB_TRY(read_list("rates", settings->rates, false, "list of rates, as in 0.05,0.01,0.001",
                      schedule->rates, &n_rates));
    for (uint32_t i = 0; i < n_rates; i++)
        schedule->rates[i] *= scaling;
    return n_rates == schedule->n_decays
               ? DPB_OK
               : dpb_fail(DPB_USAGE,
                          "optimizer.rates has %u rates, and optimizer.decay_at %u epochs; give "
                          "a rate for each epoch",
                          n_rates, schedule->n_decays);
}

dpb_status dpb_schedule_make(const struct dpb_optimizer_settings *settings, uint64_t global_batch,
                             uint64_t steps_per_epoch, uint64_t total_steps,
                             struct dpb_schedule *schedule)
{
    const double scaling =
        settings->linear_scaling ? (double)global_batch / (double)settings->linear_base : 1.0;
    memset(schedule, 0, sizeof *schedule);
    schedule->kind = (dpb_schedule_kind)settings->schedule;
    schedule->start = settings->linear_scaling ? settings->learning_rate : 0.0;
    schedule->full = settings->learning_rate * scaling;
    schedule->warmup_steps = dpb_schedule_steps(settings->warmup_epochs, (double)steps_per_epoch);
    schedule->decay_factor = settings->decay_factor;
    schedule->total_steps = (double)total_steps;
    schedule->power = settings->decay_power;
    schedule->end = settings->end_rate;
    const bool cosine = schedule->kind == DPB_COSINE, polynomial = schedule->kind == DPB_POLYNOMIAL;
    const bool steps = schedule->kind == DPB_STEPWISE;
    if ((cosine || polynomial) && total_steps == 0)
        return dpb_fail(DPB_USAGE,
                        "optimizer.schedule = %s needs a run whose length is known: give "
                        "run.epochs, or run.steps with run.steady_limit_s = 0",
                        polynomial ? "polynomial" : "cosine");
    if ((cosine || polynomial || steps) && schedule->end > schedule->full)
        return dpb_fail(DPB_USAGE,
                        "optimizer.end_rate = %g is above the rate it decays from, %g; give a "
                        "lower one",
                        schedule->end, schedule->full);
    if (steps || schedule->kind == DPB_PIECEWISE)
        return read_decays(settings, (double)steps_per_epoch, scaling, schedule);
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
    const double full = schedule->full, end = schedule->end;
    double rate = full;
    uint32_t n_over = 0;
    while (n_over < schedule->n_decays && at >= schedule->decay_steps[n_over])
        n_over++;
    switch (schedule->kind) {
    case DPB_CONSTANT:
        break;
    case DPB_STEPWISE:
        while (n_over-- > 0)
            rate *= schedule->decay_factor;
        return fmax(rate, end);
    case DPB_PIECEWISE:
        return n_over > 0 ? schedule->rates[n_over - 1] : full;
    case DPB_COSINE:
        return end + (full - end) * (0.5 * (1.0 + cos(PI * share_done(schedule, at))));
    case DPB_POLYNOMIAL:
        return end + (full - end) * pow(1.0 - share_done(schedule, at), schedule->power);
    }
    return rate;
}
