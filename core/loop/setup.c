/*
 * setup.c - opens the means of a rank's training: its cores, the device, the strategy with its
 * arenas (connect.c), then the program compiled onto them, and the feeds.
 */
#include "base/secret.h"
#include "plan/fit.h"
#include "exchange/follow.h"
#include "measure/trace.h"
#include "loop/trainer.h"
#include "world/store.h"

enum { SPANS_A_STEP = 1 << 16 };

_Static_assert(2 * DPB_DELAY_LOOKS <= SPANS_A_STEP, "the looks of a delay leave room for others");

/* ---- the device ---------------------------------------------------------------------------- */

/* Also watches its GPU, where there is one. */
static dpb_status open_engine(struct dpb_trainer *trainer)
{
    struct dpb_engine *engine = &trainer->exchange.engine;
    DPB_TRY(dpb_engine_open(&trainer->exchange, trainer->binding.threads));
    const char *gpu = dpb_board_page(dpb_world.board, dpb_world.rank)->gpu;
    if (gpu[0] != '\0')
        dpb_gpu_open(engine->ops->monitor, gpu, &trainer->journal->gpu);
    return DPB_OK;
}

static dpb_status compile(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    struct dpb_exchange *exchange = &trainer->exchange;
    struct dpb_engine *engine = &exchange->engine;
    const bool on_device = exchange->memory.on_device;
    DPB_TRY(dpb_statistics_open(experiment->graph, experiment->weight_type, &trainer->statistics));
    DPB_TRY(dpb_staging_open(exchange));
    if (exchange->takes_events)
        dpb_account_by_device(experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE);
    if (experiment->settings.data.place == DPB_PLACE_DEVICE) {
        const struct dpb_data_ops *data_ops = experiment->plugins[DPB_PLUGIN_DATA]->ops;
        DPB_TRY(data_ops->pool(experiment->data, DPB_TRAIN, &trainer->pool));
    }
    const struct dpb_compile_args compile = {
        .graph = experiment->graph,
        .batch = experiment->batch,
        .precision = (dpb_precision)experiment->settings.run.precision,
        .training = experiment->settings.run.mode == DPB_MODE_TRAIN,
        .format = &experiment->data_info.format,
        .profile = experiment->settings.run.profile,
        .on_device = on_device,
        .pool = trainer->pool};
    const struct dpb_device_memory memory = {.weights = exchange->weights,
                                             .gradients = exchange->staging.device,
                                             .state = trainer->statistics.running,
                                             .statistics = trainer->statistics.micro_batch,
                                             .on_device = on_device,
                                             .takes_events = exchange->takes_events};
    return engine->ops->compile(engine->device, &compile, &memory, &engine->program);
}

/* ---- what the loop needs ------------------------------------------------------------------- */

static dpb_status open_feeds(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    struct dpb_feed_args args = dpb_experiment_feed(experiment);
    args.rank = dpb_world.rank;
    args.board = dpb_world.board;
    args.pool = trainer->pool;
    DPB_TRY(dpb_feed_create(&args, &trainer->feed));
    args.pool = (struct dpb_sample_pool){0};
    if (experiment->settings.eval.every == 0 && !experiment->settings.eval.final)
        return DPB_OK;
    args.split = DPB_TEST;
    if (trainer->replicas == 1 && dpb_world.rank != 0) /* rank 0's model alone is tested */
        return DPB_OK;
    return dpb_feed_eval_create(&args, &trainer->eval_feed);
}

