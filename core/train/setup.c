/*
 * setup.c - opens what a rank works with. The communicator plans before anything is allocated; then
 * arenas are made, shared and bound, and the device compiles onto them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/secret.h"
#include "graph/graph.h"
#include "machine/cores.h"
#include "plugin/plugins.h"
#include "train/fit.h"
#include "train/trainer.h"
#include "world/store.h"
#include "world/host_device.h"

enum { MAX_BUCKETS = 1 << 20, SPANS_A_STEP = 1 << 16 };

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
        return dpb_fail(DPB_FAILED, "what the ranks have to agree on, %s, is longer than %zu bytes",
                        what, sizeof value);
    return dpb_world_agree(what, value);
}

/* dpbench of one version may find plugins of another on another machine. */
static dpb_status agree_on_plugins(const struct dpb_experiment *x)
{
    const struct dpb_plugin *const *plugins = x->plugins;
    const struct dpb_plugin *model = plugins[DPB_PLUGIN_MODEL], *data = plugins[DPB_PLUGIN_DATA];
    const struct dpb_plugin *device = plugins[DPB_PLUGIN_DEVICE], *comm = plugins[DPB_PLUGIN_COMM];
    return agree_on("plugins", "model %s %s, data %s %s, device %s %s, comm %s %s", model->name,
                    model->version, data->name, data->version, device->name, device->version,
                    comm->name, comm->version);
}

