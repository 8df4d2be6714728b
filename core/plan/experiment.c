/* experiment.c - from a configuration to everything that follows from it: see experiment.h. */
#include "plan/experiment.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/output.h"
#include "base/text.h"
#include "graph/graph.h"
#include "launch/hosts.h"
#include "launch/machines.h"
#include "measure/journal.h"
#include "measure/monitor.h"
#include "measure/trace.h"
#include "optim/schedule.h"
#include "plan/comm_points.h"
#include "plan/emulation.h"
#include "plan/refuse.h"
#include "plan/refuse_plugins.h"
#include "plan/resume.h"
#include "plan/unused.h"
#include "plugin/plugins.h"
#include "plugin/trial.h"
#include "world/world.h"

/* Where the setting comes from; NULL: it is the default. */
static const char *place_of(const struct dpb_experiment *experiment, const char *section,
                            const char *key)
{
    const struct dpb_setting *setting = dpb_config_get(experiment->config, section, key);
    return setting ? setting->origin : NULL;
}

/* ---- plugins and options ------------------------------------------------------------------- */

/* Core's rows of every section; values go into the settings. */
static void add_core_tables(struct dpb_experiment *experiment)
{
    for (size_t i = 0; i < dpb_settings_n_sections; i++)
        experiment->tables[experiment->n_tables++] =
            (struct dpb_option_table){.section = dpb_settings_sections[i].name,
                                      .rows = dpb_settings_sections[i].rows,
                                      .values = &experiment->settings};
}

static dpb_status load_plugin(struct dpb_experiment *experiment, dpb_plugin_kind kind,
                              const char *name)
{
    const struct dpb_plugin *plugin;
    const char *section = dpb_plugin_place[kind].section;
    const char *where = dpb_config_origin(experiment->config, section, dpb_plugin_place[kind].key);
    bool alone = kind == DPB_PLUGIN_COMM && experiment->settings.run.mode == DPB_MODE_COMM;
    DPB_TRY(dpb_plugin_load(kind, name, where, alone ? dpb_comm_host() : &dpb_host, &plugin));
    experiment->plugins[kind] = plugin;
    if (!plugin->options)
        return DPB_OK;
    size_t owner_bytes = strlen(plugin->name) + 32;
    /* The owner's name for messages lies behind the options. */
    char *memory = calloc(1, plugin->options_size + owner_bytes);
    DPB_TRY(dpb_allocated(memory));
    char *owner = memory + plugin->options_size;
    snprintf(owner, owner_bytes, "%s '%s'", dpb_plugin_kind_name[kind], plugin->name);
    experiment->options[kind] = memory;
    experiment->tables[experiment->n_tables++] = (struct dpb_option_table){
        .section = section, .owner = owner, .rows = plugin->options, .values = memory};
    return DPB_OK;
}

static dpb_status load_all(struct dpb_experiment *experiment)
{
    struct dpb_settings *settings = &experiment->settings;
    const char *const names[DPB_PLUGIN_KINDS] = {settings->model.name, settings->data.name,
                                                 settings->device.name, settings->comm.name,
                                                 settings->comm.codec};
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++)
        if (kind != DPB_PLUGIN_CODEC || strcmp(names[kind], "none") != 0)
            DPB_TRY(load_plugin(experiment, (dpb_plugin_kind)kind, names[kind]));
    return DPB_OK;
}

/* ---- what follows -------------------------------------------------------------------------- */

