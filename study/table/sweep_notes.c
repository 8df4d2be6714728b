/* sweep_notes.c - the findings of a sweep's table and how to read it; a paragraph a line. */
#include "study/table/sweep_notes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/derive.h"
#include "record/why.h"
#include "study/document/core_latency.h"
#include "study/document/learning.h"
#include "study/document/published.h"
#include "study/document/quantity.h"
#include "study/document/rates.h"
#include "study/document/rows.h"
#include "study/document/spill.h"
#include "study/document/target.h"
#include "study/table/sweep_table.h"
#include "study/table/target_print.h"

enum { NOTE = 8192 };

/* The material of the notes. */
struct notes {
    const json_t *document;
    const struct dpb_table *table;
    FILE *out;
    double repeat_s; /* that a repeat of the sweep takes; NaN: not known */
};

static const char *strategy_of(const json_t *row)
{
    return dpb_json_text(row, "strategy", "?");
}

/* "run.batch = 16: 2 workers" */
static void add_place(struct dpb_text *note, const char *group, double workers)
{
    dpb_text_add(note, "%s%s%.0f worker%s", group, group[0] ? ": " : "", workers,
                 workers == 1 ? "" : "s");
}

/* ---- conclusions --------------------------------------------------------------------------- */

static bool is_candidate(const struct dpb_table_line *line, double workers, const char *group)
{
    return !line->failed && dpb_json_number(line->row, "workers") == workers &&
           strcmp(line->group, group) == 0;
}

static bool is_faster(const json_t *row, const json_t *other)
{
    return !other || dpb_json_number(row, "samples_per_s.median") >
                         dpb_json_number(other, "samples_per_s.median");
}

static bool is_bound(const json_t *row)
{
    return dpb_json_is(row, "consistency", "none");
}

/* Why the rows of one group and number of workers cannot be compared with the first of them. */
static void add_apart(struct dpb_text *note, const struct notes *notes, double workers,
                      const char *group)
{
    const json_t *first = NULL;
    const char *reason = NULL;
    for (size_t i = 0; i < notes->table->n && !reason; i++) {
        const struct dpb_table_line *line = &notes->table->lines[i];
        if (!is_candidate(line, workers, group))
            continue;
        first = first ? first : line->row;
        reason = dpb_rates_apart(first, line->row);
    }
    if (reason)
        dpb_text_item(note, "; ", "%s", reason);
}

/* " (shm did not learn)": a rate without training is worth little. */
static void add_unlearned(struct dpb_text *note, const json_t *a, const json_t *b)
{
    const json_t *const rows[] = {b, a};
    const bool alike = strcmp(strategy_of(a), strategy_of(b)) == 0;
    if (alike && dpb_learning_failed(a) != dpb_learning_failed(b))
        dpb_text_add(note, " (the %s did not learn)", dpb_learning_failed(b) ? "first" : "second");
    for (size_t i = 0; i < 2 && !alike; i++)
        if (dpb_learning_failed(rows[i]))
            dpb_text_add(note, " (%s did not learn)", strategy_of(rows[i]));
    if (alike && dpb_learning_failed(a) && dpb_learning_failed(b))
        dpb_text_add(note, " (neither did learn)");
}

/* ", accuracy +0.40 [-0.10..+0.90] points undecided: 11 seeds would tell": row `b` by row `a`,
 * where their runs were evaluated. False: nothing is added. */
static bool add_accuracy(struct dpb_text *note, const json_t *a, const json_t *b)
{
    struct dpb_quantity_comparison made;
    char change[64], verdict[64];
    if (is_bound(a) || is_bound(b) || !dpb_target_same_task(a, b) ||
        !dpb_quantity_compare(a, b, DPB_ACCURACY, dpb_quantities[DPB_ACCURACY].margin, true, &made))
        return false;
    dpb_quantity_change(&made, DPB_ACCURACY, change, sizeof change);
    dpb_quantity_text(&made, DPB_ACCURACY, verdict, sizeof verdict);
    dpb_text_add(note, ", accuracy %s %s", change, verdict);
    return true;
}

