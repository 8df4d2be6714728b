/* cmd_plugins.c - `dpbench plugins`: lists plugins that can be loaded, cannot be loaded, or were
 * not built, with the reasons. */
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/text.h"
#include "cli/cli.h"
#include "dpbench/comm.h"
#include "plugin/plugins.h"
#include "plugin/trial.h"
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

/* What a strategy needs with its options' defaults. */
static dpb_status needs_of(const struct dpb_plugin *plugin, struct dpb_comm_needs *needs)
{
    const struct dpb_comm_ops *ops = plugin->ops;
    struct dpb_config *config = dpb_config_create();
    void *options = calloc(1, plugin->options_size + 1);
    const struct dpb_option_table table = {
        .section = "comm", .owner = plugin->name, .rows = plugin->options, .values = options};
    dpb_status status = dpb_allocated(config && options);
    DPB_THEN(status, dpb_options_parse_known(&table, config));
    if (status == DPB_OK && ops->needs)
        status = ops->needs(options, needs);
    free(options);
    dpb_config_destroy(config);
    return status;
}

/* A strategy's facts beside its capabilities: its optional hooks, and the device's runtime that it
 * needs with its options' defaults. */
static dpb_status add_strategy(const struct dpb_plugin *plugin, json_t *row)
{
    struct dpb_comm_needs needs = {0};
    DPB_TRY(needs_of(plugin, &needs));
    json_object_update_new(row, json_pack("{s:o, s:s?}", "hooks", hooks_to_json(plugin->ops),
                                          "runtime", needs.runtime));
    return DPB_OK;
}

/* ---- what a GPU has shown ------------------------------------------------------------------- */

/* The documents of bench/gpu, the oldest first: their names are days. @owned. */
static json_t *read_contacts(void)
{
    char directory[PATH_MAX], pattern[PATH_MAX + 8], tried[2 * PATH_MAX];
    json_t *contacts = json_array();
    glob_t files;
    if (!dpb_shared_find("bench/gpu", directory, tried, sizeof tried))
        return contacts;
    snprintf(pattern, sizeof pattern, "%s/*.json", directory);
    if (glob(pattern, 0, NULL, &files) != 0)
        return contacts;
    for (size_t i = 0; i < files.gl_pathc; i++)
        json_array_append_new(contacts, json_load_file(files.gl_pathv[i], 0, NULL));
    globfree(&files);
    return contacts;
}

/* The parts of a contact that passed with the plugin. */
static void list_parts(const json_t *contact, const struct dpb_plugin *plugin,
                       struct dpb_text *parts)
{
    json_t *wanted = json_sprintf("%s_%s", dpb_plugin_kind_name[plugin->kind], plugin->name), *part;
    size_t i;
    json_array_foreach(json_object_get(contact, "parts"), i, part)
    {
        if (dpb_json_is(part, "verdict", "passed") &&
            dpb_json_find(json_object_get(part, "proves"), "", wanted))
            dpb_text_item(parts, ", ", "%s", dpb_json_text(part, "name", "?"));
    }
    json_decref(wanted);
}

/* Whether a plugin computes on a GPU: only one that does has something to prove there. */
static bool is_for_gpu(const struct dpb_plugin *plugin)
{
    const struct dpb_queue_ops *queues = plugin->kind == DPB_PLUGIN_DEVICE
                                             ? ((const struct dpb_device_ops *)plugin->ops)->queues
                                             : NULL;
    if (plugin->kind == DPB_PLUGIN_COMM) {
        static const struct dpb_log_hooks quiet = {.silent = true};
        struct dpb_comm_needs needs = {0};
        dpb_log_set_hooks(&quiet);
        const dpb_status status = needs_of(plugin, &needs);
        dpb_log_set_hooks(NULL);
        dpb_first_error_clear();
        return status == DPB_OK && needs.on_device;
    }
    return queues && !(plugin->capabilities & DPB_DEVICE_EMULATED);
}

/* When a GPU last ran the plugin as it should, and what. NULL: it is not for GPUs. @owned. */
static json_t *proved_by(const json_t *contacts, const struct dpb_plugin *plugin)
{
    if (!is_for_gpu(plugin))
        return NULL;
    for (size_t i = json_array_size(contacts); i-- > 0;) {
        const json_t *contact = json_array_get(contacts, i);
        char list[256];
        struct dpb_text parts = dpb_text_in(list, sizeof list);
        list_parts(contact, plugin, &parts);
        if (parts.length > 0)
            return json_sprintf("%s, %s: %s", dpb_json_text(contact, "day", "?"),
                                dpb_json_text(contact, "gpu", "a GPU"), list);
    }
    return json_string("never");
}

