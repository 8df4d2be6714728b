/* merge.c - see merge.h. */
#include "study/table/merge.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "study/document/rows.h"
#include "study/document/setup.h"
#include "study/table/merge_axes.h"

/* ---- runs ---------------------------------------------------------------------------------- */

static bool is_accuracy(const json_t *run)
{
    return dpb_json_is(run, "purpose", "accuracy");
}

static bool is_given_before(const struct dpb_merge *merge, const json_t *run)
{
    const json_t *started = json_object_get(run, "started");
    for (size_t i = 0; i < merge->n_items; i++)
        if (json_equal(json_object_get(merge->items[i].run, "started"), started) &&
            json_equal(merge->items[i].run, run))
            return true;
    return dpb_json_find(merge->accuracy, "", run) != NULL;
}

/* `run` is stolen. False: out of memory. */
static bool add_run(struct dpb_merge *merge, size_t at, json_t *run)
{
    struct dpb_merge_source *source = &merge->sources[at];
    if (is_given_before(merge, run)) {
        merge->n_twice++;
        json_decref(run);
        return true;
    }
    if (is_accuracy(run))
        return json_array_append_new(merge->accuracy, run) == 0;
    if (merge->n_items == merge->capacity) {
        const size_t capacity = 2 * merge->capacity + 16;
        struct dpb_merge_item *items = realloc(merge->items, capacity * sizeof *items);
        if (!items) {
            json_decref(run);
            return false;
        }
        merge->items = items;
        merge->capacity = capacity;
    }
    struct dpb_merge_item *item = &merge->items[merge->n_items];
    *item = (struct dpb_merge_item){.run = run, .source = at, .order = merge->n_items};
    merge->n_items++;
    if (dpb_merge_is_of_sweep(run)) {
        item->cell = dpb_json_number(run, "cell_index");
        item->repeat = (int64_t)dpb_json_number(run, "repeat");
    }
    source->repeats = item->repeat + 1 > source->repeats ? item->repeat + 1 : source->repeats;
    return true;
}

static size_t directory_length(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? (size_t)(slash - file) : 0;
}

/* Runs of one directory that know their cells are of one sweep. */
static size_t find_source(struct dpb_merge *merge, const char *file, bool kept)
{
    const size_t length = directory_length(file);
    for (size_t i = 0; i < merge->n_sources && kept; i++)
        if (merge->sources[i].kept && directory_length(merge->sources[i].file) == length &&
            strncmp(merge->sources[i].file, file, length) == 0)
            return i;
    merge->sources[merge->n_sources] = (struct dpb_merge_source){
        .file = file,
        .kept = kept,
        .settings = json_object(),
        .defaults = json_object(),
        .of_cells = json_object(),
        .setups = json_array(),
        .facts = json_pack("[{}]"),
    };
    return merge->n_sources++;
}

static bool add_result(struct dpb_merge *merge, const struct dpb_compared *result)
{
    bool good = true;
    if (!dpb_json_is(result->document, "schema", "dpbench.sweep/1")) {
        const bool kept = dpb_merge_is_of_sweep(result->document);
        return add_run(merge, find_source(merge, result->file, kept),
                       dpb_setups_unsplit(result->document));
    }
    const size_t source = find_source(merge, result->file, false), n_before = merge->n_items;
    const double repeats = dpb_json_number(result->document, "repeats");
    dpb_each_item(json_object_get(result->document, "runs"), i, run)
        good &= add_run(merge, source, dpb_setups_unsplit(run));
    /* A sweep whose runs were all given before, or sweep.json of a directory, adds no repeats. */
    if (merge->n_items > n_before && repeats <= DPB_MERGE_REPEATS &&
        repeats > (double)merge->sources[source].repeats)
        merge->sources[source].repeats = (int64_t)repeats;
    return good;
}

