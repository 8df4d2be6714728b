/* refuse_plugins.c - see refuse_plugins.h. */
#include "plan/refuse_plugins.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "launch/environment.h"
#include "plan/contract.h"
#include "plan/estimate.h"
#include "plan/host.h"
#include "plan/unused.h"
#include "plugin/plugins.h"
#include "world/pmix.h"
#include "world/world.h"

/* A combination that cannot work, at the place of a setting. */
#define refuse(experiment, section, key, ...) \
    dpb_config_fail((experiment)->config, DPB_UNSUPPORTED, section, key, __VA_ARGS__)

/* ---- options of plugins that were not chosen ----------------------------------------------- */

enum { NAMES = 512 }; /* bytes of a list for a message; what does not fit is cut */

/* The plugins of the kinds (bits 1 << kind) that `wanted` picks: a blank stands before each name;
 * "" where it picks none. */
static dpb_status list_plugins(uint32_t kinds,
                               bool (*wanted)(const struct dpb_plugin *plugin, const void *of),
                               const void *of, char names[NAMES])
{
    struct dpb_plugin_row *rows = NULL;
    size_t n = 0;
    struct dpb_text text = dpb_text_in(names, NAMES);
    DPB_TRY(dpb_plugin_list(&dpb_host, kinds, NULL, &rows, &n));
    for (size_t i = 0; i < n; i++)
        if (rows[i].plugin && wanted(rows[i].plugin, of))
            dpb_text_add(&text, " %s", rows[i].plugin->name);
    free(rows);
    return DPB_OK;
}

static bool has_option(const struct dpb_plugin *plugin, const void *key)
{
    return dpb_options_find(plugin->options, key) != NULL;
}

/* " topk (comm.codec)": the plugins of the setting's section with this option, and the setting that
 * chooses one; whether the command line chose another than a file. */
static dpb_status name_owners(const struct dpb_config *config, const struct dpb_setting *setting,
                              char owners[NAMES], bool *turned_off)
{
    const char *section = setting->section, *key = setting->key;
    struct dpb_text text = dpb_text_in(owners, NAMES);
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        char names[NAMES];
        if (!(dpb_plugin_kinds_in(section) & (1u << kind)))
            continue;
        DPB_TRY(list_plugins(1u << kind, has_option, key, names));
        if (names[0] == '\0')
            continue;
        dpb_text_item(&text, ",", "%s (%s.%s)", names, section, dpb_plugin_place[kind].key);
        const struct dpb_setting *by = dpb_config_get(config, section, dpb_plugin_place[kind].key);
        *turned_off |= by && by->from != DPB_FROM_AXIS && dpb_turned_off(setting, by);
    }
    return DPB_OK;
}

/* True in `drops`: the command line chose another plugin than the file, which has the option. */
static dpb_status check_owner(const struct dpb_experiment *experiment,
                              const struct dpb_setting *setting, bool *drops)
{
    char owners[NAMES];
    for (size_t t = 0; t < experiment->n_tables; t++)
        if (strcmp(experiment->tables[t].section, setting->section) == 0 &&
            dpb_options_find(experiment->tables[t].rows, setting->key))
            return DPB_OK;
    DPB_TRY(name_owners(experiment->config, setting, owners, drops));
    if (owners[0] == '\0')
        return DPB_OK;
    char here[NAMES];
    struct dpb_text text = dpb_text_in(here, sizeof here);
    for (int kind = 0; kind < DPB_PLUGIN_KINDS; kind++)
        if (experiment->plugins[kind] &&
            strcmp(dpb_plugin_place[kind].section, setting->section) == 0)
            dpb_text_item(&text, " and", " %s '%s'", dpb_plugin_kind_name[kind],
                          experiment->plugins[kind]->name);
    if (*drops)
        return dpb_unused(setting, true, ": %s has no such option; it is one of%s", here + 1,
                          owners);
    return dpb_fail(DPB_USAGE, "%s: unknown option '%s' for%s; it is an option of%s",
                    setting->origin, setting->key, here, owners);
}

