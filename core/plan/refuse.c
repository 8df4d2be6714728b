/* refuse.c - see refuse.h. */
#include "plan/refuse.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/layout.h"
#include "launch/party.h"
#include "measure/journal.h"
#include "optim/schedule.h"
#include "plan/estimate.h"
#include "plan/refuse_plugins.h"
#include "plan/unused.h"

enum { MAX_BUCKETS = 1 << 20 };

static bool given(const struct dpb_experiment *experiment, const char *section, const char *key)
{
    return dpb_config_get(experiment->config, section, key) != NULL;
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
    const char *first = NULL;
    if (!dpb_mode_has_steps(experiment->settings.run.mode))
        return DPB_OK; /* of sizes, not of the run */
    for (size_t i = 0; dpb_run_lengths[i]; i++) {
        const char *key = dpb_run_lengths[i];
        if (!given(experiment, "run", key))
            continue;
        if (first)
            return dpb_config_fail(experiment->config, DPB_USAGE, "run", key,
                                   "run.%s is given beside run.%s (%s); a run has exactly one of "
                                   "run.steps, run.seconds and run.epochs",
                                   key, first, dpb_config_origin(experiment->config, "run", first));
        first = key;
    }
    return first ? DPB_OK
                 : dpb_fail(DPB_USAGE,
                            "%s: how long is the run? Give one of run.steps, run.seconds and "
                            "run.epochs",
                            place_for(experiment, "run"));
}

/* Two forms of one setting. */
static dpb_status check_one_of(const struct dpb_experiment *experiment)
{
    static const char *const rows[][3] = {{"run", "global_batch", "batch"},
                                          {"comm_test", "iterations", "seconds"},
                                          {"eval", "every_epochs", "every"},
                                          {"eval", "target_loss", "target"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (given(experiment, rows[i][0], rows[i][1]) && given(experiment, rows[i][0], rows[i][2]))
            return dpb_config_fail(experiment->config, DPB_USAGE, rows[i][0], rows[i][1],
                                   "%s.%s is given beside %s.%s (%s); give one", rows[i][0],
                                   rows[i][1], rows[i][0], rows[i][2],
                                   dpb_config_origin(experiment->config, rows[i][0], rows[i][2]));
    return DPB_OK;
}

/* Sizes of comm_test that are listed leave nothing to a range. */
static dpb_status check_sizes(const struct dpb_experiment *experiment)
{
    static const char *const range[] = {"min_bytes", "max_bytes", "step_factor"};
    const struct dpb_setting *sizes = dpb_config_get(experiment->config, "comm_test", "sizes");
    for (size_t i = 0; i < sizeof range / sizeof *range && sizes && sizes->value[0]; i++) {
        const struct dpb_setting *one = dpb_config_get(experiment->config, "comm_test", range[i]);
        if (one)
            DPB_TRY(dpb_unused(one, dpb_turned_off(one, sizes), ": comm_test.sizes (%s) lists them",
                               sizes->origin));
    }
    return DPB_OK;
}

static dpb_status check_optimizer(const struct dpb_experiment *experiment)
{
    const struct dpb_optimizer_settings *optimizer = &experiment->settings.optimizer;
    const int kind = optimizer->kind;
    if ((kind == DPB_ADAMW || kind == DPB_LAMB) && !optimizer->decoupled_decay)
        return dpb_config_fail(
            experiment->config, DPB_USAGE, "optimizer", "decoupled_decay",
            "optimizer.decoupled_decay = no beside optimizer.name = %s, which decouples it; leave "
            "it out, or take optimizer.name = adam",
            dpb_optimizer_names[kind]);
    if (optimizer->nesterov && optimizer->momentum == 0.0)
        return dpb_config_fail(experiment->config, DPB_USAGE, "optimizer", "nesterov",
                               "optimizer.nesterov = yes with optimizer.momentum = 0 is plain sgd; "
                               "give a momentum or leave nesterov out");
    return DPB_OK;
}

/* Whether the schedule exists: its rates also need the steps of an epoch, known from the data. */
static dpb_status check_schedule(const struct dpb_experiment *experiment)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    const bool is_known = run->epochs > 0 || (run->steps > 0 && run->steady_limit_ns == 0);
    struct dpb_schedule schedule;
    if (!dpb_mode_has_steps(run->mode))
        return DPB_OK;
    return dpb_schedule_make(&experiment->settings.optimizer, experiment->global_batch, 1, is_known,
                             &schedule);
}

static dpb_status check_forward_mode(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    if (settings->run.mode != DPB_MODE_FORWARD)
        return DPB_OK;
    if (!(experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE))
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "run", "mode",
                               "run.mode = forward exchanges nothing: comm '%s' (%s) cannot be "
                               "used with it; leave comm.name out or say independent",
                               settings->comm.name,
                               dpb_config_origin(experiment->config, "comm", "name"));
    if (settings->run.accumulate > 1 || settings->run.prove || settings->comm.late > 0 ||
        settings->eval.every > 0 || settings->eval.every_epochs > 0 || settings->eval.final ||
        settings->checkpoint.save[0])
        return dpb_config_fail(
            experiment->config, DPB_UNSUPPORTED, "run", "mode",
            "run.mode = forward trains nothing: run.accumulate, run.prove, comm.late, [eval] and "
            "checkpoint.save have no meaning in it; leave them out");
    return DPB_OK;
}

