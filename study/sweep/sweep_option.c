/* sweep_option.c - see sweep_option.h. */
#include "study/sweep/sweep_option.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "cli/derive.h"
#include "plan/experiment.h"
#include "plan/host.h"
#include "plugin/plugins.h"

/* The plugins of a kind that are found here, listed once a process, as they are loaded once. */
struct found {
    struct dpb_plugin_row *rows;
    size_t n;
};

static dpb_status find_plugins(dpb_plugin_kind kind, const struct found **found)
{
    static struct found all[DPB_PLUGIN_KINDS];
    *found = &all[kind];
    return all[kind].rows
               ? DPB_OK
               : dpb_plugin_list(&dpb_host, 1u << kind, NULL, &all[kind].rows, &all[kind].n);
}

/* ---- the owners of options ------------------------------------------------------------------- */

/* Whether the setting names the owner of others: a plugin, or an update rule (DPB_PLUGIN_KINDS). */
static bool names_owner(const char *section, const char *key, dpb_plugin_kind *kind)
{
    for (uint32_t k = 0; k < DPB_PLUGIN_KINDS; k++) {
        *kind = (dpb_plugin_kind)k;
        if (strcmp(dpb_plugin_place[k].section, section) == 0 &&
            strcmp(dpb_plugin_place[k].key, key) == 0)
            return true;
    }
    *kind = DPB_PLUGIN_KINDS;
    return strcmp(section, "optimizer") == 0 && strcmp(key, "name") == 0;
}

/* `found` NULL: of an update rule. */
static bool has_option(const struct found *found, const char *name, const char *key)
{
    for (size_t i = 0; found && i < found->n; i++) {
        const struct dpb_plugin *plugin = found->rows[i].plugin;
        if (plugin && strcmp(plugin->name, name) == 0)
            return dpb_options_find(plugin->options, key) != NULL;
    }
    return !found && dpb_optimizer_has(name, key);
}

