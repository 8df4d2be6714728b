/* setup.c - see setup.h. */
#include "study/document/setup.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "record/facts.h"
#include "study/document/spill.h"

bool dpb_setup_is_state(const char *path)
{
    static const char *const states[] = {"machine.memory_bytes", "machine.usable_cores",
                                         "machine.cgroup.memory_bytes"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(path, states[i]) == 0)
            return true;
    return false;
}

/* ---- setups: on what runs were made ---------------------------------------------------------- */

static void put(json_t *facts, const char *name, const json_t *value)
{
    if (value && !json_is_null(value))
        json_object_set(facts, name, (json_t *)(uintptr_t)value);
}

/* By kind and name; a file is known by its checksum. */
static json_t *plugins_of(const json_t *plugins)
{
    json_t *made = json_object();
    dpb_each_member(plugins, kind, plugin) {
        char name[256];
        json_t *copy = json_copy(plugin), *file = json_copy(json_object_get(plugin, "file"));
        snprintf(name, sizeof name, "%s '%s'", kind, dpb_json_text(plugin, "name", "?"));
        json_object_del(file, "path");
        json_object_set_new(copy, "file", file ? file : json_null());
        json_object_set_new(made, name, copy);
    }
    return made;
}

/* By setting and its value; a relative place is another in each directory. An input without a
 * fingerprint was not looked at to its end. */
static json_t *inputs_of(const json_t *run)
{
    json_t *made = json_object();
    dpb_each_member(json_object_get(run, "inputs"), key, input) {
        char path[256], name[256 + PATH_MAX];
        json_t *copy = json_copy(input);
        snprintf(path, sizeof path, "config.%.200s.value", key);
        snprintf(name, sizeof name, "%.200s = %s", key, dpb_json_text(run, path, "?"));
        json_object_del(copy, "path");
        if (json_is_object(copy) && !json_is_null(json_object_get(copy, "fingerprint")))
            json_object_set(made, name, copy);
        json_decref(copy);
    }
    return made;
}

/* The cores and threads of a worker, by the processes that share the machine: a launcher may leave
 * a job less of it. */
static json_t *allotment_of(const json_t *run, const json_t *worker)
{
    const json_t *cores = json_object_get(worker, "cores");
    char name[96];
    snprintf(name, sizeof name, "%.0f workers, %.0f learners, %.0f servers",
             dpb_json_number(run, "world.workers"), dpb_json_number(run, "world.learners"),
             dpb_json_number(run, "world.servers"));
    return json_pack("{s:{s:O?, s:I}}", name, "threads", json_object_get(worker, "threads"),
                     "cores", (json_int_t)json_array_size(cores));
}

static json_t *facts_of(const json_t *run)
{
    json_t *facts = json_object(), *versions = json_copy(json_object_get(run, "versions"));
    json_t *ranks = dpb_run_part(run, "ranks");
    const json_t *worker = json_array_get(ranks, 0), *gpu = json_object_get(worker, "gpu");
    put(facts, "machine", json_object_get(run, "machine"));
    json_object_set_new(facts, "allotment", allotment_of(run, worker));
    json_object_set_new(facts, "plugins", plugins_of(json_object_get(versions, "plugins")));
    json_object_del(versions, "plugins");
    json_object_set_new(facts, "versions", versions ? versions : json_object());
    put(facts, "environment", dpb_json_at(run, "invocation.environment"));
    json_object_set_new(facts, "inputs", inputs_of(run));
    put(facts, "world.launcher", dpb_json_at(run, "world.launcher"));
    put(facts, "gpu.name", json_object_get(gpu, "name"));
    put(facts, "gpu.driver", json_object_get(gpu, "driver"));
    json_decref(ranks);
    return facts;
}

/* ---- of several ---------------------------------------------------------------------------- */

struct found {
    size_t a, b, n_setups;
    bool of_state;
    const char *pool;    /* makes no difference; NULL: none */
    json_t *differences; /* NULL: they are counted alone */
    size_t n;
};

static void set_value(json_t *values, size_t setup, const json_t *value)
{
    json_t *of = json_array_get(values, setup);
    if (value)
        json_object_set(of, "value", (json_t *)(uintptr_t)value);
}

static void note(void *context, const char *path, const json_t *a, const json_t *b)
{
    struct found *found = context;
    const char *name = path + 1; /* a path begins with a dot here */
    const bool of_some_cells = dpb_begins_with(name, "plugins.") ||
                               dpb_begins_with(name, "inputs.") ||
                               dpb_begins_with(name, "allotment.") || dpb_begins_with(name, "gpu.");
    if (found->pool && strcmp(name, found->pool) == 0)
        return;
    if ((of_some_cells && (!a || !b)) || dpb_setup_is_state(name) != found->of_state)
        return;
    found->n++;
    if (!found->differences)
        return;
    if (!json_object_get(found->differences, name)) {
        json_t *values = json_array();
        for (size_t i = 0; i < found->n_setups; i++)
            json_array_append_new(values, json_object());
        json_object_set_new(found->differences, name, values);
    }
    set_value(json_object_get(found->differences, name), found->a, a);
    set_value(json_object_get(found->differences, name), found->b, b);
}

