/* experiment.c - from a configuration to everything that follows from it: see experiment.h. */
#include "train/experiment.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "graph/graph.h"
#include "launch/machines.h"
#include "plugin/plugins.h"
#include "train/comm_host.h"
#include "train/comm_test.h"
#include "train/journal.h"
#include "train/optimizer.h"
#include "world/pmix.h"
#include "world/world.h"

/* ---- where settings come from -------------------------------------------------------------- */

static bool given(const struct dpb_experiment *experiment, const char *section, const char *key)
{
    return dpb_config_get(experiment->config, section, key) != NULL;
}

/* "FILE:LINE", "command line" or "default". */
static const char *origin(const struct dpb_experiment *experiment, const char *section,
                          const char *key)
{
    const struct dpb_setting *setting = dpb_config_get(experiment->config, section, key);
    return setting ? setting->origin : "default";
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
    const char *where = origin(experiment, dpb_plugin_kind_name[kind], "name");
    bool alone = kind == DPB_PLUGIN_COMM && experiment->settings.run.mode == DPB_MODE_COMM;
    DPB_TRY(dpb_plugin_load(kind, name, where, alone ? dpb_comm_host() : &dpb_host, &plugin));
    experiment->plugins[kind] = plugin;
    if (!plugin->options)
        return DPB_OK;
    size_t owner_bytes = strlen(plugin->name) + 32;
    /* The owner's name for messages lies behind the options. */
    char *memory = calloc(1, plugin->options_size + owner_bytes);
    if (!memory)
        return dpb_fail(DPB_NO_MEMORY, "no memory for the options of %s", plugin->name);
    char *owner = memory + plugin->options_size;
    snprintf(owner, owner_bytes, "%s '%s'", dpb_plugin_kind_name[kind], plugin->name);
    experiment->options[kind] = memory;
    experiment->tables[experiment->n_tables++] =
        (struct dpb_option_table){.section = dpb_plugin_kind_name[kind],
                                  .owner = owner,
                                  .rows = plugin->options,
                                  .values = memory};
    return DPB_OK;
}

static dpb_status load_all(struct dpb_experiment *experiment)
{
    struct dpb_settings *settings = &experiment->settings;
    const char *const names[DPB_PLUGIN_KINDS] = {settings->model.name, settings->data.name,
                                                 settings->device.name, settings->comm.name};
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++)
        DPB_TRY(load_plugin(experiment, (dpb_plugin_kind)kind, names[kind]));
    return DPB_OK;
}

/* ---- what cannot be ------------------------------------------------------------------------ */

static dpb_status check_length(const struct dpb_experiment *experiment)
{
    static const char *const keys[] = {"steps", "seconds", "epochs"};
    const char *first = NULL;
    if (experiment->settings.run.mode == DPB_MODE_COMM)
        return DPB_OK; /* of sizes, not of the run */
    for (int i = 0; i < 3; i++) {
        if (!given(experiment, "run", keys[i]))
            continue;
        if (first)
            return dpb_fail(DPB_USAGE,
                            "%s: run.%s is given beside run.%s (%s); a run has exactly one of "
                            "run.steps, run.seconds and run.epochs",
                            origin(experiment, "run", keys[i]), keys[i], first,
                            origin(experiment, "run", first));
        first = keys[i];
    }
    return first
               ? DPB_OK
               : dpb_fail(DPB_USAGE, "how long is the run? Give one of run.steps, run.seconds and "
                                     "run.epochs");
}

static dpb_status check_optimizer(const struct dpb_experiment *experiment)
{
    const struct dpb_optimizer_settings *optimizer = &experiment->settings.optimizer;
    if (optimizer->kind == DPB_ADAGRAD &&
        (optimizer->nesterov || given(experiment, "optimizer", "momentum")))
        return dpb_fail(
            DPB_USAGE,
            "%s: optimizer 'adagrad' has no momentum; leave optimizer.momentum "
            "and optimizer.nesterov out, or use sgd",
            origin(experiment, "optimizer", optimizer->nesterov ? "nesterov" : "momentum"));
    if (optimizer->nesterov && optimizer->momentum == 0.0)
        return dpb_fail(DPB_USAGE,
                        "%s: optimizer.nesterov = yes with optimizer.momentum = 0 is plain "
                        "sgd; give a momentum or leave nesterov out",
                        origin(experiment, "optimizer", "nesterov"));
    return DPB_OK;
}

