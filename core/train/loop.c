/*
 * loop.c - the training loop: the one function through which every strategy, model and device runs.
 *
 * A step's data flow in order: a batch from the feed, forward, backward (which hands each bucket to
 * the communicator as its gradients become final), then the wait for new weights. Nothing here
 * allocates, logs or makes a system call of its own.
 */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/vec.h"
#include "graph/graph.h"
#include "train/trainer.h"
#include "world/futex.h"
#include "world/job_load.h"

/* ---- what surrounds a step ----------------------------------------------------------------- */

static void gather_statistics(struct dpb_trainer *t)
{
    double share = 1.0 / t->experiment->accumulate;
    dpb_vec.axpby(t->layout.weight_type, share, t->statistics, t->micro_batch == 0 ? 0.0 : 1.0,
                  t->summed_statistics, t->experiment->graph->n_state_elements);
}

/* Running statistics move once a step, by the mean over its micro-batches. */
static void move_averages(struct dpb_trainer *t)
{
    const struct dpb_graph *graph = t->experiment->graph;
    dpb_dtype type = t->layout.weight_type;
    size_t size = dpb_dtype_size(type);
    for (uint32_t s = 0; s < graph->n_states; s++) {
        size_t at = graph->states[s].offset * size;
        double keep = graph->states[s].keep_average;
        dpb_vec.axpby(type, 1.0 - keep, (char *)t->summed_statistics + at, keep,
                      (char *)t->state + at, graph->states[s].n_elements);
    }
}

/* Rank 0: whether warm-up is over, by count and by the gate. Nothing once it has been proposed. */
static void watch_warm_up(struct dpb_trainer *t)
{
    const struct dpb_run_settings *run = &t->experiment->settings.run;
    const struct dpb_journal *journal = t->journal;
    /* The record of a step is there when the next has begun; of one of the device's time, a step
     * later. */
    uint64_t warm = (uint64_t)run->warmup_steps + (t->takes_events ? 1 : 0);
    if (t->control.rank != 0 || !t->gate || t->step - t->first_step <= warm)
        return;
    int64_t now = dpb_now_ns();
    if (t->warm_at_ns == 0)
        t->warm_at_ns = now;
    bool open = dpb_gate_add(t->gate, journal->records[journal->n_records - 1].step_ns);
    bool late = now - t->warm_at_ns > run->steady_limit_ns;
    if (open || late) {
        dpb_control_propose(&t->control, DPB_ACTION_TIMED | (open ? 0 : DPB_ACTION_UNSTEADY));
        dpb_gate_destroy(t->gate);
        t->gate = NULL;
    }
}

/* Rank 0: reasons to stop that only show while running. */
static void watch_for_stop(struct dpb_trainer *t)
{
    const struct dpb_run_settings *run = &t->experiment->settings.run;
    const struct dpb_journal *journal = t->journal;
    if (t->control.rank != 0 || t->stopping)
        return;
    uint32_t actions = 0;
    if (run->seconds_ns && journal->timed_from < journal->n_records &&
        dpb_now_ns() - journal->records[journal->timed_from].begin_ns - t->paused_ns >=
            run->seconds_ns)
        actions = DPB_ACTION_STOP;
    if (dpb_board_interrupted(dpb_world.board))
        actions = DPB_ACTION_STOP | DPB_ACTION_INTERRUPTED;
    if (actions)
        dpb_control_propose(&t->control, actions);
    t->stopping = actions != 0;
}

static bool has_pauses(const struct dpb_trainer *t)
{
    const struct dpb_save_points *saves = &t->experiment->save_points;
    return t->experiment->settings.eval.every > 0 || saves->every > 0 || saves->n > 0;
}

/* The first timed step is known: from it follows the end of a run that counts steps. Workers that
 * are apart begin to time at steps of their own; where they meet in pauses they end at the same. */
static dpb_status begin_timing(struct dpb_trainer *t, bool steady)
{
    const struct dpb_run_settings *run = &t->experiment->settings.run;
    t->journal->steady = steady;
    t->journal->timed_from = t->step - t->first_step;
    t->paused_ns = 0;
    if (t->control.rank == 0)
        dpb_load_begin(t->n_cores);
    dpb_gpu_begin(&t->journal->gpu);
    const bool common = t->control.apart && t->gated && has_pauses(t);
    if (run->steps)
        t->stop_at = (common ? t->control.committed : t->step) + (uint64_t)run->steps;
    dpb_board_page(dpb_world.board, dpb_world.rank)->n_steps =
        t->stop_at == UINT64_MAX ? 0 : t->stop_at;
    return t->experiment->settings.run.profile ? t->device_ops->profile(t->program, NULL) : DPB_OK;
}