/* Adds the facts that `facts` lacks. */
static void learn(json_t *facts, const json_t *more)
{
    dpb_each_member(more, part, value) {
        if (strcmp(part, "plugins") == 0 || strcmp(part, "inputs") == 0 ||
            strcmp(part, "allotment") == 0)
            json_object_update_missing(json_object_get(facts, part), value);
        if (!json_object_get(facts, part))
            json_object_set_new(facts, part, json_copy(value));
    }
}

void dpb_setups_learn(json_t *facts, const json_t *run)
{
    json_t *more = json_object_get(run, "machine") ? facts_of(run) : NULL;
    learn(facts, more);
    json_decref(more);
}

size_t dpb_setups_add(json_t *setups, const json_t *facts, const char *pool)
{
    size_t i = 0;
    if (json_object_size(facts) == 0)
        return 0;
    for (; i < json_array_size(setups); i++) {
        struct found found = {.pool = pool};
        dpb_json_differences(json_array_get(setups, i), facts, "", note, &found);
        if (found.n == 0)
            break;
    }
    if (i == json_array_size(setups))
        json_array_append_new(setups, json_object());
    learn(json_array_get(setups, i), facts);
    return i;
}

json_t *dpb_setups_differences(const json_t *setups, bool of_state)
{
    struct found found = {
        .n_setups = json_array_size(setups), .of_state = of_state, .differences = json_object()};
    for (found.b = 1; found.b < found.n_setups; found.b++)
        for (found.a = 0; found.a < found.b; found.a++)
            dpb_json_differences(json_array_get(setups, found.a), json_array_get(setups, found.b),
                                 "", note, &found);
    return found.differences;
}

/* ---- of one sweep -------------------------------------------------------------------------- */

size_t dpb_setups_within(json_t *setups, const json_t *run)
{
    static const char *const parts[] = {"versions", "plugins", "inputs"};
    json_t *all = json_object_get(run, "versions") ? facts_of(run) : NULL, *facts = json_object();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        put(facts, parts[i], json_object_get(all, parts[i]));
    const size_t number = all ? dpb_setups_add(setups, facts, NULL) : 0;
    json_decref(all);
    json_decref(facts);
    return number;
}

/* `"X" (setup 1), "Y" (setup 2)` */
static void add_values(const json_t *values, struct dpb_text *text)
{
    dpb_each_item(values, i, value) {
        const json_t *is = json_object_get(value, "value");
        char *shown = is ? json_dumps(is, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        dpb_text_item(text, ", ", "%s (setup %zu)", shown ? shown : "missing", i + 1);
        free(shown);
    }
}

static void warn_of_setups(const json_t *setups, json_t *warnings)
{
    json_t *differences = dpb_setups_differences(setups, false);
    dpb_each_member(differences, path, values) {
        char array[1024];
        struct dpb_text text = dpb_text_in(array, sizeof array);
        add_values(values, &text);
        dpb_warnings_add(
            warnings, "setups_differ",
            "%s is %s: it was replaced while the sweep ran; each setup has rows of its own", path,
            array);
    }
    json_decref(differences);
}

void dpb_setups_split(json_t *document)
{
    json_t *setups = json_array(), *labels = json_array(),
           *axes = json_object_get(document, "axes");
    json_t *runs = json_object_get(document, "runs"), *numbers = json_array();
    dpb_each_item(runs, i, run)
        json_array_append_new(numbers, json_integer((json_int_t)dpb_setups_within(setups, run)));
    for (size_t i = 0; i < json_array_size(setups); i++)
        json_array_append_new(labels, json_sprintf("%zu", i + 1));
    if (json_array_size(setups) > 1) {
        json_object_set(axes, "setup", labels);
        dpb_each_item(runs, i, run) {
            const json_t *number = json_array_get(numbers, i);
            json_object_set(json_object_get(run, "cell"), "setup",
                            json_array_get(labels, (size_t)json_integer_value(number)));
        }
        warn_of_setups(setups, json_object_get(document, "warnings"));
    }
    json_decref(setups);
    json_decref(labels);
    json_decref(numbers);
}

json_t *dpb_setups_unsplit(const json_t *run)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)run);
    json_t *cell = json_copy(json_object_get(run, "cell"));
    json_object_del(cell, "setup");
    if (cell)
        json_object_set_new(copy, "cell", cell);
    return copy;
}
