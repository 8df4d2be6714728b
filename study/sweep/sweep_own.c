/* sweep_own.c - see sweep_own.h. */
#include "study/sweep/sweep_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "plan/unused.h"

static bool is_late(const struct dpb_setting *setting)
{
    return strcmp(setting->origin, DPB_COMMAND_LINE) == 0;
}

/* The rest of a text behind "START."; NULL: it begins otherwise. */
static const char *behind(const char *text, const char *start)
{
    const size_t n = strlen(start);
    return strncmp(text, start, n) == 0 && text[n] == '.' ? text + n + 1 : NULL;
}

bool dpb_sweep_own_is(const struct dpb_settings_section *study, const struct dpb_setting *setting)
{
    const char *dot = strchr(setting->key, '.');
    return behind(setting->section, study->name) ||
           (strcmp(setting->section, study->name) == 0 && dot && strchr(dot + 1, '.'));
}

/* A setting in its parts; texts are in `path`. */
struct parts {
    char path[512];
    const char *value, *section, *key;
};

static dpb_status split(const struct dpb_sweep *sweep, const struct dpb_setting *setting,
                        struct parts *parts)
{
    const char *value = behind(setting->section, sweep->study->name);
    snprintf(parts->path, sizeof parts->path, "%s%s%s", value ? value : "", value ? "." : "",
             setting->key);
    char *key = strrchr(parts->path, '.');
    *key = '\0';
    char *section = strrchr(parts->path, '.');
    if (!section || section == parts->path || !section[1] || !key[1])
        return dpb_fail(DPB_USAGE, "%s: '%s' of [%s] is no SECTION.KEY = VALUE", setting->origin,
                        setting->key, setting->section);
    *section = '\0';
    parts->value = parts->path;
    parts->section = section + 1;
    parts->key = key + 1;
    return DPB_OK;
}

/* The number of the axis's value; its n_values: it has none. `text`: VALUE or SECTION.KEY.VALUE. */
static size_t place_in(const struct dpb_sweep_axis *axis, const char *text)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", axis->section, axis->key);
    const char *value = behind(text, name);
    size_t i = 0;
    while (i < axis->n_values && strcmp(axis->values[i], value ? value : text) != 0)
        i++;
    return i;
}

static dpb_status refuse_value(const struct dpb_sweep *sweep, const struct dpb_setting *setting,
                               const char *value, bool replaced)
{
    struct dpb_nearest near = {.word = value};
    for (size_t i = 0; i < sweep->n_axes; i++) {
        replaced |= strcmp(sweep->axes[i].origin, DPB_COMMAND_LINE) == 0;
        for (size_t v = 0; v < sweep->axes[i].n_values; v++)
            dpb_nearest_offer(&near, sweep->axes[i].values[v]);
    }
    const bool turned_off = setting->from == DPB_FROM_DOCUMENT || (replaced && !is_late(setting));
    return dpb_unused(setting, turned_off, ": '%s' is no value of an axis%s%s%s", value,
                      near.found && !turned_off ? "; did you mean '" : "",
                      near.found && !turned_off ? near.found : "",
                      near.found && !turned_off ? "'?" : "");
}

/* Into the settings of value `value` of an axis. */
static dpb_status add(struct dpb_sweep *sweep, size_t axis, size_t value,
                      const struct dpb_setting *setting, const struct parts *parts)
{
    size_t i = 0;
    while (i < sweep->n_own && (sweep->own[i].axis != axis || sweep->own[i].value != value))
        i++;
    if (i == sweep->n_own) {
        struct dpb_sweep_own *grown = realloc(sweep->own, (i + 1) * sizeof *grown);
        DPB_TRY(dpb_allocated(grown));
        sweep->own = grown;
        struct dpb_config *made = dpb_config_create();
        DPB_TRY(dpb_allocated(made));
        sweep->own[sweep->n_own++] = (struct dpb_sweep_own){axis, value, made};
    }
    struct dpb_config *settings = sweep->own[i].settings;
    const struct dpb_setting *before = dpb_config_get(settings, parts->section, parts->key);
    if (before && is_late(before) == is_late(setting))
        return dpb_fail(DPB_USAGE, "%s: %s.%s of '%s' was given before: %s", setting->origin,
                        parts->section, parts->key, parts->value, before->origin);
    if (before && is_late(before))
        return DPB_OK;
    DPB_TRY(dpb_config_set(settings, parts->section, parts->key, setting->value, setting->origin));
    dpb_config_mark(settings, parts->section, parts->key, DPB_FROM_AXIS);
    return DPB_OK;
}

/* Of a value of an axis that the command line replaced: *keeps, if its plain setting is this one.
 * False: it has no such value. */