uint64_t dpb_experiment_promises(const struct dpb_experiment *experiment)
{
    return experiment->plugins[DPB_PLUGIN_COMM]->capabilities | experiment->comm_needs.capabilities;
}

bool dpb_experiment_has_device_memory(const struct dpb_experiment *experiment)
{
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    return device->queues != NULL;
}

static dpb_status check_forward_mode(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    if (settings->run.mode != DPB_MODE_FORWARD)
        return DPB_OK;
    if (!(experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: run.mode = forward exchanges nothing: comm '%s' (%s) "
                        "cannot be used with it; leave comm.name out or say "
                        "independent",
                        origin(experiment, "run", "mode"), settings->comm.name,
                        origin(experiment, "comm", "name"));
    if (settings->run.accumulate > 1 || settings->run.prove || settings->eval.every > 0 ||
        settings->eval.final || settings->checkpoint.save[0])
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: run.mode = forward trains nothing: run.accumulate, "
                        "run.prove, [eval] and checkpoint.save have no meaning in "
                        "it; leave them out",
                        origin(experiment, "run", "mode"));
    return DPB_OK;
}

static dpb_status check_comm_mode(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    if (settings->run.mode != DPB_MODE_COMM)
        return DPB_OK;
    if (strcmp(origin(experiment, "run", "mode"), DPB_COMM_ORIGIN) != 0)
        return dpb_fail(DPB_USAGE,
                        "%s: run.mode = comm is no way to run an experiment; say `dpbench comm` to "
                        "measure its communicator alone",
                        origin(experiment, "run", "mode"));
    if (experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm '%s' exchanges nothing that could be measured; take another by "
                        "comm.name=NAME (`dpbench help comm` lists them)",
                        origin(experiment, "comm", "name"), settings->comm.name);
    if (given(experiment, "comm_test", "iterations") && given(experiment, "comm_test", "seconds"))
        return dpb_fail(DPB_USAGE,
                        "%s: comm_test.iterations is given beside comm_test.seconds (%s); give one",
                        origin(experiment, "comm_test", "iterations"),
                        origin(experiment, "comm_test", "seconds"));
    return DPB_OK;
}

static dpb_status refuse_precision(const struct dpb_experiment *experiment,
                                   const struct dpb_plugin *device, dpb_precision precision)
{
    char has[64] = "";
    for (int i = 0; i < DPB_PRECISIONS; i++) {
        size_t used = strlen(has);
        if (device->capabilities & (UINT64_C(1) << i))
            snprintf(has + used, sizeof has - used, " %s", dpb_precision_name((dpb_precision)i));
    }
    return dpb_fail(DPB_UNSUPPORTED,
                    "%s: device '%s' does not compute in %s; set run.precision to one that it "
                    "has:%s",
                    origin(experiment, "run", "precision"), device->name,
                    dpb_precision_name(precision), has);
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
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm.gradient = %s cannot be used with run.precision = "
                        "%s; leave comm.gradient out",
                        origin(experiment, "comm", "gradient"),
                        dpb_dtype_name(experiment->gradient_type), dpb_precision_name(precision));
    return DPB_OK;
}

static dpb_status check_place(const struct dpb_experiment *experiment)
{
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE];
    const struct dpb_plugin *data = experiment->plugins[DPB_PLUGIN_DATA];
    if (experiment->settings.data.place == DPB_PLACE_HOST)
        return DPB_OK;
    if (!(device->capabilities & DPB_DEVICE_POOL))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: data.place = device: device '%s' keeps no samples in memory of its "
                        "own; leave data.place out",
                        origin(experiment, "data", "place"), device->name);
    if (!((const struct dpb_data_ops *)data->ops)->pool)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: data.place = device: data '%s' reads its samples as they are needed; "
                        "leave data.place out, or take data.name = synthetic",
                        origin(experiment, "data", "place"), data->name);
    return DPB_OK;
}

static dpb_status check_loss_scale(const struct dpb_experiment *experiment)
{
    if (given(experiment, "run", "loss_scale") &&
        experiment->settings.run.precision != DPB_PRECISION_FP16)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: run.loss_scale is for run.precision = fp16; leave it out",
                        origin(experiment, "run", "loss_scale"));
    return DPB_OK;
}

