/* compare_quantities.c - see compare_quantities.h. */
#include "study/table/compare_quantities.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "study/document/cells.h"
#include "study/document/spill.h"
#include "study/document/target.h"

enum { LABEL = 512 };

bool dpb_compare_same_task(const json_t *a, const json_t *b)
{
    json_t *values_a = dpb_config_values(json_object_get(a, "config"));
    json_t *values_b = dpb_config_values(json_object_get(b, "config"));
    const bool same =
        dpb_json_same(json_object_get(values_a, "model"), json_object_get(values_b, "model")) &&
        dpb_json_same(json_object_get(values_a, "data"), json_object_get(values_b, "data"));
    json_decref(values_a);
    json_decref(values_b);
    return same;
}

static double samples_of(const json_t *run)
{
    return (double)dpb_run_size(run, "loss") * dpb_json_number(run, "batch.global");
}

/* A run as a row with one repeat. @owned. */
static json_t *row_like(const json_t *run, double samples)
{
    json_t *row = json_copy((json_t *)(uintptr_t)run);
    json_object_set_new(row, "repeat", json_integer(0));
    const json_t *one = row;
    json_object_set_new(row, "by_repeat", dpb_quantity_by_repeat(&one, 1, 1, samples));
    json_t *target = dpb_target_of_runs(&one, 1, 0, 1);
    if (target)
        json_object_set_new(row, "to_target", target);
    return row;
}

static json_t *side_to_json(const struct dpb_quantity_side *side)
{
    return json_pack("{s:o, s:I}", "mean", dpb_json_real(side->mean), "n", (json_int_t)side->n);
}

/* Whether a difference of this quantity has a sense: training is of one task, and losses are taken
 * after as many samples. */
static bool is_common(enum dpb_quantity_id id, const json_t *a, const json_t *row_a,
                      const json_t *b, bool alike)
{
    if (id == DPB_BYTES || id == DPB_MEMORY || id == DPB_ENERGY)
        return true;
    return alike && (id != DPB_LOSS || !row_a ||
                     dpb_json_number(a, "loss_samples") == dpb_json_number(b, "loss_samples"));
}

json_t *dpb_compare_quantities(const json_t *a, const json_t *row_a, const json_t *b,
                               const json_t *row_b, const struct dpb_quantities_how *how)
{
    static const char *const names[] = {NULL, "pass", "regression", "undecided"};
    const double samples = fmin(samples_of(a), samples_of(b));
    json_t *of_a = row_a ? json_incref((json_t *)(uintptr_t)row_a) : row_like(a, samples);
    json_t *of_b = row_b ? json_incref((json_t *)(uintptr_t)row_b) : row_like(b, samples);
    json_t *made = json_object();
    const bool alike = dpb_compare_same_task(a, b) && dpb_target_same_task(of_a, of_b);
    for (enum dpb_quantity_id id = 0; id < DPB_QUANTITIES; id++) {
        struct dpb_quantity_comparison c;
        const double given = how->margins ? how->margins[id] : NAN;
        const double margin = given > 0 ? given : dpb_quantities[id].margin;
        char verdict[64];
        if (!is_common(id, a, row_a, b, alike) ||
            !dpb_quantity_compare(of_a, of_b, id, margin, how->paired, &c))
            continue;
        dpb_quantity_text(&c, id, verdict, sizeof verdict);
        json_object_set_new(made, dpb_quantities[id].name,
                            json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:s, s:s?}", "a",
                                      side_to_json(&c.a), "b", side_to_json(&c.b), "unit",
                                      dpb_quantities[id].points ? "points" : "ratio", "change",
                                      dpb_json_real(c.change), "low", dpb_json_real(c.low), "high",
                                      dpb_json_real(c.high), "verdict", verdict, "judgement",
                                      names[dpb_quantity_judge(&c, id, given)]));
    }
    json_decref(of_a);
    json_decref(of_b);
    return made;
}

json_t *dpb_compare_margins(const double *margins)
{
    json_t *made = json_object();
    for (size_t id = 0; id < DPB_QUANTITIES && margins; id++)
        if (isfinite(margins[id]))
            json_object_set_new(made, dpb_quantities[id].name, json_real(margins[id]));
    return made;
}

enum dpb_quantity_id dpb_compare_quantity_missing(const json_t *rows, const double *margins)
{
    for (enum dpb_quantity_id id = 0; id < DPB_QUANTITIES && margins; id++) {
        bool found = isnan(margins[id]);
        dpb_each_item(rows, i, row)
            found |= json_object_get(json_object_get(row, "quantities"), dpb_quantities[id].name) !=
                     NULL;
        if (!found)
            return id;
    }
    return DPB_QUANTITIES;
}

const json_t *dpb_compare_quantity_judged(const json_t *rows, const char *judgement,
                                          const char **name)
{
    dpb_each_item(rows, i, row)
        dpb_each_member(json_object_get(row, "quantities"), key, one)
            if (dpb_json_is(one, "judgement", judgement)) {
                *name = key;
                return row;
            }
    return NULL;
}

static void print_mean(const json_t *side, bool points, FILE *out)
{
    char text[32];
    const double mean = dpb_json_number(side, "mean");
    snprintf(text, sizeof text, points ? "%.2f %%" : "%.5g", points ? 100 * mean : mean);
    fprintf(out, "  %11s", text);
}

static void print_one(const char *label, int width, enum dpb_quantity_id id, const json_t *one,
                      FILE *out)
{
    const struct dpb_quantity *of = &dpb_quantities[id];
    const struct dpb_quantity_comparison c = {.change = dpb_json_number(one, "change"),
                                              .low = dpb_json_number(one, "low"),
                                              .high = dpb_json_number(one, "high")};
    char change[64];
    dpb_quantity_change(&c, id, change, sizeof change);
    fprintf(out, "%-*s  %-17s", width, label, of->title);
    print_mean(json_object_get(one, "a"), of->points, out);
    print_mean(json_object_get(one, "b"), of->points, out);
    fprintf(out, "  %s  %s%s\n", change, dpb_json_text(one, "verdict", "?"),
            dpb_json_is(one, "judgement", "regression") ? " REGRESSION" : "");
}

void dpb_compare_quantities_print(const json_t *document, dpb_compare_label *label, FILE *out)
{
    const json_t *rows = json_object_get(document, "rows");
    char text[LABEL];
    int width = 4;
    bool any = false;
    dpb_each_item(rows, i, row) {
        label(row, text, sizeof text);
        width = (int)strlen(text) > width ? (int)strlen(text) : width;
        any |= json_object_size(json_object_get(row, "quantities")) > 0;
    }
    if (any)
        fprintf(out, "\n%-*s  %-17s  %11s  %11s  %s\n", width, "cell", "quantity", "A", "B",
                "B / A, or B - A in points [95 % interval]");
    dpb_each_item(rows, i, row) {
        label(row, text, sizeof text);
        for (enum dpb_quantity_id id = 0; id < DPB_QUANTITIES; id++) {
            const json_t *one =
                json_object_get(json_object_get(row, "quantities"), dpb_quantities[id].name);
            if (one)
                print_one(text, width, id, one, out);
        }
    }
}
