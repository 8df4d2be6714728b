/* compare.c - see compare.h. */
#include "study/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "study/json.h"
#include "study/rates.h"
#include "study/result.h"
#include "study/target.h"

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
    bool runs = !json_object_get(a, "rows");
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

/* What speaks against the rates of a run or row. @owned. */
static json_t *doubts_of(const json_t *of)
{
    json_t *list = json_array();
    for (size_t i = 0; i < DPB_DOUBT_ONCE; i++) {
        const char *reason = dpb_rates_doubt(of, i);
        if (reason)
            json_array_append_new(list, json_string(reason));
    }
    return list;
}

/* Of a run (`row` NULL) or of a sweep's row. @owned. */
static json_t *side_of_row(const json_t *document, const json_t *row,
                           const struct dpb_estimate *estimate)
{
    double low, high;
    double rate = row ? dpb_json_number(row, "samples_per_s.median")
                      : dpb_json_number(document, "timing.samples_per_s.mean");
    dpb_estimate_interval(estimate, &low, &high);
    return json_pack("{s:o, s:o, s:o, s:I, s:o}", "samples_per_s", dpb_json_real(rate), "low",
                     dpb_json_real(low), "high", dpb_json_real(high), "repeats",
                     (json_int_t)estimate->n, "doubts", doubts_of(row ? row : document));
}

/* Of two runs (rows NULL), or of two rows of one cell. */
static json_t *row_of(const json_t *a, const json_t *row_a, const json_t *b, const json_t *row_b,
                      const struct dpb_compare_how *how)
{
    double threshold = how->threshold, margin = threshold > 0 ? threshold : DPB_MARGIN;
    struct dpb_estimate of_a, of_b;
    struct dpb_comparison c;
    char verdict[64];
    dpb_rates_estimate(a, row_a, &of_a);
    dpb_rates_estimate(b, row_b, &of_b);
    if (how->paired)
        dpb_rates_compare(a, row_a, b, row_b, margin, &c);
    else
        dpb_compare_apart(&of_a, &of_b, margin, &c);
    json_t *json_a = side_of_row(a, row_a, &of_a), *json_b = side_of_row(b, row_b, &of_b);
    bool doubtful = json_array_size(json_object_get(json_a, "doubts")) > 0 ||
                    json_array_size(json_object_get(json_b, "doubts")) > 0;
    doubtful |= how->paired && (of_a.n < 2 || of_b.n < 2); /* no two clean turns of a side */
    bool measured = c.outcome != DPB_NOT_MEASURED;
    bool slower = measured && !doubtful && c.high < 1 && c.ratio < 1 - threshold;
    dpb_comparison_text(&c, verdict, sizeof verdict);
    if (measured && doubtful)
        snprintf(verdict, sizeof verdict, "no conclusion");
    return json_pack("{s:O?, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:b}", "cell",
                     json_object_get(row_a, "cell"), "a", json_a, "b", json_b, "ratio",
                     dpb_json_real(c.ratio), "low", dpb_json_real(c.low), "high",
                     dpb_json_real(c.high), "verdict", verdict, "of_steps", c.of_steps,
                     "regression", slower || (!measured && isfinite(threshold)));
}

/* ---- time to accuracy ---------------------------------------------------------------------- */

static const char *const target_parts[] = {"seconds", "samples", "samples_per_s"};
enum { TARGET_PARTS = sizeof target_parts / sizeof target_parts[0] };

/* A row as it is, or a run as a row with one repeat. NULL: without a target. @owned. */
static json_t *with_target(const json_t *document, const json_t *row)
{
    if (row)
        return json_is_object(json_object_get(row, "to_target"))
                   ? json_incref((json_t *)(uintptr_t)row)
                   : NULL;
    json_t *run = json_copy((json_t *)(uintptr_t)document);
    json_object_set_new(run, "repeat", json_integer(0));
    json_t *target = dpb_target_of_runs((const json_t *const *)&run, 1, 0, 1);
    if (target) {
        json_object_set_new(run, "to_target", target);
        return run;
    }
    json_decref(run);
    return NULL;
}

static json_t *side_of_target(const json_t *row)
{
    const json_t *target = json_object_get(row, "to_target");
    return json_pack("{s:O?, s:O?, s:o, s:o}", "reached", json_object_get(target, "reached"), "of",
                     json_object_get(target, "of"), "seconds",
                     dpb_json_real(dpb_json_number(target, "seconds.mean")), "above",
                     dpb_json_real(dpb_json_number(target, "seconds.above")));
}

/* Whether both train the same model on the same data. */
static bool same_task(const json_t *a, const json_t *b)
{
    json_t *values_a = values_of(json_object_get(a, "config"));
    json_t *values_b = values_of(json_object_get(b, "config"));
    const bool same =
        dpb_json_same(json_object_get(values_a, "model"), json_object_get(values_b, "model")) &&
        dpb_json_same(json_object_get(values_a, "data"), json_object_get(values_b, "data"));
    json_decref(values_a);
    json_decref(values_b);
    return same;
}

