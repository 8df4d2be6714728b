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
#include "graph/graph.h"
#include "train/trainer.h"
#include "world/futex.h"
#include "world/job_load.h"

/* ---- what surrounds a step ----------------------------------------------------------------- */

/* Rank 0: whether warm-up is over, by count and by the gate. Nothing once it has been proposed. */
static void watch_warm_up(struct dpb_trainer *t)
{
    const struct dpb_run_settings *run = &t->experiment->settings.run;
    const struct dpb_journal *journal = t->journal;
    /* The record of a step is there when the next has begun; of one of the device's time, a step
     * later. */
    uint64_t warm = (uint64_t)run->warmup_steps + (t->exchange.takes_events ? 1 : 0);
    if (t->control.rank != 0 || !t->course.gate || t->course.step - t->course.first_step <= warm)
        return;
    int64_t now = dpb_now_ns();
    if (t->course.warm_at_ns == 0)
        t->course.warm_at_ns = now;
    bool open = dpb_gate_add(t->course.gate, journal->records[journal->n_records - 1].step_ns);
    bool late = now - t->course.warm_at_ns > run->steady_limit_ns;
    if (open || late) {
        dpb_control_propose(&t->control, DPB_ACTION_TIMED | (open ? 0 : DPB_ACTION_UNSTEADY));
        dpb_gate_destroy(t->course.gate);
        t->course.gate = NULL;
    }
}

/* Rank 0: reasons to stop that only show while running. */
static void watch_for_stop(struct dpb_trainer *t)
{
    const struct dpb_run_settings *run = &t->experiment->settings.run;
    const struct dpb_journal *journal = t->journal;
    if (t->control.rank != 0 || t->course.stopping)
        return;
    uint32_t actions = 0;
    if (run->seconds_ns && journal->timed_from < journal->n_records &&
        dpb_now_ns() - journal->records[journal->timed_from].begin_ns - t->course.paused_ns >=
            run->seconds_ns)
        actions = DPB_ACTION_STOP;
    if (dpb_board_interrupted(dpb_world.board))
        actions = DPB_ACTION_STOP | DPB_ACTION_INTERRUPTED;
    if (actions)
        dpb_control_propose(&t->control, actions);
    t->course.stopping = actions != 0;
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
    t->journal->timed_from = t->course.step - t->course.first_step;
    t->course.paused_ns = 0;
    if (t->control.rank == 0)
        dpb_load_begin(t->binding.n_cores);
    dpb_gpu_begin(&t->journal->gpu);
    const bool common = t->control.apart && t->course.gated && has_pauses(t);
    if (run->steps)
        t->course.stop_at = (common ? t->control.committed : t->course.step) + (uint64_t)run->steps;
    dpb_board_page(dpb_world.board, dpb_world.rank)->n_steps =
        t->course.stop_at == UINT64_MAX ? 0 : t->course.stop_at;
    return t->experiment->settings.run.profile
               ? t->exchange.engine.ops->profile(t->exchange.engine.program, NULL)
               : DPB_OK;
}

/* Acts on what the ranks have agreed on. */
static dpb_status act(struct dpb_trainer *t)
{
    if (t->course.last_actions & DPB_ACTION_TIMED)
        DPB_TRY(begin_timing(t, !(t->course.last_actions & DPB_ACTION_UNSTEADY)));
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
                (unsigned long long)t->course.step, what, (double)dpb_world.timeout_ns * 1e-9);
        steps = count_steps(t);
        deadline_ns = dpb_world_now_ns() + dpb_world.timeout_ns;
    }
}

/* All are at the pause of this step; or the run stops before it: this worker may have come here
 * before the end was known, and nobody else will. */
static dpb_status at_pause(struct dpb_trainer *t, bool *is_over)
{
    (void)dpb_control_try(&t->control, t->course.step, &t->course.last_actions);
    DPB_TRY(act(t));
    *is_over = (t->course.last_actions & DPB_ACTION_STOP) || t->course.step > t->course.stop_at ||
               dpb_control_may_pause(&t->control, t->course.step);
    return DPB_OK;
}

static dpb_status all_left(struct dpb_trainer *t, bool *is_over)
{
    *is_over = dpb_control_all_left(&t->control);
    return DPB_OK;
}

/* comm.late: the timed steps wait for as many exchanges as they begin. Where the first of them has
 * waited for the last exchange of warm-up, no step waits for the last one. */