/* batch, global_batch and the numbers that follow from them. */
static dpb_status derive_batch(struct dpb_experiment *experiment)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    const uint64_t n_workers = (uint64_t)run->workers * (uint64_t)run->learners;
    uint64_t shares = n_workers * (uint64_t)run->accumulate;
    uint64_t batch = (uint64_t)run->batch;
    if (run->global_batch) {
        if ((uint64_t)run->global_batch % shares != 0)
            return dpb_config_fail(experiment->config, DPB_USAGE, "run", "global_batch",
                                   "run.global_batch = %lld does not divide by %lld workers times "
                                   "%lld micro-batches; take a multiple of that",
                                   (long long)run->global_batch, (long long)n_workers,
                                   (long long)run->accumulate);
        batch = (uint64_t)run->global_batch / shares;
    }
    if (batch == 0)
        batch = experiment->model_info.batch;
    if (batch == 0)
        return dpb_config_fail(experiment->config, DPB_USAGE, "model", "name",
                               "model '%s' has no batch of its own (its hook `describe` leaves 0); "
                               "give run.batch",
                               experiment->settings.model.name);
    experiment->n_workers = (uint32_t)n_workers;
    experiment->n_servers = (uint32_t)run->servers;
    experiment->accumulate = (uint32_t)run->accumulate;
    experiment->batch = (uint32_t)batch;
    experiment->global_batch = batch * shares;
    return DPB_OK;
}

static dpb_status derive_machines(struct dpb_experiment *experiment, uint32_t n_hosts)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    const char *hosts = experiment->settings.comm.hosts;
    uint32_t n_ranks = experiment->n_workers + experiment->n_servers;
    char why[128];
    if (n_ranks > DPB_JOB_RANKS)
        return dpb_config_fail(experiment->config, DPB_USAGE, "run", "servers",
                               "run.servers = %u and run.workers = %lld (%s), each with %lld "
                               "learner%s (%s), are %u processes; a job has at most %d",
                               experiment->n_servers, (long long)run->workers,
                               dpb_config_origin(experiment->config, "run", "workers"),
                               (long long)run->learners, run->learners == 1 ? "" : "s",
                               dpb_config_origin(experiment->config, "run", "learners"), n_ranks,
                               DPB_JOB_RANKS);
    experiment->machines = calloc(n_ranks, sizeof *experiment->machines);
    DPB_TRY(dpb_allocated(experiment->machines));
    if (!dpb_machines_parse(hosts, n_ranks, experiment->machines, &experiment->n_machines, why))
        return dpb_config_fail(experiment->config, DPB_USAGE, "comm", "hosts",
                               "comm.hosts = %s: %s", hosts, why);
    if (n_hosts > 0 && experiment->n_machines > n_hosts)
        return dpb_config_fail(
            experiment->config, DPB_USAGE, "comm", "hosts",
            "comm.hosts = %s makes %u machines, and `dpbench hosts` has %u hosts", hosts,
            experiment->n_machines, n_hosts);
    return DPB_OK;
}

/* The strategy's codec, and the strategy's needs with its options. */
static dpb_status derive_needs(struct dpb_experiment *experiment)
{
    const struct dpb_plugin *codec = experiment->plugins[DPB_PLUGIN_CODEC];
    if (codec)
        experiment->codec = (struct dpb_codec){.name = codec->name,
                                               .ops = codec->ops,
                                               .options = experiment->options[DPB_PLUGIN_CODEC],
                                               .seed = (uint64_t)experiment->settings.run.seed};
    const struct dpb_comm_ops *ops = experiment->plugins[DPB_PLUGIN_COMM]->ops;
    return ops->needs ? ops->needs(experiment->options[DPB_PLUGIN_COMM], &experiment->comm_needs)
                      : DPB_OK;
}

static dpb_status refuse_precision(const struct dpb_experiment *experiment,
                                   const struct dpb_plugin *device, dpb_precision precision)
{
    char has[64];
    struct dpb_text text = dpb_text_in(has, sizeof has);
    for (int i = 0; i < DPB_PRECISIONS; i++)
        if (device->capabilities & (UINT64_C(1) << i))
            dpb_text_add(&text, " %s", dpb_precision_name((dpb_precision)i));
    return dpb_config_fail(
        experiment->config, DPB_UNSUPPORTED, "run", "precision",
        "device '%s' does not compute in %s; set run.precision to one that it has:%s (%s)",
        device->name, dpb_precision_name(precision), has, device->summary);
}