static dpb_status check_comm(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_plugin *comm = experiment->plugins[DPB_PLUGIN_COMM];
    const char *because = experiment->comm_needs.because;
    if (settings->run.servers > 0 && !(comm->capabilities & DPB_COMM_SERVERS))
        return dpb_fail(DPB_UNSUPPORTED, "%s: comm '%s' has no servers; leave run.servers out",
                        origin(experiment, "run", "servers"), comm->name);
    if (settings->run.comm_cores > 0 && !(comm->capabilities & DPB_COMM_OVERLAP))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm '%s' has no work for communication cores; leave "
                        "run.comm_cores out",
                        origin(experiment, "run", "comm_cores"), comm->name);
    if (settings->run.comm_cores > 0 && (comm->capabilities & DPB_COMM_EVENTS) &&
        dpb_experiment_has_device_memory(experiment))
        return dpb_fail(
            DPB_UNSUPPORTED,
            "%s: what comm '%s' does is enqueued on the GPU by the loop's thread: there is "
            "no work for communication cores; leave run.comm_cores out",
            origin(experiment, "run", "comm_cores"), comm->name);
    if ((dpb_experiment_promises(experiment) & DPB_COMM_DEVICE) &&
        !dpb_experiment_has_device_memory(experiment))
        return dpb_fail(
            DPB_UNSUPPORTED,
            "%s: comm '%s'%s%s keeps weights and gradients in a GPU's memory, and device "
            "'%s' (%s) computes in the host's; take a device that computes on GPUs, or "
            "another %s",
            origin(experiment, "comm", "name"), comm->name, because ? " with " : "",
            because ? because : "", settings->device.name, origin(experiment, "device", "name"),
            because ? "way" : "comm");
    if ((comm->capabilities & DPB_COMM_ALONE) && settings->run.prove)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm '%s' exchanges nothing that could be proved; leave "
                        "run.prove out",
                        origin(experiment, "run", "prove"), comm->name);
    return DPB_OK;
}

/* batch, global_batch and what follows from them. */
static dpb_status derive_batch(struct dpb_experiment *experiment)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    uint64_t shares = (uint64_t)run->workers * (uint64_t)run->accumulate;
    uint64_t batch = (uint64_t)run->batch;
    if (run->batch && run->global_batch)
        return dpb_fail(DPB_USAGE, "%s: run.global_batch is given beside run.batch (%s); give one",
                        origin(experiment, "run", "global_batch"),
                        origin(experiment, "run", "batch"));
    if (run->global_batch) {
        if ((uint64_t)run->global_batch % shares != 0)
            return dpb_fail(DPB_USAGE,
                            "%s: run.global_batch = %lld does not divide by %lld workers "
                            "times %lld micro-batches; take a multiple of that",
                            origin(experiment, "run", "global_batch"), (long long)run->global_batch,
                            (long long)run->workers, (long long)run->accumulate);
        batch = (uint64_t)run->global_batch / shares;
    }
    if (batch == 0)
        batch = experiment->model_info.batch;
    experiment->n_workers = (uint32_t)run->workers;
    experiment->n_servers = (uint32_t)run->servers;
    experiment->accumulate = (uint32_t)run->accumulate;
    experiment->batch = (uint32_t)batch;
    experiment->global_batch = batch * shares;
    return DPB_OK;
}

static dpb_status derive_machines(struct dpb_experiment *experiment)
{
    const char *hosts = experiment->settings.comm.hosts;
    uint32_t n_ranks = experiment->n_workers + experiment->n_servers;
    char why[128];
    experiment->machines = calloc(n_ranks, sizeof *experiment->machines);
    if (!experiment->machines)
        return dpb_fail(DPB_NO_MEMORY, "no memory for the machines of %u ranks", n_ranks);
    if (!dpb_machines_parse(hosts, n_ranks, experiment->machines, &experiment->n_machines, why))
        return dpb_fail(DPB_USAGE, "%s: comm.hosts = %s: %s", origin(experiment, "comm", "hosts"),
                        hosts, why);
    return DPB_OK;
}