/* Modes that commands set, and no user. */
static dpb_status check_mode(const struct dpb_experiment *experiment)
{
    static const char *const commands[] = {[DPB_MODE_EVALUATE] = DPB_EVALUATE_ORIGIN,
                                           [DPB_MODE_COMM] = DPB_COMM_ORIGIN,
                                           [DPB_MODE_NETWORK] = DPB_NETWORK_ORIGIN,
                                           [DPB_MODE_DATA] = DPB_DATA_ORIGIN};
    const int mode = experiment->settings.run.mode;
    if (commands[mode] &&
        strcmp(dpb_config_origin(experiment->config, "run", "mode"), commands[mode]) != 0)
        return dpb_config_fail(experiment->config, DPB_USAGE, "run", "mode",
                               "run.mode = %s is no way to run an experiment; say `%s`",
                               dpb_config_get(experiment->config, "run", "mode")->value,
                               commands[mode]);
    if (mode == DPB_MODE_COMM &&
        (experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE))
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "comm", "name",
                               "comm '%s' exchanges nothing that could be measured; take another "
                               "by comm.name=NAME (`dpbench help comm` lists them)",
                               experiment->settings.comm.name);
    return DPB_OK;
}

static dpb_status check_place(const struct dpb_experiment *experiment)
{
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE];
    const struct dpb_plugin *data = experiment->plugins[DPB_PLUGIN_DATA];
    if (experiment->settings.data.place == DPB_PLACE_HOST)
        return DPB_OK;
    if (!(device->capabilities & DPB_DEVICE_POOL))
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "data", "place",
                               "data.place = device: device '%s' keeps no samples in memory of its "
                               "own; leave data.place out",
                               device->name);
    if (!((const struct dpb_data_ops *)data->ops)->pool)
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "data", "place",
                               "data.place = device: data '%s' reads its samples as they are "
                               "needed; leave data.place out, or take data.name = synthetic",
                               data->name);
    return DPB_OK;
}

static dpb_status check_scaled(const struct dpb_experiment *experiment)
{
    if (experiment->settings.comm.gradient == DPB_FP16 + 1 &&
        experiment->settings.run.precision == DPB_PRECISION_FP16)
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "comm", "gradient",
                               "comm.gradient = fp16 beside run.precision = fp16: its gradients "
                               "are those of a multiplied loss, whose sums would not fit in fp16; "
                               "take comm.gradient = fp32 or bf16");
    return DPB_OK;
}

static dpb_status check_profile(const struct dpb_experiment *experiment)
{
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE];
    if (experiment->settings.run.profile && !((const struct dpb_device_ops *)device->ops)->profile)
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "run", "profile",
                               "device '%s' keeps no account of its ops; leave run.profile out",
                               device->name);
    return DPB_OK;
}

static dpb_status check_trace(const struct dpb_experiment *experiment)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    if (run->trace[0] && !dpb_mode_has_steps(run->mode))
        return dpb_config_fail(
            experiment->config, DPB_UNSUPPORTED, "run", "trace",
            "run.trace needs the steps of a training, and `%s` has none; leave it out",
            dpb_config_origin(experiment->config, "run", "mode"));
    return DPB_OK;
}