static dpb_status check_precision(struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE];
    const dpb_precision precision = (dpb_precision)settings->run.precision;
    if (!(device->capabilities & (UINT64_C(1) << precision)))
        return refuse_precision(experiment, device, precision);
    bool fp64 = precision == DPB_PRECISION_FP64;
    experiment->weight_type = fp64 ? DPB_FP64 : DPB_FP32;
    experiment->gradient_type = settings->comm.gradient == 0
                                    ? experiment->weight_type
                                    : (dpb_dtype)(settings->comm.gradient - 1);
    if (fp64 != (experiment->gradient_type == DPB_FP64))
        return dpb_config_fail(
            experiment->config, DPB_UNSUPPORTED, "comm", "gradient",
            "comm.gradient = %s cannot be used with run.precision = %s; leave comm.gradient out",
            dpb_dtype_name(experiment->gradient_type), dpb_precision_name(precision));
    return DPB_OK;
}

dpb_status dpb_experiment_create(const struct dpb_config *config,
                                 struct dpb_experiment **experiment)
{
    struct dpb_experiment *made = calloc(1, sizeof *made);
    uint32_t n_hosts = 0;
    if (!made || !(made->config = dpb_config_copy(config))) {
        free(made);
        return dpb_fail(DPB_NO_MEMORY, "no memory for the configuration");
    }
    add_core_tables(made);
    dpb_status status = DPB_OK;
    for (size_t i = 0; i < made->n_tables && status == DPB_OK; i++)
        status = dpb_options_parse_known(&made->tables[i], made->config);
    DPB_THEN(status, dpb_settings_derive(&made->settings, made->config));
    DPB_THEN(status, load_all(made));
    if (status == DPB_OK) {
        const struct dpb_option *options = made->plugins[DPB_PLUGIN_COMM]->options;
        const bool has_interface = dpb_options_find(options, "interface");
        status = dpb_hosts_adopt(&made->settings.run, has_interface, made->config, &n_hosts);
    }
    DPB_THEN(status, dpb_emulation_adopt(made));
    DPB_THEN(status, dpb_refuse_unknown(made));
    DPB_THEN(status, dpb_options_parse(made->tables, made->n_tables, made->config));
    if (status == DPB_OK) {
        const struct dpb_plugin *model = made->plugins[DPB_PLUGIN_MODEL];
        ((const struct dpb_model_ops *)model->ops)
            ->describe(made->options[DPB_PLUGIN_MODEL], &made->model_info);
        status = dpb_emulation_settle(made);
    }
    DPB_THEN(status, derive_batch(made));
    DPB_THEN(status, derive_machines(made, n_hosts));
    DPB_THEN(status, derive_needs(made));
    DPB_THEN(status, dpb_refuse_settings(made));
    DPB_THEN(status, dpb_emulation_refuse(made));
    DPB_THEN(status, check_precision(made));
    DPB_THEN(status, dpb_save_points_make(&made->settings,
                                          dpb_config_origin(made->config, "checkpoint", "at"),
                                          &made->save_points));
    DPB_THEN(status, dpb_unused_by_length(made));
    DPB_THEN(status, dpb_delay_make(
                         made->settings.run.delay, dpb_config_origin(made->config, "run", "delay"),
                         made->settings.run.delay_ranks,
                         dpb_config_origin(made->config, "run", "delay_ranks"), made->n_workers,
                         (uint64_t)made->settings.run.seed, &made->delay));
    made->delay.dilation = made->settings.run.dilation;
    if (status != DPB_OK) {
        dpb_experiment_destroy(made);
        return status;
    }
    *experiment = made;
    return DPB_OK;
}

