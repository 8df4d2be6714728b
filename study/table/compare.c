/* compare.c - see compare.h. */
#include "study/table/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "record/series.h"
#include "study/document/cells.h"
#include "study/document/core_latency.h"
#include "study/document/rates.h"
#include "study/document/read.h"
#include "study/document/setup.h"
#include "study/document/target.h"
#include "study/table/compare_quantities.h"

/* ---- arguments ------------------------------------------------------------------------------ */

/* "5", "5%". */
static bool read_percent(const char *text, double *percent)
{
    char digits[32] = "";
    size_t length = strlen(text);
    if (length > 0 && text[length - 1] == '%')
        length--;
    snprintf(digits, sizeof digits, "%.*s", (int)(length < sizeof digits ? length : 0), text);
    return dpb_parse_real(digits, percent) == DPB_PARSED && *percent >= 0 && *percent < 100;
}

dpb_status dpb_compare_threshold(const struct dpb_command *self, const char *text, double *share)
{
    double percent;
    if (!read_percent(text, &percent))
        return dpb_usage_error(self, "--threshold needs a number of percent from 0 to 100: how "
                                     "much slower B may be");
    *share = percent / 100;
    return DPB_OK;
}

dpb_status dpb_compare_margin(const struct dpb_command *self, enum dpb_quantity_id id,
                              const char *text, double *margin)
{
    const struct dpb_quantity *of = &dpb_quantities[id];
    if (!read_percent(text, margin))
        return dpb_usage_error(self,
                               "--%s needs a number of %s from 0 to 100: how much worse B's "
                               "%s may be",
                               of->name, of->points ? "points" : "percent", of->title);
    return DPB_OK;
}

dpb_status dpb_compare_undecided(const struct dpb_command *self, const char *text,
                                 const char **undecided)
{
    if (strcmp(text, "pass") != 0 && strcmp(text, "fail") != 0)
        return dpb_usage_error(self, "--undecided needs pass (exit code 0) or fail (4); without it "
                                     "the exit code is 6");
    *undecided = text;
    return DPB_OK;
}

/* ---- what else differs --------------------------------------------------------------------- */

static void note_difference(void *list, const char *path, const json_t *a, const json_t *b)
{
    /* A file is known by its checksum; where the results go changes none of them. */
    if (dpb_ends_on(path, ".file.path") || strcmp(path, "config.run.results") == 0)
        return;
    json_array_append_new(list, json_pack("{s:s, s:O?, s:O?}", "path", path, "a", a, "b", b));
}

static void note_common(void *list, const char *path, const json_t *a, const json_t *b)
{
    if (a && b)
        note_difference(list, path, a, b);
}

/* @owned. */
static json_t *facts_of_runs(const json_t *sweep)
{
    json_t *facts = json_object();
    dpb_each_item(json_object_get(sweep, "runs"), i, run)
        dpb_setups_learn(facts, run);
    return facts;
}

/* Inputs and plugins of two sweeps, by name: their runs come in any order. A plugin that one sweep
 * alone has is no difference: it is of cells that are not compared. */
static void compare_runs(const json_t *a, const json_t *b, json_t *list)
{
    static const struct {
        const char *part, *name;
        dpb_json_visit *visit;
    } parts[] = {{"inputs", "inputs", note_difference},
                 {"versions", "versions", note_difference},
                 {"plugins", "versions.plugins", note_common}};
    json_t *of_a = facts_of_runs(a), *of_b = facts_of_runs(b);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        dpb_json_differences(json_object_get(of_a, parts[i].part),
                             json_object_get(of_b, parts[i].part), parts[i].name, parts[i].visit,
                             list);
    json_decref(of_a);
    json_decref(of_b);
}

/* The settings of a document by their values. `same_cells`: the axes have the same values, however
 * these are written. @owned. */
static json_t *settings_of(const json_t *document, bool same_cells)
{
    json_t *values = dpb_config_values(json_object_get(document, "config"));
    dpb_each_member(same_cells ? json_object_get(document, "axes") : NULL, axis, list)
        json_object_del(json_object_get(values, "sweep"), axis);
    return values;
}

