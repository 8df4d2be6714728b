/* setups.c - see setups.h. */
#include "study/setups.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "study/json.h"

/* ---- of one run ---------------------------------------------------------------------------- */

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

/* By setting and its value; a relative place is another in each directory. */
static json_t *inputs_of(const json_t *run)
{
    json_t *made = json_object();
    dpb_each_member(json_object_get(run, "inputs"), key, input) {
        char path[256], name[512];
        json_t *copy = json_copy(input);
        snprintf(path, sizeof path, "config.%.200s.value", key);
        snprintf(name, sizeof name, "%.200s = %.300s", key, dpb_json_text(run, path, "?"));
        json_object_del(copy, "path");
        if (json_is_object(copy))
            json_object_set(made, name, copy);
        json_decref(copy);
    }
    return made;
}

static json_t *facts_of(const json_t *run)
{
    json_t *facts = json_object(), *versions = json_copy(json_object_get(run, "versions"));
    const json_t *gpu = json_object_get(json_array_get(json_object_get(run, "ranks"), 0), "gpu");
    put(facts, "machine", json_object_get(run, "machine"));
    json_object_set_new(facts, "plugins", plugins_of(json_object_get(versions, "plugins")));
    json_object_del(versions, "plugins");
    json_object_set_new(facts, "versions", versions ? versions : json_object());
    put(facts, "environment", dpb_json_at(run, "invocation.environment"));
    json_object_set_new(facts, "inputs", inputs_of(run));
    put(facts, "world.launcher", dpb_json_at(run, "world.launcher"));
    put(facts, "gpu.name", json_object_get(gpu, "name"));
    put(facts, "gpu.driver", json_object_get(gpu, "driver"));
    return facts;
}

/* ---- of several ---------------------------------------------------------------------------- */

struct found {
    size_t a, b, n_setups;
    json_t *differences; /* NULL: they are counted alone */
    size_t n;
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

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
    const bool of_some_cells =
        begins(name, "plugins.") || begins(name, "inputs.") || begins(name, "gpu.");
    if (of_some_cells && (!a || !b))
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

/* What `facts` do not say yet. */
static void learn(json_t *facts, const json_t *more)
{
    dpb_each_member(more, part, value) {
        if (strcmp(part, "plugins") == 0 || strcmp(part, "inputs") == 0)
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

size_t dpb_setups_add(json_t *setups, const json_t *facts)
{
    size_t i = 0;
    if (json_object_size(facts) == 0)
        return 0;
    for (; i < json_array_size(setups); i++) {
        struct found found = {.n = 0};
        dpb_json_differences(json_array_get(setups, i), facts, "", note, &found);
        if (found.n == 0)
            break;
    }
    if (i == json_array_size(setups))
        json_array_append_new(setups, json_object());
    learn(json_array_get(setups, i), facts);
    return i;
}

json_t *dpb_setups_differences(const json_t *setups)
{
    struct found found = {.n_setups = json_array_size(setups), .differences = json_object()};
    for (found.b = 1; found.b < found.n_setups; found.b++)
        for (found.a = 0; found.a < found.b; found.a++)
            dpb_json_differences(json_array_get(setups, found.a), json_array_get(setups, found.b),
                                 "", note, &found);
    return found.differences;
}
