/* merge_axes.c - in which settings merged results differ: see merge.h. */
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "plan/experiment.h"
#include "study/table/merge_axes.h"

enum { TEXT = 512 };

bool dpb_merge_is_of_sweep(const json_t *run)
{
    const double repeat = dpb_json_number(run, "repeat"), cell = dpb_json_number(run, "cell_index");
    return json_is_object(json_object_get(run, "cell")) && cell >= 0 && repeat >= 0 &&
           repeat < DPB_MERGE_REPEATS && repeat == floor(repeat);
}

/* Whether its settings are those that it ran with: a refused one has them as they were written. */
static bool is_settled(const json_t *run)
{
    return json_object_get(run, "world") != NULL;
}

/* ---- settings ------------------------------------------------------------------------------ */

/* Where results go and how a run is called changes nothing that is measured. */
static bool matters(const char *section, const char *key, const json_t *entry)
{
    return strcmp(section, "comm_test") != 0 && !dpb_json_is(entry, "origin", "derived") &&
           !(strcmp(section, "run") == 0 &&
             (strcmp(key, "results") == 0 || strcmp(key, "name") == 0));
}

/* {SECTION.KEY: value}. @owned. */
static json_t *settings_of(const json_t *run)
{
    json_t *made = json_object();
    dpb_each_member(json_object_get(run, "config"), section, keys)
        dpb_each_member(keys, key, entry) {
            char name[TEXT];
            snprintf(name, sizeof name, "%.200s.%.200s", section, key);
            if (is_settled(run) && matters(section, key, entry))
                json_object_set(made, name, json_object_get(entry, "value"));
        }
    return made;
}

static bool is_placed_by_launcher(const json_t *run, const char *key)
{
    const char *origin = dpb_json_text(run, "config.comm.hosts.origin", "");
    return strcmp(key, "comm.hosts") == 0 &&
           (strcmp(origin, "launcher") == 0 || strcmp(origin, "hosts") == 0 ||
            strcmp(origin, DPB_LAUNCH_ORIGIN) == 0);
}

/* Whether the setting comes from its default. */
static bool is_default(const json_t *run, const char *key)
{
    char path[TEXT];
    snprintf(path, sizeof path, "config.%s.origin", key);
    return dpb_json_is(run, path, "default");
}

/* `of_cell` has the settings of earlier runs of the same cell. A setting in which runs of one cell
 * differ goes through repeats. A default that each plugin has of its own differs by cell alone. */
static void learn_settings(struct dpb_merge *merge, const struct dpb_merge_item *item,
                           json_t *of_cell)
{
    struct dpb_merge_source *source = &merge->sources[item->source];
    json_t *settings = settings_of(item->run);
    dpb_each_member(settings, key, value) {
        const json_t *here = json_object_get(of_cell, key);
        const json_t *known = json_object_get(source->settings, key);
        if (!known && is_default(item->run, key))
            json_object_set_new(source->defaults, key, json_true());
        if (json_object_get(source->of_cells, key))
            continue;
        if (here && !json_equal(here, value))
            json_object_set_new(merge->over, key, json_array());
        else if ((known && !json_equal(known, value)) || is_placed_by_launcher(item->run, key))
            json_object_set_new(merge->followers, key, json_true());
    }
    json_object_update_missing(source->settings, settings);
    json_object_update_missing(of_cell, settings);
    json_decref(settings);
}

void dpb_merge_learn(struct dpb_merge *merge)
{
    const struct dpb_merge_item *before = NULL;
    json_t *of_cell = json_object();
    for (size_t i = 0; i < merge->n_items; i++) {
        const struct dpb_merge_item *item = &merge->items[i];
        const json_t *cell = json_object_get(item->run, "cell");
        if (!before || before->source != item->source ||
            !json_equal(json_object_get(before->run, "cell"), cell))
            json_object_clear(of_cell);
        if (dpb_merge_is_of_sweep(item->run))
            json_object_update_missing(merge->sources[item->source].of_cells,
                                       (json_t *)(uintptr_t)cell);
        learn_settings(merge, item, of_cell);
        before = item;
    }
    json_decref(of_cell);
}

/* ---- models -------------------------------------------------------------------------------- */

static bool goes_through_models(const struct dpb_merge_source *source)
{
    dpb_each_member(source->of_cells, key, value)
        if (dpb_begins_with(key, "model.") || dpb_begins_with(key, "data."))
            return true;
    return false;
}

