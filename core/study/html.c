/* html.c - see html.h. */
#include "study/html.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/figures.h"
#include "study/json.h"
#include "study/merge.h"
#include "study/result.h"
#include "study/svg.h"
#include "study/sweep.h"
#include "study/table.h"
#include "study/target.h"

enum { MOST_NOTES = 200, MOST_RATES = 64, TEXT = 256 };

struct dpb_html {
    FILE *body;
    char *text; /* of body, once closed */
    size_t length;
    size_t n_documents;
    json_t *machine, *versions; /* of the first document */
    /* One row for each run that is no part of a sweep. */
    struct dpb_svg_row rates[MOST_RATES];
    char labels[MOST_RATES][TEXT], values[MOST_RATES][32];
    size_t n_rates, n_rates_left_out;
};

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1c1f23;--soft:#5a626c;--line:#d5d9de;--back:#fff;"
    "--shade:#eceff2;--warn:#9a3b00;"
    "--c0:#0067b0;--c1:#c44e00;--c2:#00805b;--c3:#a0377f;--c4:#8a6a00;--c5:#5b4bb7;--c6:#2a7f95;"
    "--c7:#7a5230;--cn:#6b7178;"
    "--p0:#b78b00;--p1:#7fb4dd;--p2:#9aa1a9;--p3:#0067b0;--p4:#2f9b76;--p5:#d0571a}\n"
    "@media screen and (prefers-color-scheme:dark){:root{--ink:#e4e7ea;--soft:#9ca5af;"
    "--line:#3a4047;--back:#16191c;--shade:#23282d;--warn:#ffab70;"
    "--c0:#5fb3f0;--c1:#ff9354;--c2:#3fc795;--c3:#e58ac5;--c4:#dcb53c;--c5:#a99cf5;--c6:#67c3d6;"
    "--c7:#cfa27c;--cn:#a2a9b1;"
    "--p0:#d9b036;--p1:#8ec5ee;--p2:#7c848d;--p3:#2f83c9;--p4:#3fae85;--p5:#ef7d42}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:64rem;padding:1.5rem 1rem 4rem;background:var(--back);"
    "color:var(--ink);font:15px/1.5 system-ui,\"Helvetica Neue\",Arial,sans-serif}\n"
    "h1{font-size:1.5rem;margin:0 0 1rem}h2{font-size:1.25rem;margin:0;overflow-wrap:anywhere}\n"
    "h3{font-size:1rem;margin:2rem 0 .5rem}h4{font-size:.95rem;margin:1.5rem 0 .25rem}\n"
    "h2,h3,h4{break-after:avoid}\n"
    "section{border-top:2px solid var(--ink);padding-top:1rem;margin-top:2.5rem}\n"
    "header+section{margin-top:0}\n"
    "p,li,td,th,dd,figcaption{overflow-wrap:anywhere;unicode-bidi:isolate}\n"
    ".about{color:var(--soft);margin:.15rem 0}.rate{font-size:1.15rem;font-weight:600;"
    "margin:1rem 0 .25rem;font-variant-numeric:tabular-nums}\n"
    ".warn{color:var(--warn)}.bad{border-left:3px solid var(--warn);padding-left:.75rem}\n"
    "ul{margin:.5rem 0;padding-left:1.2rem}li{margin:.2rem 0;max-width:46rem}\n"
    ".wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    ".rows{font-size:.87rem;width:100%}\n"
    ".rows th,.rows td{padding:.3rem .5rem;text-align:right;vertical-align:top;"
    "overflow-wrap:normal;white-space:nowrap}\n"
    ".rows th{color:var(--soft);font-weight:500;border-bottom:1px solid var(--soft)}\n"
    ".rows td{border-bottom:1px solid var(--line)}\n"
    ".rows .l{text-align:left}.rows .l:first-child{padding-left:0}\n"
    ".rows .why{white-space:normal;overflow-wrap:anywhere;min-width:14rem}\n"
    ".rows .group th{text-align:left;color:var(--ink);font-weight:600;padding:.9rem 0 .3rem;"
    "white-space:normal}\n"
    ".rows small{display:block;color:var(--warn)}\n"
    ".facts th,.facts td{text-align:left;vertical-align:top;padding:.15rem 1rem .15rem 0;"
    "font-weight:400;font-size:.87rem}\n"
    ".facts th{color:var(--soft);min-width:7rem}.facts pre{margin:0;"
    "white-space:pre-wrap;tab-size:4}\n"
    "pre{font:.8rem/1.45 ui-monospace,\"DejaVu Sans Mono\",monospace;overflow-x:auto}\n"
    ".figures{display:grid;gap:1.5rem 2.5rem;"
    "grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr));align-items:start}\n"
    "figure{margin:.5rem 0 0;max-width:27rem;break-inside:avoid}\n"
    "figcaption{font-size:.87rem;color:var(--soft)}figcaption b{color:var(--ink)}\n"
    ".key{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;padding:0;margin:.25rem 0;"
    "font-size:.8rem}.key svg{width:18px;height:10px;margin-right:.35rem;display:inline}\n"
    "svg{display:block;width:100%;height:auto;overflow:visible}\n"
    "svg text{font-size:11px;fill:var(--ink);font-variant-numeric:tabular-nums}\n"
    ".grid{stroke:var(--line);stroke-width:.75}.axis{stroke:var(--soft);stroke-width:1}\n"
    ".line{fill:none;stroke-width:1.5;stroke-linejoin:round;stroke:var(--c)}\n"
    ".dashed{stroke-dasharray:4 3}.dot{fill:var(--c)}.hollow{fill:var(--back);stroke:var(--c);"
    "stroke-width:1.5}.shade{fill:var(--shade)}.key .shade{stroke:var(--line)}\n"
    ".c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}"
    ".c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}.cn{--c:var(--cn)}\n"
    ".p0{fill:var(--p0)}.p1{fill:var(--p1)}.p2{fill:var(--p2)}.p3{fill:var(--p3)}"
    ".p4{fill:var(--p4)}.p5{fill:var(--p5)}\n"
    ".origin{color:var(--soft)}.parts{columns:2 24rem;column-gap:2.5rem}.parts "
    "h3{margin-top:1rem}\n"
    "@media print{body{font-size:10pt;max-width:none;padding:0}.rows{font-size:7.5pt}"
    ".rows th,.rows td{padding:.2rem .3rem}.wide,pre{overflow:visible}"
    ".figures{grid-template-columns:1fr 1fr}}\n";

