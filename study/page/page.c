/* page.c - see page.h. */
#include "study/page/page.h"

#include <math.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/stats.h"
#include "record/result.h"
#include "study/document/rates.h"
#include "study/document/read.h"
#include "study/document/rows.h"
#include "study/document/target.h"
#include "study/page/curves.h"
#include "study/table/merge.h"
#include "study/table/sweep_notes.h"
#include "study/table/sweep_print.h"
#include "study/table/sweep_table.h"
#include "study/table/target_print.h"

enum { MOST_RUNS = 1000, TEXT = 256 };

struct dpb_page {
    json_t *sections; /* @owned */
    FILE *plain;      /* the tables as text */
    char *text;       /* of `plain`, once closed */
    size_t length;
};

static void put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

/* A part of the document, as it is; NULL: it has none, and none is put. */
static json_t *kept(const json_t *part)
{
    return json_incref((json_t *)(uintptr_t)part);
}

static json_t *text_at(const json_t *of, const char *path, const char *otherwise)
{
    return dpb_json_string(dpb_json_text(of, path, otherwise));
}

/* ---- texts --------------------------------------------------------------------------------- */

/* The lines that `print` writes. */
static json_t *lines_of(void (*print)(const json_t *document, FILE *out), const json_t *document)
{
    json_t *lines = json_array();
    char *text = dpb_json_printed(document, print), *state = NULL;
    for (char *line = text ? strtok_r(text, "\n", &state) : NULL; line;
         line = strtok_r(NULL, "\n", &state))
        json_array_append_new(lines, dpb_json_string(line));
    free(text);
    return lines;
}

/* Why a rate allows no conclusion; "": it allows one. */
static json_t *doubts_of(const json_t *of)
{
    char doubts[TEXT];
    dpb_rates_doubts(of, DPB_DOUBTS, doubts, sizeof doubts);
    return dpb_json_string(doubts);
}

static json_t *warnings_of(const json_t *run)
{
    json_t *texts = json_array();
    dpb_each_item(json_object_get(run, "warnings"), i, warning) {
        const double count = dpb_json_number(warning, "count");
        char times[64] = "";
        if (count > 1)
            snprintf(times, sizeof times, " (%.0f times)", count);
        json_array_append_new(texts, json_sprintf("%s: %s%s", dpb_json_text(warning, "code", "?"),
                                                  dpb_json_text(warning, "text", "?"), times));
    }
    return texts;
}

/* As text: 64 bits of an integer are too many for the script's numbers. */
static json_t *text_of(const json_t *value)
{
    return json_is_string(value)    ? dpb_json_string(json_string_value(value))
           : json_is_real(value)    ? json_sprintf("%.10g", json_real_value(value))
           : json_is_integer(value) ? json_sprintf("%lld", (long long)json_integer_value(value))
           : json_is_boolean(value) ? json_string(json_is_true(value) ? "yes" : "no")
                                    : json_string("");
}

/* Of an array each value's, else that of the value. */
static json_t *texts_of(const json_t *value)
{
    json_t *texts = json_array();
    dpb_each_item(value, i, member)
        json_array_append_new(texts, text_of(member));
    if (!json_is_array(value))
        json_array_append_new(texts, text_of(value));
    return texts;
}

/* Adds [path, texts] for each value below `value`. Null and empty values are left out.
 * NOLINTNEXTLINE(misc-no-recursion): as deep as the document */
static void add_facts(const char *path, const json_t *value, json_t *facts)
{
    char below[TEXT];
    const json_t *first = json_array_get(value, 0);
    const bool is_structured = json_is_object(first) || json_is_array(first);
    dpb_each_member(value, key, member) {
        snprintf(below, sizeof below, "%.*s%s%.100s", TEXT - 104, path, path[0] ? "." : "", key);
        add_facts(below, member, facts);
    }
    dpb_each_item(is_structured ? value : NULL, i, member) {
        snprintf(below, sizeof below, "%.*s[%zu]", TEXT - 30, path, i);
        add_facts(below, member, facts);
    }
    if ((first && !is_structured) || json_string_length(value) > 0 || json_is_number(value) ||
        json_is_boolean(value))
        json_array_append_new(facts, json_pack("[o, o]", dpb_json_string(path), texts_of(value)));
}