static dpb_status check_machines(const struct dpb_experiment *experiment)
{
    const struct dpb_plugin *comm = experiment->plugins[DPB_PLUGIN_COMM];
    if (experiment->n_machines > 1 && !(comm->capabilities & DPB_COMM_MULTI_NODE))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm '%s' works within one machine, and comm.hosts = %s (%s) makes "
                        "%u; take a strategy that goes across",
                        origin(experiment, "comm", "name"), comm->name,
                        experiment->settings.comm.hosts, origin(experiment, "comm", "hosts"),
                        experiment->n_machines);
    return DPB_OK;
}

/* Neither a launcher of mpirun's or srun's nor a rank of one of theirs. */
static bool started_locally(void)
{
    return dpb_world.board ? !dpb_world.parted : !dpb_pmix_is_here();
}

bool dpb_experiment_needs_launcher(const struct dpb_experiment *experiment)
{
    return (dpb_experiment_promises(experiment) & DPB_COMM_LAUNCHER) != 0;
}

static dpb_status check_launcher(const struct dpb_experiment *experiment)
{
    const char *because = experiment->comm_needs.because;
    if (dpb_experiment_needs_launcher(experiment) && started_locally())
        return dpb_fail(
            DPB_UNSUPPORTED,
            "%s: comm '%s'%s%s works under mpirun or srun only: start dpbench by one of "
            "them, or take another %s",
            origin(experiment, "comm", "name"), experiment->settings.comm.name,
            because ? " with " : "", because ? because : "", because ? "way" : "strategy");
    return DPB_OK;
}

/* What the strategy needs with its options. */
static dpb_status derive_needs(struct dpb_experiment *experiment)
{
    const struct dpb_comm_ops *ops = experiment->plugins[DPB_PLUGIN_COMM]->ops;
    return ops->needs ? ops->needs(experiment->options[DPB_PLUGIN_COMM], &experiment->comm_needs)
                      : DPB_OK;
}

static dpb_status check_profile(const struct dpb_experiment *experiment)
{
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE];
    if (experiment->settings.run.profile && !((const struct dpb_device_ops *)device->ops)->profile)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: device '%s' keeps no account of its ops; leave run.profile out",
                        origin(experiment, "run", "profile"), device->name);
    return DPB_OK;
}

static dpb_status check_checkpoint(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const char *key = settings->checkpoint.at[0] ? "at" : "every";
    char path[PATH_MAX];
    if (!settings->checkpoint.save[0] && (settings->checkpoint.at[0] || settings->checkpoint.every))
        return dpb_fail(DPB_USAGE,
                        "%s: checkpoint.%s without checkpoint.save: give the file that the "
                        "checkpoints are named after",
                        origin(experiment, "checkpoint", key), key);
    if (!dpb_snapshot_path(settings->checkpoint.save, UINT64_MAX, path, sizeof path))
        return dpb_fail(DPB_USAGE, "%s: checkpoint.save: the path is too long",
                        origin(experiment, "checkpoint", "save"));
    return DPB_OK;
}

static dpb_status check_target(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    if (settings->eval.target > 0 && settings->eval.every == 0)
        return dpb_fail(DPB_USAGE,
                        "%s: eval.target is looked at after each evaluation: give eval.every, too",
                        origin(experiment, "eval", "target"));
    if (settings->eval.target == 0 && settings->eval.require_target)
        return dpb_fail(DPB_USAGE, "%s: eval.require_target without eval.target: give one",
                        origin(experiment, "eval", "require_target"));
    return DPB_OK;
}

static dpb_status check_image(const struct dpb_experiment *experiment)
{
    const struct dpb_model_info *info = &experiment->model_info;
    int64_t image = experiment->settings.model.image;
    if (image && !info->any_image && (image != info->input.h || image != info->input.w))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: model '%s' takes images of %u x %u only; leave model.image "
                        "out",
                        origin(experiment, "model", "image"), experiment->settings.model.name,
                        info->input.h, info->input.w);
    return DPB_OK;
}