static dpb_status agree_on_layout(const struct dpb_trainer *trainer)
{
    DPB_TRY(agree_on_plugins(trainer->experiment));
    DPB_TRY(agree_on("layout of model and arenas", "%s, %llu elements, %s, hash %016llx",
                     trainer->graph->name, (unsigned long long)trainer->layout.n_elements,
                     dpb_dtype_name(trainer->layout.weight_type),
                     (unsigned long long)trainer->layout.hash));
    return agree_on("buckets", "%llu elements of %s",
                    (unsigned long long)trainer->plan.bucket_elements,
                    dpb_dtype_name(trainer->layout.gradient_type));
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

static dpb_status plan(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    const struct dpb_plugin *comm = x->plugins[DPB_PLUGIN_COMM];
    uint64_t bucket_bytes = x->settings.comm.bucket;
    const struct dpb_comm_args args = {.rank = dpb_world.rank,
                                       .n_workers = x->n_workers,
                                       .n_servers = x->n_servers,
                                       .role = dpb_world.role,
                                       .bucket_bytes = bucket_bytes,
                                       .comm_cores = (uint32_t)x->settings.run.comm_cores,
                                       .machines = x->machines,
                                       .n_machines = x->n_machines,
                                       .device = &trainer->device_arenas};
    trainer->comm_ops = trainer->plan.ops = comm->ops;
    DPB_TRY(trainer->comm_ops->open(x->options[DPB_PLUGIN_COMM], &args, &trainer->comm));

    trainer->layout = (struct dpb_layout){.n_elements = trainer->graph->n_elements,
                                          .weight_type = x->weight_type,
                                          .gradient_type = x->gradient_type,
                                          .hash = dpb_graph_hash(trainer->graph)};
    trainer->plan.bucket_elements = dpb_experiment_bucket_elements(x);
    trainer->plan.contract =
        dpb_contract_default(x->n_workers, comm->capabilities & DPB_COMM_ALONE);
    dpb_status status = trainer->comm_ops->plan(trainer->comm, &trainer->layout, &trainer->plan);
    dpb_status formed = check_form(comm, trainer->plan.ops);
    if (formed == DPB_OK) /* also where the plan failed: what it chose closes what it opened */
        trainer->comm_ops = trainer->plan.ops;
    DPB_TRY(status);
    DPB_TRY(formed);
    DPB_TRY(dpb_contract_check(&trainer->plan.contract, comm, x->n_workers));

    uint64_t n_buckets = (trainer->layout.n_elements + trainer->plan.bucket_elements - 1) /
                         trainer->plan.bucket_elements;
    if (n_buckets > MAX_BUCKETS)
        return dpb_fail(DPB_USAGE,
                        "comm.bucket = %llu bytes makes %llu buckets of %s; more than %d are "
                        "refused",
                        (unsigned long long)bucket_bytes, (unsigned long long)n_buckets,
                        trainer->graph->name, MAX_BUCKETS);
    trainer->arenas.n_buckets = n_buckets;
    trainer->arenas.bucket_elements = trainer->plan.bucket_elements;
    trainer->arenas.layout = trainer->layout;
    return agree_on_layout(trainer);
}

/* Of the owned ranges; a communicator alone has none. */
static dpb_status make_optimizer(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    const struct dpb_optimizer_args args = {
        .graph = trainer->graph,
        .settings = &x->settings.optimizer,
        .weight_type = x->weight_type,
        .gradient_type = x->gradient_type,
        .owned = trainer->plan.owned,
        .n_owned = trainer->plan.n_owned,
        .device = trainer->on_device ? &trainer->device_arenas : NULL,
        .queue = trainer->queue,
        .saved = x->settings.checkpoint.save[0] != '\0',
        .not_finite = &dpb_board_page(dpb_world.board, dpb_world.rank)->not_finite};
    if (x->settings.run.mode == DPB_MODE_COMM)
        return DPB_OK;
    DPB_TRY(dpb_optimizer_create(&args, &trainer->optimizer));
    return dpb_snapshot_share(trainer);
}

static dpb_status bind_arenas(struct dpb_trainer *trainer)
{
    DPB_TRY(dpb_arenas_make(trainer));
    DPB_TRY(make_optimizer(trainer));
    trainer->arenas.optimizer = trainer->optimizer;
    return trainer->comm_ops->bind(trainer->comm, &trainer->arenas);
}

dpb_status dpb_trainer_connect(struct dpb_trainer *trainer, const struct dpb_graph *graph)
{
    trainer->graph = graph;
    dpb_world_note("plan", UINT64_MAX, UINT32_MAX);
    DPB_TRY(plan(trainer));
    dpb_world_note("bind", UINT64_MAX, UINT32_MAX);
    return bind_arenas(trainer);
}

void dpb_trainer_disconnect(struct dpb_trainer *trainer)
{
    dpb_trainer_leave(trainer);
    dpb_snapshot_unshare(trainer);
    dpb_optimizer_destroy(trainer->optimizer);
    trainer->optimizer = NULL;
    dpb_arenas_release(trainer);
    dpb_release(trainer->plan.owned, trainer->plan.n_owned * sizeof *trainer->plan.owned);
    trainer->plan = (struct dpb_comm_plan){0};
    trainer->arenas = (struct dpb_arenas){0};
}

/* ---- the device ---------------------------------------------------------------------------- */

static dpb_status alloc_into(size_t bytes, void **memory)
{
    *memory = dpb_alloc(bytes);
    return *memory ? DPB_OK : DPB_NO_MEMORY;
}

/* Of gradients that pass through core's own. */
static dpb_status make_gradients(struct dpb_trainer *trainer, void **memory)
{
    return trainer->place->ops->allocate(trainer->place->device, "gradients on their way",
                                         dpb_arena_bytes(trainer, trainer->layout.weight_type),
                                         false, memory);
}

/* Arenas that are core's own: batch-norm's, and those that gradients pass through. */
static dpb_status make_own_arenas(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    size_t element = dpb_dtype_size(x->weight_type);
    size_t state_bytes = x->graph->n_state_elements * element;
    DPB_TRY(alloc_into(state_bytes, &trainer->state));
    DPB_TRY(alloc_into(state_bytes, &trainer->statistics));
    DPB_TRY(alloc_into(state_bytes, &trainer->summed_statistics));
    trainer->summed_gradients = trainer->arenas.gradients;
    if (x->settings.run.mode != DPB_MODE_TRAIN)
        return DPB_OK;
    if (x->gradient_type != x->weight_type)
        DPB_TRY(make_gradients(trainer, &trainer->summed_gradients));
    trainer->device_gradients = trainer->summed_gradients;
    if (x->accumulate > 1)
        DPB_TRY(make_gradients(trainer, &trainer->device_gradients));
    return DPB_OK;
}

/* Among the workers of its machine. */
static uint32_t local_index(const struct dpb_experiment *x)
{
    uint32_t index = 0;
    for (uint32_t rank = 0; rank < dpb_world.rank; rank++)
        index += x->machines[rank] == x->machines[dpb_world.rank];
    return index;
}

/* See dpb_device_arenas.no_capture. */
static const char *capture_refusal(const struct dpb_trainer *trainer)
{
    const struct dpb_run_settings *run = &trainer->experiment->settings.run;
    if (run->mode != DPB_MODE_TRAIN)
        return "no backward is done";
    if (run->precision == DPB_PRECISION_FP16)
        return "run.precision = fp16, where the host sees the gradients before they are exchanged";
    if (run->profile)
        return "run.profile = yes";
    if (!trainer->device_ops->no_capture)
        return "the device captures nothing";
    return trainer->device_ops->no_capture(trainer->device);
}

dpb_status dpb_trainer_open_device(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    const struct dpb_device_args args = {.rank = dpb_world.rank,
                                         .threads = trainer->threads,
                                         .seed = (uint64_t)x->settings.run.seed,
                                         .index = local_index(x)};
    trainer->device_ops = x->plugins[DPB_PLUGIN_DEVICE]->ops;
    DPB_TRY(trainer->device_ops->open(x->options[DPB_PLUGIN_DEVICE], &args, &trainer->device));
    const char *gpu = trainer->device_ops->pci_address != NULL
                          ? trainer->device_ops->pci_address(trainer->device)
                          : NULL;
    if (gpu != NULL && trainer->journal != NULL)
        dpb_gpu_open(trainer->device_ops->monitor, gpu, &trainer->journal->gpu);
    if (trainer->device_ops->queues != NULL)
        trainer->device_arenas = (struct dpb_device_arenas){
            trainer->device_ops->queues, trainer->device, capture_refusal(trainer)};
    return DPB_OK;
}

static dpb_status compile(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    uint64_t promises = x->plugins[DPB_PLUGIN_COMM]->capabilities;
    DPB_TRY(make_own_arenas(trainer));
    /* Of fp16 the host has to see whether gradients are finite before they are exchanged. */
    trainer->takes_events = trainer->on_device && x->comm_needs.takes_events &&
                            x->settings.run.mode == DPB_MODE_TRAIN &&
                            x->settings.run.precision != DPB_PRECISION_FP16;
    trainer->captures = trainer->takes_events && trainer->plan.captures;
    if (trainer->takes_events)
        dpb_account_by_device(promises & DPB_COMM_ALONE);
    if (x->settings.data.place == DPB_PLACE_DEVICE) {
        const struct dpb_data_ops *data_ops = x->plugins[DPB_PLUGIN_DATA]->ops;
        DPB_TRY(data_ops->pool(x->data, DPB_TRAIN, &trainer->pool));
    }
    const struct dpb_compile_args compile = {.graph = x->graph,
                                             .batch = x->batch,
                                             .precision = (dpb_precision)x->settings.run.precision,
                                             .training = x->settings.run.mode == DPB_MODE_TRAIN,
                                             .format = &x->data_info.format,
                                             .profile = x->settings.run.profile,
                                             .on_device = trainer->on_device,
                                             .pool = trainer->pool};
    const struct dpb_device_memory memory = {.weights = trainer->arenas.weights,
                                             .gradients = trainer->device_gradients,
                                             .state = trainer->state,
                                             .statistics = trainer->statistics,
                                             .on_device = trainer->on_device,
                                             .takes_events = trainer->takes_events};
    return trainer->device_ops->compile(trainer->device, &compile, &memory, &trainer->program);
}

/* ---- what the loop needs ------------------------------------------------------------------- */

static dpb_status open_feeds(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    struct dpb_feed_args args = dpb_experiment_feed(x);
    args.rank = dpb_world.rank;
    args.board = dpb_world.board;
    args.pool = trainer->pool;
    DPB_TRY(dpb_feed_create(&args, &trainer->feed));
    args.pool = (struct dpb_sample_pool){0};
    if (x->settings.eval.every == 0 && !x->settings.eval.final)
        return DPB_OK;
    args.split = DPB_TEST;
    if (trainer->replicas == 1) { /* rank 0's model alone is tested */
        if (dpb_world.rank != 0)
            return DPB_OK;
        args.n_workers = 1;
    }
    return dpb_feed_eval_create(&args, &trainer->eval_feed);
}

static dpb_status post(void *context, const struct dpb_post *words)
{
    (void)context;
    return dpb_store_post(words, sizeof *words);
}

void dpb_trainer_join_control(struct dpb_trainer *trainer)
{
    dpb_control_init(&trainer->control, dpb_board_control(dpb_world.board), dpb_world.rank,
                     trainer->experiment->n_workers);
    trainer->control.apart = trainer->plan.contract.lead > 0;
    if (dpb_world.parted)
        dpb_control_connect(&trainer->control, post, NULL);
}

/* Where a training goes on, its scale does; and the schedule has stood still in the steps
 * skipped. */
static void open_loss_scale(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    const struct dpb_run_settings *run = &x->settings.run;
    struct dpb_loss_scale *scale = &trainer->loss_scale;
    trainer->scales = run->precision == DPB_PRECISION_FP16 && run->mode == DPB_MODE_TRAIN;
    dpb_loss_scale_init(scale, run->loss_scale);
    scale->skipped = x->start.skipped_steps;
    trainer->rate_shift -= (int64_t)x->start.skipped_steps;
    if (!scale->fixed && x->start.loss_scale != 0) {
        scale->scale = (double)x->start.loss_scale;
        scale->clean = x->start.clean_steps;
    }
    trainer->journal->loss_scale = scale->scale;
}

static dpb_status open_control(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    const struct dpb_run_settings *run = &x->settings.run;
    /* The schedule goes by samples: by the steps that a training of this batch would have done. */
    uint64_t done = x->start.epoch * x->steps_per_epoch + x->start.position / x->global_batch;
    uint64_t total = run->epochs ? (uint64_t)run->epochs * x->steps_per_epoch : 0;
    trainer->gated = run->steady_limit_ns > 0;
    trainer->first_step = trainer->step = x->start.step;
    trainer->rate_shift = (int64_t)done - (int64_t)x->start.step;
    open_loss_scale(trainer);
    trainer->stop_at =
        run->epochs ? dpb_shards_epochs_end(dpb_feed_shards(trainer->feed), (uint64_t)run->epochs)
                    : UINT64_MAX;
    trainer->evaluated_at = UINT64_MAX;
    if (!trainer->gated && run->steps)
        total = done + (uint64_t)(run->warmup_steps + run->steps);
    dpb_trainer_join_control(trainer);
    if (trainer->gated && dpb_world.rank == 0) {
        const struct dpb_gate_limits limits = {.window = (uint32_t)run->steady_window,
                                               .in_a_row = (uint32_t)run->steady_windows,
                                               .drift = run->steady_drift,
                                               .spread = run->steady_spread};
        trainer->gate = dpb_gate_create(&limits);
        if (!trainer->gate)
            return DPB_NO_MEMORY;
    }
    return dpb_schedule_make(&x->settings.optimizer, x->global_batch, x->steps_per_epoch, total,
                             &trainer->schedule);
}

static dpb_status open_journal(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    size_t bytes;
    struct dpb_journal *journal = dpb_board_journal(dpb_world.board, dpb_world.rank, &bytes);
    journal->capacity = (bytes - sizeof *journal) / sizeof journal->records[0];
    journal->timed_from = UINT64_MAX;
    journal->gated = x->settings.run.steady_limit_ns > 0;
    journal->parameters = x->graph->n_parameters;
    journal->macs_per_sample = x->graph->macs;
    journal->steps_per_epoch = x->steps_per_epoch;
    journal->dropped_samples = x->data_info.n_samples[DPB_TRAIN] % x->global_batch;
    journal->threads = trainer->threads;
    journal->n_cores =
        dpb_cores_of(dpb_world.place.index, dpb_world.place.n_workers, dpb_world.place.n_servers,
                     (uint32_t)x->settings.run.comm_cores, (uint32_t)x->settings.device.threads,
                     journal->cores, DPB_JOURNAL_CORES);
    journal->first_step = x->start.step;
    trainer->journal = journal;
    return dpb_account_open(journal, SPANS_A_STEP);
}

static void warn_oversubscribed(const struct dpb_trainer *trainer)
{
    uint32_t n_cores = 0;
    if (dpb_cores_available(&n_cores) == DPB_OK)
        dpb_warn(
            "oversubscribed",
            "more processes than cores: %u workers of %u thread%s and %u server%s take turns on "
            "%u cores, so the rate says little of the strategy; take fewer workers",
            dpb_world.place.n_workers, trainer->threads, trainer->threads == 1 ? "" : "s",
            dpb_world.place.n_servers, dpb_world.place.n_servers == 1 ? "" : "s", n_cores);
}

/* Helpers of all workers here, more than this machine has cores. */
static bool has_too_many_helpers(const struct dpb_experiment *x)
{
    uint64_t n_helpers = (uint64_t)x->settings.data.threads * dpb_world.place.n_workers;
    uint32_t n_cores = 0;
    if (x->settings.run.mode == DPB_MODE_COMM || dpb_cores_available(&n_cores) != DPB_OK ||
        n_helpers <= n_cores)
        return false;
    if (dpb_world.place.index == 0)
        dpb_warn("oversubscribed",
                 "data.threads = %lld for each of %u worker%s are more than the %u cores, so the "
                 "rate says little of the strategy; take fewer",
                 (long long)x->settings.data.threads, dpb_world.place.n_workers,
                 dpb_world.place.n_workers == 1 ? "" : "s", n_cores);
    return true;
}

/* Once a machine, by the first rank there. */
dpb_status dpb_trainer_check_memory(const struct dpb_experiment *x)
{
    uint32_t machine = x->machines[dpb_world.rank];
    struct dpb_machine_memory memory;
    struct dpb_fit fit;
    for (uint32_t rank = 0; rank < dpb_world.rank; rank++)
        if (x->machines[rank] == machine)
            return DPB_OK;
    dpb_fit_of(x, machine, &fit);
    dpb_memory_look("", &memory);
    return dpb_fit_check(x, &fit, &memory);
}

dpb_status dpb_trainer_settle(struct dpb_experiment *experiment, struct dpb_trainer *trainer,
                              bool *oversubscribed)
{
    bool local = experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE;
    memset(trainer, 0, sizeof *trainer);
    trainer->experiment = experiment;
    trainer->replicas = local ? 1 : experiment->n_workers;
    trainer->comm_ops = experiment->plugins[DPB_PLUGIN_COMM]->ops;
    trainer->threads = (uint32_t)experiment->settings.device.threads;
    trainer->device_arenas = dpb_host_device;
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++)
        trainer->own[kind].fd = -1;
    const struct dpb_seat *place = &dpb_world.place;
    DPB_TRY(dpb_cores_bind(place->index, place->n_workers, place->n_servers,
                           (uint32_t)experiment->settings.run.comm_cores, &trainer->threads,
                           oversubscribed));
    dpb_world.may_spin = !*oversubscribed;
    if (!*oversubscribed) {
        uint32_t each = trainer->threads + (uint32_t)experiment->settings.run.comm_cores;
        trainer->n_cores = each * place->n_workers + place->n_servers;
    }
    if (*oversubscribed && place->index == 0)
        warn_oversubscribed(trainer);
    *oversubscribed = *oversubscribed || has_too_many_helpers(experiment);
    return DPB_OK;
}