/* Null where one of the two asks for no target, or each for another. @owned. */
static json_t *target_of(const json_t *a, const json_t *row_a, const json_t *b, const json_t *row_b,
                         const struct dpb_compare_how *how)
{
    json_t *of_a = with_target(a, row_a), *of_b = with_target(b, row_b), *json = json_null();
    if (of_a && of_b && same_task(a, b) && dpb_target_same_contest(of_a, of_b)) {
        json = json_pack("{s:o, s:o}", "a", side_of_target(of_a), "b", side_of_target(of_b));
        for (size_t i = 0; i < TARGET_PARTS; i++) {
            struct dpb_comparison c;
            char verdict[64];
            dpb_target_conclude(of_a, of_b, target_parts[i], how->paired, &c, verdict,
                                sizeof verdict);
            json_object_set_new(json, target_parts[i],
                                json_pack("{s:o, s:o, s:o, s:s}", "ratio", dpb_json_real(c.ratio),
                                          "low", dpb_json_real(c.low), "high",
                                          dpb_json_real(c.high), "verdict", verdict));
        }
    }
    json_decref(of_a);
    json_decref(of_b);
    return json;
}

/* ---- cells --------------------------------------------------------------------------------- */

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
        if (!row_with_cell(other, cell))
            json_array_append(cells, cell);
    }
    return cells;
}

/* @owned; NULL for lack of memory. */
static json_t *compare_rows(const json_t *a, const json_t *b, const struct dpb_compare_how *how)
{
    const json_t *rows = json_object_get(a, "rows");
    json_t *result = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *cell = json_object_get(row, "cell");
        const json_t *other = row_with_cell(b, cell);
        if (!other)
            continue;
        json_t *made = row_of(a, row, b, other, how);
        json_object_set_new(made, "to_target", target_of(a, row, b, other, how));
        json_array_append_new(result, made);
    }
    if (!rows) {
        json_t *made = row_of(a, NULL, b, NULL, how);
        json_object_set_new(made, "to_target", target_of(a, NULL, b, NULL, how));
        json_array_append_new(result, made);
    }
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

/* Whether `list` separated by commas has the first `length` bytes of `name`. */
static bool is_listed(const char *list, const char *name, size_t length)
{
    for (; *list != '\0'; list += strcspn(list, ",") + (list[strcspn(list, ",")] == ','))
        if (strcspn(list, ",") == length && strncmp(list, name, length) == 0)
            return true;
    return false;
}

static dpb_status require_same(const json_t *differences, const char *same)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(differences, i, entry)
    {
        const char *path = dpb_json_text(entry, "path", "?");
        if (is_listed(same, path, strcspn(path, ".")))
            return dpb_fail(DPB_USAGE,
                            "A and B differ in %s, and --require-same %s was asked for; without it "
                            "all differences are listed",
                            path, same);
    }
    return DPB_OK;
}

dpb_status dpb_compare_make(const struct dpb_compared *a, const struct dpb_compared *b,
                            const struct dpb_compare_how *how, json_t **document, bool *regression)
{
    const char *same = how->same;
    const json_t *schema = json_object_get(a->document, "schema");
    if (!json_equal(schema, json_object_get(b->document, "schema")))
        return dpb_fail(DPB_USAGE, "%s is %s and %s is %s: compare two runs, or two sweeps",
                        a->file, dpb_json_text(a->document, "schema", "?"), b->file,
                        dpb_json_text(b->document, "schema", "?"));
    json_t *rows = compare_rows(a->document, b->document, how);
    if (rows && json_array_size(rows) == 0) {
        json_decref(rows);
        return dpb_fail(DPB_USAGE, "%s and %s have no cell in common", a->file, b->file);
    }
    json_t *differences = differences_of(a->document, b->document);
    if (same && require_same(differences, same) != DPB_OK) {
        json_decref(differences);
        json_decref(rows);
        return DPB_USAGE;
    }
    json_t *made = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "schema",
                             "dpbench.compare/1", "a", side_of(a), "b", side_of(b), "threshold",
                             dpb_json_real(how->threshold), "differences", differences, "rows",
                             rows, "only_a", cells_without(a->document, b->document), "only_b",
                             cells_without(b->document, a->document));
    if (!made)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    *regression = isfinite(how->threshold) && json_array_size(json_object_get(made, "only_a")) > 0;
    for (size_t i = 0; i < json_array_size(rows); i++)
        *regression |= json_is_true(json_object_get(json_array_get(rows, i), "regression"));
    json_object_set_new(made, "regression", json_boolean(*regression));
    json_object_set_new(made, "paired", json_boolean(how->paired));
    *document = made;
    return DPB_OK;
}

/* ---- for people ---------------------------------------------------------------------------- */

