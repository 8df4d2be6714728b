/* quantity.c - see quantity.h. */
#include "study/document/quantity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/stats.h"
#include "study/document/rates.h"
#include "study/document/spill.h"
#include "study/document/target.h"

const struct dpb_quantity dpb_quantities[DPB_QUANTITIES] = {
    [DPB_ACCURACY] = {"accuracy", "accuracy", "accuracy", "higher", "lower", 0.5, .points = true,
                      .more = true, .of_seeds = true},
    [DPB_LOSS] = {"loss", "loss", "loss", "lower", "higher", 1, .of_seeds = true},
    [DPB_BYTES] = {"bytes", "bytes a step", "bytes_per_step", "fewer", "more", 1, .exact = true},
    [DPB_MEMORY] = {"memory", "memory", "memory_bytes", "less", "more", .margin = 5},
    [DPB_ENERGY] = {"energy", "energy a sample", "joules_per_sample", "less", "more", .margin = 5},
    [DPB_TIME] = {"time", "time to target", NULL, "faster", "slower", .margin = 100 * DPB_MARGIN},
    [DPB_SAMPLES] = {"samples", "samples to target", NULL, "fewer", "more", 100 * DPB_MARGIN,
                     .of_seeds = true},
};

/* ---- of runs ------------------------------------------------------------------------------- */

double dpb_quantity_at(const json_t *run, const char *what, double samples)
{
    double global_batch = dpb_json_number(run, "batch.global");
    const bool trains = strcmp(dpb_json_text(run, "config.run.mode.value", "train"), "train") == 0;
    if (!trains || !(global_batch > 0 && samples >= global_batch))
        return NAN;
    size_t end = (size_t)(samples / global_batch);
    size_t begin = (size_t)ceil(0.9 * samples / global_batch);
    begin = begin < end ? begin : end - 1;
    json_t *numbers = dpb_run_part(run, what);
    double sum = 0;
    for (size_t k = begin; k < end; k++)
        sum += dpb_json_item(numbers, k);
    json_decref(numbers);
    return sum / (double)(end - begin);
}

/* The most that a rank had, over all ranks. */
static double memory_of(const json_t *run)
{
    json_t *ranks = dpb_run_part(run, "ranks");
    double most = NAN;
    dpb_each_item(ranks, i, rank)
        most = fmax(most, dpb_json_number(rank, "peak_memory_bytes"));
    json_decref(ranks);
    return most;
}

/* Of the GPUs where they are known, else of the processors. */
static double energy_of(const json_t *run)
{
    json_t *monitor = dpb_run_part(run, "monitor");
    const double gpus = dpb_json_number(monitor, "joules_per_sample.gpus");
    const double packages = dpb_json_number(monitor, "joules_per_sample.packages");
    json_decref(monitor);
    return isfinite(gpus) ? gpus : packages;
}

static double seed_of(const json_t *run)
{
    const json_t *seed = dpb_json_at(run, "config.run.seed.value");
    return json_is_string(seed) ? strtod(json_string_value(seed), NULL) : dpb_json_number(seed, "");
}

static const json_t *run_of_repeat(const json_t *const *runs, size_t n, int64_t repeat)
{
    const json_t *last = NULL, *clean = NULL;
    for (size_t i = 0; i < n; i++) {
        if (dpb_json_number(runs[i], "repeat") != (double)repeat)
            continue;
        last = runs[i];
        clean = dpb_json_true(runs[i], "load.disturbed") ? clean : runs[i];
    }
    return clean ? clean : last;
}

json_t *dpb_quantity_by_repeat(const json_t *const *runs, size_t n, int64_t n_repeats,
                               double samples)
{
    json_t *seeds = json_array(), *lists[DPB_TIME];
    for (size_t q = 0; q < DPB_TIME; q++)
        lists[q] = json_array();
    for (int64_t repeat = 0; repeat < n_repeats; repeat++) {
        const json_t *run = run_of_repeat(runs, n, repeat), *evals = json_object_get(run, "eval");
        const json_t *eval = json_array_get(evals, json_array_size(evals) - 1);
        const double values[DPB_TIME] = {
            [DPB_ACCURACY] = run ? dpb_json_number(eval, "accuracy") : NAN,
            [DPB_LOSS] = run ? dpb_quantity_at(run, "loss", samples) : NAN,
            [DPB_BYTES] = run ? dpb_json_number(run, "comm.bytes_per_step") : NAN,
            [DPB_MEMORY] = run ? memory_of(run) : NAN,
            [DPB_ENERGY] = run ? energy_of(run) : NAN,
        };
        json_array_append_new(seeds, dpb_json_real(run ? seed_of(run) : NAN));
        for (size_t q = 0; q < DPB_TIME; q++)
            json_array_append_new(lists[q], dpb_json_real(values[q]));
    }
    json_t *made = json_pack("{s:o}", "seed", seeds);
    for (size_t q = 0; q < DPB_TIME; q++)
        json_object_set_new(made, dpb_quantities[q].field, lists[q]);
    return made;
}