/* @owned; NULL for lack of memory. */
static json_t *differences_of(const json_t *a, const json_t *b, bool same_cells)
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
        {"gpus", "gpus", true},
        {"inputs", "inputs", true},
        {"machine", "machine", false},
        {"versions", "versions", true},
        {"environment", "invocation.environment", false},
    };
    bool runs = !json_object_get(a, "rows");
    json_t *list = json_array();
    json_t *values_a = settings_of(a, same_cells), *values_b = settings_of(b, same_cells);
    dpb_json_differences(values_a, values_b, "config", note_difference, list);
    json_decref(values_a);
    json_decref(values_b);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (runs || !parts[i].of_a_run)
            dpb_json_differences(dpb_result_part(a, parts[i].path),
                                 dpb_result_part(b, parts[i].path), parts[i].name, note_difference,
                                 list);
    if (!runs)
        compare_runs(a, b, list);
    double ns_a, ns_b;
    if (dpb_core_latency_differ(a, b, &ns_a, &ns_b))
        json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "path", "core_to_core.ns", "a",
                                              round(ns_a), "b", round(ns_b)));
    return list;
}

/* ---- rates --------------------------------------------------------------------------------- */

/* The reasons against the rates of a run or row. One repeat is a reason where turns are compared;
 * elsewhere the line says that its interval is that of steps. @owned. */
static json_t *doubts_of(const json_t *of, bool paired)
{
    json_t *list = json_array();
    for (size_t i = 0; i < (paired ? DPB_DOUBTS : DPB_DOUBT_ONCE); i++) {
        const char *reason = dpb_rates_doubt(of, i);
        if (reason)
            json_array_append_new(list, json_string(reason));
    }
    return list;
}

/* One side: a run (`row` NULL) or a sweep's row. @owned. */
static json_t *side_of_row(const json_t *document, const json_t *row,
                           const struct dpb_estimate *estimate, bool paired)
{
    double low, high;
    double rate = row ? dpb_json_number(row, "samples_per_s.median")
                      : dpb_json_number(document, "timing.samples_per_s.mean");
    dpb_estimate_interval(estimate, &low, &high);
    return json_pack("{s:o, s:o, s:o, s:I, s:o, s:O?}", "samples_per_s", dpb_json_real(rate), "low",
                     dpb_json_real(low), "high", dpb_json_real(high), "repeats",
                     (json_int_t)estimate->n, "doubts", doubts_of(row ? row : document, paired),
                     "learned", dpb_json_at(row, "learning.learned"));
}

/* The outcome in words. Where a threshold judges, the words say what is shown of it. */
static void verdict_of(const struct dpb_comparison *c, enum dpb_judged judged, double threshold,
                       char verdict[64])
{
    dpb_comparison_text(c, verdict, 64);
    if (c->outcome == DPB_SLOWER && judged == DPB_OPEN)
        snprintf(verdict, 64, "slower, undecided whether by %g %%", 100 * threshold);
    if (c->outcome == DPB_UNDECIDED && judged == DPB_PASSES)
        snprintf(verdict, 64, "not slower by %g %%", 100 * threshold);
    if (c->outcome == DPB_UNDECIDED && judged == DPB_REGRESSES) /* of a threshold of a hair */
        snprintf(verdict, 64, "slower");
}

/* The row of a comparison, but for its cell and its target; takes both sides. */
static json_t *conclude(const struct dpb_comparison *c, json_t *json_a, json_t *json_b,
                        const char *apart, double threshold)
{
    static const char *const names[] = {NULL, "pass", "regression", "undecided"};
    char verdict[64];
    const bool doubtful = json_array_size(json_object_get(json_a, "doubts")) > 0 ||
                          json_array_size(json_object_get(json_b, "doubts")) > 0 || apart;
    const bool is_measured = c->outcome != DPB_NOT_MEASURED;
    enum dpb_judged judged = dpb_comparison_judge(c, threshold);
    if (judged != DPB_NOT_JUDGED && (doubtful || !is_measured))
        judged = is_measured ? DPB_OPEN : DPB_REGRESSES;
    verdict_of(c, judged, threshold, verdict);
    if (is_measured && doubtful)
        snprintf(verdict, sizeof verdict, "no conclusion");
    return json_pack("{s:n, s:o, s:o, s:o, s:o, s:o, s:s, s:s?, s:b, s:s?, s:b}", "cell", "a",
                     json_a, "b", json_b, "ratio", dpb_json_real(c->ratio), "low",
                     dpb_json_real(c->low), "high", dpb_json_real(c->high), "verdict", verdict,
                     "apart", apart, "of_steps", c->of_steps, "judgement", names[judged],
                     "regression", judged == DPB_REGRESSES);
}