static bool is_of_replaced(const struct dpb_sweep *sweep, const struct dpb_sweep_axis *left,
                           size_t n_left, const char *value, bool *keeps)
{
    for (size_t i = 0; i < n_left; i++) {
        const struct dpb_setting *by = dpb_config_get(sweep->given, left[i].section, left[i].key);
        char *values[1] = {by ? by->value : ""};
        struct dpb_sweep_axis now = left[i];
        now.values = values;
        now.n_values = by != NULL;
        *keeps = by && place_in(&now, value) == 0;
        if (*keeps || place_in(&left[i], value) < left[i].n_values)
            return true;
    }
    return false;
}

/* *stays: `given` keeps it. */
static dpb_status take(struct dpb_sweep *sweep, const struct dpb_setting *setting,
                       const struct dpb_sweep_axis *left, size_t n_left, bool *stays)
{
    struct parts parts;
    size_t n = 0, axis = 0, value = 0;
    bool keeps = false;
    DPB_TRY(split(sweep, setting, &parts));
    const struct dpb_setting *plain = dpb_config_get(sweep->given, parts.section, parts.key);
    const struct dpb_sweep_axis *same = dpb_sweep_axis_of(sweep, parts.section, parts.key);
    const bool late = same && strcmp(same->origin, DPB_COMMAND_LINE) == 0;
    if (same && (!late || is_late(setting)))
        return dpb_fail(DPB_USAGE, "%s: %s.%s is an axis: choose its cells by sweep.when instead",
                        setting->origin, parts.section, parts.key);
    for (size_t i = 0; i < sweep->n_axes; i++) {
        const size_t at = place_in(&sweep->axes[i], parts.value);
        if (at == sweep->axes[i].n_values)
            continue;
        if (n++ > 0)
            return dpb_fail(
                DPB_USAGE, "%s: '%s' is a value of %s.%s and of %s.%s: write [%s.%s.%s.%s]",
                setting->origin, parts.value, sweep->axes[axis].section, sweep->axes[axis].key,
                sweep->axes[i].section, sweep->axes[i].key, sweep->study->name,
                sweep->axes[i].section, sweep->axes[i].key, parts.value);
        axis = i;
        value = at;
    }
    *stays = n > 0 && !late && !(plain && is_late(plain) && !is_late(setting));
    if (*stays)
        return add(sweep, axis, value, setting, &parts);
    if (n > 0 || late)
        return DPB_OK;
    if (!is_of_replaced(sweep, left, n_left, parts.value, &keeps))
        return refuse_value(sweep, setting, parts.value, n_left > 0);
    if (!keeps || (plain && is_late(plain)))
        return DPB_OK;
    const dpb_setting_from from = setting->from;
    DPB_TRY(
        dpb_config_set(sweep->given, parts.section, parts.key, setting->value, setting->origin));
    dpb_config_mark(sweep->given, parts.section, parts.key, from);
    return DPB_OK;
}

/* No cell may have two values for one setting. */
static dpb_status check_apart(const struct dpb_sweep *sweep)
{
    for (size_t a = 0; a < sweep->n_own; a++)
        for (size_t b = 0; b < a; b++)
            for (size_t i = 0; i < sweep->own[a].settings->n_settings; i++) {
                const struct dpb_setting *s = &sweep->own[a].settings->settings[i];
                const struct dpb_setting *other =
                    dpb_config_get(sweep->own[b].settings, s->section, s->key);
                if (other && sweep->own[a].axis != sweep->own[b].axis)
                    return dpb_fail(DPB_USAGE,
                                    "%s: %s.%s is set for a value of %s.%s, and for one of %s.%s "
                                    "(%s): leave one out",
                                    s->origin, s->section, s->key,
                                    sweep->axes[sweep->own[a].axis].section,
                                    sweep->axes[sweep->own[a].axis].key,
                                    sweep->axes[sweep->own[b].axis].section,
                                    sweep->axes[sweep->own[b].axis].key, other->origin);
            }
    return DPB_OK;
}

dpb_status dpb_sweep_own_read(struct dpb_sweep *sweep, const struct dpb_sweep_axis *left,
                              size_t n_left)
{
    for (size_t i = 0; i < sweep->given->n_settings;) {
        const struct dpb_setting *setting = &sweep->given->settings[i];
        bool stays = true;
        if (dpb_sweep_own_is(sweep->study, setting)) {
            DPB_TRY(take(sweep, setting, left, n_left, &stays));
            setting = &sweep->given->settings[i];
        }
        if (!stays)
            dpb_config_remove(sweep->given, setting->section, setting->key);
        i += stays;
    }
    return check_apart(sweep);
}

void dpb_sweep_own_release(struct dpb_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_own; i++)
        dpb_config_destroy(sweep->own[i].settings);
    free(sweep->own);
}
