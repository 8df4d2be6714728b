/* cmd_plugins.c - `dpbench plugins`: lists plugins that can be loaded, cannot be loaded, or were
 * not built, with the reasons. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "cli/cli.h"
#include "dpbench/comm.h"
#include "plugin/plugins.h"
#include "record/gpus_report.h"

static json_t *libraries_to_json(const struct dpb_library *library)
{
    json_t *list = json_array();
    for (; library && library->name; library++)
        json_array_append_new(list, json_pack("{s:s, s:s?, s:s?}", "name", library->name, "built",
                                              library->built, "loaded", library->loaded));
    return list;
}

static json_t *hooks_to_json(const struct dpb_comm_ops *ops)
{
    const struct {
        const char *name;
        bool there;
    } hooks[] = {{"needs", ops->needs},         {"memory", ops->memory},
                 {"settle", ops->settle},       {"books", ops->books},
                 {"applied", ops->applied},     {"state", ops->state},
                 {"cancelled", ops->cancelled}, {"serve", ops->serve},
                 {"capture", ops->capture},     {"replay", ops->replay}};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (hooks[i].there)
            json_array_append_new(list, json_string(hooks[i].name));
    return list;
}

/* A strategy's facts beside its capabilities: its optional hooks, and the device's runtime that it
 * needs with its options' defaults. */
static dpb_status add_strategy(const struct dpb_plugin *plugin, json_t *row)
{
    const struct dpb_comm_ops *ops = plugin->ops;
    struct dpb_comm_needs needs = {0};
    struct dpb_config *config = dpb_config_create();
    void *options = calloc(1, plugin->options_size + 1);
    const struct dpb_option_table table = {
        .section = "comm", .owner = plugin->name, .rows = plugin->options, .values = options};
    dpb_status status = dpb_allocated(config && options);
    DPB_THEN(status, dpb_options_parse_known(&table, config));
    if (status == DPB_OK && ops->needs)
        status = ops->needs(options, &needs);
    if (status == DPB_OK)
        json_object_update_new(
            row, json_pack("{s:o, s:s?}", "hooks", hooks_to_json(ops), "runtime", needs.runtime));
    free(options);
    dpb_config_destroy(config);
    return status;
}

/* How processes share the first device of that plugin, with its options' defaults; NULL: the plugin
 * has no such hook, cannot run here, or does not know. */
static const char *sharing_of(const struct dpb_plugin *plugin, struct dpb_sharing *sharing)
{
    const struct dpb_device_ops *ops = plugin->ops;
    if (plugin->missing || !ops->sharing || ops->sharing(NULL, 0, sharing) != DPB_OK)
        return NULL;
    return dpb_sharing_name(sharing);
}

/* The next plugin after `row` (NULL: the first) that was not built and was not found elsewhere; or
 * NULL. */
static const struct dpb_plugin_not_built *absent_from(const struct dpb_plugin_row *rows, size_t n,
                                                      const struct dpb_plugin_not_built *row)
{
    for (row = !row ? dpb_plugins_not_built : row + 1; row->name; row++) {
        bool there = false;
        for (size_t i = 0; i < n; i++)
            there |= rows[i].plugin && rows[i].kind == row->kind &&
                     strcmp(rows[i].plugin->name, row->name) == 0;
        if (!there)
            return row;
    }
    return NULL;
}

static json_t *rows_to_json(const struct dpb_plugin_row *rows, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct dpb_plugin *plugin = rows[i].plugin;
        json_t *row = json_pack("{s:s, s:s, s:b}", "kind", dpb_plugin_kind_name[rows[i].kind],
                                "path", rows[i].path, "usable", plugin != NULL);
        if (!plugin)
            json_object_set_new(row, "reason", json_string(rows[i].reason));
        else
            json_object_update_new(
                row, json_pack("{s:s, s:s, s:s, s:I, s:s?, s:o}", "name", plugin->name, "version",
                               plugin->version, "summary", plugin->summary, "capabilities",
                               (json_int_t)plugin->capabilities, "missing", plugin->missing,
                               "libraries", libraries_to_json(plugin->libraries)));
        dpb_first_error_clear();
        if (plugin && rows[i].kind == DPB_PLUGIN_COMM && add_strategy(plugin, row) != DPB_OK)
            json_object_set_new(row, "refuses", json_string(dpb_first_error(NULL)));
        struct dpb_sharing sharing;
        if (plugin && rows[i].kind == DPB_PLUGIN_DEVICE)
            json_object_set_new(row, "sharing", json_pack("s?", sharing_of(plugin, &sharing)));
        json_array_append_new(list, row);
    }
    json_t *absent = json_array();
    for (const struct dpb_plugin_not_built *row = absent_from(rows, n, NULL); row;
         row = absent_from(rows, n, row))
        json_array_append_new(absent,
                              json_pack("{s:s, s:s, s:s}", "kind", dpb_plugin_kind_name[row->kind],
                                        "name", row->name, "reason", row->reason));
    return json_pack("{s:s, s:o, s:o}", "schema", "dpbench.plugins/1", "plugins", list, "not_built",
                     absent);
}

static void print_rows(const struct dpb_plugin_row *rows, size_t n)
{
    size_t n_refused = 0;
    printf("%-8s %-18s %-8s %s\n", "kind", "name", "version", "summary");
    for (size_t i = 0; i < n; i++) {
        const struct dpb_plugin *plugin = rows[i].plugin;
        if (!plugin) {
            n_refused++;
            continue;
        }
        printf("%-8s %-18s %-8s %s\n", dpb_plugin_kind_name[rows[i].kind], plugin->name,
               plugin->version, plugin->summary);
        for (const struct dpb_library *l = plugin->libraries; l && l->name; l++)
            printf("%-8s %-18s %-8s with %s%s%s (when built: %s)\n", "", "", "", l->name,
                   l->loaded ? ": " : "", l->loaded ? l->loaded : "", l->built ? l->built : "?");
        struct dpb_sharing sharing;
        const char *shared =
            rows[i].kind == DPB_PLUGIN_DEVICE ? sharing_of(plugin, &sharing) : NULL;
        if (shared)
            printf("%-8s %-18s %-8s workers on one device: %s\n", "", "", "", shared);
        if (plugin->missing)
            printf("%-8s %-18s %-8s cannot run here: %s\n", "", "", "", plugin->missing);
    }
    if (n_refused > 0)
        printf("\nthere, but not usable:\n");
    for (size_t i = 0; i < n; i++)
        if (!rows[i].plugin)
            printf("%-8s %s\n         %s\n", dpb_plugin_kind_name[rows[i].kind], rows[i].path,
                   rows[i].reason);
    const struct dpb_plugin_not_built *row = absent_from(rows, n, NULL);
    if (row)
        printf("\nnot built:\n");
    for (; row; row = absent_from(rows, n, row))
        printf("%-8s %-18s %s\n", dpb_plugin_kind_name[row->kind], row->name, row->reason);
}

int dpb_command_plugins(const struct dpb_command *self, int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    if (argc > 1 + json) {
        dpb_usage_error(self, "unknown argument '%s'", argv[1 + json]);
        return dpb_status_exit_code(DPB_USAGE);
    }
    struct dpb_plugin_row *rows = NULL;
    size_t n = 0;
    dpb_stdout_aside();
    dpb_status status = dpb_plugin_list(&dpb_host, DPB_PLUGIN_ALL_KINDS, NULL, &rows, &n);
    dpb_stdout_back();
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    if (json) {
        json_t *document = rows_to_json(rows, n);
        json_dumpf(document, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(document);
    } else {
        print_rows(rows, n);
    }
    free(rows);
    return 0;
}
