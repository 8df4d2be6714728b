/* course.c - where a training begins, how long it has trained, and its learning rate. */
#include "loop/trainer.h"

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

dpb_status dpb_course_open(struct dpb_trainer *trainer)
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
    dpb_control_join(&trainer->control, experiment->n_workers,
                     trainer->exchange.plan.contract.lead > 0);
    if (trainer->exchange.is_late) {
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
    return dpb_schedule_make(&experiment->settings.optimizer, experiment->global_batch,
                             experiment->steps_per_epoch, total, &trainer->schedule);
}

int64_t dpb_trained_ns(const struct dpb_trainer *trainer)
{
    const struct dpb_journal *journal = trainer->journal;
    int64_t before_ns = trainer->experiment->start.trained_ns;
    if (journal->n_records == 0)
        return before_ns;
    const int64_t met_ns = trainer->course.met_ns;
    const int64_t end_ns = met_ns > 0 ? met_ns : journal->ended_ns;
    return before_ns + end_ns - journal->records[0].begin_ns - trainer->course.all_paused_ns;
}

double dpb_train_rate(const struct dpb_trainer *trainer)
{
    return dpb_schedule_rate(&trainer->schedule,
                             trainer->course.step + (uint64_t)trainer->course.rate_shift);
}

double dpb_train_last_rate(const struct dpb_trainer *trainer)
{
    const bool none = trainer->course.step == trainer->course.first_step;
    return none ? dpb_train_rate(trainer)
                : dpb_schedule_rate(&trainer->schedule, trainer->course.step - 1 +
                                                            (uint64_t)trainer->course.rate_shift);
}
