/*
 * trainer.h - all parts of a rank's training, opened and connected. The loop counts in `course`;
 * the headers of the other structs describe the rest.
 *
 * setup.c opens and closes the trainer, rank.c is a rank's life, loop.c trains, between.c acts
 * between two steps, evaluate.c tests, snapshot.c loads and saves. Servers use the exchange alone.
 */
#ifndef DPB_CORE_LOOP_TRAINER_H
#define DPB_CORE_LOOP_TRAINER_H

#include "base/stats.h"
#include "measure/account.h"
#include "plan/binding.h"
#include "loop/control.h"
#include "exchange/exchange.h"
#include "feed/feed.h"
#include "measure/journal.h"
#include "optim/loss_scale.h"
#include "measure/monitor.h"
#include "optim/schedule.h"
#include "save/snapshot.h"
#include "optim/statistics.h"

/* The progress of a training: the loop's counts and state. */
struct dpb_course {
    uint64_t step;         /* under way, counted from the training's begin */
    uint64_t first_step;   /* of this run: not 0 if it continues a training */
    uint64_t stop_at;      /* UINT64_MAX: not known yet */
    uint64_t evaluated_at; /* step of the last evaluation; UINT64_MAX: none */
    int64_t rate_shift;    /* step + rate_shift: by the samples trained on, for the schedule */
    uint32_t snapshots, evaluations; /* begun, by all workers alike: for names in the store */
    uint32_t last_actions;           /* that the ranks have agreed on */
    bool stopping;                   /* rank 0 has proposed to stop */
    bool nan_seen;                   /* and warned of */
    bool paid;             /* comm.late: the first timed step waits for an exchange of warm-up */
    bool gated;            /* warm-up ends by a gate, which rank 0 has */
    struct dpb_gate *gate; /* NULL once it has decided */
    int64_t warm_at_ns;    /* when the counted warm-up was over, less the pauses before */
    int64_t paused_ns;     /* evaluations and checkpoints: of warm-up; then since the first timed
                              step */
    int64_t all_paused_ns; /* all of them */
    int64_t met_ns; /* workers that are apart have all ended their steps for a pause, or the run;
                       0: they train, or are not apart */
};

struct dpb_trainer {
    struct dpb_experiment *experiment;
    struct dpb_journal *journal;
    struct dpb_monitor_series *monitor; /* NULL: none is wanted */
    struct dpb_binding binding;
    struct dpb_exchange exchange;
    uint32_t replicas; /* workers that exchange: 1 where they do not */
    struct dpb_statistics statistics;
    struct dpb_sample_pool pool; /* data.place = device: the training set */
    struct dpb_feed *feed, *eval_feed;
    struct dpb_schedule schedule;
    struct dpb_control control;
    struct dpb_loss_scale loss_scale; /* of fp16; else 1 */
    struct dpb_course course;
};

/* ---- setup.c ------------------------------------------------------------------------------- */

/* Opens device, communicator, arenas and data of this rank, in that order; collective. */
dpb_status dpb_trainer_open(struct dpb_experiment *experiment, struct dpb_trainer *trainer);
void dpb_trainer_close(struct dpb_trainer *trainer); /* also after a failed open */

/* ---- course.c ------------------------------------------------------------------------------ */

/* Once the feeds are open. */
dpb_status dpb_course_open(struct dpb_trainer *trainer);
/* The learning rate of the step under way. */
double dpb_train_rate(const struct dpb_trainer *trainer);
/* The learning rate of the last step; before the first step, of the first. */
double dpb_train_last_rate(const struct dpb_trainer *trainer);
/* Time of training until the end of the last step, of all workers whose gradients the model has.
 * Evaluations and checkpoints are left out. Includes the training that this run continues. */
int64_t dpb_trained_ns(const struct dpb_trainer *trainer);

/* ---- evaluate.c ---------------------------------------------------------------------------- */

/* Evaluates the published weights on the test set, which is shared among the workers, with
 * batch-norm statistics averaged over them. Sums go into rank 0's journal. Collective; not
 * timed. */
dpb_status dpb_evaluate(struct dpb_trainer *trainer);

/* ---- between.c ----------------------------------------------------------------------------- */

/* Takes the actions that the ranks have agreed on, and pauses where this step begins with an
 * evaluation or a checkpoint. *stop: this step is not begun. May block. */
dpb_status dpb_between_steps(struct dpb_trainer *trainer, bool *stop);
/* Rank 0, in each step: proposes to end warm-up, by count and by the gate. Others: nothing. */
void dpb_watch_warm_up(struct dpb_trainer *trainer);
/* Collective: no rank returns before all have trained to their end. DPB_INTERRUPTED: a signal ended
 * the training. */
dpb_status dpb_end_training(struct dpb_trainer *trainer);

/* ---- finite.c ------------------------------------------------------------------------------ */

/* Checks the loss, and the weights that this worker or a server has updated. On NaN the run fails,
 * or continues after one warning, by run.nan. */
dpb_status dpb_look_for_nan(struct dpb_trainer *trainer, double loss);
/* fp16: sets *overflow where the last backward's gradients are not finite, else leaves it. */
dpb_status dpb_look_for_overflow(const struct dpb_engine *engine, bool *overflow);
/* fp16, collective: exchanges gradients once those of all ranks are known to be finite. If one is
 * not finite, no rank exchanges, and the step is skipped. */
dpb_status dpb_exchange_if_finite(struct dpb_trainer *trainer, double rate, double scale,
                                  bool own_overflow);

/* ---- loop.c -------------------------------------------------------------------------------- */

dpb_status dpb_train(struct dpb_trainer *trainer);

#endif