dpb_status dpb_refuse_unknown(struct dpb_experiment *experiment)
{
    struct dpb_config *config = experiment->config;
    for (size_t i = config->n_settings; i-- > 0;) {
        const struct dpb_setting *setting = &config->settings[i];
        bool drops = false;
        DPB_TRY(check_owner(experiment, setting, &drops));
        if (drops)
            dpb_config_remove(config, setting->section, setting->key);
    }
    return DPB_OK;
}

/* ---- what a strategy excludes -------------------------------------------------------------- */

static bool promises(const struct dpb_plugin *plugin, const void *needed)
{
    const uint64_t capabilities = *(const uint64_t *)needed;
    return (plugin->capabilities & capabilities) == capabilities;
}

static dpb_status list_comms(uint64_t needed, char comms[NAMES])
{
    return list_plugins(1u << DPB_PLUGIN_COMM, promises, &needed, comms);
}

static dpb_status refuse_carrier(const struct dpb_experiment *experiment, uint64_t needed)
{
    const char *with = experiment->comm_needs.no_codec;
    const bool other = !with && experiment->plugins[DPB_PLUGIN_COMM]->capabilities &
                                    (DPB_COMM_CODECS | DPB_COMM_ROUNDS);
    char carriers[NAMES];
    DPB_TRY(list_comms(needed, carriers));
    return refuse(experiment, "comm", "codec",
                  "comm '%s'%s%s carries no codec%s, and comm.codec = %s; leave comm.codec out, or "
                  "take a comm.name that carries %s:%s",
                  experiment->settings.comm.name, with ? " with " : "", with ? with : "",
                  !other                     ? ""
                  : needed & DPB_COMM_ROUNDS ? " of two rounds"
                                             : " whose messages cannot be added",
                  experiment->codec.name, other ? "these" : "codecs", carriers);
}

/* The codec's velocity takes the place of the optimizer's. */
static dpb_status check_velocity(const struct dpb_experiment *experiment)
{
    const struct dpb_optimizer_settings *optimizer = &experiment->settings.optimizer;
    const struct dpb_codec *codec = &experiment->codec;
    const bool own = optimizer->kind == DPB_SGD || optimizer->kind == DPB_RMSPROP
                         ? optimizer->momentum > 0
                         : optimizer->kind != DPB_ADAGRAD;
    if (!own || !codec->ops->velocity || !codec->ops->velocity(codec->options))
        return DPB_OK;
    return refuse(experiment, "comm", "codec",
                  "comm.codec = %s keeps a velocity on each worker, and the optimizer has one, "
                  "too: gradients would have momentum twice; take optimizer.name = sgd with "
                  "optimizer.momentum = 0",
                  codec->name);
}

static bool device_codes(const struct dpb_experiment *experiment)
{
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    return device->queues->coding_bytes &&
           device->queues->coding_bytes(&experiment->codec, 1) != UINT64_MAX;
}

static dpb_status check_codec(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const int precision = settings->run.precision, gradient = settings->comm.gradient;
    if (!dpb_experiment_codec(experiment))
        return DPB_OK;
    const uint64_t needed = experiment->codec.ops->finish ? DPB_COMM_ROUNDS : DPB_COMM_CODECS;
    if (experiment->comm_needs.no_codec ||
        (experiment->plugins[DPB_PLUGIN_COMM]->capabilities & needed) != needed)
        return refuse_carrier(experiment, needed);
    if (dpb_experiment_arenas_on_device(experiment) && !device_codes(experiment))
        return refuse(
            experiment, "comm", "codec",
            "comm '%s' encodes where the gradients lie, and device '%s' has no kernels for "
            "comm.codec = %s; take another codec, or a comm.name that carries it on the host",
            settings->comm.name, settings->device.name, experiment->codec.name);
    if (settings->run.mode == DPB_MODE_COMM)
        return refuse(experiment, "comm", "codec",
                      "`dpbench comm` measures sums that come out exactly, and comm.codec = %s "
                      "loses some of them; leave comm.codec out",
                      experiment->codec.name);
    if (precision == DPB_PRECISION_FP64 || precision == DPB_PRECISION_FP16 ||
        (gradient != 0 && gradient != DPB_FP32 + 1))
        return refuse(experiment, "comm", "codec",
                      "comm.codec = %s encodes gradients in fp32 without a loss scale; leave "
                      "comm.gradient out, and take run.precision = fp32, tf32 or bf16",
                      experiment->codec.name);
    return check_velocity(experiment);
}

