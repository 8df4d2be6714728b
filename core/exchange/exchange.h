/*
 * exchange.h - a rank's strategy, opened on a layout, with its arenas; the work of a step between
 * the device and the strategy; core's own access to the weights between steps.
 *
 * connect.c opens and closes the strategy. staging.c, exchange.c and pump.c are a step's exchange,
 * late.c is the exchange of comm.late, access.c is core's access. Training and `dpbench comm` both
 * use a struct dpb_exchange.
 */
#ifndef DPB_CORE_EXCHANGE_EXCHANGE_H
#define DPB_CORE_EXCHANGE_EXCHANGE_H

#include <pthread.h>

#include "exchange/arenas.h"
#include "optim/collect.h"
#include "plan/experiment.h"
#include "optim/optimizer.h"

/* The worker's device. Zeroed: there is none, as on servers. */
struct dpb_engine {
    const struct dpb_device_ops *ops;
    void *device, *program;
    bool weights_changed; /* since its last forward */
};

/* Progress on a core of its own (run.comm_cores). */
struct dpb_pump {
    pthread_t thread;
    bool running;
    struct dpb_event *kick; /* a step began */
    struct dpb_event *idle; /* its exchange is over */
    struct dpb_event *done; /* the communicator's, once `end` gave it */
    uint32_t stop;
    dpb_status status;
};

/* Gradients on their way from the device to the communicator. With accumulation or another type
 * (comm.gradient) they pass through arenas of core's own: device -> summed -> the communicator's.
 * Otherwise all three are the same memory. */
struct dpb_staging {
    void *device, *summed;
    uint32_t micro_batch;      /* of the step: 0 .. accumulate - 1 */
    uint64_t n_staged;         /* elements of this micro-batch passed to the communicator */
    bool held_back;            /* fp16: until all ranks know that their gradients are finite */
    struct dpb_event **events; /* of a step's staged gradients, on a device */
    size_t n_events, next_event;
};

/* Gradients in slots (dpb_comm_plan.gradient_slots). */
struct dpb_slots {
    uint64_t n;           /* 0: there is an arena */
    uint32_t next_tensor; /* of this step: the first whose gradients are not final */
};

struct dpb_follow; /* follow.h */

struct dpb_exchange {
    const struct dpb_experiment *experiment;
    struct dpb_engine engine;
    struct dpb_pump pump;

    /* From connect to disconnect. */
    const struct dpb_graph *graph; /* its layout is exchanged: the experiment's, but alone */
    const struct dpb_comm_ops *ops;
    void *comm;
    struct dpb_layout layout;
    struct dpb_comm_plan plan;
    struct dpb_arenas arenas;
    struct dpb_arena_memory memory; /* behind `arenas` */
    /* The arenas that the device and core use: the strategy's; with comm.late core's own. */
    void *weights, *gradients;
    /* comm.late, on a device: the copies of a step's end are done. A step may stage gradients, and
     * record the events of staging anew, while the exchange of the step before waits for these. */
    struct dpb_event *copied;
    struct dpb_optimizer *optimizer;
    struct dpb_collection collection; /* for checkpoints */
    struct dpb_follow *follow;        /* @owned, from open to close; NULL: nothing is followed */

    uint64_t n_begun;     /* struct dpb_step.step of the next exchange */
    struct dpb_step step; /* of the last one begun */
    bool plain;           /* it is a proof's */
    uint64_t next_bucket;
    struct dpb_staging staging;
    struct dpb_slots slots;
    bool takes_events; /* the strategy's work is enqueued behind the device's */
    bool captures;     /* a step's exchange may be captured with its last backward */
    bool is_late;      /* comm.late: an exchange continues in the next step */
    /* The strategy may drop the gradients of the step under way. Devices of the host then leave
     * their pass between two ops. A GPU completes all enqueued work. */
    bool may_stop;
    bool given_up;              /* dropped: the rest of the step is left out */
    struct dpb_event *final;    /* the step's gradients are final when it fires; NULL: they are */
    struct dpb_event *pending;  /* the weights are new when it fires; NULL: they are */
    struct dpb_event *replayed; /* *done of the strategy's `replay`; NULL: no launch */
};

/* ---- connect.c ----------------------------------------------------------------------------- */

