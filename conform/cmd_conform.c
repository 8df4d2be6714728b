/* cmd_conform.c - `dpbench conform PLUGIN.so`: holds a plugin to the conformance suite of its
 * kind. That of communicators starts jobs, and stands here. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/settings.h"
#include "base/text.h"
#include "cli/cli.h"
#include "conform/conform.h"
#include "plugin/trial.h"

static const char where[] = "dpbench conform";

/* ---- jobs ------------------------------------------------------------------------------------ */

/* One job. */
struct cell {
    const char *name;
    uint64_t needs; /* capabilities of the communicator */
    const char *settings[6];
};

/* An fp64 gradient has 8 bytes; a bucket of 1 byte holds one element. */
#define WORKERS(n, text)                                                              \
    {text ", buckets of one element", 0, {"run.workers=" #n, "comm.bucket=1"}},       \
        {text ", buckets of 97 elements", 0, {"run.workers=" #n, "comm.bucket=776"}}, \
    {                                                                                 \
        text ", one bucket", 0,                                                       \
        {                                                                             \
            "run.workers=" #n, "comm.bucket=1073741824"                               \
        }                                                                             \
    }

static const struct cell cells[] = {
    WORKERS(1, "1 worker"),
    WORKERS(2, "2 workers"),
    WORKERS(3, "3 workers"),
    WORKERS(4, "4 workers"),
    WORKERS(5, "5 workers"),
    WORKERS(7, "7 workers"),
    {"2 workers, bf16 gradients",
     0,
     {"run.workers=2", "comm.bucket=776", "run.precision=fp32", "comm.gradient=bf16"}},
    {"3 workers, 2 micro-batches", 0, {"run.workers=3", "comm.bucket=776", "run.accumulate=2"}},
    {"2 workers, a communication core each",
     DPB_COMM_OVERLAP,
     {"run.workers=2", "comm.bucket=776", "run.comm_cores=1"}},
    {"3 workers, 1 server",
     DPB_COMM_SERVERS,
     {"run.workers=3", "comm.bucket=776", "run.servers=1"}},
    {"3 workers, 2 servers",
     DPB_COMM_SERVERS,
     {"run.workers=3", "comm.bucket=776", "run.servers=2"}},
    {"4 workers as on 2 machines",
     DPB_COMM_MULTI_NODE,
     {"run.workers=4", "comm.bucket=776", "comm.hosts=2x2"}},
    {"3 workers, gradients clipped by their norm",
     DPB_COMM_WHOLE,
     {"run.workers=3", "comm.bucket=776", "optimizer.clip_norm=0.01"}},
};

/* Below the command line's settings, above the defaults. */
static const char *const common[] = {
    "run.steps=4",           "run.warmup_steps=0",  "run.steady_limit_s=0",  "run.batch=4",
    "run.precision=fp64",    "run.prove=yes",       "run.results=",          "run.timeout_s=20",
    "model.name=tiny",       "data.name=synthetic", "device.name=reference", "device.threads=1",
    "optimizer.momentum=0.9"};

static dpb_status configure(struct dpb_config *config, const struct dpb_plugin *plugin,
                            const struct cell *cell, const struct dpb_config *given)
{
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        DPB_TRY(dpb_config_assign(config, common[i], where));
    /* Without an exchange there is nothing for random gradients to prove. */
    if (plugin->capabilities & DPB_COMM_ALONE)
        dpb_config_remove(config, "run", "prove");
    for (size_t i = 0; cell->settings[i]; i++)
        DPB_TRY(dpb_config_assign(config, cell->settings[i], where));
    for (size_t i = 0; i < given->n_settings; i++) {
        const struct dpb_setting *s = &given->settings[i];
        DPB_TRY(dpb_config_set(config, s->section, s->key, s->value, s->origin));
    }
    return dpb_config_set(config, "comm", "name", plugin->name, where);
}

/* Whether the plugin and the command line leave room for the cell: run.workers=2 leaves the cells
 * of two workers. */
static bool is_wanted(const struct cell *cell, const struct dpb_plugin *plugin,
                      const struct dpb_config *given)
{
    bool wanted = (cell->needs & ~plugin->capabilities) == 0;
    struct dpb_config *own = dpb_config_create();
    for (size_t i = 0; own && cell->settings[i]; i++) {
        dpb_config_assign(own, cell->settings[i], where);
        const struct dpb_setting *mine = &own->settings[i];
        const struct dpb_setting *other = dpb_config_get(given, mine->section, mine->key);
        wanted &= !other || strcmp(other->value, mine->value) == 0;
    }
    dpb_config_destroy(own);
    return wanted;
}

/* Every verdict of core's that applies must be a pass. */
static dpb_status judge(const json_t *result, bool alone)
{
    static const char *const verdicts[] = {"pattern", "exchange", "replicas"};
    const json_t *verification = json_object_get(result, "verification");
    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++) {
        const char *verdict = dpb_json_text(verification, verdicts[i], "missing");
        bool skipped = alone && strcmp(verdict, "skipped") == 0;
        if (strcmp(verdict, "pass") != 0 && strcmp(verdict, "not_applicable") != 0 && !skipped)
            return dpb_fail(DPB_VERIFICATION, "verification.%s: %s", verdicts[i], verdict);
    }
    return DPB_OK;
}

static dpb_status run_cell(const struct cell *cell, const struct dpb_plugin *plugin,
                           const struct dpb_config *given, char contract[64])
{
    struct dpb_config *config = dpb_config_create();
    struct dpb_experiment *experiment = NULL;
    struct dpb_execution execution = {.result = NULL};
    dpb_status status = config ? configure(config, plugin, cell, given) : DPB_NO_MEMORY;
    DPB_THEN(status, dpb_experiment_create(config, &experiment));
    if (status == DPB_OK) {
        dpb_execute(experiment, NULL, &(struct dpb_live_place){.label = cell->name}, &execution);
        status = execution.status;
        if (status != DPB_OK)
            dpb_fail(status, "%s", dpb_json_text(execution.result, "error", "the job failed"));
    }
    DPB_THEN(status, judge(execution.result, plugin->capabilities & DPB_COMM_ALONE));
    if (status == DPB_OK)
        snprintf(contract, 64, "%s", dpb_json_text(execution.result, "strategy.consistency", "?"));
    json_decref(execution.result);
    dpb_experiment_destroy(experiment);
    dpb_config_destroy(config);
    return status;
}

/* Runs short jobs with core's proof of the plugin's contract. `given`: the settings of the command
 * line. Fails only if nothing can be tried. */
static dpb_status conform_comm(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                               const struct dpb_config *given)
{
    char contract[64] = "none was shown";
    dpb_status status = DPB_OK;
    if (plugin->capabilities & DPB_COMM_LAUNCHER)
        return dpb_fail(DPB_UNSUPPORTED,
                        "comm '%s' needs the runtime of mpirun or srun; `dpbench conform` starts "
                        "its jobs itself",
                        plugin->name);
    dpb_conform_heading(conform, "jobs");
    dpb_log_set_level(DPB_LOG_ERROR); /* more workers than cores are wanted here */
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        if (!is_wanted(&cells[i], plugin, given))
            continue;
        status = run_cell(&cells[i], plugin, given, contract);
        if (status == DPB_INTERRUPTED)
            break;
        dpb_conform_trial(conform, status, cells[i].name);
    }
    dpb_log_set_level(DPB_LOG_INFO);
    dpb_conform_end(conform);
    printf("contract: %s\n"
           "each job: model tiny, in fp64 unless its name or a setting says otherwise; the pattern "
           "before training and, unannounced, after it;\n"
           "  random gradients, if it exchanges, against their float64 sum; equal replicas or the "
           "books, as the contract says\n"
           "not shown: speed, checkpoints, codecs, death of a peer, memory of GPUs, capture; "
           "capabilities that the plugin does not declare\n",
           contract);
    return status == DPB_INTERRUPTED ? status : DPB_OK;
}

/* ---- a plugin -------------------------------------------------------------------------------- */

/* The kind of KIND_NAME.so; DPB_PLUGIN_KINDS: none. */
static dpb_plugin_kind kind_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        const char *name = dpb_plugin_kind_name[kind];
        if (dpb_begins_with(file, name) && file[strlen(name)] == '_')
            return (dpb_plugin_kind)kind;
    }
    return DPB_PLUGIN_KINDS;
}

