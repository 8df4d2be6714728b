/* html.c - see html.h. */
#include "study/page/html.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "study/page/figures.h"
#include "base/json.h"
#include "study/page/markup.h"
#include "study/document/rates.h"
#include "record/result.h"
#include "study/document/read.h"

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

enum { MOST_RATES = 64, TEXT = 256 };

struct dpb_html {
    FILE *body;
    char *text; /* of body, once closed */
    size_t length;
    size_t n_documents;
    json_t *machine, *versions; /* of the first document */
    /* One row for each run that is no part of a sweep. */
    struct dpb_svg_row rates[MOST_RATES];
    size_t n_rates, n_rates_left_out;
};

/* ---- machine, settings, versions ----------------------------------------------------------- */

static void write_value(const json_t *value, FILE *out)
{
    if (json_is_string(value))
        dpb_markup(out, "%s", json_string_value(value));
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

/* A row for each value below `value`, its name the path to it. Null and empty values are left out.
 * NOLINTNEXTLINE(misc-no-recursion): as deep as the document */
static void write_facts(const char *path, const json_t *value, FILE *out)
{
    char below[TEXT];
    const char *gap = path[0] != '\0' ? "." : "";
    if (json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_string(value) && json_string_length(value) == 0))
        return;
    if (json_is_object(value)) {
        dpb_each_member(value, key, member) {
            snprintf(below, sizeof below, "%.*s%s%.100s", TEXT - 104, path, gap, key);
            write_facts(below, member, out);
        }
        return;
    }
    if (json_is_array(value) && is_structured(value)) {
        dpb_each_item(value, i, member) {
            snprintf(below, sizeof below, "%.*s[%zu]", TEXT - 30, path, i);
            write_facts(below, member, out);
        }
        return;
    }
    dpb_markup(out, "<tr><th>%s</th><td>", path);
    if (!json_is_array(value))
        write_value(value, out);
    dpb_each_item(value, i, member) {
        fputs(i > 0 ? ", " : "", out);
        write_value(member, out);
    }
    fputs("</td></tr>\n", out);
}

static void write_table_of(const char *title, const json_t *value, const json_t *first, FILE *out)
{
    if (!value)
        return;
    dpb_markup(out, "<h3>%s</h3>", title);
    if (first && json_equal(value, first)) {
        fputs("\n<p class=\"about\">as of the first result</p>\n", out);
        return;
    }
    fputs("\n<table class=\"facts\">\n", out);
    write_facts("", value, out);
    fputs("</table>\n", out);
}

/* The settings that somebody set, each with its origin; defaults are counted. */
static void write_settings(const json_t *config, FILE *out)
{
    size_t n_defaults = 0;
    fputs("<h3>Settings</h3>\n<table class=\"facts\">\n", out);
    dpb_each_member(config, section, keys)
        dpb_each_member(keys, key, setting) {
            const char *origin = dpb_json_text(setting, "origin", "");
            if (strcmp(origin, "default") == 0) {
                n_defaults++;
                continue;
            }
            dpb_markup(out, "<tr><th>%s.%s</th><td>", section, key);
            write_value(json_object_get(setting, "value"), out);
            dpb_markup(out, " <span class=\"origin\">%s</span></td></tr>\n", origin);
        }
    fputs("</table>\n", out);
    if (n_defaults > 0)
        fprintf(out, "<p class=\"about\">%zu more settings have their defaults.</p>\n", n_defaults);
}

static void write_origin(struct dpb_html *html, const json_t *document)
{
    const json_t *machine = dpb_result_part(document, "machine");
    json_t *versions = dpb_result_all_versions(document);
    json_t *first = dpb_result_versions_within(html->versions, versions);
    fputs("<div class=\"parts\">\n", html->body);
    write_settings(json_object_get(document, "config"), html->body);
    write_table_of("Machine", machine, html->machine, html->body);
    write_table_of("Versions", versions, first, html->body);
    fputs("</div>\n", html->body);
    json_decref(first);
    if (!html->machine)
        html->machine = json_incref((json_t *)(uintptr_t)machine);
    if (!html->versions)
        html->versions = json_incref(versions);
    json_decref(versions);
}

