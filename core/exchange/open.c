/* open.c - see open.h. */
#include "exchange/open.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "exchange/checked_codec.h"
#include "exchange/late.h"
#include "exchange/pump.h"
#include "exchange/resident.h"
#include "exchange/slots.h"
#include "exchange/staging.h"
#include "graph/graph.h"
#include "plan/emulation.h"
#include "plan/contract.h"
#include "plan/refuse.h"
#include "plan/refuse_plugins.h"
#include "plugin/plugins.h"
#include "world/host_device.h"

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
    args.codec = dpb_checked_codec(args.codec);
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
    DPB_TRY(dpb_resident_plan(exchange));
    return agree_on_layout(exchange);
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
        .gradients = exchange->arenas.sums ? exchange->arenas.sums : exchange->arenas.gradients,
        .sharded = experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_WHOLE_SHARDS,
        .device = exchange->memory.on_device ? &exchange->memory.device : NULL,
        .queue = exchange->memory.queue,
        .saved = dpb_saves(&experiment->settings),
        .not_finite = &dpb_board_page(dpb_world.board, dpb_world.rank)->not_finite,
        .element_ns = dpb_world.role == DPB_WORKER ? dpb_emulation_element_ns(experiment) : 0};
    if (experiment->settings.run.mode == DPB_MODE_COMM)
        return DPB_OK;
    return dpb_optimizer_create(&args, &exchange->optimizer);
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
    DPB_TRY(dpb_resident_open(exchange));
    DPB_TRY(dpb_checked_codec_allocate(exchange->layout.n_elements < exchange->plan.bucket_elements
                                           ? exchange->layout.n_elements
                                           : exchange->plan.bucket_elements));
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
    exchange->memory.sums.fd = -1;
}

dpb_status dpb_exchange_open(struct dpb_exchange *exchange, const struct dpb_graph *graph)
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
    dpb_resident_loaded(exchange);
    return dpb_late_load(exchange);
}

/* ---- the end ------------------------------------------------------------------------------- */

void dpb_exchange_leave(struct dpb_exchange *exchange)
{
    dpb_pump_stop(&exchange->pump);
    exchange->ops->close(exchange->comm);
    exchange->comm = NULL;
    exchange->passes.pending = NULL; /* it was the communicator's */
    dpb_arenas_stop(&exchange->memory);
    dpb_arenas_let_go(&exchange->memory);
}

void dpb_exchange_close(struct dpb_exchange *exchange)
{
    dpb_exchange_leave(exchange);
    dpb_optimizer_destroy(exchange->optimizer);
    exchange->optimizer = NULL;
    dpb_staging_close(exchange);
    dpb_late_close(exchange);
    dpb_resident_close(exchange);
    dpb_checked_codec_release();
    dpb_arenas_release(&exchange->memory);
    dpb_release(exchange->plan.owned, exchange->plan.n_owned * sizeof *exchange->plan.owned);
    exchange->plan = (struct dpb_comm_plan){0};
    exchange->arenas = (struct dpb_arenas){0};
}