/* Ranks find the plugin by the same variable. */
static dpb_status look_first_in(const char *path)
{
    const char *old = getenv("DPBENCH_PLUGIN_PATH"), *slash = strrchr(path, '/');
    char *list;
    DPB_TRY(dpb_allocated(asprintf(&list, "%.*s%s%s", (int)(slash - path), path, old ? ":" : "",
                                   old ? old : "") >= 0));
    setenv("DPBENCH_PLUGIN_PATH", list, 1);
    free(list);
    return DPB_OK;
}

enum { OWNER = 128 };

static void name_owner(const struct dpb_plugin *plugin, char owner[OWNER])
{
    snprintf(owner, OWNER, "%s '%s'", dpb_plugin_kind_name[plugin->kind], plugin->name);
}

/* Parses the plugin's options; *options is @owned: free(), NULL without options. */
static dpb_status parse_options(const struct dpb_plugin *plugin, const struct dpb_config *config,
                                void **options)
{
    char owner[OWNER];
    *options = NULL;
    if (!plugin->options)
        return config->n_settings == 0
                   ? DPB_OK
                   : dpb_fail(DPB_USAGE, "%s '%s' has no options; leave %s.%s out",
                              dpb_plugin_kind_name[plugin->kind], plugin->name,
                              config->settings[0].section, config->settings[0].key);
    name_owner(plugin, owner);
    *options = calloc(1, plugin->options_size);
    DPB_TRY(dpb_allocated(*options));
    const struct dpb_option_table table = {.section = dpb_plugin_place[plugin->kind].section,
                                           .owner = owner,
                                           .rows = plugin->options,
                                           .values = *options};
    return dpb_options_parse(&table, 1, config);
}

