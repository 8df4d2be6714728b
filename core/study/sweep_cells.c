/* sweep_cells.c - what a cell of a sweep has for each setting: see sweep.h. */
#include <stdio.h>
#include <string.h>

#include "study/json.h"
#include "study/sweep.h"

const char *dpb_sweep_value(const struct dpb_sweep *sweep, size_t cell, size_t axis)
{
    size_t at = sweep->cells[cell];
    for (size_t i = sweep->n_axes - 1; i > axis; i--)
        at /= sweep->axes[i].n_values;
    return sweep->axes[axis].values[at % sweep->axes[axis].n_values];
}

const char *dpb_sweep_setting(const struct dpb_sweep *sweep, size_t cell, const char *section,
                              const char *key)
{
    for (size_t i = 0; i < sweep->n_axes; i++)
        if (strcmp(sweep->axes[i].section, section) == 0 && strcmp(sweep->axes[i].key, key) == 0)
            return dpb_sweep_value(sweep, cell, i);
    const struct dpb_setting *setting = dpb_config_get(sweep->base, section, key);
    return setting ? setting->value : "";
}

json_t *dpb_sweep_cell(const struct dpb_sweep *sweep, size_t cell)
{
    json_t *json = json_object();
    for (size_t i = 0; i < sweep->n_axes; i++) {
        char key[256];
        snprintf(key, sizeof key, "%s.%s", sweep->axes[i].section, sweep->axes[i].key);
        json_object_set_new(json, key, dpb_json_string(dpb_sweep_value(sweep, cell, i)));
    }
    return json;
}
