/* compare.c - see compare.h. */
#include "study/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "study/json.h"
#include "study/result.h"

enum { LABEL = 512 };

/* ---- what else differs --------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);
    return length >= n && strcmp(text + length - n, end) == 0;
}

static void note_difference(void *list, const char *path, const json_t *a, const json_t *b)
{
    /* A file is known by its checksum; where the results go changes none of them. */
    if (ends_with(path, ".file.path") || strcmp(path, "config.run.results") == 0)
        return;
    json_array_append_new(list, json_pack("{s:s, s:O?, s:O?}", "path", path, "a", a, "b", b));
}

/* {SECTION: {KEY: value}}: where a value came from makes no difference. @owned. */
static json_t *values_of(const json_t *config)
{
    json_t *values = json_object();
    const char *section, *key;
    json_t *rows, *entry;
    json_object_foreach((json_t *)(uintptr_t)config, section, rows)
    {
        json_t *of_section = json_object();
        json_object_foreach(rows, key, entry)
            json_object_set(of_section, key, json_object_get(entry, "value"));
        json_object_set_new(values, section, of_section);
    }
    return values;
}

/* @owned; NULL for lack of memory. */
static json_t *differences_of(const json_t *a, const json_t *b)
{
    static const struct {
        const char *name, *path;
        bool of_a_run; /* a sweep's cells have it each for itself */
    } parts[] = {
        {"status", "status", true},
        {"world.launcher", "world.launcher", true},
        {"world.machines", "world.machines", true},
        {"world.oversubscribed", "world.oversubscribed", true},
        {"strategy.consistency", "strategy.consistency", true},
        {"verification", "verification", true},
        {"timing.clock", "timing.clock", true},
        {"timing.steady", "timing.steady", true},
        {"load.disturbed", "load.disturbed", true},
        {"throttled", "throttled", true},
        {"inputs", "inputs", false},
        {"machine", "machine", false},
        {"versions", "versions", false},
        {"environment", "invocation.environment", false},
    };
    bool runs = json_object_get(a, "rows") == NULL;
    json_t *list = json_array();
    json_t *values_a = values_of(json_object_get(a, "config"));
    json_t *values_b = values_of(json_object_get(b, "config"));
    dpb_json_differences(values_a, values_b, "config", note_difference, list);
    json_decref(values_a);
    json_decref(values_b);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (runs || !parts[i].of_a_run)
            dpb_json_differences(dpb_result_part(a, parts[i].path),
                                 dpb_result_part(b, parts[i].path), parts[i].name, note_difference,
                                 list);
    return list;
}

/* ---- rates --------------------------------------------------------------------------------- */

/* Of a run (`row` NULL) or of a sweep's row. */
static struct dpb_rate rate_of(const json_t *document, const json_t *row)
{
    if (row == NULL)
        return dpb_result_rate(document);
    return (struct dpb_rate){dpb_json_number(row, "samples_per_s.median"),
                             dpb_json_number(row, "samples_per_s.low"),
                             dpb_json_number(row, "samples_per_s.high")};
}

static json_t *rate_to_json(const struct dpb_rate *rate)
{
    return json_pack("{s:o, s:o, s:o}", "samples_per_s", dpb_json_real(rate->rate), "low",
                     dpb_json_real(rate->low), "high", dpb_json_real(rate->high));
}

static const char *verdict_of(const struct dpb_rate *a, const struct dpb_rate *b)
{
    if (!isfinite(a->rate) || !isfinite(b->rate))
        return "not measured";
    /* One step has no interval, and so shows nothing. */
    if (!(a->high < b->low) && !(b->high < a->low))
        return "no difference shown";
    return b->rate > a->rate ? "faster" : "slower";
}

static bool is_regression(const struct dpb_rate *a, const struct dpb_rate *b, double threshold)
{
    if (!isfinite(threshold))
        return false;
    const char *verdict = verdict_of(a, b);
    return strcmp(verdict, "not measured") == 0 ||
           (strcmp(verdict, "slower") == 0 && b->rate < (1 - threshold) * a->rate);
}

