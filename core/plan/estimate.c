/* estimate.c - see estimate.h. */
#include "plan/estimate.h"

#include "optim/optimizer.h"
#include "plan/comm_points.h"
#include "world/board.h"

/* Weights, gradients, and the arrays that they pass through; optimizer state as if all of it were
 * the worker's. */
uint64_t dpb_experiment_device_memory(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    uint64_t n = experiment->graph->n_elements, arena = n * dpb_dtype_size(experiment->weight_type);
    uint64_t total = arena + n * dpb_dtype_size(experiment->gradient_type);
    total *= 1 + (uint64_t)settings->comm.late;
    if (!dpb_experiment_arenas_on_device(experiment) || settings->run.mode == DPB_MODE_COMM)
        return 0;
    total += dpb_optimizer_states(&settings->optimizer) * arena;
    total += experiment->accumulate > 1 ? arena : 0;
    return total + (experiment->gradient_type != experiment->weight_type ? arena : 0);
}

/* In which a device encodes messages of a bucket. */
static uint64_t coding_room(const struct dpb_experiment *experiment)
{
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    const struct dpb_codec *codec = dpb_experiment_codec(experiment);
    const uint64_t elements = dpb_experiment_bucket_elements(experiment);
    const uint64_t n = experiment->graph->n_elements;
    return codec ? device->queues->coding_bytes(codec, elements < n ? elements : n) : 0;
}

/* Of a message that is decoded twice: exchange/checked_codec.h. */
static uint64_t checked_codec(const struct dpb_experiment *experiment)
{
    const struct dpb_codec *codec = dpb_experiment_codec(experiment);
    const uint64_t elements = dpb_experiment_bucket_elements(experiment);
    const uint64_t all = experiment->graph->n_elements, n = elements < all ? elements : all;
    return codec && !codec->ops->finish ? codec->ops->bound(codec->options, n) + n * sizeof(float)
                                        : 0;
}

struct dpb_comm_memory dpb_experiment_strategy_memory(const struct dpb_experiment *experiment,
                                                      uint32_t rank)
{
    const struct dpb_comm_ops *ops = experiment->plugins[DPB_PLUGIN_COMM]->ops;
    const bool worker = rank < experiment->n_workers;
    const struct dpb_layout layout = dpb_experiment_layout(experiment, experiment->graph);
    const struct dpb_comm_args args = dpb_experiment_comm_args(experiment, rank);
    struct dpb_comm_memory memory = {.state_elements = layout.n_elements};
    if (ops->memory && experiment->settings.run.mode == DPB_MODE_TRAIN)
        ops->memory(experiment->options[DPB_PLUGIN_COMM], &args, &layout,
                    dpb_experiment_bucket_elements(experiment), &memory);
    const bool on_device = worker && dpb_experiment_arenas_on_device(experiment);
    memory.device_bytes =
        on_device ? memory.device_bytes + memory.beside_bytes + coding_room(experiment) : 0;
    memory.host_bytes += (on_device ? 0 : memory.beside_bytes) + checked_codec(experiment);
    return memory;
}

uint64_t dpb_experiment_state_memory(const struct dpb_experiment *experiment, uint32_t rank)
{
    return dpb_optimizer_states(&experiment->settings.optimizer) *
           dpb_experiment_strategy_memory(experiment, rank).state_elements *
           dpb_dtype_size(experiment->weight_type);
}

/* All of the optimizer's state, as a checkpoint has it. */
static uint64_t whole_state(const struct dpb_experiment *experiment)
{
    const uint64_t n_arrays = dpb_optimizer_states(&experiment->settings.optimizer);
    const uint64_t n = experiment->settings.run.mode == DPB_MODE_TRAIN ? n_arrays : 0;
    return n * experiment->graph->n_elements * dpb_dtype_size(experiment->weight_type);
}

uint64_t dpb_experiment_collected_memory(const struct dpb_experiment *experiment)
{
    return dpb_saves(&experiment->settings) ? whole_state(experiment) : 0;
}

uint64_t dpb_experiment_kept_memory(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_comm_ops *ops = experiment->plugins[DPB_PLUGIN_COMM]->ops;
    const uint64_t most = ops->state || settings->comm.late > 0 ? 1 + experiment->n_workers : 1;
    const uint64_t n = experiment->graph->n_elements * dpb_dtype_size(experiment->weight_type);
    return settings->checkpoint.place == DPB_CHECKPOINT_PEER
               ? DPB_KEPT * most * (n + whole_state(experiment))
               : 0;
}

struct dpb_compile_args dpb_experiment_compile_args(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    return (struct dpb_compile_args){.graph = experiment->graph,
                                     .batch = experiment->batch,
                                     .precision = (dpb_precision)settings->run.precision,
                                     .training = settings->run.mode == DPB_MODE_TRAIN,
                                     .format = &experiment->data_info.format,
                                     .on_device = dpb_experiment_arenas_on_device(experiment)};
}

