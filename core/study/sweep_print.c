/* sweep_print.c - the table of a sweep for people, and how to read it; from the document alone. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/host.h"
#include "study/json.h"
#include "study/merge.h"
#include "study/rates.h"
#include "study/sweep.h"
#include "study/table.h"
#include "study/target.h"
#include "study/tune.h"
#include "study/why.h"

enum { CELL = DPB_TABLE_CELL, NOTE = 8192 };

enum column {
    STRATEGY = DPB_TABLE_STRATEGY,
    LABEL = DPB_TABLE_LABEL,
    WORKERS = DPB_TABLE_WORKERS,
    RATE = DPB_TABLE_NEXT,
    INTERVAL,
    SPEEDUP,
    EFFICIENCY,
    EXPOSED,
    BYTES,
    CODING,
    LOSS,
    ACCURACY,
    VERIFIED,
    COLUMNS
};
static const char *const titles[COLUMNS] = {
    "strategy", "label",   "workers", "samples/s", "interval", "speedup", "effic.",
    "exposed",  "of fp32", "coding",  "loss",      "accuracy", "verified"};

static bool has_text(const json_t *row, const char *path, const char *text)
{
    return strcmp(dpb_json_text(row, path, ""), text) == 0;
}

static bool is_failed(const json_t *row)
{
    return !isfinite(dpb_json_number(row, "samples_per_s.median"));
}

/* ---- cells --------------------------------------------------------------------------------- */

static void print_rate(char *text, double rate)
{
    snprintf(text, CELL, rate < 1000 ? "%.1f" : "%.0f", rate);
}

DPB_PRINTF(3, 4) static void print_if(char *text, double value, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (isfinite(value))
        vsnprintf(text, CELL, format, list);
    else
        snprintf(text, CELL, "-");
    va_end(list);
}

static const char *verified_text(const json_t *row)
{
    const json_t *verified = json_object_get(row, "verified");
    if (json_is_null(verified))
        return "n/a";
    if (!json_is_true(verified))
        return "NO";
    return json_is_true(json_object_get(row, "proved")) ? "proved" : "yes";
}

