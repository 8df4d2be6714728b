/* evaluate.c - see evaluate.h. */
#include "loop/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "exchange/access.h"
#include "exchange/step.h"
#include "measure/trace.h"
#include "plan/evaluations.h"
#include "world/store.h"

/* A worker's result for its share. */
struct share {
    double loss;                        /* sum over its samples */
    uint64_t correct, in_top5, samples; /* the first two count labels */
    uint64_t steps;                     /* of training that it has done in this run */
};

/* The test set is divided among the workers that live by the word of rank 0: no sample is left out
 * or comes twice. Where one is lost meanwhile, its share is missing from this evaluation. */
static dpb_status find_place(const struct dpb_trainer *trainer, const char *name, uint32_t *index,
                             uint32_t *n)
{
    uint8_t lives[DPB_JOB_RANKS];
    char key[96];
    for (uint32_t rank = 0; rank < trainer->replicas; rank++)
        lives[rank] = !dpb_board_lost(dpb_world.board, rank);
    snprintf(key, sizeof key, "%s/lives", name);
    if (trainer->experiment->settings.run.survive)
        DPB_TRY(dpb_store_from_0(key, lives, trainer->replicas));
    *index = *n = 0;
    for (uint32_t rank = 0; rank < trainer->replicas; rank++) {
        *index += rank < dpb_world.rank && lives[rank];
        *n += lives[rank];
    }
    return DPB_OK;
}

static dpb_status run_share(struct dpb_trainer *trainer, const char *name, struct share *share)
{
    const struct dpb_hooks none = dpb_exchange_hooks(&trainer->exchange);
    /* In a training a signal ends the steps, but an evaluation takes its whole test set. */
    const bool ends = trainer->experiment->settings.run.mode == DPB_MODE_EVALUATE;
    uint32_t index, n;
    *share = (struct share){.steps = trainer->course.step - trainer->course.first_step};
    DPB_TRY(find_place(trainer, name, &index, &n));
    dpb_feed_eval_begin(trainer->eval_feed, index, n);
    for (;;) {
        struct dpb_feed_batch input;
        struct dpb_outcome outcome;
        if (ends && dpb_board_interrupted(dpb_world.board))
            return DPB_INTERRUPTED;
        DPB_TRY(dpb_feed_next(trainer->eval_feed, &input));
        if (input.valid == 0)
            return DPB_OK;
        const struct dpb_pass pass = {.training = false,
                                      .weights_changed = trainer->engine.weights_changed,
                                      .step = trainer->course.step,
                                      .valid = input.valid};
        DPB_TRY(trainer->engine.ops->forward(trainer->engine.program, &pass, &input.batch, &none,
                                             &outcome));
        trainer->engine.weights_changed = false;
        share->loss += outcome.loss * input.valid;
        share->correct += outcome.correct;
        share->in_top5 += outcome.in_top5;
        share->samples += input.valid;
    }
}

/* Rank 0: where the target is met the run ends, a few steps on. */
static void watch_target(struct dpb_trainer *trainer)
{
    struct dpb_journal *journal = trainer->journal;
    if (journal->target_met > 0 ||
        !dpb_evaluations_meet(journal->evals, journal->n_evals, &trainer->experiment->settings))
        return;
    journal->target_met = journal->n_evals;
    dpb_control_propose(&trainer->control, DPB_ACTION_STOP);
    trainer->course.stopping = true;
}

/* It has ended within a step, or before its first one. */
static uint64_t steps_of_lost(const struct dpb_trainer *trainer, uint32_t rank)
{
    const uint64_t step = dpb_board_page(dpb_world.board, rank)->step;
    return step > trainer->course.first_step ? step - trainer->course.first_step : 0;
}

/* `steps`: of the workers whose gradients the model has; without exchanges, each model has as many
 * as rank 0's. */
static uint64_t trained_samples(const struct dpb_trainer *trainer, uint64_t steps)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    const uint64_t all = steps * (experiment->n_workers / trainer->replicas);
    return experiment->start.samples + all * experiment->batch * experiment->accumulate;
}

/* Rank 0 adds up the shares. */
static dpb_status gather(struct dpb_trainer *trainer, const char *name, const struct share *mine)
{
    struct dpb_journal *journal = trainer->journal;
    struct share total = {0};
    DPB_TRY(dpb_store_put_own(name, mine, sizeof *mine));
    if (dpb_world.rank != 0)
        return DPB_OK;
    for (uint32_t rank = 0; rank < trainer->replicas; rank++) {
        struct share one;
        bool lost;
        DPB_TRY(dpb_store_get_of(rank, name, &one, sizeof one, &lost));
        if (lost)
            one = (struct share){.steps = steps_of_lost(trainer, rank)};
        total.steps += one.steps;
        total.loss += one.loss;
        total.correct += one.correct;
        total.in_top5 += one.in_top5;
        total.samples += one.samples;
    }
    if (journal->n_evals == DPB_JOURNAL_EVALS)
        return dpb_fail(DPB_FAILED, "more than %d evaluations in a run; make eval.every larger",
                        DPB_JOURNAL_EVALS); /* not wrong input: the result keeps all so far */
    struct dpb_progress progress = dpb_feed_progress(trainer->feed, trainer->course.step);
    journal->evals[journal->n_evals] =
        (struct dpb_eval){.step = trainer->course.step,
                          .epoch = progress.epoch,
                          .trained_samples = trained_samples(trainer, total.steps),
                          .trained_ns = dpb_trained_ns(trainer),
                          .loss = total.samples ? total.loss / (double)total.samples : 0.0,
                          .correct = total.correct,
                          .in_top5 = total.in_top5,
                          .samples = total.samples,
                          .labels = total.samples * dpb_graph_labels(trainer->experiment->graph)};
    __atomic_store_n(&journal->n_evals, journal->n_evals + 1, __ATOMIC_RELEASE);
    watch_target(trainer);
    return DPB_OK;
}

