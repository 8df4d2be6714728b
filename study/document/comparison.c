/* comparison.c - see comparison.h. */
#include "study/document/comparison.h"

#include <math.h>
#include <stdio.h>

#include "study/document/signed_rank.h"

enum { MOST_REPEATS = 1000 };

void dpb_estimate_of_steps(const double *step_ns, size_t n, double rate,
                           struct dpb_estimate *estimate)
{
    double sum = 0;
    *estimate = (struct dpb_estimate){log(rate), NAN, NAN, isfinite(log(rate)) ? 1 : 0, true};
    for (size_t i = 0; i < n; i++)
        sum += step_ns[i];
    estimate->error = dpb_block_error(step_ns, n, &estimate->freedom) / (sum / (double)n);
}

/* ---- comparisons --------------------------------------------------------------------------- */

/* An interval of half the margin to either side is within the margin or without 1. */
static size_t repeats_to_decide(double spread, size_t n, double limit)
{
    double normal = 1.96 * spread / (limit / 2), least = fmax(3, (double)n + 1);
    double take = fmin(fmax(floor(normal * normal), least), MOST_REPEATS);
    while (take < MOST_REPEATS && dpb_student(take - 1) * spread / sqrt(take) > limit / 2)
        take++;
    return (size_t)take;
}

/* Sets the outcome from ratio, interval and margin. `spread`: standard deviation of the difference
 * between two of n repeats. */
static void decide(double spread, size_t n, struct dpb_comparison *made)
{
    const double margin = made->margin;
    if (!isfinite(made->ratio))
        made->outcome = DPB_NOT_MEASURED;
    else if (made->low > 1 / (1 + margin) && made->high < 1 + margin)
        made->outcome = DPB_EQUAL;
    else if (made->low > 1)
        made->outcome = DPB_FASTER;
    else if (made->high < 1)
        made->outcome = DPB_SLOWER;
    else
        made->outcome = DPB_UNDECIDED;
    if (made->outcome != DPB_UNDECIDED)
        return;
    const double known = isfinite(spread) ? spread : 0, limit = margin > 0 ? margin : DPB_MARGIN;
    made->take = repeats_to_decide(known, n, log1p(limit));
    made->take_wide = repeats_to_decide(known, 1, log1p(2 * limit));
}

static void decide_by_mean(const struct dpb_estimate *difference, double spread, double margin,
                           struct dpb_comparison *comparison)
{
    *comparison = (struct dpb_comparison){
        .ratio = exp(difference->mean), .margin = margin, .of_steps = difference->of_steps};
    dpb_estimate_interval(difference, &comparison->low, &comparison->high);
    decide(spread, difference->n, comparison);
}

void dpb_compare_apart(const struct dpb_estimate *a, const struct dpb_estimate *b, double margin,
                       struct dpb_comparison *comparison)
{
    double of_a = a->error * a->error, of_b = b->error * b->error, both = of_a + of_b;
    struct dpb_estimate difference = {
        .mean = b->mean - a->mean,
        .error = sqrt(both),
        .freedom = both > 0 ? both * both / (of_a * of_a / a->freedom + of_b * of_b / b->freedom)
                            : a->freedom + b->freedom,
        .n = a->n < b->n ? a->n : b->n,
        .of_steps = a->of_steps || b->of_steps,
    };
    decide_by_mean(&difference, sqrt(of_a * (double)a->n + of_b * (double)b->n), margin,
                   comparison);
}

void dpb_compare_paired(const struct dpb_estimate *difference, double margin,
                        struct dpb_comparison *comparison)
{
    decide_by_mean(difference, difference->error * sqrt((double)difference->n), margin, comparison);
    comparison->paired = true;
}

/* The units and the centre of the latest look. */
static void look(const double *x, size_t n, const struct dpb_looks *looks,
                 double units[DPB_LOOK_UNITS], struct dpb_centre *centre)
{
    size_t n_units = dpb_look_units(x, n, looks->planned, units);
    while (!looks->last && n_units > DPB_LOOK_FIRST && !dpb_look_is_due(n_units))
        n_units--;
    dpb_look_at(units, n_units, looks->last, centre);
}