/* Acts on what the ranks have agreed on. */
static dpb_status act(struct dpb_trainer *t)
{
    if (t->last_actions & DPB_ACTION_TIMED)
        DPB_TRY(begin_timing(t, !(t->last_actions & DPB_ACTION_UNSTEADY)));
    return DPB_OK;
}

/* Steps that the workers have begun, all together. */
static uint64_t count_steps(const struct dpb_trainer *t)
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < t->experiment->n_workers; rank++)
        sum += dpb_board_page(dpb_world.board, rank)->step;
    return sum;
}

/* Waits until `over`, which serves the control word, for workers that may be any number of steps
 * behind: so the deadline is one for their next step. */
static dpb_status await_others(struct dpb_trainer *t, const char *what,
                               dpb_status (*over)(struct dpb_trainer *t, bool *is_over))
{
    uint64_t steps = count_steps(t);
    int64_t deadline_ns = dpb_world_now_ns() + dpb_world.timeout_ns;
    for (bool is_over = false;;) {
        watch_for_stop(t);
        DPB_TRY(over(t, &is_over));
        if (is_over)
            return DPB_OK;
        if (dpb_board_job_ended(dpb_world.board))
            return dpb_wait_cancelled(&(struct dpb_wait){.purpose = "the other workers"});
        usleep(dpb_control_nap_us(&t->control));
        if (dpb_world_now_ns() < deadline_ns)
            continue;
        if (count_steps(t) == steps)
            return dpb_fail(
                DPB_TIMEOUT,
                "step %llu: this worker has done all its steps%s, and the others none within "
                "%.0f s; give run.timeout_s more if they are only slow",
                (unsigned long long)t->step, what, (double)dpb_world.timeout_ns * 1e-9);
        steps = count_steps(t);
        deadline_ns = dpb_world_now_ns() + dpb_world.timeout_ns;
    }
}

/* All are at the pause of this step; or the run stops before it: this worker may have come here
 * before the end was known, and nobody else will. */
static dpb_status at_pause(struct dpb_trainer *t, bool *is_over)
{
    (void)dpb_control_try(&t->control, t->step, &t->last_actions);
    DPB_TRY(act(t));
    *is_over = (t->last_actions & DPB_ACTION_STOP) || t->step > t->stop_at ||
               dpb_control_may_pause(&t->control, t->step);
    return DPB_OK;
}

static dpb_status all_left(struct dpb_trainer *t, bool *is_over)
{
    *is_over = dpb_control_all_left(&t->control);
    return DPB_OK;
}

/* Evaluation and checkpoint, where this step begins with one. */
static dpb_status pause_training(struct dpb_trainer *t, bool *stop)
{
    const struct dpb_experiment *x = t->experiment;
    uint64_t every = (uint64_t)x->settings.eval.every;
    bool evaluates = every > 0 && t->step % every == 0;
    bool saves = dpb_save_points_due(&x->save_points, t->step);
    if (t->step == t->first_step || (!evaluates && !saves))
        return DPB_OK;
    DPB_TRY(dpb_trainer_pause(t));
    if (t->control.apart) {
        if ((t->last_actions & DPB_ACTION_STOP) || t->step > t->stop_at)
            return DPB_OK; /* each stops where it is */
        dpb_control_arrive(&t->control, t->step);
        DPB_TRY(await_others(t, " before a pause", at_pause));
        *stop = *stop || (t->last_actions & DPB_ACTION_STOP) || t->step >= t->stop_at;
        if ((t->last_actions & DPB_ACTION_STOP) || t->step > t->stop_at)
            return DPB_OK;
    }
    int64_t began_ns = dpb_now_ns();
    if (evaluates)
        DPB_TRY(dpb_evaluate(t));
    if (saves)
        DPB_TRY(dpb_snapshot_save_step(t));
    int64_t took_ns = dpb_now_ns() - began_ns;
    t->paused_ns += took_ns;
    t->all_paused_ns += took_ns;
    return DPB_OK;
}

/* Before each step: acts on what the ranks agreed on. *stop: this step is not begun. */
static dpb_status between_steps(struct dpb_trainer *t, bool *stop)
{
    const struct dpb_run_settings *run = &t->experiment->settings.run;
    __atomic_store_n(&dpb_board_page(dpb_world.board, dpb_world.rank)->step, t->step,
                     __ATOMIC_RELAXED);
    watch_for_stop(t);
    DPB_TRY(dpb_control_look(&t->control, t->step, &t->last_actions));
    if (!t->gated && t->step - t->first_step == (uint64_t)run->warmup_steps)
        DPB_TRY(begin_timing(t, false));
    DPB_TRY(act(t));
    *stop = t->step >= t->stop_at || (t->last_actions & DPB_ACTION_STOP);
    return pause_training(t, stop);
}

