/*
 * trainer.h - all that a worker's loop works with, opened and connected; and the mechanics of a
 * step that the loop's one page calls.
 *
 * setup.c opens and closes it, arenas.c makes its arenas, exchange.c is what happens between the
 * device and the communicator, verify.c proves, evaluate.c tests, loop.c trains. Servers use the
 * parts that the plan gives them.
 */
#ifndef DPB_CORE_TRAIN_TRAINER_H
#define DPB_CORE_TRAIN_TRAINER_H

#include <pthread.h>

#include "base/stats.h"
#include "train/account.h"
#include "train/collect.h"
#include "train/contract.h"
#include "train/control.h"
#include "train/experiment.h"
#include "train/feed.h"
#include "train/journal.h"
#include "train/loss_scale.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/snapshot.h"
#include "world/world.h"

enum {
    DPB_ARENA_WEIGHTS,
    DPB_ARENA_GRADIENTS,
    DPB_ARENA_SCRATCH,
    DPB_ARENA_INBOX,
    DPB_ARENA_KINDS
};

/* Progress on a core of its own (run.comm_cores): see exchange.c. */
struct dpb_pump {
    pthread_t thread;
    bool running;
    struct dpb_event *kick; /* a step began */
    struct dpb_event *idle; /* its exchange is over */
    struct dpb_event *done; /* the communicator's, once `end` gave it */
    uint32_t stop;
    dpb_status status;
};

struct dpb_trainer {
    struct dpb_experiment *experiment;
    struct dpb_journal *journal;
    uint32_t threads;
    uint32_t n_cores; /* that all ranks are bound to, together; 0: they are not bound */

    /* The strategy and its arenas. */
    const struct dpb_graph *graph; /* whose layout is exchanged: the experiment's, but alone */
    const struct dpb_comm_ops *comm_ops;
    void *comm;
    struct dpb_layout layout;
    struct dpb_comm_plan plan;
    struct dpb_mapping own[DPB_ARENA_KINDS];
    struct dpb_mapping *peers; /* [rank * DPB_ARENA_KINDS + kind] */
    void **views;              /* [kind * ranks + rank]: what struct dpb_arenas points into */
    struct dpb_arenas arenas;
    /* arenas.c: the same in the device's memory. */
    struct dpb_device_arenas device_arenas; /* the worker's device; else the host */
    void *own_device[DPB_ARENA_KINDS], **peers_device;
    bool own_shared[DPB_ARENA_KINDS], *direct;
    bool on_device;  /* weights, gradients, inbox and optimizer state lie in memory of the device's
                        own */
    bool all_let_go; /* no peer has this rank's memory mapped any more */
    const struct dpb_device_arenas
        *place;              /* where weights and gradients lie: the device or the host */
    struct dpb_queue *queue; /* core's own, of `place` */
    void *staging;           /* an arena's content, on the host */
    size_t staging_bytes;
    struct dpb_optimizer *optimizer;
    struct dpb_collection collection; /* for checkpoints */
    struct dpb_pump pump;
    uint64_t exchanges;                        /* begin was called so often: struct dpb_step.step */
    uint32_t replicas;                         /* workers that exchange: 1 where they do not */
    uint32_t meetings, snapshots, evaluations; /* begun: of all workers alike, for names */

    /* The device. Arenas are in the weights' type. Where gradients need adding up (accumulate) or
     * another type (comm.gradient) they pass through arenas of core's own: device_gradients ->
     * summed_gradients -> the communicator's. Otherwise all three are the same memory. */
    const struct dpb_device_ops *device_ops;
    void *device, *program;
    void *device_gradients, *summed_gradients;
    void *state, *statistics, *summed_statistics;
    bool weights_changed;
    bool takes_events;         /* the strategy's work is enqueued behind the device's: exchange.c */
    struct dpb_event *pending; /* the weights are new when it fires; NULL: they are */
    bool captures;             /* a step's exchange may be captured with its last backward */
    struct dpb_event *replayed; /* what the strategy's `replay` gave; NULL: no launch was it */
    struct dpb_event **staged_events; /* of a step's staged gradients */
    size_t n_staged_events, next_staged_event;

