/*
 * trainer.c - opens the means of a rank's training: its cores, the device, the strategy with its
 * arenas, then the program compiled onto them, and the feeds. See trainer.h.
 */
#include "loop/trainer.h"

#include "base/log.h"
#include "base/secret.h"
#include "proof/follow.h"
#include "exchange/open.h"
#include "exchange/pump.h"
#include "exchange/staging.h"
#include "exchange/step.h"
#include "measure/trace.h"
#include "plan/contract.h"
#include "plan/estimate.h"
#include "plan/evaluations.h"
#include "plan/fit.h"
#include "plan/resume.h"
#include "world/store.h"

enum { SPANS_A_STEP = 1 << 16 };

_Static_assert(2 * DPB_DELAY_LOOKS <= SPANS_A_STEP, "the looks of a delay leave room for others");

/* ---- the device ---------------------------------------------------------------------------- */

/* Also watches its GPU, where there is one. */
static dpb_status open_engine(struct dpb_trainer *trainer)
{
    struct dpb_engine *engine = &trainer->engine;
    DPB_TRY(dpb_engine_open(trainer->experiment, trainer->binding.threads, engine,
                            &trainer->exchange.memory.device));
    const char *gpu = dpb_board_page(dpb_world.board, dpb_world.rank)->gpu;
    if (gpu[0] != '\0')
        dpb_gpu_open(engine->ops->monitor, gpu, &trainer->journal->gpu);
    return DPB_OK;
}

static dpb_status compile(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    struct dpb_exchange *exchange = &trainer->exchange;
    struct dpb_engine *engine = &trainer->engine;
    DPB_TRY(dpb_statistics_open(experiment->graph, experiment->weight_type, &trainer->statistics));
    DPB_TRY(dpb_staging_open(exchange));
    if (exchange->passes.takes_events)
        dpb_account_by_device(experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE);
    if (experiment->settings.data.place == DPB_PLACE_DEVICE) {
        const struct dpb_data_ops *data_ops = experiment->plugins[DPB_PLUGIN_DATA]->ops;
        DPB_TRY(data_ops->pool(experiment->data, DPB_TRAIN, &trainer->pool));
    }
    struct dpb_compile_args compile = dpb_experiment_compile_args(experiment);
    compile.profile = experiment->settings.run.profile;
    compile.pool = trainer->pool;
    const struct dpb_device_memory memory = {.weights = exchange->weights,
                                             .gradients = exchange->staging.device,
                                             .state = trainer->statistics.running,
                                             .statistics = trainer->statistics.micro_batch,
                                             .on_device = exchange->memory.on_device,
                                             .takes_events = exchange->passes.takes_events};
    DPB_TRY(engine->ops->compile(engine->device, &compile, &memory, &engine->program));
    exchange->passes.ops = engine->ops;
    exchange->passes.program = engine->program;
    return DPB_OK;
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
    if (experiment->evaluate_every == 0 && !experiment->settings.eval.final)
        return DPB_OK;
    args.split = DPB_TEST;
    if (experiment->settings.eval.batches > 0)
        args.info.n_samples[DPB_TEST] =
            (uint64_t)experiment->settings.eval.batches * experiment->batch;
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
    journal->dilation = experiment->settings.run.dilation;
    journal->gated = experiment->settings.run.steady_limit_ns > 0;
    journal->parameters = experiment->graph->n_parameters;
    journal->macs_per_sample = experiment->graph->macs;
    journal->classes = experiment->graph->nclass;
    if (dpb_graph_reads_ids(experiment->graph))
        journal->tokens = dpb_graph_labels(experiment->graph);
    journal->steps_per_epoch = experiment->steps_per_epoch;
    journal->dropped_samples =
        experiment->data_info.n_samples[DPB_TRAIN] % experiment->global_batch;
    journal->threads = trainer->binding.threads;
    journal->place_threads = trainer->binding.place_threads;
    const struct dpb_cores_job job = dpb_binding_job(experiment, &dpb_world.place);
    if (!dpb_experiment_emulates(experiment))
        journal->n_cores =
            dpb_cores_of(&job, dpb_world.place.index, journal->cores, DPB_JOURNAL_CORES);
    journal->node_bytes = dpb_cores_memory(journal->cores, journal->n_cores);
    journal->oversubscribed = trainer->binding.oversubscribed;
    journal->first_step = experiment->start.step;
    trainer->journal = journal;
    if (dpb_world.rank == 0 && dpb_resumes(&experiment->settings))
        DPB_TRY(dpb_evaluations_read(experiment->settings.checkpoint.load, journal->evals,
                                     DPB_JOURNAL_EVALS, &journal->n_evals));
    return dpb_account_open(journal, SPANS_A_STEP);
}

