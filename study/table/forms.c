/* forms.c - see forms.h. */
#include "study/table/forms.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "study/document/spill.h"
#include "study/document/target.h"
#include "study/table/merge.h"
#include "study/table/sweep_notes.h"
#include "study/table/sweep_table.h"
#include "study/table/target_print.h"

/* ---- Markdown ------------------------------------------------------------------------------ */

/* With the bar before it. A bar within would end the cell. */
static void print_cell(const char *text, FILE *out)
{
    fputs("| ", out);
    for (; *text != '\0'; text++)
        fprintf(out, "%s%c", *text == '|' ? "\\" : "", *text);
    fputc(' ', out);
}

/* `n` cells behind the settings; the reason of a failed row (else NULL) has the place of the
 * numbers. */
static void print_line(const struct dpb_table *table, const char *settings,
                       const char *const *texts, const char *why, size_t n, FILE *out)
{
    size_t done = 0;
    print_cell(settings, out);
    for (size_t c = 0; c < table->n_columns && !(why && done > 0); c++) {
        if (table->shown[c])
            print_cell(texts[c], out);
        done += table->shown[c];
    }
    for (; done < n; done++)
        print_cell(why && done == 1 ? why : "", out);
    fputs("|\n", out);
}

static void print_table(const struct dpb_table *table, FILE *out)
{
    /* Where every row failed, strategy is the only column: the reasons have one of their own. */
    const size_t n = dpb_table_n_shown(table) > 1 ? dpb_table_n_shown(table) : 2;
    print_line(table, "settings", table->titles, NULL, n, out);
    fputs("|---|---", out);
    for (size_t c = 1; c < n; c++)
        fputs("|---:", out);
    fputs("|\n", out);
    for (size_t i = 0; i < table->n; i++) {
        const struct dpb_table_line *line = &table->lines[i];
        const char *texts[DPB_TABLE_COLUMNS];
        char why[DPB_TABLE_FAILURE];
        for (size_t c = 0; c < table->n_columns; c++)
            texts[c] = line->text[c];
        dpb_table_failed_cell(line, why);
        print_line(table, line->group, texts, line->failed ? why : NULL, n, out);
    }
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
    if (!json_is_object(value) && !json_is_array(value))
        json_object_set(flat, path, value);
    dpb_each_member(value, key, member) {
        char below[512];
        snprintf(below, sizeof below, "%s%s%s", path, path[0] != '\0' ? "." : "", key);
        flatten(below, member, flat);
    }
}

static void print_text(const char *text, FILE *out)
{
    const char *quote = text[strcspn(text, ",\"\r\n")] == '\0' ? "" : "\"";
    fputs(quote, out);
    for (; *text != '\0'; text++)
        fprintf(out, "%s%c", *text == '"' ? "\"" : "", *text);
    fputs(quote, out);
}

/* A line of the values that the record has for the columns; `record` NULL: of their names. */
static void print_record(const json_t *columns, const json_t *record, FILE *out)
{
    const char *comma = "";
    dpb_each_member(columns, name, unused) {
        const json_t *value = json_object_get(record, name);
        fputs(comma, out);
        if (!record || json_is_string(value))
            print_text(record ? json_string_value(value) : name, out);
        else if (json_is_boolean(value))
            fputs(json_is_true(value) ? "true" : "false", out);
        else if (json_is_integer(value))
            fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else if (json_is_real(value))
            fprintf(out, "%.17g", json_real_value(value));
        comma = ",";
    }
    fputc('\n', out);
}

void dpb_objects_csv(const json_t *objects, FILE *out)
{
    json_t *columns = json_object(), *records = json_array();
    dpb_each_item(objects, i, object) {
        json_t *record = json_object();
        flatten("", object, record);
        json_object_update_missing(columns, record);
        json_array_append_new(records, record);
    }
    print_record(columns, NULL, out);
    dpb_each_item(records, i, record)
        print_record(columns, record, out);
    json_decref(columns);
    json_decref(records);
}

void dpb_sweep_csv(const json_t *document, FILE *out)
{
    dpb_objects_csv(json_object_get(document, "rows"), out);
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
        json_object_update_new(measured,
                               json_pack("{s:O*, s:O*, s:O*}", "machine.host",
                                         dpb_json_at(run, "machine.host"), "machine.processor",
                                         dpb_json_at(run, "machine.processor"), "versions.build",
                                         dpb_json_at(run, "versions.build")));
        json_array_append_new(runs, measured);
    }
    dpb_objects_csv(runs, out);
    json_decref(runs);
}

/* The lines of a run; `line` has what is the same in all of them. */
static void print_steps(const json_t *columns, const json_t *run, json_t *line, FILE *out)
{
    json_t *untimed = dpb_run_part(run, "timing.warmup_step_ns");
    json_t *timed = dpb_run_part(run, "timing.step_ns"), *losses = dpb_run_part(run, "loss");
    const size_t n_untimed = json_array_size(untimed), n = n_untimed + json_array_size(timed);
    const double warmup = dpb_json_number(run, "timing.warmup_steps");
    /* Where warm-up has no times, the first that is known is the first timed step. */
    const size_t skipped = n_untimed == 0 && warmup > 0 && warmup < 1e15 ? (size_t)warmup : 0;
    const double first = dpb_json_number(run, "timing.first_step") + (double)skipped;
    for (size_t s = 0; s < n; s++) {
        json_t *ns =
            json_array_get(s < n_untimed ? untimed : timed, s < n_untimed ? s : s - n_untimed);
        json_t *loss = json_array_get(losses, skipped + s);
        json_object_set_new(line, "step", dpb_json_real(first + (double)s));
        json_object_set_new(line, "timed", json_boolean(s >= n_untimed));
        json_object_set(line, "step_ns", ns);
        json_object_set_new(line, "loss", loss ? json_incref(loss) : json_null());
        print_record(columns, line, out);
    }
    json_decref(untimed);
    json_decref(timed);
    json_decref(losses);
}

void dpb_steps_csv(const json_t *document, FILE *out)
{
    json_t *columns = json_pack("{s:n}", "run");
    json_object_update(columns, json_object_get(document, "axes"));
    json_object_update_new(columns, json_pack("{s:n, s:n, s:n, s:n, s:n}", "repeat", "step",
                                              "timed", "step_ns", "loss"));
    print_record(columns, NULL, out);
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        json_t *line = json_pack("{s:I, s:O?}", "run", (json_int_t)i, "repeat",
                                 json_object_get(run, "repeat"));
        json_object_update_missing(line, json_object_get(run, "cell"));
        print_steps(columns, run, line, out);
        json_decref(line);
    }
    json_decref(columns);
}

void dpb_evals_csv(const json_t *document, FILE *out)
{
    json_t *lines = json_array();
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        json_t *evals = dpb_run_part(run, "eval");
        dpb_each_item(evals, e, eval) {
            json_t *line = json_pack("{s:I}", "run", (json_int_t)i);
            json_object_update_missing(line, json_object_get(run, "cell"));
            json_object_update_new(line,
                                   json_pack("{s:O*}", "repeat", json_object_get(run, "repeat")));
            json_object_update_missing(line, eval);
            json_array_append_new(lines, line);
        }
        json_decref(evals);
    }
    dpb_objects_csv(lines, out);
    json_decref(lines);
}