/* Rank 0 draws it: no plugin can tell a proof's steps from others by their seals. */
static dpb_status share_seal_key(void)
{
    uint64_t key;
    size_t bytes = sizeof key;
    dpb_random_bytes(&key, sizeof key);
    if (dpb_world.rank == 0)
        DPB_TRY(dpb_store.put("seal", &key, sizeof key));
    DPB_TRY(dpb_store.get("seal", &key, &bytes, 0));
    dpb_step_key(key);
    return DPB_OK;
}

/* What a strategy's contract excludes is known only when it has planned. */
static dpb_status refuse_contract(const struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    const bool exchanges = trainer->plan.contract.consistency != DPB_ALONE;
    if (exchanges && trainer->plan.contract.lead > 0 &&
        x->settings.run.precision == DPB_PRECISION_FP16)
        return dpb_fail(
            DPB_UNSUPPORTED,
            "comm '%s' lets workers be steps apart, and run.precision = fp16 has them "
            "agree in each step on whether gradients are finite; take another precision",
            x->settings.comm.name);
    return DPB_OK;
}

dpb_status dpb_trainer_open(struct dpb_experiment *experiment, struct dpb_trainer *trainer)
{
    bool oversubscribed;
    DPB_TRY(dpb_trainer_settle(experiment, trainer, &oversubscribed));
    dpb_world_note("open", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_experiment_build(experiment, dpb_world.rank));
    DPB_TRY(dpb_trainer_check_memory(experiment));
    DPB_TRY(open_journal(trainer));
    trainer->journal->oversubscribed = oversubscribed;
    if (dpb_world.role == DPB_WORKER)
        DPB_TRY(dpb_trainer_open_device(trainer));
    DPB_TRY(share_seal_key());
    DPB_TRY(dpb_trainer_connect(trainer, experiment->graph));
    dpb_contract_label(&trainer->plan.contract, experiment->n_workers,
                       trainer->journal->consistency);
    trainer->journal->apart = trainer->plan.contract.lead > 0;
    DPB_TRY(refuse_contract(trainer));
    if (dpb_world.role == DPB_SERVER)
        return DPB_OK;
    dpb_world_note("compile", UINT64_MAX, UINT32_MAX);
    DPB_TRY(compile(trainer));
    DPB_TRY(open_feeds(trainer));
    DPB_TRY(open_control(trainer));
    return dpb_pump_start(trainer);
}