/* ---- of rows ------------------------------------------------------------------------------- */

/* The units of a row, as gains: logarithms, of which more is better, or shares. */
struct units {
    double *gain, *seed; /* @owned; gains are NaN where a repeat has none */
    size_t n, n_known;
    bool distinct; /* each that has a gain has a seed, and no two have the same */
};

static double gain_of(const struct dpb_quantity *of, double value)
{
    return of->points ? value : (of->more ? 1 : -1) * log(value);
}

/* The repeats of the first's seed become one: their mean is the value of that seed. */
static void merge_seeds(struct units *units)
{
    size_t n = 0;
    for (size_t i = 0; i < units->n; i++) {
        double sum = 0;
        size_t n_like = 0, k = 0;
        if (!isfinite(units->gain[i]) || !isfinite(units->seed[i]))
            continue;
        while (k < n && units->seed[k] != units->seed[i])
            k++;
        if (k < n)
            continue;
        for (size_t j = i; j < units->n; j++)
            if (units->seed[j] == units->seed[i] && isfinite(units->gain[j])) {
                sum += units->gain[j];
                n_like++;
            }
        units->seed[n] = units->seed[i];
        units->gain[n++] = sum / (double)n_like;
    }
    units->n = n;
}

/* Sets n_known and distinct. */
static void count_units(struct units *units)
{
    double *seeds = calloc(units->n + 1, sizeof *seeds);
    size_t n_seeds = 0;
    for (size_t i = 0; i < units->n; i++) {
        units->n_known += isfinite(units->gain[i]) ? 1 : 0;
        if (seeds && isfinite(units->gain[i]) && isfinite(units->seed[i]))
            seeds[n_seeds++] = units->seed[i];
    }
    units->distinct = seeds && n_seeds > 0 && n_seeds == units->n_known;
    if (n_seeds > 0)
        dpb_sort(seeds, n_seeds);
    for (size_t i = 1; i < n_seeds; i++)
        units->distinct &= seeds[i] != seeds[i - 1];
    free(seeds);
}

static struct units units_of(const json_t *row, const struct dpb_quantity *of)
{
    const json_t *by_repeat = json_object_get(row, "by_repeat");
    const json_t *target = dpb_json_at(row, "to_target.repeats");
    size_t n_seeds;
    struct units units = {.seed =
                              dpb_json_numbers(json_object_get(by_repeat, "seed"), "", &n_seeds)};
    units.gain =
        of->field ? dpb_json_numbers(json_object_get(by_repeat, of->field), "", &units.n)
                  : dpb_json_numbers(target, strcmp(of->name, "time") == 0 ? "seconds" : "samples",
                                     &units.n);
    units.n = units.n < n_seeds ? units.n : n_seeds;
    for (size_t i = 0; i < units.n; i++) {
        const bool missed = !of->field && !dpb_json_true(json_array_get(target, i), "met");
        units.gain[i] = missed ? NAN : gain_of(of, units.gain[i]);
    }
    if (of->of_seeds)
        merge_seeds(&units);
    count_units(&units);
    return units;
}

static void release(struct units *units)
{
    free(units->gain);
    free(units->seed);
}

/* The unit of `units` with this seed; its number of units: there is none. */
static size_t find_seed(const struct units *units, double seed)
{
    size_t k = 0;
    while (k < units->n && !(units->seed[k] == seed && isfinite(units->gain[k])))
        k++;
    return k;
}

/* Differences of the pairs of equal seeds, or of repeats; their number, 0: there are no pairs. */
static size_t pair(const struct units *a, const struct units *b, bool together, double *differences)
{
    const bool by_seed = a->distinct && b->distinct;
    size_t n_known = 0;
    for (size_t i = 0; i < a->n; i++) {
        size_t k = by_seed && isfinite(a->gain[i]) ? find_seed(b, a->seed[i]) : b->n;
        if (!by_seed && together)
            k = i;
        differences[i] = k < b->n ? b->gain[k] - a->gain[i] : NAN;
        n_known += isfinite(differences[i]) ? 1 : 0;
    }
    return n_known > 1 ? a->n : 0;
}

static struct dpb_quantity_side side_of(const struct units *units, const struct dpb_quantity *of,
                                        struct dpb_estimate *estimate)
{
    dpb_estimate_of(units->gain, units->n, estimate);
    const double mean = of->points ? estimate->mean : exp((of->more ? 1 : -1) * estimate->mean);
    if (of->exact && estimate->n == 1) {
        estimate->error = 0;
        estimate->freedom = 1;
    }
    return (struct dpb_quantity_side){mean, estimate->n};
}

/* Sets change, low and high from the gain. */
static void set_change(const struct dpb_quantity *of, struct dpb_quantity_comparison *made)
{
    const struct dpb_comparison *gain = &made->gain;
    if (of->points) {
        made->change = 100 * log(gain->ratio);
        made->low = 100 * log(gain->low);
        made->high = 100 * log(gain->high);
        return;
    }
    made->change = of->more ? gain->ratio : 1 / gain->ratio;
    made->low = of->more ? gain->low : 1 / gain->high;
    made->high = of->more ? gain->high : 1 / gain->low;
}