dpb_status dpb_sweep_leave_to_others(const struct dpb_sweep *sweep,
                                     const struct dpb_sweep_axis *axis, const char *name,
                                     struct dpb_config *config)
{
    const struct found *found = NULL;
    dpb_plugin_kind kind;
    if (!names_owner(axis->section, axis->key, &kind))
        return DPB_OK;
    for (size_t i = 0; i < sweep->base->n_settings; i++) {
        const struct dpb_setting *s = &sweep->base->settings[i];
        if (strcmp(s->section, axis->section) != 0 ||
            (kind != DPB_PLUGIN_KINDS && dpb_options_find(dpb_settings_rows(s->section), s->key)))
            continue;
        if (kind != DPB_PLUGIN_KINDS)
            DPB_TRY(find_plugins(kind, &found));
        bool others = false;
        for (size_t v = 0; v < axis->n_values; v++)
            others |= has_option(found, axis->values[v], s->key);
        if (others && !has_option(found, name, s->key))
            dpb_config_remove(config, s->section, s->key);
    }
    return DPB_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The row of SECTION.KEY: core's; else that of the cell's plugin, or of any that has one. NULL:
 * none has. */
static dpb_status find_row(const struct dpb_sweep *sweep, const char *section, const char *key,
                           const struct dpb_option **row)
{
    const uint32_t kinds = dpb_plugin_kinds_in(section);
    *row = dpb_options_find(dpb_settings_rows(section), key);
    if (*row)
        return DPB_OK;
    for (uint32_t kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        const struct found *found = NULL;
        const char *name =
            dpb_sweep_setting(sweep, sweep->n_cells, section, dpb_plugin_place[kind].key);
        if (kinds & 1u << kind)
            DPB_TRY(find_plugins((dpb_plugin_kind)kind, &found));
        for (size_t i = 0; found && i < found->n; i++) {
            const struct dpb_plugin *plugin = found->rows[i].plugin;
            const struct dpb_option *its = plugin ? dpb_options_find(plugin->options, key) : NULL;
            *row = its && (!*row || strcmp(plugin->name, name) == 0) ? its : *row;
        }
    }
    return DPB_OK;
}

/* A misspelt plugin would be equal to none, and the condition hold for no cell, or for all. */
static dpb_status check_plugin(const struct dpb_sweep *sweep, const struct dpb_setting *setting)
{
    const struct dpb_sweep_axis *axis = dpb_sweep_axis_of(sweep, setting->section, setting->key);
    const struct dpb_plugin *plugin;
    dpb_plugin_kind kind;
    if (!names_owner(setting->section, setting->key, &kind) || kind == DPB_PLUGIN_KINDS)
        return DPB_OK;
    for (size_t i = 0; axis && i < axis->n_values; i++)
        if (strcmp(axis->values[i], setting->value) == 0)
            return DPB_OK;
    for (const struct dpb_plugin_not_built *row = dpb_plugins_not_built; row->name; row++)
        if (row->kind == kind && strcmp(row->name, setting->value) == 0)
            return DPB_OK;
    const struct dpb_option *row =
        dpb_options_find(dpb_settings_rows(setting->section), setting->key);
    if (strcmp(row->def, setting->value) == 0)
        return DPB_OK;
    return dpb_plugin_load(kind, setting->value, setting->origin, &dpb_host, &plugin);
}

static dpb_status read_setting(const struct dpb_sweep *sweep, const struct dpb_setting *setting,
                               json_t **value)
{
    const struct dpb_option *row;
    DPB_TRY(find_row(sweep, setting->section, setting->key, &row));
    if (row && (!dpb_derive_is(setting) || row->type == DPB_OPT_STRING)) /* a cell has its value */
        return dpb_option_value(row, setting, value);
    *value = dpb_json_string(setting->value); /* of an unknown option: its cells are refused */
    return dpb_allocated(*value);
}

dpb_status dpb_sweep_read_value(const void *context, const char *name, const char *section,
                                const char *key, const char *text, json_t **value)
{
    const struct dpb_sweep_reading *reading = context;
    const struct dpb_sweep *sweep = reading->sweep;
    const struct dpb_setting *given = dpb_config_get(reading->config, section, key);
    struct dpb_setting setting = {.section = (char *)section,
                                  .key = (char *)key,
                                  .value = (char *)text,
                                  .origin = (char *)name};
    if (text)
        DPB_TRY(check_plugin(sweep, &setting));
    else if (given && given->value[0] != '\0')
        setting = *given;
    *value = NULL;
    if (text || !given || !dpb_derive_is(given))
        return setting.value ? read_setting(sweep, &setting, value) : DPB_OK;
    const struct dpb_option *row;
    DPB_TRY(find_row(sweep, section, key, &row));
    if (!row || row->type == DPB_OPT_STRING || row->type == DPB_OPT_CHOICE)
        return read_setting(sweep, &setting, value);
    struct dpb_amount quantity;
    char full[512];
    snprintf(full, sizeof full, "%s.%s", section, key);
    DPB_TRY(dpb_derive_value(reading->config, full, name, &quantity));
    const bool whole = row->type == DPB_OPT_INT || row->type == DPB_OPT_SIZE;
    *value = whole ? json_integer(llround(quantity.value)) : json_real(quantity.value);
    return dpb_allocated(*value);
}

dpb_status dpb_sweep_read_number(const void *context, const char *name, const char *text,
                                 struct dpb_amount *value)
{
    const struct dpb_sweep_reading *reading = context;
    return dpb_derive_value(reading->config, text, name, value);
}

/* Value i of an axis. *value is @owned. */
static dpb_status read_axis(const struct dpb_sweep *sweep, const struct dpb_sweep_axis *axis,
                            size_t i, json_t **value)
{
    const struct dpb_setting setting = {axis->section, axis->key, axis->values[i],
                                        axis->origin,  false,     DPB_FROM_AXIS};
    return read_setting(sweep, &setting, value);
}

double dpb_sweep_number(const struct dpb_sweep *sweep, size_t axis, size_t i)
{
    json_t *value = NULL;
    dpb_status status = read_axis(sweep, &sweep->axes[axis], i, &value);
    const double number =
        status == DPB_OK && json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(value);
    return number;
}

static dpb_status check_axis(const struct dpb_sweep *sweep, const struct dpb_sweep_axis *axis)
{
    json_t *values = json_array();
    dpb_status status = dpb_allocated(values);
    for (size_t i = 0; i < axis->n_values && status == DPB_OK; i++) {
        json_t *value = NULL;
        status = read_axis(sweep, axis, i, &value);
        for (size_t k = 0; k < i && status == DPB_OK; k++)
            if (json_equal(json_array_get(values, k), value))
                status = dpb_fail(DPB_USAGE,
                                  "%s: %s.%s.%s has '%s' and '%s', which are one value: leave one "
                                  "out; to repeat measurements set repeats",
                                  axis->origin, sweep->study->name, axis->section, axis->key,
                                  axis->values[k], axis->values[i]);
        json_array_append_new(values, value);
    }
    json_decref(values);
    return status;
}

dpb_status dpb_sweep_check_values(const struct dpb_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_axes; i++)
        DPB_TRY(check_axis(sweep, &sweep->axes[i]));
    return check_axis(sweep, &sweep->replicates);
}