/* Initialises an exchange that is not connected. */
void dpb_exchange_init(struct dpb_exchange *exchange, const struct dpb_experiment *experiment);
/* Opens the worker's device; compiles nothing. */
dpb_status dpb_engine_open(struct dpb_exchange *exchange, uint32_t threads);
void dpb_engine_close(struct dpb_engine *engine); /* accepts zeroed ones */
/* Opens the communicator on a layout, with its arenas; collective. `graph` is @borrowed until
 * disconnect. disconnect also undoes a connect that failed, and accepts one that never began. */
dpb_status dpb_exchange_connect(struct dpb_exchange *exchange, const struct dpb_graph *graph);
void dpb_exchange_disconnect(struct dpb_exchange *exchange);
/* The weights in the strategy's arena become the model. Workers; collective. */
dpb_status dpb_exchange_load(struct dpb_exchange *exchange);
/* Workers that train, once connected. */
dpb_status dpb_staging_open(struct dpb_exchange *exchange);
/* Closes the communicator, which ends the work of servers. Twice is harmless. */
void dpb_exchange_leave(struct dpb_exchange *exchange);

/* ---- staging.c ----------------------------------------------------------------------------- */

/* Before the backward of a step's micro-batch. */
void dpb_staging_begin(struct dpb_exchange *exchange, uint32_t micro_batch);
/* The micro-batch's elements below `frontier` are final once *event (NULL: at once) fires. `last`:
 * there is no further micro-batch. *event then fires when they have passed (NULL: they have). */
dpb_status dpb_staging_pass(struct dpb_exchange *exchange, uint64_t frontier, bool last,
                            struct dpb_event **event);
/* Hands over to the strategy the buckets that end within the first `frontier` elements, which are
 * final once `event` (NULL: at once) fires. */
dpb_status dpb_staging_give(struct dpb_exchange *exchange, uint64_t frontier,
                            struct dpb_event *event);

/* ---- slots.c ------------------------------------------------------------------------------- */

/* After `plan`: refuses a plan of slots that cannot work. */
dpb_status dpb_slots_plan(struct dpb_exchange *exchange);
/* With slots: waits until all elements below `end` may be written. Their slots may hold earlier
 * buckets, which have been handed over. */
dpb_status dpb_slots_await(struct dpb_exchange *exchange, uint64_t end);
/* The same for all elements that the device writes before it announces the frontier after this one.
 * This and the next function do nothing where there is an arena. */
dpb_status dpb_slots_await_node(struct dpb_exchange *exchange, uint64_t frontier);
/* The device's elements below `frontier` are final: clears the gaps between their tensors, where
 * earlier buckets have left values. */
void dpb_slots_clear_gaps(struct dpb_exchange *exchange, uint64_t frontier);

/* ---- exchange.c ---------------------------------------------------------------------------- */

/* The hooks that the device calls during a pass. */
struct dpb_hooks dpb_exchange_hooks(struct dpb_exchange *exchange);
/* Tells the communicator that an exchange with these parameters begins. */
dpb_status dpb_exchange_begin(struct dpb_exchange *exchange, double learning_rate, double scale,
                              bool plain);
/* The first `frontier` elements are final, once `event` (NULL: at once) fires: hands over the
 * buckets that end within them, but with comm.late. */
dpb_status dpb_exchange_ready(struct dpb_exchange *exchange, uint64_t frontier,
                              struct dpb_event *event);
/* Between the device's ops, on the loop's thread: does a piece of the strategy's work that is
 * possible now. Takes a struct dpb_exchange. */
dpb_status dpb_exchange_move(void *exchange);
/* After begin: moves the strategy on, and asks whether this step's gradients will be dropped. A
 * dpb_delay_look. */
dpb_status dpb_exchange_look(void *exchange, bool *cancelled);
/* The status of a device's pass; DPB_OK if the device left the pass because the step is given
 * up. */
dpb_status dpb_exchange_passed(const struct dpb_exchange *exchange, dpb_status status);
/* Waits until the arena holds the next forward's weights. Where device and strategy order their
 * work by events, makes the next forward wait instead. */