/* No rank goes on before all have trained to their end: one that is still at it may have to be told
 * to stop. */
static dpb_status leave_together(struct dpb_trainer *t)
{
    if (t->control.apart && t->comm_ops->settle)
        DPB_TRY(t->comm_ops->settle(t->comm)); /* nobody waits for this worker's next step */
    dpb_world_note("wait_end", UINT64_MAX, UINT32_MAX);
    dpb_control_leave(&t->control);
    return await_others(t, "", all_left);
}

/* Workers that are apart end at steps of their own, and a signal may come when some have ended.
 * What follows the training is for all: a run that was interrupted, or a last evaluation. */
static dpb_status agree_on_end(struct dpb_trainer *t, bool *interrupted)
{
    enum { NOTHING, EVALUATION, INTERRUPTION };
    uint8_t own = t->evaluated_at != t->step ? EVALUATION : NOTHING, highest;
    *interrupted = (t->last_actions & DPB_ACTION_INTERRUPTED) != 0;
    if (!t->control.apart)
        return DPB_OK;
    if (*interrupted)
        own = INTERRUPTION;
    DPB_TRY(dpb_control_agree(&t->control, t->step, own, &highest));
    *interrupted = highest == INTERRUPTION;
    if (highest == EVALUATION)
        t->evaluated_at = UINT64_MAX;
    return DPB_OK;
}

/* run.nan: the run ends, or goes on after saying so at the first such step. */
static dpb_status meet_nan(struct dpb_trainer *t, const char *what)
{
    if (t->experiment->settings.run.nan == DPB_NAN_STOP)
        return dpb_fail(DPB_FAILED,
                        "step %llu: %s is not finite; try a smaller "
                        "optimizer.learning_rate, or run.nan = continue to train on",
                        (unsigned long long)t->step, what);
    if (!t->nan_seen)
        dpb_warn("nan", "step %llu: %s is not finite, and the run goes on (run.nan = continue)",
                 (unsigned long long)t->step, what);
    t->nan_seen = true;
    return DPB_OK;
}

/* The loss, and the weights that this worker or a server has updated: devices may compute a finite
 * loss from weights that are no numbers. */
static dpb_status look_for_nan(struct dpb_trainer *t, double loss)
{
    const struct dpb_graph *graph = t->experiment->graph;
    char what[128];
    if (!isfinite(loss))
        return meet_nan(t, "the loss");
    for (uint32_t rank = dpb_world.rank; rank < dpb_world.n_ranks && !t->nan_seen;
         rank = rank < dpb_world.n_workers ? dpb_world.n_workers : rank + 1) {
        const struct dpb_status_page *page = dpb_board_page(dpb_world.board, rank);
        uint64_t element = __atomic_load_n(&page->not_finite, __ATOMIC_RELAXED);
        if (element == 0)
            continue;
        uint32_t tensor = dpb_graph_tensor_at(graph, element - 1);
        snprintf(what, sizeof what, "an element of the new %s", graph->tensors[tensor].name);
        return meet_nan(t, what);
    }
    return DPB_OK;
}

/* ---- fp16 ---------------------------------------------------------------------------------- */

static dpb_status look_for_overflow(struct dpb_trainer *t)
{
    bool finite = true;
    if (t->scales)
        DPB_TRY(t->device_ops->finite(t->program, &finite));
    t->overflow = t->overflow || !finite;
    return DPB_OK;
}

static dpb_status agree_on_overflow(struct dpb_trainer *t, uint8_t *overflow)
{
    *overflow = t->overflow;
    if (t->replicas == 1)
        return DPB_OK;
    dpb_world_note("agree", UINT64_MAX, UINT32_MAX);
    int64_t entered_ns = dpb_account_enter();
    dpb_status status = dpb_control_agree(&t->control, t->step, *overflow, overflow);
    dpb_account_leave(entered_ns);
    return status;
}

/* Gradients are exchanged once those of all ranks are known to be finite. Where one is not,
 * nobody's are: weights, momentum, running statistics and schedule stay as they were. */