/* ---- elements ------------------------------------------------------------------------------ */

static void element(const char *tag, const char *class, const char *text, FILE *out)
{
    fprintf(out, class[0] ? "<%s class=\"%s\">" : "<%s>", tag, class);
    dpb_svg_text(text, out);
    fprintf(out, "</%s>", tag);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- machine, settings, versions ----------------------------------------------------------- */

static void write_value(const json_t *value, FILE *out)
{
    if (json_is_string(value))
        dpb_svg_text(json_string_value(value), out);
    else if (json_is_real(value))
        fprintf(out, "%.10g", json_real_value(value));
    else if (json_is_integer(value))
        fprintf(out, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "yes" : "no", out);
}

static bool is_structured(const json_t *array)
{
    return json_is_object(json_array_get(array, 0)) || json_is_array(json_array_get(array, 0));
}

/* A row for each value below `value`, its name the path to it. What is null or empty is left out.
 * NOLINTNEXTLINE(misc-no-recursion): as deep as the document */
static void write_facts(const char *path, const json_t *value, FILE *out)
{
    char below[TEXT];
    const char *key;
    json_t *member;
    size_t i;
    const char *gap = path[0] != '\0' ? "." : "";
    if (json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_string(value) && json_string_length(value) == 0))
        return;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)(uintptr_t)value, key, member)
        {
            snprintf(below, sizeof below, "%.*s%s%.100s", TEXT - 104, path, gap, key);
            write_facts(below, member, out);
        }
        return;
    }
    if (json_is_array(value) && is_structured(value)) {
        json_array_foreach(value, i, member)
        {
            snprintf(below, sizeof below, "%.*s[%zu]", TEXT - 30, path, i);
            write_facts(below, member, out);
        }
        return;
    }
    fputs("<tr>", out);
    element("th", "", path, out);
    fputs("<td>", out);
    if (!json_is_array(value))
        write_value(value, out);
    json_array_foreach(value, i, member)
    {
        fputs(i > 0 ? ", " : "", out);
        write_value(member, out);
    }
    fputs("</td></tr>\n", out);
}

