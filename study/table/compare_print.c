/* compare_print.c - a comparison for people: see compare.h. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "record/series.h"
#include "record/summary.h"
#include "study/document/rates.h"
#include "study/table/compare.h"
#include "study/table/compare_quantities.h"

enum { LABEL = 512 };

static void print_differences(const json_t *document, FILE *out)
{
    const json_t *list = json_object_get(document, "differences");
    size_t n_settings = 0;
    fputs(json_array_size(list) == 0
              ? "settings, inputs, machine, versions and environment are the same\n"
              : "different (A | B):\n",
          out);
    dpb_each_item(list, i, entry) {
        const char *path = dpb_json_text(entry, "path", "?");
        n_settings += dpb_begins_with(path, "config.");
        fprintf(out, "  %-32s ", path);
        dpb_json_print(json_object_get(entry, "a"), out);
        fputs(" | ", out);
        dpb_json_print(json_object_get(entry, "b"), out);
        fputc('\n', out);
    }
    if (n_settings > 1)
        fprintf(out, "  %zu settings differ: rates do not tell which of them it was\n", n_settings);
}

/* "comm.name=shm", of a series "size=65536 bus_gb_per_s". */
static void label_of(const json_t *cell, const json_t *row, char label[LABEL])
{
    const char *field = dpb_json_text(row, "field", NULL);
    dpb_series_key_text(cell, label, LABEL);
    const size_t length = strlen(label);
    if (field)
        snprintf(label + length, LABEL - length, "%s%s", length > 0 ? " " : "", field);
    else if (length == 0)
        snprintf(label, LABEL, "run");
}

static void print_rate(const json_t *rate, FILE *out)
{
    const double of_field = dpb_json_number(rate, "value");
    double value = dpb_json_number(rate, "samples_per_s");
    char text[32] = "-";
    if (isfinite(of_field))
        snprintf(text, sizeof text, "%.5g", of_field);
    else if (isfinite(value))
        snprintf(text, sizeof text, "%.*f", value < 1000 ? 1 : 0, value);
    fprintf(out, "  %11s", text);
}

/* "; GPUs shared in different ways; A was disturbed, throttled". */
static void print_doubts(const json_t *row, FILE *out)
{
    static const char *const sides[] = {"a", "b"}, *const names[] = {"A", "B"};
    const char *apart = dpb_json_text(row, "apart", NULL);
    fprintf(out, "%s%s", apart ? "; " : "", apart ? apart : "");
    for (size_t side = 0; side < 2; side++) {
        const json_t *doubts = json_object_get(json_object_get(row, sides[side]), "doubts");
        if (json_is_false(json_object_get(json_object_get(row, sides[side]), "learned")))
            fprintf(out, "; %s did not learn", names[side]);
        dpb_each_item(doubts, i, one) {
            if (i == 0)
                fprintf(out, "; %s was ", names[side]);
            fprintf(out, "%s%s", i > 0 ? ", " : "", json_string_value(one));
        }
    }
}

