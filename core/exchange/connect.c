/*
 * connect.c - opens a rank's strategy on a layout. The strategy plans before anything is allocated;
 * then arenas are made, shared and bound.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "graph/graph.h"
#include "plugin/plugins.h"
#include "plan/contract.h"
#include "exchange/exchange.h"
#include "plan/refuse.h"
#include "save/saved.h"
#include "world/host_device.h"

/* ---- the device ---------------------------------------------------------------------------- */

/* Among the workers of its machine. */
static uint32_t local_index(const struct dpb_experiment *experiment)
{
    uint32_t index = 0;
    for (uint32_t rank = 0; rank < dpb_world.rank; rank++)
        index += experiment->machines[rank] == experiment->machines[dpb_world.rank];
    return index;
}

/* See dpb_device_arenas.no_capture. */
static const char *capture_refusal(const struct dpb_exchange *exchange)
{
    const struct dpb_run_settings *run = &exchange->experiment->settings.run;
    if (run->mode != DPB_MODE_TRAIN)
        return "no backward is done";
    if (run->precision == DPB_PRECISION_FP16)
        return "run.precision = fp16, where the host sees the gradients before they are exchanged";
    if (exchange->experiment->settings.comm.late > 0)
        return "comm.late = 1, where an exchange outlasts the step that a graph is of";
    if (run->profile)
        return "run.profile = yes";
    if (!exchange->engine.ops->no_capture)
        return "the device captures nothing";
    return exchange->engine.ops->no_capture(exchange->engine.device);
}

dpb_status dpb_engine_open(struct dpb_exchange *exchange, uint32_t threads)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    struct dpb_engine *engine = &exchange->engine;
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    const struct dpb_device_args args = {.rank = dpb_world.rank,
                                         .threads = threads,
                                         .seed = (uint64_t)experiment->settings.run.seed,
                                         .index = local_index(experiment) /
                                                  (uint32_t)experiment->settings.run.learners};
    engine->ops = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    DPB_TRY(engine->ops->open(experiment->options[DPB_PLUGIN_DEVICE], &args, &engine->device));
    const char *gpu = engine->ops->pci_address ? engine->ops->pci_address(engine->device) : NULL;
    snprintf(page->gpu, sizeof page->gpu, "%s", gpu ? gpu : "");
    DPB_TRY(dpb_experiment_sharing(experiment, args.index, &page->sharing));
    if (engine->ops->queues)
        exchange->memory.device = (struct dpb_device_arenas){engine->ops->queues, engine->device,
                                                             capture_refusal(exchange)};
    return DPB_OK;
}

void dpb_engine_close(struct dpb_engine *engine)
{
    if (engine->ops)
        engine->ops->close(engine->device);
    *engine = (struct dpb_engine){.ops = NULL};
}

/* ---- agreement ----------------------------------------------------------------------------- */

static dpb_status agree_on(const char *what, const char *format, ...) DPB_PRINTF(2, 3);
static dpb_status agree_on(const char *what, const char *format, ...)
{
    char value[2048];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= sizeof value)
        return dpb_fail(DPB_FAILED,
                        "the value on which ranks must agree, %s, is longer than %zu bytes", what,
                        sizeof value);
    return dpb_world_agree(what, value);
}

/* dpbench of one version may find plugins of another on another machine. */
static dpb_status agree_on_plugins(const struct dpb_experiment *experiment)
{
    const struct dpb_plugin *const *plugins = experiment->plugins;
    const struct dpb_plugin *model = plugins[DPB_PLUGIN_MODEL], *data = plugins[DPB_PLUGIN_DATA];
    const struct dpb_plugin *device = plugins[DPB_PLUGIN_DEVICE], *comm = plugins[DPB_PLUGIN_COMM];
    const struct dpb_plugin *codec = plugins[DPB_PLUGIN_CODEC];
    return agree_on("plugins", "model %s %s, data %s %s, device %s %s, comm %s %s, codec %s %s",
                    model->name, model->version, data->name, data->version, device->name,
                    device->version, comm->name, comm->version, codec ? codec->name : "none",
                    codec ? codec->version : "");
}

/* Ranks of other contracts would make other numbers of exchanges, and wait for each other. */
static dpb_status agree_on_contract(const struct dpb_contract *contract)
{
    return agree_on("contract",
                    "consistency %d, parameter %u, proof %d, settle_steps %u, divisor %u, share "
                    "%.9g, roundings %u, lead %u, replicas_equal %d",
                    (int)contract->consistency, contract->parameter, (int)contract->proof,
                    contract->settle_steps, contract->divisor, contract->share, contract->roundings,
                    contract->lead, contract->replicas_equal);
}