/* Accuracies do not depend on the rates: all rows of one group and number of workers by the first.
 */
static void note_accuracies(const struct notes *notes, double workers, const char *group)
{
    const json_t *first = NULL;
    for (size_t i = 0; i < notes->table->n; i++) {
        const struct dpb_table_line *line = &notes->table->lines[i];
        char text[NOTE];
        struct dpb_text note = dpb_text_in(text, sizeof text);
        if (!is_candidate(line, workers, group) || is_bound(line->row))
            continue;
        if (first && add_accuracy(&note, first, line->row))
            fprintf(notes->out, "; %s / %s%s", strategy_of(line->row), strategy_of(first),
                    text + 1); /* without the comma */
        first = first ? first : line->row;
    }
}

/* Whether a rate among the rows of one group and number of workers allows no conclusion: then says
 * whose, and why. */
static bool note_doubts(const struct notes *notes, double workers, const char *group)
{
    char text[NOTE], place[NOTE];
    struct dpb_text note = dpb_text_in(text, sizeof text);
    for (size_t i = 0; i < DPB_DOUBTS; i++) {
        const char *reason = NULL;
        for (size_t k = 0; k < notes->table->n; k++) {
            const struct dpb_table_line *line = &notes->table->lines[k];
            const char *own =
                is_candidate(line, workers, group) ? dpb_rates_doubt(line->row, i) : NULL;
            if (!own)
                continue;
            dpb_text_item(&note, reason ? ", " : "; ", "%s", strategy_of(line->row));
            reason = own;
        }
        if (reason)
            dpb_text_add(&note, " %s", reason);
    }
    add_apart(&note, notes, workers, group);
    if (note.length == 0)
        return false;
    struct dpb_text at = dpb_text_in(place, sizeof place);
    add_place(&at, group, workers);
    fprintf(notes->out, "- %s: no conclusion (%s)", place, text);
    note_accuracies(notes, workers, group);
    fputs(".\n", notes->out);
    return true;
}

/* " (published 0.94)": row `b` by row `a`, where both have a figure. */
static void add_published(struct dpb_text *note, const json_t *document, const json_t *a,
                          const json_t *b)
{
    const double ratio = dpb_published_speedup(document, b, a);
    if (isfinite(ratio))
        dpb_text_add(note, " (published %.3f)", ratio);
}

static enum dpb_shown add_ratio(struct dpb_text *note, const struct notes *notes, const json_t *a,
                                const json_t *b)
{
    struct dpb_comparison c;
    char ratio[64], verdict[64], effort[96];
    dpb_rates_compare(notes->document, a, notes->document, b, NULL, DPB_MARGIN, &c);
    dpb_rates_ratio(&c, ratio, sizeof ratio);
    dpb_comparison_text(&c, verdict, sizeof verdict);
    dpb_comparison_effort(&c, c.of_blocks ? dpb_rates_block_s(notes->document) : notes->repeat_s,
                          effort, sizeof effort);
    dpb_text_add(note, "%s %s%s", ratio, verdict, effort);
    add_published(note, notes->document, a, b);
    add_unlearned(note, a, b);
    add_accuracy(note, a, b);
    return c.outcome;
}

/* "; shm / replicated 0.990 [0.970..1.010] equal within 5 %": all others by `first`. *shown: how
 * many are shown to be slower; *apart: whether they have several labels. Returns their number. */
static size_t add_others(struct dpb_text *note, const struct notes *notes, const json_t *first,
                         const char *group, size_t *shown, bool *apart)
{
    size_t n_others = 0;
    *shown = 0;
    *apart = false;
    for (size_t i = 0; i < notes->table->n; i++) {
        const json_t *row = notes->table->lines[i].row;
        if (row == first || is_bound(row) ||
            !is_candidate(&notes->table->lines[i], dpb_json_number(first, "workers"), group))
            continue;
        dpb_text_add(note, "; %s / %s ", strategy_of(row), strategy_of(first));
        *shown += add_ratio(note, notes, first, row) == DPB_SLOWER;
        *apart |= !dpb_json_is(row, "consistency", dpb_json_text(first, "consistency", ""));
        n_others++;
    }
    return n_others;
}