static int width_of_labels(const json_t *rows)
{
    char label[LABEL];
    int width = 4;
    dpb_each_item(rows, i, row) {
        label_of(json_object_get(row, "cell"), row, label);
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

/* Where a rate is the median of several repeats, it is not what B / A divides. */
static void print_of_what(const json_t *document, FILE *out)
{
    const json_t *rows = json_object_get(document, "rows");
    bool repeated = false;
    dpb_each_item(rows, i, row)
        repeated |= dpb_json_number(row, "a.repeats") > 1 || dpb_json_number(row, "b.repeats") > 1;
    if (repeated && !json_object_get(json_array_get(rows, 0), "field"))
        fprintf(out, "samples/s: median of the repeats; B / A: %s, by logarithms\n",
                dpb_json_true(document, "side_by_side") ? "of the ratios within blocks of turns"
                                                        : "ratio of their means");
}

static void print_rows(const json_t *document, FILE *out)
{
    const json_t *rows = json_object_get(document, "rows");
    const int width = width_of_labels(rows);
    char label[LABEL], ratio[64];
    const bool series = json_object_get(json_array_get(rows, 0), "field") != NULL;
    fprintf(out, "\n%-*s  %11s  %11s  %s\n", width, series ? "row" : "cell",
            series ? "A" : "A samples/s", series ? "B" : "B samples/s",
            series ? "B / A as rates [95 % interval]" : "B / A [95 % interval]");
    dpb_each_item(rows, i, row) {
        ratio_of(row, ratio, sizeof ratio);
        label_of(json_object_get(row, "cell"), row, label);
        fprintf(out, "%-*s", width, label);
        print_rate(json_object_get(row, "a"), out);
        print_rate(json_object_get(row, "b"), out);
        fprintf(out, "  %s  %s%s", ratio, dpb_json_text(row, "verdict", "?"),
                dpb_json_true(row, "regression") ? " REGRESSION" : "");
        if (isfinite(dpb_json_number(row, "ratio")) && dpb_json_true(row, "of_steps"))
            fputs(" (by the steps of one run)", out);
        print_doubts(row, out);
        fputc('\n', out);
    }
    print_of_what(document, out);
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

/* Prints the cells with the same target in both results. */
static void print_targets(const json_t *document, FILE *out)
{
    static const char *const names[DPB_COMPARE_TARGETS] = {"time", "= samples", "/ rate"};
    const json_t *rows = json_object_get(document, "rows");
    const int width = width_of_labels(rows);
    char label[LABEL], ratio[64];
    bool titled = false;
    dpb_each_item(rows, i, row) {
        const json_t *target = json_object_get(row, "to_target");
        if (!json_is_object(target))
            continue;
        if (!titled)
            fprintf(out, "\n%-*s  %11s  %11s  %s\n", width, "to target", "A seconds", "B seconds",
                    "B / A [95 % interval]");
        titled = true;
        label_of(json_object_get(row, "cell"), NULL, label);
        fprintf(out, "%-*s", width, label);
        print_seconds(json_object_get(target, "a"), out);
        print_seconds(json_object_get(target, "b"), out);
        for (size_t part = 0; part < DPB_COMPARE_TARGETS; part++) {
            const json_t *of = json_object_get(target, dpb_compare_targets[part]);
            ratio_of(of, ratio, sizeof ratio);
            fprintf(out, "%*s  %-9s %s  %s\n", part > 0 ? width + 26 : 0, "", names[part], ratio,
                    dpb_json_text(of, "verdict", "?"));
        }
    }
}

static void label_row(const json_t *row, char *text, size_t capacity)
{
    char label[LABEL];
    label_of(json_object_get(row, "cell"), row, label);
    snprintf(text, capacity, "%s", label);
}

static void print_only(const json_t *document, const char *key, const char *side, FILE *out)
{
    char label[LABEL];
    dpb_each_item(json_object_get(document, key), i, cell) {
        label_of(cell, NULL, label);
        fprintf(out, "%s: only %s has it\n", label, side);
    }
}

/* Where the time of a step went, in two runs. */
static void print_breakdown(const json_t *document, FILE *out)
{
    const json_t *a = json_object_get(document, "a"), *b = json_object_get(document, "b");
    double step_a = dpb_json_number(a, "step_ns"), step_b = dpb_json_number(b, "step_ns");
    if (!isfinite(step_a) || !isfinite(step_b))
        return;
    fprintf(out, "\n%-16s %12s %12s %12s\n", "ms a step", "A", "B", "B - A");
    fprintf(out, "%-16s %12.4f %12.4f %+12.4f\n", "step", step_a / 1e6, step_b / 1e6,
            (step_b - step_a) / 1e6);
    for (size_t i = 0; i < DPB_BREAKDOWN; i++) {
        const char *name = dpb_breakdown_names[i];
        double of_a = dpb_json_number(json_object_get(a, "breakdown_ns"), name) / 1e6;
        double of_b = dpb_json_number(json_object_get(b, "breakdown_ns"), name) / 1e6;
        if ((strcmp(name, "delay") == 0 || i == DPB_BREAKDOWN - 1) && !(of_a > 0) && !(of_b > 0))
            continue; /* as most runs have none */
        fprintf(out, "  %-14s %12.4f %12.4f %+12.4f\n", name, of_a, of_b, of_b - of_a);
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
    dpb_compare_quantities_print(document, label_row, out);
    print_only(document, "only_a", "A", out);
    print_only(document, "only_b", "B", out);
    print_breakdown(document, out);
    fputs(dpb_json_true(document, "side_by_side")
              ? "\nA and B ran side by side, in turns, and are compared pair by pair\n"
          : dpb_json_true(document, "paired")
              ? "\nA and B ran by turns and are compared repeat by repeat\n"
              : "\nA and B were measured at different times: the ratio includes changes between "
                "them, too;\n`dpbench gate` alternates two builds\n",
          out);
    if (isfinite(threshold))
        fprintf(out,
                dpb_json_true(document, "regression")
                    ? "regression: B is slower by more than %.3g %%, or a cell has no rate\n"
                : dpb_json_is(document, "judgement", "pass")
                    ? "pass: B is not slower by %.3g %%\n"
                    : "undecided: it is not shown whether B is slower by %.3g %%\n",
                100 * threshold);
}
