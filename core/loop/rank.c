/* rank.c - see rank.h. */
#include "loop/rank.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/deadline.h"
#include "base/log.h"
#include "base/threads.h"
#include "exchange/access.h"
#include "proof/follow.h"
#include "exchange/open.h"
#include "loop/evaluate.h"
#include "loop/loop.h"
#include "machine/usage.h"
#include "measure/trace.h"
#include "proof/follow_judge.h"
#include "proof/proof.h"
#include "proof/verify.h"
#include "save/saved.h"
#include "world/store.h"

/* The same weights on every worker; then the strategy takes them as the model. */
static dpb_status load_model(struct dpb_trainer *trainer)
{
    DPB_TRY(dpb_snapshot_load(&trainer->snapshot));
    trainer->engine.weights_changed = true;
    DPB_TRY(dpb_exchange_load(&trainer->exchange));
    return dpb_saved_load(&trainer->exchange);
}

/* A run that ended before its gate opened, or just then, is timed from the end of the counted
 * warm-up. */
static void settle_timing(struct dpb_trainer *trainer)
{
    struct dpb_journal *journal = trainer->journal;
    const uint64_t warm = (uint64_t)trainer->experiment->settings.run.warmup_steps;
    if (journal->timed_from < journal->n_records)
        return;
    journal->timed_from = warm < journal->n_records ? warm : journal->n_records;
    journal->steady = false;
}

/* On rank 0, while the others wait for it: the limits are those of a machine at rest. */
static dpb_status take_profile(struct dpb_trainer *trainer)
{
    struct dpb_profile profile = {0};
    struct dpb_journal *journal = trainer->journal;
    DPB_TRY(dpb_workers_meet());
    if (dpb_world.rank == 0) {
        DPB_TRY(trainer->engine.ops->profile(trainer->engine.program, &profile));
        journal->limits = profile.limits;
        snprintf(journal->profile_how, sizeof journal->profile_how, "%s",
                 profile.how ? profile.how : "");
        for (uint64_t i = 0; i < profile.n_rows && i < DPB_JOURNAL_PROFILE; i++) {
            const struct dpb_profile_row *row = &profile.rows[i];
            struct dpb_profile_entry *entry = &journal->profile[i];
            *entry = (struct dpb_profile_entry){.backward = row->backward,
                                                .node = row->node,
                                                .calls = row->calls,
                                                .ns = row->ns,
                                                .flops = row->flops,
                                                .bytes = row->bytes};
            snprintf(entry->layer, sizeof entry->layer, "%s",
                     trainer->experiment->graph->nodes[row->node].name);
            snprintf(entry->op, sizeof entry->op, "%s", row->op);
            snprintf(entry->what, sizeof entry->what, "%s", row->what);
        }
        journal->n_profile =
            profile.n_rows < DPB_JOURNAL_PROFILE ? profile.n_rows : DPB_JOURNAL_PROFILE;
        if (profile.n_rows > DPB_JOURNAL_PROFILE)
            dpb_warn("profile_cut", "run.profile: %llu of %llu rows are left out",
                     (unsigned long long)(profile.n_rows - DPB_JOURNAL_PROFILE),
                     (unsigned long long)profile.n_rows);
    }
    return dpb_workers_meet();
}

static dpb_status begin_monitor(struct dpb_trainer *trainer)
{
    return dpb_monitor_begin(trainer->monitor, trainer->experiment->settings.run.monitor_ns,
                             &trainer->journal->gpu);
}

/* run.survive: from now on the others train on if this worker dies. Or, once all have come here,
 * they no longer do: the work that follows is for the workers left then. */
static dpb_status let_die(const struct dpb_trainer *trainer, bool may_die)
{
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    if (!trainer->experiment->settings.run.survive)
        return DPB_OK;
    __atomic_store_n(&page->may_die, may_die, __ATOMIC_RELEASE);
    return may_die ? DPB_OK : dpb_workers_meet();
}