static json_t *facts_of(const json_t *value)
{
    json_t *facts = json_array();
    add_facts("", value, facts);
    return facts;
}

/* As [name, texts, origin]. */
static json_t *settings_of(const json_t *config)
{
    json_t *settings = json_array();
    dpb_each_member(config, name, keys)
        dpb_each_member(keys, key, setting)
            json_array_append_new(settings, json_pack("[o, o, o]", json_sprintf("%s.%s", name, key),
                                                      texts_of(json_object_get(setting, "value")),
                                                      text_at(setting, "origin", "")));
    return settings;
}

/* ---- a run --------------------------------------------------------------------------------- */

/* How far a part is from the part's median over the workers, as a share of the worker's step: 0 to
 * 3, negative below the median. */
static int shade_of(double share)
{
    const double far = fabs(share);
    const int shade = (far >= 0.01) + (far >= DPB_MARGIN) + (far >= 0.2);
    return share < 0 ? -shade : shade;
}

/* A part of the step of each worker, in ms, with its shade. A part that none has is left out. */
static void add_part(const json_t *workers, const char *title, const char *part, json_t *table)
{
    struct dpb_stats stats;
    char path[64];
    size_t n;
    snprintf(path, sizeof path, "breakdown_ns.%s", part);
    double *ns = dpb_json_numbers(workers, path, &n);
    dpb_stats_of(ns, n, &stats);
    const bool some = ns && stats.max != 0;
    if (some)
        json_array_append_new(json_object_get(table, "titles"), json_string(title));
    dpb_each_item(some ? json_object_get(table, "lines") : NULL, i, line) {
        const double step = dpb_json_number(json_array_get(workers, i), "step_ns.mean");
        json_t *text = isfinite(ns[i]) ? json_sprintf("%.3f", ns[i] / 1e6) : json_string("-");
        json_array_append_new(json_object_get(line, "cells"),
                              json_pack("[o, i]", text, shade_of((ns[i] - stats.median) / step)));
    }
    free(ns);
}

/* Each worker's own step: how often it was the last, where the run says so, and its parts. NULL:
 * one worker, whose parts are those of the run. */