    /* The loop's. */
    struct dpb_sample_pool pool; /* data.place = device: the training set */
    struct dpb_feed *feed, *eval_feed;
    struct dpb_schedule schedule;
    struct dpb_control control;
    struct dpb_gate *gate; /* rank 0's, until it has spoken */
    bool gated;            /* there is one, on rank 0 */
    bool nan_seen;         /* and said */
    bool stopping;         /* rank 0 has proposed to stop */
    uint64_t step;         /* the training step under way, counted from the training's begin */
    uint64_t first_step;   /* this run's: not 0 where it continues a training */
    int64_t rate_shift;    /* step + rate_shift: by the samples trained on, for the schedule */
    uint64_t stop_at;      /* UINT64_MAX: not known yet */
    int64_t warm_at_ns;    /* when the counted warm-up was over */
    int64_t paused_ns;     /* evaluations and checkpoints since the first timed step */
    int64_t all_paused_ns; /* all of them */
    uint64_t evaluated_at; /* step of the last evaluation; UINT64_MAX: none */
    uint32_t micro_batch;  /* of the step: 0 .. accumulate - 1 */
    uint64_t staged; /* gradient elements of this micro-batch that went on to the communicator */
    uint64_t next_bucket;
    /* Of fp16: buckets are kept back until all ranks have said whether their gradients are
     * finite. */
    bool scales;
    struct dpb_loss_scale loss_scale;
    bool overflow; /* here, in this step */
    uint32_t last_actions;
    int64_t opened_ns;
};

/* ---- setup.c ------------------------------------------------------------------------------- */

/* Opens device, communicator, arenas and data of this rank, in that order; collective. */
dpb_status dpb_trainer_open(struct dpb_experiment *experiment, struct dpb_trainer *trainer);
/* A worker takes part in what the workers agree on (control.h), wherever their boards are. */
void dpb_trainer_join_control(struct dpb_trainer *trainer);
/* The first part of it: the experiment's numbers, the rank's cores. For `dpbench comm` as well,
 * which goes on by connect and disconnect, as often as it likes. */
dpb_status dpb_trainer_settle(struct dpb_experiment *experiment, struct dpb_trainer *trainer,
                              bool *oversubscribed);
/* The worker's device, for which nothing is compiled yet; the journal's GPU, where there is one.
 * Closed by dpb_trainer_close, or who has opened it. */
dpb_status dpb_trainer_open_device(struct dpb_trainer *trainer);
/* Whether the built experiment fits into this machine: before anybody takes memory for it. */
dpb_status dpb_trainer_check_memory(const struct dpb_experiment *experiment);
/* Opens the communicator on a layout, with its arenas; collective. `graph` is @borrowed until
 * disconnect, which also takes away what was connected by half, and accepts nothing. */
dpb_status dpb_trainer_connect(struct dpb_trainer *trainer, const struct dpb_graph *graph);
void dpb_trainer_disconnect(struct dpb_trainer *trainer);
/* Closes the communicator: servers learn by it that there is no more to serve. Twice is
 * harmless. */
void dpb_trainer_leave(struct dpb_trainer *trainer);
void dpb_trainer_close(struct dpb_trainer *trainer); /* also what was opened by half */

/* ---- arenas.c ------------------------------------------------------------------------------ */

/* As the plan says, shared and mapped: fills trainer->arenas. Collective. */
dpb_status dpb_arenas_make(struct dpb_trainer *trainer);
/* Unmaps the peers' memory on devices. Once all ranks have (trainer->all_let_go), release gives
 * back the own, which it leaves alone otherwise. */
void dpb_arenas_let_go(struct dpb_trainer *trainer);
/* Closes core's queue: before anything that its work reads or writes is released. */
void dpb_arenas_stop(struct dpb_trainer *trainer);
void dpb_arenas_release(struct dpb_trainer *trainer); /* also what was made by half */