/* The option of [optimizer] that asks for norms of whole tensors, where one does. */
static const char *norms_key(const struct dpb_experiment *experiment)
{
    return dpb_optimizer_by_tensor(&experiment->settings.optimizer) ? "name" : "clip_norm";
}

static dpb_status check_norms(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    char comms[NAMES], what[64] = "optimizer.clip_norm";
    if (dpb_optimizer_by_tensor(&settings->optimizer))
        snprintf(what, sizeof what, "optimizer '%s'",
                 dpb_optimizer_names[settings->optimizer.kind]);
    if (!dpb_experiment_comm_args(experiment, 0).whole)
        return DPB_OK;
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    if (dpb_experiment_arenas_on_device(experiment) && !device->queues->squares)
        return refuse(experiment, "optimizer", norms_key(experiment),
                      "%s takes norms of weights and gradients, comm '%s' keeps them in the memory "
                      "of device '%s', and the device takes none; take another of them",
                      what, settings->comm.name, settings->device.name);
    if (experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_WHOLE)
        return DPB_OK;
    DPB_TRY(list_comms(DPB_COMM_WHOLE, comms));
    return refuse(experiment, "optimizer", norms_key(experiment),
                  "%s needs all mean gradients on one rank before it updates, and comm '%s' does "
                  "not bring them there; take another optimizer, or a comm.name that does:%s",
                  what, settings->comm.name, comms);
}

/* The first server that shares its machine with no worker; UINT32_MAX: none. */
static uint32_t server_apart(const struct dpb_experiment *experiment)
{
    const uint32_t n_workers = experiment->n_workers;
    for (uint32_t rank = n_workers; rank < n_workers + experiment->n_servers; rank++) {
        uint32_t worker = 0;
        while (worker < n_workers && experiment->machines[worker] != experiment->machines[rank])
            worker++;
        if (worker == n_workers)
            return rank;
    }
    return UINT32_MAX;
}

/* comm.codec_back is an option of ps_cpu. */
static dpb_status check_back(const struct dpb_experiment *experiment)
{
    const struct dpb_setting *back = dpb_config_get(experiment->config, "comm", "codec_back");
    const struct dpb_codec *codec = dpb_experiment_codec(experiment);
    bool coded = false;
    if (!codec || !back || !dpb_parse_bool(back->value, &coded) || !coded)
        return DPB_OK;
    const uint32_t apart = server_apart(experiment);
    if (apart != UINT32_MAX)
        return refuse(experiment, "comm", "codec_back",
                      "comm.codec_back = %s, and server rank %u is on a machine without workers: "
                      "its residual is in no checkpoint and in no proof; take run.servers = 0, "
                      "with shards in the workers, or another comm.hosts",
                      back->value, apart);
    if (!codec->options->feedback)
        return refuse(experiment, "comm", "codec_back",
                      "comm.codec_back = %s keeps a residual on the way back, and "
                      "comm.codec_feedback = no keeps none; leave one of them out",
                      back->value);
    return DPB_OK;
}

/* What comm.shard does not go with, and why. */
struct apart {
    bool given;
    const char *section, *key, *why;
};

static dpb_status refuse_apart(const struct dpb_experiment *experiment, const struct apart *rows,
                               size_t n, const char *what)
{
    const struct dpb_config *config = experiment->config;
    for (const struct apart *row = rows; row < rows + n; row++)
        if (row->given)
            return refuse(experiment, "comm", "shard",
                          "comm.shard = %s %s, and %s (%s.%s: %s); take comm.shard = optimizer",
                          dpb_config_get(config, "comm", "shard")->value, what, row->why,
                          row->section, row->key,
                          dpb_config_origin(config, row->section, row->key));
    return DPB_OK;
}

