/*
 * comm.h - a communicator: a complete variable-update strategy, from "this gradient is ready" to
 * "these are the weights of the next forward".
 *
 * For strategies of any kind. A strategy that sums and updates begins with <dpbench-comm/reduce.h>,
 * which needs none of these hooks.
 *
 * Every rank (workers first, then servers) opens the same plugin. A rank's life is
 *
 *     open -> plan -> bind -> load -> steps -> close        (servers: serve in place of steps)
 *
 * and a worker's step is
 *
 *     begin -> ready(0) ... ready(n_buckets - 1) -> end -> [progress until *done fires]
 *
 * `progress` does the work; begin, ready and end only report events. The loop's thread calls
 * `progress` between the device's ops and, after `end`, until *done fires. With communication cores
 * (run.comm_cores) a helper thread of core calls it all the time, beside begin, ready and end.
 */
#ifndef DPBENCH_COMM_H
#define DPBENCH_COMM_H

#include "capture.h"
#include "collectives.h"
#include "contract.h"
#include "needs.h"
#include "queue.h"
#include "saved.h"

typedef enum dpb_role { DPB_WORKER, DPB_SERVER } dpb_role;

struct dpb_comm_args {
    uint32_t rank, n_workers, n_servers; /* ranks [0, n_workers) are workers */
    uint32_t learners; /* workers of each place (run.learners), whose ranks follow each other */
    dpb_role role;
    uint64_t bucket_bytes; /* comm.bucket */
    uint32_t comm_cores;   /* 0: progress runs on the loop's thread */
    /* The machine of each rank, servers too, numbered from 0 in the order of their lowest ranks.
     * Ranks of one machine, and no others, share memory and a clock. @borrowed until close. */
    const uint32_t *machines;
    uint32_t n_machines; /* at least 1 */
    /* The worker's device, if it has memory of its own; otherwise, and on servers, the host, whose
     * queues do their work when it is given. NULL in needs.h's hooks. @borrowed until close. */
    const struct dpb_device_arenas *device;
    const struct dpb_codec *codec; /* codec.h: comm.codec; NULL: none */
    uint32_t optimizer_states; /* arrays of the optimizer's state, each as long as the weights */
    bool whole;       /* updates need norms of whole tensors: see DPB_COMM_WHOLE (needs.h) */
    bool accumulates; /* run.accumulate > 1: see gradient_slots (needs.h) */
    bool survives;    /* run.survive, with DPB_COMM_SURVIVES */
    dpb_collective operation; /* of `dpbench comm`; DPB_ALL_REDUCE elsewhere */
};

/* The weight arena and the gradient arena, before they exist. */
struct dpb_layout {
    uint64_t n_elements;     /* of either, gaps between tensors included */
    dpb_dtype weight_type;   /* fp32 or fp64: master weights */
    dpb_dtype gradient_type; /* as comm.gradient says */
    /* In arena order (graph.h); none where no model is trained. @borrowed until close. */
    const struct dpb_tensor *tensors;
    uint32_t n_tensors;
};

typedef enum dpb_memory {
    DPB_MEMORY_NONE,    /* not needed on this rank */
    DPB_MEMORY_PRIVATE, /* this process alone */
    DPB_MEMORY_SHARED   /* mapped by all ranks of this machine; starts as zeros */
} dpb_memory;

/* A communicator's requests. Core fills in the defaults before `plan`: no memory, and the bucket
 * and contract of a synchronous mean. */
struct dpb_comm_plan {
    uint64_t bucket_elements; /* the same on all ranks; the last bucket may be shorter */
    /* scratch is the host's, for flags. inbox lies where the gradients lie. */
    dpb_memory weights, gradients, scratch, inbox;
    uint64_t scratch_bytes, inbox_bytes;
    uint64_t gradient_slots; /* needs.h; 0: the gradients are a whole arena */
    bool weights_on_need;    /* needs.h; false: every worker has all weights all the time */
    bool keeps_sums;         /* needs.h: with slots, arenas->sums */
    /* The ranges whose optimizer state and update belong to this rank: rising, disjoint. From
     * host->alloc; core frees them. NULL with n_owned = 0: none. */
    struct dpb_range *owned;
    uint64_t n_owned;
    struct dpb_contract contract; /* the same on all ranks */
    /* The hooks from now on, for a strategy of several forms. Core sets the plugin's. */
    const struct dpb_comm_ops *ops;
    bool captures; /* capture.h */
};

/* The arenas of this rank and, where they are shared, of its machine's other ranks. @borrowed until
 * close. peer_* are by rank: the own entry is the own arena, entries out of reach are NULL. */