static dpb_status end_account_if_paid(const struct dpb_trainer *t)
{
    const struct dpb_exchange *exchange = &t->exchange;
    if (!t->course.paid)
        return DPB_OK;
    dpb_account_end();
    return exchange->takes_events ? exchange->engine.ops->drain(exchange->engine.program) : DPB_OK;
}

/* Evaluation and checkpoint, where this step begins with one. */
static dpb_status pause_training(struct dpb_trainer *t, bool *stop)
{
    const struct dpb_experiment *x = t->experiment;
    uint64_t every = (uint64_t)x->settings.eval.every;
    bool evaluates = every > 0 && t->course.step % every == 0;
    bool saves = dpb_save_points_due(&x->save_points, t->course.step);
    if (t->course.step == t->course.first_step || (!evaluates && !saves))
        return DPB_OK;
    if (*stop)
        DPB_TRY(end_account_if_paid(t));
    DPB_TRY(dpb_exchange_pause(&t->exchange));
    if (t->control.apart) {
        if ((t->course.last_actions & DPB_ACTION_STOP) || t->course.step > t->course.stop_at)
            return DPB_OK; /* each stops where it is */
        DPB_TRY(dpb_exchange_settle(&t->exchange));
        dpb_control_arrive(&t->control, t->course.step);
        DPB_TRY(await_others(t, " before a pause", at_pause));
        *stop = *stop || (t->course.last_actions & DPB_ACTION_STOP) ||
                t->course.step >= t->course.stop_at;
        if ((t->course.last_actions & DPB_ACTION_STOP) || t->course.step > t->course.stop_at)
            return DPB_OK;
    }
    int64_t began_ns = dpb_now_ns();
    if (evaluates)
        DPB_TRY(dpb_evaluate(t));
    if (saves)
        DPB_TRY(dpb_snapshot_save_step(t));
    int64_t took_ns = dpb_now_ns() - began_ns;
    t->course.paused_ns += took_ns;
    t->course.all_paused_ns += took_ns;
    return DPB_OK;
}

/* comm.late: a hold moves the exchange on, so all of a hold is one exposed wait. A span for each
 * of its looks would fill the account in seconds. */
static dpb_status look_at_control(struct dpb_trainer *t)
{
    const int64_t entered_ns = t->exchange.is_late ? dpb_account_enter() : 0;
    const dpb_status status =
        dpb_control_look(&t->control, t->course.step, &t->course.last_actions);
    if (t->exchange.is_late)
        dpb_account_leave(entered_ns);
    return status;
}

/* Before each step: acts on what the ranks agreed on. *stop: this step is not begun. */
static dpb_status between_steps(struct dpb_trainer *t, bool *stop)
{
    const struct dpb_run_settings *run = &t->experiment->settings.run;
    dpb_world_begin_step(t->course.step);
    watch_for_stop(t);
    DPB_TRY(look_at_control(t));
    if (!t->course.gated && t->course.step - t->course.first_step == (uint64_t)run->warmup_steps)
        DPB_TRY(begin_timing(t, false));
    DPB_TRY(act(t));
    *stop = t->course.step >= t->course.stop_at || (t->course.last_actions & DPB_ACTION_STOP);
    DPB_TRY(pause_training(t, stop));
    if (t->course.step - t->course.first_step == t->journal->timed_from)
        t->course.paid = t->exchange.is_late && t->exchange.pending;
    return DPB_OK;
}

/* No rank goes on before all have trained to their end: one that is still at it may have to be told
 * to stop. */
static dpb_status leave_together(struct dpb_trainer *t)
{
    if (t->control.apart) /* nobody shall wait for this worker's next step */
        DPB_TRY(dpb_exchange_settle(&t->exchange));
    dpb_world_note("wait_end", UINT64_MAX, UINT32_MAX);
    dpb_control_leave(&t->control);
    return await_others(t, "", all_left);
}

/* Workers that are apart end at steps of their own, and a signal may come when some have ended.
 * What follows the training is for all: a run that was interrupted, or a last evaluation. */
static dpb_status agree_on_end(struct dpb_trainer *t, bool *interrupted)
{
    enum { NOTHING, EVALUATION, INTERRUPTION };
    uint8_t own = t->course.evaluated_at != t->course.step ? EVALUATION : NOTHING, highest;
    *interrupted = (t->course.last_actions & DPB_ACTION_INTERRUPTED) != 0;
    if (!t->control.apart)
        return DPB_OK;
    if (*interrupted)
        own = INTERRUPTION;
    DPB_TRY(dpb_control_agree(&t->control, t->course.step, own, &highest));
    *interrupted = highest == INTERRUPTION;
    if (highest == EVALUATION)
        t->course.evaluated_at = UINT64_MAX;
    return DPB_OK;
}