/* The settings that do not go with slots of gradients, and why. */
static dpb_status check_slots(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const bool keeps = experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_WHOLE_SHARDS;
    const struct apart apart[] = {
        {settings->run.mode == DPB_MODE_COMM, "comm", "shard",
         "`dpbench comm` looks at the gradients of all buckets"},
        {experiment->accumulate > 1 && !keeps, "run", "accumulate",
         "its owners keep no sums over micro-batches"},
        {experiment->accumulate > 1 &&
             (settings->comm.gradient == DPB_BF16 + 1 || settings->comm.gradient == DPB_FP16 + 1),
         "comm", "gradient", "owners would round sums over micro-batches to this type"},
        {settings->run.precision == DPB_PRECISION_FP16, "run", "precision",
         "fp16 keeps all gradients until they are known to be finite"},
        {settings->comm.late > 0, "comm", "late", "a late exchange keeps all gradients of a step"},
        {(experiment->plugins[DPB_PLUGIN_DEVICE]->capabilities & DPB_DEVICE_NODE_BY_NODE) == 0,
         "device", "name", "the device does not write gradients node by node on the host"},
    };
    return refuse_apart(experiment, apart, sizeof apart / sizeof *apart,
                        "keeps gradients in slots of a few buckets");
}

/* The same for weights that are here while they are read. */
static dpb_status check_parameters(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct apart apart[] = {
        {settings->run.mode == DPB_MODE_COMM, "comm", "shard",
         "`dpbench comm` has no passes that read weights"},
        {experiment->accumulate > 1, "run", "accumulate",
         "each micro-batch would fetch all weights twice"},
        {settings->run.precision == DPB_PRECISION_FP16, "run", "precision",
         "fp16 keeps all gradients until they are known to be finite"},
        {settings->comm.late > 0, "comm", "late", "a late exchange has a second arena of weights"},
        {settings->run.comm_cores > 0, "run", "comm_cores",
         "weights are fetched on the loop's thread"},
        {dpb_optimizer_needs_norms(&settings->optimizer), "optimizer", norms_key(experiment),
         "norms of whole tensors take the sums of all buckets"},
        {(experiment->plugins[DPB_PLUGIN_DEVICE]->capabilities & DPB_DEVICE_NODE_BY_NODE) == 0,
         "device", "name", "the device does not read weights node by node on the host"},
    };
    return refuse_apart(experiment, apart, sizeof apart / sizeof *apart,
                        "has weights while they are read");
}

/* comm.shard is an option of strategies (plugins/lib/strategy/shard.h). */
static dpb_status check_shard(const struct dpb_experiment *experiment)
{
    const struct dpb_setting *shard = dpb_config_get(experiment->config, "comm", "shard");
    if (!shard || strcmp(shard->value, "none") == 0)
        return DPB_OK;
    if (strcmp(shard->value, "gradients") == 0 && experiment->n_workers > 1)
        DPB_TRY(check_slots(experiment));
    if (strcmp(shard->value, "parameters") == 0 && experiment->n_workers > 1)
        DPB_TRY(check_parameters(experiment));
    if (!dpb_experiment_codec(experiment))
        return DPB_OK;
    return refuse(experiment, "comm", "shard",
                  "comm.shard = %s beside comm.codec = %s: with a codec each worker decodes and "
                  "updates all of a bucket; leave one of them out",
                  shard->value, experiment->codec.name);
}

/* NULL: nothing is refused. */
static dpb_status check_late(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const char *why =
        settings->comm.late == 0              ? NULL
        : settings->run.mode == DPB_MODE_COMM ? "`dpbench comm` waits for the end of each "
                                                "exchange; leave comm.late out"
        : dpb_experiment_codec(experiment)
            ? "comm.late = 1 beside comm.codec: no contract is both late and lossy; leave one out"
        : settings->run.precision == DPB_PRECISION_FP16
            ? "comm.late = 1 with run.precision = fp16, which leaves out steps whose gradients "
              "overflow: the step before would be more than one late; take another precision"
            : NULL;
    return why ? refuse(experiment, "comm", "late", "%s", why) : DPB_OK;
}

/* This process is neither a launcher under mpirun or srun nor a rank of one, and will not be. */
static bool started_locally(const struct dpb_experiment *experiment)
{
    if (dpb_begins_with(dpb_config_origin(experiment->config, "comm", "hosts"), DPB_LAUNCH_ORIGIN))
        return false;
    return dpb_world.board ? !dpb_world.parted : !dpb_pmix_is_here();
}