dpb_status dpb_experiment_bytes_moved(const struct dpb_experiment *experiment, double *bytes)
{
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    const struct dpb_compile_args compile = dpb_experiment_compile_args(experiment);
    *bytes = 0;
    if (!device->bytes_moved || !compile.training)
        return DPB_OK;
    return device->bytes_moved(experiment->options[DPB_PLUGIN_DEVICE], &compile, bytes);
}

static uint64_t in_slots(const struct dpb_experiment *experiment,
                         const struct dpb_comm_memory *memory)
{
    const struct dpb_layout layout = dpb_experiment_layout(experiment, experiment->graph);
    return dpb_slots_elements(&layout, dpb_experiment_bucket_elements(experiment),
                              memory->gradient_slots);
}

uint64_t dpb_experiment_gradients(const struct dpb_experiment *experiment, uint32_t rank)
{
    const struct dpb_comm_memory memory = dpb_experiment_strategy_memory(experiment, rank);
    return in_slots(experiment, &memory) + (memory.keeps_sums ? memory.state_elements : 0);
}

uint64_t dpb_experiment_memory(const struct dpb_experiment *experiment, uint32_t rank)
{
    const struct dpb_graph *graph = experiment->graph;
    const struct dpb_settings *settings = &experiment->settings;
    if (settings->run.mode == DPB_MODE_COMM)
        return dpb_comm_memory(experiment, rank);
    uint64_t arena = graph->n_elements * dpb_dtype_size(experiment->weight_type);
    bool on_device = dpb_experiment_arenas_on_device(experiment);
    const uint64_t state = dpb_experiment_state_memory(experiment, rank);
    const bool restarts = settings->run.restart > 0 && dpb_saves(settings);
    const bool continues =
        restarts || (settings->checkpoint.load[0] && settings->checkpoint.resume);
    const uint64_t read = continues && state > 0 ? whole_state(experiment) : 0;
    uint64_t total = arena + state;
    if (rank >= experiment->n_workers)
        return total + read;
    if (on_device) /* of an arena for core to look at, and of the state for checkpoints */
        total = arena + (dpb_saves(settings) ? state : 0);
    const struct dpb_compile_args compile = dpb_experiment_compile_args(experiment);
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    if (!on_device) {
        const bool narrows = settings->run.mode == DPB_MODE_TRAIN &&
                             experiment->gradient_type != experiment->weight_type;
        const size_t gradient = dpb_dtype_size(experiment->gradient_type);
        const uint64_t late = (uint64_t)settings->comm.late;
        const size_t cast = narrows ? dpb_dtype_size(experiment->weight_type) : 0;
        const struct dpb_comm_memory memory = dpb_experiment_strategy_memory(experiment, rank);
        total += dpb_experiment_gradients(experiment, rank) * gradient +
                 in_slots(experiment, &memory) * cast +
                 late * (arena + graph->n_elements * gradient) +
                 (experiment->accumulate > 1 && memory.gradient_slots == 0 ? arena : 0);
    }
    const uint64_t needed = device->memory_needed(experiment->options[DPB_PLUGIN_DEVICE], &compile);
    total += needed > read ? needed : read; /* the file is read before the device works */
    const uint64_t batch_bytes =
        (uint64_t)experiment->batch * dpb_sample_bytes(&experiment->data_info.format);
    if (settings->run.mode == DPB_MODE_TRAIN && !on_device)
        total += DPB_FOLLOWED_BYTES;
    return total + experiment->data_bytes +
           (4 + (uint64_t)settings->data.threads) * batch_bytes; /* of the feed, and the device's */
}

/* ---- slots for gradients ------------------------------------------------------------------- */

uint64_t dpb_slots_bucket(const struct dpb_layout *layout, uint64_t bucket_elements)
{
    const uint64_t page = DPB_SLOT_ALIGNMENT / dpb_dtype_size(layout->gradient_type);
    return (bucket_elements + page - 1) / page * page;
}

uint64_t dpb_slots_node_end(const struct dpb_layout *layout, uint64_t frontier)
{
    uint32_t t = 0;
    while (t < layout->n_tensors && layout->tensors[t].offset < frontier)
        t++;
    const uint32_t first = t;
    while (t < layout->n_tensors && layout->tensors[t].node == layout->tensors[first].node)
        t++;
    return t < layout->n_tensors ? layout->tensors[t].offset : layout->n_elements;
}

/* The most buckets of one node, counting a bucket that the node before has begun. */
static uint64_t largest_node(const struct dpb_layout *layout, uint64_t bucket_elements)
{
    uint64_t most = 1, end;
    for (uint64_t at = 0; at < layout->n_elements; at = end) {
        end = dpb_slots_node_end(layout, at);
        const uint64_t n = (end - 1) / bucket_elements - at / bucket_elements + 1;
        most = n > most ? n : most;
    }
    return most;
}

uint64_t dpb_slots_elements(const struct dpb_layout *layout, uint64_t bucket_elements,
                            uint64_t spare)
{
    if (spare == 0)
        return layout->n_elements;
    const uint64_t bucket = dpb_slots_bucket(layout, bucket_elements);
    const uint64_t n = (largest_node(layout, bucket) + spare) * bucket;
    return n < layout->n_elements ? n : layout->n_elements;
}