/* run.nan: the run ends, or goes on after saying so at the first such step. */
static dpb_status meet_nan(struct dpb_trainer *t, const char *what)
{
    if (t->experiment->settings.run.nan == DPB_NAN_STOP)
        return dpb_fail(DPB_FAILED,
                        "step %llu: %s is not finite; try a smaller "
                        "optimizer.learning_rate, or run.nan = continue to train on",
                        (unsigned long long)t->course.step, what);
    if (!t->course.nan_seen)
        dpb_warn("nan", "step %llu: %s is not finite, and the run goes on (run.nan = continue)",
                 (unsigned long long)t->course.step, what);
    t->course.nan_seen = true;
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
    for (uint32_t rank = dpb_world.rank; rank < dpb_world.n_ranks && !t->course.nan_seen;
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

static dpb_status look_for_overflow(const struct dpb_engine *engine, bool *overflow)
{
    bool finite;
    DPB_TRY(engine->ops->finite(engine->program, &finite));
    *overflow = *overflow || !finite;
    return DPB_OK;
}

static dpb_status agree_on_overflow(struct dpb_trainer *t, bool overflow, uint8_t *highest)
{
    *highest = overflow;
    if (t->replicas == 1)
        return DPB_OK;
    dpb_world_note("agree", UINT64_MAX, UINT32_MAX);
    int64_t entered_ns = dpb_account_enter();
    dpb_status status = dpb_control_agree(&t->control, t->course.step, overflow, highest);
    dpb_account_leave(entered_ns);
    return status;
}

/* Gradients are exchanged once those of all ranks are known to be finite. Where one is not,
 * nobody's are: weights, momentum, running statistics and schedule stay as they were. */
static dpb_status exchange_if_finite(struct dpb_trainer *t, double rate, double scale,
                                     bool own_overflow)
{
    const double multiplied_by = t->loss_scale.scale;
    uint8_t overflow;
    DPB_TRY(agree_on_overflow(t, own_overflow, &overflow));
    const bool helps = dpb_loss_scale_step(&t->loss_scale, overflow != 0);
    t->journal->loss_scale = t->loss_scale.scale;
    t->journal->skipped_steps += overflow != 0;
    if (!helps)
        DPB_TRY(meet_nan(t, "at a loss scale of 1 a gradient"));
    if (overflow) {
        t->course.rate_shift--;
        return DPB_OK;
    }
    dpb_statistics_move(&t->statistics);
    DPB_TRY(dpb_exchange_begin(&t->exchange, rate, scale / multiplied_by, false));
    DPB_TRY(dpb_exchange_ready(&t->exchange, t->exchange.layout.n_elements, NULL));
    return dpb_exchange_finish(&t->exchange);
}

/* ---- the end ------------------------------------------------------------------------------- */

static dpb_status end_training(struct dpb_trainer *t)
{
    bool interrupted;
    DPB_TRY(end_account_if_paid(t));
    DPB_TRY(dpb_exchange_pause(&t->exchange));
    DPB_TRY(look_for_nan(t, 0.0)); /* what the last updates have found */
    dpb_gpu_end(&t->journal->gpu);
    if (t->control.rank == 0)
        dpb_load_end(&t->journal->load);
    DPB_TRY(leave_together(t));
    DPB_TRY(agree_on_end(t, &interrupted));
    return interrupted ? DPB_INTERRUPTED : DPB_OK;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static struct dpb_pass pass_of(const struct dpb_trainer *t, uint32_t micro_batch, bool training)
{
    const struct dpb_experiment *x = t->experiment;
    return (struct dpb_pass){.training = training,
                             .weights_changed = t->exchange.engine.weights_changed,
                             .step = t->course.step,
                             .first_sample =
                                 (dpb_world.rank * x->accumulate + micro_batch) * x->batch,
                             .valid = x->batch,
                             .loss_scale = t->loss_scale.scale,
                             .captures = t->exchange.captures && micro_batch + 1 == x->accumulate};
}

/* run.delay, before the backward of the last micro-batch: no bucket has been handed over yet. */
static dpb_status delay_gradients(struct dpb_trainer *t, uint32_t micro_batch)
{
    const struct dpb_delay *delay = &t->experiment->delay;
    const bool looks = t->exchange.ops->cancelled || t->exchange.is_late;
    const dpb_delay_look look = looks ? dpb_exchange_look : NULL;
    if (micro_batch + 1 < t->experiment->accumulate ||
        dpb_delay_of(delay, dpb_world.rank, t->course.step) == 0)
        return DPB_OK;
    DPB_TRY(dpb_delay_sleep(delay, dpb_world.rank, t->course.step, look, &t->exchange));
    dpb_account_mark(DPB_PART_DELAY);
    return DPB_OK;
}

static dpb_status go_backward(struct dpb_trainer *t, const struct dpb_pass *pass,
                              const struct dpb_hooks *hooks, uint32_t micro_batch)
{
    struct dpb_exchange *exchange = &t->exchange;
    struct dpb_engine *engine = &exchange->engine;
    DPB_TRY(dpb_exchange_look(exchange, &exchange->given_up));
    dpb_staging_begin(exchange, micro_batch);
    return exchange->given_up
               ? DPB_OK
               : dpb_exchange_passed(exchange, engine->ops->backward(engine->program, pass, hooks));
}

/* *loss: of its samples, where forward comes to its end. */
static dpb_status go_forward(struct dpb_trainer *t, const struct dpb_pass *pass,
                             const struct dpb_batch *batch, const struct dpb_hooks *hooks,
                             double *loss)
{
    struct dpb_exchange *exchange = &t->exchange;
    struct dpb_engine *engine = &exchange->engine;
    struct dpb_outcome outcome = {.loss = 0};
    DPB_TRY(dpb_exchange_passed(
        exchange, engine->ops->forward(engine->program, pass, batch, hooks, &outcome)));
    if (!exchange->given_up)
        engine->weights_changed = false;
    *loss = outcome.loss;
    return DPB_OK;
}

/* A step that was given up has handed over nothing that counts. *loss: of all its samples. */
static dpb_status end_given_up(struct dpb_trainer *t, uint32_t n_forward, double *loss)
{
    if (!t->exchange.given_up)
        return DPB_OK;
    if (n_forward < t->experiment->accumulate) {
        dpb_account_stopped();
        *loss = 0.0;
    }
    return dpb_exchange_give_up(&t->exchange);
}

dpb_status dpb_train(struct dpb_trainer *t)
{
    const struct dpb_experiment *x = t->experiment;
    struct dpb_exchange *exchange = &t->exchange;
    struct dpb_engine *engine = &exchange->engine;
    const struct dpb_hooks hooks = dpb_exchange_hooks(exchange);
    const bool training = x->settings.run.mode == DPB_MODE_TRAIN;
    const bool held_back = exchange->staging.held_back;
    const double scale = 1.0 / ((double)exchange->plan.contract.divisor * x->accumulate);

    for (t->course.step = t->course.first_step;; t->course.step++) {
        bool stop, overflow = false;
        DPB_TRY(between_steps(t, &stop));
        if (stop)
            return end_training(t);

        double rate = dpb_train_rate(t), loss = 0.0;
        uint32_t n_forward = 0; /* micro-batches whose forward came to its end */
        dpb_account_begin(rate);
        watch_warm_up(t);
        if (training && !held_back)
            DPB_TRY(dpb_exchange_begin(exchange, rate, scale, false));

        for (uint32_t i = 0; i < x->accumulate; i++) {
            const struct dpb_pass pass = pass_of(t, i, training);
            struct dpb_feed_batch input;
            double of_batch;
            DPB_TRY(dpb_feed_next(t->feed, &input)); /* of a step that is given up, too */
            dpb_account_mark(DPB_PART_DATA);
            if (exchange->given_up)
                continue;

            DPB_TRY(go_forward(t, &pass, &input.batch, &hooks, &of_batch));
            dpb_account_mark(DPB_PART_FORWARD);
            loss += of_batch / x->accumulate;
            n_forward += !exchange->given_up;
            if (!training || exchange->given_up)
                continue;

            DPB_TRY(delay_gradients(t, i));
            DPB_TRY(go_backward(t, &pass, &hooks, i));
            if (held_back)
                DPB_TRY(look_for_overflow(engine, &overflow));
            if (!exchange->given_up)
                dpb_statistics_add(&t->statistics, i, x->accumulate);
            if (!exchange->given_up && i + 1 == x->accumulate && !held_back)
                dpb_statistics_move(&t->statistics);
            dpb_account_mark(DPB_PART_BACKWARD);
        }
        DPB_TRY(end_given_up(t, n_forward, &loss));
        dpb_account_loss(loss);
        if (training)
            DPB_TRY(held_back ? exchange_if_finite(t, rate, scale, overflow)
                              : dpb_exchange_finish(exchange));
        DPB_TRY(look_for_nan(t, loss));
    }
}
