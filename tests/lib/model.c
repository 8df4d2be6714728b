/* model.c - see model.h. */
#include "lib/model.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/options.h"
#include "lib/command.h"
#include "lib/own.h"
#include "lib/plugin.h"
#include "lib/test.h"

/* ---- plugins ------------------------------------------------------------------------------- */

enum { MOST_MODELS = 128 };
static const struct dpb_plugin *models[MOST_MODELS];
static size_t n_models;

static void load_file(const char *path)
{
    char file[64];
    const char *name = strrchr(path, '/') + strlen("/model_");
    assert_true(strlen(name) < sizeof file);
    snprintf(file, sizeof file, "%.*s", (int)(strlen(name) - strlen(".so")), name);
    const struct dpb_plugin *plugin = plugin_load(DPB_PLUGIN_MODEL, file, &plugin_host);
    if (strcmp(plugin->name, "profile") == 0)
        return; /* the tensors of a file: test_emulated */
    for (; plugin; plugin = plugin->next) {
        assert_true(n_models < MOST_MODELS);
        models[n_models++] = plugin;
    }
}

static void load_all(void)
{
    char pattern[512];
    glob_t found;
    if (n_models > 0)
        return;
    snprintf(pattern, sizeof pattern, "%s/plugins/model_*.so", build_directory());
    if (glob(pattern, 0, NULL, &found) != 0)
        fail_msg("%s: no models", pattern);
    for (size_t i = 0; i < found.gl_pathc; i++)
        load_file(found.gl_pathv[i]);
    globfree(&found);
}

const struct dpb_plugin *model_at(size_t index)
{
    load_all();
    return index < n_models ? models[index] : NULL;
}

const struct dpb_plugin *model_find(const char *name)
{
    for (size_t i = 0; model_at(i); i++) {
        if (strcmp(model_at(i)->name, name) == 0)
            return model_at(i);
    }
    fail_msg("there is no model '%s'", name);
    return NULL;
}

/* ---- networks ------------------------------------------------------------------------------ */

struct options {
    _Alignas(16) char bytes[64];
};

/* A model's defaults, but for its form. */
static struct options choose_version(const struct dpb_plugin *model, const char *version)
{
    struct options options = {{0}};
    const struct dpb_option_table table = {
        .section = "model", .owner = model->name, .rows = model->options, .values = options.bytes};
    struct dpb_config *config = dpb_config_create();
    const char *key =
        strncmp(model->name, "densenet", strlen("densenet")) == 0 ? "form" : "version";
    assert_true(config && model->options_size <= sizeof options.bytes);
    if (version)
        assert_int_equal(dpb_config_set(config, "model", key, version, "a test"), DPB_OK);
    if (model->options && dpb_options_parse(&table, 1, config) != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
    dpb_config_destroy(config);
    return options;
}

struct dpb_graph *model_graph(const struct dpb_plugin *model, const char *version,
                              struct dpb_shape input, uint32_t nclass)
{
    struct options options = choose_version(model, version);
    struct dpb_graph *graph = NULL;
    if (dpb_graph_build(model->name, model->ops, options.bytes, input, nclass, &graph) != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
    return graph;
}

struct dpb_model_info model_info(const struct dpb_plugin *model)
{
    struct options options = choose_version(model, NULL);
    struct dpb_model_info info;
    ((const struct dpb_model_ops *)model->ops)->describe(options.bytes, &info);
    return info;
}

struct dpb_graph *model_build(const char *name, const char *version, uint32_t nclass)
{
    const struct dpb_plugin *model = model_find(name);
    return own_graph(model_graph(model, version, model_info(model).input, nclass));
}

/* ---- parts --------------------------------------------------------------------------------- */

const struct dpb_node *graph_node(const struct dpb_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        if (strcmp(graph->nodes[i].name, name) == 0)
            return &graph->nodes[i];
    }
    fail_msg("%s has no node '%s'", graph->name, name);
    return NULL;
}

const struct dpb_tensor *graph_tensor(const struct dpb_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        if (strcmp(graph->tensors[i].name, name) == 0)
            return &graph->tensors[i];
    }
    fail_msg("%s has no tensor '%s'", graph->name, name);
    return NULL;
}
