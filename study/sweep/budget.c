/* budget.c - see budget.h. */
#include "study/sweep/budget.h"

#include <math.h>

#include "base/json.h"
#include "record/facts.h"

struct dpb_sweep_budget dpb_sweep_budget_of(const struct dpb_sweep_options *options, size_t n_jobs)
{
    return (struct dpb_sweep_budget){
        .limit_s = options->limit_ns > 0 ? (double)options->limit_ns * 1e-9 : INFINITY,
        .repeat_s = options->retry_budget_ns >= 0 ? (double)options->retry_budget_ns * 1e-9 : NAN,
        .n_jobs = n_jobs};
}

double dpb_sweep_budget_repeats_s(const struct dpb_sweep_budget *budget)
{
    return isnan(budget->repeat_s) ? budget->runs_s : budget->repeat_s;
}

bool dpb_sweep_budget_starts(const struct dpb_sweep_budget *budget, double elapsed_s)
{
    return elapsed_s < budget->limit_s;
}

void dpb_sweep_budget_spend(struct dpb_sweep_budget *budget, double run_s, bool is_repeat)
{
    budget->n_repeats += is_repeat;
    *(is_repeat ? &budget->repeats_s : &budget->runs_s) += run_s;
}

bool dpb_sweep_budget_repeats(struct dpb_sweep_budget *budget, double run_s, double elapsed_s)
{
    const bool may = dpb_sweep_budget_starts(budget, elapsed_s) &&
                     budget->repeats_s + run_s <= dpb_sweep_budget_repeats_s(budget);
    budget->n_left_disturbed += !may;
    return may;
}

uint64_t dpb_sweep_budget_left(size_t n_left, uint64_t n_runs, size_t n_done)
{
    const double each = n_done > 0 ? (double)n_runs / (double)n_done : 1;
    return (uint64_t)ceil((double)n_left * fmax(each, 1));
}

void dpb_sweep_budget_report(const struct dpb_sweep_budget *budget, json_t *document)
{
    json_t *warnings = json_object_get(document, "warnings");
    const double budget_s = dpb_sweep_budget_repeats_s(budget);
    json_object_set_new(document, "repeats_of_disturbed",
                        json_pack("{s:I, s:f, s:f, s:I}", "runs", (json_int_t)budget->n_repeats,
                                  "seconds", budget->repeats_s, "budget_s", budget_s,
                                  "left_disturbed", (json_int_t)budget->n_left_disturbed));
    if (isfinite(budget->limit_s))
        json_object_set_new(document, "runs_left_out", json_integer((json_int_t)budget->n_never));
    if (budget->n_left_disturbed > 0)
        dpb_warnings_add(
            warnings, "disturbed_runs_stay",
            "%zu disturbed run%s not repeated: repeats took %.1f s of the %.1f s that "
            "sweep.retry_budget gives them%s. Rates with `?` are in doubt: quieten the "
            "machine, or raise the budget",
            budget->n_left_disturbed, budget->n_left_disturbed == 1 ? " was" : "s were",
            budget->repeats_s, budget_s,
            isfinite(budget->limit_s) ? ", or sweep.limit_s came first" : "");
    if (budget->n_never > 0)
        dpb_warnings_add(
            warnings, "runs_left_out",
            "%zu of %zu runs did not start, since none starts later than sweep.limit_s "
            "= %g s: what this table says rests on fewer repeats, cells or accuracies "
            "may be missing. A quieter or faster machine runs all, or take "
            "sweep.limit_s=0",
            budget->n_never, budget->n_jobs, budget->limit_s);
}
