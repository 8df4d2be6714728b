/* html_sweep.c - the tables, notes and figures of a sweep on a page: see html.h. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "study/page/figures.h"
#include "study/page/html.h"
#include "base/json.h"
#include "study/page/markup.h"
#include "study/table/merge.h"
#include "study/document/rates.h"
#include "study/table/sweep_table.h"
#include "study/document/target.h"
#include "study/table/target_print.h"
#include "study/table/sweep_notes.h"

enum { MOST_NOTES = 200, TEXT = 256 };

/* Warnings of a sweep's runs; each row has the numbers of its own. */
struct notes {
    const json_t *document;
    json_t *list; /* @owned: texts */
    size_t n_left_out;
};

static json_t *note_of(json_t *notes, const char *code)
{
    dpb_each_item(notes, i, note)
        if (dpb_json_is(note, "code", code))
            return note;
    json_t *note = json_pack("{s:o, s:i}", "code", dpb_json_string(code), "runs", 0);
    json_array_append_new(notes, note);
    return note;
}

/* By code: the first text, and how many runs have it. */
static json_t *warnings_of_row(const json_t *document, const json_t *row)
{
    json_t *notes = json_array();
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        if (json_equal(json_object_get(run, "cell"), json_object_get(row, "cell")) != 1)
            continue;
        dpb_each_item(json_object_get(run, "warnings"), k, warning) {
            json_t *note = note_of(notes, dpb_json_text(warning, "code", "?"));
            if (!json_object_get(note, "text"))
                json_object_set(note, "text", json_object_get(warning, "text"));
            if (dpb_json_number(note, "last") == (double)i) /* a code may have several texts */
                continue;
            json_object_set_new(note, "last", json_integer((json_int_t)i));
            json_object_set_new(note, "runs",
                                json_integer((json_int_t)dpb_json_number(note, "runs") + 1));
        }
    }
    return notes;
}

static void write_marks(struct notes *notes, const json_t *row, FILE *out)
{
    char doubts[TEXT], where[TEXT];
    json_t *warnings = warnings_of_row(notes->document, row);
    dpb_rates_doubts(row, DPB_DOUBTS, doubts, sizeof doubts);
    snprintf(where, sizeof where, "%.100s, %.0f worker%s", dpb_json_text(row, "strategy", "?"),
             dpb_json_number(row, "workers"), dpb_json_number(row, "workers") == 1 ? "" : "s");
    fputs(doubts[0] || json_array_size(warnings) > 0 ? "<small>" : "", out);
    dpb_markup(out, "%s", doubts);
    dpb_each_item(warnings, i, warning) {
        if (json_array_size(notes->list) == MOST_NOTES) {
            notes->n_left_out++;
            continue;
        }
        json_object_set_new(warning, "where", dpb_json_string(where));
        json_array_append(notes->list, warning);
        fprintf(out, " [%zu]", json_array_size(notes->list));
    }
    fputs(doubts[0] || json_array_size(warnings) > 0 ? "</small>" : "", out);
    json_decref(warnings);
}

/* Names stand to the left, numbers to the right. */
static const char *class_of(size_t column)
{
    return column < DPB_TABLE_WORKERS ? "l" : "";
}

static void write_failed(const struct dpb_table *table, const struct dpb_table_line *line,
                         FILE *out)
{
    const size_t n = dpb_table_n_shown(table);
    char why[DPB_TABLE_FAILURE];
    dpb_table_failed_cell(line, why);
    dpb_markup(out, "<tr><td class=\"l\">%s</td>", dpb_json_text(line->row, "strategy", "?"));
    fprintf(out, "<td class=\"l why\" colspan=\"%zu\"><span class=\"warn\">", n > 1 ? n - 1 : 1);
    dpb_markup(out, "%s</span></td></tr>\n", why);
}