static dpb_status agree_on_layout(const struct dpb_exchange *exchange)
{
    DPB_TRY(agree_on_plugins(exchange->experiment));
    DPB_TRY(agree_on("layout of model and arenas", "%s, %llu elements, %s, hash %016llx",
                     exchange->graph->name, (unsigned long long)exchange->layout.n_elements,
                     dpb_dtype_name(exchange->layout.weight_type),
                     (unsigned long long)dpb_graph_hash(exchange->graph)));
    DPB_TRY(agree_on("buckets", "%llu elements of %s",
                     (unsigned long long)exchange->plan.bucket_elements,
                     dpb_dtype_name(exchange->layout.gradient_type)));
    return agree_on_contract(&exchange->plan.contract);
}

/* ---- the strategy and its arenas ----------------------------------------------------------- */

/* The hooks that the plan chose. */
static dpb_status check_form(const struct dpb_plugin *comm, const struct dpb_comm_ops *ops)
{
    char reason[DPB_REASON_BYTES] = "there are none (NULL)";
    return ops && dpb_plugin_check_hooks(comm, ops, reason)
               ? DPB_OK
               : dpb_fail(DPB_FAILED, "comm '%s': its plan chose other hooks: %s", comm->name,
                          reason);
}

/* Mistakes of a plan that would end the process in the midst of core. */
static dpb_status check_plan(const char *comm, const struct dpb_comm_plan *plan)
{
    const bool worker = dpb_world.role == DPB_WORKER;
    const char *mistake = NULL;
    if (plan->bucket_elements == 0)
        mistake = "buckets of no elements (bucket_elements = 0)";
    else if (worker && plan->weights == DPB_MEMORY_NONE)
        mistake = "no memory for a worker's weights (weights = DPB_MEMORY_NONE)";
    else if (worker && plan->gradients == DPB_MEMORY_NONE)
        mistake = "no memory for a worker's gradients (gradients = DPB_MEMORY_NONE)";
    return mistake ? dpb_fail(DPB_FAILED, "comm '%s': its plan has %s", comm, mistake) : DPB_OK;
}

static dpb_status plan(struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    const struct dpb_plugin *comm = experiment->plugins[DPB_PLUGIN_COMM];
    struct dpb_comm_args args = dpb_experiment_comm_args(experiment, dpb_world.rank);
    args.device = &exchange->memory.device;
    exchange->ops = exchange->plan.ops = comm->ops;
    DPB_TRY(exchange->ops->open(experiment->options[DPB_PLUGIN_COMM], &args, &exchange->comm));

    exchange->layout = dpb_experiment_layout(experiment, exchange->graph);
    exchange->plan.bucket_elements = dpb_experiment_bucket_elements(experiment);
    exchange->plan.contract =
        dpb_contract_default(experiment->n_workers, comm->capabilities & DPB_COMM_ALONE);
    dpb_status status = exchange->ops->plan(exchange->comm, &exchange->layout, &exchange->plan);
    dpb_status formed = check_form(comm, exchange->plan.ops);
    if (formed == DPB_OK) /* also if the plan failed: its ops close what they opened */
        exchange->ops = exchange->plan.ops;
    DPB_TRY(status);
    DPB_TRY(formed);
    DPB_TRY(check_plan(comm->name, &exchange->plan));
    DPB_TRY(dpb_contract_check(experiment, &exchange->plan));
    DPB_TRY(dpb_refuse_contract(experiment, &exchange->plan.contract));
    dpb_late_contract(experiment, &exchange->plan.contract);

    DPB_TRY(dpb_refuse_buckets(experiment, exchange->graph, exchange->plan.bucket_elements));
    DPB_TRY(dpb_slots_plan(exchange));
    exchange->arenas.n_buckets =
        (exchange->layout.n_elements + exchange->plan.bucket_elements - 1) /
        exchange->plan.bucket_elements;
    exchange->arenas.bucket_elements = exchange->plan.bucket_elements;
    exchange->arenas.layout = exchange->layout;
    return agree_on_layout(exchange);
}

/* Where a checkpoint may want the optimizer's state. */
static dpb_status share_state(struct dpb_exchange *exchange)
{
    const struct dpb_settings *settings = &exchange->experiment->settings;
    const uint32_t n_arrays = dpb_optimizer_states(&settings->optimizer);
    dpb_saved_warn(exchange);
    if (!settings->checkpoint.save[0] || n_arrays == 0)
        return DPB_OK;
    return dpb_collect_open(&exchange->plan, &exchange->layout, exchange->optimizer, n_arrays,
                            settings->comm.name, &exchange->collection);
}

/* The optimizer of the owned ranges; a communicator alone has none. */
static dpb_status make_optimizer(struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    const struct dpb_optimizer_args args = {
        .graph = exchange->graph,
        .settings = &experiment->settings.optimizer,
        .weight_type = experiment->weight_type,
        .gradient_type = experiment->gradient_type,
        .owned = exchange->plan.owned,
        .n_owned = exchange->plan.n_owned,
        .weights = exchange->arenas.weights,
        .gradients = exchange->arenas.gradients,
        .parts = experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_WHOLE_SHARDS,
        .device = exchange->memory.on_device ? &exchange->memory.device : NULL,
        .queue = exchange->memory.queue,
        .saved = experiment->settings.checkpoint.save[0] != '\0',
        .not_finite = &dpb_board_page(dpb_world.board, dpb_world.rank)->not_finite};
    if (experiment->settings.run.mode == DPB_MODE_COMM)
        return DPB_OK;
    DPB_TRY(dpb_optimizer_create(&args, &exchange->optimizer));
    return share_state(exchange);
}

