/* rates.c - see rates.h. */
#include "study/document/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/text.h"
#include "record/turns.h"
#include "study/document/signed_rank.h"
#include "study/document/spill.h"

/* The logarithms in rates[] of a row, by repeat; NaN: not measured. *n: their number. @owned */
static double *logarithms(const json_t *row, size_t *n)
{
    double *x = dpb_json_numbers(json_object_get(row, "rates"), "", n);
    for (size_t i = 0; i < *n; i++)
        x[i] = log(x[i]);
    return x;
}

static void estimate_run(const json_t *run, struct dpb_estimate *estimate)
{
    size_t n;
    json_t *steps = dpb_run_part(run, "timing.step_ns");
    double *step_ns = dpb_json_numbers(steps, "", &n);
    json_decref(steps);
    dpb_estimate_of_steps(step_ns, n, dpb_json_number(run, "timing.samples_per_s.mean"), estimate);
    free(step_ns);
}

/* The run of a row that was timed once. */
static const json_t *run_of(const json_t *document, const json_t *row, double rate)
{
    dpb_each_item(json_object_get(document, "runs"), i, run)
        if (json_equal(json_object_get(run, "cell"), json_object_get(row, "cell")) &&
            dpb_json_is(run, "purpose", "timing") &&
            dpb_json_number(run, "timing.samples_per_s.mean") == rate)
            return run;
    return NULL;
}

void dpb_rates_estimate(const json_t *document, const json_t *row, struct dpb_estimate *estimate)
{
    if (!row) {
        estimate_run(document, estimate);
        return;
    }
    size_t n;
    double *x = logarithms(row, &n);
    dpb_estimate_of(x, n, estimate);
    free(x);
    if (estimate->n != 1)
        return;
    double rate = dpb_json_number(row, "samples_per_s.median");
    const json_t *run = run_of(document, row, rate);
    if (run)
        estimate_run(run, estimate);
}

/* The differences B - A of the logarithms in blocks in which both had a turn, and the repeats of
 * these; their number. *x and *repeats are @owned; they may be NULL. */
static size_t differences_of_blocks(const json_t *a, const json_t *b, double **x, size_t **repeats)
{
    const json_t *blocks_a = dpb_json_at(a, "turns.block"),
                 *blocks_b = dpb_json_at(b, "turns.block");
    const json_t *rates_a = dpb_json_at(a, "turns.samples_per_s"),
                 *rates_b = dpb_json_at(b, "turns.samples_per_s");
    const json_t *repeats_a = dpb_json_at(a, "turns.repeat");
    const size_t n_a = json_array_size(blocks_a), n_b = json_array_size(blocks_b);
    size_t n = 0;
    *x = n_a > 0 && n_b > 0 ? calloc(n_a, sizeof **x) : NULL;
    *repeats = *x ? calloc(n_a, sizeof **repeats) : NULL;
    for (size_t i = 0, k = 0; *repeats && i < n_a && k < n_b;) {
        const json_int_t at_a = json_integer_value(json_array_get(blocks_a, i)),
                         at_b = json_integer_value(json_array_get(blocks_b, k));
        if (at_a == at_b) {
            (*repeats)[n] = (size_t)json_integer_value(json_array_get(repeats_a, i));
            (*x)[n++] = log(dpb_json_number(json_array_get(rates_b, k), "") /
                            dpb_json_number(json_array_get(rates_a, i), ""));
        }
        i += at_a <= at_b;
        k += at_b <= at_a;
    }
    return n;
}

/* Pairs that ran side by side: by repeat the centre of its blocks, in y[n_y]. */
static void centre_repeats(const double *x, const size_t *repeats, size_t n, double *y, size_t n_y)
{
    for (size_t from = 0, to = 0; from < n; from = to) {
        double units[DPB_LOOK_UNITS];
        struct dpb_centre centre;
        while (to < n && repeats[to] == repeats[from])
            to++;
        const size_t n_units = dpb_look_units(x + from, to - from, to - from, units);
        dpb_signed_rank_centre(units, n_units, UINT32_MAX, &centre);
        if (repeats[from] < n_y && n_units > 0)
            y[repeats[from]] = centre.estimate;
    }
}

/* The looks that the sweep took at the blocks of both: those of the row that ran in one group. */
static struct dpb_looks looks_of(const json_t *a, const json_t *b)
{
    const json_t *planned = dpb_json_at(b, "turns.planned");
    const json_t *of = planned ? b : a;
    return (struct dpb_looks){(size_t)fmin(fmax(0, dpb_json_number(of, "turns.planned")), 1e9),
                              !dpb_json_true(of, "turns.decided")};
}