static void write_table_of(const char *title, const json_t *value, const json_t *first, FILE *out)
{
    if (!value)
        return;
    element("h3", "", title, out);
    if (first && json_equal(value, first)) {
        fputs("\n<p class=\"about\">as of the first result</p>\n", out);
        return;
    }
    fputs("\n<table class=\"facts\">\n", out);
    write_facts("", value, out);
    fputs("</table>\n", out);
}

/* What somebody set, with its origin; defaults are counted. */
static void write_settings(const json_t *config, FILE *out)
{
    const char *section, *key;
    json_t *keys, *setting;
    size_t n_defaults = 0;
    fputs("<h3>Settings</h3>\n<table class=\"facts\">\n", out);
    json_object_foreach((json_t *)(uintptr_t)config, section, keys)
    {
        json_object_foreach(keys, key, setting)
        {
            const char *origin = dpb_json_text(setting, "origin", "");
            if (strcmp(origin, "default") == 0) {
                n_defaults++;
                continue;
            }
            fputs("<tr><th>", out);
            dpb_svg_text(section, out);
            fputc('.', out);
            dpb_svg_text(key, out);
            fputs("</th><td>", out);
            write_value(json_object_get(setting, "value"), out);
            fputs(" <span class=\"origin\">", out);
            dpb_svg_text(origin, out);
            fputs("</span></td></tr>\n", out);
        }
    }
    fputs("</table>\n", out);
    if (n_defaults > 0)
        fprintf(out, "<p class=\"about\">%zu more settings have their defaults.</p>\n", n_defaults);
}

static void write_origin(struct dpb_html *html, const json_t *document)
{
    const json_t *machine = dpb_result_part(document, "machine");
    const json_t *versions = dpb_result_part(document, "versions");
    fputs("<div class=\"parts\">\n", html->body);
    write_settings(json_object_get(document, "config"), html->body);
    write_table_of("Machine", machine, html->machine, html->body);
    write_table_of("Versions", versions, html->versions, html->body);
    fputs("</div>\n", html->body);
    if (!html->machine)
        html->machine = json_incref((json_t *)(uintptr_t)machine);
    if (!html->versions)
        html->versions = json_incref((json_t *)(uintptr_t)versions);
}

static void write_head(const char *path, const json_t *document, FILE *out)
{
    const json_t *words = dpb_result_part(document, "invocation.command"), *word;
    size_t i;
    element("h2", "", dpb_json_text(document, "name", "run"), out);
    fputs("\n<p class=\"about\">", out);
    dpb_svg_text(path, out);
    fputs(", started ", out);
    dpb_svg_text(dpb_json_text(document, "started", "at an unknown time"), out);
    const char *processor = dpb_json_text(dpb_result_part(document, "machine.processor"), "", NULL);
    if (processor) {
        fputs(", on ", out);
        dpb_svg_text(processor, out);
    }
    fputs("</p>\n", out);
    if (json_array_size(words) > 0)
        fputs("<p class=\"about\">", out);
    json_array_foreach(words, i, word)
    {
        fputs(i > 0 ? " " : "", out);
        dpb_svg_text(dpb_json_text(word, "", "?"), out);
    }
    fputs(json_array_size(words) > 0 ? "</p>\n" : "", out);
    if (strcmp(dpb_json_text(document, "status", "?"), "ok") != 0) {
        fputs("<p class=\"warn bad\">", out);
        dpb_svg_text(dpb_json_text(document, "status", "?"), out);
        fputs(": ", out);
        dpb_svg_text(dpb_json_text(document, "error", "no reason given"), out);
        fputs("</p>\n", out);
    }
}

/* ---- a run --------------------------------------------------------------------------------- */

/* The text of dpb_result_print as rows: "  LABEL TEXT", the label of 13 characters; lines further
 * in, and those without label, go on with the row before. */