static void write_line(const struct dpb_table *table, const struct dpb_table_line *line,
                       struct notes *notes, FILE *out)
{
    if (line->failed) {
        write_failed(table, line, out);
        return;
    }
    fputs("<tr>", out);
    for (size_t c = 0; c < table->n_columns; c++) {
        if (!table->shown[c])
            continue;
        dpb_markup(out, "<td class=\"%s\">%s", class_of(c), line->text[c]);
        if (notes && c == RATE)
            write_marks(notes, line->row, out);
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

/* `notes` NULL: without the notes that qualify the rates. */
static void write_table(const struct dpb_table *table, struct notes *notes, FILE *out)
{
    const char *group = "";
    fputs("<div class=\"wide\" tabindex=\"0\"><table class=\"rows\">\n<thead><tr>", out);
    for (size_t c = 0; c < table->n_columns; c++)
        if (table->shown[c])
            dpb_markup(out, class_of(c)[0] ? "<th class=\"l\">%s</th>" : "<th>%s</th>",
                       table->titles[c]);
    fputs("</tr></thead>\n<tbody>\n", out);
    for (size_t i = 0; i < table->n; i++) {
        const struct dpb_table_line *line = &table->lines[i];
        if (strcmp(line->group, group) != 0) {
            fprintf(out, "<tr class=\"group\"><th colspan=\"%zu\">", dpb_table_n_shown(table));
            dpb_markup(out, "%s</th></tr>\n", line->group);
        }
        group = line->group;
        write_line(table, line, notes, out);
    }
    fputs("</tbody></table></div>\n", out);
}

/* The notes that `print` writes above or below the text table, one a line. */
static void write_notes(void (*print)(const json_t *document, FILE *out), const json_t *document,
                        FILE *out)
{
    char *text = dpb_json_printed(document, print), *state = NULL;
    const bool any = text && text[0] != '\0';
    fputs(any ? "<ul>\n" : "", out);
    for (char *line = any ? strtok_r(text, "\n", &state) : NULL; line;
         line = strtok_r(NULL, "\n", &state)) {
        dpb_markup(out,
                   dpb_begins_with(line, "warning: ") ? "<li class=\"warn\">%s</li>\n"
                                                      : "<li>%s</li>\n",
                   dpb_begins_with(line, "- ") ? line + 2 : line);
    }
    fputs(any ? "</ul>\n" : "", out);
    free(text);
}

static void write_warnings_of_runs(const struct notes *notes, FILE *out)
{
    if (json_array_size(notes->list) == 0)
        return;
    fputs("<h4>Warnings of the runs</h4>\n<ul class=\"warn\">\n", out);
    dpb_each_item(notes->list, i, note) {
        const double runs = dpb_json_number(note, "runs");
        fprintf(out, "<li>[%zu] ", i + 1);
        dpb_markup(out, "%s: %s: %s", dpb_json_text(note, "where", "?"),
                   dpb_json_text(note, "code", "?"), dpb_json_text(note, "text", "?"));
        if (runs > 1)
            fprintf(out, " (the first of %.0f runs)", runs);
        fputs("</li>\n", out);
    }
    if (notes->n_left_out > 0)
        fprintf(out, "<li>%zu more warnings stand in the file alone, in runs[].warnings.</li>\n",
                notes->n_left_out);
    fputs("</ul>\n", out);
}

void dpb_html_sweep(const json_t *document, FILE *out)
{
    struct notes notes = {.document = document, .list = json_array()};
    struct dpb_table table, targets;
    write_notes(dpb_merge_notes, document, out);
    if (dpb_sweep_table_make(document, &table) && table.n > 0)
        write_table(&table, &notes, out);
    if (dpb_target_table_make(document, &targets))
        write_table(&targets, NULL, out);
    write_notes(dpb_sweep_notes, document, out);
    write_warnings_of_runs(&notes, out);
    dpb_figures_of_sweep(document, &table, out);
    dpb_table_release(&table);
    dpb_table_release(&targets);
    json_decref(notes.list);
}