static void print_value(const json_t *value, FILE *out)
{
    char *text = !value ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    fputs(text ? text : "missing", out);
    free(text);
}

static void print_differences(const json_t *document, FILE *out)
{
    const json_t *list = json_object_get(document, "differences"), *entry;
    size_t i, n_settings = 0;
    fputs(json_array_size(list) == 0
              ? "settings, inputs, machine, versions and environment are the same\n"
              : "different (A | B):\n",
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
    char text[32] = "-";
    if (isfinite(value))
        snprintf(text, sizeof text, "%.*f", value < 1000 ? 1 : 0, value);
    fprintf(out, "  %11s", text);
}

/* "; A was disturbed, throttled". */
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

static int width_of_labels(const json_t *rows)
{
    const json_t *row;
    char label[LABEL];
    int width = 4;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        label_of(json_object_get(row, "cell"), label);
        width = (int)strlen(label) > width ? (int)strlen(label) : width;
    }
    return width;
}

static void ratio_of(const json_t *of, char *text, size_t capacity)
{
    struct dpb_comparison c = {.ratio = dpb_json_number(of, "ratio"),
                               .low = dpb_json_number(of, "low"),
                               .high = dpb_json_number(of, "high")};
    c.outcome = isfinite(c.ratio) ? DPB_UNDECIDED : DPB_NOT_MEASURED;
    dpb_rates_ratio(&c, text, capacity);
}

static void print_rows(const json_t *document, FILE *out)
{
    const json_t *rows = json_object_get(document, "rows"), *row;
    const int width = width_of_labels(rows);
    char label[LABEL], ratio[64];
    size_t i;
    fprintf(out, "\n%-*s  %11s  %11s  %s\n", width, "cell", "A samples/s", "B samples/s",
            "B / A [95 % interval]");
    json_array_foreach(rows, i, row)
    {
        ratio_of(row, ratio, sizeof ratio);
        label_of(json_object_get(row, "cell"), label);
        fprintf(out, "%-*s", width, label);
        print_rate(json_object_get(row, "a"), out);
        print_rate(json_object_get(row, "b"), out);
        fprintf(out, "  %s  %s%s", ratio, dpb_json_text(row, "verdict", "?"),
                json_is_true(json_object_get(row, "regression")) ? " REGRESSION" : "");
        if (isfinite(dpb_json_number(row, "ratio")) &&
            json_is_true(json_object_get(row, "of_steps")))
            fputs(" (by the steps of one run)", out);
        print_doubts(row, out);
        fputc('\n', out);
    }
}

/* "12.3", "> 12.3" of a cell that missed. */
static void print_seconds(const json_t *side, FILE *out)
{
    const double mean = dpb_json_number(side, "seconds"), above = dpb_json_number(side, "above");
    const double seconds = isfinite(above) ? above : mean;
    char text[32] = "-";
    if (isfinite(seconds))
        snprintf(text, sizeof text, "%s%.*f", isfinite(above) ? "> " : "", seconds < 10 ? 3 : 1,
                 seconds);
    fprintf(out, "  %11s", text);
}

/* Of the cells with the same target in both. */
static void print_targets(const json_t *document, FILE *out)
{
    static const char *const names[TARGET_PARTS] = {"time", "= samples", "/ rate"};
    const json_t *rows = json_object_get(document, "rows"), *row;
    const int width = width_of_labels(rows);
    char label[LABEL], ratio[64];
    bool titled = false;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        const json_t *target = json_object_get(row, "to_target");
        if (!json_is_object(target))
            continue;
        if (!titled)
            fprintf(out, "\n%-*s  %11s  %11s  %s\n", width, "to target", "A seconds", "B seconds",
                    "B / A [95 % interval]");
        titled = true;
        label_of(json_object_get(row, "cell"), label);
        fprintf(out, "%-*s", width, label);
        print_seconds(json_object_get(target, "a"), out);
        print_seconds(json_object_get(target, "b"), out);
        for (size_t part = 0; part < TARGET_PARTS; part++) {
            const json_t *of = json_object_get(target, target_parts[part]);
            ratio_of(of, ratio, sizeof ratio);
            fprintf(out, "%*s  %-9s %s  %s\n", part > 0 ? width + 26 : 0, "", names[part], ratio,
                    dpb_json_text(of, "verdict", "?"));
        }
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
    print_targets(document, out);
    print_only(document, "only_a", "A", out);
    print_only(document, "only_b", "B", out);
    print_breakdown(document, out);
    fputs(json_is_true(json_object_get(document, "paired"))
              ? "\nA and B ran by turns and are compared repeat by repeat\n"
              : "\nA and B were measured at different times: the ratio holds what changed between "
                "them, too;\n`dpbench gate` alternates two builds\n",
          out);
    if (isfinite(threshold))
        fprintf(out, "%s: B may be %.3g %% slower\n",
                json_is_true(json_object_get(document, "regression")) ? "regression"
                                                                      : "no regression is shown",
                100 * threshold);
}