/* Which strategy is fastest among the rows of one group and number of workers. */
static void note_fastest(const struct notes *notes, double workers, const char *group)
{
    const json_t *first = NULL, *bound = NULL;
    for (size_t i = 0; i < notes->table->n; i++) {
        const json_t *row = notes->table->lines[i].row;
        if (!is_candidate(&notes->table->lines[i], workers, group))
            continue;
        if (is_bound(row))
            bound = is_faster(row, bound) ? row : bound;
        else if (is_faster(row, first))
            first = row;
    }
    char of_others[NOTE], text[NOTE];
    struct dpb_text others = dpb_text_in(of_others, sizeof of_others),
                    note = dpb_text_in(text, sizeof text);
    size_t n_shown = 0;
    bool apart = false;
    size_t n_others = first ? add_others(&others, notes, first, group, &n_shown, &apart) : 0;
    if (!first || (n_others == 0 && !bound) || note_doubts(notes, workers, group))
        return;
    add_place(&note, group, workers);
    dpb_text_add(&note, ": ");
    if (n_others > 0)
        dpb_text_add(&note, "%s%s%s%s", strategy_of(first),
                     n_shown == n_others ? " is fastest"
                                         : " is first, but not shown to be the fastest",
                     apart ? " across labels, which do not compute the same" : "", of_others);
    if (bound) {
        dpb_text_add(&note, "%s%s / %s ", n_others > 0 ? "; " : "", strategy_of(first),
                     strategy_of(bound));
        if (add_ratio(&note, notes, bound, first) == DPB_FASTER)
            dpb_text_add(&note, " (more than can be: the machine was not the same)");
    }
    fprintf(notes->out, "- %s.\n", text);
}

/* One note for each group and number of workers. */
static void note_winners(const struct notes *notes)
{
    const struct dpb_table_line *lines = notes->table->lines;
    for (size_t i = 0; i < notes->table->n; i++) {
        const double workers = dpb_json_number(lines[i].row, "workers");
        bool seen = lines[i].failed;
        for (size_t k = 0; k < i && !seen; k++)
            seen = is_candidate(&lines[k], workers, lines[i].group);
        if (!seen)
            note_fastest(notes, workers, lines[i].group);
    }
}

/* Whether two rows differ in the axis alone. */
static bool is_pair(const json_t *a, const json_t *b, const char *axis)
{
    dpb_each_member(json_object_get(a, "cell"), key, value) {
        bool same = json_equal(value, json_object_get(json_object_get(b, "cell"), key));
        if (same == (strcmp(key, axis) == 0))
            return false;
    }
    return true;
}

/* "shm, 2 workers, run.precision = bf16 ": a cell without one axis. */
static void add_cell(struct dpb_text *note, const json_t *row, const char *axis)
{
    char text[NOTE];
    struct dpb_text cell = dpb_text_in(text, sizeof text);
    const bool learners = json_object_get(json_object_get(row, "cell"), "run.learners") ||
                          dpb_json_number(row, "learners") > 1;
    dpb_each_member(json_object_get(row, "cell"), key, value) {
        const char *is = dpb_json_text(value, "", "?");
        if (strcmp(key, axis) == 0)
            continue;
        if (strcmp(key, "comm.name") == 0)
            dpb_text_item(&cell, ", ", "%s", is);
        else if (strcmp(key, "run.workers") == 0)
            dpb_text_item(&cell, ", ", "%s %s%s", is, learners ? "place" : "worker",
                          strcmp(is, "1") == 0 ? "" : "s");
        else
            dpb_text_item(&cell, ", ", "%s = %s", key, is);
    }
    dpb_text_add(note, "%s%s", text, cell.length > 0 ? " " : "");
}