void dpb_compare_turns(const double *differences, size_t n, const struct dpb_looks *looks,
                       double margin, struct dpb_comparison *comparison)
{
    double units[DPB_LOOK_UNITS];
    struct dpb_estimate mean;
    struct dpb_centre centre;
    dpb_estimate_of(differences, n, &mean);
    dpb_compare_paired(&mean, margin, comparison);
    if (!looks || looks->planned == 0)
        return;
    look(differences, n, looks, units, &centre);
    comparison->ratio = exp(centre.estimate);
    comparison->low = exp(centre.low);
    comparison->high = exp(centre.high);
    decide(mean.error * sqrt((double)mean.n), mean.n, comparison);
}

enum dpb_judged dpb_comparison_judge(const struct dpb_comparison *comparison, double threshold)
{
    return isnan(threshold)                   ? DPB_NOT_JUDGED
           : comparison->high < 1 - threshold ? DPB_REGRESSES
           : comparison->low > 1 - threshold  ? DPB_PASSES
                                              : DPB_OPEN;
}

/* The factor of the interval's width. Of a handful of units the correlation is not known; beyond
 * 0.9 the series is a single wave. */
static double widening(const double *units, size_t n, double centre)
{
    double of_neighbours = 0, of_all = 0;
    for (size_t i = 0; i < n; i++) {
        of_all += (units[i] - centre) * (units[i] - centre);
        of_neighbours += i > 0 ? (units[i] - centre) * (units[i - 1] - centre) : 0;
    }
    const double r = fmin(of_all > 0 ? of_neighbours / of_all : 0, 0.9);
    return r > 0.2 ? sqrt((1 + r) / (1 - r)) : 1;
}

void dpb_compare_blocks(const double *x, size_t n, const struct dpb_looks *looks, double margin,
                        struct dpb_comparison *comparison)
{
    double units[DPB_LOOK_UNITS];
    struct dpb_estimate mean;
    struct dpb_centre centre;
    dpb_estimate_of(x, n, &mean);
    const struct dpb_looks all = {mean.n, true};
    look(x, n, looks && looks->planned > 0 ? looks : &all, units, &centre);
    const double at = centre.estimate, wider = widening(units, centre.n, at);
    *comparison = (struct dpb_comparison){.ratio = exp(at),
                                          .low = exp(at - wider * (at - centre.low)),
                                          .high = exp(at + wider * (centre.high - at)),
                                          .margin = margin,
                                          .paired = true,
                                          .of_blocks = true};
    decide(wider * mean.error * sqrt((double)mean.n), mean.n, comparison);
}

void dpb_comparison_text(const struct dpb_comparison *comparison, char *text, size_t capacity)
{
    switch (comparison->outcome) {
    case DPB_EQUAL:
        snprintf(text, capacity, "equal within %g %%", 100 * comparison->margin);
        return;
    case DPB_UNDECIDED:
        snprintf(text, capacity, "undecided: take %zu%s %s", comparison->take,
                 comparison->take >= MOST_REPEATS ? " or more" : "",
                 comparison->of_blocks ? "blocks" : "repeats");
        return;
    case DPB_FASTER:
    case DPB_SLOWER:
        snprintf(text, capacity, comparison->outcome == DPB_FASTER ? "faster" : "slower");
        return;
    case DPB_NOT_MEASURED:
        break;
    }
    snprintf(text, capacity, "not measured");
}

/* "40 s", "12 min", "5 h 40 min", "3 days". */
static void time_text(double seconds, char *text, size_t capacity)
{
    const double minutes = round(seconds / 60), hours = floor(minutes / 60);
    if (seconds < 90)
        snprintf(text, capacity, "%.0f s", seconds);
    else if (minutes < 60)
        snprintf(text, capacity, "%.0f min", minutes);
    else if (hours < 48)
        snprintf(text, capacity, "%.0f h %.0f min", hours, minutes - 60 * hours);
    else
        snprintf(text, capacity, "%.0f days", round(hours / 24));
}

void dpb_comparison_effort(const struct dpb_comparison *comparison, double repeat_s, char *text,
                           size_t capacity)
{
    char about[32] = "", wide[48] = "";
    const double margin = comparison->margin > 0 ? comparison->margin : DPB_MARGIN;
    if (isfinite(repeat_s) && comparison->take < MOST_REPEATS)
        time_text(repeat_s * (double)comparison->take, about, sizeof about);
    if (comparison->take_wide < comparison->take)
        snprintf(wide, sizeof wide, ", or %zu for %g %%", comparison->take_wide, 200 * margin);
    snprintf(text, capacity, "%s%s%s", about[0] ? ", about " : "", about, wide);
    if (comparison->outcome != DPB_UNDECIDED)
        text[0] = '\0';
}
