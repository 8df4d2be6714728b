/* between.c - see between.h. */
#include "loop/between.h"

#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "base/threads.h"
#include "exchange/step.h"
#include "loop/evaluate.h"
#include "loop/finite.h"
#include "machine/usage.h"
#include "measure/account.h"
#include "world/futex.h"
#include "world/job_load.h"

/* ---- warm-up and reasons to stop ----------------------------------------------------------- */

/* Rank 0: whether warm-up is over, by count and by the gate. Nothing once it has been proposed. */
void dpb_watch_warm_up(struct dpb_trainer *trainer)
{
    const struct dpb_run_settings *run = &trainer->experiment->settings.run;
    const struct dpb_journal *journal = trainer->journal;
    /* The record of a step is there when the next step has begun; with a device's times, a step
     * later. */
    uint64_t warm = (uint64_t)run->warmup_steps + (trainer->exchange.passes.takes_events ? 1 : 0);
    if (trainer->control.rank != 0 || !trainer->course.gate ||
        trainer->course.step - trainer->course.first_step <= warm)
        return;
    int64_t now = dpb_now_ns() - trainer->course.paused_ns; /* the limit is one of training */
    if (trainer->course.warm_at_ns == 0)
        trainer->course.warm_at_ns = now;
    bool open =
        dpb_gate_add(trainer->course.gate, journal->records[journal->n_records - 1].step_ns);
    bool late = now - trainer->course.warm_at_ns > run->steady_limit_ns;
    if (open || late) {
        dpb_control_propose(&trainer->control, DPB_ACTION_TIMED | (open ? 0 : DPB_ACTION_UNSTEADY));
        dpb_gate_destroy(trainer->course.gate);
        trainer->course.gate = NULL;
    }
}

/* Rank 0: reasons to stop that only show while running. */
static void watch_for_stop(struct dpb_trainer *trainer)
{
    const struct dpb_run_settings *run = &trainer->experiment->settings.run;
    const struct dpb_journal *journal = trainer->journal;
    if (trainer->control.rank != 0 || trainer->course.stopping)
        return;
    uint32_t actions = 0;
    if (run->seconds_ns && journal->timed_from < journal->n_records &&
        dpb_now_ns() - dpb_journal_began_ns(journal, journal->timed_from) -
                trainer->course.paused_ns - dpb_parked_ns() >=
            run->seconds_ns)
        actions = DPB_ACTION_STOP;
    if (__atomic_load_n(&dpb_board_turns(dpb_world.board)->end, __ATOMIC_ACQUIRE) != 0)
        actions = DPB_ACTION_STOP;
    if (dpb_board_interrupted(dpb_world.board))
        actions = DPB_ACTION_STOP | DPB_ACTION_INTERRUPTED;
    if (actions)
        dpb_control_propose(&trainer->control, actions);
    trainer->course.stopping = actions != 0;
}

static bool has_pauses(const struct dpb_trainer *trainer)
{
    const struct dpb_save_points *saves = &trainer->experiment->save_points;
    return trainer->experiment->evaluate_every > 0 || saves->every > 0 || saves->n > 0;
}

/* The first timed step is known: from it follows the end of a run that counts steps. Workers that
 * are apart begin to time at steps of their own; where they meet in pauses they end at the same. */
static dpb_status begin_timing(struct dpb_trainer *trainer, bool steady)
{
    const struct dpb_run_settings *run = &trainer->experiment->settings.run;
    trainer->journal->steady = steady;
    trainer->journal->timed_from = trainer->course.step - trainer->course.first_step;
    if (trainer->control.rank == 0)
        dpb_load_begin(trainer->binding.n_cores);
    dpb_gpu_begin(&trainer->journal->gpu);
    trainer->course.timed_ns = dpb_now_ns();
    trainer->course.others_ns = dpb_threads_others_ns();
    if (trainer->engine.ops->late_ns) {
        trainer->course.run_delay_ns = dpb_usage_run_delay_ns();
        (void)trainer->engine.ops->late_ns(trainer->engine.program);
        (void)dpb_optimizer_late_ns(trainer->exchange.optimizer);
    }
    const bool common = trainer->control.apart && trainer->course.gated && has_pauses(trainer);
    if (run->steps)
        trainer->course.stop_at =
            (common ? trainer->control.committed : trainer->course.step) + (uint64_t)run->steps;
    dpb_board_page(dpb_world.board, dpb_world.rank)->n_steps =
        trainer->course.stop_at == UINT64_MAX ? 0 : trainer->course.stop_at;
    return trainer->experiment->settings.run.profile
               ? trainer->engine.ops->profile(trainer->engine.program, NULL)
               : DPB_OK;
}