static int by_source(const void *a, const void *b)
{
    const struct dpb_merge_item *x = a, *y = b;
    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    if (x->cell != y->cell)
        return x->cell < y->cell ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* ---- setups -------------------------------------------------------------------------------- */

/* A source has several setups only where its own table has them: its rows stay as they are. */
static void find_setups(struct dpb_merge *merge)
{
    for (size_t i = 0; i < merge->n_items; i++) {
        struct dpb_merge_item *item = &merge->items[i];
        const struct dpb_merge_source *source = &merge->sources[item->source];
        item->own = dpb_setups_within(source->setups, item->run);
        while (json_array_size(source->facts) <= item->own)
            json_array_append_new(source->facts, json_object());
        dpb_setups_learn(json_array_get(source->facts, item->own), item->run);
    }
    for (size_t i = 0; i < merge->n_sources; i++)
        dpb_each_item(merge->sources[i].facts, own, facts) {
            const size_t setup = dpb_setups_add(merge->setups, facts, merge->pool);
            for (size_t k = 0; k < merge->n_items; k++)
                if (merge->items[k].source == i && merge->items[k].own == own)
                    merge->items[k].setup = setup;
        }
}

/* ---- cells --------------------------------------------------------------------------------- */

static int compare_cells(const struct dpb_merge_item *a, const struct dpb_merge_item *b)
{
    for (size_t i = 0; i < a->n_at; i++)
        if (a->at[i] != b->at[i])
            return a->at[i] < b->at[i] ? -1 : 1;
    return 0;
}

static int by_cell(const void *a, const void *b)
{
    const int order = compare_cells(a, b);
    return order != 0 ? order : by_source(a, b);
}

/* Cells count with the last axis fastest, as those of a sweep. False: out of memory. */
static bool place_items(struct dpb_merge *merge)
{
    const size_t n_axes = json_object_size(merge->axes);
    merge->places = calloc(merge->n_items * n_axes + 1, sizeof *merge->places);
    if (!merge->places)
        return false;
    for (size_t i = 0; i < merge->n_items; i++) {
        struct dpb_merge_item *item = &merge->items[i];
        size_t axis = 0;
        item->at = merge->places + i * n_axes;
        item->n_at = n_axes;
        dpb_each_member(merge->axes, key, values)
            item->at[axis++] = dpb_merge_value(values, item, key);
    }
    qsort(merge->items, merge->n_items, sizeof *merge->items, by_cell);
    return true;
}

static json_t *cell_of(const struct dpb_merge *merge, const struct dpb_merge_item *item)
{
    json_t *cell = json_object();
    size_t axis = 0;
    dpb_each_member(merge->axes, key, values) {
        const size_t at = item->at[axis++];
        if (at > 0)
            json_object_set(cell, key, json_object_get(json_array_get(values, at - 1), "label"));
    }
    return cell;
}

/* The runs with their places. @owned. */
static json_t *runs_of(struct dpb_merge *merge, bool with_accuracy)
{
    json_t *runs = json_array();
    size_t cell = 0;
    for (size_t i = 0; i < merge->n_items; i++) {
        const struct dpb_merge_item *item = &merge->items[i];
        json_t *run = json_copy(item->run);
        cell += i > 0 && compare_cells(item - 1, item) != 0;
        json_object_set_new(run, "cell", cell_of(merge, item));
        json_object_set_new(run, "cell_index", json_integer((json_int_t)cell));
        json_object_set_new(run, "repeat",
                            json_integer(merge->sources[item->source].first + item->repeat));
        json_object_set_new(run, "purpose", json_string("timing"));
        json_array_append_new(runs, run);
    }
    if (with_accuracy)
        json_array_extend(runs, merge->accuracy);
    return runs;
}

/* ---- the document -------------------------------------------------------------------------- */

/* {KEY: [label]}. @owned. */
static json_t *labels_of(const json_t *axes)
{
    json_t *made = json_object();
    dpb_each_member(axes, key, values) {
        json_t *labels = json_array();
        dpb_each_item(values, i, value)
            json_array_append(labels, json_object_get(value, "label"));
        json_object_set_new(made, key, labels);
    }
    return made;
}

/* By their texts, each once. @owned. */
static json_t *distinct(const struct dpb_compared *results, size_t n, const char *path)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *text = json_object_get(results[i].document, path);
        if (text && !dpb_json_find(list, "", text))
            json_array_append(list, text);
    }
    return list;
}

