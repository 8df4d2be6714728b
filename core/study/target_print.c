/* target_print.c - the table of times to accuracy for people, and how to read it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/json.h"
#include "study/rates.h"
#include "study/sweep.h"
#include "study/target.h"

enum { WIDTH = 100, COLUMNS = 9, CELL = 64 };

enum column { STRATEGY, LABEL, WORKERS, RANK, REACHED, SECONDS, EPOCHS, SAMPLES, RATE };
static const char *const titles[COLUMNS] = {"strategy", "label",  "workers", "rank",     "reached",
                                            "seconds",  "epochs", "samples", "samples/s"};

struct line {
    char text[COLUMNS][CELL];
    const json_t *row;
};

/* The rows that have a target, in the order of the sweep's table. */
struct table {
    struct line *lines; /* @owned */
    size_t n;
    bool shown[COLUMNS];
};

static double number(const json_t *row, const char *path)
{
    return dpb_json_number(row, path);
}

/* ---- cells --------------------------------------------------------------------------------- */

static const char *print_number(char text[CELL], double value)
{
    if (value < 100000)
        snprintf(text, CELL, "%.*f", value < 1 ? 3 : value < 10 ? 2 : value < 1000 ? 1 : 0, value);
    else
        snprintf(text, CELL, value < 1e7 ? "%.0fk" : "%.0fM", value / (value < 1e7 ? 1e3 : 1e6));
    return text;
}

/* "61.3 [58.1..64.2]", or "> 61.3" where a run missed. */
static void print_part(const json_t *row, const char *part, bool with_interval, char *text)
{
    char value[CELL], low[CELL], high[CELL];
    const json_t *of = json_object_get(json_object_get(row, "to_target"), part);
    if (isfinite(number(of, "above")))
        snprintf(text, CELL, "> %.20s", print_number(value, number(of, "above")));
    else if (!isfinite(number(of, "mean")))
        snprintf(text, CELL, "-");
    else if (with_interval && isfinite(number(of, "low")))
        snprintf(text, CELL, "%.18s [%.18s..%.18s]", print_number(value, number(of, "mean")),
                 print_number(low, number(of, "low")), print_number(high, number(of, "high")));
    else
        print_number(text, number(of, "mean"));
}

static void fill_line(const json_t *row, bool narrow, struct line *line)
{
    line->row = row;
    snprintf(line->text[STRATEGY], CELL, "%.20s", dpb_json_text(row, "strategy", "?"));
    snprintf(line->text[LABEL], CELL, "%.20s", dpb_json_text(row, "consistency", "?"));
    snprintf(line->text[WORKERS], CELL, "%.0f", number(row, "workers"));
    snprintf(line->text[RANK], CELL, "-");
    if (isfinite(number(row, "to_target.rank")))
        snprintf(line->text[RANK], CELL, "%.0f", number(row, "to_target.rank"));
    snprintf(line->text[REACHED], CELL, "%.0f of %.0f", number(row, "to_target.reached"),
             number(row, "to_target.of"));
    print_part(row, "seconds", true, line->text[SECONDS]);
    print_part(row, "epochs", !narrow, line->text[EPOCHS]);
    print_part(row, "samples", true, line->text[SAMPLES]);
    print_part(row, "samples_per_s", false, line->text[RATE]);
}

/* ---- the table ----------------------------------------------------------------------------- */

static void table_release(struct table *table)
{
    free(table->lines);
}

/* Label and workers stand where they differ. */
static bool table_make(const json_t *document, bool narrow, struct table *table)
{
    const json_t *rows = json_object_get(document, "rows");
    const json_t **ordered = calloc(json_array_size(rows) + 1, sizeof *ordered);
    *table = (struct table){calloc(json_array_size(rows) + 1, sizeof *table->lines), 0, {0}};
    size_t n = ordered != NULL && table->lines != NULL ? dpb_sweep_order_rows(rows, ordered) : 0;
    for (size_t i = 0; i < n; i++)
        if (json_is_object(json_object_get(ordered[i], "to_target")))
            fill_line(ordered[i], narrow, &table->lines[table->n++]);
    free(ordered);
    for (size_t c = 0; c < COLUMNS; c++) {
        table->shown[c] = c != LABEL && c != WORKERS;
        for (size_t i = 1; i < table->n; i++)
            table->shown[c] |= strcmp(table->lines[i].text[c], table->lines[0].text[c]) != 0;
    }
    return table->n > 0;
}