/* A comparison of two runs (rows NULL), or of two rows of one cell. */
static json_t *row_of(const json_t *a, const json_t *row_a, const json_t *b, const json_t *row_b,
                      const struct dpb_compare_how *how)
{
    double threshold = how->threshold, margin = threshold > 0 ? threshold : DPB_MARGIN;
    struct dpb_estimate of_a, of_b;
    struct dpb_comparison c;
    dpb_rates_estimate(a, row_a, &of_a);
    dpb_rates_estimate(b, row_b, &of_b);
    if (how->paired)
        dpb_rates_compare(a, row_a, b, row_b, &how->looks, margin, &c);
    else
        dpb_compare_apart(&of_a, &of_b, margin, &c);
    json_t *json_a = side_of_row(a, row_a, &of_a, how->paired);
    json_t *json_b = side_of_row(b, row_b, &of_b, how->paired);
    const char *apart = dpb_rates_apart(row_a ? row_a : a, row_b ? row_b : b);
    json_t *made = conclude(&c, json_a, json_b, apart, threshold);
    if (row_a)
        json_object_set(made, "cell", json_object_get(row_a, "cell"));
    return made;
}

/* ---- time to accuracy ---------------------------------------------------------------------- */

const char *const dpb_compare_targets[DPB_COMPARE_TARGETS] = {"seconds", "samples",
                                                              "samples_per_s"};

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

/* Null where one of the two asks for no target, or each for another. @owned. */
static json_t *target_of(const json_t *a, const json_t *row_a, const json_t *b, const json_t *row_b,
                         const struct dpb_compare_how *how)
{
    json_t *of_a = with_target(a, row_a), *of_b = with_target(b, row_b), *json = json_null();
    if (of_a && of_b && dpb_compare_same_task(a, b) && dpb_target_same_contest(of_a, of_b)) {
        json = json_pack("{s:o, s:o}", "a", side_of_target(of_a), "b", side_of_target(of_b));
        for (size_t i = 0; i < DPB_COMPARE_TARGETS; i++) {
            struct dpb_comparison c;
            char verdict[64];
            dpb_target_conclude(of_a, of_b, dpb_compare_targets[i], how->paired, &c, verdict,
                                sizeof verdict);
            json_object_set_new(json, dpb_compare_targets[i],
                                json_pack("{s:o, s:o, s:o, s:s}", "ratio", dpb_json_real(c.ratio),
                                          "low", dpb_json_real(c.low), "high",
                                          dpb_json_real(c.high), "verdict", verdict));
        }
    }
    json_decref(of_a);
    json_decref(of_b);
    return json;
}

/* ---- series -------------------------------------------------------------------------------- */

/* One side of a field, and the logarithms of its repeats as rates: of a time, of 1 / time. @owned;
 * *n: their number. */
static double *rates_of(const json_t *row, const struct dpb_series_field *field, size_t *n)
{
    double *x = dpb_series_values(row, field->name, n);
    for (size_t i = 0; i < *n; i++)
        x[i] = field->kind == DPB_SERIES_TIME ? -log(x[i]) : log(x[i]);
    return x;
}

static json_t *side_of_field(const json_t *document, const json_t *row,
                             const struct dpb_series_field *field, bool paired)
{
    struct dpb_estimate estimate;
    double low, high;
    size_t n;
    double *x = dpb_series_values(row, field->name, &n);
    dpb_series_estimate(x, n, &estimate);
    dpb_estimate_interval(&estimate, &low, &high);
    free(x);
    return json_pack("{s:o, s:o, s:o, s:I, s:o}", "value", dpb_json_real(exp(estimate.mean)), "low",
                     dpb_json_real(low), "high", dpb_json_real(high), "repeats", (json_int_t)n,
                     "doubts", doubts_of(document, paired));
}

