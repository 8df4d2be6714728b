/* tune.c - the search of a [tune]: see tune.h. */
#include "study/sweep/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/options.h"
#include "study/document/rates.h"
#include "study/document/rows.h"
#include "study/document/target.h"
#include "study/sweep/sweep_option.h"
#include "study/sweep/sweep_runs.h"

struct search {
    const struct dpb_sweep *sweep;
    json_t *document, *trials; /* @borrowed */
    size_t *at;                /* @owned: by axis, the present value's number */
    const json_t **rows;       /* @owned: by cell; NULL: it has no run */
    size_t *trial;             /* @owned: by cell, its number, from 1; 0: not tried */
    size_t top;                /* the best cell that walk() has seen of its axis */
    size_t missing;            /* the cell whose value the search needs next */
    size_t rounds;
};

/* ---- axes ---------------------------------------------------------------------------------- */

/* Whether the values of the axis are numbers that rise or fall. */
static bool is_ordered(const struct search *s, size_t axis)
{
    double before = NAN;
    bool rises = true, falls = true;
    for (size_t i = 0; i < s->sweep->axes[axis].n_values; i++) {
        const double number = dpb_sweep_number(s->sweep, axis, i);
        rises &= i == 0 ? isfinite(number) : number > before;
        falls &= i == 0 ? isfinite(number) : number < before;
        before = number;
    }
    return rises || falls;
}

/* The present cell, but with another value on one axis. */
static size_t cell_beside(const struct search *s, size_t axis, size_t index)
{
    size_t cell = 0;
    for (size_t i = 0; i < s->sweep->n_axes; i++)
        cell = cell * s->sweep->axes[i].n_values + (i == axis ? index : s->at[i]);
    return cell;
}

static size_t present_cell(const struct search *s)
{
    return cell_beside(s, 0, s->at[0]);
}

/* ---- values -------------------------------------------------------------------------------- */

static bool has_failed(const json_t *row)
{
    return dpb_json_number(row, "failed_runs") > 0;
}

/* The first run that a trial still needs; false: the trial is over. */
static bool next_run(const struct search *s, size_t cell, struct dpb_sweep_job *job)
{
    if (has_failed(s->rows[cell]))
        return false;
    for (int64_t repeat = 0; repeat < s->sweep->options.repeats; repeat++) {
        *job = (struct dpb_sweep_job){.cell = cell, .repeat = (uint32_t)repeat};
        if (!dpb_sweep_done(s->sweep, s->document, job))
            return true;
    }
    return false;
}

/* Samples/s, or 1 / seconds to the target; NaN: the cell has no value. */
static double value_of(const struct search *s, size_t cell)
{
    const json_t *row = s->rows[cell];
    struct dpb_estimate estimate;
    if (!row || has_failed(row))
        return NAN;
    if (s->sweep->options.objective == DPB_OBJECTIVE_TARGET)
        return 1 / dpb_json_number(row, "to_target.seconds.mean");
    dpb_rates_estimate(s->document, row, &estimate);
    return exp(estimate.mean);
}

/* `b` over `a`: low and high are NaN unless both have several repeats. */
static void compare(const struct search *s, size_t a, size_t b, struct dpb_comparison *gain)
{
    *gain = (struct dpb_comparison){.low = NAN, .high = NAN};
    if (s->sweep->options.objective == DPB_OBJECTIVE_TARGET) {
        dpb_target_compare(s->rows[b], s->rows[a], "seconds", false, gain);
    } else { /* trials are no pairs: one ran after the other */
        struct dpb_estimate of_a, of_b;
        dpb_rates_estimate(s->document, s->rows[a], &of_a);
        dpb_rates_estimate(s->document, s->rows[b], &of_b);
        if (of_a.n > 1 && of_b.n > 1)
            dpb_compare_apart(&of_a, &of_b, DPB_MARGIN, gain);
    }
    gain->ratio = value_of(s, b) / value_of(s, a);
}

/* ---- steps --------------------------------------------------------------------------------- */

enum direction { UP, DOWN, ANYWHERE };

static bool is_better(const struct dpb_comparison *gain, double above)
{
    return gain->ratio > above && !(gain->low <= 1);
}

/* Whether the search goes from the present cell to another: `gain` is that of the other over the
 * present one. */
static bool takes(const struct search *s, size_t now, size_t next, enum direction direction,
                  const struct dpb_comparison *gain)
{
    const double most = 1 + s->sweep->options.threshold / 100;
    if (isnan(value_of(s, now)))
        return direction == UP || !isnan(value_of(s, next));
    if (direction == DOWN)
        return value_of(s, s->top) / value_of(s, next) <= most;
    return is_better(gain, direction == UP ? most : 1);
}

static void add_trial(struct search *s, size_t now, size_t next, const struct dpb_comparison *gain)
{
    const double value = value_of(s, next);
    const bool rate = s->sweep->options.objective == DPB_OBJECTIVE_RATE;
    json_array_append_new(
        s->trials,
        json_pack("{s:I, s:O, s:o, s:o, s:o, s:o, s:o, s:b}", //
                  "cell_index", (json_int_t)next, "cell", json_object_get(s->rows[next], "cell"),
                  "value", dpb_json_real(rate ? value : 1 / value), "over",
                  now == next ? json_null() : json_integer((json_int_t)s->trial[now]), "gain",
                  dpb_json_real(gain->ratio - 1), "low", dpb_json_real(gain->low - 1), "high",
                  dpb_json_real(gain->high - 1), "taken", false));
    s->trial[next] = json_array_size(s->trials);
}