/* An evaluation takes as long as it takes: no deadline of the next meeting shall count it. */
static dpb_status await_rank_0(const char *name)
{
    struct share share;
    size_t bytes = sizeof share;
    char key[96];
    snprintf(key, sizeof key, "%s/0", name); /* as dpb_store_put_own names it */
    return dpb_store.get(key, &share, &bytes, DPB_FOREVER);
}

static dpb_status set_weights(struct dpb_trainer *trainer, const void *content)
{
    struct dpb_exchange *exchange = &trainer->exchange;
    const uint64_t bytes = dpb_arena_bytes(exchange, exchange->layout.weight_type);
    void *weights;
    DPB_TRY(dpb_arena_edit(exchange, exchange->weights, &weights));
    memmove(weights, content, bytes);
    trainer->engine.weights_changed = true;
    return dpb_arena_commit(exchange, exchange->weights, bytes);
}

/* A published array other than the worker's takes its place; *own is a copy of the worker's. */
static dpb_status take_published(struct dpb_trainer *trainer, const struct dpb_view *view,
                                 void **own)
{
    struct dpb_exchange *exchange = &trainer->exchange;
    const uint64_t bytes = dpb_arena_bytes(exchange, exchange->layout.weight_type);
    const void *content;
    if (view->weights == exchange->weights)
        return DPB_OK;
    *own = malloc(bytes);
    if (!*own)
        return dpb_fail(DPB_NO_MEMORY, "no memory to keep the worker's own weights");
    DPB_TRY(dpb_arena_look(exchange, exchange->weights, bytes, &content));
    memcpy(*own, content, bytes);
    DPB_TRY(dpb_arena_look(exchange, view->weights, bytes, &content));
    return set_weights(trainer, content);
}

/* With the averaged batch-norm statistics in place of the own ones. */
static dpb_status evaluate(struct dpb_trainer *trainer, const char *name, void *own_state)
{
    struct dpb_view view;
    struct share share;
    size_t bytes = trainer->experiment->graph->n_state_elements *
                   dpb_dtype_size(trainer->exchange.layout.weight_type);
    void *own_weights = NULL;
    DPB_TRY(dpb_exchange_publish(&trainer->exchange, "evaluate", &view));
    DPB_TRY(dpb_exchange_drain(&trainer->exchange));
    memcpy(own_state, trainer->statistics.running, bytes);
    DPB_TRY(dpb_statistics_average(&trainer->statistics, trainer->replicas, name,
                                   trainer->statistics.running));
    dpb_status status = dpb_verify_published(&trainer->exchange, view.weights, trainer->journal);
    DPB_THEN(status, take_published(trainer, &view, &own_weights));
    DPB_THEN(status, run_share(trainer, name, &share));
    if (own_weights)
        DPB_THEN(status, set_weights(trainer, own_weights));
    free(own_weights);
    memcpy(trainer->statistics.running, own_state, bytes);
    DPB_TRY(status);
    return gather(trainer, name, &share);
}

dpb_status dpb_evaluate(struct dpb_trainer *trainer)
{
    char name[64];
    size_t bytes = trainer->experiment->graph->n_state_elements *
                   dpb_dtype_size(trainer->exchange.layout.weight_type);
    struct dpb_view view;
    const dpb_spent before = dpb_account_spend(DPB_SPENT_EVAL);
    dpb_world_note("evaluate", UINT64_MAX, UINT32_MAX);
    trainer->course.evaluated_at = trainer->course.step;
    /* Not by the step: workers that are apart end at steps of their own. */
    snprintf(name, sizeof name, "eval/%u", trainer->course.evaluations++);
    if (!trainer->eval_feed) { /* rank 0 tests its model alone; all publish, as always */
        DPB_TRY(dpb_exchange_publish(&trainer->exchange, "evaluate", &view));
        DPB_TRY(await_rank_0(name));
        dpb_account_spend(before);
        return DPB_OK;
    }
    void *own_state = calloc(1, bytes + 1);
    DPB_TRY(dpb_allocated(own_state));
    const int64_t begun_ns = dpb_trace_begin();
    dpb_status status = evaluate(trainer, name, own_state);
    dpb_trace_end(DPB_TRACE_EVALUATE, 0, trainer->course.step, begun_ns);
    free(own_state);
    dpb_account_spend(before);
    return status;
}
