/* tune_print.c - see tune_print.h. */
#include "study/table/tune_print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "study/document/rates.h"
#include "study/table/table.h"

size_t dpb_tune_trials(const json_t *document)
{
    return json_array_size(dpb_json_at(document, "tune.trials"));
}

/* ---- lines --------------------------------------------------------------------------------- */

static bool for_target(const json_t *document)
{
    return dpb_json_is(document, "tune.objective", "time_to_target");
}

/* The axes' values, or, without a cell, their names. */
static void add_cell(struct dpb_text *line, const json_t *document, const json_t *cell)
{
    dpb_each_member(json_object_get(document, "axes"), axis, values) {
        size_t width = strlen(axis);
        dpb_each_item(values, i, value) {
            size_t length = strlen(dpb_json_text(value, "", ""));
            width = length > width ? length : width;
        }
        const char *text = cell ? dpb_json_text(json_object_get(cell, axis), "", "?") : axis;
        dpb_text_add(line, "  %-*s", (int)width, text);
    }
}

static void add_gain(struct dpb_text *line, const json_t *trial)
{
    const double low = dpb_json_number(trial, "low"), gain = dpb_json_number(trial, "gain");
    if (!isfinite(gain))
        return;
    dpb_text_add(line, "  %+6.1f %%", 100 * gain);
    if (isfinite(low))
        dpb_text_add(line, " [%+.1f..%+.1f]", 100 * low, 100 * dpb_json_number(trial, "high"));
    dpb_text_add(line, " over %.0f", dpb_json_number(trial, "over"));
}

/* Why the row of a trial has no value. */
static void add_failure(struct dpb_text *line, const json_t *document, const json_t *row)
{
    char text[DPB_TABLE_FAILURE];
    dpb_table_failure(row, text, sizeof text);
    if (dpb_json_number(row, "failed_runs") == 0 && for_target(document))
        snprintf(text, sizeof text, "%.0f of %.0f runs reached the target",
                 dpb_json_number(row, "to_target.reached"), dpb_json_number(row, "to_target.of"));
    text[strcspn(text, "\n")] = '\0';
    dpb_text_add(line, "  %s", text);
}

void dpb_tune_line(const json_t *document, long trial, char *text, size_t capacity)
{
    struct dpb_text line = dpb_text_in(text, capacity);
    char doubts[256];
    if (trial < 0) {
        dpb_text_add(&line, "trial");
        add_cell(&line, document, NULL);
        dpb_text_add(&line, "  %12s  taken      gain",
                     for_target(document) ? "to target" : "samples/s");
        return;
    }
    const json_t *one = json_array_get(dpb_json_at(document, "tune.trials"), (size_t)trial);
    const json_t *row = dpb_json_find(json_object_get(document, "rows"), "cell_index",
                                      json_object_get(one, "cell_index"));
    const double value = dpb_json_number(one, "value");
    dpb_text_add(&line, "%5ld", trial + 1);
    add_cell(&line, document, json_object_get(one, "cell"));
    if (!isfinite(value)) {
        add_failure(&line, document, row);
        return;
    }
    dpb_text_add(&line, "  %10.1f%s  %-5s", value, for_target(document) ? " s" : "  ",
                 dpb_json_true(one, "taken") ? "yes" : "no");
    add_gain(&line, one);
    dpb_rates_doubts(row, DPB_DOUBT_ONCE, doubts, sizeof doubts);
    if (doubts[0] != '\0')
        dpb_text_add(&line, "  (%s)", doubts);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static size_t section_of(const char *axis)
{
    return strcspn(axis, ".");
}

/* Each section once, with all of its keys. */
static void print_setting(const json_t *cell, FILE *out)
{
    dpb_each_member(cell, axis, value) {
        const size_t length = section_of(axis);
        bool first = true, before = true;
        dpb_each_member(cell, other, ignored) {
            before &= strcmp(other, axis) != 0;
            if (before && section_of(other) == length && strncmp(other, axis, length) == 0)
                first = false;
        }
        if (!first)
            continue;
        fprintf(out, "[%.*s]\n", (int)length, axis);
        dpb_each_member(cell, other, ignored)
            if (section_of(other) == length && strncmp(other, axis, length) == 0)
                fprintf(out, "%s = %s\n", other + length + 1, dpb_json_text(ignored, "", ""));
    }
}

static bool any_interval(const json_t *tune)
{
    bool any = false;
    dpb_each_item(json_object_get(tune, "trials"), i, trial)
        any |= isfinite(dpb_json_number(trial, "low"));
    return any;
}

void dpb_tune_print_best(const json_t *document, FILE *out)
{
    const json_t *tune = json_object_get(document, "tune"), *best = json_object_get(tune, "best");
    const bool ended = dpb_json_true(tune, "ended");
    const size_t n = dpb_tune_trials(document);
    const double cells = dpb_json_number(tune, "cells");
    fprintf(out, "\n%zu trial%s of %.0f cell%s; ", n, n == 1 ? "" : "s", cells,
            cells == 1 ? "" : "s");
    if (!json_is_object(best)) {
        fprintf(out, "no setting has a value%s\n", ended ? "" : " yet");
        return;
    }
    const double number = dpb_json_number(best, "trial");
    const json_t *trial =
        json_array_get(json_object_get(tune, "trials"), dpb_json_index(best, "trial") - 1);
    fprintf(out, "%s: trial %.0f, %.1f %s\n\n", ended ? "the best setting" : "the best so far",
            number, dpb_json_number(trial, "value"),
            for_target(document) ? "s to the target" : "samples/s");
    print_setting(json_object_get(best, "cell"), out);
    fprintf(out,
            "\nTaken: the search went on from there. A later value of an ordered axis is taken\n"
            "where it gains more than %g %%, one before while no more than that is lost; of other\n"
            "axes the best value.\n",
            100 * dpb_json_number(tune, "threshold"));
    if (any_interval(tune))
        fputs("With several repeats a gain counts where its interval excludes 0, too.\n", out);
}

void dpb_tune_print(const json_t *document, FILE *out)
{
    char line[DPB_TUNE_LINE];
    for (long trial = -1; trial < (long)dpb_tune_trials(document); trial++) {
        dpb_tune_line(document, trial, line, sizeof line);
        fprintf(out, "%s\n", line);
    }
}