/* How processes share the first device of that plugin, with its options' defaults; NULL: the plugin
 * has no such hook, cannot run here, or does not know. */
static const char *sharing_of(const struct dpb_plugin *plugin, const char *missing,
                              struct dpb_sharing *sharing)
{
    const struct dpb_device_ops *ops = plugin->ops;
    if (plugin->kind != DPB_PLUGIN_DEVICE || missing || !ops->sharing ||
        dpb_trial_sharing(plugin, NULL, sharing) != DPB_OK)
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

static json_t *rows_to_json(const struct dpb_plugin_row *rows, size_t n, const json_t *contacts)
{
    json_t *list = json_array();
    char text[DPB_REASON_BYTES];
    for (size_t i = 0; i < n; i++) {
        const struct dpb_plugin *plugin = rows[i].plugin;
        const char *missing = plugin ? dpb_trial_missing(plugin, text) : NULL;
        json_t *row = json_pack("{s:s, s:s, s:b}", "kind", dpb_plugin_kind_name[rows[i].kind],
                                "path", rows[i].path, "usable", plugin != NULL);
        if (!plugin)
            json_object_set_new(row, "reason", json_string(rows[i].reason));
        else
            json_object_update_new(
                row, json_pack("{s:s, s:s, s:s, s:I, s:s?, s:o}", "name", plugin->name, "version",
                               plugin->version, "summary", plugin->summary, "capabilities",
                               (json_int_t)plugin->capabilities, "missing", missing, "libraries",
                               libraries_to_json(plugin->libraries)));
        dpb_first_error_clear();
        if (plugin && rows[i].kind == DPB_PLUGIN_COMM && add_strategy(plugin, row) != DPB_OK)
            json_object_set_new(row, "refuses", json_string(dpb_first_error(NULL)));
        struct dpb_sharing sharing;
        if (plugin && rows[i].kind == DPB_PLUGIN_DEVICE)
            json_object_set_new(row, "sharing",
                                json_pack("s?", sharing_of(plugin, missing, &sharing)));
        json_t *proved = plugin ? proved_by(contacts, plugin) : NULL;
        if (proved)
            json_object_set_new(row, "proved", proved);
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

static void print_plugin(const struct dpb_plugin *plugin, const json_t *contacts)
{
    static const char indent[] = "                                     ";
    char text[DPB_REASON_BYTES];
    const char *missing = dpb_trial_missing(plugin, text);
    struct dpb_sharing sharing;
    printf("%-8s %-18s %-8s %s\n", dpb_plugin_kind_name[plugin->kind], plugin->name,
           plugin->version, plugin->summary);
    for (const struct dpb_library *l = plugin->libraries; l && l->name; l++)
        printf("%swith %s%s%s (when built: %s)\n", indent, l->name, l->loaded ? ": " : "",
               l->loaded ? l->loaded : "", l->built ? l->built : "?");
    const char *shared = sharing_of(plugin, missing, &sharing);
    if (shared)
        printf("%sworkers on one device: %s\n", indent, shared);
    json_t *proved = proved_by(contacts, plugin);
    if (proved)
        printf("%sproved on a GPU: %s\n", indent, json_string_value(proved));
    json_decref(proved);
    if (missing)
        printf("%scannot run here: %s\n", indent, missing);
}

static void print_rows(const struct dpb_plugin_row *rows, size_t n, const json_t *contacts)
{
    size_t n_refused = 0;
    printf("%-8s %-18s %-8s %s\n", "kind", "name", "version", "summary");
    for (size_t i = 0; i < n; i++) {
        if (rows[i].plugin)
            print_plugin(rows[i].plugin, contacts);
        else
            n_refused++;
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
    json_t *contacts = read_contacts();
    if (json) {
        json_t *document = rows_to_json(rows, n, contacts);
        json_dumpf(document, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(document);
    } else {
        print_rows(rows, n, contacts);
    }
    json_decref(contacts);
    free(rows);
    return 0;
}