dpb_status dpb_experiment_create(const struct dpb_config *config,
                                 struct dpb_experiment **experiment)
{
    struct dpb_experiment *made = calloc(1, sizeof *made);
    if (!made || !(made->config = dpb_config_copy(config))) {
        free(made);
        return dpb_fail(DPB_NO_MEMORY, "no memory for the configuration");
    }
    add_core_tables(made);
    dpb_status status = DPB_OK;
    for (size_t i = 0; i < made->n_tables && status == DPB_OK; i++)
        status = dpb_options_parse_known(&made->tables[i], made->config);
    if (status == DPB_OK)
        status = load_all(made);
    if (status == DPB_OK)
        status = dpb_options_parse(made->tables, made->n_tables, made->config);
    if (status == DPB_OK) {
        const struct dpb_plugin *model = made->plugins[DPB_PLUGIN_MODEL];
        ((const struct dpb_model_ops *)model->ops)
            ->describe(made->options[DPB_PLUGIN_MODEL], &made->model_info);
        status = derive_batch(made);
    }
    if (status == DPB_OK)
        status = derive_machines(made);
    if (status == DPB_OK)
        status = derive_needs(made);
    dpb_status (*const checks[])(const struct dpb_experiment *) = {
        check_length,     check_optimizer, check_forward_mode, check_comm,     check_image,
        check_checkpoint, check_target,    check_profile,      check_machines, check_comm_mode,
        check_launcher,   check_place,     check_loss_scale};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && status == DPB_OK; i++)
        status = checks[i](made);
    if (status == DPB_OK)
        status = check_precision(made);
    if (status == DPB_OK)
        status = dpb_save_points_make(&made->settings, origin(made, "checkpoint", "at"),
                                      &made->save_points);
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
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++)
        free(experiment->options[kind]);
    dpb_config_destroy(experiment->config);
    free(experiment->machines);
    free(experiment);
}

/* ---- data and graph ------------------------------------------------------------------------ */

static dpb_status check_data(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_model_info *model = &experiment->model_info;
    const struct dpb_data_info *data = &experiment->data_info;
    struct dpb_shape shape = data->format.shape;
    if (settings->model.nclass && (uint64_t)settings->model.nclass != data->nclass)
        return dpb_fail(DPB_USAGE,
                        "%s: model.nclass = %lld, but data '%s' has %u classes; leave "
                        "model.nclass out",
                        origin(experiment, "model", "nclass"), (long long)settings->model.nclass,
                        settings->data.name, data->nclass);
    if ((!model->any_image && (shape.h != model->input.h || shape.w != model->input.w)) ||
        (!model->any_channels && shape.c != model->input.c))
        return dpb_fail(DPB_USAGE,
                        "%s: model '%s' takes samples of %u x %u x %u, data '%s' has %u x "
                        "%u x %u; take another model or other data",
                        origin(experiment, "model", "name"), settings->model.name, model->input.c,
                        model->input.h, model->input.w, settings->data.name, shape.c, shape.h,
                        shape.w);
    if (data->n_samples[DPB_TRAIN] < experiment->global_batch)
        return dpb_fail(
            DPB_USAGE,
            "%s: a global batch of %llu samples (%u x %u workers x %u micro-batches) is "
            "larger than the training set of data '%s' with %llu; make run.batch smaller",
            origin(experiment, "run",
                   given(experiment, "run", "global_batch") ? "global_batch" : "batch"),
            (unsigned long long)experiment->global_batch, experiment->batch, experiment->n_workers,
            experiment->accumulate, settings->data.name,
            (unsigned long long)data->n_samples[DPB_TRAIN]);
    if ((settings->eval.every > 0 || settings->eval.final) && data->n_samples[DPB_TEST] == 0)
        return dpb_fail(DPB_USAGE,
                        "%s: data '%s' has no test set to evaluate on; leave eval.every "
                        "and eval.final out, or take other data",
                        origin(experiment, "eval", settings->eval.final ? "final" : "every"),
                        settings->data.name);
    return DPB_OK;
}

/* A training of hours must not end on a directory that is not there. */
dpb_status dpb_experiment_probe(const struct dpb_experiment *experiment)
{
    const char *save = experiment->settings.checkpoint.save, *slash = strrchr(save, '/');
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE];
    char directory[PATH_MAX];
    struct stat info;
    if (device->missing)
        return dpb_fail(DPB_UNSUPPORTED, "%s: device '%s' cannot run here: %s",
                        origin(experiment, "device", "name"), device->name, device->missing);
    if (!save[0])
        return DPB_OK;
    snprintf(directory, sizeof directory, "%.*s",
             slash ? (int)(slash == save ? 1 : slash - save) : 1, slash ? save : ".");
    if (access(directory, W_OK | X_OK) != 0)
        return dpb_fail(DPB_USAGE, "%s: checkpoint.save = %s: %s cannot be written to: %s",
                        origin(experiment, "checkpoint", "save"), save, directory, strerror(errno));
    if (stat(save, &info) == 0 && !S_ISREG(info.st_mode))
        return dpb_fail(DPB_USAGE,
                        "%s: checkpoint.save = %s is there and is no regular file; name a file",
                        origin(experiment, "checkpoint", "save"), save);
    return DPB_OK;
}

