/* target.c - see target.h. */
#include "study/document/target.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "study/document/rates.h"

/* ---- of one run ---------------------------------------------------------------------------- */

/* The evaluation that reached the target, or the last one before the run ended without. */
static const json_t *end_of_run(const json_t *run)
{
    const json_t *evals = json_object_get(run, "eval"), *at = dpb_json_at(run, "target.at");
    size_t n = json_array_size(evals);
    return json_is_object(at) ? at : n > 0 ? json_array_get(evals, n - 1) : NULL;
}

static json_t *repeat_to_json(const json_t *run)
{
    const json_t *end = end_of_run(run);
    double samples = dpb_json_number(end, "trained_samples");
    double seconds = dpb_json_number(end, "trained_s");
    return json_pack("{s:b, s:o, s:o, s:o, s:o}",                                                //
                     "met", dpb_json_true(run, "target.met"),                                    //
                     "seconds", dpb_json_real(seconds),                                          //
                     "epochs", dpb_json_real(samples / dpb_json_number(run, "batch.per_epoch")), //
                     "samples", dpb_json_real(samples),                                          //
                     "samples_per_s", dpb_json_real(samples / seconds));
}

/* Samples between the evaluation that ended the run and the one before it. */
static double resolution_of(const json_t *run)
{
    const json_t *end = end_of_run(run), *evals = json_object_get(run, "eval");
    double samples = dpb_json_number(end, "trained_samples"), before = 0;
    dpb_each_item(evals, i, eval) {
        double trained = dpb_json_number(eval, "trained_samples");
        if (trained < samples)
            before = fmax(before, trained);
    }
    return samples - before;
}

/* Whether it reached the target as soon as the criterion had evaluations enough: perhaps it had
 * been there before. */
static bool met_at_once(const json_t *run)
{
    bool median = dpb_json_is(run, "target.criterion", "median5");
    double samples = dpb_json_number(end_of_run(run), "trained_samples");
    size_t n = 0;
    dpb_each_item(json_object_get(run, "eval"), i, eval)
        n += dpb_json_number(eval, "trained_samples") <= samples;
    return dpb_json_true(run, "target.met") && n <= (median ? 5 : 1);
}

/* ---- of a row ------------------------------------------------------------------------------ */

static bool has_met(const json_t *repeat)
{
    return dpb_json_true(repeat, "met");
}

/* The mean over the repeats and its interval; where `censored` says that one missed, a bound. */
static json_t *part_to_json(const json_t *repeats, const char *part, bool censored)
{
    size_t n;
    double *x = dpb_json_numbers(repeats, part, &n), low = NAN, high = NAN, above = INFINITY;
    struct dpb_estimate estimate = {.mean = NAN};
    for (size_t i = 0; i < n; i++) {
        const json_t *repeat = json_array_get(repeats, i);
        if (!json_is_null(repeat) && !has_met(repeat))
            above = fmin(above, x[i]);
        x[i] = log(x[i]);
    }
    if (!censored)
        dpb_estimate_of(x, n, &estimate);
    dpb_estimate_interval(&estimate, &low, &high);
    free(x);
    return json_pack("{s:o, s:o, s:o, s:o}",                    //
                     "mean", dpb_json_real(exp(estimate.mean)), //
                     "low", dpb_json_real(low),                 //
                     "high", dpb_json_real(high),               //
                     "above", dpb_json_real(censored ? above : NAN));
}

/* The last run of a repeat, an undisturbed one where there is any; NULL: none with a target. */
static const json_t *run_of_repeat(const json_t *const *runs, size_t n, int64_t repeat)
{
    const json_t *last = NULL, *clean = NULL;
    for (size_t i = 0; i < n; i++) {
        if (dpb_json_number(runs[i], "repeat") != (double)repeat ||
            !json_is_object(json_object_get(runs[i], "target")))
            continue;
        last = runs[i];
        if (!dpb_json_true(runs[i], "load.disturbed"))
            clean = runs[i];
    }
    return clean ? clean : last;
}