/* `context`: the text of the first difference, of TEXT bytes. */
static void note_model(void *context, const char *path, const json_t *a, const json_t *b)
{
    char *difference = context;
    if (!a || !b || difference[0] != '\0' ||
        (dpb_begins_with(path, "config") && !dpb_ends_on(path, ".value")))
        return;
    char *text_a = json_dumps(a, JSON_ENCODE_ANY | JSON_COMPACT);
    char *text_b = json_dumps(b, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(difference, TEXT, "%.200s is %.100s and %.100s", path, text_a ? text_a : "?",
             text_b ? text_b : "?");
    free(text_a);
    free(text_b);
}

/* A sweep over models is merged with such sweeps alone: its rows are of the model they name. */
dpb_status dpb_merge_refuse_models(const struct dpb_merge *merge)
{
    const struct dpb_merge_item *first = NULL;
    bool all = true;
    for (size_t i = 0; i < merge->n_sources; i++)
        all &= goes_through_models(&merge->sources[i]);
    for (size_t i = 0; i < merge->n_items && !all; i++) {
        const struct dpb_merge_item *item = &merge->items[i];
        char difference[TEXT] = "";
        if (!is_settled(item->run))
            continue;
        first = first ? first : item;
        dpb_json_differences(dpb_json_at(first->run, "config.model"),
                             dpb_json_at(item->run, "config.model"), "config.model", note_model,
                             difference);
        dpb_json_differences(json_object_get(first->run, "model"),
                             json_object_get(item->run, "model"), "model", note_model, difference);
        if (difference[0] != '\0')
            return dpb_fail(DPB_USAGE,
                            "%s and %s are of different models: %s; one table is of one model, "
                            "--each prints them one by one",
                            merge->sources[first->source].file, merge->sources[item->source].file,
                            difference);
    }
    return DPB_OK;
}

/* ---- axes ---------------------------------------------------------------------------------- */

/* The value of a run's setting; NULL: it has none, or is not settled. @borrowed. */
static const json_t *setting_of(const json_t *run, const char *key)
{
    char path[TEXT];
    snprintf(path, sizeof path, "config.%s.value", key);
    return is_settled(run) ? dpb_json_at(run, path) : NULL;
}

/* The text in the table; NULL: the run has no such setting. */
static const char *label_of(const struct dpb_merge_item *item, const char *key, char *buffer,
                            size_t capacity)
{
    if (strcmp(key, "setup") == 0) {
        snprintf(buffer, capacity, "%zu", item->setup + 1);
        return buffer;
    }
    const json_t *cell =
        dpb_merge_is_of_sweep(item->run) ? json_object_get(item->run, "cell") : NULL;
    const char *text = json_string_value(json_object_get(cell, key));
    const json_t *value = setting_of(item->run, key);
    return text ? text : json_is_null(value) ? "none" : dpb_config_text(value, buffer, capacity);
}

/* The number of the value, from 1; 0: it is new. A size may be written in two ways. */
static size_t find_value(const json_t *values, const char *label, const json_t *value)
{
    dpb_each_item(values, i, known) {
        const json_t *other = json_object_get(known, "value");
        if (dpb_json_is(known, "label", label) || (value && other && json_equal(value, other)))
            return i + 1;
    }
    return 0;
}

size_t dpb_merge_value(const json_t *values, const struct dpb_merge_item *item, const char *key)
{
    char buffer[64];
    const char *label = label_of(item, key, buffer, sizeof buffer);
    return label ? find_value(values, label, setting_of(item->run, key)) : 0;
}

/* The values of the first result stay as they are. Where they rise, others go between them. */
static size_t place_of(const json_t *values, double number)
{
    double before = -INFINITY;
    size_t place = 0;
    dpb_each_item(values, i, known) {
        const double other = dpb_json_number(known, "value");
        if (!(other > before) || !isfinite(number))
            return json_array_size(values);
        place += other < number;
        before = other;
    }
    return place;
}

static void fill_axis(const struct dpb_merge *merge, const char *key, json_t *values)
{
    for (size_t i = 0; i < merge->n_items; i++) {
        const struct dpb_merge_item *item = &merge->items[i];
        const json_t *value = setting_of(item->run, key);
        char buffer[64];
        const char *label = label_of(item, key, buffer, sizeof buffer);
        if (!label || find_value(values, label, value) > 0)
            continue;
        const size_t place = item->source > 0 ? place_of(values, dpb_json_number(value, ""))
                                              : json_array_size(values);
        json_array_insert_new(
            values, place,
            json_pack("{s:s, s:O*}", "label", label, "value", (json_t *)(uintptr_t)value));
    }
}

/* Seeds are replicates wherever results differ in them. */
static void add_axis(struct dpb_merge *merge, const char *key)
{
    if (strcmp(key, "run.seed") == 0)
        json_object_set_new(merge->over, key, json_array());
    if (json_object_get(merge->over, key))
        return;
    json_object_set_new(merge->axes, key, json_array());
    merge->has_columns = true;
}

/* Whether two sources differ in the setting only since each plugin of the section, `name`, has a
 * default of its own. */
static bool by_plugin(const struct dpb_merge_source *a, const struct dpb_merge_source *b,
                      const char *key, const char *name)
{
    return json_object_get(a->defaults, key) && json_object_get(b->defaults, key) &&
           !dpb_json_same(json_object_get(a->settings, name), json_object_get(b->settings, name));
}

/* Settings in which sources differ, and those that only some of them have. A plugin's options are
 * left out of the latter: they go with the plugin. */
static void compare_settings(struct dpb_merge *merge, const char *key)
{
    const size_t length = strcspn(key, ".");
    const struct dpb_merge_source *first = NULL;
    char name[TEXT];
    bool differs = false, follower = false, plugin = false;
    size_t n_missing = 0;
    snprintf(name, sizeof name, "%.*s.name", (int)length, key);
    for (size_t i = 0; i < merge->n_sources; i++) {
        const struct dpb_merge_source *source = &merge->sources[i];
        const json_t *value = json_object_get(source->settings, key);
        if (json_object_size(source->settings) == 0)
            continue; /* none of its runs was settled */
        plugin |= json_object_get(source->settings, name) != NULL;
        n_missing += !value;
        if (first && value && !json_equal(json_object_get(first->settings, key), value)) {
            const bool follows = by_plugin(first, source, key, name);
            follower |= follows;
            differs |= !follows && !json_object_get(merge->followers, key);
        }
        first = first || !value ? first : source;
    }
    if (differs)
        add_axis(merge, key);
    else if (follower)
        json_object_set_new(merge->followers, key, json_true());
    if (!differs && n_missing > 0 && !plugin)
        json_object_set(merge->settings, key, json_object_get(first->settings, key));
}

/* Whether two runs of one row differ in the setting. The axes are filled. */
static bool differs_in_row(const struct dpb_merge *merge, const char *key)
{
    json_t *rows = json_object();
    bool differs = false;
    for (size_t i = 0; i < merge->n_items && !differs; i++) {
        const struct dpb_merge_item *item = &merge->items[i];
        const json_t *value = setting_of(item->run, key);
        json_t *at = json_pack("[I]", (json_int_t)item->setup);
        dpb_each_member(merge->axes, axis, values)
            json_array_append_new(at,
                                  json_integer((json_int_t)dpb_merge_value(values, item, axis)));
        char *row = json_dumps(at, JSON_COMPACT);
        const json_t *known = row ? json_object_get(rows, row) : NULL;
        differs = known && value && !json_equal(known, value);
        if (row && !known && value)
            json_object_set(rows, row, (json_t *)(uintptr_t)value);
        free(row);
        json_decref(at);
    }
    json_decref(rows);
    return differs;
}

void dpb_merge_find_axes(struct dpb_merge *merge)
{
    for (size_t i = 0; i < merge->n_sources; i++)
        dpb_each_member(merge->sources[i].of_cells, key, value)
            if (!json_object_get(merge->axes, key))
                json_object_set_new(merge->axes, key, json_array());
    for (size_t i = 0; i < merge->n_sources; i++)
        dpb_each_member(merge->sources[i].settings, key, value)
            if (!json_object_get(merge->axes, key) && !json_object_get(merge->settings, key))
                compare_settings(merge, key);
    dpb_each_member(merge->axes, key, value)
        fill_axis(merge, key, value);
    dpb_each_member(merge->followers, key, value) {
        if (json_object_get(merge->axes, key) || !differs_in_row(merge, key))
            continue;
        add_axis(merge, key);
        fill_axis(merge, key, json_object_get(merge->axes, key));
    }
    if (json_array_size(merge->setups) > 1) {
        json_object_set_new(merge->axes, "setup", json_array());
        fill_axis(merge, "setup", json_object_get(merge->axes, "setup"));
        merge->has_columns = true;
    }
    dpb_each_member(merge->over, key, value)
        fill_axis(merge, key, value);
}