void dpb_rates_compare(const json_t *document_a, const json_t *a, const json_t *document_b,
                       const json_t *b, const struct dpb_looks *looks, double margin,
                       struct dpb_comparison *comparison)
{
    /* Two setups of one document share no block; the two documents of a gate do. */
    const bool apart = strcmp(dpb_json_text(a, "cell.setup", ""),
                              dpb_json_text(b, "cell.setup", "")) != 0,
               pairs = document_a != document_b;
    size_t n_a, n_b, *repeats, n_pairs = 0;
    double *of_blocks;
    const size_t n_blocks = differences_of_blocks(a, b, &of_blocks, &repeats);
    const bool blocks = n_blocks > 1 && !pairs && !apart;
    struct dpb_estimate of_a, of_b;
    double *x = logarithms(a, &n_a), *y = logarithms(b, &n_b);
    const size_t n = n_a < n_b ? n_a : n_b;
    for (size_t i = 0; i < n; i++)
        y[i] -= x[i];
    if (pairs)
        centre_repeats(of_blocks, repeats, n_blocks, y, n);
    for (size_t i = 0; i < n; i++)
        n_pairs += isfinite(y[i]) ? 1 : 0;
    const struct dpb_looks at = looks_of(a, b);
    if (blocks)
        dpb_compare_blocks(of_blocks, n_blocks, &at, margin, comparison);
    else if (n_pairs > 1)
        dpb_compare_turns(y, n, looks, margin, comparison);
    free(of_blocks);
    free(repeats);
    free(x);
    free(y);
    if (blocks || n_pairs > 1)
        return;
    dpb_rates_estimate(document_a, a, &of_a);
    dpb_rates_estimate(document_b, b, &of_b);
    dpb_compare_apart(&of_a, &of_b, margin, comparison);
}

const char *dpb_rates_doubt(const json_t *of, size_t i)
{
    static const struct {
        const char *reason, *in_run, *in_row;
    } marks[] = {{"timed too shortly", "timing.too_short", "too_short"},
                 {"oversubscribed", "world.oversubscribed", "oversubscribed"},
                 {"disturbed", "load.disturbed", "disturbed"},
                 {"throttled", "throttled", "throttled"},
                 {"time-sliced", "gpus.time_sliced", "time_sliced"},
                 {"emulation late", "emulated.late", "emulation_late"},
                 {"restarted", "goodput.restarted", "restarted"}};
    enum { MARKS = sizeof marks / sizeof marks[0] };
    _Static_assert((int)MARKS == DPB_DOUBT_NOT_STEADY, "the reasons in their order");
    bool is_row = json_object_get(of, "failed_runs") != NULL;
    /* In turns all cells of a block have the same machine, and blocks are the repeats. */
    const bool turns = is_row && json_is_object(json_object_get(of, "turns"));
    if (turns && (i == DPB_DOUBT_DISTURBED || i == DPB_DOUBT_NOT_STEADY || i >= DPB_DOUBT_ONCE))
        return NULL;
    if (i < MARKS)
        return dpb_json_true(of, is_row ? marks[i].in_row : marks[i].in_run) ? marks[i].reason
                                                                             : NULL;
    if (i == DPB_DOUBT_NOT_STEADY)
        return dpb_json_true(of, is_row ? "gated" : "timing.gated") &&
                       !dpb_json_true(of, is_row ? "steady" : "timing.steady")
                   ? "not steady"
                   : NULL;
    if (i == DPB_DOUBT_LEFT)
        return dpb_json_number(of, is_row ? "left" : "world.left") <
                       dpb_json_number(of, is_row ? "workers" : "world.workers")
                   ? "short of workers that died"
                   : NULL;
    if (i == DPB_DOUBT_WRONG)
        return dpb_begins_with(dpb_json_text(of, "verdict", ""), "NO") ||
                       dpb_json_is(of, "failure", dpb_status_name(DPB_VERIFICATION))
                   ? "not verified"
                   : NULL;
    if (!is_row || dpb_json_number(of, "runs") != 1)
        return NULL;
    if (dpb_json_number(of, "disturbed_runs") > 0)
        return i == DPB_DOUBT_UNDISTURBED_ONCE ? "undisturbed only once" : NULL;
    return i == DPB_DOUBT_ONCE ? "timed only once" : NULL;
}

void dpb_rates_doubts(const json_t *of, size_t n, char *text, size_t capacity)
{
    struct dpb_text doubts = dpb_text_in(text, capacity);
    for (size_t i = 0; i < n; i++)
        if (dpb_rates_doubt(of, i))
            dpb_text_item(&doubts, ", ", "%s", dpb_rates_doubt(of, i));
}