/* Of families of dpbench's models, those that take seconds. */
static const char *const families[] = {"tiny",         "lenet",    "alexnet_cifar10", "cifar_cnn",
                                       "vgg16_cifar",  "resnet20", "densenet40_k12",  "googlenet",
                                       "mobilenet_v1", "vit"};

static dpb_status try_model(const struct dpb_plugin *device, const void *options,
                            const struct dpb_device_ops *reference, const char *name,
                            const struct dpb_config *config)
{
    const struct dpb_plugin *model;
    void *own;
    DPB_TRY(dpb_plugin_load(DPB_PLUGIN_MODEL, name, NULL, &dpb_host, &model));
    dpb_status status = parse_options(model, config, &own);
    const bool emulates = device->capabilities & DPB_DEVICE_EMULATED;
    DPB_THEN(status, emulates ? dpb_conform_emulated(device, options, model, own)
                              : dpb_conform_device_model(device, options, reference, model, own));
    free(own);
    return status;
}

/* `model`: the settings of [model]; with model.name that model alone is tried. */
static dpb_status conform_device(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                                 const struct dpb_device_ops *reference,
                                 const struct dpb_config *config, struct dpb_config *model)
{
    const struct dpb_setting *given = dpb_config_get(model, "model", "name");
    char *only = given ? strdup(given->value) : NULL;
    void *options;
    dpb_config_remove(model, "model", "name");
    const bool emulates = plugin->capabilities & DPB_DEVICE_EMULATED;
    dpb_status status = parse_options(plugin, config, &options);
    if (status == DPB_OK && emulates && !only)
        status =
            dpb_fail(DPB_USAGE,
                     "device '%s' emulates: which model does its profile fit? give model.name, "
                     "as in model.name=profile model.file=PROFILE device.profile=PROFILE",
                     plugin->name);
    if (status == DPB_OK && !only)
        dpb_conform_device(conform, plugin, options, reference);
    dpb_conform_heading(conform, "models");
    for (size_t i = 0; status == DPB_OK && i < (only ? 1 : sizeof families / sizeof families[0]);
         i++) {
        const char *name = only ? only : families[i];
        dpb_conform_trial(conform, try_model(plugin, options, reference, name, model), name);
    }
    dpb_conform_end(conform);
    puts(emulates ? "the model: compiled as in a run; gradients assigned, final when they are said "
                    "to be, the same for the same step and others for another"
                  : "each model: compiled as in a run; the reference's loss; the gradient of each "
                    "tensor against the slope of the device's own loss");
    free(options);
    free(only);
    return status;
}