static dpb_status check_survive(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    char comms[NAMES];
    if (!settings->run.survive)
        return DPB_OK;
    const char *why = settings->run.mode == DPB_MODE_COMM
                          ? "`dpbench comm` times exchanges of all workers; leave run.survive out"
                      : !started_locally(experiment)
                          ? "run.survive = yes, and mpirun and srun end a job when one of its "
                            "processes dies; leave it out, or start dpbench without them"
                          : NULL;
    if (why || (experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_SURVIVES))
        return why ? refuse(experiment, "run", "survive", "%s", why) : DPB_OK;
    DPB_TRY(list_comms(DPB_COMM_SURVIVES, comms));
    return refuse(experiment, "run", "survive",
                  "run.survive = yes, and the workers of comm '%s' need each other's gradients; "
                  "leave it out, or take a comm.name whose workers do without:%s",
                  settings->comm.name, comms);
}

static bool has_operation(const struct dpb_plugin *plugin, const void *operation)
{
    const struct dpb_comm_ops *ops = plugin->ops;
    return ops->collectives & 1u << *(const int *)operation;
}

/* Elsewhere than in `dpbench comm` [comm_test] has no meaning. */
static dpb_status check_operation(const struct dpb_experiment *experiment)
{
    const int operation = experiment->settings.comm_test.operation;
    const char *name = dpb_collective_names[operation];
    char comms[NAMES];
    if (operation == DPB_ALL_REDUCE || experiment->settings.run.mode != DPB_MODE_COMM)
        return DPB_OK;
    if (!has_operation(experiment->plugins[DPB_PLUGIN_COMM], &operation)) {
        DPB_TRY(list_plugins(1u << DPB_PLUGIN_COMM, has_operation, &operation, comms));
        return refuse(experiment, "comm_test", "operation",
                      "comm '%s' has no %s; take a comm.name that has it:%s",
                      experiment->settings.comm.name, name, comms[0] != '\0' ? comms : " none");
    }
    const struct dpb_setting *shard = dpb_config_get(experiment->config, "comm", "shard");
    if (shard && strcmp(shard->value, "none") != 0)
        return refuse(experiment, "comm_test", "operation",
                      "comm.shard = %s is of the all-reduce, and comm_test.operation = %s; leave "
                      "one of them out",
                      shard->value, name);
    /* The types are not made yet; without a half type both are one. */
    const struct dpb_setting *gradient = dpb_config_get(experiment->config, "comm", "gradient");
    if (operation == DPB_ALL_TO_ALL && gradient &&
        (strcmp(gradient->value, "bf16") == 0 || strcmp(gradient->value, "fp16") == 0))
        return refuse(
            experiment, "comm_test", "operation",
            "all_to_all writes into the weights, whose type is not %s: leave comm.gradient out",
            gradient->value);
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
        return refuse(experiment, "run", "servers",
                      "comm '%s' has no servers; leave run.servers out", comm->name);
    if (settings->run.servers == 0 && (comm->capabilities & DPB_COMM_SERVED))
        return refuse(experiment, "comm", "name",
                      "comm '%s' keeps the model in server processes; give run.servers",
                      comm->name);
    if (settings->run.comm_cores > 0 && !(comm->capabilities & DPB_COMM_OVERLAP))
        return refuse(experiment, "run", "comm_cores",
                      "comm '%s' has no work for communication cores; leave run.comm_cores out",
                      comm->name);
    if (settings->run.comm_cores > 0 && experiment->comm_needs.takes_events &&
        dpb_experiment_arenas_on_device(experiment))
        return refuse(experiment, "run", "comm_cores",
                      "the loop's thread enqueues all work of comm '%s' on the GPU: there is no "
                      "work for communication cores; leave run.comm_cores out",
                      comm->name);
    if (!has_runtime(experiment))
        return refuse(
            experiment, "comm", "name",
            "comm '%s'%s%s keeps weights and gradients in a GPU's memory, and device '%s' (%s) "
            "computes elsewhere; take a device.name that computes on GPUs, or another %s",
            comm->name, because ? " with " : "", because ? because : "", settings->device.name,
            dpb_config_origin(experiment->config, "device", "name"), because ? "way" : "comm");
    if ((comm->capabilities & DPB_COMM_ALONE) && settings->run.prove)
        return refuse(experiment, "run", "prove",
                      "comm '%s' exchanges nothing that could be proved; leave run.prove out",
                      comm->name);
    return DPB_OK;
}