json_t *dpb_target_of_runs(const json_t *const *runs, size_t n, size_t n_failed, int64_t n_repeats)
{
    json_t *repeats = json_array();
    const json_t *any = NULL;
    size_t n_met = 0, n_at_once = 0, n_of = n_failed;
    double resolution = 0;
    bool disturbed = false;
    for (int64_t repeat = 0; repeat < n_repeats; repeat++) {
        const json_t *last = run_of_repeat(runs, n, repeat);
        json_array_append_new(repeats, last ? repeat_to_json(last) : json_null());
        if (!last)
            continue;
        any = last;
        n_of++;
        disturbed |= dpb_json_true(last, "load.disturbed");
        n_met += dpb_json_true(last, "target.met");
        n_at_once += met_at_once(last);
        resolution = fmax(resolution, resolution_of(last));
    }
    if (!any) {
        json_decref(repeats);
        return NULL;
    }
    bool censored = n_met < n_of;
    bool apart = dpb_json_is(any, "strategy.consistency", "none") &&
                 dpb_json_number(any, "world.workers") > 1;
    return json_pack(
        "{s:o, s:o, s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:b, s:o, s:n, s:o}", //
        "accuracy", dpb_json_real(dpb_json_number(any, "target.accuracy")),            //
        "loss", dpb_json_real(dpb_json_number(any, "target.loss")),                    //
        "criterion", dpb_json_text(any, "target.criterion", "?"),                      //
        "model", apart ? "rank 0" : "all workers",                                     //
        "reached", (json_int_t)n_met,                                                  //
        "of", (json_int_t)n_of,                                                        //
        "seconds", part_to_json(repeats, "seconds", censored),                         //
        "epochs", part_to_json(repeats, "epochs", censored),                           //
        "samples", part_to_json(repeats, "samples", censored),                         //
        "samples_per_s", part_to_json(repeats, "samples_per_s", false),                //
        "reached_at_once", (json_int_t)n_at_once,                                      //
        "disturbed", disturbed,                                                        //
        "resolution", dpb_json_real(resolution),                                       //
        "rank",                                                                        //
        "repeats", repeats);
}

/* ---- of all rows --------------------------------------------------------------------------- */

static bool is_ranked(const json_t *row)
{
    const json_t *target = json_object_get(row, "to_target");
    return json_is_object(target) && dpb_json_is(target, "model", "all workers") &&
           dpb_json_number(target, "reached") == dpb_json_number(target, "of") &&
           isfinite(dpb_json_number(target, "seconds.mean"));
}

bool dpb_target_same_task(const json_t *a, const json_t *b)
{
    dpb_each_member(json_object_get(a, "cell"), key, value) {
        bool matters = dpb_begins_with(key, "model.") || dpb_begins_with(key, "data.") ||
                       strcmp(key, "eval.batches") == 0;
        if (matters && !json_equal(value, json_object_get(json_object_get(b, "cell"), key)))
            return false;
    }
    return true;
}

bool dpb_target_same_contest(const json_t *a, const json_t *b)
{
    static const char *const what[] = {"to_target.accuracy", "to_target.loss",
                                       "to_target.criterion", "to_target.model"};
    for (size_t i = 0; i < sizeof what / sizeof what[0]; i++)
        if (!dpb_json_same(dpb_json_at(a, what[i]), dpb_json_at(b, what[i])))
            return false;
    return dpb_target_same_task(a, b);
}

void dpb_target_rank(json_t *rows)
{
    dpb_each_item(rows, i, row) {
        json_int_t rank = 1;
        if (!is_ranked(row))
            continue;
        dpb_each_item(rows, k, other)
            rank += is_ranked(other) && dpb_target_same_contest(row, other) &&
                    dpb_json_number(other, "to_target.seconds.mean") <
                        dpb_json_number(row, "to_target.seconds.mean");
        json_object_set_new(json_object_get(row, "to_target"), "rank", json_integer(rank));
    }
}

static bool has_missed(const json_t *row)
{
    return dpb_json_number(row, "to_target.reached") < dpb_json_number(row, "to_target.of");
}

bool dpb_target_missed(const json_t *rows)
{
    bool missed = false;
    dpb_each_item(rows, i, row)
        missed |= has_missed(row);
    return missed;
}

/* ---- comparing ----------------------------------------------------------------------------- */

/* Logarithms of a part by repeat, of which more is better; NaN where the target was missed. *n:
 * their number. @owned. */
static double *gains(const json_t *row, const char *part, size_t *n)
{
    const json_t *repeats = dpb_json_at(row, "to_target.repeats");
    double sign = strcmp(part, "samples_per_s") == 0 ? 1 : -1;
    double *x = dpb_json_numbers(repeats, part, n);
    for (size_t i = 0; i < *n; i++)
        x[i] = has_met(json_array_get(repeats, i)) ? sign * log(x[i]) : NAN;
    return x;
}