/* A training that is continued continues its scale; and the schedule has stood still in the steps
 * skipped. */
static void open_loss_scale(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    const struct dpb_run_settings *run = &experiment->settings.run;
    struct dpb_loss_scale *scale = &trainer->loss_scale;
    dpb_loss_scale_init(scale, run->loss_scale);
    scale->skipped = experiment->start.skipped_steps;
    trainer->course.rate_shift -= (int64_t)experiment->start.skipped_steps;
    if (!scale->fixed && experiment->start.loss_scale != 0) {
        scale->scale = (double)experiment->start.loss_scale;
        scale->clean = experiment->start.clean_steps;
    }
    trainer->journal->loss_scale = scale->scale;
}

static dpb_status open_course(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    const struct dpb_run_settings *run = &experiment->settings.run;
    /* The schedule goes by samples: by the steps that a training of this batch would have done. */
    uint64_t done = experiment->start.epoch * experiment->steps_per_epoch +
                    experiment->start.position / experiment->global_batch;
    uint64_t total = run->epochs ? (uint64_t)run->epochs * experiment->steps_per_epoch : 0;
    trainer->course.gated = run->steady_limit_ns > 0;
    trainer->course.first_step = trainer->course.step = experiment->start.step;
    trainer->course.rate_shift = (int64_t)done - (int64_t)experiment->start.step;
    open_loss_scale(trainer);
    trainer->course.stop_at =
        run->epochs ? dpb_shards_epochs_end(dpb_feed_shards(trainer->feed), (uint64_t)run->epochs)
                    : UINT64_MAX;
    trainer->course.evaluated_at = UINT64_MAX;
    if (!trainer->course.gated && run->steps)
        total = done + (uint64_t)(run->warmup_steps + run->steps);
    dpb_control_join(&trainer->control, experiment->n_workers, trainer->journal->apart,
                     trainer->exchange.plan.contract.lead);
    if (trainer->exchange.late.on) {
        trainer->control.meanwhile = dpb_exchange_move;
        trainer->control.owner = &trainer->exchange;
    }
    if (trainer->course.gated && dpb_world.rank == 0) {
        const struct dpb_gate_limits limits = {.window = (uint32_t)run->steady_window,
                                               .in_a_row = (uint32_t)run->steady_windows,
                                               .drift = run->steady_drift,
                                               .spread = run->steady_spread};
        trainer->course.gate = dpb_gate_create(&limits);
        if (!trainer->course.gate)
            return DPB_NO_MEMORY;
    }
    DPB_TRY(dpb_schedule_make(&experiment->settings.optimizer, experiment->global_batch,
                              experiment->steps_per_epoch, total, &trainer->schedule));
    if (dpb_world.rank == 0 && total > 0 && trainer->schedule.warmup_steps >= (double)total)
        dpb_warn("warmup_only",
                 "optimizer.warmup_epochs = %g are %.0f steps, and the training has %llu: the rate "
                 "rises to the end, and no schedule begins",
                 experiment->settings.optimizer.warmup_epochs, trainer->schedule.warmup_steps,
                 (unsigned long long)total);
    return DPB_OK;
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

/* journal->within. Nobody waits for a worker that has settled (the hook `settle`) until it has
 * ended a further step. So the begins of its steps do not show a stale strategy's lead. */
static uint32_t steps_within(const struct dpb_exchange *exchange)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    const bool waits =
        contract->consistency == DPB_SYNCHRONOUS || exchange->late.on || !exchange->ops->settle;
    return exchange->experiment->settings.run.mode == DPB_MODE_TRAIN && waits &&
                   contract->lead < UINT32_MAX
               ? 1 + contract->lead + (exchange->late.on ? 1 : 0)
               : 0;
}

