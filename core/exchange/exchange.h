/*
 * exchange.h - a rank's strategy, opened on a layout, with its arenas. Training and `dpbench comm`
 * both use a struct dpb_exchange.
 *
 * open.h opens and closes the strategy. step.h, staging.h, slots.h, resident.h and pump.h are a
 * step's exchange, late.h is the exchange of comm.late, access.h is core's own access between
 * steps.
 */
#ifndef DPB_CORE_EXCHANGE_EXCHANGE_H
#define DPB_CORE_EXCHANGE_EXCHANGE_H

#include <pthread.h>

#include "exchange/arenas.h"
#include "optim/optimizer.h"
#include "plan/experiment.h"

/* How a step's exchange and the device's passes order their work. */
struct dpb_passes {
    const struct dpb_device_ops *ops; /* of the program; NULL: the rank computes nothing */
    void *program;                    /* @borrowed from the engine; NULL: not compiled */
    bool takes_events;                /* the strategy's work is enqueued behind the device's */
    bool captures;                    /* a step's exchange may be captured with its last backward */
    /* The strategy may drop the gradients of the step under way. Devices of the host then leave
     * their pass between two ops. A GPU completes all enqueued work. */
    bool may_stop;
    bool given_up;              /* dropped: the rest of the step is left out */
    struct dpb_event *final;    /* the step's gradients are final when it fires; NULL: they are */
    struct dpb_event *pending;  /* the weights are new when it fires; NULL: they are */
    struct dpb_event *replayed; /* *done of the strategy's `replay`; NULL: no launch */
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
    struct dpb_mapping slots;  /* @owned: the window that `summed` is; zeroed: it is none */
    uint32_t micro_batch;      /* of the step: 0 .. accumulate - 1 */
    uint64_t n_staged;         /* elements of this micro-batch passed to the communicator */
    uint64_t next_bucket;      /* of the step: the first that is not handed over */
    bool held_back;            /* fp16: until all ranks know that their gradients are finite */
    struct dpb_event **events; /* of a step's staged gradients, on a device */
    size_t n_events, next_event;
};

/* Gradients in slots (dpb_comm_plan.gradient_slots). */
struct dpb_slots {
    uint64_t n;           /* 0: there is an arena */
    bool each;            /* each micro-batch is an exchange (needs.h) */
    uint32_t next_tensor; /* of this step: the first whose gradients are not final */
};

/* Weights on need (resident.h). */
struct dpb_resident_bucket {
    bool held;       /* needed, and not given back */
    uint64_t number; /* of its last need, from 1; 0: it was loaded */
    uint64_t turn;   /* the last that reads it */
};

struct dpb_resident {
    struct dpb_resident_bucket *buckets; /* NULL: all weights are here all the time */
    uint64_t *held, n_held;              /* those that are held */
    uint64_t n_needs, n_shown, turn;
    uint32_t node;                  /* that was entered last */
    bool in_step;                   /* of training: the device's passes enter nodes */
    bool prefetches;                /* a bucket of the next node may be needed */
    uint64_t most_held, most_bytes; /* buckets, and memory behind the arena, in passes */
};

/* comm.late: an exchange continues in the next step. */
struct dpb_late {
    bool on;
    /* On a device: the copies of a step's end are done. A step may stage gradients, and record the
     * events of staging anew, while the exchange of the step before waits for these. */
    struct dpb_event *copied;
};

/* Looks on while a worker trains, unnoticed by the strategy; on the loop's thread. */
struct dpb_onlooker {
    void *owner; /* @borrowed; NULL: nobody looks on */
    /* An exchange is about to begin: the strategy's weights are final. */
    void (*begin)(void *owner);
    /* A step's gradients [begin, end) are final in exchange->gradients, and not handed over yet. */
    void (*gradients)(void *owner, uint64_t begin, uint64_t end);
    /* Weights [begin, end), which were needed, are here for a pass of the device. */
    void (*weights)(void *owner, uint64_t begin, uint64_t end);
};

struct dpb_exchange {
    const struct dpb_experiment *experiment;
    struct dpb_pump pump;
    struct dpb_passes passes;

    /* While it is open. */
    const struct dpb_graph *graph; /* its layout is exchanged: the experiment's, but alone */
    const struct dpb_comm_ops *ops;
    void *comm;
    struct dpb_layout layout;
    struct dpb_comm_plan plan;
    struct dpb_arenas arenas;
    struct dpb_arena_memory memory; /* behind `arenas` */
    /* The arenas that the device and core use: the strategy's; with comm.late core's own. */
    void *weights, *gradients;
    struct dpb_optimizer *optimizer;
    struct dpb_staging staging;
    struct dpb_slots slots;
    struct dpb_resident resident;
    struct dpb_late late;
    struct dpb_onlooker onlooker;

    uint64_t n_begun;     /* struct dpb_step.step of the next exchange */
    struct dpb_step step; /* of the last one begun */
    bool plain;           /* it is a proof's */
};

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

#endif