static bool fill_line(struct dpb_table_line *line)
{
    const json_t *row = line->row;
    char low[16], high[16], interval[34] = "-";
    double speedup = dpb_json_number(row, "speedup");
    bool own_baseline = has_text(row, "speedup_over", "same strategy, 1 worker");
    line->failed = is_failed(row);
    snprintf(line->text[STRATEGY], CELL, "%.20s", dpb_json_text(row, "strategy", "?"));
    snprintf(line->text[LABEL], CELL, "%.20s", dpb_json_text(row, "consistency", "?"));
    print_if(line->text[WORKERS], dpb_json_number(row, "workers"), "%.0f%s",
             dpb_json_number(row, "workers"),
             json_is_true(json_object_get(row, "oversubscribed")) ? "!" : "");
    print_rate(line->text[RATE], dpb_json_number(row, "samples_per_s.median"));
    if (isfinite(dpb_json_number(row, "samples_per_s.low"))) {
        const char *format = dpb_json_number(row, "samples_per_s.high") < 1000 ? "%.1f" : "%.0f";
        snprintf(low, sizeof low, format, dpb_json_number(row, "samples_per_s.low"));
        snprintf(high, sizeof high, format, dpb_json_number(row, "samples_per_s.high"));
        snprintf(interval, sizeof interval, "%s..%s", low, high);
    }
    snprintf(line->text[INTERVAL], CELL, "%s%s%s%s%s", interval,
             json_is_true(json_object_get(row, "too_short")) ? "<" : "",
             json_is_true(json_object_get(row, "gated")) &&
                     !json_is_true(json_object_get(row, "steady"))
                 ? "~"
                 : "",
             json_is_true(json_object_get(row, "disturbed")) ? "?" : "",
             json_is_true(json_object_get(row, "throttled")) ? "^" : "");
    print_if(line->text[SPEEDUP], speedup, "%.2f%s", speedup, own_baseline ? "*" : "");
    print_if(line->text[EFFICIENCY], dpb_json_number(row, "efficiency"), "%.0f %%",
             100 * dpb_json_number(row, "efficiency"));
    print_if(line->text[EXPOSED], dpb_json_number(row, "comm_exposed_share"), "%.1f %%",
             100 * dpb_json_number(row, "comm_exposed_share"));
    print_if(line->text[BYTES], dpb_json_number(row, "codec.ratio"), "%.1f %%",
             100 * dpb_json_number(row, "codec.ratio"));
    const double encode_ns = dpb_json_number(row, "codec.encode_ns"),
                 decode_ns = dpb_json_number(row, "codec.decode_ns");
    print_if(line->text[CODING], encode_ns, isfinite(decode_ns) ? "%.3g+%.3g ms" : "%.3g+? ms",
             encode_ns / 1e6, decode_ns / 1e6);
    print_if(line->text[LOSS], dpb_json_number(row, "loss"), "%.4f", dpb_json_number(row, "loss"));
    print_if(line->text[ACCURACY], dpb_json_number(row, "accuracy"), "%.2f %%",
             100 * dpb_json_number(row, "accuracy"));
    snprintf(line->text[VERIFIED], CELL, "%s", verified_text(row));
    return true;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* Labels where they differ, and no column of an unknown number alone. */
static bool has_content(const struct dpb_table_line *lines, size_t n, size_t column)
{
    const char *label = NULL;
    for (size_t i = 0; i < n; i++) {
        if (lines[i].failed)
            continue;
        const char *text = lines[i].text[column];
        if (column != LABEL && strcmp(text, "-") != 0)
            return true;
        if (column == LABEL && label && strcmp(text, label) != 0)
            return true;
        label = text;
    }
    return column == STRATEGY;
}

/* False: out of memory. */
static bool table_make(const json_t *document, struct dpb_table *table)
{
    const bool made = dpb_table_make(document, titles, COLUMNS, fill_line, table);
    for (size_t c = 0; c < COLUMNS; c++)
        table->shown[c] = has_content(table->lines, table->n, c);
    return made;
}

/* ---- notes --------------------------------------------------------------------------------- */

/* One paragraph a line: dpb_sweep_print breaks them. */
static void print_paragraph(const char *text, FILE *out)
{
    fprintf(out, "%s\n", text);
}

DPB_PRINTF(2, 3) static void print_note(FILE *out, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    print_paragraph(text, out);
}

/* A note that grows; what does not fit is left out. */
struct note {
    char text[NOTE];
    size_t length;
};

DPB_PRINTF(2, 3) static void add(struct note *note, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(note->text + note->length, sizeof note->text - note->length, format, list);
    va_end(list);
    size_t length = note->length + (n > 0 ? (size_t)n : 0);
    note->length = length < sizeof note->text ? length : sizeof note->text - 1;
}

/* ---- conclusions --------------------------------------------------------------------------- */

static bool is_candidate(const json_t *row, double workers, const char *group)
{
    char own[DPB_SWEEP_GROUP];
    dpb_sweep_group(row, own, sizeof own);
    return !is_failed(row) && dpb_json_number(row, "workers") == workers && strcmp(own, group) == 0;
}

static bool is_faster(const json_t *row, const json_t *other)
{
    return !other || dpb_json_number(row, "samples_per_s.median") >
                         dpb_json_number(other, "samples_per_s.median");
}

static bool is_bound(const json_t *row)
{
    return has_text(row, "consistency", "none");
}

/* Whether a rate among the rows of one group and number of workers allows no conclusion: then says
 * whose, and why. */
static bool note_doubts(const struct dpb_table_line *lines, size_t n, double workers,
                        const char *group, FILE *out)
{
    struct note note = {.length = 0};
    for (size_t i = 0; i < DPB_DOUBTS; i++) {
        const char *reason = NULL;
        for (size_t k = 0; k < n; k++) {
            const json_t *row = lines[k].row;
            const char *own = is_candidate(row, workers, group) ? dpb_rates_doubt(row, i) : NULL;
            if (!own)
                continue;
            add(&note, "%s%s",
                reason            ? ", "
                : note.length > 0 ? "; "
                                  : "",
                dpb_json_text(row, "strategy", "?"));
            reason = own;
        }
        if (reason)
            add(&note, " %s", reason);
    }
    if (note.length > 0)
        print_note(out, "- %s%s%.0f worker%s: no conclusion (%s).", group, group[0] ? ": " : "",
                   workers, workers == 1 ? "" : "s", note.text);
    return note.length > 0;
}

static enum dpb_shown add_ratio(struct note *note, const json_t *document, const json_t *a,
                                const json_t *b)
{
    struct dpb_comparison c;
    char ratio[64], verdict[64];
    dpb_rates_compare(document, a, document, b, DPB_MARGIN, &c);
    dpb_rates_ratio(&c, ratio, sizeof ratio);
    dpb_comparison_text(&c, verdict, sizeof verdict);
    add(note, "%s %s", ratio, verdict);
    return c.outcome;
}

/* "; shm / replicated 0.990 [0.970..1.010] equal within 5 %": all others by `first`. *shown: how
 * many are shown to be slower; *apart: whether they have several labels. Returns their number. */
static size_t add_others(struct note *note, const json_t *document,
                         const struct dpb_table_line *lines, size_t n, const json_t *first,
                         const char *group, size_t *shown, bool *apart)
{
    size_t n_others = 0;
    *shown = 0;
    *apart = false;
    for (size_t i = 0; i < n; i++) {
        const json_t *row = lines[i].row;
        if (row == first || is_bound(row) ||
            !is_candidate(row, dpb_json_number(first, "workers"), group))
            continue;
        add(note, "; %s / %s ", dpb_json_text(row, "strategy", "?"),
            dpb_json_text(first, "strategy", "?"));
        *shown += add_ratio(note, document, first, row) == DPB_SLOWER;
        *apart |= !has_text(row, "consistency", dpb_json_text(first, "consistency", ""));
        n_others++;
    }
    return n_others;
}

/* Which strategy is fastest among the rows of one group and number of workers. */
static void note_fastest(const json_t *document, const struct dpb_table_line *lines, size_t n,
                         const json_t *like, const char *group, FILE *out)
{
    double workers = dpb_json_number(like, "workers");
    const json_t *first = NULL, *bound = NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *row = lines[i].row;
        if (!is_candidate(row, workers, group))
            continue;
        if (is_bound(row))
            bound = is_faster(row, bound) ? row : bound;
        else if (is_faster(row, first))
            first = row;
    }
    struct note others = {.length = 0}, note = {.length = 0};
    size_t n_shown = 0;
    bool apart = false;
    size_t n_others =
        first ? add_others(&others, document, lines, n, first, group, &n_shown, &apart) : 0;
    if (!first || (n_others == 0 && !bound) || note_doubts(lines, n, workers, group, out))
        return;
    const char *name = dpb_json_text(first, "strategy", "?");
    add(&note, "- %s%s%.0f worker%s: ", group, group[0] ? ": " : "", workers,
        workers == 1 ? "" : "s");
    if (n_others > 0)
        add(&note, "%s%s%s%s", name,
            n_shown == n_others ? " is fastest" : " is first, but not shown to be the fastest",
            apart ? " across labels, which do not compute the same" : "", others.text);
    if (bound) {
        add(&note, "%s%s / %s ", n_others > 0 ? "; " : "", name,
            dpb_json_text(bound, "strategy", "?"));
        if (add_ratio(&note, document, bound, first) == DPB_FASTER)
            add(&note, " (more than can be: the machine was not the same)");
    }
    add(&note, ".");
    print_paragraph(note.text, out);
}