/* Of repeats that were taken by turns, or of two documents. */
static void compare_fields(const json_t *row_a, const json_t *row_b,
                           const struct dpb_series_field *field, const struct dpb_compare_how *how,
                           double margin, struct dpb_comparison *c)
{
    struct dpb_estimate of_a, of_b;
    size_t n_a, n_b;
    double *a = rates_of(row_a, field, &n_a), *b = rates_of(row_b, field, &n_b);
    dpb_estimate_of(a, n_a, &of_a);
    dpb_estimate_of(b, n_b, &of_b);
    const size_t n = n_a < n_b ? n_a : n_b;
    for (size_t i = 0; how->paired && i < n; i++)
        b[i] -= a[i];
    if (how->paired)
        dpb_compare_turns(b, n, &how->looks, margin, c);
    else
        dpb_compare_apart(&of_a, &of_b, margin, c);
    free(a);
    free(b);
}

static void add_field(const json_t *a, const json_t *row_a, const json_t *b, const json_t *row_b,
                      const struct dpb_series_field *field, const struct dpb_compare_how *how,
                      json_t *list)
{
    struct dpb_comparison c;
    const double threshold = how->threshold;
    compare_fields(row_a, row_b, field, how, threshold > 0 ? threshold : DPB_MARGIN, &c);
    json_t *json_a = side_of_field(a, row_a, field, how->paired);
    json_t *json_b = side_of_field(b, row_b, field, how->paired);
    json_t *made = conclude(&c, json_a, json_b, NULL, threshold);
    json_object_set(made, "cell", json_object_get(row_a, "key"));
    json_object_set_new(made, "field", json_string(field->name));
    json_object_set_new(made, "to_target", json_null());
    json_object_set_new(made, "quantities", json_object());
    json_array_append_new(list, made);
}

/* Rows of both documents with the same key, field by field. */
static void add_series(const json_t *a, const json_t *b, const struct dpb_compare_how *how,
                       json_t *list)
{
    dpb_each_item(json_object_get(a, "series"), i, row) {
        const json_t *other =
            dpb_json_find(json_object_get(b, "series"), "key", json_object_get(row, "key"));
        for (const struct dpb_series_field *field = dpb_series_fields; field->name; field++)
            if (json_object_get(json_object_get(row, "values"), field->name) &&
                json_object_get(json_object_get(other, "values"), field->name))
                add_field(a, row, b, other, field, how, list);
    }
}

/* ---- cells --------------------------------------------------------------------------------- */

/* The rows of a document, or its series, and the values of their cells. */
struct table {
    const json_t *rows;
    const char *key;
    json_t *values; /* @owned; empty for series, whose keys are values */
};

static struct table table_of(const json_t *document)
{
    const bool is_result = dpb_result_is(document);
    return (struct table){json_object_get(document, is_result ? "rows" : "series"),
                          is_result ? "cell" : "key", dpb_cell_values(document)};
}

/* The row of `others` for the cell of row i, by its texts or by their values; NULL: none. */
static const json_t *find_like(const struct table *of, size_t i, const struct table *others)
{
    const json_t *cell = json_object_get(json_array_get(of->rows, i), of->key);
    const json_t *values = json_array_get(of->values, i);
    dpb_each_item(others->rows, k, other)
        if (json_equal(json_object_get(other, others->key), cell) ||
            (values && json_equal(json_array_get(others->values, k), values)))
            return other;
    return NULL;
}

/* The cells that only `of` has. @owned. */
static json_t *cells_without(const struct table *of, const struct table *others)
{
    json_t *cells = json_array();
    dpb_each_item(of->rows, i, row)
        if (!find_like(of, i, others))
            json_array_append(cells, json_object_get(row, of->key));
    return cells;
}

static void add_pair(const json_t *a, const json_t *row_a, const json_t *b, const json_t *row_b,
                     const struct dpb_compare_how *how, json_t *list)
{
    json_t *made = row_of(a, row_a, b, row_b, how);
    const struct dpb_quantities_how quantities = {how->margins, how->paired};
    json_object_set_new(made, "to_target", target_of(a, row_a, b, row_b, how));
    json_object_set_new(made, "quantities",
                        dpb_compare_quantities(a, row_a, b, row_b, &quantities));
    json_array_append_new(list, made);
}