/* Moves the settings of [model] to a configuration of their own. */
static dpb_status split(const struct dpb_config *config, struct dpb_config *device,
                        struct dpb_config *model)
{
    DPB_TRY(dpb_allocated(device && model));
    for (size_t i = 0; i < config->n_settings; i++) {
        const struct dpb_setting *s = &config->settings[i];
        DPB_TRY(dpb_config_set(strcmp(s->section, "model") == 0 ? model : device, s->section,
                               s->key, s->value, s->origin));
    }
    return DPB_OK;
}

/* A plugin whose option core has, too, would be refused by each run. */
static void try_options(struct dpb_conform *conform, const struct dpb_plugin *plugin)
{
    const char *section = dpb_plugin_place[plugin->kind].section;
    char owner[OWNER];
    name_owner(plugin, owner);
    const struct dpb_option_table tables[] = {
        {.section = section, .rows = dpb_settings_rows(section)},
        {.section = section, .owner = owner, .rows = plugin->options}};
    const dpb_status status = dpb_options_differ(tables, 2);
    if (status != DPB_OK)
        dpb_conform_trial(conform, dpb_conform_promised(status), "options");
}

static dpb_status run_suite(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                            const struct dpb_config *config)
{
    const struct dpb_plugin *reference;
    void *options = NULL;
    char text[DPB_REASON_BYTES];
    const char *missing = dpb_trial_missing(plugin, text);
    if (missing)
        return dpb_fail(DPB_UNSUPPORTED, "%s '%s' cannot run here: %s",
                        dpb_plugin_kind_name[plugin->kind], plugin->name, missing);
    try_options(conform, plugin);
    if (plugin->kind == DPB_PLUGIN_COMM)
        return conform_comm(conform, plugin, config);
    DPB_TRY(dpb_plugin_load(DPB_PLUGIN_DEVICE, "reference", NULL, &dpb_host, &reference));
    if (plugin->kind == DPB_PLUGIN_DEVICE) {
        struct dpb_config *device = dpb_config_create(), *model = dpb_config_create();
        dpb_status status = split(config, device, model);
        DPB_THEN(status, conform_device(conform, plugin, reference->ops, device, model));
        dpb_config_destroy(device);
        dpb_config_destroy(model);
        return status;
    }
    dpb_status status = parse_options(plugin, config, &options);
    if (status == DPB_OK && plugin->kind == DPB_PLUGIN_MODEL)
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
                        "%s '%s': no trial has these settings; leave SECTION.KEY=VALUE out", kind,
                        plugin->name);
    if (conform.n_shown == 0)
        return dpb_fail(DPB_UNSUPPORTED, "%s '%s' refused every trial: nothing was shown", kind,
                        plugin->name);
    return DPB_OK;
}

/* The settings are of the plugin's own options, and another plugin of its file has some. Those of a
 * communicator and of a device are of jobs and models, too. */
static bool is_left_out(const struct dpb_plugin_row *row, const struct dpb_plugin_row *rows,
                        size_t n_rows, const struct dpb_config *config)
{
    bool others = false;
    for (size_t i = 0; i < n_rows; i++)
        others |= strcmp(rows[i].path, row->path) == 0 && rows[i].plugin && rows[i].plugin->options;
    return config->n_settings > 0 && row->kind != DPB_PLUGIN_COMM &&
           row->kind != DPB_PLUGIN_DEVICE && !row->plugin->options && others;
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
        if (rows[i].plugin && is_left_out(&rows[i], rows, n_rows, config)) {
            printf("%s %s: left out: it has no options\n", dpb_plugin_kind_name[rows[i].kind],
                   rows[i].plugin->name);
            continue;
        }
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
            return dpb_unknown_option(self, argv[i]);
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

static int command_conform(const struct dpb_command *self, int argc, char **argv)
{
    struct dpb_config *config = dpb_config_create();
    dpb_status status = dpb_allocated(config);
    DPB_THEN(status, conform(self, argc, argv, config));
    dpb_config_destroy(config);
    return dpb_status_exit_code(status);
}

DPB_PROGRAM("conform", command_conform)