/* Row `b` by row `a`, which differ in one axis. */
static void add_effect(struct dpb_text *note, const struct notes *notes, const json_t *a,
                       const json_t *b)
{
    const char *doubt = NULL;
    for (size_t i = 0; i < DPB_DOUBTS && !doubt; i++) {
        doubt = dpb_rates_doubt(a, i);
        doubt = doubt ? doubt : dpb_rates_doubt(b, i);
    }
    doubt = doubt ? doubt : dpb_rates_apart(a, b);
    if (!doubt) {
        add_ratio(note, notes, a, b);
        return;
    }
    struct dpb_comparison c;
    dpb_rates_compare(notes->document, a, notes->document, b, NULL, DPB_MARGIN, &c);
    dpb_text_add(note, "%.3f no conclusion (%s)", c.ratio, doubt);
    add_published(note, notes->document, a, b);
    add_unlearned(note, a, b);
    add_accuracy(note, a, b);
}

/* The value of the axis in a row that has a rate; NULL: it has none. */
static const json_t *value_in(const struct dpb_table_line *line, const char *axis)
{
    return line->failed ? NULL : json_object_get(json_object_get(line->row, "cell"), axis);
}

/* Compares each value of an axis with the first, in all cells that are otherwise the same. */
static void note_axis(const struct notes *notes, const char *axis, const json_t *values)
{
    const struct dpb_table_line *lines = notes->table->lines;
    const size_t n = notes->table->n;
    const json_t *base = json_array_get(values, 0);
    for (size_t v = 1; v < json_array_size(values); v++) {
        const json_t *value = json_array_get(values, v);
        char text[NOTE];
        struct dpb_text note = dpb_text_in(text, sizeof text);
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < n; i++) {
                const json_t *a = lines[i].row, *b = lines[k].row;
                if (!json_equal(value_in(&lines[k], axis), value) ||
                    !json_equal(value_in(&lines[i], axis), base) || !is_pair(a, b, axis))
                    continue;
                dpb_text_add(&note, "%s", note.length > 0 ? "; " : "");
                add_cell(&note, a, axis);
                add_effect(&note, notes, a, b);
            }
        if (note.length > 0)
            fprintf(notes->out, "- %s %s / %s: %s.\n", axis, dpb_json_text(value, "", "?"),
                    dpb_json_text(base, "", ""), text);
    }
}

/* The strategies' effect is that of note_winners. */
static void note_effects(const struct notes *notes)
{
    dpb_each_member(json_object_get(notes->document, "axes"), axis, values)
        if (strcmp(axis, "comm.name") != 0)
            note_axis(notes, axis, values);
}

/* ---- why a row is not faster ---------------------------------------------------------------- */

/* The runs that a row is made from, with their explanations; `found` has room for all. Their
 * number. @owned */
static size_t runs_of(const json_t *document, const json_t *row, json_t **found)
{
    const bool left_out = dpb_json_number(row, "disturbed_runs") > 0;
    size_t n = 0;
    dpb_each_item(json_object_get(document, "runs"), i, run)
        if (dpb_sweep_is_of(run, row, "timing") &&
            !(left_out && dpb_json_true(run, "load.disturbed"))) {
            found[n] = json_copy(run);
            json_object_set_new(found[n++], "why", dpb_run_part(run, "why"));
        }
    return n;
}

/* The explanations that all runs of a row share. */
static void note_why(const struct notes *notes)
{
    const size_t most = json_array_size(json_object_get(notes->document, "runs"));
    json_t **runs = calloc(most + 1, sizeof *runs);
    for (size_t i = 0; i < notes->table->n && runs; i++) {
        const struct dpb_table_line *line = &notes->table->lines[i];
        const size_t n_runs = line->failed ? 0 : runs_of(notes->document, line->row, runs);
        char sentences[DPB_WHY_SENTENCES][DPB_WHY_TEXT], text[NOTE];
        const size_t n_sentences =
            n_runs > 0 ? dpb_why_sentences((const json_t *const *)runs, n_runs, sentences) : 0;
        const double workers = dpb_json_number(line->row, "workers");
        struct dpb_text note = dpb_text_in(text, sizeof text);
        for (size_t k = 0; k < n_sentences; k++)
            dpb_text_item(&note, "; ", "%s", sentences[k]);
        for (size_t k = 0; k < n_runs; k++)
            json_decref(runs[k]);
        if (n_sentences > 0)
            fprintf(notes->out, "- why %s, %.0f worker%s%s%s is not faster: %s.\n",
                    strategy_of(line->row), workers, workers == 1 ? "" : "s",
                    line->group[0] ? ", " : "", line->group, text);
    }
    free(runs);
}