/* {rows, only_a, only_b}. @owned. */
static json_t *compare_rows(const json_t *a, const json_t *b, const struct dpb_compare_how *how)
{
    const struct table of_a = table_of(a), of_b = table_of(b);
    json_t *rows = json_array();
    dpb_each_item(json_object_get(a, "rows"), i, row) {
        const json_t *other = find_like(&of_a, i, &of_b);
        if (other)
            add_pair(a, row, b, other, how, rows);
    }
    if (!dpb_result_is(a))
        add_series(a, b, how, rows);
    else if (!of_a.rows)
        add_pair(a, NULL, b, NULL, how, rows);
    json_t *made = json_pack("{s:o, s:o, s:o}", "rows", rows, "only_a", cells_without(&of_a, &of_b),
                             "only_b", cells_without(&of_b, &of_a));
    json_decref(of_a.values);
    json_decref(of_b.values);
    return made;
}

/* ---- the document -------------------------------------------------------------------------- */

static json_t *side_of(const struct dpb_compared *side)
{
    const json_t *breakdown = dpb_json_at(side->document, "timing.breakdown_ns");
    double step_ns = dpb_json_number(side->document, "timing.elapsed_ns") /
                     dpb_json_number(side->document, "timing.steps");
    return json_pack("{s:o, s:o, s:o, s:o, s:O?}", "file", dpb_json_string(side->file), "name",
                     dpb_json_string(dpb_json_text(side->document, "name", "?")), "started",
                     dpb_json_string(dpb_json_text(side->document, "started",
                                                   dpb_json_text(side->document, "ended", "?"))),
                     "step_ns", dpb_json_real(step_ns), "breakdown_ns", breakdown);
}

static dpb_status require_same(const struct dpb_compared *a, const struct dpb_compared *b,
                               const json_t *differences, const char *same)
{
    dpb_each_item(differences, i, entry) {
        const char *path = dpb_json_text(entry, "path", "?");
        if (dpb_text_lists(same, ",", path, strcspn(path, ".")) && !dpb_setup_is_state(path))
            return dpb_fail(
                DPB_USAGE,
                "%s and %s differ in %s, and --require-same %s was asked for; without it "
                "all differences are listed",
                a->file, b->file, path, same);
    }
    return DPB_OK;
}

/* Of all rows and quantities: a regression of one, then one that is not decided. */
static void judge(const struct dpb_compare_how *how, json_t *made)
{
    const json_t *rows = json_object_get(made, "rows");
    const bool judges = isfinite(how->threshold);
    const char *name;
    bool regression = judges && json_array_size(json_object_get(made, "only_a")) > 0;
    bool open = false;
    dpb_each_item(rows, i, row) {
        regression |= dpb_json_true(row, "regression");
        open |= dpb_json_is(row, "judgement", "undecided");
    }
    regression |= dpb_compare_quantity_judged(rows, "regression", &name) != NULL;
    open |= dpb_compare_quantity_judged(rows, "undecided", &name) != NULL;
    const bool passes = judges || dpb_compare_quantity_judged(rows, "pass", &name);
    json_object_update_new(made,
                           json_pack("{s:b, s:s?, s:o}", "regression", regression, "judgement",
                                     regression ? "regression"
                                     : open     ? "undecided"
                                     : passes   ? "pass"
                                                : NULL,
                                     "margins", dpb_compare_margins(how->margins)));
}