static const char *doubt_of(const json_t *row, enum dpb_quantity_id id, size_t n)
{
    const char *doubt = dpb_rates_doubt(row, DPB_DOUBT_WRONG);
    const bool of_times = id == DPB_ENERGY || id == DPB_TIME;
    for (size_t i = 0; i < DPB_DOUBT_NOT_STEADY && of_times && !doubt; i++)
        doubt = dpb_rates_doubt(row, i);
    if (!dpb_quantities[id].field && !doubt)
        doubt = dpb_json_number(row, "to_target.reached") < dpb_json_number(row, "to_target.of")
                    ? "a run missed it"
                : dpb_json_number(row, "to_target.reached_at_once") > 0 ? "evaluated too rarely"
                                                                        : NULL;
    if (n < 2 && !dpb_quantities[id].exact && !doubt)
        doubt = dpb_quantities[id].of_seeds ? "one seed" : "one repeat";
    return doubt;
}

/* As a share of gains: what is equal within the margin is within 1 / (1 + this) .. 1 + this. */
static double gain_margin(const struct dpb_quantity *of, double margin)
{
    return of->points ? expm1(margin / 100) : margin / 100;
}

bool dpb_quantity_compare(const json_t *a, const json_t *b, enum dpb_quantity_id id, double margin,
                          bool together, struct dpb_quantity_comparison *made)
{
    const struct dpb_quantity *of = &dpb_quantities[id];
    struct units x = units_of(a, of), y = units_of(b, of);
    double *differences = calloc(x.n + 1, sizeof *differences);
    struct dpb_estimate of_a, of_b;
    bool known = x.n_known > 0 && y.n_known > 0 && differences;
    if (!of->field)
        known &= dpb_target_same_contest(a, b);
    if (known) {
        *made = (struct dpb_quantity_comparison){.a = side_of(&x, of, &of_a),
                                                 .b = side_of(&y, of, &of_b)};
        const size_t n = pair(&x, &y, together, differences);
        if (n > 0)
            dpb_compare_turns(differences, n, NULL, gain_margin(of, margin), &made->gain);
        else
            dpb_compare_apart(&of_a, &of_b, gain_margin(of, margin), &made->gain);
        const char *of_row_a = doubt_of(a, id, x.n_known), *of_row_b = doubt_of(b, id, y.n_known);
        made->doubt = of_row_b ? of_row_b : of_row_a;
        set_change(of, made);
        known = made->gain.outcome != DPB_NOT_MEASURED;
    }
    release(&x);
    release(&y);
    free(differences);
    return known;
}

enum dpb_judged dpb_quantity_judge(const struct dpb_quantity_comparison *made,
                                   enum dpb_quantity_id id, double margin)
{
    const struct dpb_quantity *of = &dpb_quantities[id];
    const double gain = gain_margin(of, margin);
    if (isnan(margin))
        return DPB_NOT_JUDGED;
    /* More by 1 % is a gain of 1 / 1.01. */
    return made->doubt ? DPB_OPEN
                       : dpb_comparison_judge(&made->gain,
                                              of->more && !of->points ? gain : 1 - 1 / (1 + gain));
}

void dpb_quantity_text(const struct dpb_quantity_comparison *made, enum dpb_quantity_id id,
                       char *text, size_t capacity)
{
    const struct dpb_quantity *of = &dpb_quantities[id];
    const struct dpb_comparison *gain = &made->gain;
    if (made->doubt)
        snprintf(text, capacity, "no conclusion (%s)", made->doubt);
    else if (gain->outcome == DPB_UNDECIDED)
        snprintf(text, capacity, "undecided: %zu%s %s would tell", gain->take,
                 gain->take >= 1000 ? " or more" : "", of->of_seeds ? "seeds" : "repeats");
    else if (gain->outcome == DPB_EQUAL && of->points)
        snprintf(text, capacity, "equal within %.3g points", 100 * log1p(gain->margin));
    else if (gain->outcome == DPB_EQUAL)
        snprintf(text, capacity, "equal within %.3g %%", 100 * gain->margin);
    else
        snprintf(text, capacity, "%s", gain->outcome == DPB_FASTER ? of->better : of->worse);
}

void dpb_quantity_change(const struct dpb_quantity_comparison *made, enum dpb_quantity_id id,
                         char *text, size_t capacity)
{
    const bool points = dpb_quantities[id].points, known = isfinite(made->low) != 0;
    if (points && known)
        snprintf(text, capacity, "%+.2f [%+.2f..%+.2f] points", made->change, made->low,
                 made->high);
    else if (points)
        snprintf(text, capacity, "%+.2f points", made->change);
    else if (known)
        snprintf(text, capacity, "%.3f [%.3f..%.3f]", made->change, made->low, made->high);
    else
        snprintf(text, capacity, "%.3f", made->change);
}