static json_t *workers_of(const json_t *run)
{
    static const char *const titles[] = {"data_wait", "forward", "delay",    "backward",
                                         "exposed",   "wait",    "optimizer"};
    static const char *const parts[] = {"data_wait",    "forward",           "delay",    "backward",
                                        "comm_exposed", "comm_exposed_wait", "optimizer"};
    const json_t *shares = dpb_json_at(run, "why.last.shares");
    json_t *workers = json_array(), *lines = json_array(), *heads = json_pack("[s]", "rank");
    json_t *table = json_pack("{s:o, s:i, s:o}", "titles", heads, "names", 1, "lines", lines);
    if (shares)
        json_array_append_new(heads, json_string("last"));
    dpb_each_item(json_object_get(run, "ranks"), i, rank) {
        if (!dpb_json_is(rank, "role", "worker"))
            continue;
        json_t *cells = json_pack("[o]", json_sprintf("%.0f", dpb_json_number(rank, "rank")));
        const double share = dpb_json_item(shares, dpb_json_index(rank, "rank"));
        if (shares)
            json_array_append_new(cells, json_sprintf("%.1f %%", 100 * share));
        json_array_append_new(workers, kept(rank));
        json_array_append_new(
            lines, json_pack("{s:o, s:s, s:s}", "cells", cells, "group", "", "failed", ""));
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        add_part(workers, titles[i], parts[i], table);
    const bool several = json_array_size(workers) > 1;
    json_decref(workers);
    if (!several)
        json_decref(table);
    return several ? table : NULL;
}

/* As a row's samples_per_s has it. */
static json_t *rate_of(const json_t *run)
{
    double low, high, mean = dpb_json_number(run, "timing.samples_per_s.mean");
    struct dpb_estimate estimate;
    dpb_rates_estimate(run, NULL, &estimate);
    dpb_estimate_interval(&estimate, &low, &high);
    return json_pack("{s:o, s:o, s:o}", "median", dpb_json_real(mean), "low", dpb_json_real(low),
                     "high", dpb_json_real(high));
}

static void add_run(const json_t *run, json_t *section)
{
    const json_t *before = dpb_json_at(run, "timing.warmup_step_ns");
    const struct dpb_drawn drawn = {.one = run};
    put(section, "rate", rate_of(run));
    put(section, "doubts", doubts_of(run));
    put(section, "warnings", warnings_of(run));
    put(section, "lines", lines_of(dpb_result_print, run));
    put(section, "steps", dpb_curves_steps(run));
    put(section, "warmup", json_integer((json_int_t)json_array_size(before)));
    put(section, "breakdown_ns", kept(dpb_json_at(run, "timing.breakdown_ns")));
    put(section, "workers", workers_of(run));
    put(section, "training", dpb_curves_training(&drawn, &drawn));
    put(section, "monitor", dpb_curves_monitor(run));
}

/* ---- a sweep ------------------------------------------------------------------------------- */

/* The warnings of a row's runs: by code the first text, and the number of runs that have it. */
static json_t *warnings_of_row(const json_t *document, const json_t *row)
{
    json_t *notes = json_array();
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        const bool is_of = json_equal(json_object_get(run, "cell"), json_object_get(row, "cell"));
        json_t *codes = json_array(); /* of this run: a code may have several texts */
        dpb_each_item(is_of ? json_object_get(run, "warnings") : NULL, k, warning) {
            json_t *code = text_at(warning, "code", "?");
            json_t *note = dpb_json_find(notes, "code", code);
            if (!note) {
                note = json_pack("{s:O, s:o}", "code", code, "text", text_at(warning, "text", "?"));
                json_array_append_new(notes, note);
            }
            if (!dpb_json_find(codes, "", code))
                put(note, "runs", json_real(fmax(dpb_json_number(note, "runs"), 0) + 1));
            json_array_append_new(codes, code);
        }
        json_decref(codes);
    }
    return notes;
}

static const json_t *seed_of(const json_t *run)
{
    return dpb_json_at(run, "config.run.seed.value");
}

/* A good run of the row, and of the seed unless `seed` is NULL: the first that was not disturbed,
 * or the first. NULL: none. */
static const json_t *run_of(const json_t *document, const json_t *row, const char *purpose,
                            const json_t *seed)
{
    const json_t *first = NULL;
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        if (!dpb_sweep_is_of(run, row, purpose) || (seed && !json_equal(seed_of(run), seed)))
            continue;
        if (!dpb_json_true(run, "load.disturbed"))
            return run;
        first = first ? first : run;
    }
    return first;
}

static struct dpb_drawn drawn_of(const json_t *document, const json_t *row, const char *purpose)
{
    const json_t *all = json_object_get(document, "runs");
    struct dpb_drawn runs = {.one = run_of(document, row, purpose, NULL),
                             .of_seeds = calloc(json_array_size(all) + 1, sizeof *runs.of_seeds)};
    dpb_each_item(runs.of_seeds ? all : NULL, i, run) {
        bool is_new = seed_of(run) && dpb_sweep_is_of(run, row, purpose);
        for (size_t k = 0; k < runs.n && is_new; k++)
            is_new = !json_equal(seed_of(runs.of_seeds[k]), seed_of(run));
        if (is_new)
            runs.of_seeds[runs.n++] = run_of(document, row, purpose, seed_of(run));
    }
    return runs;
}

/* Whether no row of its group has a run and more workers. */
static bool has_most(const struct dpb_table *table, const json_t *const *runs, size_t i)
{
    const struct dpb_table_line *line = &table->lines[i];
    for (size_t k = 0; k < table->n; k++)
        if (runs[k] && strcmp(table->lines[k].group, line->group) == 0 &&
            dpb_json_number(table->lines[k].row, "workers") > dpb_json_number(line->row, "workers"))
            return false;
    return true;
}