/* A judgement that a quantity has and no rate. */
static dpb_status fail_of_quantity(const json_t *document, const char *judgement, dpb_status status)
{
    const json_t *rows = json_object_get(document, "rows");
    const char *name = "";
    dpb_each_item(rows, i, row)
        if (dpb_json_is(row, "judgement", judgement))
            return DPB_OK;
    if (json_array_size(json_object_get(document, "only_a")) > 0 ||
        !dpb_compare_quantity_judged(rows, judgement, &name))
        return DPB_OK;
    const double margin = dpb_json_number(json_object_get(document, "margins"), name);
    return status == DPB_REGRESSION
               ? dpb_fail(status, "%s has a worse %s than %s, by more than --%s %g",
                          dpb_json_text(document, "b.file", "?"), name,
                          dpb_json_text(document, "a.file", "?"), name, margin)
               : dpb_fail(status,
                          "it is not shown whether %s is worse than %s in %s by more than --%s %g: "
                          "give more seeds or repeats",
                          dpb_json_text(document, "b.file", "?"),
                          dpb_json_text(document, "a.file", "?"), name, name, margin);
}

dpb_status dpb_compare_status(const json_t *document, const char *undecided)
{
    const double percent = 100 * dpb_json_number(document, "threshold");
    const char *a = dpb_json_text(document, "a.file", "?");
    const char *b = dpb_json_text(document, "b.file", "?");
    if (dpb_json_is(document, "judgement", "regression")) {
        DPB_TRY(fail_of_quantity(document, "regression", DPB_REGRESSION));
        return dpb_fail(DPB_REGRESSION,
                        "%s is slower than %s by more than %g %%, or a cell of either has no rate",
                        b, a, percent);
    }
    if (!dpb_json_is(document, "judgement", "undecided") ||
        (undecided && strcmp(undecided, "pass") == 0))
        return DPB_OK;
    DPB_TRY(fail_of_quantity(document, "undecided", undecided ? DPB_REGRESSION : DPB_NOT_DECIDED));
    return dpb_fail(undecided ? DPB_REGRESSION : DPB_NOT_DECIDED,
                    "it is not shown whether %s is slower than %s by more than %g %%: measure more "
                    "repeats, or longer ones on a quieter machine%s",
                    b, a, percent,
                    undecided ? "; --undecided fail makes this a failure"
                              : "; --undecided pass or fail ends on 0 or 4 instead");
}

dpb_status dpb_compare_make(const struct dpb_compared *a, const struct dpb_compared *b,
                            const struct dpb_compare_how *how, json_t **document, bool *regression)
{
    const char *same = how->same;
    const json_t *schema = json_object_get(a->document, "schema");
    if (!json_equal(schema, json_object_get(b->document, "schema")))
        return dpb_fail(DPB_USAGE,
                        "%s is %s and %s is %s: compare two runs, two sweeps, or two documents of "
                        "one command",
                        a->file, dpb_json_text(a->document, "schema", "?"), b->file,
                        dpb_json_text(b->document, "schema", "?"));
    json_t *parts = compare_rows(a->document, b->document, how);
    const json_t *rows = json_object_get(parts, "rows");
    if (rows && json_array_size(rows) == 0) {
        json_decref(parts);
        return dpb_fail(DPB_USAGE, "%s and %s have no cell in common", a->file, b->file);
    }
    const enum dpb_quantity_id missing = dpb_compare_quantity_missing(rows, how->margins);
    if (missing < DPB_QUANTITIES) {
        json_decref(parts);
        return dpb_fail(DPB_USAGE, "--%s: %s and %s have no cell where both have %s",
                        dpb_quantities[missing].name, a->file, b->file,
                        dpb_quantities[missing].title);
    }
    const bool same_cells = json_array_size(json_object_get(parts, "only_a")) == 0 &&
                            json_array_size(json_object_get(parts, "only_b")) == 0;
    json_t *differences = differences_of(a->document, b->document, same_cells);
    if (same && require_same(a, b, differences, same) != DPB_OK) {
        json_decref(differences);
        json_decref(parts);
        return DPB_USAGE;
    }
    json_t *made = json_pack("{s:s, s:o, s:o, s:o, s:o}", "schema", "dpbench.compare/1", "a",
                             side_of(a), "b", side_of(b), "threshold",
                             dpb_json_real(how->threshold), "differences", differences);
    DPB_TRY(dpb_allocated(made));
    json_object_update_new(made, parts);
    judge(how, made);
    *regression = dpb_json_true(made, "regression");
    json_object_set_new(made, "paired", json_boolean(how->paired));
    json_object_set_new(made, "side_by_side", json_boolean(how->side_by_side));
    *document = made;
    return DPB_OK;
}