/* What speaks against the rates of a run or row. @owned. */
static json_t *doubts_of(const json_t *document, const json_t *row)
{
    json_t *list = json_array();
    for (size_t i = 0; i < DPB_DOUBTS; i++) {
        const char *reason = dpb_result_doubt(row != NULL ? row : document, i);
        if (reason != NULL)
            json_array_append_new(list, json_string(reason));
    }
    return list;
}

/* Of two runs (rows NULL), or of two rows of one cell. */
static json_t *row_of(const json_t *a, const json_t *row_a, const json_t *b, const json_t *row_b,
                      double threshold)
{
    struct dpb_rate of_a = rate_of(a, row_a), of_b = rate_of(b, row_b);
    json_t *json_a = rate_to_json(&of_a), *json_b = rate_to_json(&of_b);
    json_object_set_new(json_a, "doubts", doubts_of(a, row_a));
    json_object_set_new(json_b, "doubts", doubts_of(b, row_b));
    return json_pack("{s:O?, s:o, s:o, s:o, s:s, s:b}", "cell", json_object_get(row_a, "cell"), "a",
                     json_a, "b", json_b, "ratio", dpb_json_real(of_b.rate / of_a.rate), "verdict",
                     verdict_of(&of_a, &of_b), "regression",
                     is_regression(&of_a, &of_b, threshold));
}

static const json_t *row_with_cell(const json_t *document, const json_t *cell)
{
    const json_t *rows = json_object_get(document, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (json_equal(json_object_get(json_array_get(rows, i), "cell"), cell))
            return json_array_get(rows, i);
    return NULL;
}

/* The cells that only `document` has. @owned. */
static json_t *cells_without(const json_t *document, const json_t *other)
{
    json_t *cells = json_array();
    const json_t *rows = json_object_get(document, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *cell = json_object_get(json_array_get(rows, i), "cell");
        if (row_with_cell(other, cell) == NULL)
            json_array_append(cells, cell);
    }
    return cells;
}

/* @owned; NULL for lack of memory. */
static json_t *compare_rows(const json_t *a, const json_t *b, double threshold)
{
    const json_t *rows = json_object_get(a, "rows");
    json_t *result = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *cell = json_object_get(row, "cell");
        const json_t *other = row_with_cell(b, cell);
        if (other == NULL)
            continue;
        json_array_append_new(result, row_of(a, row, b, other, threshold));
    }
    if (rows == NULL)
        json_array_append_new(result, row_of(a, NULL, b, NULL, threshold));
    return result;
}

/* ---- the document -------------------------------------------------------------------------- */

static json_t *side_of(const struct dpb_compared *side)
{
    const json_t *breakdown = dpb_json_at(side->document, "timing.breakdown_ns");
    double step_ns = dpb_json_number(side->document, "timing.elapsed_ns") /
                     dpb_json_number(side->document, "timing.steps");
    return json_pack("{s:o, s:o, s:o, s:o, s:O?}", "file", dpb_json_string(side->file), "name",
                     dpb_json_string(dpb_json_text(side->document, "name", "?")), "started",
                     dpb_json_string(dpb_json_text(side->document, "started", "?")), "step_ns",
                     dpb_json_real(step_ns), "breakdown_ns", breakdown);
}