/* A page with the curves of so many runs is too much for a browser. */
static bool has_too_many(const json_t *document)
{
    return json_array_size(json_object_get(document, "runs")) > MOST_RUNS;
}

/* Adds rows, and curves to the lines with the most workers of each group. */
static void add_rows(const json_t *document, const struct dpb_table *table, json_t *lines)
{
    const json_t **runs = calloc(table->n + 1, sizeof *runs);
    const char *evaluated = dpb_json_number(document, "accuracy_steps") > 0 ? "accuracy" : "timing";
    for (size_t i = 0; runs && i < table->n; i++)
        runs[i] = run_of(document, table->lines[i].row, "timing", NULL);
    dpb_each_item(runs ? lines : NULL, i, line) {
        const json_t *row = table->lines[i].row;
        put(line, "row", kept(row));
        put(line, "doubts", doubts_of(row));
        put(line, "warnings", warnings_of_row(document, row));
        if (has_too_many(document) || !has_most(table, runs, i))
            continue;
        struct dpb_drawn losses = drawn_of(document, row, "timing");
        struct dpb_drawn accuracies = drawn_of(document, row, evaluated);
        if (losses.one || accuracies.one)
            put(line, "training", dpb_curves_training(&losses, &accuracies));
        free(losses.of_seeds);
        free(accuracies.of_seeds);
    }
    free(runs);
}

/* The table as texts. Names, the columns before the workers, stand to the left. */
static json_t *table_of(const struct dpb_table *table)
{
    json_t *titles = json_array(), *lines = json_array();
    int n_names = 0;
    for (size_t c = 0; c < table->n_columns; c++) {
        n_names += c < DPB_TABLE_WORKERS && table->shown[c];
        if (table->shown[c])
            json_array_append_new(titles, json_string(table->titles[c]));
    }
    for (size_t i = 0; i < table->n; i++) {
        const struct dpb_table_line *line = &table->lines[i];
        json_t *cells = json_array(), *texts = json_pack("{s:o}", "cells", cells);
        for (size_t c = 0; c < table->n_columns; c++)
            if (table->shown[c] && (!line->failed || c == DPB_TABLE_STRATEGY))
                json_array_append_new(cells, dpb_json_string(line->text[c]));
        char why[DPB_TABLE_FAILURE];
        dpb_table_failed_cell(line, why);
        put(texts, "failed", dpb_json_string(line->failed ? why : ""));
        put(texts, "group", dpb_json_string(line->group));
        json_array_append_new(lines, texts);
    }
    return json_pack("{s:o, s:i, s:o}", "titles", titles, "names", n_names, "lines", lines);
}

static void add_sweep(const json_t *document, json_t *section)
{
    struct dpb_table table, targets;
    json_t *above = lines_of(dpb_merge_notes, document);
    if (has_too_many(document))
        json_array_append_new(
            above, json_sprintf(
                       "- %zu runs, more than %d: this page has their rows and no curves of runs; "
                       "dpbench report --csv=steps has the steps.",
                       json_array_size(json_object_get(document, "runs")), MOST_RUNS));
    put(section, "above", above);
    if (dpb_sweep_table_make(document, &table) && table.n > 0) {
        json_t *rows = table_of(&table);
        add_rows(document, &table, json_object_get(rows, "lines"));
        put(section, "rows", rows);
    }
    if (dpb_target_table_make(document, &targets))
        put(section, "targets", table_of(&targets));
    put(section, "below", lines_of(dpb_sweep_notes, document));
    dpb_table_release(&table);
    dpb_table_release(&targets);
}

/* ---- the page ------------------------------------------------------------------------------ */

struct dpb_page *dpb_page_create(void)
{
    struct dpb_page *page = calloc(1, sizeof *page);
    if (!page)
        return NULL;
    page->sections = json_array();
    page->plain = open_memstream(&page->text, &page->length);
    if (page->sections && page->plain)
        return page;
    dpb_page_destroy(page);
    return NULL;
}

void dpb_page_destroy(struct dpb_page *page)
{
    if (!page)
        return;
    if (page->plain)
        fclose(page->plain);
    free(page->text);
    json_decref(page->sections);
    free(page);
}