/* Core's own reading and writing of weights and gradients, between steps; of the strategy's work
 * all is done. `edit` gives host memory to write the whole content to, which `commit` brings where
 * it belongs. What `look` gives is @borrowed until the next of these calls. */
dpb_status dpb_arena_edit(struct dpb_trainer *trainer, void *arena, void **content);
dpb_status dpb_arena_commit(struct dpb_trainer *trainer, void *arena, uint64_t bytes);
dpb_status dpb_arena_look(struct dpb_trainer *trainer, const void *arena, uint64_t bytes,
                          const void **content);
dpb_status dpb_arena_clear(struct dpb_trainer *trainer, void *arena,
                           uint64_t bytes); /* accepts NULL */
/* Of an arena of elements of `type`. */
uint64_t dpb_arena_bytes(const struct dpb_trainer *trainer, dpb_dtype type);

/* ---- exchange.c ---------------------------------------------------------------------------- */

/* What the device calls back during a pass. */
struct dpb_hooks dpb_trainer_hooks(struct dpb_trainer *trainer);
/* Tells the communicator that an exchange with these parameters begins. */
dpb_status dpb_exchange_begin(struct dpb_trainer *trainer, double learning_rate, double scale,
                              bool plain);
/* All buckets that end within the first `frontier` elements are ready, once `event` (NULL: at once)
 * fires. */
dpb_status dpb_exchange_ready(struct dpb_trainer *trainer, uint64_t frontier,
                              struct dpb_event *event);
/* Waits until the weights are those of the next forward; or, where the device and the strategy do
 * so by themselves, sees to it that the next forward will. */
dpb_status dpb_exchange_finish(struct dpb_trainer *trainer);
/* Waits until device and strategy have done all that they were given. */
dpb_status dpb_trainer_drain(struct dpb_trainer *trainer);
/* The same between steps, and the account of the last one is closed. */
dpb_status dpb_trainer_pause(struct dpb_trainer *trainer);

dpb_status dpb_pump_start(struct dpb_trainer *trainer);
void dpb_pump_stop(struct dpb_trainer *trainer);

/* ---- verify.c ------------------------------------------------------------------------------ */

/* All workers (not the servers) have come here. For setting up, not for steps. */
dpb_status dpb_workers_meet(struct dpb_trainer *trainer);

/* After training: no gradient was applied later than a contract of DPB_STALE allows. */
dpb_status dpb_verify_ages(const struct dpb_trainer *trainer);
/* After training: replicas that promise to be equal bit for bit are. Collective. */
dpb_status dpb_verify_replicas(struct dpb_trainer *trainer);

/* ---- proof.c ------------------------------------------------------------------------------- */

/* That the strategy keeps its contract. Collective; verdicts go into the journal; a failure is
 * DPB_VERIFICATION with the first wrong element. The first two before training, on arenas that hold
 * nothing yet; the last when no more training and no checkpoint follows. */
dpb_status dpb_prove_pattern(struct dpb_trainer *trainer);
dpb_status dpb_prove_exchange(struct dpb_trainer *trainer);
dpb_status dpb_prove_again(struct dpb_trainer *trainer);

/* ---- evaluate.c ---------------------------------------------------------------------------- */

/* The test set, shared among the workers, with the published weights and the batch-norm statistics
 * averaged over the workers; the sums stand in rank 0's journal. Collective; not timed. */
dpb_status dpb_evaluate(struct dpb_trainer *trainer);
/* Batch-norm state averaged over the workers into `average` (n_state_elements). Collective. */
dpb_status dpb_average_state(struct dpb_trainer *trainer, const char *name, void *average);

/* Time spent training until the end of the last step, evaluations and checkpoints left out; with
 * that of the training which this run continues. */
int64_t dpb_trained_ns(const struct dpb_trainer *trainer);

/* ---- loop.c -------------------------------------------------------------------------------- */

dpb_status dpb_train(struct dpb_trainer *trainer);

#endif
