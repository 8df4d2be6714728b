/* cells.c - see cells.h. */
#include "study/document/cells.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/options.h"
#include "base/settings.h"

/* The value of a text of SECTION.KEY; what no option of core's reads stays as it is. @owned. */
static json_t *typed(const char *section, const char *key, const json_t *value)
{
    const struct dpb_option *row = dpb_options_find(dpb_settings_rows(section), key);
    const struct dpb_setting setting = {
        .section = (char *)section, .key = (char *)key, .value = (char *)json_string_value(value)};
    json_t *made;
    if (row && setting.value && dpb_option_value(row, &setting, &made) == DPB_OK)
        return made;
    return json_incref((json_t *)(uintptr_t)value);
}

json_t *dpb_config_values(const json_t *config)
{
    json_t *values = json_object();
    dpb_each_member(config, section, rows) {
        json_t *of_section = json_object();
        dpb_each_member(rows, key, entry)
            json_object_set_new(of_section, key,
                                typed(section, key, json_object_get(entry, "value")));
        json_object_set_new(values, section, of_section);
    }
    return values;
}

/* Where `of` stands among the cells, as a key; "": it does not say. */
static const char *index_of(const json_t *of, char text[32])
{
    const double index = dpb_json_number(of, "cell_index");
    text[0] = '\0';
    if (index >= 0 && index < 1e15)
        snprintf(text, 32, "%.0f", index);
    return text;
}

/* By index_of, a run that had its settings read. @owned. */
static json_t *settled_runs(const json_t *document)
{
    char index[32];
    json_t *settled = json_object();
    dpb_each_item(json_object_get(document, "runs"), i, run)
        if (json_object_get(run, "world") && !json_object_get(settled, index_of(run, index)))
            json_object_set(settled, index_of(run, index), run);
    return settled;
}

json_t *dpb_cell_values(const json_t *document)
{
    json_t *made = json_array(), *settled = settled_runs(document);
    dpb_each_item(json_object_get(document, "rows"), i, row) {
        char index[32], section[256], path[512];
        json_t *values = json_object();
        const json_t *run = json_object_get(settled, index_of(row, index));
        dpb_each_member(json_object_get(row, "cell"), name, text) {
            const char *dot = strchr(name, '.');
            snprintf(path, sizeof path, "config.%s.value", name);
            snprintf(section, sizeof section, "%.*s", dot ? (int)(dot - name) : 0, name);
            const json_t *read = dpb_json_at(run, path);
            json_object_set_new(values, name,
                                read ? json_incref((json_t *)(uintptr_t)read)
                                     : typed(section, dot ? dot + 1 : "", text));
        }
        json_array_append_new(made, values);
    }
    json_decref(settled);
    return made;
}