static void write_lines_of_run(char *text, FILE *out)
{
    char *state = NULL;
    bool is_first = true, open = false;
    fputs("<table class=\"facts\">\n", out);
    for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        const bool part = begins(line, "    "), labelled = !part && begins(line, "  ");
        if (is_first || begins(line, "SamplesPerSec:") || begins(line, "  warning ")) {
            is_first = false;
            continue;
        }
        if (labelled && strlen(line) > 16) {
            char label[16];
            snprintf(label, sizeof label, "%.13s", line + 2);
            for (size_t n = strlen(label); n > 0 && label[n - 1] == ' '; n--)
                label[n - 1] = '\0';
            fputs(open ? "</td></tr>\n<tr>" : "<tr>", out);
            element("th", "", label, out);
            fputs("<td>", out);
            dpb_svg_text(line + 16, out);
            open = true;
        } else if (open) {
            element("pre", "", line + strspn(line, " "), out);
        }
    }
    fputs(open ? "</td></tr>\n</table>\n" : "</table>\n", out);
}

/* The rate, and all that qualifies it. */
static void write_rate(const char *text, const json_t *document, FILE *out)
{
    const char *rate = strstr(text, "SamplesPerSec:");
    const json_t *warning;
    char doubts[TEXT];
    size_t i;
    dpb_figure_doubts(document, doubts, sizeof doubts);
    if (rate && (rate == text || rate[-1] == '\n')) {
        char line[TEXT];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(rate, "\n"), rate);
        element("p", "rate", line, out);
    }
    fputs("\n<ul class=\"warn\">\n", out);
    if (doubts[0] != '\0') {
        fputs("<li>No conclusion from this rate: ", out);
        dpb_svg_text(doubts, out);
        fputs(".</li>\n", out);
    }
    json_array_foreach(json_object_get(document, "warnings"), i, warning)
    {
        fputs("<li>", out);
        dpb_svg_text(dpb_json_text(warning, "code", "?"), out);
        fputs(": ", out);
        dpb_svg_text(dpb_json_text(warning, "text", "?"), out);
        if (dpb_json_number(warning, "count") > 1)
            fprintf(out, " (%.0f times)", dpb_json_number(warning, "count"));
        fputs("</li>\n", out);
    }
    fputs("</ul>\n", out);
}

static void add_rate(struct dpb_html *html, const char *path, const json_t *document)
{
    if (html->n_rates == MOST_RATES) {
        html->n_rates_left_out++;
        return;
    }
    const size_t i = html->n_rates++;
    const char *slash = strrchr(path, '/');
    dpb_figure_rate(document, NULL, html->values[i], &html->rates[i]);
    snprintf(html->labels[i], TEXT, "%zu: %.200s", html->n_documents, slash ? slash + 1 : path);
    html->rates[i].label = html->labels[i];
}

static void add_run(struct dpb_html *html, const char *path, const json_t *document)
{
    char *text = NULL;
    size_t length;
    FILE *memory = open_memstream(&text, &length);
    if (!memory)
        return;
    dpb_result_print(document, memory);
    fclose(memory);
    write_head(path, document, html->body);
    write_rate(text, document, html->body);
    write_lines_of_run(text, html->body);
    free(text);
    dpb_figures_of_run(document, html->body);
    dpb_figures_of_monitor(document, html->body);
    add_rate(html, path, document);
}

/* ---- a sweep ------------------------------------------------------------------------------- */

/* Warnings of a sweep's runs; each row has the numbers of its own. */
struct notes {
    const json_t *document;
    json_t *list; /* @owned: texts */
    size_t n_left_out;
};

static json_t *note_of(json_t *notes, const char *code)
{
    json_t *note;
    size_t i;
    json_array_foreach(notes, i, note)
    {
        if (strcmp(dpb_json_text(note, "code", ""), code) == 0)
            return note;
    }
    note = json_pack("{s:o, s:i}", "code", dpb_json_string(code), "runs", 0);
    json_array_append_new(notes, note);
    return note;
}