dpb_status dpb_compare_make(const struct dpb_compared *a, const struct dpb_compared *b,
                            double threshold, json_t **document, bool *regression)
{
    const json_t *schema = json_object_get(a->document, "schema");
    if (!json_equal(schema, json_object_get(b->document, "schema")))
        return dpb_fail(DPB_USAGE, "%s is %s and %s is %s: compare two runs, or two sweeps",
                        a->file, dpb_json_text(a->document, "schema", "?"), b->file,
                        dpb_json_text(b->document, "schema", "?"));
    json_t *rows = compare_rows(a->document, b->document, threshold);
    if (rows != NULL && json_array_size(rows) == 0) {
        json_decref(rows);
        return dpb_fail(DPB_USAGE, "%s and %s have no cell in common", a->file, b->file);
    }
    json_t *made = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "schema", "dpbench.compare/1", "a", side_of(a),
        "b", side_of(b), "threshold", dpb_json_real(threshold), "differences",
        differences_of(a->document, b->document), "rows", rows, "only_a",
        cells_without(a->document, b->document), "only_b", cells_without(b->document, a->document));
    if (made == NULL)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    *regression = isfinite(threshold) && json_array_size(json_object_get(made, "only_a")) > 0;
    for (size_t i = 0; i < json_array_size(rows); i++)
        *regression |= json_is_true(json_object_get(json_array_get(rows, i), "regression"));
    json_object_set_new(made, "regression", json_boolean(*regression));
    *document = made;
    return DPB_OK;
}

/* ---- for people ---------------------------------------------------------------------------- */

static void print_value(const json_t *value, FILE *out)
{
    char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    fputs(text != NULL ? text : "missing", out);
    free(text);
}

static void print_differences(const json_t *document, FILE *out)
{
    const json_t *list = json_object_get(document, "differences"), *entry;
    size_t i, n_settings = 0;
    fputs(json_array_size(list) == 0 ? "nothing differs but the times\n" : "different (A | B):\n",
          out);
    json_array_foreach(list, i, entry)
    {
        const char *path = dpb_json_text(entry, "path", "?");
        n_settings += strncmp(path, "config.", 7) == 0;
        fprintf(out, "  %-32s ", path);
        print_value(json_object_get(entry, "a"), out);
        fputs(" | ", out);
        print_value(json_object_get(entry, "b"), out);
        fputc('\n', out);
    }
    if (n_settings > 1)
        fprintf(out, "  %zu settings differ: rates do not tell which of them it was\n", n_settings);
}

static void label_of(const json_t *cell, char label[LABEL])
{
    const char *key;
    json_t *value;
    size_t at = 0;
    snprintf(label, LABEL, "run");
    json_object_foreach((json_t *)(uintptr_t)cell, key, value)
    {
        int n = snprintf(label + at, LABEL - at, "%s%s=%s", at > 0 ? " " : "", key,
                         dpb_json_text(value, "", "?"));
        at += n > 0 && at + (size_t)n < LABEL ? (size_t)n : 0;
    }
}

static void print_rate(const json_t *rate, FILE *out)
{
    double value = dpb_json_number(rate, "samples_per_s");
    char interval[64] = "-", text[32] = "-";
    int decimals = value < 1000 ? 1 : 0;
    if (isfinite(value))
        snprintf(text, sizeof text, "%.*f", decimals, value);
    if (isfinite(dpb_json_number(rate, "low")))
        snprintf(interval, sizeof interval, "%.*f..%.*f", decimals, dpb_json_number(rate, "low"),
                 decimals, dpb_json_number(rate, "high"));
    fprintf(out, "  %11s  %16s", text, interval);
}

/* "; A was disturbed, timed only once". */
static void print_doubts(const json_t *row, FILE *out)
{
    static const char *const sides[] = {"a", "b"}, *const names[] = {"A", "B"};
    for (size_t side = 0; side < 2; side++) {
        const json_t *doubts = json_object_get(json_object_get(row, sides[side]), "doubts"), *one;
        size_t i;
        json_array_foreach(doubts, i, one)
        {
            if (i == 0)
                fprintf(out, "; %s was ", names[side]);
            fprintf(out, "%s%s", i > 0 ? ", " : "", json_string_value(one));
        }
    }
}