/* One note for each group and number of workers. */
static void note_winners(const json_t *document, const struct dpb_table_line *lines, size_t n,
                         FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        char group[DPB_SWEEP_GROUP], other[DPB_SWEEP_GROUP];
        bool seen = lines[i].failed;
        dpb_sweep_group(lines[i].row, group, sizeof group);
        for (size_t k = 0; k < i && !seen; k++) {
            dpb_sweep_group(lines[k].row, other, sizeof other);
            seen = !lines[k].failed && strcmp(group, other) == 0 &&
                   dpb_json_number(lines[k].row, "workers") ==
                       dpb_json_number(lines[i].row, "workers");
        }
        if (!seen)
            note_fastest(document, lines, n, lines[i].row, group, out);
    }
}

/* Whether two rows differ in the axis alone. */
static bool is_pair(const json_t *a, const json_t *b, const char *axis)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(a, "cell"), key, value)
    {
        bool same = json_equal(value, json_object_get(json_object_get(b, "cell"), key));
        if (same == (strcmp(key, axis) == 0))
            return false;
    }
    return true;
}

/* "shm, 2 workers, run.precision = bf16": a cell without one axis. */
static void add_cell(struct note *note, const json_t *row, const char *axis)
{
    const char *key, *gap = "";
    json_t *value;
    json_object_foreach(json_object_get(row, "cell"), key, value)
    {
        const char *text = dpb_json_text(value, "", "?");
        if (strcmp(key, axis) == 0)
            continue;
        if (strcmp(key, "comm.name") == 0)
            add(note, "%s%s ", gap, text);
        else if (strcmp(key, "run.workers") == 0)
            add(note, "%s%s worker%s ", gap, text, strcmp(text, "1") == 0 ? "" : "s");
        else
            add(note, "%s%s = %s ", gap, key, text);
        note->length -= 1; /* the comma follows the word */
        gap = ", ";
    }
    if (gap[0] != '\0')
        add(note, " ");
}