void dpb_trainer_leave(struct dpb_trainer *trainer)
{
    dpb_pump_stop(trainer);
    trainer->comm_ops->close(trainer->comm);
    trainer->comm = NULL;
    trainer->pending = NULL; /* it was the communicator's */
    dpb_arenas_stop(trainer);
    dpb_arenas_let_go(trainer);
}

void dpb_trainer_close(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    size_t element = dpb_dtype_size(x->weight_type);
    dpb_trainer_leave(trainer); /* first: work of the device may wait for the strategy's */
    dpb_feed_destroy(trainer->eval_feed);
    dpb_feed_destroy(trainer->feed);
    dpb_gate_destroy(trainer->gate);
    if (trainer->device_ops)
        trainer->device_ops->release(trainer->program);
    if (x->graph) {
        size_t state_bytes = x->graph->n_state_elements * element;
        dpb_release(trainer->state, state_bytes);
        dpb_release(trainer->statistics, state_bytes);
        dpb_release(trainer->summed_statistics, state_bytes);
        if (trainer->device_gradients != trainer->summed_gradients)
            trainer->place->ops->release(trainer->place->device, trainer->device_gradients);
        if (trainer->summed_gradients != trainer->arenas.gradients)
            trainer->place->ops->release(trainer->place->device, trainer->summed_gradients);
    }
    for (size_t i = 0; i < trainer->n_staged_events; i++)
        dpb_events.destroy(trainer->staged_events[i]);
    free(trainer->staged_events);
    dpb_trainer_disconnect(trainer);
    if (trainer->device_ops)
        trainer->device_ops->close(trainer->device);
    dpb_account_close();
}