static dpb_status check_monitor(const struct dpb_experiment *experiment)
{
    const int64_t interval_ns = experiment->settings.run.monitor_ns;
    if (interval_ns > 0 && interval_ns < 10000000)
        return dpb_config_fail(experiment->config, DPB_USAGE, "run", "monitor",
                               "run.monitor = %g s would measure itself; give 10 ms or more",
                               (double)interval_ns * 1e-9);
    if (interval_ns > INT64_C(60000000000))
        return dpb_config_fail(experiment->config, DPB_USAGE, "run", "monitor",
                               "run.monitor = %g s: the processors' energy counters may wrap twice "
                               "between samples; give 60 s or less",
                               (double)interval_ns * 1e-9);
    if (interval_ns > 0 && !dpb_mode_has_steps(experiment->settings.run.mode))
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "run", "monitor",
                               "run.monitor needs a training, and `%s` has none; leave it out",
                               dpb_config_origin(experiment->config, "run", "mode"));
    return DPB_OK;
}

static dpb_status check_checkpoint(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_model_ops *model = experiment->plugins[DPB_PLUGIN_MODEL]->ops;
    const struct dpb_file_layout *layout;
    char path[PATH_MAX];
    if (!dpb_layout_find(model->layout, settings->checkpoint.layout, &layout))
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "checkpoint", "layout",
                               "checkpoint.layout = %s: model '%s' has no such layout; take "
                               "dpbench%s%s",
                               settings->checkpoint.layout, settings->model.name,
                               model->layout ? " or " : "",
                               model->layout ? model->layout->name : "");
    const bool in_files = settings->checkpoint.place == DPB_CHECKPOINT_FILE;
    const bool has_points = settings->checkpoint.at[0] || settings->checkpoint.every;
    if (!in_files && (!has_points || settings->run.restart == 0))
        return dpb_config_fail(
            experiment->config, DPB_USAGE, "checkpoint", "place",
            "checkpoint.place = peer keeps checkpoints for run.restart while the "
            "job lives; give run.restart and checkpoint.every, or leave it out");
    if (!dpb_snapshot_path(settings->checkpoint.save, UINT64_MAX, path, sizeof path))
        return dpb_config_fail(experiment->config, DPB_USAGE, "checkpoint", "save",
                               "checkpoint.save: the path is too long");
    return DPB_OK;
}

static dpb_status check_target(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const char *key = settings->eval.target > 0        ? "target"
                      : settings->eval.target_loss > 0 ? "target_loss"
                                                       : NULL;
    if (key && settings->eval.every == 0 && settings->eval.every_epochs == 0)
        return dpb_config_fail(experiment->config, DPB_USAGE, "eval", key,
                               "eval.%s is looked at after each evaluation: give eval.every, too",
                               key);
    return DPB_OK;
}

static dpb_status check_image(const struct dpb_experiment *experiment)
{
    const struct dpb_model_info *info = &experiment->model_info;
    int64_t image = experiment->settings.model.image;
    if (image && !info->any_image && (image != info->input.h || image != info->input.w))
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "model", "image",
                               "model '%s' takes images of %u x %u only; leave model.image out",
                               experiment->settings.model.name, info->input.h, info->input.w);
    return DPB_OK;
}

/* Learners share the resources of one machine. */
static dpb_status check_learners(const struct dpb_experiment *experiment)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    const int64_t cores = experiment->settings.device.threads + run->comm_cores;
    const uint32_t learners = (uint32_t)run->learners;
    for (uint32_t rank = 0; rank < experiment->n_workers; rank++) {
        const uint32_t first = rank - rank % learners;
        if (experiment->machines[rank] != experiment->machines[first])
            return dpb_config_fail(
                experiment->config, DPB_USAGE, "run", "learners",
                "run.learners = %u: workers %u and %u share a place, but are on two machines; give "
                "each machine a multiple of %u workers, with consecutive ranks",
                learners, first, rank, learners);
    }
    if (experiment->settings.device.threads > 0 && cores < run->learners * (1 + run->comm_cores))
        return dpb_config_fail(
            experiment->config, DPB_USAGE, "run", "learners",
            "run.learners = %u share the %lld cores of a place (device.threads = %lld, %s), and "
            "each needs %lld; take fewer learners, or more threads",
            learners, (long long)cores, (long long)experiment->settings.device.threads,
            dpb_config_origin(experiment->config, "device", "threads"),
            1 + (long long)run->comm_cores);
    return DPB_OK;
}

