/* refuse_options.c - refuses options of plugins that were not chosen; names plugins for refusals:
 * see refuse.h. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "plugin/plugins.h"
#include "plan/refuse.h"

dpb_status dpb_refuse_names(uint32_t kinds,
                            bool (*wanted)(const struct dpb_plugin *plugin, const void *of),
                            const void *of, char names[DPB_REFUSE_NAMES])
{
    struct dpb_plugin_row *rows = NULL;
    size_t n = 0;
    struct dpb_text text = dpb_text_in(names, DPB_REFUSE_NAMES);
    DPB_TRY(dpb_plugin_list(&dpb_host, kinds, NULL, &rows, &n));
    for (size_t i = 0; i < n; i++)
        if (rows[i].plugin && wanted(rows[i].plugin, of))
            dpb_text_add(&text, " %s", rows[i].plugin->name);
    free(rows);
    return DPB_OK;
}

static bool has_option(const struct dpb_plugin *plugin, const void *key)
{
    return dpb_options_find(plugin->options, key) != NULL;
}

/* " topk (comm.codec)": the plugins of a section with this option, and the setting that chooses
 * one. */
static dpb_status name_owners(const char *section, const char *key, char owners[DPB_REFUSE_NAMES])
{
    struct dpb_text text = dpb_text_in(owners, DPB_REFUSE_NAMES);
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        char names[DPB_REFUSE_NAMES];
        if (!(dpb_plugin_kinds_in(section) & (1u << kind)))
            continue;
        DPB_TRY(dpb_refuse_names(1u << kind, has_option, key, names));
        if (names[0] != '\0')
            dpb_text_item(&text, ",", "%s (%s.%s)", names, section, dpb_plugin_place[kind].key);
    }
    return DPB_OK;
}

static dpb_status check_owner(const struct dpb_experiment *experiment,
                              const struct dpb_setting *setting)
{
    char owners[DPB_REFUSE_NAMES];
    for (size_t t = 0; t < experiment->n_tables; t++)
        if (strcmp(experiment->tables[t].section, setting->section) == 0 &&
            dpb_options_find(experiment->tables[t].rows, setting->key))
            return DPB_OK;
    DPB_TRY(name_owners(setting->section, setting->key, owners));
    if (owners[0] == '\0')
        return DPB_OK;
    char here[DPB_REFUSE_NAMES];
    struct dpb_text text = dpb_text_in(here, sizeof here);
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++)
        if (experiment->plugins[kind] &&
            strcmp(dpb_plugin_place[kind].section, setting->section) == 0)
            dpb_text_item(&text, " and", " %s '%s'", dpb_plugin_kind_name[kind],
                          experiment->plugins[kind]->name);
    return dpb_fail(DPB_USAGE, "%s: unknown option '%s' for%s; it is an option of%s",
                    setting->origin, setting->key, here, owners);
}

dpb_status dpb_refuse_unknown(const struct dpb_experiment *experiment)
{
    for (size_t i = 0; i < experiment->config->n_settings; i++)
        DPB_TRY(check_owner(experiment, &experiment->config->settings[i]));
    return DPB_OK;
}