dpb_status dpb_exchange_finish(struct dpb_exchange *exchange);
/* Waits until device and strategy have done all enqueued work. */
dpb_status dpb_exchange_drain(struct dpb_exchange *exchange);
/* Applies all gradients handed over to all weights, by the strategy's `settle` if there is one. */
dpb_status dpb_exchange_settle(struct dpb_exchange *exchange);
/* The strategy's `publish`. The rank is in `phase` again, as before: it waits for no peer. */
dpb_status dpb_exchange_publish(struct dpb_exchange *exchange, const char *phase,
                                struct dpb_view *view);
/* Between steps: drains, and closes the account of the last step. */
dpb_status dpb_exchange_pause(struct dpb_exchange *exchange);

/* ---- late.c -------------------------------------------------------------------------------- */

/* After `plan`: the contract of the strategy one step late. Without comm.late this and the other
 * functions do nothing. */
void dpb_late_contract(const struct dpb_experiment *experiment, struct dpb_contract *contract);
/* Once the strategy's arenas exist: makes weights and gradients of the exchange. */
dpb_status dpb_late_open(struct dpb_exchange *exchange);
void dpb_late_close(struct dpb_exchange *exchange);
/* The loaded weights become the next forward's weights. */
dpb_status dpb_late_load(struct dpb_exchange *exchange);
/* Before `end`: waits for the exchange before this one, and begins this one. */
dpb_status dpb_late_turn(struct dpb_exchange *exchange);
/* After `end`, which gave `done`: the exchange continues in the next step. */
dpb_status dpb_late_leave(struct dpb_exchange *exchange, struct dpb_event *done);
/* Waits for the exchange under way. Leaves the next forward's weights unchanged. */
dpb_status dpb_late_settle(struct dpb_exchange *exchange);

/* ---- pump.c -------------------------------------------------------------------------------- */

/* Waits for `done` of the strategy's `end`, and moves the strategy on until then. */
dpb_status dpb_exchange_await(struct dpb_exchange *exchange, struct dpb_event *done);
/* Nothing where run.comm_cores = 0. */
dpb_status dpb_pump_start(struct dpb_exchange *exchange);
void dpb_pump_stop(struct dpb_pump *pump);
/* kick: a step has begun. end: the step's `end` gave `done`. await: waits for the step's exchange,
 * on the loop's thread where no pump runs. */
void dpb_pump_kick(struct dpb_pump *pump);
void dpb_pump_end(struct dpb_pump *pump, struct dpb_event *done);
dpb_status dpb_pump_await(struct dpb_exchange *exchange, struct dpb_event *done);

/* ---- access.c ------------------------------------------------------------------------------ */

/* Between steps, once all of the strategy's work is done. `edit` gives host memory for the whole
 * content; `commit` copies the content to the arena. The content from `look` is @borrowed until the
 * next of these calls. */
dpb_status dpb_arena_edit(struct dpb_exchange *exchange, void *arena, void **content);
dpb_status dpb_arena_commit(struct dpb_exchange *exchange, void *arena, uint64_t bytes);
dpb_status dpb_arena_look(struct dpb_exchange *exchange, const void *arena, uint64_t bytes,
                          const void **content);
dpb_status dpb_arena_clear(struct dpb_exchange *exchange, void *arena,
                           uint64_t bytes); /* accepts NULL */
/* The bytes of an arena with elements of `type`. */
static inline uint64_t dpb_arena_bytes(const struct dpb_exchange *exchange, dpb_dtype type)
{
    return exchange->layout.n_elements * dpb_dtype_size(type);
}
/* Memory of that size where the arenas lie; `what` is for messages. @owned: released by the place's
 * `release`. */
static inline dpb_status dpb_arena_allocate(const struct dpb_exchange *exchange, const char *what,
                                            dpb_dtype type, void **memory)
{
    const struct dpb_device_arenas *place = exchange->memory.place;
    return place->ops->allocate(place->device, what, dpb_arena_bytes(exchange, type), false,
                                memory);
}
enum { DPB_ELEMENT_NAME = 160 }; /* bytes */
/* For messages: "element 300 (bucket 4) of 'dense1.weight'". Returns `name`. */
const char *dpb_element_name(const struct dpb_exchange *exchange, uint64_t element,
                             char name[DPB_ELEMENT_NAME]);

#endif