/* Row `b` by row `a`, which differ in one axis. */
static void add_effect(struct note *note, const json_t *document, const json_t *a, const json_t *b)
{
    const char *doubt = NULL;
    for (size_t i = 0; i < DPB_DOUBTS && !doubt; i++) {
        doubt = dpb_rates_doubt(a, i);
        doubt = doubt ? doubt : dpb_rates_doubt(b, i);
    }
    if (!doubt)
        add_ratio(note, document, a, b);
    else
        add(note, "%.3f no conclusion (%s)",
            dpb_json_number(b, "samples_per_s.median") / dpb_json_number(a, "samples_per_s.median"),
            doubt);
}

/* Of every value of an axis by the first, in all cells that are otherwise the same. */
static void note_axis(const json_t *document, const struct dpb_table_line *lines, size_t n,
                      const char *axis, const json_t *values, FILE *out)
{
    const char *base = dpb_json_text(json_array_get(values, 0), "", "");
    for (size_t v = 1; v < json_array_size(values); v++) {
        const json_t *value = json_array_get(values, v);
        struct note note = {.length = 0};
        size_t n_pairs = 0;
        add(&note, "- %s %s / %s: ", axis, dpb_json_text(value, "", "?"), base);
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < n; i++) {
                const json_t *a = lines[i].row, *b = lines[k].row;
                const json_t *of_a = json_object_get(json_object_get(a, "cell"), axis);
                if (is_failed(a) || is_failed(b) || !is_pair(a, b, axis) ||
                    !json_equal(json_object_get(json_object_get(b, "cell"), axis), value) ||
                    strcmp(dpb_json_text(of_a, "", ""), base) != 0)
                    continue;
                add(&note, "%s", n_pairs++ > 0 ? "; " : "");
                add_cell(&note, a, axis);
                add_effect(&note, document, a, b);
            }
        add(&note, ".");
        if (n_pairs > 0)
            print_paragraph(note.text, out);
    }
}

/* The strategies' effect is that of note_winners. */
static void note_effects(const json_t *document, const struct dpb_table_line *lines, size_t n,
                         FILE *out)
{
    const char *axis;
    json_t *values;
    json_object_foreach(json_object_get(document, "axes"), axis, values)
    {
        if (strcmp(axis, "comm.name") != 0)
            note_axis(document, lines, n, axis, values, out);
    }
}

/* ---- why a row is not faster ---------------------------------------------------------------- */

/* The runs that a row is made from; `found` has room for all. Their number. */
static size_t runs_of(const json_t *document, const json_t *row, const json_t **found)
{
    const bool left_out = dpb_json_number(row, "disturbed_runs") > 0;
    const json_t *run;
    size_t n = 0, i;
    json_array_foreach(json_object_get(document, "runs"), i, run)
    {
        if (has_text(run, "purpose", "timing") && has_text(run, "status", "ok") &&
            json_equal(json_object_get(run, "cell"), json_object_get(row, "cell")) &&
            !(left_out && json_is_true(dpb_json_at(run, "load.disturbed"))))
            found[n++] = run;
    }
    return n;
}