static dpb_status open_journal(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    size_t bytes;
    struct dpb_journal *journal = dpb_board_journal(dpb_world.board, dpb_world.rank, &bytes);
    const size_t trace_bytes = dpb_trace_bytes(&experiment->settings);
    const size_t monitor_bytes = dpb_monitor_bytes(&experiment->settings);
    if (trace_bytes > 0)
        dpb_trace_open((void *)((uint8_t *)journal + bytes - trace_bytes),
                       dpb_trace_capacity(&experiment->settings));
    if (monitor_bytes > 0)
        trainer->monitor = (void *)((uint8_t *)journal + bytes - trace_bytes - monitor_bytes);
    journal->capacity =
        (bytes - trace_bytes - monitor_bytes - sizeof *journal) / sizeof journal->records[0];
    journal->timed_from = UINT64_MAX;
    journal->gated = experiment->settings.run.steady_limit_ns > 0;
    journal->parameters = experiment->graph->n_parameters;
    journal->macs_per_sample = experiment->graph->macs;
    journal->classes = experiment->graph->nclass;
    journal->steps_per_epoch = experiment->steps_per_epoch;
    journal->dropped_samples =
        experiment->data_info.n_samples[DPB_TRAIN] % experiment->global_batch;
    journal->threads = trainer->binding.threads;
    journal->place_threads = trainer->binding.place_threads;
    const struct dpb_cores_job job = dpb_binding_job(experiment, &dpb_world.place);
    journal->n_cores = dpb_cores_of(&job, dpb_world.place.index, journal->cores, DPB_JOURNAL_CORES);
    journal->oversubscribed = trainer->binding.oversubscribed;
    journal->first_step = experiment->start.step;
    trainer->journal = journal;
    return dpb_account_open(journal, SPANS_A_STEP);
}

/* Rank 0 draws the key: no plugin can distinguish a proof's steps from others by their seals. */
static dpb_status share_seal_key(void)
{
    uint64_t key;
    dpb_random_bytes(&key, sizeof key);
    DPB_TRY(dpb_store_from_0("seal", &key, sizeof key));
    dpb_step_key(key);
    return DPB_OK;
}

dpb_status dpb_trainer_open(struct dpb_experiment *experiment, struct dpb_trainer *trainer)
{
    const struct dpb_contract *contract = &trainer->exchange.plan.contract;
    const bool alone = experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE;
    *trainer = (struct dpb_trainer){.experiment = experiment,
                                    .replicas = alone ? 1 : experiment->n_workers};
    dpb_exchange_init(&trainer->exchange, experiment);
    DPB_TRY(dpb_bind(experiment, &trainer->binding));
    dpb_world_note("open", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_fit_build(experiment, dpb_world.rank, false));
    DPB_TRY(dpb_bind_memory(experiment));
    if (dpb_world.n_ranks > 1) /* nobody takes more before the first of a machine has looked */
        DPB_TRY(dpb_store_barrier("memory", 0));
    DPB_TRY(open_journal(trainer));
    if (dpb_world.role == DPB_WORKER)
        DPB_TRY(open_engine(trainer));
    DPB_TRY(share_seal_key());
    DPB_TRY(dpb_exchange_connect(&trainer->exchange, experiment->graph));
    dpb_contract_label(contract, experiment->n_workers, trainer->journal->consistency);
    trainer->journal->apart = contract->lead > 0;
    if (dpb_world.role == DPB_SERVER)
        return DPB_OK;
    dpb_world_note("compile", UINT64_MAX, UINT32_MAX);
    DPB_TRY(compile(trainer));
    DPB_TRY(open_feeds(trainer));
    DPB_TRY(dpb_course_open(trainer));
    return dpb_pump_start(&trainer->exchange);
}

void dpb_trainer_close(struct dpb_trainer *trainer)
{
    struct dpb_engine *engine = &trainer->exchange.engine;
    dpb_exchange_leave(&trainer->exchange); /* first: the device's work may wait for its own */
    dpb_feed_destroy(trainer->eval_feed);
    dpb_feed_destroy(trainer->feed);
    dpb_gate_destroy(trainer->course.gate);
    if (engine->ops)
        engine->ops->release(engine->program);
    dpb_statistics_close(&trainer->statistics);
    dpb_follow_close(&trainer->exchange);
    dpb_exchange_disconnect(&trainer->exchange);
    dpb_engine_close(engine);
    dpb_account_close();
    dpb_trace_close();
}
