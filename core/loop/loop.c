/*
 * loop.c - the training loop: the one function through which every strategy, model and device runs.
 *
 * A step's data flow in order: a batch from the feed, forward, backward (which hands each bucket to
 * the communicator as its gradients become final), then the wait for new weights. Nothing here
 * allocates, logs or makes a system call of its own.
 */
#include "loop/loop.h"

#include "exchange/staging.h"
#include "exchange/step.h"
#include "loop/between.h"
#include "loop/finite.h"
#include "measure/account.h"

static struct dpb_pass pass_of(const struct dpb_trainer *trainer, uint32_t micro_batch,
                               bool training)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    return (struct dpb_pass){
        .training = training,
        .weights_changed = trainer->engine.weights_changed,
        .step = trainer->course.step,
        .first_sample = (dpb_world.rank * experiment->accumulate + micro_batch) * experiment->batch,
        .valid = experiment->batch,
        .loss_scale = trainer->loss_scale.scale,
        .captures = trainer->exchange.passes.captures && micro_batch + 1 == experiment->accumulate};
}

/* run.delay, before the backward of the last micro-batch: no bucket has been handed over yet. */
static dpb_status delay_gradients(struct dpb_trainer *trainer, uint32_t micro_batch)
{
    const struct dpb_delay *delay = &trainer->experiment->delay;
    const bool looks = trainer->exchange.ops->cancelled || trainer->exchange.late.on;
    const dpb_delay_look look = looks ? dpb_exchange_look : NULL;
    if (micro_batch + 1 < trainer->experiment->accumulate ||
        dpb_delay_of(delay, dpb_world.rank, trainer->course.step) == 0)
        return DPB_OK;
    DPB_TRY(dpb_delay_sleep(delay, dpb_world.rank, trainer->course.step, look, &trainer->exchange));
    dpb_account_mark(DPB_PART_DELAY);
    return DPB_OK;
}

static dpb_status go_backward(struct dpb_trainer *trainer, const struct dpb_pass *pass,
                              const struct dpb_hooks *hooks, uint32_t micro_batch)
{
    struct dpb_exchange *exchange = &trainer->exchange;
    struct dpb_engine *engine = &trainer->engine;
    DPB_TRY(dpb_exchange_look(exchange, &exchange->passes.given_up));
    dpb_staging_begin(exchange, micro_batch);
    DPB_TRY(dpb_exchange_next_micro_batch(exchange, micro_batch));
    return exchange->passes.given_up
               ? DPB_OK
               : dpb_exchange_passed(exchange, engine->ops->backward(engine->program, pass, hooks));
}

/* *outcome: zeros unless forward completes. */
static dpb_status go_forward(struct dpb_trainer *trainer, const struct dpb_pass *pass,
                             const struct dpb_batch *batch, const struct dpb_hooks *hooks,
                             struct dpb_outcome *outcome)
{
    struct dpb_exchange *exchange = &trainer->exchange;
    struct dpb_engine *engine = &trainer->engine;
    *outcome = (struct dpb_outcome){.loss = 0};
    DPB_TRY(dpb_exchange_passed(
        exchange, engine->ops->forward(engine->program, pass, batch, hooks, outcome)));
    if (!exchange->passes.given_up)
        engine->weights_changed = false;
    return DPB_OK;
}

/* A step that was given up has handed over nothing that counts: its buckets go as they are. *loss:
 * of all its samples. */
static dpb_status end_given_up(struct dpb_trainer *trainer, uint32_t n_forward, double *loss)
{
    struct dpb_exchange *exchange = &trainer->exchange;
    if (!exchange->passes.given_up)
        return DPB_OK;
    if (n_forward < trainer->experiment->accumulate) {
        dpb_account_stopped();
        *loss = 0.0;
    }
    return dpb_staging_give(exchange, exchange->layout.n_elements, NULL);
}

dpb_status dpb_train(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    struct dpb_exchange *exchange = &trainer->exchange;
    struct dpb_engine *engine = &trainer->engine;
    const struct dpb_hooks hooks = dpb_exchange_hooks(exchange);
    const bool training = experiment->settings.run.mode == DPB_MODE_TRAIN;
    const bool held_back = exchange->staging.held_back;
    const double scale = 1.0 / ((double)exchange->plan.contract.divisor * experiment->accumulate);

    for (trainer->course.step = trainer->course.first_step;; trainer->course.step++) {
        bool stop, overflow = false;
        DPB_TRY(dpb_between_steps(trainer, &stop));
        if (stop)
            return dpb_end_training(trainer);

        double rate = dpb_train_rate(trainer), loss = 0.0;
        uint64_t correct = 0;
        uint32_t n_forward = 0; /* micro-batches whose forward completed */
        dpb_account_begin(rate);
        dpb_watch_warm_up(trainer);
        if (training && !held_back)
            DPB_TRY(dpb_exchange_begin(exchange, rate, scale, false));

        for (uint32_t i = 0; i < experiment->accumulate; i++) {
            const struct dpb_pass pass = pass_of(trainer, i, training);
            struct dpb_feed_batch input;
            struct dpb_outcome outcome;
            DPB_TRY(dpb_feed_next(trainer->feed, &input)); /* also in a step that is given up */
            dpb_account_mark(DPB_PART_DATA);
            if (exchange->passes.given_up)
                continue;

            DPB_TRY(go_forward(trainer, &pass, &input.batch, &hooks, &outcome));
            dpb_account_mark(DPB_PART_FORWARD);
            loss += outcome.loss / experiment->accumulate;
            correct += outcome.correct;
            n_forward += !exchange->passes.given_up;
            if (!training || exchange->passes.given_up)
                continue;

            DPB_TRY(delay_gradients(trainer, i));
            DPB_TRY(go_backward(trainer, &pass, &hooks, i));
            if (held_back)
                DPB_TRY(dpb_look_for_overflow(engine, &overflow));
            if (!exchange->passes.given_up)
                dpb_statistics_add(&trainer->statistics, i, experiment->accumulate);
            if (!exchange->passes.given_up && i + 1 == experiment->accumulate && !held_back)
                dpb_statistics_move(&trainer->statistics);
            dpb_account_mark(DPB_PART_BACKWARD);
        }
        DPB_TRY(end_given_up(trainer, n_forward, &loss));
        dpb_account_loss(loss, correct);
        if (held_back) {
            DPB_TRY(dpb_exchange_if_finite(trainer, rate, scale, overflow));
        } else if (training) {
            engine->weights_changed = true;
            DPB_TRY(dpb_exchange_finish(exchange));
        }
        DPB_TRY(dpb_look_for_nan(trainer, loss));
    }
}