dpb_status dpb_refuse_settings(const struct dpb_experiment *experiment)
{
    static dpb_status (*const checks[])(const struct dpb_experiment *) = {
        dpb_unused_by_needs, check_sizes,      check_one_of,       check_length,
        check_optimizer,     check_schedule,   check_forward_mode, dpb_refuse_strategy,
        check_image,         check_checkpoint, check_target,       check_profile,
        check_mode,          check_place,      check_scaled,       check_trace,
        check_monitor,       check_learners};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        DPB_TRY(checks[i](experiment));
    return DPB_OK;
}

/* Where the number of steps to come is known. Other runs count evaluations as they come. */
static dpb_status check_evaluations(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const double every = experiment->evaluate_every;
    const bool continued = settings->checkpoint.load[0] != '\0';
    if (every == 0 || settings->eval.target > 0 || settings->eval.target_loss > 0 ||
        (continued && !settings->run.steps))
        return DPB_OK;
    const uint64_t steps = settings->run.steps
                               ? (uint64_t)(settings->run.warmup_steps + settings->run.steps)
                               : (uint64_t)settings->run.epochs * experiment->steps_per_epoch;
    const double n = fmin(floor((double)steps / every), (double)steps) +
                     (settings->eval.final && !dpb_experiment_evaluates(experiment, steps));
    if (n <= DPB_JOURNAL_EVALS)
        return DPB_OK;
    const uint64_t least = steps / DPB_JOURNAL_EVALS + 1; /* steps between two */
    const double unit = settings->eval.every ? 1 : (double)experiment->steps_per_epoch;
    const char *key = settings->eval.every ? "every" : "every_epochs";
    return dpb_config_fail(experiment->config, DPB_USAGE, "eval", key,
                           "eval.%s = %.10g makes %.0f evaluations in %" PRIu64
                           " steps, and a result has room for %d; make it %.10g or more",
                           key, every / unit, n, steps, DPB_JOURNAL_EVALS, (double)least / unit);
}

dpb_status dpb_refuse_data(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_model_info *model = &experiment->model_info;
    const struct dpb_data_info *data = &experiment->data_info;
    struct dpb_shape shape = data->format.shape;
    if (settings->model.nclass && (uint64_t)settings->model.nclass != data->nclass)
        return dpb_config_fail(
            experiment->config, DPB_USAGE, "model", "nclass",
            "model.nclass = %lld, but data '%s' has %u classes; leave model.nclass out",
            (long long)settings->model.nclass, settings->data.name, data->nclass);
    if (model->ids && settings->model.image)
        return dpb_config_fail(experiment->config, DPB_USAGE, "model", "image",
                               "model.image is of images, model '%s' reads ids of tokens; give "
                               "data.length",
                               settings->model.name);
    const int64_t image = settings->model.image;
    const struct dpb_setting *asked = dpb_config_get(experiment->config, "model", "image");
    if (asked && image && (image != shape.h || image != shape.w))
        DPB_TRY(dpb_unused(
            asked, dpb_turned_off(asked, dpb_config_get(experiment->config, "data", "name")),
            ": the samples of data '%s' are %u x %u", settings->data.name, shape.h, shape.w));
    if (model->ids != (data->format.type == DPB_INT32))
        return dpb_config_fail(
            experiment->config, DPB_USAGE, "data", "name",
            "model '%s' reads %s, data '%s' has %s; take another model or other data",
            settings->model.name, model->ids ? "ids of tokens" : "images", settings->data.name,
            model->ids ? "images" : "ids of tokens");
    if ((!model->any_image && (shape.h != model->input.h || shape.w != model->input.w)) ||
        (!model->any_channels && shape.c != model->input.c))
        return dpb_config_fail(experiment->config, DPB_USAGE, "model", "name",
                               "model '%s' takes samples of %u x %u x %u, data '%s' has %u x %u x "
                               "%u; take another model or other data",
                               settings->model.name, model->input.c, model->input.h, model->input.w,
                               settings->data.name, shape.c, shape.h, shape.w);
    if (data->n_samples[DPB_TRAIN] < experiment->global_batch)
        return dpb_config_fail(
            experiment->config, DPB_USAGE, "run",
            given(experiment, "run", "global_batch") ? "global_batch" : "batch",
            "a global batch of %llu samples (%u x %u workers x %u micro-batches) is larger than "
            "the training set of data '%s' with %llu; make run.batch smaller",
            (unsigned long long)experiment->global_batch, experiment->batch, experiment->n_workers,
            experiment->accumulate, settings->data.name,
            (unsigned long long)data->n_samples[DPB_TRAIN]);
    const uint64_t n_tested = (uint64_t)settings->eval.batches * experiment->batch;
    if (n_tested > data->n_samples[DPB_TEST])
        return dpb_config_fail(
            experiment->config, DPB_USAGE, "eval", "batches",
            "eval.batches = %lld of %u samples are more than the test set of data '%s' with %llu; "
            "make it smaller, or leave it out",
            (long long)settings->eval.batches, experiment->batch, settings->data.name,
            (unsigned long long)data->n_samples[DPB_TEST]);
    if ((experiment->evaluate_every > 0 || settings->eval.final) && data->n_samples[DPB_TEST] == 0)
        return dpb_config_fail(experiment->config, DPB_USAGE, "eval",
                               settings->eval.final ? "final" : "every",
                               "data '%s' has no test set to evaluate on; leave eval.every and "
                               "eval.final out, or take other data",
                               settings->data.name);
    return check_evaluations(experiment);
}

