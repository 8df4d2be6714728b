/* target_print.c - the table of times to accuracy for people, and how to read it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "record/result.h"
#include "study/document/rates.h"
#include "study/document/rows.h"
#include "study/document/target.h"
#include "study/table/table.h"
#include "study/table/target_print.h"

enum { CELL = DPB_TABLE_CELL };

enum column {
    STRATEGY = DPB_TABLE_STRATEGY,
    LABEL = DPB_TABLE_LABEL,
    WORKERS = DPB_TABLE_WORKERS,
    RANK = DPB_TABLE_NEXT,
    REACHED,
    SECONDS,
    EPOCHS,
    SAMPLES,
    RATE,
    COLUMNS
};
static const char *const titles[COLUMNS] = {"strategy", "label",  "workers", "rank",     "reached",
                                            "seconds",  "epochs", "samples", "samples/s"};

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
    if (isfinite(dpb_json_number(of, "above")))
        snprintf(text, CELL, "> %.20s", print_number(value, dpb_json_number(of, "above")));
    else if (!isfinite(dpb_json_number(of, "mean")))
        snprintf(text, CELL, "-");
    else if (with_interval && isfinite(dpb_json_number(of, "low")))
        snprintf(text, CELL, "%.18s [%.18s..%.18s]",
                 print_number(value, dpb_json_number(of, "mean")),
                 print_number(low, dpb_json_number(of, "low")),
                 print_number(high, dpb_json_number(of, "high")));
    else
        print_number(text, dpb_json_number(of, "mean"));
}

static bool fill_line(struct dpb_table_line *line)
{
    const json_t *row = line->row;
    if (!json_is_object(json_object_get(row, "to_target")))
        return false;
    snprintf(line->text[STRATEGY], CELL, "%.20s", dpb_json_text(row, "strategy", "?"));
    snprintf(line->text[LABEL], CELL, "%.20s", dpb_json_text(row, "consistency", "?"));
    dpb_sweep_workers(row, line->text[WORKERS], CELL);
    snprintf(line->text[RANK], CELL, "-");
    if (isfinite(dpb_json_number(row, "to_target.rank")))
        snprintf(line->text[RANK], CELL, "%.0f", dpb_json_number(row, "to_target.rank"));
    snprintf(line->text[REACHED], CELL, "%.0f of %.0f", dpb_json_number(row, "to_target.reached"),
             dpb_json_number(row, "to_target.of"));
    print_part(row, "seconds", true, line->text[SECONDS]);
    print_part(row, "epochs", true, line->text[EPOCHS]);
    print_part(row, "samples", true, line->text[SAMPLES]);
    print_part(row, "samples_per_s", false, line->text[RATE]);
    return true;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* With label and workers if these differ. */
bool dpb_target_table_make(const json_t *document, struct dpb_table *table)
{
    dpb_table_make(document, titles, COLUMNS, fill_line, table);
    for (size_t c = 0; c < COLUMNS; c++) {
        table->shown[c] = c != LABEL && c != WORKERS;
        for (size_t i = 1; i < table->n; i++)
            table->shown[c] |= strcmp(table->lines[i].text[c], table->lines[0].text[c]) != 0;
    }
    return table->n > 0;
}

/* "88.00 %, the median of 5 evaluations"; "the row's target" where rows have several. */
static void print_goal(const json_t *document, char *text, size_t capacity)
{
    const json_t *rows = json_object_get(document, "rows"), *goal = NULL;
    bool several = false;
    dpb_each_item(rows, i, row) {
        const json_t *own = json_object_get(row, "to_target");
        several |=
            json_is_object(own) && goal &&
            (!dpb_json_same(json_object_get(own, "accuracy"), json_object_get(goal, "accuracy")) ||
             !dpb_json_same(json_object_get(own, "loss"), json_object_get(goal, "loss")) ||
             strcmp(dpb_json_text(own, "criterion", ""), dpb_json_text(goal, "criterion", "")) !=
                 0);
        goal = json_is_object(own) ? own : goal;
    }
    char value[48];
    dpb_result_goal(goal, value, sizeof value);
    if (several)
        snprintf(text, capacity, "the row's target");
    else
        snprintf(text, capacity, "%s%s", value,
                 dpb_json_is(goal, "criterion", "median5") ? ", the median of 5 evaluations" : "");
}

