/* unused.c - see unused.h. */
#include "plan/unused.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"
#include "base/text.h"
#include "plan/resume.h"
#include "world/world.h"

bool dpb_turned_off(const struct dpb_setting *setting, const struct dpb_setting *by)
{
    return setting->from == DPB_FROM_DOCUMENT ||
           (by && (by->from == DPB_FROM_AXIS ||
                   (by->from == DPB_FROM_COMMAND && setting->from != DPB_FROM_COMMAND)));
}

dpb_status dpb_unused(const struct dpb_setting *setting, bool turned_off, const char *why, ...)
{
    char text[1024];
    if (dpb_world_is_rank())
        return DPB_OK;
    DPB_PRINT_ARGUMENTS(text, sizeof text, why);
    if (!turned_off)
        return dpb_fail(DPB_USAGE, "%s: %s.%s = %s does nothing%s; leave %s.%s out, or change that",
                        setting->origin, setting->section, setting->key, setting->value, text,
                        setting->section, setting->key);
    dpb_warn("unused_setting", "%s: %s.%s = %s does nothing%s", setting->origin, setting->section,
             setting->key, setting->value, text);
    return DPB_OK;
}

/* ---- the column `needs` -------------------------------------------------------------------- */

/* No, none, empty or the least. */
static bool is_off(const struct dpb_option *row, const void *values)
{
    const void *at = (const char *)values + row->offset;
    const double least = row->min > 0 ? row->min : 0;
    switch (row->type) {
    case DPB_OPT_BOOL:
        return !*(const bool *)at;
    case DPB_OPT_REAL:
        return *(const double *)at <= least;
    case DPB_OPT_STRING:
        return !**(const char *const *)at || strcmp(*(const char *const *)at, "none") == 0;
    case DPB_OPT_CHOICE:
        return false;
    default:
        return (double)*(const int64_t *)at <= least;
    }
}

/* Whether the setting asks for something: a switch for what is not so by default, any other for
 * more than to be off as it is by default. */
static bool asks(const struct dpb_option *row, const void *values)
{
    static const char off[] = "0,none,no";
    bool on = false;
    if (row->type == DPB_OPT_BOOL)
        return is_off(row, values) == (row->def && dpb_parse_bool(row->def, &on) && on);
    return !is_off(row, values) ||
           (row->def && row->def[0] && !dpb_text_lists(off, ",", row->def, strlen(row->def)));
}

/* The row of "SECTION.KEY" and its table; NULL: no plugin here has it. */
static const struct dpb_option *find(const struct dpb_experiment *experiment, const char *name,
                                     const struct dpb_option_table **table)
{
    const struct dpb_option *row = NULL;
    for (size_t i = 0; i < experiment->n_tables && !row; i++) {
        *table = &experiment->tables[i];
        const size_t n = strlen((*table)->section);
        if (strncmp(name, (*table)->section, n) == 0 && name[n] == '.')
            row = dpb_options_find((*table)->rows, name + n + 1);
    }
    return row;
}

/* One of the needs: whether it is met. `why` gets it with what is so instead, `by` the setting that
 * says so. */
static bool is_met(const struct dpb_experiment *experiment, const char *need, struct dpb_text *why,
                   const struct dpb_setting **by)
{
    const struct dpb_option_table *table;
    const char *equals = strstr(need, " = ");
    char name[256];
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - need) : (int)strlen(need), need);
    const struct dpb_option *row = find(experiment, name, &table);
    const char *value = "";
    *by = row ? dpb_config_get(experiment->config, table->section, row->name) : NULL;
    if (row && !equals && !is_off(row, table->values))
        return true;
    if (row && row->type == DPB_OPT_CHOICE)
        value = row->choices[*(const int *)((const char *)table->values + row->offset)];
    else if (row && row->type == DPB_OPT_BOOL)
        value = is_off(row, table->values) ? "no" : "yes";
    else if (*by)
        value = (*by)->value;
    else if (row && row->def)
        value = row->def;
    if (equals && row && dpb_text_lists(equals + 3, ", ", value, strlen(value)))
        return true;
    if (*by || value[0])
        dpb_text_item(why, " or ", "%s (%s: '%s')", need, *by ? (*by)->origin : "default", value);
    else
        dpb_text_item(why, " or ", "%s (not given)", need);
    return false;
}

static dpb_status check(const struct dpb_experiment *experiment, const struct dpb_option *row,
                        const struct dpb_setting *setting)
{
    char why[512], need[256];
    struct dpb_text text = dpb_text_in(why, sizeof why);
    bool turned_off = false;
    for (const char *at = row->needs; at;) {
        const struct dpb_setting *by;
        const char *end = strstr(at, " or ");
        snprintf(need, sizeof need, "%.*s", end ? (int)(end - at) : (int)strlen(at), at);
        if (is_met(experiment, need, &text, &by))
            return DPB_OK;
        turned_off = turned_off || dpb_turned_off(setting, by);
        at = end ? end + 4 : NULL;
    }
    return dpb_unused(setting, turned_off, ": it needs %s", why);
}

dpb_status dpb_unused_by_needs(const struct dpb_experiment *experiment)
{
    for (size_t i = 0; i < experiment->n_tables; i++) {
        const struct dpb_option_table *table = &experiment->tables[i];
        for (const struct dpb_option *row = table->rows; row->name; row++) {
            const struct dpb_setting *setting =
                row->needs ? dpb_config_get(experiment->config, table->section, row->name) : NULL;
            if (setting && asks(row, table->values))
                DPB_TRY(check(experiment, row, setting));
        }
    }
    return DPB_OK;
}

/* ---- the length of the run ----------------------------------------------------------------- */

/* A setting of steps that begin behind the last one. */
static dpb_status check_step(const struct dpb_experiment *experiment, const char *section,
                             const char *key, uint64_t step, uint64_t last)
{
    const struct dpb_setting *setting = dpb_config_get(experiment->config, section, key);
    const struct dpb_setting *length = dpb_config_get(experiment->config, "run", "steps");
    if (!setting || !last || step <= last)
        return DPB_OK;
    return dpb_unused(setting, dpb_turned_off(setting, length),
                      " at step %" PRIu64 ": the run ends at step %" PRIu64 " (run.steps: %s)",
                      step, last, length->origin);
}

uint64_t dpb_ends_at(const struct dpb_settings *settings)
{
    const struct dpb_run_settings *run = &settings->run;
    return run->mode == DPB_MODE_TRAIN && run->steps && !run->steady_limit_ns &&
                   !dpb_resumes(settings)
               ? (uint64_t)(run->warmup_steps + run->steps)
               : 0;
}

dpb_status dpb_unused_by_length(const struct dpb_experiment *experiment)
{
    const struct dpb_save_points *points = &experiment->save_points;
    const uint64_t last = dpb_ends_at(&experiment->settings);
    if (points->n > 0)
        DPB_TRY(check_step(experiment, "checkpoint", "at", points->at[points->n - 1], last));
    DPB_TRY(check_step(experiment, "checkpoint", "every", points->every, last));
    return check_step(experiment, "eval", "every", (uint64_t)experiment->settings.eval.every, last);
}