static dpb_status work(struct dpb_trainer *trainer, int64_t opened_ns)
{
    const struct dpb_settings *settings = &trainer->experiment->settings;
    struct dpb_exchange *exchange = &trainer->exchange;
    dpb_account_spend(DPB_SPENT_PROOF);
    if (settings->run.mode == DPB_MODE_TRAIN) {
        DPB_TRY(dpb_store_barrier("bound", 0)); /* the servers are about to serve */
        DPB_TRY(dpb_prove_pattern(exchange, dpb_train_rate(trainer), trainer->journal));
        if (settings->run.prove)
            DPB_TRY(dpb_prove_exchange(exchange, dpb_train_rate(trainer), trainer->journal));
    } else {
        trainer->journal->verdict_pattern = trainer->journal->verdict_after =
            DPB_VERDICT_NOT_APPLICABLE;
    }
    DPB_TRY(dpb_workers_meet());
    dpb_account_spend(DPB_SPENT_START);
    /* The checks' gradients stand in the gaps between the tensors, too, where no device writes:
     * each step would sum them up anew, and in the end to infinity. */
    DPB_TRY(dpb_arena_clear(exchange, exchange->gradients,
                            dpb_arena_bytes(exchange, exchange->layout.gradient_type)));
    DPB_TRY(load_model(trainer));
    DPB_TRY(dpb_workers_meet());
    DPB_TRY(dpb_follow_open(exchange, trainer->journal));
    DPB_TRY(begin_monitor(trainer));
    trainer->journal->start_ns = dpb_now_ns() - opened_ns;
    DPB_TRY(let_die(trainer, true));
    dpb_account_spend(DPB_SPENT_STEPS);
    dpb_status trained = settings->run.mode == DPB_MODE_EVALUATE ? DPB_OK : dpb_train(trainer);
    if (trained == DPB_OK)
        dpb_follow_end(exchange);
    dpb_monitor_end();
    settle_timing(trainer);
    dpb_account_spend(DPB_SPENT_PROOF);
    if (trained != DPB_OK && trained != DPB_INTERRUPTED)
        return trained;
    if (settings->run.profile)
        DPB_TRY(take_profile(trainer));
    DPB_TRY(dpb_verify_ages(exchange, trainer->journal));
    DPB_TRY(dpb_verify_lead(exchange));
    /* If gradients settle later, dpb_prove_again settles and compares the replicas. */
    if (settings->run.mode == DPB_MODE_TRAIN && exchange->plan.contract.settle_steps == 0)
        DPB_TRY(dpb_verify_replicas(exchange, trainer->journal));
    if (settings->eval.final && trainer->course.evaluated_at != trainer->course.step &&
        trained == DPB_OK)
        DPB_TRY(dpb_evaluate(trainer));
    const struct dpb_progress progress = dpb_train_progress(trainer);
    DPB_TRY(dpb_snapshot_save(&trainer->snapshot, &progress));
    dpb_trace_stop();
    DPB_TRY(let_die(trainer, false));
    /* At the last step's rate: a strategy may do something else where the rate drops. */
    if (settings->run.mode == DPB_MODE_TRAIN && trained == DPB_OK) {
        DPB_TRY(dpb_prove_again(exchange, dpb_train_last_rate(trainer), trainer->journal));
        DPB_TRY(dpb_follow_judge(exchange, trainer->journal));
    }
    return trained;
}

static dpb_status serve(struct dpb_trainer *trainer)
{
    DPB_TRY(dpb_snapshot_load(&trainer->snapshot)); /* proving an exchange leaves it as it is */
    dpb_world_note("serve", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_follow_open(&trainer->exchange, trainer->journal));
    DPB_TRY(dpb_store_barrier("bound", 0));
    DPB_TRY(begin_monitor(trainer));
    dpb_status status = trainer->exchange.ops->serve(trainer->exchange.comm);
    dpb_monitor_end();
    return status;
}

/* On the host and the device. */
static void note_arenas(const struct dpb_exchange *exchange, struct dpb_journal *journal)
{
    const uint64_t *bytes = exchange->memory.own_bytes;
    const uint64_t held = exchange->resident.most_bytes; /* of weights on need */
    journal->weights_bytes = held > 0 ? held : bytes[DPB_ARENA_WEIGHTS];
    journal->gradients_bytes = bytes[DPB_ARENA_GRADIENTS];
    journal->scratch_bytes = bytes[DPB_ARENA_SCRATCH] + bytes[DPB_ARENA_INBOX];
    journal->state_bytes = dpb_optimizer_bytes(exchange->optimizer);
}

static void note_usage(struct dpb_trainer *trainer, int64_t opened_ns)
{
    const struct dpb_data_ops *data = trainer->experiment->plugins[DPB_PLUGIN_DATA]->ops;
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        trainer->journal->peak_memory_bytes = (uint64_t)usage.ru_maxrss * 1024;
    note_arenas(&trainer->exchange, trainer->journal);
    trainer->journal->n_tcp = dpb_tcp_count(trainer->journal->tcp);
    if (dpb_world.role == DPB_SERVER && dpb_experiment_emulates(trainer->experiment)) {
        trainer->journal->run_delay_ns = dpb_usage_run_delay_ns();
        trainer->journal->run_delay_of_ns = dpb_now_ns() - opened_ns;
    }
    if (data->count)
        data->count(trainer->experiment->data, &trainer->journal->data);
    if (trainer->journal->data.skipped > 0)
        dpb_warn("skipped_samples",
                 "%llu samples of data '%s' were unreadable; others took their place",
                 (unsigned long long)trainer->journal->data.skipped,
                 trainer->experiment->settings.data.name);
}

dpb_status dpb_rank_run(struct dpb_experiment *experiment)
{
    struct dpb_trainer trainer;
    int64_t opened_ns = dpb_now_ns();
    dpb_thread_enter();
    dpb_world.timeout_ns = experiment->settings.run.timeout_ns;
    const int error = dpb_ran_tick();
    if (error != 0)
        return dpb_fail(DPB_FAILED, "cannot start a thread: %s", strerror(error));
    dpb_status status = dpb_trainer_open(experiment, &trainer);
    DPB_THEN(status, dpb_world.role == DPB_SERVER ? serve(&trainer) : work(&trainer, opened_ns));
    dpb_account_spend(DPB_SPENT_END);
    if (trainer.journal)
        note_usage(&trainer, opened_ns);
    if (status == DPB_OK || status == DPB_INTERRUPTED) { /* else the page keeps where it failed */
        dpb_world_note("teardown", UINT64_MAX, UINT32_MAX);
        dpb_exchange_leave(&trainer.exchange);
        if (dpb_store_barrier("end", 0) != DPB_OK) /* all leave together, or one has failed */
            status = DPB_PEER;
        else
            trainer.exchange.memory.all_let_go = true;
    }
    dpb_trainer_close(&trainer);
    dpb_thread_leave();
    return status;
}