/* Sleeps and steps of a clock that ran backwards are wrong, and may not end. */
static dpb_status look_at_clock(void)
{
    char why[256];
    return dpb_ran_backwards(why, sizeof why) ? dpb_fail(DPB_FAILED, "%s", why) : DPB_OK;
}

/* Carries out the actions that the ranks have agreed on. */
static dpb_status act(struct dpb_trainer *trainer)
{
    if (trainer->course.last_actions & DPB_ACTION_TIMED)
        DPB_TRY(begin_timing(trainer, !(trainer->course.last_actions & DPB_ACTION_UNSTEADY)));
    return DPB_OK;
}

/* ---- waiting for the others ---------------------------------------------------------------- */

/* Steps that the workers have begun, all together. */
static uint64_t count_steps(const struct dpb_trainer *trainer)
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < trainer->experiment->n_workers; rank++)
        sum += dpb_board_page(dpb_world.board, rank)->step;
    return sum;
}

/* Waits until `over`, which serves the control word, for workers that may be any number of steps
 * behind: so the deadline is one for their next step. */
static dpb_status await_others(struct dpb_trainer *trainer, const char *what,
                               dpb_status (*over)(struct dpb_trainer *trainer, bool *is_over))
{
    uint64_t steps = count_steps(trainer);
    struct dpb_deadline deadline = dpb_deadline_in(dpb_world.timeout_ns);
    for (bool is_over = false;;) {
        watch_for_stop(trainer);
        DPB_TRY(over(trainer, &is_over));
        if (is_over)
            return DPB_OK;
        if (dpb_board_job_ended(dpb_world.board))
            return dpb_wait_cancelled(&(struct dpb_wait){.purpose = "the other workers"});
        usleep(dpb_control_nap_us(&trainer->control));
        if (!dpb_deadline_passed(deadline))
            continue;
        if (count_steps(trainer) == steps)
            return dpb_fail(
                DPB_TIMEOUT,
                "step %llu: this worker has done all its steps%s, and the others none within "
                "%.0f s; give run.timeout_s more if they are only slow",
                (unsigned long long)trainer->course.step, what,
                (double)dpb_world.timeout_ns * 1e-9);
        steps = count_steps(trainer);
        deadline = dpb_deadline_in(dpb_world.timeout_ns);
    }
}

/* Whether the run stops before the pause that this step begins with. */
static bool stops_before(const struct dpb_trainer *trainer)
{
    return (trainer->course.last_actions & DPB_ACTION_STOP) ||
           trainer->course.step > trainer->course.stop_at;
}

/* All are at the pause of this step; or the run stops before it: this worker may have come here
 * before the end was known, and the others will not come. */
static dpb_status at_pause(struct dpb_trainer *trainer, bool *is_over)
{
    (void)dpb_control_try(&trainer->control, trainer->course.step, &trainer->course.last_actions);
    DPB_TRY(act(trainer));
    *is_over =
        stops_before(trainer) || dpb_control_may_pause(&trainer->control, trainer->course.step);
    return DPB_OK;
}

/* Whether workers are steps apart, but pause and end at a common one. */
static bool may_lead(const struct dpb_trainer *trainer)
{
    return trainer->control.lead > 0 || trainer->control.step_of;
}

static dpb_status at_common_pause(struct dpb_trainer *trainer, bool *is_over)
{
    *is_over = dpb_control_may_pause(&trainer->control, trainer->course.step);
    return DPB_OK;
}