/* The warnings of the sweeps, each text once; the runs have their own. @owned. */
static json_t *warnings_of(const struct dpb_compared *results, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const bool is_sweep = json_object_get(results[i].document, "runs") != NULL;
        json_t *warnings = json_object_get(results[i].document, "warnings");
        dpb_each_item(warnings, k, warning) {
            const char *code = dpb_json_text(warning, "code", "");
            const bool again = strcmp(code, "cores_differ") == 0 ||
                               strcmp(code, "like_independent") == 0 || /* finish adds them */
                               strcmp(code, "setups_differ") == 0;      /* the notes say it */
            if (is_sweep && !again &&
                !dpb_json_find(list, "text", json_object_get(warning, "text")))
                json_array_append(list, warning);
        }
    }
    return list;
}

/* The files of each setup; a directory for runs that were given one by one. @owned. */
static json_t *files_of(const struct dpb_merge *merge)
{
    json_t *setups = json_array();
    for (size_t setup = 0; setup == 0 || setup < json_array_size(merge->setups); setup++) {
        json_t *files = json_array();
        for (size_t source = 0; source < merge->n_sources; source++) {
            const char *file = merge->sources[source].file;
            const size_t length = merge->sources[source].kept ? directory_length(file) : 0;
            bool here = false;
            for (size_t i = 0; i < merge->n_items && !here; i++)
                here = merge->items[i].setup == setup && merge->items[i].source == source;
            if (here)
                json_array_append_new(files,
                                      dpb_json_file(file, length > 0 ? length : strlen(file)));
        }
        json_array_append_new(setups, files);
    }
    return setups;
}

/* False: the steps of accuracy runs differ, or no sweep may have them. *steps is 0 if no run has
 * steps: a refused run may have none. */
static bool accuracy_agrees(const struct dpb_merge *merge, json_int_t *steps)
{
    enum { MOST = 1000000000 }; /* sweep.accuracy */
    double first = 0;
    dpb_each_item(merge->accuracy, i, run) {
        const double own = dpb_json_number(run, "config.run.steps.value");
        const bool same = first == 0 || own == first;
        if (!isnan(own) && !(same && own >= 1 && own <= MOST && own == floor(own)))
            return false;
        first = isnan(own) ? first : own;
    }
    *steps = (json_int_t)first;
    return true;
}

/* Of the sources, by their order. @owned. */
static json_t *states_of(const struct dpb_merge *merge)
{
    json_t *facts = json_array();
    for (size_t i = 0; i < merge->n_sources; i++)
        json_array_append(facts, json_array_get(merge->sources[i].facts, 0));
    json_t *states = dpb_setups_differences(facts, true);
    json_decref(facts);
    return states;
}

static json_t *document_of(struct dpb_merge *merge, const struct dpb_compared *results, size_t n,
                           int64_t repeats)
{
    size_t n_results = 0;
    for (size_t i = 0; i < merge->n_sources; i++)
        n_results += merge->sources[i].repeats > 0;
    json_int_t steps = 0;
    const bool agree = accuracy_agrees(merge, &steps);
    /* A table with columns of its own has rows for which an accuracy run says nothing. */
    const bool with_accuracy = agree && !merge->has_columns;
    const size_t n_left_out = with_accuracy ? 0 : json_array_size(merge->accuracy);
    json_t *names = distinct(results, n, "name");
    json_t *merged =
        json_pack("{s:I, s:I, s:I, s:I, s:b, s:o, s:O, s:o, s:o, s:O}", "results",
                  (json_int_t)n_results, "runs", (json_int_t)merge->n_items, "given_twice",
                  (json_int_t)merge->n_twice, "accuracy_runs_left_out", (json_int_t)n_left_out,
                  "accuracy_steps_differ", !agree, "files", files_of(merge), "names", names,
                  "differences", dpb_setups_differences(merge->setups, false), "states",
                  states_of(merge), "settings", merge->settings);
    json_t *document = json_pack(
        "{s:s, s:O?, s:O?, s:o, s:o, s:I, s:I, s:{}, s:[], s:o, s:o, s:o}", "schema",
        "dpbench.sweep/1", "name", json_array_get(names, 0), "started",
        json_object_get(results[0].document, "started"), "axes", labels_of(merge->axes), "over",
        labels_of(merge->over), "repeats", (json_int_t)repeats, "accuracy_steps",
        with_accuracy ? steps : (json_int_t)0, "config", "rows", "runs",
        runs_of(merge, with_accuracy), "warnings", warnings_of(results, n), "merged", merged);
    json_decref(names);
    if (document)
        dpb_sweep_finish(DPB_OK, document);
    return document;
}