/* What stands in all runs of a row. */
static void note_why(const json_t *document, const struct dpb_table_line *lines, size_t n,
                     FILE *out)
{
    const size_t most = json_array_size(json_object_get(document, "runs"));
    const json_t **runs = calloc(most + 1, sizeof *runs);
    for (size_t i = 0; i < n && runs; i++) {
        const size_t n_runs = lines[i].failed ? 0 : runs_of(document, lines[i].row, runs);
        char group[DPB_SWEEP_GROUP], text[DPB_WHY_SENTENCES][DPB_WHY_TEXT];
        const size_t n_texts = n_runs > 0 ? dpb_why_sentences(runs, n_runs, text) : 0;
        const double workers = dpb_json_number(lines[i].row, "workers");
        struct note note = {.length = 0};
        if (n_texts == 0)
            continue;
        dpb_sweep_group(lines[i].row, group, sizeof group);
        add(&note, "- why %s, %.0f worker%s%s%s is not faster: ",
            dpb_json_text(lines[i].row, "strategy", "?"), workers, workers == 1 ? "" : "s",
            group[0] ? ", " : "", group);
        for (size_t k = 0; k < n_texts; k++)
            add(&note, "%s%s", k > 0 ? "; " : "", text[k]);
        add(&note, ".");
        print_paragraph(note.text, out);
    }
    free(runs);
}

/* ---- how to read it ------------------------------------------------------------------------ */

static bool any_line(const struct dpb_table_line *lines, size_t n, size_t column, char mark)
{
    for (size_t i = 0; i < n; i++)
        if (!lines[i].failed && strchr(lines[i].text[column], mark))
            return true;
    return false;
}

static void note_meanings(const json_t *document, const struct dpb_table_line *lines, size_t n,
                          FILE *out)
{
    double repeats = dpb_json_number(document, "repeats"),
           steps = dpb_json_number(document, "accuracy_steps");
    bool independent = false, repeated = false, single = false, bound = false, speedup = false;
    for (size_t i = 0; i < n; i++) {
        repeated |= dpb_json_number(lines[i].row, "runs") > 1;
        single |= dpb_json_number(lines[i].row, "runs") == 1;
        bound |= is_bound(lines[i].row);
        speedup |= isfinite(dpb_json_number(lines[i].row, "speedup"));
        independent |= has_text(lines[i].row, "speedup_over", "independent, 1 worker");
    }
    struct note note = {.length = 0};
    if (json_object_get(document, "merged"))
        add(&note, "- samples/s: median of a row's runs");
    else
        add(&note, "- samples/s: median of %.0f repeat%s", repeats, repeats == 1 ? "" : "s");
    add(&note, "; interval: 95 %% of the %s",
        !repeated ? "run's mean, by its steps"
        : single  ? "mean of the repeats (of one: by its steps)"
                  : "mean of the repeats");
    if (speedup)
        add(&note,
            "; speedup: over %s with one worker, same cores a worker and batch%s; effic. = "
            "speedup / workers",
            independent ? "independent" : "the same strategy",
            independent && any_line(lines, n, SPEEDUP, '*') ? " (*: over the same strategy)" : "");
    add(&note, ".");
    print_paragraph(note.text, out);
    note.length = 0;
    add(&note,
        "- exposed: share of the step in which computing waits for communication; loss: mean over "
        "the last tenth of the first %.0f samples",
        dpb_json_number(document, "loss_samples"));
    if (steps > 0 && isfinite(dpb_json_number(document, "accuracy_workers")))
        add(&note, "; accuracy: of the test set after %.0f steps with %.0f workers", steps,
            dpb_json_number(document, "accuracy_workers"));
    add(&note, ".%s",
        bound ? " independent never exchanges: an upper bound, no training of one model." : "");
    print_paragraph(note.text, out);
    if (has_content(lines, n, BYTES))
        print_note(out, "- of fp32: messages of the codec, of the bytes of the gradients; coding: "
                        "a worker encodes + decodes a step for so long.");
    if (has_content(lines, n, LABEL))
        print_note(out, "- label: which updates a strategy makes; strategies of different labels "
                        "do not train the same way.");
    if (any_line(lines, n, WORKERS, '!'))
        print_note(out, "- !: more processes or data threads than cores; these rates say little.");
    if (any_line(lines, n, INTERVAL, '<'))
        print_note(out, "- <: some runs timed less than 10 steps or 0.5 s: too short to conclude.");
    if (any_line(lines, n, INTERVAL, '~'))
        print_note(out, "- ~: some runs were timed before their steps were steady.");
    if (any_line(lines, n, INTERVAL, '?'))
        print_note(out,
                   "- ?: other processes, a quota or heat took a part of the job's cores during "
                   "all runs; their warnings[] say how much.");
    if (any_line(lines, n, INTERVAL, '^'))
        print_note(out, "- ^: power, heat or the like held the clocks of a GPU down during some "
                        "runs; their warnings[] say what and for how long.");
}