static void print_rows(const json_t *document, FILE *out)
{
    const json_t *rows = json_object_get(document, "rows"), *row;
    char label[LABEL];
    int width = 4;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        label_of(json_object_get(row, "cell"), label);
        width = (int)strlen(label) > width ? (int)strlen(label) : width;
    }
    fprintf(out, "\n%-*s  %11s  %16s  %11s  %16s  %6s\n", width, "cell", "A samples/s", "interval",
            "B samples/s", "interval", "B / A");
    json_array_foreach(rows, i, row)
    {
        double ratio = dpb_json_number(row, "ratio");
        label_of(json_object_get(row, "cell"), label);
        fprintf(out, "%-*s", width, label);
        print_rate(json_object_get(row, "a"), out);
        print_rate(json_object_get(row, "b"), out);
        if (isfinite(ratio))
            fprintf(out, "  %6.3f", ratio);
        else
            fprintf(out, "  %6s", "-");
        fprintf(out, "  %s%s", dpb_json_text(row, "verdict", "?"),
                json_is_true(json_object_get(row, "regression")) ? " REGRESSION" : "");
        print_doubts(row, out);
        fputc('\n', out);
    }
}

static void print_only(const json_t *document, const char *key, const char *side, FILE *out)
{
    const json_t *cell;
    char label[LABEL];
    size_t i;
    json_array_foreach(json_object_get(document, key), i, cell)
    {
        label_of(cell, label);
        fprintf(out, "%s: only %s has it\n", label, side);
    }
}

/* Where the time of a step went; of two runs. */
static void print_breakdown(const json_t *document, FILE *out)
{
    static const char *const parts[] = {"data_wait",   "forward",       "delay",
                                        "backward",    "optimizer",     "comm_exposed",
                                        "comm_hidden", "comm_wait_peer"};
    const json_t *a = json_object_get(document, "a"), *b = json_object_get(document, "b");
    double step_a = dpb_json_number(a, "step_ns"), step_b = dpb_json_number(b, "step_ns");
    if (!isfinite(step_a) || !isfinite(step_b))
        return;
    fprintf(out, "\n%-16s %12s %12s %12s\n", "ms a step", "A", "B", "B - A");
    fprintf(out, "%-16s %12.4f %12.4f %+12.4f\n", "step", step_a / 1e6, step_b / 1e6,
            (step_b - step_a) / 1e6);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        double of_a = dpb_json_number(json_object_get(a, "breakdown_ns"), parts[i]) / 1e6;
        double of_b = dpb_json_number(json_object_get(b, "breakdown_ns"), parts[i]) / 1e6;
        if (strcmp(parts[i], "delay") == 0 && !(of_a > 0) && !(of_b > 0))
            continue; /* as most runs have none */
        fprintf(out, "  %-14s %12.4f %12.4f %+12.4f\n", parts[i], of_a, of_b, of_b - of_a);
    }
}

static void print_side(const json_t *document, const char *side, const char *title, FILE *out)
{
    const json_t *of = json_object_get(document, side);
    fprintf(out, "%s: %s (%s, %s)\n", title, dpb_json_text(of, "file", "?"),
            dpb_json_text(of, "name", "?"), dpb_json_text(of, "started", "?"));
}

void dpb_compare_print(const json_t *document, FILE *out)
{
    double threshold = dpb_json_number(document, "threshold");
    print_side(document, "a", "A", out);
    print_side(document, "b", "B", out);
    print_differences(document, out);
    print_rows(document, out);
    print_only(document, "only_a", "A", out);
    print_only(document, "only_b", "B", out);
    print_breakdown(document, out);
    if (json_is_null(dpb_json_at(json_array_get(json_object_get(document, "rows"), 0), "cell")))
        fputs("\none run each: a [sweep] with repeats tells chance from difference\n", out);
    if (isfinite(threshold))
        fprintf(out, "%s: B may be %.3g %% slower\n",
                json_is_true(json_object_get(document, "regression")) ? "regression"
                                                                      : "no regression",
                100 * threshold);
}
