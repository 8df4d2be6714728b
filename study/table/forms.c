/* forms.c - see forms.h. */
#include "study/table/forms.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/json.h"
#include "study/table/merge.h"
#include "study/table/sweep_table.h"
#include "study/document/target.h"
#include "study/table/target_print.h"
#include "study/table/sweep_notes.h"

/* ---- Markdown ------------------------------------------------------------------------------ */

void dpb_form_cell(const char *text, FILE *out)
{
    fputs("| ", out);
    for (; *text != '\0'; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
    fputc(' ', out);
}

/* A failed row has its reason in the place of its numbers. */
static void print_row(const struct dpb_table *table, const struct dpb_table_line *line, FILE *out)
{
    dpb_form_cell(line->group, out);
    dpb_form_cell(line->text[DPB_TABLE_STRATEGY], out);
    if (line->failed) {
        char why[DPB_TABLE_FAILURE];
        dpb_table_failed_cell(line, why);
        dpb_form_cell(why, out);
        for (size_t c = 2; c < dpb_table_n_shown(table); c++)
            dpb_form_cell("", out);
    }
    for (size_t c = DPB_TABLE_STRATEGY + 1; c < table->n_columns && !line->failed; c++)
        if (table->shown[c])
            dpb_form_cell(line->text[c], out);
    fputs("|\n", out);
}

static void print_table(const struct dpb_table *table, FILE *out)
{
    dpb_form_cell("settings", out);
    for (size_t c = 0; c < table->n_columns; c++)
        if (table->shown[c])
            dpb_form_cell(table->titles[c], out);
    /* Where every row failed, strategy is the only column: the reasons have one of their own. */
    const size_t n = dpb_table_n_shown(table) > 1 ? dpb_table_n_shown(table) : 2;
    for (size_t c = dpb_table_n_shown(table); c < n; c++)
        dpb_form_cell("", out);
    fputs("|\n|---", out);
    for (size_t c = 0; c < n; c++)
        fputs(c == 0 ? "|---" : "|---:", out);
    fputs("|\n", out);
    for (size_t i = 0; i < table->n; i++)
        print_row(table, &table->lines[i], out);
    fputc('\n', out);
}

/* Each line is an item: without a mark of its own, a warning would be a part of the item before. */
static void print_notes(const json_t *document, FILE *out)
{
    char *notes = dpb_json_printed(document, dpb_sweep_notes), *state = NULL;
    for (char *note = notes ? strtok_r(notes, "\n", &state) : NULL; note;
         note = strtok_r(NULL, "\n", &state))
        fprintf(out, "%s%s\n", dpb_begins_with(note, "- ") ? "" : "- ", note);
    free(notes);
}

void dpb_sweep_markdown(const json_t *document, FILE *out)
{
    struct dpb_table rows, targets;
    dpb_merge_notes(document, out);
    fputs(json_object_get(document, "merged") ? "\n" : "", out);
    if (dpb_sweep_table_make(document, &rows) && rows.n > 0)
        print_table(&rows, out);
    if (dpb_target_table_make(document, &targets))
        print_table(&targets, out);
    dpb_table_release(&rows);
    dpb_table_release(&targets);
    print_notes(document, out);
}

/* ---- CSV ----------------------------------------------------------------------------------- */

/* Puts the scalars below `value` into `flat`, by their paths. */
static void flatten(const char *path, json_t *value, json_t *flat)
{
    if (!json_is_object(value)) {
        if (!json_is_array(value))
            json_object_set(flat, path, value);
        return;
    }
    dpb_each_member(value, key, member) {
        char below[512];
        snprintf(below, sizeof below, "%s%s%s", path, path[0] != '\0' ? "." : "", key);
        flatten(below, member, flat);
    }
}

void dpb_form_field(const char *text, FILE *out)
{
    if (text[strcspn(text, ",\"\r\n")] == '\0') {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++)
        fputs(*text == '"' ? "\"\"" : (char[]){*text, '\0'}, out);
    fputc('"', out);
}

static void print_value(const json_t *value, FILE *out)
{
    if (json_is_string(value))
        dpb_form_field(json_string_value(value), out);
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "true" : "false", out);
    else if (json_is_integer(value))
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        fprintf(out, "%.17g", json_real_value(value));
}

/* A line for each of the objects, behind a line of the paths to their scalars. */
static void print_records(const json_t *objects, FILE *out)
{
    json_t *columns = json_object(), *records = json_array();
    dpb_each_item(objects, i, object) {
        json_t *record = json_object();
        flatten("", object, record);
        json_object_update_missing(columns, record);
        json_array_append_new(records, record);
    }
    const char *comma = "";
    dpb_each_member(columns, path, unused) {
        fputs(comma, out);
        dpb_form_field(path, out);
        comma = ",";
    }
    fputc('\n', out);
    dpb_each_item(records, i, record) {
        comma = "";
        dpb_each_member(columns, path, unused) {
            fputs(comma, out);
            print_value(json_object_get(record, path), out);
            comma = ",";
        }
        fputc('\n', out);
    }
    json_decref(columns);
    json_decref(records);
}

void dpb_sweep_csv(const json_t *document, FILE *out)
{
    print_records(json_object_get(document, "rows"), out);
}

void dpb_runs_csv(const json_t *document, FILE *out)
{
    static const char *const parts[] = {
        "cell",  "cell_index", "repeat", "purpose", "status", "error",  "started",      "world",
        "model", "strategy",   "batch",  "timing",  "comm",   "target", "verification", "load"};
    json_t *runs = json_array();
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        json_t *measured = json_object();
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            json_object_set(measured, parts[p], json_object_get(run, parts[p]));
        json_array_append_new(runs, measured);
    }
    print_records(runs, out);
    json_decref(runs);
}

/* The number of the run, its settings on the axes and its repeat, which all of its steps have. */
static void print_run_of_step(const json_t *axes, const json_t *run, size_t number, FILE *out)
{
    fprintf(out, "%zu,", number);
    dpb_each_member(axes, axis, unused) {
        print_value(json_object_get(json_object_get(run, "cell"), axis), out);
        fputc(',', out);
    }
    print_value(json_object_get(run, "repeat"), out);
}

void dpb_steps_csv(const json_t *document, FILE *out)
{
    const json_t *axes = json_object_get(document, "axes");
    fputs("run,", out);
    dpb_each_member(axes, axis, unused) {
        dpb_form_field(axis, out);
        fputc(',', out);
    }
    fputs("repeat,step,timed,step_ns,loss\n", out);
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        const json_t *untimed = dpb_json_at(run, "timing.warmup_step_ns");
        const json_t *timed = dpb_json_at(run, "timing.step_ns"),
                     *loss = json_object_get(run, "loss");
        const size_t n_untimed = json_array_size(untimed), n = n_untimed + json_array_size(timed);
        const double first = dpb_json_number(run, "timing.first_step");
        const double warmup = dpb_json_number(run, "timing.warmup_steps");
        /* Where warm-up has no times, the first that is known is the first timed step. */
        const size_t skipped = n_untimed == 0 && warmup > 0 && warmup < 1e15 ? (size_t)warmup : 0;
        for (size_t s = 0; s < n; s++) {
            const json_t *ns =
                s < n_untimed ? json_array_get(untimed, s) : json_array_get(timed, s - n_untimed);
            print_run_of_step(axes, run, i, out);
            fprintf(out, ",%.0f,%s,", first + (double)(skipped + s),
                    s < n_untimed ? "false" : "true");
            print_value(ns, out);
            fputc(',', out);
            print_value(json_array_get(loss, skipped + s), out);
            fputc('\n', out);
        }
    }
}