static void print_warnings(const json_t *document, FILE *out)
{
    const json_t *warning;
    size_t i;
    json_array_foreach(json_object_get(document, "warnings"), i, warning)
    {
        print_note(out, "warning: %s: %s", dpb_json_text(warning, "code", "?"),
                   dpb_json_text(warning, "text", "?"));
    }
    if (!has_text(document, "status", "ok"))
        print_note(out, "%s: %s", dpb_json_text(document, "status", "?"),
                   dpb_json_text(document, "error", "what was measured until then"));
}

static void note_launch(const json_t *document, FILE *out)
{
    const char *launch = dpb_json_text(document, "config.sweep.launch.value", "");
    const json_t *run;
    size_t i;
    json_array_foreach(json_object_get(document, "runs"), i, run)
    {
        const char *launcher = dpb_json_text(run, "world.launcher", NULL);
        if (launch[0] == '\0' || !launcher)
            continue;
        print_note(out, "- launcher: %s, by sweep.launch = %s.", launcher, launch);
        return;
    }
}

static void print_notes(const json_t *document, const struct dpb_table *table, FILE *out)
{
    const struct dpb_table_line *lines = table->lines;
    const size_t n = table->n;
    if (n > 0) {
        note_winners(document, lines, n, out);
        note_effects(document, lines, n, out);
        note_why(document, lines, n, out);
        note_meanings(document, lines, n, out);
        note_launch(document, out);
        dpb_target_notes(document, out);
    }
    print_warnings(document, out);
}

/* ---- the two forms ------------------------------------------------------------------------- */

/* Breaks a paragraph at white space. */
static void print_wrapped(char *text, FILE *out)
{
    size_t column = 0;
    char *state = NULL;
    for (char *word = strtok_r(text, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
        size_t length = strlen(word);
        if (column > 0 && column + 1 + length > DPB_TABLE_WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        column += (size_t)fprintf(out, "%s%s", column > 0 ? " " : "", word);
    }
    fputc('\n', out);
}

/* Breaks what `print` writes, a paragraph a line. */
static void wrap(void (*print)(const json_t *document, FILE *out), const json_t *document,
                 FILE *out)
{
    size_t length;
    char *notes = NULL, *state = NULL;
    FILE *memory = open_memstream(&notes, &length);
    if (memory) {
        print(document, memory);
        fclose(memory);
    }
    for (char *note = notes ? strtok_r(notes, "\n", &state) : NULL; note;
         note = strtok_r(NULL, "\n", &state))
        print_wrapped(note, out);
    free(notes);
}

void dpb_sweep_print_best(const json_t *document, FILE *out)
{
    dpb_tune_print_best(document, out);
    wrap(print_warnings, document, out);
}

void dpb_sweep_print(const json_t *document, FILE *out)
{
    struct dpb_table table;
    if (dpb_tune_is(document)) {
        dpb_tune_print(document, out);
        dpb_sweep_print_best(document, out);
        return;
    }
    wrap(dpb_merge_notes, document, out);
    fputs(json_object_get(document, "merged") ? "\n" : "", out);
    if (table_make(document, &table) && table.n > 0) {
        dpb_table_print(&table, out);
        fputc('\n', out);
        dpb_target_print(document, out);
    }
    dpb_table_release(&table);
    wrap(dpb_sweep_notes, document, out);
}

json_t *dpb_sweep_table(const json_t *document)
{
    struct dpb_table table;
    json_t *json = table_make(document, &table) ? dpb_table_to_json(&table) : NULL;
    dpb_table_release(&table);
    return json;
}

void dpb_sweep_notes(const json_t *document, FILE *out)
{
    struct dpb_table table;
    if (table_make(document, &table))
        print_notes(document, &table, out);
    dpb_table_release(&table);
}