static dpb_status build_graph(struct dpb_experiment *experiment, struct dpb_shape input,
                              uint32_t nclass)
{
    return dpb_graph_build(
        experiment->settings.model.name, experiment->plugins[DPB_PLUGIN_MODEL]->ops,
        experiment->options[DPB_PLUGIN_MODEL], input, nclass, &experiment->graph);
}

dpb_status dpb_experiment_build(struct dpb_experiment *experiment, uint32_t rank)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_model_info *model = &experiment->model_info;
    const struct dpb_data_ops *data_ops = experiment->plugins[DPB_PLUGIN_DATA]->ops;
    struct dpb_data_request request = {
        .shape = model->input,
        .nclass = settings->model.nclass ? (uint32_t)settings->model.nclass : model->nclass,
        .fixed_shape = !model->any_image,
        .seed = (uint64_t)settings->run.seed,
        .rank = rank,
        .n_workers = experiment->n_workers,
        .sharded = settings->data.shard,
        .info_only = rank >= experiment->n_workers};
    if (settings->model.image)
        request.shape.h = request.shape.w = (uint32_t)settings->model.image;
    if (settings->run.mode == DPB_MODE_COMM) /* no data: the model as it is by itself */
        return build_graph(experiment, request.shape, request.nclass);
    DPB_TRY(data_ops->open(experiment->options[DPB_PLUGIN_DATA], &request, &experiment->data,
                           &experiment->data_info));
    DPB_TRY(check_data(experiment));
    experiment->steps_per_epoch =
        experiment->data_info.n_samples[DPB_TRAIN] / experiment->global_batch;
    DPB_TRY(
        build_graph(experiment, experiment->data_info.format.shape, experiment->data_info.nclass));
    return dpb_snapshot_check(experiment, &experiment->start);
}

struct dpb_feed_args dpb_experiment_feed(const struct dpb_experiment *x)
{
    const struct dpb_settings *settings = &x->settings;
    return (struct dpb_feed_args){.ops = x->plugins[DPB_PLUGIN_DATA]->ops,
                                  .source = x->data,
                                  .name = settings->data.name,
                                  .info = x->data_info,
                                  .split = DPB_TRAIN,
                                  .batch = x->batch,
                                  .n_workers = x->n_workers,
                                  .threads = (uint32_t)settings->data.threads,
                                  .timeout_ns = settings->run.timeout_ns,
                                  .accumulate = x->accumulate,
                                  .shuffle = settings->data.shuffle,
                                  .sharded = settings->data.shard,
                                  .seed = (uint64_t)settings->run.seed,
                                  .start = x->start};
}

/* ---- what others ask ----------------------------------------------------------------------- */

json_t *dpb_experiment_effective(const struct dpb_experiment *experiment)
{
    return dpb_options_effective(experiment->tables, experiment->n_tables, experiment->config);
}

/* As the strategy promises, which has not planned yet. */
static bool arenas_on_device(const struct dpb_experiment *experiment)
{
    return dpb_experiment_has_device_memory(experiment) &&
           (dpb_experiment_promises(experiment) &
            (DPB_COMM_DEVICE | DPB_COMM_EVENTS | DPB_COMM_EITHER));
}

/* Weights, gradients, and what they pass through; optimizer state as if all of it were the
 * worker's. */
uint64_t dpb_experiment_device_memory(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    uint64_t n = experiment->graph->n_elements, arena = n * dpb_dtype_size(experiment->weight_type);
    uint64_t total = arena + n * dpb_dtype_size(experiment->gradient_type);
    if (!arenas_on_device(experiment) || settings->run.mode == DPB_MODE_COMM)
        return 0;
    total += dpb_optimizer_state_name(&settings->optimizer) ? arena : 0;
    total += experiment->accumulate > 1 ? arena : 0;
    return total + (experiment->gradient_type != experiment->weight_type ? arena : 0);
}

