/* refuse.c - see refuse.h. */
#include "train/refuse.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "plugin/plugins.h"
#include "world/pmix.h"
#include "world/world.h"

static bool given(const struct dpb_experiment *experiment, const char *section, const char *key)
{
    return dpb_config_get(experiment->config, section, key) != NULL;
}

static const char *origin(const struct dpb_experiment *experiment, const char *section,
                          const char *key)
{
    return dpb_config_origin(experiment->config, section, key);
}

/* Where a setting of this section could stand: with the last one there is, or with the last of
 * all. */
static const char *place_for(const struct dpb_experiment *experiment, const char *section)
{
    const struct dpb_config *config = experiment->config;
    const char *place = "default";
    bool inside = false;
    for (size_t i = 0; i < config->n_settings; i++) {
        const struct dpb_setting *setting = &config->settings[i];
        bool fits = strcmp(setting->section, section) == 0;
        if (fits || !inside)
            place = setting->origin;
        inside = inside || fits;
    }
    return place;
}

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
    return first ? DPB_OK
                 : dpb_fail(DPB_USAGE,
                            "%s: how long is the run? Give one of run.steps, run.seconds and "
                            "run.epochs",
                            place_for(experiment, "run"));
}

static dpb_status check_optimizer(const struct dpb_experiment *experiment)
{
    const struct dpb_optimizer_settings *optimizer = &experiment->settings.optimizer;
    const bool adam = optimizer->kind == DPB_ADAM;
    if (optimizer->kind != DPB_SGD &&
        (optimizer->nesterov || given(experiment, "optimizer", "momentum")))
        return dpb_fail(
            DPB_USAGE,
            "%s: optimizer '%s' has no momentum%s; leave optimizer.momentum "
            "and optimizer.nesterov out, or use sgd",
            origin(experiment, "optimizer", optimizer->nesterov ? "nesterov" : "momentum"),
            adam ? "adam" : "adagrad", adam ? ", but optimizer.beta1" : "");
    if (optimizer->decoupled_decay && !adam)
        return dpb_fail(DPB_USAGE,
                        "%s: optimizer.decoupled_decay is of optimizer 'adam'; leave it out, or "
                        "say optimizer.name = adam",
                        origin(experiment, "optimizer", "decoupled_decay"));
    if (optimizer->nesterov && optimizer->momentum == 0.0)
        return dpb_fail(DPB_USAGE,
                        "%s: optimizer.nesterov = yes with optimizer.momentum = 0 is plain "
                        "sgd; give a momentum or leave nesterov out",
                        origin(experiment, "optimizer", "nesterov"));
    return DPB_OK;
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
    if (settings->run.accumulate > 1 || settings->run.prove || settings->comm.late > 0 ||
        settings->eval.every > 0 || settings->eval.final || settings->checkpoint.save[0])
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: run.mode = forward trains nothing: run.accumulate, "
                        "run.prove, comm.late, [eval] and checkpoint.save have no meaning in "
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

/* The strategies with the capabilities `needed`, for a message. */
static dpb_status refuse_carrier(const struct dpb_experiment *experiment, uint64_t needed)
{
    const bool rounds = needed & DPB_COMM_ROUNDS;
    struct dpb_plugin_row *rows = NULL;
    size_t n = 0, used = 0;
    char carriers[256] = "";
    DPB_TRY(dpb_plugin_list(&dpb_host, &rows, &n));
    for (size_t i = 0; i < n && used < sizeof carriers; i++)
        if (rows[i].kind == DPB_PLUGIN_COMM && rows[i].plugin &&
            (rows[i].plugin->capabilities & needed) == needed)
            used += (size_t)snprintf(carriers + used, sizeof carriers - used, " %s",
                                     rows[i].plugin->name);
    free(rows);
    return dpb_fail(DPB_UNSUPPORTED,
                    "%s: comm '%s' carries no codec%s, and comm.codec = %s; leave comm.codec out, "
                    "or take a comm.name that carries %s:%s",
                    origin(experiment, "comm", "codec"), experiment->settings.comm.name,
                    rounds ? " of two rounds" : "", experiment->codec.name,
                    rounds ? "these" : "codecs", carriers);
}

static dpb_status check_codec(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const int precision = settings->run.precision, gradient = settings->comm.gradient;
    const char *place = origin(experiment, "comm", "codec");
    if (!dpb_experiment_codec(experiment))
        return DPB_OK;
    const uint64_t needed = DPB_COMM_CODECS | (experiment->codec.ops->finish ? DPB_COMM_ROUNDS : 0);
    if ((experiment->plugins[DPB_PLUGIN_COMM]->capabilities & needed) != needed)
        return refuse_carrier(experiment, needed);
    if (settings->run.mode == DPB_MODE_COMM)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: `dpbench comm` measures sums that come out exactly, and comm.codec = "
                        "%s loses some of them; leave comm.codec out",
                        place, experiment->codec.name);
    if (precision == DPB_PRECISION_FP64 || precision == DPB_PRECISION_FP16 ||
        (gradient != 0 && gradient != DPB_FP32 + 1))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm.codec = %s encodes gradients in fp32 without a loss scale; leave "
                        "comm.gradient out, and take run.precision = fp32, tf32 or bf16",
                        place, experiment->codec.name);
    return DPB_OK;
}