dpb_status dpb_trainer_open(struct dpb_experiment *experiment, struct dpb_trainer *trainer)
{
    const struct dpb_contract *contract = &trainer->exchange.plan.contract;
    *trainer = (struct dpb_trainer){.experiment = experiment,
                                    .replicas = dpb_experiment_replicas(experiment)};
    dpb_exchange_init(&trainer->exchange, experiment);
    DPB_TRY(dpb_bind(experiment, &trainer->binding));
    dpb_world_note("open", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_fit_build(experiment, dpb_world.rank, false));
    DPB_TRY(dpb_bind_memory(experiment));
    if (dpb_world.n_ranks > 1) /* nobody takes more before the first of a machine has looked */
        DPB_TRY(dpb_store_barrier("memory", 0));
    DPB_TRY(open_journal(trainer));
    dpb_account_spend(DPB_SPENT_COMPILE);
    if (dpb_world.role == DPB_WORKER)
        DPB_TRY(open_engine(trainer));
    dpb_account_spend(DPB_SPENT_CONNECT);
    DPB_TRY(share_seal_key());
    DPB_TRY(dpb_exchange_open(&trainer->exchange, experiment->graph));
    DPB_TRY(dpb_snapshot_open(&trainer->snapshot, &trainer->exchange, &trainer->statistics,
                              trainer->journal));
    dpb_contract_label(contract, experiment->n_workers, trainer->journal->consistency);
    trainer->journal->apart = dpb_contract_apart(contract, trainer->exchange.ops);
    trainer->journal->within = steps_within(&trainer->exchange);
    if (dpb_world.role == DPB_SERVER)
        return DPB_OK;
    dpb_world_note("compile", UINT64_MAX, UINT32_MAX);
    dpb_account_spend(DPB_SPENT_COMPILE);
    DPB_TRY(compile(trainer));
    dpb_account_spend(DPB_SPENT_START);
    DPB_TRY(open_feeds(trainer));
    DPB_TRY(open_course(trainer));
    return dpb_pump_start(&trainer->exchange);
}

void dpb_trainer_close(struct dpb_trainer *trainer)
{
    struct dpb_engine *engine = &trainer->engine;
    dpb_exchange_leave(&trainer->exchange); /* first: the device's work may wait for its own */
    dpb_feed_destroy(trainer->eval_feed);
    dpb_feed_destroy(trainer->feed);
    dpb_gate_destroy(trainer->course.gate);
    if (engine->ops)
        engine->ops->release(engine->program);
    dpb_statistics_close(&trainer->statistics);
    dpb_follow_close(&trainer->exchange);
    dpb_snapshot_close(&trainer->snapshot);
    dpb_exchange_close(&trainer->exchange);
    dpb_engine_close(engine);
    dpb_account_close();
    dpb_trace_close();
}

/* ---- the course of a training -------------------------------------------------------------- */

int64_t dpb_trained_ns(const struct dpb_trainer *trainer)
{
    const struct dpb_journal *journal = trainer->journal;
    int64_t before_ns = trainer->experiment->start.trained_ns;
    if (journal->n_records == 0)
        return before_ns;
    const int64_t met_ns = trainer->course.met_ns;
    const int64_t end_ns = met_ns > 0 ? met_ns : journal->ended_ns;
    return before_ns + end_ns - dpb_journal_began_ns(journal, 0) - trainer->course.all_paused_ns;
}

double dpb_train_rate(const struct dpb_trainer *trainer)
{
    return dpb_schedule_rate(&trainer->schedule,
                             trainer->course.step + (uint64_t)trainer->course.rate_shift);
}

double dpb_train_last_rate(const struct dpb_trainer *trainer)
{
    const uint64_t done = trainer->course.step > trainer->course.first_step;
    return dpb_schedule_rate(&trainer->schedule,
                             trainer->course.step - done + (uint64_t)trainer->course.rate_shift);
}

struct dpb_progress dpb_train_progress(const struct dpb_trainer *trainer)
{
    const struct dpb_loss_scale *scale = &trainer->loss_scale;
    struct dpb_progress progress = dpb_feed_progress(trainer->feed, trainer->course.step);
    progress.trained_ns = dpb_trained_ns(trainer);
    progress.seed = (uint64_t)trainer->experiment->settings.run.seed;
    if (trainer->exchange.staging.held_back) {
        progress.loss_scale = scale->fixed ? 0 : (uint64_t)scale->scale;
        progress.clean_steps = scale->clean;
        progress.skipped_steps = scale->skipped;
    }
    return progress;
}
