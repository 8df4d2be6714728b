/*
 * trainer.h - all means of a rank's training. The loop counts in `course`; the headers of the other
 * structs describe the rest.
 *
 * rank.h is a rank's life, loop.h trains, between.h acts between two steps, evaluate.h tests,
 * save/snapshot.h loads and saves. Servers use the exchange alone.
 */
#ifndef DPB_CORE_LOOP_TRAINER_H
#define DPB_CORE_LOOP_TRAINER_H

#include "base/stats.h"
#include "exchange/exchange.h"
#include "feed/feed.h"
#include "loop/control.h"
#include "loop/engine.h"
#include "measure/account.h"
#include "measure/journal.h"
#include "measure/monitor.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"
#include "optim/statistics.h"
#include "plan/binding.h"
#include "save/snapshot.h"

/* The progress of a training: the loop's counts and state. */
struct dpb_course {
    uint64_t step;         /* under way, counted from the training's begin */
    uint64_t first_step;   /* of this run: not 0 if it continues a training */
    uint64_t stop_at;      /* UINT64_MAX: not known yet */
    uint64_t evaluated_at; /* step of the last evaluation; UINT64_MAX: none */
    int64_t rate_shift;    /* step + rate_shift: by the samples trained on, for the schedule */
    uint32_t evaluations;  /* begun, by all workers alike: for names in the store */
    uint32_t last_actions; /* that the ranks have agreed on */
    bool stopping;         /* rank 0 has proposed to stop */
    bool nan_seen;         /* and warned of */
    bool paid;             /* comm.late: the first timed step waits for an exchange of warm-up */
    bool gated;            /* warm-up ends by a gate, which rank 0 has */
    struct dpb_gate *gate; /* NULL once it has decided */
    int64_t warm_at_ns;    /* when the counted warm-up was over, less the pauses before */
    int64_t paused_ns;     /* evaluations and checkpoints: of warm-up; then since the first timed
                              step */
    int64_t all_paused_ns; /* all of them */
    /* At the first timed step: the clock, base/threads.h, machine/usage.h. */
    int64_t timed_ns, others_ns, run_delay_ns;
    int64_t met_ns; /* workers that are apart have all ended their steps for a pause, or the run;
                       0: they train, or are not apart */
};

struct dpb_trainer {
    struct dpb_experiment *experiment;
    struct dpb_journal *journal;
    struct dpb_monitor_series *monitor; /* NULL: none is wanted */
    struct dpb_binding binding;
    struct dpb_engine engine;
    struct dpb_exchange exchange;
    struct dpb_snapshot snapshot;
    uint32_t replicas; /* workers that exchange: 1 where they do not */
    struct dpb_statistics statistics;
    struct dpb_sample_pool pool; /* data.place = device: the training set */
    struct dpb_feed *feed, *eval_feed;
    struct dpb_schedule schedule;
    struct dpb_control control;
    struct dpb_loss_scale loss_scale; /* of fp16; else 1 */
    struct dpb_course course;
};

/* Opens device, communicator, arenas and data of this rank, in that order; collective. */
dpb_status dpb_trainer_open(struct dpb_experiment *experiment, struct dpb_trainer *trainer);
void dpb_trainer_close(struct dpb_trainer *trainer); /* also after a failed open */
/* The learning rate of the step under way. */
double dpb_train_rate(const struct dpb_trainer *trainer);
/* The learning rate of the last step; before the first step, of the first. */
double dpb_train_last_rate(const struct dpb_trainer *trainer);
/* Time of training until the end of the last step, of all workers whose gradients the model has.
 * Evaluations and checkpoints are left out. Includes the training that this run continues. */
int64_t dpb_trained_ns(const struct dpb_trainer *trainer);
/* Of this training, for a checkpoint. */
struct dpb_progress dpb_train_progress(const struct dpb_trainer *trainer);

#endif