/* Puts y, gains of row b, in the order of the seeds of row a. False: a seed is there twice, or is
 * not known, or b has fewer. */
static bool sort_by_seeds(const json_t *a, const json_t *b, size_t n_a, double *y, size_t n_b)
{
    size_t n_seeds_a, n_seeds_b;
    double *of_a = dpb_json_numbers(dpb_json_at(a, "by_repeat.seed"), "", &n_seeds_a);
    double *of_b = dpb_json_numbers(dpb_json_at(b, "by_repeat.seed"), "", &n_seeds_b);
    double *sorted = calloc(n_a + 1, sizeof *sorted);
    bool known = sorted && n_a > 0 && n_a <= n_b && n_seeds_a == n_a && n_seeds_b == n_b;
    for (size_t i = 0; i < n_a && known; i++) {
        size_t found = 0;
        sorted[i] = NAN;
        for (size_t k = 0; k < n_b; k++)
            if (of_b[k] == of_a[i]) {
                sorted[i] = y[k];
                found++;
            }
        for (size_t k = 0; k < i; k++)
            found += of_a[k] == of_a[i];
        known &= isfinite(of_a[i]) && found <= 1;
    }
    if (known)
        memcpy(y, sorted, n_a * sizeof *y);
    free(of_a);
    free(of_b);
    free(sorted);
    return known;
}

void dpb_target_compare(const json_t *a, const json_t *b, const char *part, bool paired,
                        struct dpb_comparison *comparison)
{
    size_t n_a, n_b;
    struct dpb_estimate of_a, of_b, difference;
    double *x = gains(a, part, &n_a), *y = gains(b, part, &n_b);
    dpb_estimate_of(x, n_a, &of_a);
    dpb_estimate_of(y, n_b, &of_b);
    paired |= sort_by_seeds(a, b, n_a, y, n_b);
    for (size_t i = 0; i < n_a && i < n_b; i++)
        y[i] -= x[i];
    dpb_estimate_of(y, n_a < n_b ? n_a : n_b, &difference);
    free(x);
    free(y);
    if (paired && difference.n > 1)
        dpb_compare_paired(&difference, DPB_MARGIN, comparison);
    else
        dpb_compare_apart(&of_a, &of_b, DPB_MARGIN, comparison);
    if (strcmp(part, "samples_per_s") == 0)
        return;
    double low = comparison->low; /* of gains: less of the part */
    comparison->ratio = 1 / comparison->ratio;
    comparison->low = 1 / comparison->high;
    comparison->high = 1 / low;
}

/* The reason against the samples of a row; NULL: none. */
static const char *doubt_of_samples(const json_t *row)
{
    return dpb_json_number(row, "to_target.reached_at_once") > 0 ? "evaluated too rarely"
           : dpb_json_number(row, "to_target.of") < 2            ? "one run"
                                                                 : NULL;
}

/* The reason against the times of a row; steps need not be steady here. */
static const char *doubt_of_times(const json_t *row)
{
    const char *doubt = dpb_json_true(row, "to_target.disturbed") ? "disturbed" : NULL;
    for (size_t i = 0; i < DPB_DOUBTS && !doubt; i++)
        doubt = i == DPB_DOUBT_NOT_STEADY ? NULL : dpb_rates_doubt(row, i);
    return doubt ? doubt : doubt_of_samples(row);
}

bool dpb_target_conclude(const json_t *a, const json_t *b, const char *part, bool paired,
                         struct dpb_comparison *comparison, char *verdict, size_t capacity)
{
    bool samples = strcmp(part, "samples") == 0;
    const char *of_a = samples ? doubt_of_samples(a) : doubt_of_times(a);
    const char *of_b = samples ? doubt_of_samples(b) : doubt_of_times(b);
    dpb_target_compare(a, b, part, paired, comparison);
    if (has_missed(a) || has_missed(b)) { /* those that did not miss are no sample of all */
        *comparison = (struct dpb_comparison){.ratio = NAN, .low = NAN, .high = NAN};
        snprintf(verdict, capacity, "no conclusion (a run missed it)");
        return false;
    }
    dpb_comparison_text(comparison, verdict, capacity);
    if (samples && (comparison->outcome == DPB_FASTER || comparison->outcome == DPB_SLOWER))
        snprintf(verdict, capacity, comparison->outcome == DPB_FASTER ? "fewer" : "more");
    if (of_a || of_b)
        snprintf(verdict, capacity, "no conclusion (%s)", of_b ? of_b : of_a);
    return !of_a && !of_b;
}