/* ---- how to read it ------------------------------------------------------------------------ */

static bool has_mark(const struct dpb_table *table, size_t column, char mark)
{
    for (size_t i = 0; i < table->n; i++)
        if (!table->lines[i].failed && strchr(table->lines[i].text[column], mark))
            return true;
    return false;
}

static void note_marks(const struct notes *notes)
{
    static const struct {
        enum dpb_sweep_column column;
        const char *mark, *meaning;
    } marks[] = {
        {DPB_SWEEP_WORKERS, "x", "places x learners of each"},
        {DPB_SWEEP_WORKERS, "!",
         "too few cores for its processes or data threads; these rates say little"},
        {DPB_SWEEP_WORKERS, "&",
         "workers on one GPU took turns in some runs, as far as the driver tells; these rates say "
         "little of workers that run at once"},
        {DPB_SWEEP_INTERVAL, "<",
         "some runs timed less than 10 steps or 0.5 s: too short to conclude"},
        {DPB_SWEEP_INTERVAL, "~", "some runs were timed before their steps were steady"},
        {DPB_SWEEP_INTERVAL, "?",
         "other processes, a quota or heat took a part of the job's cores during all runs; their "
         "warnings[] say how much"},
        {DPB_SWEEP_INTERVAL, "^",
         "power, heat or the like held the clocks of a GPU down during some runs; their warnings[] "
         "say what and for how long"},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (has_mark(notes->table, marks[i].column, marks[i].mark[0]))
            fprintf(notes->out, "- %s: %s.\n", marks[i].mark, marks[i].meaning);
}

/* "speedup: over independent with one worker, ...": the rows' `speedup_over`. */
static void note_speedup(const struct notes *notes, const char *place)
{
    bool any = false, independent = false, same_base = true;
    double base = NAN;
    for (size_t i = 0; i < notes->table->n; i++) {
        const char *over = dpb_json_text(notes->table->lines[i].row, "speedup_over", "");
        const double workers = strtod(over + strcspn(over, "0123456789"), NULL);
        if (over[0] == '\0')
            continue;
        same_base &= !any || workers == base;
        base = workers;
        any = true;
        independent |= dpb_begins_with(over, "independent");
    }
    if (!any)
        return;
    fprintf(notes->out, "; speedup: over %s with ",
            independent ? "independent" : "the same strategy");
    if (same_base && base == 1)
        fputs("one worker", notes->out);
    else if (same_base)
        fprintf(notes->out, "%.0f workers, the smallest cell", base);
    else
        fputs("the fewest workers of each setting", notes->out);
    fprintf(notes->out, ", same cores a %s and batch%s; effic. = speedup / ", place,
            independent && has_mark(notes->table, DPB_SWEEP_SPEEDUP, '*')
                ? " (*: over the same strategy)"
                : "");
    if (same_base && base == 1)
        fprintf(notes->out, "%ss", place);
    else if (same_base && strcmp(place, "worker") == 0)
        fprintf(notes->out, "(workers / %.0f)", base);
    else
        fprintf(notes->out, "(%ss / the fewest)", place);
}

static void note_columns(const struct notes *notes)
{
    const json_t *document = notes->document;
    const char *place = has_mark(notes->table, DPB_SWEEP_WORKERS, 'x') ? "place" : "worker";
    bool repeated = false, single = false, turns = false;
    size_t n = 1, planned;
    for (size_t i = 0; i < notes->table->n; i++) {
        struct dpb_estimate estimate;
        turns |= json_is_object(json_object_get(notes->table->lines[i].row, "turns"));
        if (!notes->table->lines[i].failed)
            n = dpb_sweep_measured(notes->table->lines[i].row, &planned);
        dpb_rates_estimate(document, notes->table->lines[i].row, &estimate);
        repeated |= estimate.n > 1;
        single |= estimate.n == 1;
    }
    if (json_object_get(document, "merged"))
        fputs("- samples/s: median of a row's runs", notes->out);
    else if (notes->table->shown[DPB_SWEEP_N])
        fputs("- n: repeats that were measured undisturbed, of those planned; samples/s: their "
              "median",
              notes->out);
    else
        fprintf(notes->out, "- samples/s: median of %zu repeat%s", n, n == 1 ? "" : "s");
    fprintf(notes->out, "; interval: 95 %% of the %s",
            !repeated ? "run's mean, by its steps"
            : single  ? "mean of the repeats (of one: by its steps)"
                      : "mean of the repeats");
    if (turns)
        fputs("; a / b: of the ratios within blocks of turns", notes->out);
    else if (repeated)
        fputs("; a / b: ratio of these means, not of the medians", notes->out);
    note_speedup(notes, place);
    fputs(".\n", notes->out);
}

static void note_meanings(const struct notes *notes)
{
    const json_t *document = notes->document;
    const double steps = dpb_json_number(document, "accuracy_steps"),
                 workers = dpb_json_number(document, "accuracy_workers");
    bool bound = false;
    for (size_t i = 0; i < notes->table->n; i++)
        bound |= is_bound(notes->table->lines[i].row);
    note_columns(notes);
    dpb_published_note(document, notes->out);
    fputs("- exposed: share of the step in which computing waits for communication", notes->out);
    if (notes->table->shown[DPB_SWEEP_WAIT])
        fputs("; wait: its part for a late peer", notes->out);
    if (notes->table->shown[DPB_SWEEP_LOSS])
        fprintf(notes->out, "; loss: mean over the last tenth of the first %.0f samples",
                dpb_json_number(document, "loss_samples"));
    if (steps > 0 && notes->table->shown[DPB_SWEEP_ACCURACY]) {
        fprintf(notes->out, "; accuracy: of the test set after %.0f steps with ", steps);
        if (isfinite(workers))
            fprintf(notes->out, "%.0f worker%s", workers, workers == 1 ? "" : "s");
        else
            fputs("the strategy's most workers", notes->out);
    }
    fprintf(notes->out, ".%s\n",
            bound ? " independent never exchanges: an upper bound, no training of one model." : "");
    if (notes->table->shown[DPB_SWEEP_BYTES])
        fputs("- of fp32: messages of the codec, of the bytes of the gradients; coding: a worker "
              "encodes + decodes a step for so long.\n",
              notes->out);
    if (notes->table->shown[DPB_SWEEP_LABEL])
        fputs("- label: which updates a strategy makes; strategies of different labels do not "
              "train the same way.\n",
              notes->out);
    note_marks(notes);
}

/* Rows whose verdict is not `yes`, a line for each reason. */
static void note_verdicts(const struct notes *notes)
{
    const struct dpb_table_line *lines = notes->table->lines;
    for (size_t i = 0; i < notes->table->n; i++) {
        const char *verdict = dpb_json_text(lines[i].row, "verdict", "");
        const char *reason = dpb_json_text(lines[i].row, "verdict_reason", NULL);
        char text[NOTE];
        struct dpb_text rows = dpb_text_in(text, sizeof text);
        bool said = !reason;
        for (size_t k = 0; k < notes->table->n && !said; k++) {
            const json_t *row = lines[k].row;
            if (!dpb_json_is(row, "verdict", verdict) ||
                !dpb_json_is(row, "verdict_reason", reason))
                continue;
            said = k < i;
            const double workers = dpb_json_number(row, "workers");
            dpb_text_item(&rows, "; ", "%s, %.0f worker%s%s%s", strategy_of(row), workers,
                          workers == 1 ? "" : "s", lines[k].group[0] ? ", " : "", lines[k].group);
        }
        if (!said)
            fprintf(notes->out, "- %s: %s: %s.\n", verdict, text, reason);
    }
}

static void note_learning(const struct notes *notes)
{
    for (size_t i = 0; i < notes->table->n; i++) {
        const struct dpb_table_line *line = &notes->table->lines[i];
        const json_t *row = line->row;
        const double workers = dpb_json_number(row, "workers"),
                     end = dpb_json_number(row, "learning.end"),
                     chance = dpb_json_number(row, "learning.chance");
        if (line->failed || !dpb_learning_failed(row))
            continue;
        fprintf(notes->out, "- # did not learn: %s, %.0f worker%s%s%s: ", strategy_of(row), workers,
                workers == 1 ? "" : "s", line->group[0] ? ", " : "", line->group);
        if (isfinite(end))
            fprintf(notes->out, "its loss is %.3g after %.0f samples, and %.3g at its start", end,
                    dpb_json_number(row, "learning.samples"),
                    dpb_json_number(row, "learning.start"));
        else
            fputs("its loss diverged", notes->out);
        if (isfinite(chance))
            fprintf(notes->out, "; guessing has %.3g", chance);
        fputs(". Try another learning rate.\n", notes->out);
    }
}

/* What the rows emulate, a line for each profile. */
static void note_emulation(const struct notes *notes)
{
    const struct dpb_table_line *lines = notes->table->lines;
    for (size_t i = 0; i < notes->table->n; i++) {
        const json_t *emulated = json_object_get(lines[i].row, "emulated");
        const char *source = dpb_json_text(emulated, "source", NULL);
        bool said = !source;
        for (size_t k = 0; k < i && !said; k++)
            said = dpb_json_is(lines[k].row, "emulated.source", source);
        if (!said)
            fprintf(notes->out,
                    "- EMULATED, and no measurement of the accelerator: %s for %s, %s: %s.\n",
                    dpb_json_text(emulated, "accelerator", "?"),
                    dpb_json_text(emulated, "model", "?"), dpb_json_text(emulated, "kind", "?"),
                    source);
    }
}

/* Settings in which rows may differ without a column: those of one value of an axis, and derived
 * ones. */
static void note_settings(const struct notes *notes)
{
    const json_t *ran = NULL;
    char text[NOTE];
    struct dpb_text list = dpb_text_in(text, sizeof text);
    dpb_each_item(json_object_get(notes->document, "runs"), i, run)
        ran = !ran && dpb_json_is(run, "status", "ok") ? run : ran;
    dpb_each_member(json_object_get(notes->document, "config"), section, keys)
        dpb_each_member(keys, key, entry) {
            const char *dot = strchr(key, '.');
            if (dpb_begins_with(section, "sweep.") ||
                (strcmp(section, "sweep") == 0 && dot && strchr(dot + 1, '.')))
                dpb_text_item(&list, ", ", "%s.%s = %s", section, key,
                              dpb_json_text(entry, "value", "?"));
        }
    dpb_each_member(json_object_get(ran, "config"), section, keys)
        dpb_each_member(keys, key, entry) {
            const char *mark = strstr(dpb_json_text(entry, "origin", ""), DPB_DERIVED_MARK);
            if (mark)
                dpb_text_item(&list, ", ", "%s.%s =%.*s", section, key,
                              (int)strlen(mark) - (int)sizeof DPB_DERIVED_MARK,
                              mark + sizeof DPB_DERIVED_MARK - 1);
        }
    if (list.length > 0)
        fprintf(notes->out, "- rows differ in settings without a column: %s.\n", text);
}

/* "; 2 workers: ps_cpu / shm 1.015 [..] near, 0.942 [..] far"; nothing where the rows share too few
 * turns of a kind. */
static void add_parts(struct dpb_text *note, const struct notes *notes,
                      const struct dpb_core_latency *latency, const struct dpb_table_line *first,
                      const struct dpb_table_line *line)
{
    const double workers = dpb_json_number(line->row, "workers");
    char ratios[2][48];
    for (int far = 0; far < 2; far++) {
        struct dpb_comparison comparison = {0};
        json_t *a = dpb_core_latency_part(first->row, latency, far == 0),
               *b = dpb_core_latency_part(line->row, latency, far == 0);
        dpb_rates_compare(notes->document, a, notes->document, b, NULL, DPB_MARGIN, &comparison);
        dpb_rates_ratio(&comparison, ratios[far], sizeof ratios[far]);
        json_decref(a);
        json_decref(b);
        if (!comparison.of_blocks)
            return;
    }
    dpb_text_add(note, "; %.0f worker%s%s%s: %s / %s %s near, %s far", workers,
                 workers == 1 ? "" : "s", line->group[0] ? ", " : "", line->group,
                 strategy_of(line->row), strategy_of(first->row), ratios[0], ratios[1]);
}

/* The first row with the workers and the group of row i; it may be row i. */
static const struct dpb_table_line *first_of(const struct dpb_table *table, size_t i)
{
    const double workers = dpb_json_number(table->lines[i].row, "workers");
    size_t k = 0;
    while (k < i && !is_candidate(&table->lines[k], workers, table->lines[i].group))
        k++;
    return &table->lines[k];
}

static void note_core_latency(const struct notes *notes)
{
    struct dpb_core_latency latency;
    char text[NOTE];
    struct dpb_text note = dpb_text_in(text, sizeof text);
    if (!dpb_core_latency_changed(notes->document, &latency))
        return;
    dpb_text_add(&note,
                 "- the machine changed: from core to core it took %.0f ns in %zu %s (near) and "
                 "%.0f ns in %zu (far), as when a hypervisor moves its processors between caches",
                 latency.near_ns, latency.n_near, latency.turns ? "turns" : "starts of runs",
                 latency.far_ns, latency.n_far);
    for (size_t i = 0; i < notes->table->n && latency.turns; i++) {
        const struct dpb_table_line *line = &notes->table->lines[i],
                                    *first = first_of(notes->table, i);
        if (!line->failed && strcmp(strategy_of(first->row), strategy_of(line->row)) != 0)
            add_parts(&note, notes, &latency, first, line);
    }
    fprintf(notes->out, "%s.\n", text);
}

static void note_launch(const struct notes *notes)
{
    const char *launch = dpb_json_text(notes->document, "config.sweep.launch.value", "");
    dpb_each_item(json_object_get(notes->document, "runs"), i, run) {
        const char *launcher = dpb_json_text(run, "world.launcher", NULL);
        if (launch[0] == '\0' || !launcher)
            continue;
        fprintf(notes->out, "- launcher: %s, by sweep.launch = %s.\n", launcher, launch);
        return;
    }
}

void dpb_sweep_warnings(const json_t *document, FILE *out)
{
    const json_t *repeats = json_object_get(document, "repeats_of_disturbed");
    if (dpb_json_number(repeats, "runs") > 0)
        fprintf(out, "- repeats of disturbed runs: %.0f, which took %.1f s of at most %.1f s.\n",
                dpb_json_number(repeats, "runs"), dpb_json_number(repeats, "seconds"),
                dpb_json_number(repeats, "budget_s"));
    dpb_each_item(json_object_get(document, "warnings"), i, warning)
        fprintf(out, "warning: %s: %s\n", dpb_json_text(warning, "code", "?"),
                dpb_json_text(warning, "text", "?"));
    if (!dpb_json_is(document, "status", "ok"))
        fprintf(out, "%s: %s\n", dpb_json_text(document, "status", "?"),
                dpb_json_text(document, "error", "the runs until then"));
}

void dpb_sweep_notes(const json_t *document, FILE *out)
{
    struct dpb_table table;
    const struct notes notes = {document, &table, out, dpb_rates_repeat_s(document)};
    const bool made = dpb_sweep_table_make(document, &table);
    if (table.n > 0) {
        note_winners(&notes);
        note_effects(&notes);
        note_why(&notes);
        note_meanings(&notes);
        note_verdicts(&notes);
        note_learning(&notes);
        note_emulation(&notes);
        note_settings(&notes);
        note_core_latency(&notes);
        note_launch(&notes);
        dpb_target_notes(document, out);
    }
    if (made)
        dpb_sweep_warnings(document, out);
    dpb_table_release(&table);
}
