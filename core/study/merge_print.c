/* merge_print.c - what is to be said above the table of merged results; from the document alone. */

#include "study/json.h"
#include "study/merge.h"

enum { MOST_FILES = 8 };

/* "a, b, c and 2 more". */
static void print_list(const json_t *texts, FILE *out)
{
    const size_t n = json_array_size(texts);
    for (size_t i = 0; i < n && i < MOST_FILES; i++)
        fprintf(out, "%s%s", i > 0 ? ", " : "", dpb_json_text(json_array_get(texts, i), "", "?"));
    if (n > MOST_FILES)
        fprintf(out, " and %zu more", n - MOST_FILES);
}

/* `"X" (setup 1, 3), "Y" (setup 2)`: each value once. */
static void print_values(const json_t *values, FILE *out)
{
    dpb_each_item(values, i, value) {
        size_t first = i;
        for (size_t k = i; k-- > 0;)
            if (json_equal(json_array_get(values, k), value))
                first = k;
        if (first < i)
            continue;
        fputs(i > 0 ? ", " : "", out);
        dpb_json_print(json_object_get(value, "value"), out);
        fprintf(out, " (setup %zu", i + 1);
        dpb_each_item(values, k, other)
            if (k > i && json_equal(other, value))
                fprintf(out, ", %zu", k + 1);
        fputc(')', out);
    }
}

static void print_differences(const json_t *merged, FILE *out)
{
    const json_t *names = json_object_get(merged, "names");
    if (json_array_size(names) > 1) {
        fputs("- different run.name: ", out);
        print_list(names, out);
        fputs(".\n", out);
    }
    dpb_each_member(json_object_get(merged, "settings"), path, value) {
        fprintf(out, "- different %s: ", path);
        dpb_json_print(value, out);
        fputs(", missing in some results.\n", out);
    }
    dpb_each_member(json_object_get(merged, "differences"), path, value) {
        fprintf(out, "- different %s: ", path);
        print_values(value, out);
        fputs(".\n", out);
    }
}

void dpb_merge_notes(const json_t *document, FILE *out)
{
    const json_t *merged = json_object_get(document, "merged");
    const double n_twice = dpb_json_number(merged, "given_twice");
    const double n_accuracy = dpb_json_number(merged, "accuracy_runs_left_out");
    if (!json_is_object(merged))
        return;
    const json_t *setups = json_object_get(merged, "files");
    if (dpb_json_number(merged, "results") > 1)
        fputs("- these results ran at different times: the ratios hold what changed between them, "
              "too.\n",
              out);
    dpb_each_item(setups, i, files) {
        if (json_array_size(setups) == 1)
            fputs("- from ", out);
        else
            fprintf(out, "- setup %zu: ", i + 1);
        print_list(files, out);
        fputs(".\n", out);
    }
    print_differences(merged, out);
    dpb_each_member(json_object_get(document, "over"), axis, values)
        fprintf(out, "- repeats differ in %s.\n", axis);
    if (n_twice > 0)
        fprintf(out, "- %.0f run%s given twice and count%s once.\n", n_twice,
                n_twice == 1 ? " was" : "s were", n_twice == 1 ? "s" : "");
    if (n_accuracy > 0)
        fprintf(out, "- %.0f accuracy run%s left out: %s.\n", n_accuracy,
                n_accuracy == 1 ? " is" : "s are",
                dpb_json_true(merged, "accuracy_steps_differ")
                    ? "the numbers of steps differ, or are none that sweep.accuracy may be"
                    : "the rows differ in settings that their sweeps do not have");
}