/* Learners share the device of their place. */
static dpb_status check_device(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const char *because = experiment->comm_needs.because;
    if (settings->run.learners == 1 || !(dpb_experiment_promises(experiment) & DPB_COMM_OWN_DEVICE))
        return DPB_OK;
    return refuse(experiment, "run", "learners",
                  "comm '%s'%s%s takes each device for one worker, and run.learners = %lld share "
                  "one; leave run.learners out, and take more run.workers",
                  settings->comm.name, because ? " with " : "", because ? because : "",
                  (long long)settings->run.learners);
}

static dpb_status check_machines(const struct dpb_experiment *experiment)
{
    const struct dpb_plugin *comm = experiment->plugins[DPB_PLUGIN_COMM];
    if (experiment->n_machines > 1 && !(comm->capabilities & DPB_COMM_MULTI_NODE))
        return refuse(experiment, "comm", "name",
                      "comm '%s' works within one machine, and comm.hosts = %s (%s) makes %u; take "
                      "a strategy that goes across",
                      comm->name, experiment->settings.comm.hosts,
                      dpb_config_origin(experiment->config, "comm", "hosts"),
                      experiment->n_machines);
    return DPB_OK;
}

static dpb_status check_launcher(const struct dpb_experiment *experiment)
{
    const char *because = experiment->comm_needs.because;
    if (dpb_experiment_needs_launcher(experiment) && started_locally(experiment))
        return refuse(experiment, "comm", "name",
                      "comm '%s'%s%s works under mpirun or srun only: start dpbench by one of "
                      "them, or take another %s",
                      experiment->settings.comm.name, because ? " with " : "",
                      because ? because : "", because ? "way" : "strategy");
    return DPB_OK;
}

/* Whether servers do not wait for each worker in each step. */
static bool goes_apart(const struct dpb_contract *contract)
{
    const dpb_consistency kind = contract->consistency;
    return kind == DPB_STALE || kind == DPB_PARTIAL || kind == DPB_BATCHES ||
           kind == DPB_ASYNCHRONOUS;
}

/* A checkpoint counts Adam's updates by the steps, and servers that do not wait for each worker in
 * each step make another number. */
static dpb_status check_state(const struct dpb_experiment *experiment,
                              const struct dpb_contract *contract)
{
    const struct dpb_settings *settings = &experiment->settings;
    const bool counts = dpb_optimizer_has_moments(&settings->optimizer) && goes_apart(contract);
    if (counts && (dpb_saves(settings) || settings->checkpoint.load[0]))
        return refuse(
            experiment, "optimizer", "name",
            "comm '%s': a checkpoint does not say how many updates of optimizer '%s' a server has "
            "made; leave checkpoint.save and checkpoint.load out, or take sgd or adagrad",
            settings->comm.name, dpb_optimizer_names[settings->optimizer.kind]);
    return DPB_OK;
}

/* Several launchers without PMIx. */
static bool is_here_by_variables(void)
{
    uint32_t rank;
    return dpb_world.board ? strcmp(dpb_world.launcher, DPB_ENVIRONMENT_LAUNCHER) == 0
                           : dpb_environment_is_here(&rank);
}

/* The launchers outlive the ranks; PMIx knows no rank that comes again. */
static bool restarts_here(void)
{
    return dpb_world.board ? !dpb_world.parted || is_here_by_variables() : !dpb_pmix_is_here();
}

static dpb_status check_restart(const struct dpb_experiment *experiment,
                                const struct dpb_contract *contract)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    const bool is_known = run->epochs > 0 || (run->steps > 0 && run->steady_limit_ns == 0);
    const char *why =
        run->restart == 0             ? NULL
        : run->mode != DPB_MODE_TRAIN ? "run.restart is for trainings; leave it out"
        : run->survive     ? "run.restart beside run.survive: the others train on without the lost "
                             "worker; leave one out"
        : !restarts_here() ? "run.restart, and a rank that joined by PMIx cannot join again; leave "
                             "it out, or start "
                             "one dpbench a machine by run.launch = environment (docs/launching.md)"
        : goes_apart(contract)
            ? "run.restart, and workers of this comm.name are steps apart; take a synchronous one"
        : run->rejoin_ns > 0 && !is_here_by_variables()
            ? "run.rejoin waits for another launcher of a job by variables (RANK, WORLD_SIZE); "
              "here "
              "is none to wait for: leave run.rejoin out"
        : !is_known ? "run.restart needs a known last step: give run.epochs, or run.steps with "
                      "run.steady_limit_s = 0"
                    : NULL;
    return why ? refuse(experiment, "run", "restart", "%s", why) : DPB_OK;
}