static void write_head(const char *path, const json_t *document, FILE *out)
{
    const json_t *words = dpb_result_part(document, "invocation.command");
    const char *processor = dpb_json_text(dpb_result_part(document, "machine.processor"), "", NULL);
    /* A document of dpb_result_refused has its settings alone. */
    const char *wanted = dpb_json_text(document, "config.run.name.value", "run");
    dpb_markup(out, "<h2>%s</h2>\n<p class=\"about\">%s, started %s",
               dpb_json_text(document, "name", wanted), path,
               dpb_json_text(document, "started", "at an unknown time"));
    if (processor)
        dpb_markup(out, ", on %s", processor);
    fputs("</p>\n", out);
    if (json_array_size(words) > 0)
        fputs("<p class=\"about\">", out);
    dpb_each_item(words, i, word)
        dpb_markup(out, "%s%s", i > 0 ? " " : "", dpb_json_text(word, "", "?"));
    fputs(json_array_size(words) > 0 ? "</p>\n" : "", out);
    if (!dpb_json_is(document, "status", "ok")) {
        dpb_markup(out, "<p class=\"warn bad\">%s: %s</p>\n",
                   dpb_json_text(document, "status", "?"),
                   dpb_json_text(document, "error", "no reason given"));
    }
}

/* ---- a run --------------------------------------------------------------------------------- */

/* The text of dpb_result_print as rows: "  LABEL TEXT", the label of 13 characters. Lines further
 * in, and lines without label, continue the row before. */
static void write_lines_of_run(char *text, FILE *out)
{
    char *state = NULL;
    bool is_first = true, open = false;
    fputs("<table class=\"facts\">\n", out);
    for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        const bool part = dpb_begins_with(line, "    "),
                   labelled = !part && dpb_begins_with(line, "  ");
        if (is_first || dpb_begins_with(line, "SamplesPerSec:") ||
            dpb_begins_with(line, "  warning ")) {
            is_first = false;
            continue;
        }
        if (labelled && strlen(line) > 16) {
            char label[16];
            snprintf(label, sizeof label, "%.13s", line + 2);
            for (size_t n = strlen(label); n > 0 && label[n - 1] == ' '; n--)
                label[n - 1] = '\0';
            fputs(open ? "</td></tr>\n" : "", out);
            dpb_markup(out, "<tr><th>%s</th><td>%s", label, line + 16);
            open = true;
        } else if (open) {
            dpb_markup(out, "<pre>%s</pre>", line + strspn(line, " "));
        }
    }
    fputs(open ? "</td></tr>\n</table>\n" : "</table>\n", out);
}

/* The rate, and all that qualifies it. */
static void write_rate(const char *text, const json_t *document, FILE *out)
{
    const char *rate = strstr(text, "SamplesPerSec:");
    char doubts[TEXT];
    dpb_rates_doubts(document, DPB_DOUBTS, doubts, sizeof doubts);
    if (rate && (rate == text || rate[-1] == '\n')) {
        char line[TEXT];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(rate, "\n"), rate);
        dpb_markup(out, "<p class=\"rate\">%s</p>", line);
    }
    fputs("\n<ul class=\"warn\">\n", out);
    if (doubts[0] != '\0')
        dpb_markup(out, "<li>No conclusion from this rate: %s.</li>\n", doubts);
    dpb_each_item(json_object_get(document, "warnings"), i, warning) {
        dpb_markup(out, "<li>%s: %s", dpb_json_text(warning, "code", "?"),
                   dpb_json_text(warning, "text", "?"));
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
    struct dpb_svg_row *rate = &html->rates[html->n_rates++];
    const char *slash = strrchr(path, '/');
    dpb_figure_rate(document, NULL, rate);
    snprintf(rate->label, sizeof rate->label, "%zu: %.100s", html->n_documents,
             slash ? slash + 1 : path);
}

static void add_run(struct dpb_html *html, const char *path, const json_t *document)
{
    char *text = dpb_json_printed(document, dpb_result_print);
    if (!text)
        return;
    write_rate(text, document, html->body);
    write_lines_of_run(text, html->body);
    free(text);
    dpb_figures_of_run(document, html->body);
    dpb_figures_of_monitor(document, html->body);
    add_rate(html, path, document);
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
    json_t *file = dpb_json_file(path, strlen(path));
    const char *name = dpb_json_text(file, "", "?");
    html->n_documents++;
    fputs("<section>\n", html->body);
    write_head(name, document, html->body);
    if (dpb_json_is(document, "schema", "dpbench.sweep/1"))
        dpb_html_sweep(document, html->body);
    else
        add_run(html, name, document);
    json_decref(file);
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