void dpb_experiment_destroy(struct dpb_experiment *experiment)
{
    if (!experiment)
        return;
    if (experiment->data)
        ((const struct dpb_data_ops *)experiment->plugins[DPB_PLUGIN_DATA]->ops)
            ->close(experiment->data);
    dpb_graph_destroy(experiment->graph);
    dpb_delay_destroy(&experiment->delay);
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++)
        free(experiment->options[kind]);
    dpb_config_destroy(experiment->config);
    free(experiment->machines);
    free(experiment);
}

/* ---- data and graph ------------------------------------------------------------------------ */

/* A training of hours must not end on a directory that is not there. */
static dpb_status probe_file(const struct dpb_experiment *experiment, const char *section,
                             const char *key, const char *file)
{
    /* At most, to the name of a checkpoint while it is written. */
    static const char appended[] = "-step18446744073709551615.2147483647.tmp";
    char place[PATH_MAX], directory[PATH_MAX], longest[PATH_MAX + sizeof appended];
    struct stat info;
    if (!file[0])
        return DPB_OK;
    dpb_output_directory(dpb_output_place(file, place) ? place : file, directory);
    if (access(directory, W_OK | X_OK) != 0)
        return dpb_config_fail(experiment->config, DPB_USAGE, section, key,
                               "%s.%s = %s: %s cannot be written to: %s", section, key, file,
                               directory, strerror(errno));
    if (dpb_output_is_descriptor(file) || (stat(file, &info) == 0 && !S_ISREG(info.st_mode)))
        return dpb_config_fail(experiment->config, DPB_USAGE, section, key,
                               "%s.%s = %s is there and is no regular file; name a file", section,
                               key, file);
    snprintf(longest, sizeof longest, "%s%s", file, appended);
    if (stat(longest, &info) != 0 && errno == ENAMETOOLONG)
        return dpb_config_fail(experiment->config, DPB_USAGE, section, key,
                               "%s.%s: the name is too long; give a shorter one", section, key);
    return DPB_OK;
}

/* The files of a plugin's options. */
static size_t add_files(const struct dpb_option_table *table, struct dpb_named_file *files,
                        size_t n, size_t capacity)
{
    for (const struct dpb_option *row = table->rows; row && row->name && n < capacity; row++) {
        if (row->type != DPB_OPT_STRING || !row->unit || !table->owner)
            continue;
        const bool reads = strcmp(row->unit, "file") == 0;
        if (reads || strcmp(row->unit, "path") == 0)
            files[n++] = (struct dpb_named_file){
                row->name, *(const char *const *)((const char *)table->values + row->offset),
                !reads};
    }
    return n;
}

static dpb_status check_files(const struct dpb_experiment *experiment,
                              const struct dpb_named_file *beside, size_t n_beside)
{
    const struct dpb_settings *settings = &experiment->settings;
    struct dpb_named_file files[64];
    const size_t capacity = sizeof files / sizeof files[0];
    char delays[PATH_MAX] = "";
    size_t n = 0;
    (void)dpb_delay_file(settings->run.delay, delays, sizeof delays);
    for (size_t i = 0; i < n_beside; i++)
        files[n++] = beside[i];
    files[n++] = (struct dpb_named_file){"run.trace", settings->run.trace, true};
    files[n++] = (struct dpb_named_file){"run.delay", delays, false};
    for (size_t i = 0; i < experiment->n_tables; i++)
        n = add_files(&experiment->tables[i], files, n, capacity - 2);
    files[n++] = (struct dpb_named_file){"checkpoint.save", settings->checkpoint.save, true};
    DPB_TRY(dpb_outputs_apart(files, n));
    /* Saved into the file that was loaded, a training goes on from run to run. */
    files[n - 1] = (struct dpb_named_file){"checkpoint.load", settings->checkpoint.load, false};
    return dpb_outputs_apart(files, n);
}