static dpb_status make(struct dpb_merge *merge, const struct dpb_compared *results, size_t n,
                       json_t **document)
{
    bool good = merge->sources && merge->axes && merge->over && merge->followers && merge->setups &&
                merge->accuracy && merge->settings;
    for (size_t i = 0; i < n && good; i++)
        good = add_result(merge, &results[i]);
    if (good && merge->n_items == 0)
        return dpb_fail(DPB_USAGE, "there is no run in these results");
    if (good) {
        qsort(merge->items, merge->n_items, sizeof *merge->items, by_source);
        dpb_merge_learn(merge);
        DPB_TRY(dpb_merge_refuse_models(merge));
        find_setups(merge);
        dpb_merge_find_axes(merge);
        good = place_items(merge);
    }
    int64_t repeats = 0;
    for (size_t i = 0; i < merge->n_sources; i++) {
        merge->sources[i].first = repeats;
        repeats += merge->sources[i].repeats;
    }
    if (repeats > DPB_SWEEP_REPEATS)
        return dpb_fail(DPB_USAGE, "these results have %lld repeats, and a table at most %d",
                        (long long)repeats, DPB_SWEEP_REPEATS);
    json_t *made = good ? document_of(merge, results, n, repeats) : NULL;
    *document = made;
    return dpb_allocated(made);
}

dpb_status dpb_merge(const struct dpb_compared *results, size_t n, const char *pool,
                     json_t **document)
{
    struct dpb_merge merge = {
        .sources = calloc(n + 1, sizeof *merge.sources),
        .axes = json_object(),
        .over = json_object(),
        .followers = json_object(),
        .setups = json_array(),
        .accuracy = json_array(),
        .settings = json_object(),
        .pool = pool,
    };
    dpb_status status = make(&merge, results, n, document);
    for (size_t i = 0; i < merge.n_items; i++)
        json_decref(merge.items[i].run);
    for (size_t i = 0; i < merge.n_sources; i++) {
        json_decref(merge.sources[i].settings);
        json_decref(merge.sources[i].defaults);
        json_decref(merge.sources[i].of_cells);
        json_decref(merge.sources[i].setups);
        json_decref(merge.sources[i].facts);
    }
    json_decref(merge.axes);
    json_decref(merge.over);
    json_decref(merge.followers);
    json_decref(merge.setups);
    json_decref(merge.accuracy);
    json_decref(merge.settings);
    free(merge.items);
    free(merge.sources);
    free(merge.places);
    return status;
}

/* ---- for people ------------------------------------------------------------------------------ */

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
static void print_values(const json_t *values, const char *of, FILE *out)
{
    dpb_each_item(values, i, value) {
        if (dpb_json_find(values, "", value) != value)
            continue;
        fputs(i > 0 ? ", " : "", out);
        dpb_json_print(json_object_get(value, "value"), out);
        fprintf(out, " (%s %zu", of, i + 1);
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
        print_values(value, "setup", out);
        fputs(".\n", out);
    }
    dpb_each_member(json_object_get(merged, "states"), path, value) {
        fprintf(out, "- %s changed meanwhile, which makes no setup: ", path);
        print_values(value, "result", out);
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
        fputs("- these results ran at different times: the ratios include changes between them, "
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
