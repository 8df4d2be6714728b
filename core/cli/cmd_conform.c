/* cmd_conform.c - `dpbench conform PLUGIN.so`: holds a plugin to the conformance suite of its
 * kind. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/options.h"
#include "cli/cli.h"
#include "cli/conform_comm.h"
#include "conform/conform.h"

/* The kind of KIND_NAME.so; DPB_PLUGIN_KINDS: none. */
static dpb_plugin_kind kind_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        size_t n = strlen(dpb_plugin_kind_name[kind]);
        if (strncmp(file, dpb_plugin_kind_name[kind], n) == 0 && file[n] == '_')
            return (dpb_plugin_kind)kind;
    }
    return DPB_PLUGIN_KINDS;
}

/* Ranks find the plugin by the same variable. */
static dpb_status look_first_in(const char *path)
{
    const char *old = getenv("DPBENCH_PLUGIN_PATH"), *slash = strrchr(path, '/');
    char *list;
    if (asprintf(&list, "%.*s%s%s", (int)(slash - path), path, old ? ":" : "", old ? old : "") < 0)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    setenv("DPBENCH_PLUGIN_PATH", list, 1);
    free(list);
    return DPB_OK;
}

/* Parses the plugin's options; *options is @owned: free(), NULL without options. */
static dpb_status parse_options(const struct dpb_plugin *plugin, const struct dpb_config *config,
                                void **options)
{
    char owner[128];
    *options = NULL;
    if (!plugin->options)
        return config->n_settings == 0
                   ? DPB_OK
                   : dpb_fail(DPB_USAGE, "%s '%s' has no options; leave %s.%s out",
                              dpb_plugin_kind_name[plugin->kind], plugin->name,
                              config->settings[0].section, config->settings[0].key);
    snprintf(owner, sizeof owner, "%s '%s'", dpb_plugin_kind_name[plugin->kind], plugin->name);
    if (!(*options = calloc(1, plugin->options_size)))
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    const struct dpb_option_table table = {.section = dpb_plugin_place[plugin->kind].section,
                                           .owner = owner,
                                           .rows = plugin->options,
                                           .values = *options};
    return dpb_options_parse(&table, 1, config);
}

static dpb_status run_suite(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                            const struct dpb_config *config)
{
    const struct dpb_plugin *reference;
    void *options = NULL;
    if (plugin->missing)
        return dpb_fail(DPB_UNSUPPORTED, "%s '%s' cannot run here: %s",
                        dpb_plugin_kind_name[plugin->kind], plugin->name, plugin->missing);
    if (plugin->kind == DPB_PLUGIN_COMM)
        return dpb_conform_comm(conform, plugin, config);
    DPB_TRY(dpb_plugin_load(DPB_PLUGIN_DEVICE, "reference", NULL, &dpb_host, &reference));
    dpb_status status = parse_options(plugin, config, &options);
    if (status == DPB_OK && plugin->kind == DPB_PLUGIN_DEVICE)
        dpb_conform_device(conform, plugin, options, reference->ops);
    else if (status == DPB_OK && plugin->kind == DPB_PLUGIN_MODEL)
        dpb_conform_model(conform, plugin, options, reference->ops);
    else if (status == DPB_OK && plugin->kind == DPB_PLUGIN_DATA)
        dpb_conform_data(conform, plugin, options);
    else if (status == DPB_OK)
        dpb_conform_codec(conform, plugin, options);
    free(options);
    return status;
}

static dpb_status conform_plugin(const struct dpb_plugin *plugin, const struct dpb_config *config)
{
    struct dpb_conform conform = {.n_shown = 0};
    printf("%s %s: %s\n", dpb_plugin_kind_name[plugin->kind], plugin->name, plugin->summary);
    fflush(stdout);
    const char *kind = dpb_plugin_kind_name[plugin->kind];
    /* Trials print the messages. */
    dpb_log_set_hooks(&(const struct dpb_log_hooks){.silent = true});
    dpb_status status = run_suite(&conform, plugin, config);
    dpb_log_set_hooks(NULL);
    if (status != DPB_OK) {
        dpb_log(DPB_LOG_ERROR, "%s", dpb_first_error(NULL));
        return status;
    }
    printf("%s %s: %u shown, %u refused, %u failed\n", kind, plugin->name, conform.n_shown,
           conform.n_refused, conform.n_failed);
    fflush(stdout);
    if (conform.n_failed > 0)
        return dpb_fail(DPB_VERIFICATION, "%s '%s' does not conform", kind, plugin->name);
    if (conform.n_shown + conform.n_refused == 0)
        return dpb_fail(DPB_USAGE,
                        "%s '%s': no trial has these settings; leave SECTION.KEY=VALUE "
                        "out",
                        kind, plugin->name);
    if (conform.n_shown == 0)
        return dpb_fail(DPB_UNSUPPORTED, "%s '%s' refused every trial: nothing was shown", kind,
                        plugin->name);
    return DPB_OK;
}

/* All plugins of the file. */
static dpb_status conform_file(const char *path, const struct dpb_config *config)
{
    struct dpb_plugin_row *rows = NULL;
    size_t n_rows = 0;
    uint32_t n = 0;
    dpb_status status = dpb_plugin_list(&dpb_host, 1u << kind_of(path), NULL, &rows, &n_rows);
    for (size_t i = 0; i < n_rows && status == DPB_OK; i++) {
        if (strcmp(rows[i].path, path) != 0)
            continue;
        n++;
        status = rows[i].plugin ? conform_plugin(rows[i].plugin, config)
                                : dpb_fail(DPB_UNSUPPORTED, "%s: %s", path, rows[i].reason);
    }
    if (status == DPB_OK && n == 0)
        status = dpb_fail(DPB_USAGE, "%s: dpbench does not find it there", path);
    free(rows);
    return status;
}

static dpb_status conform(const struct dpb_command *self, int argc, char **argv,
                          struct dpb_config *config)
{
    const char *file = NULL;
    char path[PATH_MAX];
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            return dpb_usage_error(self, "unknown option '%s'", argv[i]);
        if (file && strchr(argv[i], '='))
            DPB_TRY(dpb_config_assign(config, argv[i], DPB_COMMAND_LINE));
        else if (file)
            return dpb_usage_error(self, "'%s' is no setting: write SECTION.KEY=VALUE", argv[i]);
        else
            file = argv[i];
    }
    if (!file)
        return dpb_usage_error(self, "which plugin? give its file");
    if (!realpath(file, path))
        return dpb_fail(DPB_USAGE, "%s: %m", file);
    if (kind_of(path) == DPB_PLUGIN_KINDS || !dpb_ends_on(path, ".so"))
        return dpb_fail(
            DPB_USAGE,
            "%s: a plugin's file is KIND_NAME.so, with KIND one of model, data, device, "
            "comm and codec",
            file);
    DPB_TRY(look_first_in(path));
    return conform_file(path, config);
}

int dpb_command_conform(const struct dpb_command *self, int argc, char **argv)
{
    struct dpb_config *config = dpb_config_create();
    dpb_status status =
        config ? conform(self, argc, argv, config) : dpb_fail(DPB_NO_MEMORY, "out of memory");
    dpb_config_destroy(config);
    return dpb_status_exit_code(status);
}