/* By code: the first text, and how many runs have it. */
static json_t *warnings_of_row(const json_t *document, const json_t *row)
{
    const json_t *run, *warning;
    json_t *notes = json_array();
    size_t i, k;
    json_array_foreach(json_object_get(document, "runs"), i, run)
    {
        if (json_equal(json_object_get(run, "cell"), json_object_get(row, "cell")) != 1)
            continue;
        json_array_foreach(json_object_get(run, "warnings"), k, warning)
        {
            json_t *note = note_of(notes, dpb_json_text(warning, "code", "?"));
            if (!json_object_get(note, "text"))
                json_object_set(note, "text", json_object_get(warning, "text"));
            json_object_set_new(note, "runs",
                                json_integer((json_int_t)dpb_json_number(note, "runs") + 1));
        }
    }
    return notes;
}

static void write_marks(struct notes *notes, const json_t *row, FILE *out)
{
    char doubts[TEXT], where[TEXT];
    json_t *warnings = warnings_of_row(notes->document, row), *warning;
    size_t i;
    dpb_figure_doubts(row, doubts, sizeof doubts);
    snprintf(where, sizeof where, "%.100s, %.0f worker%s", dpb_json_text(row, "strategy", "?"),
             dpb_json_number(row, "workers"), dpb_json_number(row, "workers") == 1 ? "" : "s");
    fputs(doubts[0] || json_array_size(warnings) > 0 ? "<small>" : "", out);
    dpb_svg_text(doubts, out);
    json_array_foreach(warnings, i, warning)
    {
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
static const char *class_of(const char *title)
{
    return strcmp(title, "strategy") == 0 || strcmp(title, "label") == 0 ? "l" : "";
}

static void write_failed(const json_t *line, size_t n_columns, FILE *out)
{
    const json_t *row = json_object_get(line, "row");
    char failure[DPB_TABLE_FAILURE];
    fputs("<tr>", out);
    element("td", "l", dpb_json_text(row, "strategy", "?"), out);
    const double workers = dpb_json_number(row, "workers");
    fprintf(out, "<td class=\"l why\" colspan=\"%zu\"><span class=\"warn\">",
            n_columns > 1 ? n_columns - 1 : 1);
    fprintf(out, "%.0f worker%s, ", workers, workers == 1 ? "" : "s");
    dpb_table_failure(row, failure, sizeof failure);
    dpb_svg_text(failure, out);
    fputs("</span></td></tr>\n", out);
}

static void write_line(const json_t *columns, const json_t *line, struct notes *notes, FILE *out)
{
    const json_t *cell;
    size_t i;
    if (json_is_true(json_object_get(line, "failed"))) {
        write_failed(line, json_array_size(columns), out);
        return;
    }
    fputs("<tr>", out);
    json_array_foreach(json_object_get(line, "cells"), i, cell)
    {
        const char *title = dpb_json_text(json_array_get(columns, i), "", "");
        fprintf(out, "<td class=\"%s\">", class_of(title));
        dpb_svg_text(dpb_json_text(cell, "", ""), out);
        if (strcmp(title, "samples/s") == 0 && notes)
            write_marks(notes, json_object_get(line, "row"), out);
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

/* `notes` NULL: without what qualifies the rates. */
static void write_table(const json_t *table, struct notes *notes, FILE *out)
{
    const json_t *columns = json_object_get(table, "columns"), *column, *line;
    const char *before = "";
    size_t i;
    fputs("<div class=\"wide\" tabindex=\"0\"><table class=\"rows\">\n<thead><tr>", out);
    json_array_foreach(columns, i, column)
    {
        const char *title = dpb_json_text(column, "", "");
        element("th", class_of(title), title, out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
    json_array_foreach(json_object_get(table, "lines"), i, line)
    {
        const char *group = dpb_json_text(line, "group", "");
        if (strcmp(group, before) != 0) {
            fprintf(out, "<tr class=\"group\"><th colspan=\"%zu\">", json_array_size(columns));
            dpb_svg_text(group, out);
            fputs("</th></tr>\n", out);
        }
        before = group;
        write_line(columns, line, notes, out);
    }
    fputs("</tbody></table></div>\n", out);
}

/* What `print` writes above or below the text table, one a line. */
static void write_notes(void (*print)(const json_t *document, FILE *out), const json_t *document,
                        FILE *out)
{
    char *text = NULL, *state = NULL;
    size_t length;
    FILE *memory = open_memstream(&text, &length);
    if (!memory)
        return;
    print(document, memory);
    fclose(memory);
    fputs(length > 0 ? "<ul>\n" : "", out);
    for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        element("li", begins(line, "warning: ") ? "warn" : "", begins(line, "- ") ? line + 2 : line,
                out);
        fputc('\n', out);
    }
    fputs(length > 0 ? "</ul>\n" : "", out);
    free(text);
}

static void write_warnings_of_runs(const struct notes *notes, FILE *out)
{
    const json_t *note;
    size_t i;
    if (json_array_size(notes->list) == 0)
        return;
    fputs("<h4>Warnings of the runs</h4>\n<ul class=\"warn\">\n", out);
    json_array_foreach(notes->list, i, note)
    {
        const double runs = dpb_json_number(note, "runs");
        fprintf(out, "<li>[%zu] ", i + 1);
        dpb_svg_text(dpb_json_text(note, "where", "?"), out);
        fputs(": ", out);
        dpb_svg_text(dpb_json_text(note, "code", "?"), out);
        fputs(": ", out);
        dpb_svg_text(dpb_json_text(note, "text", "?"), out);
        if (runs > 1)
            fprintf(out, " (the first of %.0f runs)", runs);
        fputs("</li>\n", out);
    }
    if (notes->n_left_out > 0)
        fprintf(out, "<li>%zu more warnings stand in the file alone, in runs[].warnings.</li>\n",
                notes->n_left_out);
    fputs("</ul>\n", out);
}

static void add_sweep(struct dpb_html *html, const char *path, const json_t *document)
{
    struct notes notes = {.document = document, .list = json_array()};
    json_t *table = dpb_sweep_table(document), *targets = dpb_target_table(document);
    write_head(path, document, html->body);
    write_notes(dpb_merge_notes, document, html->body);
    if (json_array_size(json_object_get(table, "lines")) > 0)
        write_table(table, &notes, html->body);
    if (json_array_size(json_object_get(targets, "lines")) > 0)
        write_table(targets, NULL, html->body);
    write_notes(dpb_sweep_notes, document, html->body);
    write_warnings_of_runs(&notes, html->body);
    dpb_figures_of_sweep(document, table, html->body);
    json_decref(table);
    json_decref(targets);
    json_decref(notes.list);
}

/* ---- the page ------------------------------------------------------------------------------ */

struct dpb_html *dpb_html_create(void)
{
    struct dpb_html *html = calloc(1, sizeof *html);
    if (!html)
        return NULL;
    html->body = open_memstream(&html->text, &html->length);
    if (html->body)
        return html;
    free(html);
    return NULL;
}

void dpb_html_destroy(struct dpb_html *html)
{
    if (!html)
        return;
    if (html->body)
        fclose(html->body);
    free(html->text);
    json_decref(html->machine);
    json_decref(html->versions);
    free(html);
}

void dpb_html_add(struct dpb_html *html, const char *path, const json_t *document)
{
    html->n_documents++;
    fputs("<section>\n", html->body);
    if (strcmp(dpb_json_text(document, "schema", ""), "dpbench.sweep/1") == 0)
        add_sweep(html, path, document);
    else
        add_run(html, path, document);
    write_origin(html, document);
    fputs("</section>\n", html->body);
}

char *dpb_html_finish(struct dpb_html *html, size_t *length)
{
    char *text = NULL;
    bool closed = fclose(html->body) == 0;
    html->body = NULL;
    FILE *out = closed ? open_memstream(&text, length) : NULL;
    if (!out)
        return NULL;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" "
          "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<title>dpbench report</title>\n<style>\n",
          out);
    fputs(style, out);
    fputs("</style>\n</head>\n<body>\n<header><h1>dpbench report</h1></header>\n", out);
    if (html->n_rates > 1) {
        fputs("<div class=\"figures\">\n", out);
        dpb_figure_of_rates(html->rates, html->n_rates, "result", out);
        fputs("</div>\n", out);
        if (html->n_rates_left_out > 0)
            fprintf(out,
                    "<p class=\"about\">%zu more results have a section below, and no place in "
                    "this figure.</p>\n",
                    html->n_rates_left_out);
    }
    fwrite(html->text, 1, html->length, out);
    fputs("</body>\n</html>\n", out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