json_t *dpb_target_table(const json_t *document)
{
    struct table table;
    bool made = table_make(document, false, &table);
    json_t *columns = json_array(), *lines = json_array();
    for (size_t c = 0; c < COLUMNS; c++)
        if (table.shown[c])
            json_array_append_new(columns, json_string(titles[c]));
    for (size_t i = 0; i < table.n; i++) {
        char group[DPB_SWEEP_GROUP];
        json_t *cells = json_array();
        dpb_sweep_group(table.lines[i].row, group, sizeof group);
        for (size_t c = 0; c < COLUMNS; c++)
            if (table.shown[c])
                json_array_append_new(cells, dpb_json_string(table.lines[i].text[c]));
        json_array_append_new(lines, json_pack("{s:o, s:O, s:o, s:b}",                    //
                                               "group", dpb_json_string(group),           //
                                               "row", table.lines[i].row, "cells", cells, //
                                               "failed", false));
    }
    table_release(&table);
    json_t *json = json_pack("{s:o, s:o}", "columns", columns, "lines", lines);
    if (made)
        return json;
    json_decref(json);
    return NULL;
}

/* The widths of the columns, 0: left out; returns that of a line with two blanks between them. */
static size_t widths_of(const struct table *table, size_t width[COLUMNS])
{
    size_t total = 0;
    for (size_t c = 0; c < COLUMNS; c++) {
        width[c] = table->shown[c] ? strlen(titles[c]) : 0;
        for (size_t i = 0; i < table->n && table->shown[c]; i++)
            if (strlen(table->lines[i].text[c]) > width[c])
                width[c] = strlen(table->lines[i].text[c]);
        total += width[c] + (c > 0 && width[c] > 0 ? 2 : 0);
    }
    return total;
}

static void print_line(const struct line *line, const size_t width[COLUMNS], size_t gap, FILE *out)
{
    for (size_t c = 0; c < COLUMNS; c++) {
        if (width[c] == 0)
            continue;
        bool left = c == STRATEGY || c == LABEL;
        fprintf(out, "%*s%*s", c > 0 ? (int)gap : 0, "", left ? -(int)width[c] : (int)width[c],
                line->text[c]);
    }
    fputc('\n', out);
}

/* "88.00 % (median of 5 evaluations)"; "its target" where rows have several. */
static void print_goal(const json_t *document, char *text, size_t capacity)
{
    const json_t *rows = json_object_get(document, "rows"), *row, *goal = NULL;
    size_t i;
    bool several = false;
    json_array_foreach(rows, i, row)
    {
        const json_t *own = json_object_get(row, "to_target");
        several |= json_is_object(own) && goal != NULL &&
                   (number(own, "accuracy") != number(goal, "accuracy") ||
                    strcmp(dpb_json_text(own, "criterion", ""),
                           dpb_json_text(goal, "criterion", "")) != 0);
        goal = json_is_object(own) ? own : goal;
    }
    if (several)
        snprintf(text, capacity, "the row's target");
    else
        snprintf(text, capacity, "%.2f %%%s", 100 * number(goal, "accuracy"),
                 strcmp(dpb_json_text(goal, "criterion", ""), "median5") == 0
                     ? ", the median of 5 evaluations"
                     : "");
}

void dpb_target_print(const json_t *document, FILE *out)
{
    struct table table;
    struct line head = {.row = NULL};
    size_t width[COLUMNS];
    char goal[128], group[DPB_SWEEP_GROUP], before[DPB_SWEEP_GROUP] = "";
    if (!table_make(document, false, &table)) {
        table_release(&table);
        return;
    }
    if (widths_of(&table, width) > WIDTH) { /* the interval of epochs is that of samples */
        table_release(&table);
        table_make(document, true, &table);
    }
    size_t gap = widths_of(&table, width) > WIDTH ? 1 : 2;
    for (size_t c = 0; c < COLUMNS; c++)
        snprintf(head.text[c], CELL, "%s", titles[c]);
    print_goal(document, goal, sizeof goal);
    fprintf(out, "time to %s:\n", goal);
    print_line(&head, width, gap, out);
    for (size_t i = 0; i < table.n; i++) {
        dpb_sweep_group(table.lines[i].row, group, sizeof group);
        if (strcmp(group, before) != 0)
            fprintf(out, "%s:\n", group);
        memcpy(before, group, sizeof before);
        print_line(&table.lines[i], width, gap, out);
    }
    fputc('\n', out);
    table_release(&table);
}

/* ---- notes --------------------------------------------------------------------------------- */

/* What speaks against the samples of a row; NULL: nothing. */
static const char *doubt_of_samples(const json_t *row)
{
    return number(row, "to_target.reached_at_once") > 0 ? "evaluated too rarely"
           : number(row, "to_target.of") < 2            ? "one run"
                                                        : NULL;
}