/* The GPU sharing of a row, or of a run. */
static const char *sharing_of(const json_t *of)
{
    return dpb_json_text(of, "gpu_sharing", dpb_json_text(of, "gpus.sharing", NULL));
}

/* The run of the device that a measured profile was made from, and the emulated one: rows have no
 * `machine`. */
static bool validates(const json_t *a, const json_t *b)
{
    const json_t *emulated = json_object_get(a, "emulated"), *real = b;
    if (!json_is_object(emulated)) {
        emulated = json_object_get(b, "emulated");
        real = a;
    }
    const char *accelerator = dpb_json_text(emulated, "accelerator", "");
    if (!dpb_json_is(emulated, "kind", "measured"))
        return false;
    json_t *ranks = dpb_run_part(real, "ranks");
    const bool alike = dpb_json_is(real, "machine.processor", accelerator) ||
                       dpb_json_is(json_array_get(ranks, 0), "gpu.name", accelerator);
    json_decref(ranks);
    return alike && dpb_json_is(real, "model.name", dpb_json_text(emulated, "model", "")) &&
           dpb_json_is(real, "config.run.precision.value",
                       dpb_json_text(emulated, "precision", ""));
}

/* The kind of the profile that a row or a run emulates by; "": it is of a device that computes. */
static const char *emulated_by(const json_t *of)
{
    return dpb_json_text(of, "emulated.kind", "");
}

const char *dpb_rates_apart(const json_t *a, const json_t *b)
{
    if ((*emulated_by(a) == '\0') != (*emulated_by(b) == '\0') && !validates(a, b))
        return "one is emulated";
    if (*emulated_by(a) != '\0' && *emulated_by(b) != '\0' &&
        strcmp(emulated_by(a), emulated_by(b)) != 0)
        return "emulated by profiles of different kinds";
    const char *of_a = sharing_of(a), *of_b = sharing_of(b);
    const bool apart = of_a && of_b && (strcmp(of_a, of_b) != 0 || strcmp(of_a, "mixed") == 0);
    return apart ? "GPUs shared in different ways" : NULL;
}

double dpb_rates_moment(const char *text)
{
    struct tm utc = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return end && *end == '\0' ? (double)timegm(&utc) : NAN;
}

double dpb_rates_repeat_s(const json_t *document)
{
    const json_t *runs = json_object_get(document, "runs");
    const size_t most = json_array_size(runs);
    double *began = calloc(most + 1, sizeof *began), sum_s = 0, repeat = 0;
    size_t n = 0, n_gaps = 0;
    if (!began)
        return NAN;
    dpb_each_item(runs, i, run) {
        began[n] = dpb_rates_moment(dpb_json_text(run, "started", ""));
        n += isfinite(began[n]) && dpb_json_is(run, "purpose", "timing") ? 1 : 0;
        repeat = fmax(repeat, dpb_json_number(run, "repeat"));
    }
    if (n > 1)
        dpb_sort(began, n);
    for (size_t i = 1; i < n; i++)
        began[i - 1] = began[i] - began[i - 1];
    if (n > 1)
        dpb_sort(began, n - 1);
    /* A sweep may have been interrupted between two runs. */
    for (size_t i = 0; i + 1 < n && began[i] <= 10 * fmax(began[(n - 1) / 2], 1); i++) {
        sum_s += began[i];
        n_gaps++;
    }
    free(began);
    return n_gaps > 0 ? sum_s / (double)n_gaps * (double)n / (repeat + 1) : NAN;
}

double dpb_rates_block_s(const json_t *document)
{
    double sum_s = 0, n_blocks = NAN;
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        dpb_each_item(dpb_json_at(run, "turns.seconds"), k, seconds)
            sum_s += json_number_value(seconds) + (double)DPB_TURNS_REST_NS * 1e-9;
        dpb_each_item(dpb_json_at(run, "turns.block"), k, block)
            n_blocks = fmax(n_blocks, (double)json_integer_value(block) + 1);
    }
    return sum_s / n_blocks;
}

void dpb_rates_ratio(const struct dpb_comparison *comparison, char *text, size_t capacity)
{
    if (comparison->outcome == DPB_NOT_MEASURED)
        snprintf(text, capacity, "-");
    else if (!isfinite(comparison->low))
        snprintf(text, capacity, "%.3f", comparison->ratio);
    else
        snprintf(text, capacity, "%.3f [%.3f..%.3f]", comparison->ratio, comparison->low,
                 comparison->high);
}