static dpb_status bind_arenas(struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    const bool on_device =
        dpb_experiment_arenas_on_device(experiment) && dpb_world.role == DPB_WORKER;
    if (on_device && exchange->layout.weight_type != DPB_FP32)
        return dpb_fail(DPB_UNSUPPORTED, "comm '%s': arenas in a device's memory are fp32 only",
                        experiment->settings.comm.name);
    DPB_TRY(dpb_arenas_make(&exchange->memory, &exchange->plan, &exchange->layout, on_device,
                            &exchange->arenas));
    DPB_TRY(dpb_late_open(exchange));
    DPB_TRY(make_optimizer(exchange));
    exchange->arenas.optimizer = exchange->optimizer;
    return exchange->ops->bind(exchange->comm, &exchange->arenas);
}

void dpb_exchange_init(struct dpb_exchange *exchange, const struct dpb_experiment *experiment)
{
    *exchange = (struct dpb_exchange){.experiment = experiment,
                                      .ops = experiment->plugins[DPB_PLUGIN_COMM]->ops,
                                      .memory.device = dpb_host_device};
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++)
        exchange->memory.own[kind].fd = -1;
}

dpb_status dpb_exchange_connect(struct dpb_exchange *exchange, const struct dpb_graph *graph)
{
    exchange->graph = graph;
    dpb_world_note("plan", UINT64_MAX, UINT32_MAX);
    DPB_TRY(plan(exchange));
    dpb_world_note("bind", UINT64_MAX, UINT32_MAX);
    return bind_arenas(exchange);
}

dpb_status dpb_exchange_load(struct dpb_exchange *exchange)
{
    DPB_TRY(exchange->ops->load(exchange->comm));
    return dpb_late_load(exchange);
}

/* ---- gradients on their way ---------------------------------------------------------------- */

static dpb_status make_gradients(struct dpb_exchange *exchange, void **memory)
{
    return dpb_arena_allocate(exchange, "gradients on their way", exchange->layout.weight_type,
                              memory);
}

dpb_status dpb_staging_open(struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    struct dpb_staging *staging = &exchange->staging;
    staging->summed = exchange->gradients;
    if (experiment->settings.run.mode != DPB_MODE_TRAIN)
        return DPB_OK;
    staging->held_back = experiment->settings.run.precision == DPB_PRECISION_FP16;
    exchange->takes_events =
        exchange->memory.on_device && experiment->comm_needs.takes_events && !staging->held_back;
    exchange->captures = exchange->takes_events && exchange->plan.captures;
    if (experiment->gradient_type != experiment->weight_type)
        DPB_TRY(make_gradients(exchange, &staging->summed));
    staging->device = staging->summed;
    return experiment->accumulate > 1 ? make_gradients(exchange, &staging->device) : DPB_OK;
}

static void close_staging(struct dpb_exchange *exchange)
{
    const struct dpb_device_arenas *place = exchange->memory.place;
    struct dpb_staging *staging = &exchange->staging;
    if (staging->device && staging->device != staging->summed)
        place->ops->release(place->device, staging->device);
    if (staging->summed && staging->summed != exchange->gradients)
        place->ops->release(place->device, staging->summed);
    for (size_t i = 0; i < staging->n_events; i++)
        dpb_events.destroy(staging->events[i]);
    free(staging->events);
    *staging = (struct dpb_staging){.device = NULL};
}

/* ---- the end ------------------------------------------------------------------------------- */

void dpb_exchange_leave(struct dpb_exchange *exchange)
{
    dpb_pump_stop(&exchange->pump);
    exchange->ops->close(exchange->comm);
    exchange->comm = NULL;
    exchange->pending = NULL; /* it was the communicator's */
    dpb_arenas_stop(&exchange->memory);
    dpb_arenas_let_go(&exchange->memory);
}

void dpb_exchange_disconnect(struct dpb_exchange *exchange)
{
    dpb_exchange_leave(exchange);
    dpb_collect_close(&exchange->collection);
    dpb_optimizer_destroy(exchange->optimizer);
    exchange->optimizer = NULL;
    close_staging(exchange);
    dpb_late_close(exchange);
    dpb_arenas_release(&exchange->memory);
    dpb_release(exchange->plan.owned, exchange->plan.n_owned * sizeof *exchange->plan.owned);
    exchange->plan = (struct dpb_comm_plan){0};
    exchange->arenas = (struct dpb_arenas){0};
}