dpb_status dpb_experiment_probe(const struct dpb_experiment *experiment,
                                const struct dpb_named_file *beside, size_t n_beside)
{
    char text[DPB_REASON_BYTES];
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        const struct dpb_plugin *plugin = experiment->plugins[kind];
        const struct dpb_plugin_place *place = &dpb_plugin_place[kind];
        const char *missing = plugin ? dpb_trial_missing(plugin, text) : NULL;
        if (missing)
            return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, place->section, place->key,
                                   "%s '%s' cannot run here: %s", dpb_plugin_kind_name[kind],
                                   plugin->name, missing);
    }
    struct dpb_sharing sharing;
    DPB_TRY(dpb_trial_sharing(experiment->plugins[DPB_PLUGIN_DEVICE],
                              experiment->options[DPB_PLUGIN_DEVICE], &sharing));
    DPB_TRY(probe_file(experiment, "run", "trace", experiment->settings.run.trace));
    DPB_TRY(probe_file(experiment, "checkpoint", "save", experiment->settings.checkpoint.save));
    return check_files(experiment, beside, n_beside);
}

static dpb_status build_graph(struct dpb_experiment *experiment, struct dpb_shape input,
                              uint32_t nclass)
{
    DPB_TRY(
        dpb_graph_build(experiment->settings.model.name, experiment->plugins[DPB_PLUGIN_MODEL]->ops,
                        experiment->options[DPB_PLUGIN_MODEL], input, nclass, &experiment->graph));
    dpb_graph_smooth_labels(experiment->graph, experiment->settings.model.label_smoothing);
    return dpb_emulation_refuse_graph(experiment);
}

static dpb_status open_data(struct dpb_experiment *experiment,
                            const struct dpb_data_request *request)
{
    const struct dpb_data_ops *data_ops = experiment->plugins[DPB_PLUGIN_DATA]->ops;
    const char *path = place_of(experiment, "data", "path");
    if (experiment->data)
        return DPB_OK;
    dpb_fail_at(path ? path : place_of(experiment, "data", "name"));
    (void)dpb_alloc_most();
    const uint64_t before = dpb_alloc_held();
    dpb_status status = data_ops->open(experiment->options[DPB_PLUGIN_DATA], request,
                                       &experiment->data, &experiment->data_info);
    experiment->data_bytes = dpb_alloc_most() - before;
    dpb_fail_at(NULL);
    return status;
}

void dpb_experiment_take_data(struct dpb_experiment *experiment, struct dpb_experiment *from)
{
    experiment->data = from->data;
    experiment->data_info = from->data_info;
    experiment->data_bytes = from->data_bytes;
    from->data = NULL;
}

dpb_status dpb_experiment_build(struct dpb_experiment *experiment, uint32_t rank)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_model_info *model = &experiment->model_info;
    struct dpb_data_request request = {
        .shape = model->input,
        .nclass = settings->model.nclass ? (uint32_t)settings->model.nclass : model->nclass,
        .fixed_shape = !model->any_image,
        .ids = model->ids,
        .seed = (uint64_t)settings->run.seed,
        .rank = rank,
        .n_workers = experiment->n_workers,
        .sharded = settings->data.shard,
        .info_only = rank >= experiment->n_workers};
    if (settings->model.image && !model->ids)
        request.shape.h = request.shape.w = (uint32_t)settings->model.image;
    if (settings->run.mode == DPB_MODE_COMM) /* no data: the model as it is by itself */
        return build_graph(experiment, request.shape, request.nclass);
    DPB_TRY(open_data(experiment, &request));
    experiment->steps_per_epoch =
        experiment->data_info.n_samples[DPB_TRAIN] / experiment->global_batch;
    experiment->evaluate_every =
        settings->eval.every_epochs > 0
            ? dpb_schedule_steps(settings->eval.every_epochs, (double)experiment->steps_per_epoch)
            : (double)settings->eval.every;
    DPB_TRY(dpb_refuse_data(experiment));
    DPB_TRY(
        build_graph(experiment, experiment->data_info.format.shape, experiment->data_info.nclass));
    DPB_TRY(dpb_refuse_network(experiment));
    dpb_fail_at(place_of(experiment, "checkpoint", "load"));
    dpb_status status = dpb_resume_check(experiment, &experiment->start);
    dpb_fail_at(NULL);
    return status;
}