static dpb_status all_left(struct dpb_trainer *trainer, bool *is_over)
{
    *is_over = dpb_control_all_left(&trainer->control);
    return DPB_OK;
}

/* The model has the steps of the slowest worker, too: this worker's wait is time of training. Where
 * workers do not exchange, it is a pause. */
static void note_all_met(struct dpb_trainer *trainer, int64_t arrived_ns)
{
    trainer->course.met_ns = dpb_now_ns();
    if (trainer->replicas == 1)
        trainer->course.all_paused_ns += trainer->course.met_ns - arrived_ns;
}

/* ---- pauses and the step behind them ------------------------------------------------------- */

/* comm.late: the timed steps wait for as many exchanges as they begin. If the first timed step has
 * waited for the last exchange of warm-up, no timed step waits for the exchange of the last one. */
static dpb_status end_account_if_paid(const struct dpb_trainer *trainer)
{
    const struct dpb_exchange *exchange = &trainer->exchange;
    if (!trainer->course.paid)
        return DPB_OK;
    dpb_account_end();
    return exchange->passes.takes_events ? trainer->engine.ops->drain(trainer->engine.program)
                                         : DPB_OK;
}

static dpb_status save_step(struct dpb_trainer *trainer)
{
    const struct dpb_progress progress = dpb_train_progress(trainer);
    return dpb_snapshot_save_step(&trainer->snapshot, &progress);
}

/* Evaluation and checkpoint, where this step begins with one. */
static dpb_status pause_training(struct dpb_trainer *trainer, bool *stop)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    bool evaluates = dpb_experiment_evaluates(experiment, trainer->course.step);
    /* A training has nothing to continue behind its last step. */
    bool saves = dpb_save_points_due(&experiment->save_points, trainer->course.step) &&
                 !(*stop && experiment->settings.checkpoint.place == DPB_CHECKPOINT_PEER);
    if (trainer->course.step == trainer->course.first_step || (!evaluates && !saves))
        return DPB_OK;
    if (*stop)
        DPB_TRY(end_account_if_paid(trainer));
    DPB_TRY(dpb_exchange_pause(&trainer->exchange));
    const int64_t arrived_ns = dpb_now_ns();
    if (may_lead(trainer)) {
        dpb_control_arrive(&trainer->control, trainer->course.step);
        DPB_TRY(await_others(trainer, " before a pause", at_common_pause));
        note_all_met(trainer, arrived_ns);
    }
    if (trainer->control.apart) {
        if (stops_before(trainer))
            return DPB_OK; /* each stops where it is */
        DPB_TRY(dpb_exchange_settle(&trainer->exchange));
        dpb_control_arrive(&trainer->control, trainer->course.step);
        DPB_TRY(await_others(trainer, " before a pause", at_pause));
        *stop = *stop || (trainer->course.last_actions & DPB_ACTION_STOP) ||
                trainer->course.step >= trainer->course.stop_at;
        note_all_met(trainer, arrived_ns);
        if (stops_before(trainer))
            return DPB_OK;
    }
    int64_t began_ns = dpb_now_ns();
    if (evaluates)
        DPB_TRY(dpb_evaluate(trainer));
    if (saves)
        DPB_TRY(save_step(trainer));
    int64_t took_ns = dpb_now_ns() - began_ns;
    trainer->course.paused_ns += took_ns;
    trainer->course.all_paused_ns += took_ns;
    trainer->course.met_ns = 0;
    return DPB_OK;
}

/* comm.late: a hold moves the exchange on, so all of a hold is one exposed wait. A span for each
 * of its looks would fill the account in seconds. */
static dpb_status look_at_control(struct dpb_trainer *trainer)
{
    const int64_t entered_ns = trainer->exchange.late.on ? dpb_account_enter() : 0;
    const dpb_status status =
        dpb_control_look(&trainer->control, trainer->course.step, &trainer->course.last_actions);
    return trainer->exchange.late.on ? dpb_account_leave(entered_ns, status) : status;
}