/* That the strategy is synchronous shows when it plans: dpb_late_contract. */
static dpb_status check_late(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const char *place = origin(experiment, "comm", "late");
    if (settings->comm.late == 0)
        return DPB_OK;
    if (settings->run.mode == DPB_MODE_COMM)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: `dpbench comm` waits for the end of each exchange; leave comm.late "
                        "out",
                        place);
    if (dpb_experiment_codec(experiment))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm.late = 1 beside comm.codec = %s (%s): no contract is both late "
                        "and lossy; leave one of them out",
                        place, experiment->codec.name, origin(experiment, "comm", "codec"));
    if (settings->run.precision == DPB_PRECISION_FP16)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm.late = 1 with run.precision = fp16, which leaves out steps whose "
                        "gradients overflow: the step before would be more than one late; take "
                        "another precision",
                        place);
    if (dpb_experiment_arenas_on_device(experiment))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm.late = 1 needs weights and gradients on the host, and comm '%s' "
                        "keeps them in the memory of device '%s'; leave comm.late out, or take "
                        "another comm.name",
                        place, settings->comm.name, settings->device.name);
    return DPB_OK;
}

/* Whether the device has the memory and the queues that the strategy needs. */
static bool has_runtime(const struct dpb_experiment *experiment)
{
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    const char *needed = experiment->comm_needs.runtime;
    return !needed || (device->queues && (strcmp(needed, "any") == 0 ||
                                          strcmp(needed, device->queues->runtime) == 0));
}

static dpb_status check_comm(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_plugin *comm = experiment->plugins[DPB_PLUGIN_COMM];
    const char *because = experiment->comm_needs.because;
    if (settings->run.servers > 0 && !(comm->capabilities & DPB_COMM_SERVERS))
        return dpb_fail(DPB_UNSUPPORTED, "%s: comm '%s' has no servers; leave run.servers out",
                        origin(experiment, "run", "servers"), comm->name);
    if (settings->run.servers == 0 && (comm->capabilities & DPB_COMM_SERVED))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm '%s' keeps the model in server processes; give run.servers",
                        origin(experiment, "comm", "name"), comm->name);
    if (settings->run.comm_cores > 0 && !(comm->capabilities & DPB_COMM_OVERLAP))
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: comm '%s' has no work for communication cores; leave "
                        "run.comm_cores out",
                        origin(experiment, "run", "comm_cores"), comm->name);
    if (settings->run.comm_cores > 0 && experiment->comm_needs.takes_events &&
        dpb_experiment_arenas_on_device(experiment))
        return dpb_fail(
            DPB_UNSUPPORTED,
            "%s: what comm '%s' does is enqueued on the GPU by the loop's thread: there is "
            "no work for communication cores; leave run.comm_cores out",
            origin(experiment, "run", "comm_cores"), comm->name);
    if (!has_runtime(experiment))
        return dpb_fail(
            DPB_UNSUPPORTED,
            "%s: comm '%s'%s%s keeps weights and gradients in a GPU's memory, and device "
            "'%s' (%s) computes elsewhere; take a device.name that computes on GPUs, or "
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

/* Neither a launcher of mpirun's or srun's nor a rank of one of theirs, nor will it be. */
static bool started_locally(const struct dpb_experiment *experiment)
{
    if (strncmp(origin(experiment, "comm", "hosts"), DPB_LAUNCH_ORIGIN,
                sizeof DPB_LAUNCH_ORIGIN - 1) == 0)
        return false;
    return dpb_world.board ? !dpb_world.parted : !dpb_pmix_is_here();
}

static dpb_status check_launcher(const struct dpb_experiment *experiment)
{
    const char *because = experiment->comm_needs.because;
    if (dpb_experiment_needs_launcher(experiment) && started_locally(experiment))
        return dpb_fail(
            DPB_UNSUPPORTED,
            "%s: comm '%s'%s%s works under mpirun or srun only: start dpbench by one of "
            "them, or take another %s",
            origin(experiment, "comm", "name"), experiment->settings.comm.name,
            because ? " with " : "", because ? because : "", because ? "way" : "strategy");
    return DPB_OK;
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

static dpb_status check_trace(const struct dpb_experiment *experiment)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    if (run->trace[0] && run->mode == DPB_MODE_COMM)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: run.trace is of the steps of a training, and `dpbench comm` has none; "
                        "leave it out",
                        origin(experiment, "run", "trace"));
    if (!run->trace[0] && given(experiment, "run", "trace_steps"))
        return dpb_fail(DPB_USAGE, "%s: run.trace_steps without run.trace: give the trace's file",
                        origin(experiment, "run", "trace_steps"));
    return DPB_OK;
}

static dpb_status check_monitor(const struct dpb_experiment *experiment)
{
    const int64_t interval_ns = experiment->settings.run.monitor_ns;
    if (interval_ns > 0 && interval_ns < 10000000)
        return dpb_fail(DPB_USAGE,
                        "%s: run.monitor = %g s would measure itself; give 10 ms or more",
                        origin(experiment, "run", "monitor"), (double)interval_ns * 1e-9);
    if (interval_ns > INT64_C(60000000000))
        return dpb_fail(DPB_USAGE,
                        "%s: run.monitor = %g s: the processors' energy counters may wrap twice "
                        "between samples; give 60 s or less",
                        origin(experiment, "run", "monitor"), (double)interval_ns * 1e-9);
    if (interval_ns > 0 && experiment->settings.run.mode == DPB_MODE_COMM)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s: run.monitor is of a training, and `dpbench comm` has none; leave it "
                        "out",
                        origin(experiment, "run", "monitor"));
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

dpb_status dpb_refuse_settings(const struct dpb_experiment *experiment)
{
    static dpb_status (*const checks[])(const struct dpb_experiment *) = {
        check_length,     check_optimizer, check_forward_mode, check_comm,     check_image,
        check_checkpoint, check_target,    check_profile,      check_machines, check_comm_mode,
        check_launcher,   check_place,     check_loss_scale,   check_codec,    check_late,
        check_trace,      check_monitor};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        DPB_TRY(checks[i](experiment));
    return DPB_OK;
}

dpb_status dpb_refuse_data(const struct dpb_experiment *experiment)
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