void dpb_target_print(const json_t *document, FILE *out)
{
    struct dpb_table table;
    char goal[128];
    const bool made = dpb_target_table_make(document, &table);
    const bool narrow = dpb_table_width(&table) > DPB_TABLE_WIDTH;
    for (size_t i = 0; narrow && i < table.n; i++) /* the interval of epochs is that of samples */
        print_part(table.lines[i].row, "epochs", false, table.lines[i].text[EPOCHS]);
    if (made) {
        print_goal(document, goal, sizeof goal);
        fprintf(out, "time to %s:\n", goal);
        dpb_table_print(&table, out);
        fputc('\n', out);
    }
    dpb_table_release(&table);
}

/* ---- notes --------------------------------------------------------------------------------- */

static void print_name(const struct dpb_table_line *line, FILE *out)
{
    const double workers = dpb_json_number(line->row, "workers");
    fprintf(out, "%s, %.0f worker%s%s%s", dpb_json_text(line->row, "strategy", "?"), workers,
            workers == 1 ? "" : "s", line->group[0] ? ", " : "", line->group);
}

/* "time 1.310 [1.200..1.430] slower". */
static void print_ratio(const json_t *first, const json_t *row, const char *part, const char *name,
                        FILE *out)
{
    struct dpb_comparison c;
    char ratio[64], verdict[64];
    bool concluded = dpb_target_conclude(first, row, part, true, &c, verdict, sizeof verdict);
    if (concluded)
        dpb_rates_ratio(&c, ratio, sizeof ratio);
    else
        snprintf(ratio, sizeof ratio, "%.3f", c.ratio);
    fprintf(out, "%s %s %s", name, ratio, verdict);
}

/* All ranked rows by the soonest one of their contest. */
static void note_ranks(const struct dpb_table *table, FILE *out)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct dpb_table_line *line = &table->lines[i], *first = NULL;
        const bool ranked = isfinite(dpb_json_number(line->row, "to_target.rank"));
        for (size_t k = 0; k < table->n && ranked; k++)
            if (dpb_json_number(table->lines[k].row, "to_target.rank") == 1 &&
                dpb_target_same_contest(line->row, table->lines[k].row))
                first = &table->lines[k];
        if (!first || first == line)
            continue;
        fputs("- to the target, ", out);
        print_name(line, out);
        fputs(" / ", out);
        print_name(first, out);
        fputs(": ", out);
        print_ratio(first->row, line->row, "seconds", "time", out);
        print_ratio(first->row, line->row, "samples", " = samples", out);
        print_ratio(first->row, line->row, "samples_per_s", " / rate", out);
        fputs(".\n", out);
    }
}

void dpb_target_notes(const json_t *document, FILE *out)
{
    struct dpb_table table;
    bool apart = false, at_once = false, made = dpb_target_table_make(document, &table);
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < table.n; i++) {
        const json_t *row = table.lines[i].row;
        apart |= dpb_json_is(row, "to_target.model", "rank 0");
        at_once |= dpb_json_number(row, "to_target.reached_at_once") > 0;
        least = fmin(least, dpb_json_number(row, "to_target.resolution"));
        most = fmax(most, dpb_json_number(row, "to_target.resolution"));
    }
    if (made) {
        note_ranks(&table, out);
        fprintf(out,
                "- to the target: seconds of training (evaluations left out), epochs and samples, "
                "each the mean of logarithms over the runs with its 95 %% interval; seconds = "
                "samples / (samples/s). The target is looked at every %.0f",
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
    dpb_table_release(&table);
}