dpb_status dpb_between_steps(struct dpb_trainer *trainer, bool *stop)
{
    const struct dpb_run_settings *run = &trainer->experiment->settings.run;
    dpb_world_begin_step(trainer->course.step);
    DPB_TRY(look_at_clock());
    watch_for_stop(trainer);
    DPB_TRY(look_at_control(trainer));
    if (!trainer->course.gated &&
        trainer->course.step - trainer->course.first_step == (uint64_t)run->warmup_steps)
        DPB_TRY(begin_timing(trainer, false));
    DPB_TRY(act(trainer));
    *stop = trainer->course.step >= trainer->course.stop_at ||
            (trainer->course.last_actions & DPB_ACTION_STOP);
    DPB_TRY(pause_training(trainer, stop));
    if (trainer->course.step - trainer->course.first_step == trainer->journal->timed_from) {
        trainer->course.paid = trainer->exchange.late.on && trainer->exchange.passes.pending;
        trainer->course.paused_ns = 0; /* the pause before the first timed step is not timed */
    }
    return DPB_OK;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* No rank leaves before all have trained to their end: a rank that still trains may have to be
 * stopped. */
static dpb_status leave_together(struct dpb_trainer *trainer)
{
    if (trainer->control.apart) /* nobody shall wait for this worker's next step */
        DPB_TRY(dpb_exchange_settle(&trainer->exchange));
    dpb_world_note("wait_end", UINT64_MAX, UINT32_MAX);
    dpb_control_leave(&trainer->control);
    return await_others(trainer, "", all_left);
}

/* Workers that are apart end at steps of their own, and a signal may come when some have ended. The
 * work after training is for all: a run that was interrupted, or a last evaluation. */
static dpb_status agree_on_end(struct dpb_trainer *trainer, bool *interrupted)
{
    enum { NOTHING, EVALUATION, INTERRUPTION };
    uint8_t own = trainer->course.evaluated_at != trainer->course.step ? EVALUATION : NOTHING,
            highest;
    *interrupted = (trainer->course.last_actions & DPB_ACTION_INTERRUPTED) != 0;
    if (!trainer->control.apart)
        return DPB_OK;
    if (*interrupted)
        own = INTERRUPTION;
    DPB_TRY(dpb_control_agree(&trainer->control, trainer->course.step, own, &highest));
    *interrupted = highest == INTERRUPTION;
    if (highest == EVALUATION)
        trainer->course.evaluated_at = UINT64_MAX;
    return DPB_OK;
}

static void note_threads(const struct dpb_trainer *trainer)
{
    if (trainer->course.timed_ns == 0)
        return;
    trainer->journal->others_cpu_ns = dpb_threads_others_ns() - trainer->course.others_ns;
    trainer->journal->others_wall_ns = dpb_now_ns() - trainer->course.timed_ns;
    if (trainer->engine.ops->late_ns) {
        trainer->journal->run_delay_ns = dpb_usage_run_delay_ns() - trainer->course.run_delay_ns;
        trainer->journal->run_delay_of_ns = trainer->journal->others_wall_ns;
        trainer->journal->late_ns = trainer->engine.ops->late_ns(trainer->engine.program) +
                                    dpb_optimizer_late_ns(trainer->exchange.optimizer);
    }
}

dpb_status dpb_end_training(struct dpb_trainer *trainer)
{
    bool interrupted;
    DPB_TRY(look_at_clock());
    DPB_TRY(end_account_if_paid(trainer));
    DPB_TRY(dpb_exchange_pause(&trainer->exchange));
    DPB_TRY(dpb_look_for_nan(trainer, 0.0)); /* values that the last updates found */
    dpb_gpu_end(&trainer->journal->gpu);
    note_threads(trainer);
    if (trainer->control.rank == 0)
        dpb_load_end(&trainer->journal->load);
    const int64_t arrived_ns = dpb_now_ns();
    DPB_TRY(leave_together(trainer));
    if (trainer->control.apart || may_lead(trainer))
        note_all_met(trainer, arrived_ns);
    DPB_TRY(agree_on_end(trainer, &interrupted));
    return interrupted ? DPB_INTERRUPTED : DPB_OK;
}