void dpb_page_add(struct dpb_page *page, const char *path, const json_t *document)
{
    const bool is_sweep = dpb_json_is(document, "schema", "dpbench.sweep/1");
    json_t *section = json_object(), *versions = dpb_result_all_versions(document);
    /* A document of dpb_result_refused has its settings alone. */
    const char *wanted = dpb_json_text(document, "config.run.name.value", "run");
    put(section, "path", dpb_json_file(path, strlen(path)));
    put(section, "name", text_at(document, "name", wanted));
    put(section, "started", text_at(document, "started", "at an unknown time"));
    put(section, "processor", text_at(dpb_result_part(document, "machine.processor"), "", ""));
    put(section, "command", texts_of(dpb_result_part(document, "invocation.command")));
    put(section, "status", text_at(document, "status", "?"));
    put(section, "error", text_at(document, "error", "no reason given"));
    put(section, "settings", settings_of(json_object_get(document, "config")));
    put(section, "machine", facts_of(dpb_result_part(document, "machine")));
    put(section, "versions", facts_of(versions));
    (is_sweep ? add_sweep : add_run)(document, section);
    fprintf(page->plain, "%s\n", dpb_json_text(section, "path", "?"));
    (is_sweep ? dpb_sweep_print : dpb_result_print)(document, page->plain);
    fputc('\n', page->plain);
    json_array_append_new(page->sections, section);
    json_decref(versions);
}

/* Writes the template up to the mark. Returns what stands behind the mark; NULL: there is none. */
static const char *copy_until(const char *template, const char *mark, FILE *out)
{
    const char *found = template ? strstr(template, mark) : NULL;
    if (found)
        fwrite(template, 1, (size_t)(found - template), out);
    return found ? found + strlen(mark) : NULL;
}

/* The browser runs this script alone, whatever a document might bring. */
static void write_hash(const char *template, FILE *out)
{
    static const char begin[] = "<script>";
    const char *from = strstr(template, begin), *to = from ? strstr(from, "</script>") : NULL;
    unsigned char hash[crypto_hash_sha256_BYTES];
    char text[sodium_base64_ENCODED_LEN(sizeof hash, sodium_base64_VARIANT_ORIGINAL)];
    if (!to)
        return; /* nothing to run */
    from += sizeof begin - 1;
    crypto_hash_sha256(hash, (const unsigned char *)from, (size_t)(to - from));
    sodium_bin2base64(text, sizeof text, hash, sizeof hash, sodium_base64_VARIANT_ORIGINAL);
    fprintf(out, "sha256-%s", text);
}

/* Writes text of documents, none of which begins an element of the page. */
static void write_escaped(const char *text, size_t length, const char *less, const char *and,
                          FILE *out)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == '<' || text[i] == '&')
            fputs(text[i] == '<' ? less : and, out);
        else
            fputc(text[i], out);
}

static int write_json(const char *text, size_t length, void *out)
{
    write_escaped(text, length, "\\u003c", "&", out);
    return 0;
}

dpb_status dpb_page_finish(struct dpb_page *page, const char *template, char **text, size_t *length)
{
    char *made = NULL;
    const char *rest = template;
    FILE *out = open_memstream(&made, length);
    bool good = fclose(page->plain) == 0 && out;
    page->plain = NULL;
    if (out) {
        rest = copy_until(rest, "@SCRIPT@", out);
        write_hash(template, out);
        rest = copy_until(rest, "@TEXT@", out);
        write_escaped(page->text, page->length, "&lt;", "&amp;", out);
        rest = copy_until(rest, "@REPORT@", out);
        good &= json_dump_callback(page->sections, write_json, out,
                                   JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;
        fputs(rest ? rest : "", out);
        good &= fclose(out) == 0;
    }
    *text = good && rest ? made : NULL;
    if (!*text)
        free(made);
    DPB_TRY(dpb_allocated(good));
    return rest ? DPB_OK
                : dpb_fail(DPB_IO, "the page's template lacks @SCRIPT@, @TEXT@ or @REPORT@");
}