/* Tries a value of an axis and sets whether the search takes it. False: its cell has no value yet.
 */
static bool try_value(struct search *s, size_t axis, size_t index, enum direction direction,
                      bool *taken)
{
    struct dpb_comparison gain = {.ratio = NAN, .low = NAN, .high = NAN};
    struct dpb_sweep_job job;
    const size_t now = present_cell(s), next = cell_beside(s, axis, index);
    if (next_run(s, next, &job)) {
        s->missing = next;
        return false;
    }
    if (now != next)
        compare(s, now, next, &gain);
    *taken = takes(s, now, next, direction, &gain);
    if (s->trial[next] == 0)
        add_trial(s, now, next, &gain);
    if (*taken || now == next) {
        s->at[axis] = index;
        json_object_set_new(json_array_get(s->trials, s->trial[next] - 1), "taken",
                            json_boolean(!isnan(value_of(s, next))));
    }
    return true;
}

/* Notes a cell as the axis' best if it is. False: it is not better than the best so far. */
static bool raises_top(struct search *s, size_t cell)
{
    const bool raises = value_of(s, cell) > value_of(s, s->top) || isnan(value_of(s, s->top));
    if (raises)
        s->top = cell;
    return raises;
}

/* Up while values rise; if none was taken, down while less than the threshold is lost. */
static bool walk(struct search *s, size_t axis)
{
    const size_t first = s->at[axis], n = s->sweep->axes[axis].n_values;
    bool taken, rises = true;
    s->top = present_cell(s);
    for (size_t i = first + 1; rises && i < n; i++) {
        if (!try_value(s, axis, i, UP, &taken))
            return false;
        rises = raises_top(s, cell_beside(s, axis, i)) || taken;
    }
    if (isnan(value_of(s, present_cell(s)))) /* it went to the end, and found nothing */
        s->at[axis] = first;
    taken = s->at[axis] == first;
    while (taken && s->at[axis] > 0) {
        if (!try_value(s, axis, s->at[axis] - 1, DOWN, &taken))
            return false;
        raises_top(s, present_cell(s));
    }
    return true;
}

static bool try_all(struct search *s, size_t axis)
{
    bool taken;
    for (size_t i = 0; i < s->sweep->axes[axis].n_values; i++)
        if (i != s->at[axis] && !try_value(s, axis, i, ANYWHERE, &taken))
            return false;
    return true;
}

/* False: a value is missing. */
static bool go(struct search *s)
{
    bool taken;
    size_t before;
    if (!try_value(s, 0, 0, ANYWHERE, &taken))
        return false;
    do {
        before = present_cell(s);
        for (size_t axis = 0; axis < s->sweep->n_axes; axis++)
            if (!(is_ordered(s, axis) ? walk : try_all)(s, axis))
                return false;
        s->rounds++;
    } while (present_cell(s) != before && s->rounds < s->sweep->n_cells);
    return true;
}

/* ---- the document -------------------------------------------------------------------------- */

static void find_rows(struct search *s)
{
    dpb_each_item(json_object_get(s->document, "rows"), i, row)
        if (dpb_sweep_has(s->sweep, row))
            s->rows[(size_t)dpb_json_number(row, "cell_index")] = row;
}

static json_t *best_of(const struct search *s)
{
    const size_t cell = present_cell(s);
    if (s->trial[cell] == 0 || isnan(value_of(s, cell))) /* its runs may not be over */
        return json_null();
    return json_pack("{s:I, s:O, s:I}", "cell_index", (json_int_t)cell, "cell",
                     json_object_get(s->rows[cell], "cell"), "trial", (json_int_t)s->trial[cell]);
}

bool dpb_tune_next(const struct dpb_sweep *sweep, json_t *document, struct dpb_sweep_job *job,
                   bool *failed)
{
    struct search s = {
        .sweep = sweep,
        .document = document,
        .trials = json_array(),
        .at = calloc(sweep->n_axes, sizeof *s.at),
        .rows = calloc(sweep->n_cells, sizeof *s.rows),
        .trial = calloc(sweep->n_cells, sizeof *s.trial),
    };
    bool over = false;
    *failed = !s.trials || !s.at || !s.rows || !s.trial;
    if (!*failed) {
        dpb_sweep_make_rows(document);
        find_rows(&s);
        over = go(&s);
        if (!over)
            next_run(&s, s.missing, job);
        const bool rate = sweep->options.objective == DPB_OBJECTIVE_RATE;
        json_object_set_new(document, "tune",
                            json_pack("{s:s, s:f, s:I, s:b, s:I, s:o, s:O}",                  //
                                      "objective", rate ? "samples_per_s" : "time_to_target", //
                                      "threshold", sweep->options.threshold / 100,            //
                                      "cells", (json_int_t)sweep->n_cells, "ended", over,     //
                                      "rounds", (json_int_t)s.rounds, "best", best_of(&s), "trials",
                                      s.trials));
    }
    json_decref(s.trials);
    free(s.at);
    free((void *)s.rows);
    free(s.trial);
    return !over && !*failed;
}