static dpb_status check_synchronous(const struct dpb_experiment *experiment,
                                    const struct dpb_contract *contract)
{
    char label[DPB_LABEL_BYTES];
    if (experiment->settings.comm.late == 0 || contract->consistency == DPB_SYNCHRONOUS)
        return DPB_OK;
    dpb_contract_label(contract, experiment->n_workers, label);
    return refuse(experiment, "comm", "late",
                  "comm.late = 1 makes a synchronous strategy one step late, and comm '%s' is %s; "
                  "leave comm.late out, or take another comm.name",
                  experiment->settings.comm.name, label);
}

/* refuse.c and check_codec refuse `dpbench comm` of strategies without exchange and of codecs. */
static dpb_status check_measured(const struct dpb_experiment *experiment,
                                 const struct dpb_contract *contract)
{
    const bool alone = contract->consistency == DPB_ALONE;
    if (experiment->settings.run.mode != DPB_MODE_COMM || alone ||
        contract->consistency == DPB_SYNCHRONOUS)
        return DPB_OK;
    return refuse(experiment, "comm", "name",
                  "comm '%s' does not sum the gradients of a step: there is no exchange to time by "
                  "itself; measure a training",
                  experiment->settings.comm.name);
}

dpb_status dpb_refuse_contract(const struct dpb_experiment *experiment,
                               const struct dpb_contract *contract)
{
    DPB_TRY(check_measured(experiment, contract));
    DPB_TRY(check_state(experiment, contract));
    DPB_TRY(check_synchronous(experiment, contract));
    DPB_TRY(check_restart(experiment, contract));
    if (contract->consistency != DPB_ALONE &&
        dpb_contract_apart(contract, experiment->plugins[DPB_PLUGIN_COMM]->ops) &&
        experiment->settings.run.precision == DPB_PRECISION_FP16)
        return refuse(experiment, "run", "precision",
                      "comm '%s' lets workers be steps apart, and run.precision = fp16 has them "
                      "agree in each step on whether gradients are finite; take another precision",
                      experiment->settings.comm.name);
    return DPB_OK;
}

static dpb_status check_contract(const struct dpb_experiment *experiment)
{
    struct dpb_contract contract;
    DPB_TRY(dpb_contract_ask(experiment, &contract));
    return dpb_refuse_contract(experiment, &contract);
}

dpb_status dpb_refuse_strategy(const struct dpb_experiment *experiment)
{
    static dpb_status (*const checks[])(const struct dpb_experiment *) = {
        check_comm,  check_device, check_machines, check_codec,   check_launcher,  check_back,
        check_norms, check_shard,  check_late,     check_survive, check_operation, check_contract};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        DPB_TRY(checks[i](experiment));
    return DPB_OK;
}

dpb_status dpb_refuse_shards(const struct dpb_experiment *experiment)
{
    char comms[NAMES];
    if (!dpb_experiment_comm_args(experiment, 0).whole ||
        experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_WHOLE_SHARDS ||
        dpb_experiment_strategy_memory(experiment, 0).state_elements >=
            experiment->graph->n_elements)
        return DPB_OK;
    DPB_TRY(list_comms(DPB_COMM_WHOLE_SHARDS, comms));
    return refuse(experiment, "optimizer", norms_key(experiment),
                  "optimizer.%s needs the norms of whole tensors, and with comm.shard (%s) a "
                  "worker of comm '%s' has parts of them; leave one of them out, or take a "
                  "comm.name whose workers exchange sums of squares:%s",
                  norms_key(experiment), dpb_config_origin(experiment->config, "comm", "shard"),
                  experiment->settings.comm.name, comms);
}