static dpb_status exchange_if_finite(struct dpb_trainer *t, double rate, double scale)
{
    const double multiplied_by = t->loss_scale.scale;
    uint8_t overflow;
    DPB_TRY(agree_on_overflow(t, &overflow));
    const bool helps = dpb_loss_scale_step(&t->loss_scale, overflow != 0);
    t->journal->loss_scale = t->loss_scale.scale;
    t->journal->skipped_steps += overflow != 0;
    if (!helps)
        DPB_TRY(meet_nan(t, "at a loss scale of 1 a gradient"));
    if (overflow) {
        t->rate_shift--;
        return DPB_OK;
    }
    move_averages(t);
    DPB_TRY(dpb_exchange_begin(t, rate, scale / multiplied_by, false));
    DPB_TRY(dpb_exchange_ready(t, t->layout.n_elements, NULL));
    return dpb_exchange_finish(t);
}

static dpb_status end_step(struct dpb_trainer *t, double rate, double scale)
{
    return t->scales ? exchange_if_finite(t, rate, scale) : dpb_exchange_finish(t);
}

/* ---- the loop ------------------------------------------------------------------------------ */

/* Of this micro-batch. */
static struct dpb_pass pass_of(const struct dpb_trainer *t, bool training)
{
    const struct dpb_experiment *x = t->experiment;
    const uint32_t micro_batch = dpb_world.rank * x->accumulate + t->micro_batch;
    return (struct dpb_pass){.training = training,
                             .weights_changed = t->weights_changed,
                             .step = t->step,
                             .first_sample = micro_batch * x->batch,
                             .valid = x->batch,
                             .loss_scale = t->loss_scale.scale,
                             .captures = t->captures && t->micro_batch + 1 == x->accumulate};
}

/* run.delay, before the backward of the last micro-batch: no bucket has been handed over yet. */
static dpb_status delay_gradients(const struct dpb_trainer *t)
{
    const struct dpb_delay *delay = &t->experiment->delay;
    if (t->micro_batch + 1 < t->experiment->accumulate ||
        dpb_delay_of(delay, dpb_world.rank, t->step) == 0)
        return DPB_OK;
    DPB_TRY(dpb_delay_sleep(delay, dpb_world.rank, t->step));
    dpb_account_mark(DPB_PART_DELAY);
    return DPB_OK;
}

dpb_status dpb_train(struct dpb_trainer *t)
{
    const struct dpb_experiment *x = t->experiment;
    const struct dpb_hooks hooks = dpb_trainer_hooks(t);
    bool interrupted;
    const bool training = x->settings.run.mode == DPB_MODE_TRAIN;
    const double scale = 1.0 / ((double)t->plan.contract.divisor * x->accumulate);

    for (t->step = t->first_step;; t->step++) {
        bool stop;
        DPB_TRY(between_steps(t, &stop));
        if (stop)
            break;

        double rate = dpb_schedule_rate(&t->schedule, t->step + (uint64_t)t->rate_shift),
               loss = 0.0;
        dpb_account_begin(rate);
        watch_warm_up(t);
        t->overflow = false;
        if (training && !t->scales)
            DPB_TRY(dpb_exchange_begin(t, rate, scale, false));

        for (t->micro_batch = 0; t->micro_batch < x->accumulate; t->micro_batch++) {
            const struct dpb_pass pass = pass_of(t, training);
            struct dpb_feed_batch input;
            struct dpb_outcome outcome;
            DPB_TRY(dpb_feed_next(t->feed, &input));
            dpb_account_mark(DPB_PART_DATA);

            DPB_TRY(t->device_ops->forward(t->program, &pass, &input.batch, &hooks, &outcome));
            dpb_account_mark(DPB_PART_FORWARD);
            t->weights_changed = false;
            loss += outcome.loss / x->accumulate;
            if (!training)
                continue;

            DPB_TRY(delay_gradients(t));
            t->staged = 0;
            DPB_TRY(t->device_ops->backward(t->program, &pass, &hooks));
            DPB_TRY(look_for_overflow(t));
            gather_statistics(t);
            if (t->micro_batch + 1 == x->accumulate && !t->scales)
                move_averages(t);
            dpb_account_mark(DPB_PART_BACKWARD);
        }
        dpb_account_loss(loss);
        if (training)
            DPB_TRY(end_step(t, rate, scale));
        DPB_TRY(look_for_nan(t, loss));
    }
    DPB_TRY(dpb_trainer_pause(t));
    DPB_TRY(look_for_nan(t, 0.0)); /* what the last updates have found */
    dpb_gpu_end(&t->journal->gpu);
    if (t->control.rank == 0)
        dpb_load_end(&t->journal->load);
    DPB_TRY(leave_together(t));
    DPB_TRY(agree_on_end(t, &interrupted));
    return interrupted ? DPB_INTERRUPTED : DPB_OK;
}