uint64_t dpb_experiment_bucket_elements(const struct dpb_experiment *experiment)
{
    size_t element = dpb_dtype_size(experiment->gradient_type);
    uint64_t bytes = experiment->settings.comm.bucket;
    return bytes < element ? 1 : bytes / element;
}

struct dpb_comm_memory dpb_experiment_strategy_memory(const struct dpb_experiment *experiment,
                                                      uint32_t rank)
{
    const struct dpb_comm_ops *ops = experiment->plugins[DPB_PLUGIN_COMM]->ops;
    const bool worker = rank < experiment->n_workers;
    const struct dpb_layout layout = {.n_elements = experiment->graph->n_elements,
                                      .weight_type = experiment->weight_type,
                                      .gradient_type = experiment->gradient_type};
    const struct dpb_comm_args args = {.rank = rank,
                                       .n_workers = experiment->n_workers,
                                       .n_servers = experiment->n_servers,
                                       .role = worker ? DPB_WORKER : DPB_SERVER,
                                       .bucket_bytes = experiment->settings.comm.bucket,
                                       .machines = experiment->machines,
                                       .n_machines = experiment->n_machines};
    struct dpb_comm_memory memory = {0};
    if (ops->memory && experiment->settings.run.mode == DPB_MODE_TRAIN)
        ops->memory(experiment->options[DPB_PLUGIN_COMM], &args, &layout,
                    dpb_experiment_bucket_elements(experiment), &memory);
    if (!worker || !arenas_on_device(experiment))
        memory.device_bytes = 0;
    return memory;
}

uint64_t dpb_experiment_memory(const struct dpb_experiment *experiment, uint32_t rank)
{
    const struct dpb_graph *graph = experiment->graph;
    const struct dpb_settings *settings = &experiment->settings;
    if (settings->run.mode == DPB_MODE_COMM)
        return dpb_comm_memory(experiment, rank);
    uint64_t arena = graph->n_elements * dpb_dtype_size(experiment->weight_type);
    bool has_state = dpb_optimizer_state_name(&settings->optimizer) != NULL;
    bool on_device = arenas_on_device(experiment);
    uint64_t total = arena * (has_state ? 2 : 1);
    if (rank >= experiment->n_workers)
        return total;
    if (on_device) /* of an arena for core to look at, and of the state for checkpoints */
        total = arena * (has_state && settings->checkpoint.save[0] ? 2 : 1);
    const struct dpb_compile_args compile = {.graph = graph,
                                             .batch = experiment->batch,
                                             .precision = (dpb_precision)settings->run.precision,
                                             .training = settings->run.mode == DPB_MODE_TRAIN,
                                             .format = &experiment->data_info.format,
                                             .on_device = on_device};
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    if (!on_device)
        total += arena * (experiment->accumulate > 1 ? 2 : 1);
    total += device->memory_needed(experiment->options[DPB_PLUGIN_DEVICE], &compile);
    return total +
           4 * (uint64_t)experiment->batch * dpb_sample_bytes(&experiment->data_info.format);
}

struct dpb_journal_shape dpb_experiment_journal_shape(const struct dpb_experiment *experiment)
{
    if (experiment->settings.run.mode == DPB_MODE_COMM)
        return (struct dpb_journal_shape){0};
    return (struct dpb_journal_shape){.head_bytes = offsetof(struct dpb_journal, records),
                                      .count_at = offsetof(struct dpb_journal, n_records),
                                      .record_bytes = sizeof(struct dpb_record),
                                      .time_at = offsetof(struct dpb_record, begin_ns)};
}

size_t dpb_experiment_journal_bytes(const struct dpb_experiment *experiment)
{
    /* The gate may take a while, a run by the clock may be quick: the memory is sparse, what is not
     * written costs nothing. */
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
    return sizeof(struct dpb_journal) + records * sizeof(struct dpb_record);
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
        const char *const *variable = experiment->plugins[kind]->thread_variables;
        for (; variable && *variable && n < SLOTS; variable++, n++) {
            names[n] = text + n * TEXT;
            snprintf(names[n], TEXT, "%s=%u", *variable, threads);
        }
    }
    return (const char *const *)names;
}
