/*
 * plan.h - a parsed configuration: the settings, the plugins with their options, and every number
 * that follows. experiment.h makes one.
 */
#ifndef DPB_CORE_PLAN_PLAN_H
#define DPB_CORE_PLAN_PLAN_H

#include <math.h>

#include "base/config.h"
#include "base/options.h"
#include "base/settings.h"
#include "checkpoint/checkpoint.h"
#include "dpbench/plugin.h"
#include "optim/optimizer.h"
#include "plan/delay.h"
#include "plan/save_points.h"

enum { DPB_MAX_TABLES = 16 };

/* The origins of run.mode = comm and network, which no user sets. */
#define DPB_COMM_ORIGIN "dpbench comm"
#define DPB_NETWORK_ORIGIN "dpbench links network"
#define DPB_DATA_ORIGIN "dpbench data"
#define DPB_EVALUATE_ORIGIN "dpbench eval"
/* Begins the origin of comm.hosts in a cell that sweep.launch starts: a launcher will be there. */
#define DPB_LAUNCH_ORIGIN "sweep.launch"

struct dpb_experiment {
    struct dpb_config *config; /* @owned copy, with derived settings added */
    struct dpb_settings settings;
    /* By dpb_plugin_kind; NULL for DPB_PLUGIN_CODEC with comm.codec = none. */
    const struct dpb_plugin *plugins[DPB_PLUGIN_KINDS];
    void *options[DPB_PLUGIN_KINDS]; /* @owned parsed options structs; NULL where there are none */
    struct dpb_option_table tables[DPB_MAX_TABLES];
    size_t n_tables;

    uint32_t n_workers, n_servers, accumulate; /* n_workers: run.workers x run.learners */
    uint32_t *machines;                        /* of each rank, workers first */
    uint32_t n_machines;
    uint32_t batch;        /* per worker and micro-batch */
    uint64_t global_batch; /* batch * accumulate * workers */
    dpb_dtype weight_type, gradient_type;
    struct dpb_model_info model_info;
    struct dpb_comm_needs comm_needs;
    struct dpb_codec codec; /* of comm.codec */
    uint64_t data_bytes;    /* that the source's `open` took at its peak */
    struct dpb_save_points save_points;
    struct dpb_delay delay;
    struct dpb_emulation emulation; /* device `emulated`: by its profile; else zeros */

    /* From dpb_experiment_build. */
    void *data; /* the open source */
    struct dpb_data_info data_info;
    struct dpb_graph *graph;
    uint64_t steps_per_epoch;
    double evaluate_every;     /* steps, perhaps not whole; 0: never */
    struct dpb_progress start; /* of the training that checkpoint.load continues; else all zero */
};

/* The codec for struct dpb_comm_args; NULL with comm.codec = none. */
static inline const struct dpb_codec *dpb_experiment_codec(const struct dpb_experiment *experiment)
{
    return experiment->plugins[DPB_PLUGIN_CODEC] ? &experiment->codec : NULL;
}
/* The strategy's arguments on this rank, without a device. The machines and the codec are @borrowed
 * from the experiment. */
static inline struct dpb_comm_args dpb_experiment_comm_args(const struct dpb_experiment *experiment,
                                                            uint32_t rank)
{
    const struct dpb_settings *settings = &experiment->settings;
    return (struct dpb_comm_args){.rank = rank,
                                  .n_workers = experiment->n_workers,
                                  .n_servers = experiment->n_servers,
                                  .learners = (uint32_t)settings->run.learners,
                                  .role = rank < experiment->n_workers ? DPB_WORKER : DPB_SERVER,
                                  .bucket_bytes = settings->comm.bucket,
                                  .comm_cores = (uint32_t)settings->run.comm_cores,
                                  .machines = experiment->machines,
                                  .n_machines = experiment->n_machines,
                                  .codec = dpb_experiment_codec(experiment),
                                  .survives = settings->run.survive,
                                  .operation = (dpb_collective)settings->comm_test.operation,
                                  .optimizer_states = dpb_optimizer_states(&settings->optimizer),
                                  .accumulates = settings->run.mode == DPB_MODE_TRAIN &&
                                                 experiment->accumulate > 1,
                                  .whole = settings->run.mode == DPB_MODE_TRAIN &&
                                           dpb_optimizer_needs_norms(&settings->optimizer)};
}
/* The layout of arenas for this graph, whose tensors are @borrowed. */
static inline struct dpb_layout dpb_experiment_layout(const struct dpb_experiment *experiment,
                                                      const struct dpb_graph *graph)
{
    return (struct dpb_layout){.n_elements = graph->n_elements,
                               .weight_type = experiment->weight_type,
                               .gradient_type = experiment->gradient_type,
                               .tensors = graph->tensors,
                               .n_tensors = graph->n_tensors};
}
/* Whether the device computes nothing: there is no loss, and no accuracy. */
static inline bool dpb_experiment_emulates(const struct dpb_experiment *experiment)
{
    return (experiment->plugins[DPB_PLUGIN_DEVICE]->capabilities & DPB_DEVICE_EMULATED) != 0;
}
/* Whether the training is evaluated before this step, unless it begins there. */
static inline bool dpb_experiment_evaluates(const struct dpb_experiment *experiment, uint64_t step)
{
    const double every = experiment->evaluate_every;
    return every > 0 && floor((double)step / every) > floor(((double)step - 1) / every);
}
/* Workers that exchange: 1 where they do not. */
static inline uint32_t dpb_experiment_replicas(const struct dpb_experiment *experiment)
{
    const bool alone = experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE;
    return alone ? 1 : experiment->n_workers;
}
/* Capabilities of the communicator, with those that its options add: DPB_COMM_*. */
static inline uint64_t dpb_experiment_promises(const struct dpb_experiment *experiment)
{
    return experiment->plugins[DPB_PLUGIN_COMM]->capabilities | experiment->comm_needs.capabilities;
}
/* Whether the communicator, with its options, needs the runtime of mpirun or srun. */
static inline bool dpb_experiment_needs_launcher(const struct dpb_experiment *experiment)
{
    return (dpb_experiment_promises(experiment) & DPB_COMM_LAUNCHER) != 0;
}
/* comm.bucket in elements, for the strategy's plan. */
static inline uint64_t dpb_experiment_bucket_elements(const struct dpb_experiment *experiment)
{
    size_t element = dpb_dtype_size(experiment->gradient_type);
    uint64_t bytes = experiment->settings.comm.bucket;
    uint64_t n = bytes < element ? 1 : bytes / element, slices = experiment->n_workers;
    if (experiment->settings.comm_test.operation == DPB_ALL_REDUCE)
        return n;
    return n < slices ? slices : n / slices * slices; /* collectives.h: equal slices */
}
/* Whether the workers' weights and gradients lie in memory of the device's own. */
static inline bool dpb_experiment_arenas_on_device(const struct dpb_experiment *experiment)
{
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    const struct dpb_comm_needs *needs = &experiment->comm_needs;
    return device->queues && needs->on_device &&
           !(needs->codec_on_host && dpb_experiment_codec(experiment)) &&
           !(needs->on_one_machine && experiment->n_machines > 1);
}

#endif