struct dpb_feed_args dpb_experiment_feed(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    return (struct dpb_feed_args){.ops = experiment->plugins[DPB_PLUGIN_DATA]->ops,
                                  .source = experiment->data,
                                  .name = settings->data.name,
                                  .info = experiment->data_info,
                                  .split = DPB_TRAIN,
                                  .batch = experiment->batch,
                                  .n_workers = experiment->n_workers,
                                  .threads = (uint32_t)settings->data.threads,
                                  .timeout_ns = settings->run.timeout_ns,
                                  .accumulate = experiment->accumulate,
                                  .shuffle = settings->data.shuffle,
                                  .sharded = settings->data.shard,
                                  .seed = (uint64_t)settings->run.seed,
                                  .start = experiment->start};
}

/* ---- what others ask ----------------------------------------------------------------------- */

json_t *dpb_experiment_effective(const struct dpb_experiment *experiment)
{
    return dpb_options_effective(experiment->tables, experiment->n_tables, experiment->config);
}

struct dpb_journal_shape dpb_experiment_journal_shape(const struct dpb_experiment *experiment)
{
    if (!dpb_mode_has_steps(experiment->settings.run.mode))
        return (struct dpb_journal_shape){0};
    return (struct dpb_journal_shape){.head_bytes = offsetof(struct dpb_journal, records),
                                      .count_at = offsetof(struct dpb_journal, n_records),
                                      .record_bytes = sizeof(struct dpb_record),
                                      .time_at = offsetof(struct dpb_record, begin_ns),
                                      .tail_bytes = dpb_monitor_bytes(&experiment->settings) +
                                                    dpb_trace_bytes(&experiment->settings)};
}

size_t dpb_experiment_journal_bytes(const struct dpb_experiment *experiment)
{
    /* The gate may take a while, a run by the clock may be quick: the memory is sparse, so
     * unwritten bytes cost nothing. */
    if (experiment->settings.run.mode == DPB_MODE_COMM)
        return dpb_comm_journal_bytes(experiment);
    const struct dpb_run_settings *run = &experiment->settings.run;
    const uint64_t shortest_step_ns = 10000;
    uint64_t records = 4096 + (uint64_t)run->warmup_steps + (uint64_t)run->steps +
                       (uint64_t)(run->seconds_ns + run->steady_limit_ns) / shortest_step_ns;
    if (run->epochs)
        records += (uint64_t)run->epochs * (UINT64_C(1) << 21) / experiment->global_batch + 4096;
    if (records > UINT64_C(1) << 26)
        records = UINT64_C(1) << 26;
    return sizeof(struct dpb_journal) + records * sizeof(struct dpb_record) +
           dpb_monitor_bytes(&experiment->settings) + dpb_trace_bytes(&experiment->settings);
}

const char *const *dpb_experiment_environment(const struct dpb_experiment *experiment,
                                              uint32_t threads)
{
    enum { SLOTS = 16, TEXT = 64 };
    char **names = calloc(1, (SLOTS + 1) * sizeof(char *) + SLOTS * TEXT);
    if (!names)
        return NULL;
    char *text = (char *)(names + SLOTS + 1);
    size_t n = 0;
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        const struct dpb_plugin *plugin = experiment->plugins[kind];
        const char *const *variable = plugin ? plugin->thread_variables : NULL;
        for (; variable && *variable && n < SLOTS; variable++, n++) {
            names[n] = text + n * TEXT;
            snprintf(names[n], TEXT, "%s=%u", *variable, threads);
        }
    }
    return (const char *const *)names;
}