/* What speaks against its times; steps need not be steady here. */
static const char *doubt_of_times(const json_t *row)
{
    const char *doubt = json_is_true(dpb_json_at(row, "to_target.disturbed")) ? "disturbed" : NULL;
    for (size_t i = 0; i < DPB_DOUBTS && doubt == NULL; i++)
        doubt = i == DPB_DOUBT_NOT_STEADY ? NULL : dpb_rates_doubt(row, i);
    return doubt != NULL ? doubt : doubt_of_samples(row);
}

static void print_name(const json_t *row, FILE *out)
{
    char group[DPB_SWEEP_GROUP];
    dpb_sweep_group(row, group, sizeof group);
    fprintf(out, "%s, %.0f worker%s%s%s", dpb_json_text(row, "strategy", "?"),
            number(row, "workers"), number(row, "workers") == 1 ? "" : "s", group[0] ? ", " : "",
            group);
}

/* "time 1.310 [1.200..1.430] slower". */
static void print_ratio(const json_t *first, const json_t *row, const char *part, const char *name,
                        FILE *out)
{
    bool samples = strcmp(part, "samples") == 0;
    const char *own = samples ? doubt_of_samples(row) : doubt_of_times(row);
    const char *of_first = samples ? doubt_of_samples(first) : doubt_of_times(first);
    const char *doubt = own != NULL ? own : of_first;
    struct dpb_comparison c;
    char ratio[64], outcome[64];
    dpb_target_compare(first, row, part, &c);
    dpb_rates_ratio(&c, ratio, sizeof ratio);
    dpb_comparison_text(&c, outcome, sizeof outcome);
    if (samples && (c.outcome == DPB_FASTER || c.outcome == DPB_SLOWER))
        snprintf(outcome, sizeof outcome, c.outcome == DPB_FASTER ? "fewer" : "more");
    if (doubt != NULL)
        fprintf(out, "%s %.3f no conclusion (%s)", name, c.ratio, doubt);
    else
        fprintf(out, "%s %s %s", name, ratio, outcome);
}

/* All ranked rows by the soonest one of their contest. */
static void note_ranks(const struct table *table, FILE *out)
{
    for (size_t i = 0; i < table->n; i++) {
        const json_t *row = table->lines[i].row, *first = NULL;
        for (size_t k = 0; k < table->n && isfinite(number(row, "to_target.rank")); k++)
            if (number(table->lines[k].row, "to_target.rank") == 1 &&
                dpb_target_same_contest(row, table->lines[k].row))
                first = table->lines[k].row;
        if (first == NULL || first == row)
            continue;
        fputs("- to the target, ", out);
        print_name(row, out);
        fputs(" / ", out);
        print_name(first, out);
        fputs(": ", out);
        print_ratio(first, row, "seconds", "time", out);
        print_ratio(first, row, "samples", " = samples", out);
        print_ratio(first, row, "samples_per_s", " / rate", out);
        fputs(".\n", out);
    }
}

void dpb_target_notes(const json_t *document, FILE *out)
{
    struct table table;
    bool apart = false, at_once = false, made = table_make(document, false, &table);
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < table.n; i++) {
        const json_t *row = table.lines[i].row;
        apart |= strcmp(dpb_json_text(row, "to_target.model", ""), "rank 0") == 0;
        at_once |= number(row, "to_target.reached_at_once") > 0;
        least = fmin(least, number(row, "to_target.resolution"));
        most = fmax(most, number(row, "to_target.resolution"));
    }
    if (made) {
        note_ranks(&table, out);
        fprintf(out,
                "- to the target: seconds of training (evaluations left out), epochs and samples, "
                "each the mean of logarithms over the runs with its 95 %% interval; seconds = "
                "samples / (samples/s). The accuracy is looked at every %.0f",
                least);
        if (most > least)
            fprintf(out, " to %.0f", most);
        fputs(" samples: smaller differences cannot be seen.\n", out);
        if (at_once)
            fputs("- evaluated too rarely: a run reached the target as soon as there were "
                  "evaluations enough, so perhaps before; make eval.every smaller.\n",
                  out);
        if (dpb_target_missed(json_object_get(document, "rows")))
            fputs("- > X: a run missed the target, and the shortest such run trained for X. Rows "
                  "are ranked by time only where all runs reached it.\n",
                  out);
        if (apart)
            fputs("- independent has a model for each worker: reached is that of rank 0's, "
                  "trained by its worker alone; samples are those of all workers. It is not "
                  "ranked.\n",
                  out);
    }
    table_release(&table);
}