dpb_status dpb_refuse_buckets(const struct dpb_experiment *experiment,
                              const struct dpb_graph *graph, uint64_t bucket_elements)
{
    const uint64_t n = (graph->n_elements + bucket_elements - 1) / bucket_elements;
    if (n <= MAX_BUCKETS)
        return DPB_OK;
    return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "comm", "bucket",
                           "comm.bucket = %llu bytes makes %llu buckets of %s, and a run has at "
                           "most %d; take a larger comm.bucket",
                           (unsigned long long)experiment->settings.comm.bucket,
                           (unsigned long long)n, graph->name, MAX_BUCKETS);
}

/* By the bucket that the strategy's plan is preset with or, with slots, rounds up. */
static dpb_status check_buckets(const struct dpb_experiment *experiment)
{
    const struct dpb_layout layout = dpb_experiment_layout(experiment, experiment->graph);
    const uint64_t bucket = dpb_experiment_bucket_elements(experiment);
    const bool slots = dpb_experiment_strategy_memory(experiment, 0).gradient_slots > 0;
    return dpb_refuse_buckets(experiment, experiment->graph,
                              slots ? dpb_slots_bucket(&layout, bucket) : bucket);
}

dpb_status dpb_refuse_network(const struct dpb_experiment *experiment)
{
    DPB_TRY(check_buckets(experiment));
    return dpb_refuse_shards(experiment);
}

dpb_status dpb_refuse_turns(const struct dpb_experiment *experiment)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE];
    const struct dpb_device_ops *ops = device->ops;
    uint32_t rank;
    const char *why =
        run->mode != DPB_MODE_TRAIN && run->mode != DPB_MODE_FORWARD ? "turns are of training steps"
        : ops->sharing ? "its kernels run on while its processes stand"
        : dpb_experiment_emulates(experiment)
            ? "device 'emulated' sleeps, and its time passes while its processes stand"
        : experiment->n_machines > 1        ? "it is on several machines"
        : dpb_party_is_here(&rank)          ? "mpirun, srun or torchrun starts its processes"
        : run->restart > 0                  ? "run.restart would start it again between two turns"
        : run->profile                      ? "run.profile would time ops that stand"
        : given(experiment, "run", "delay") ? "run.delay sleeps, and its time passes meanwhile"
                                            : NULL;
    return why ? dpb_fail(DPB_UNSUPPORTED, "this job cannot run in turns: %s", why) : DPB_OK;
}
