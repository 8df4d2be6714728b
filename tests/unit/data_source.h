/*
 * data_source.h - for tests: loads a data plugin from $DPB_BUILD/plugins (default: build/plugins)
 * and opens it with options as a user would write them. Counts what the plugin allocates.
 */
#ifndef DPB_TESTS_DATA_SOURCE_H
#define DPB_TESTS_DATA_SOURCE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/options.h"
#include "lib/plugin.h"
#include "lib/test.h"

struct source {
    const struct dpb_data_ops *ops;
    void *handle;
    struct dpb_data_info info;
    struct dpb_config *config; /* owns the options' strings */
};

static size_t allocated_bytes; /* and not yet released */
static size_t largest_bytes;   /* ever asked for at once */

static void *counting_alloc(size_t bytes)
{
    allocated_bytes += bytes;
    largest_bytes = bytes > largest_bytes ? bytes : largest_bytes;
    return dpb_alloc(bytes);
}

static void counting_release(void *memory, size_t bytes)
{
    allocated_bytes -= memory ? bytes : 0;
    dpb_release(memory, bytes);
}

/* data_FILE.so has all plugins of FILE and a number. */
static const struct dpb_plugin *load_data(const char *name)
{
    static struct dpb_host host;
    char file[64];
    host = plugin_host;
    host.alloc = counting_alloc;
    host.release = counting_release;
    snprintf(file, sizeof file, "%.*s", (int)strcspn(name, "0123456789"), name);
    const struct dpb_plugin *plugin = plugin_load(DPB_PLUGIN_DATA, file, &host);
    while (plugin && strcmp(plugin->name, name) != 0)
        plugin = plugin->next;
    assert_non_null(plugin);
    return plugin;
}

/* `assignments`: "data.KEY=VALUE", ended by NULL. */
static dpb_status source_open(const char *name, const struct dpb_data_request *request,
                              const char *const *assignments, struct source *source)
{
    const struct dpb_plugin *plugin = load_data(name);
    _Alignas(16) char options[512] = {0};
    assert_true(plugin->options_size <= sizeof options);
    *source = (struct source){.ops = plugin->ops, .config = dpb_config_create()};
    assert_non_null(source->config);
    for (size_t i = 0; assignments[i]; i++)
        assert_int_equal(dpb_config_assign(source->config, assignments[i], "test"), DPB_OK);
    struct dpb_option_table table = {.section = "data", .rows = plugin->options, .values = options};
    assert_int_equal(dpb_options_parse_known(&table, source->config), DPB_OK);
    dpb_first_error_clear();
    dpb_status status = source->ops->open(options, request, &source->handle, &source->info);
    if (status != DPB_OK)
        assert_null(source->handle);
    return status;
}

static void source_close(struct source *source)
{
    source->ops->close(source->handle);
    dpb_config_destroy(source->config);
}

#endif
