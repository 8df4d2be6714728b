/* sweep_cells.c - see sweep_cells.h. */
#include "study/sweep/sweep_cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/settings.h"
#include "base/text.h"
#include "dpbench/random.h"

/* The number of a cell's value on an axis. */
static size_t place_on(const struct dpb_sweep *sweep, size_t cell, size_t axis)
{
    size_t at = sweep->cells[cell];
    for (size_t i = sweep->n_axes - 1; i > axis; i--)
        at /= sweep->axes[i].n_values;
    return at % sweep->axes[axis].n_values;
}

const char *dpb_sweep_value(const struct dpb_sweep *sweep, size_t cell, size_t axis)
{
    return sweep->axes[axis].values[place_on(sweep, cell, axis)];
}

bool dpb_sweep_owns(const struct dpb_sweep *sweep, size_t cell, const struct dpb_sweep_own *own)
{
    return place_on(sweep, cell, own->axis) == own->value;
}

const struct dpb_sweep_axis *dpb_sweep_axis_of(const struct dpb_sweep *sweep, const char *section,
                                               const char *key)
{
    for (size_t i = 0; i < sweep->n_axes; i++)
        if (strcmp(sweep->axes[i].section, section) == 0 && strcmp(sweep->axes[i].key, key) == 0)
            return &sweep->axes[i];
    return NULL;
}

const char *dpb_sweep_setting(const struct dpb_sweep *sweep, size_t cell, const char *section,
                              const char *key)
{
    const struct dpb_sweep_axis *axis = dpb_sweep_axis_of(sweep, section, key);
    if (axis)
        return dpb_sweep_value(sweep, cell, (size_t)(axis - sweep->axes));
    const struct dpb_setting *setting = NULL;
    for (size_t i = 0; i < sweep->n_own && !setting; i++)
        if (dpb_sweep_owns(sweep, cell, &sweep->own[i]))
            setting = dpb_config_get(sweep->own[i].settings, section, key);
    if (!setting)
        setting = dpb_config_get(sweep->base, section, key);
    return setting ? setting->value : "";
}

static bool is_network(const struct dpb_setting *setting)
{
    return strcmp(setting->section, "data") == 0 || strcmp(setting->section, "model") == 0;
}

/* Whether the text may be an expression that follows from an axis (cli/derive.h). */
static bool has_name(const char *value)
{
    char start[64];
    bool has = false;
    for (size_t i = 0; i < dpb_settings_n_sections && !has; i++) {
        snprintf(start, sizeof start, "%s.", dpb_settings_sections[i].name);
        has = strstr(value, start) != NULL;
    }
    return has;
}

/* Whether cells may differ in data or network by the axis: it is an option of them, or a value of
 * it has one. */
static bool changes_network(const struct dpb_sweep *sweep, size_t axis)
{
    const struct dpb_setting own = {.section = sweep->axes[axis].section};
    bool changes = is_network(&own);
    for (size_t i = 0; i < sweep->n_own; i++)
        for (size_t k = 0; k < sweep->own[i].settings->n_settings; k++)
            changes |=
                sweep->own[i].axis == axis && is_network(&sweep->own[i].settings->settings[k]);
    for (size_t i = 0; i < sweep->base->n_settings; i++)
        changes |=
            is_network(&sweep->base->settings[i]) && has_name(sweep->base->settings[i].value);
    return changes;
}

size_t dpb_sweep_network(const struct dpb_sweep *sweep, size_t cell)
{
    size_t network = 0;
    for (size_t i = 0; i < sweep->n_axes; i++) {
        if (changes_network(sweep, i))
            network = network * sweep->axes[i].n_values + place_on(sweep, cell, i);
    }
    return network;
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

/* ---- jobs ------------------------------------------------------------------------------------ */

void dpb_sweep_label(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job, char *text,
                     size_t capacity)
{
    struct dpb_text label = dpb_text_in(text, capacity);
    for (size_t i = 0; i < sweep->n_axes; i++)
        dpb_text_item(&label, " ", "%s.%s=%s", sweep->axes[i].section, sweep->axes[i].key,
                      dpb_sweep_value(sweep, job->cell, i));
    if (job->accuracy)
        dpb_text_item(&label, ", ", "accuracy");
}

bool dpb_sweep_is_refused(const struct dpb_sweep *sweep, size_t cell)
{
    return sweep->refusals && sweep->refusals[cell].reason;
}

void dpb_sweep_order(const struct dpb_sweep *sweep, uint64_t seed, struct dpb_sweep_job *jobs)
{
    for (uint32_t repeat = 0; repeat < sweep->options.repeats; repeat++) {
        struct dpb_sweep_job *block = jobs + repeat * sweep->n_cells;
        for (size_t cell = 0; cell < sweep->n_cells; cell++)
            block[cell] = (struct dpb_sweep_job){.cell = cell, .repeat = repeat};
        for (size_t i = sweep->n_cells; i > 1; i--) { /* Fisher and Yates */
            /* The third word keeps these numbers apart from those that shuffle samples. */
            struct dpb_random4 r = dpb_random(seed, DPB_STREAM_SHUFFLE, (uint32_t)i, repeat, 1, 0);
            size_t j = (((uint64_t)r.v[0] << 32) | r.v[1]) % i;
            struct dpb_sweep_job swapped = block[i - 1];
            block[i - 1] = block[j];
            block[j] = swapped;
        }
    }
}

/* Both are 1 where they are not set; an impossible value is refused with the cell. */
static double workers_of(const struct dpb_sweep *sweep, size_t cell)
{
    static const char *const keys[] = {"workers", "learners"};
    double n = 1;
    for (size_t i = 0; i < 2; i++) {
        const char *text = dpb_sweep_setting(sweep, cell, "run", keys[i]);
        n *= text[0] ? strtod(text, NULL) : 1;
    }
    return n;
}

size_t dpb_sweep_accuracy_jobs(const struct dpb_sweep *sweep, struct dpb_sweep_job *jobs)
{
    size_t n = 0;
    for (size_t cell = 0; cell < sweep->n_cells && sweep->options.accuracy > 0; cell++) {
        const char *strategy = dpb_sweep_setting(sweep, cell, "comm", "name");
        size_t i = 0;
        if (dpb_sweep_is_refused(sweep, cell))
            continue;
        while (i < n &&
               strcmp(dpb_sweep_setting(sweep, jobs[i].cell, "comm", "name"), strategy) != 0)
            i++;
        if (i == n)
            jobs[n++] = (struct dpb_sweep_job){.cell = cell, .accuracy = true};
        else if (workers_of(sweep, cell) > workers_of(sweep, jobs[i].cell))
            jobs[i].cell = cell;
    }
    return n;
}