struct dpb_arenas {
    void *weights, *gradients, *scratch, *inbox;
    void *const *peer_weights, *const *peer_gradients, *const *peer_scratch, *const *peer_inbox;
    /* NULL; with plan.keeps_sums: the sums of the owned ranges, at their places in an arena of
     * gradients, of which no other element may be used. Starts as zeros. */
    void *sums;
    const bool *direct; /* by rank: arithmetic may read the peer's memory, not `copy` alone */
    struct dpb_optimizer *optimizer; /* host.h: of the owned ranges; NULL where none is owned */
    uint64_t n_buckets, bucket_elements;
    struct dpb_layout layout;
};

/* The parameters of one step; the same on all ranks. Pass the whole struct to the optimizer, from
 * one rank to another byte by byte. */
struct dpb_step {
    uint64_t step; /* rises by one with every begin, but within a step (needs.h) */
    double learning_rate;
    /* Gradients are means over a micro-batch. Communicators sum them over the workers, and the
     * optimizer multiplies by this: 1 / (contract.divisor x accumulate x loss scale). With fp16
     * the loss scale changes. Multiply a gradient kept from an earlier step by the scale of that
     * step over this one. */
    double scale;
    bool adds, more; /* needs.h: with slots and accumulates */
    uint64_t seal;   /* the optimizer's: says which rule applies, and that core made this step */
};

/* The model as this strategy defines it. @borrowed until the next begin. */
struct dpb_view {
    const void *weights; /* the whole arena, in layout.weight_type, where the own arena is */
};

#define DPB_FOREVER INT64_C(-1)

/* Hooks that may be NULL say so. A hook that fails has called host->fail. */
struct dpb_comm_ops {
    /* ---- life: collective, in this order, but for close ---- */
    /* Refuses unsupported settings by name. Sets *comm (@owned until close) on success only. A
     * process may open again after close. It then uses new keys in the store. */
    dpb_status (*open)(const void *options, const struct dpb_comm_args *args, void **comm);
    dpb_status (*plan)(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want);
    dpb_status (*bind)(void *comm, const struct dpb_arenas *arenas); /* they exist on all ranks */
    /* Workers: the weights in their arenas, equal on all, become the model. May block. */
    dpb_status (*load)(void *comm);
    void (*close)(void *comm); /* accepts NULL; waits for no peer, or a second at most */

    /* ---- step ---- */
    dpb_status (*begin)(void *comm, const struct dpb_step *step);
    /* In bucket order, the same on every rank. The bucket is final once `event` fires (NULL: at
     * once). From then until *done fires the device touches neither the bucket nor its weights, and
     * the strategy may write both. Never blocks. */
    dpb_status (*ready)(void *comm, uint64_t bucket, struct dpb_event *event);
    /* Does the work that is possible now and returns after about budget_ns. With DPB_FOREVER it may
     * block until some work was possible. One thread at a time. */
    dpb_status (*progress)(void *comm, int64_t budget_ns);
    /* All buckets were given. When *done fires, the weight arena holds the next forward's weights,
     * the device may write gradients, and the step's spans and bytes are reported. Never blocks. */
    dpb_status (*end)(void *comm, struct dpb_event **done);
    /* Workers, between steps, collective: which weights are the model, of a synchronous strategy
     * those it trains with, bit for bit. May block and exchange: no step is under way. */
    dpb_status (*publish)(void *comm, struct dpb_view *view);
    /* Servers, with DPB_COMM_SERVERS: works until the workers have closed. */
    dpb_status (*serve)(void *comm);

    /* ---- may be NULL. needs.h: the launcher's questions, without `open` ---- */
    dpb_status (*needs)(const void *options, struct dpb_comm_needs *needs);
    void (*memory)(const void *options, const struct dpb_comm_args *args,
                   const struct dpb_layout *layout, uint64_t bucket_elements,
                   struct dpb_comm_memory *memory);
    dpb_status (*contract)(const void *options, const struct dpb_comm_args *args,
                           struct dpb_contract *contract);
    /* contract.h: for strategies that are no synchronous mean */
    dpb_status (*settle)(void *comm);
    dpb_status (*books)(void *comm, struct dpb_books *books);
    double (*applied)(void *comm, uint64_t step, uint64_t element);
    bool (*cancelled)(void *comm);
    uint64_t (*taken)(void *comm);             /* needs.h: with plan.gradient_slots */
    void (*need)(void *comm, uint64_t bucket); /* needs.h: with plan.weights_on_need */
    uint64_t (*met)(void *comm);
    dpb_status (*state)(void *comm, struct dpb_saved *saved); /* saved.h: for checkpoints */
    /* capture.h: an exchange in the device's graph */
    dpb_status (*capture)(void *comm, const struct dpb_capture *capture);
    dpb_status (*replay)(void *comm, struct dpb_event **done);
    uint32_t collectives; /* collectives.h: 1u << operation of each that it has */
};

#endif
