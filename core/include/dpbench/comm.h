/*
 * comm.h - a communicator: a complete variable-update strategy, from "this gradient is ready" to
 * "these are the weights of the next forward".
 *
 * Every rank (workers first, then servers) opens the same plugin. The collective hooks are open,
 * plan, bind, load and publish: every rank calls them in this order. Then a worker's step is
 *
 *     begin -> ready(0) ... ready(n_buckets - 1) -> end -> [progress until *done fires]
 *
 * Where the plan says so (dpb_comm_plan.captures) an exchange may be captured with the device's
 * backward, once, between `begin` and the work of that step, and is then launched with it:
 *
 *     begin -> capture -> ready(0) ... ready(n_buckets - 1) -> end -> replay        in one step
 *     begin -> replay                                                             from then on
 *
 * After close a process may open again, with another layout (`dpbench comm` does for every size):
 * keys in the store are then new ones, and nothing else of the strategy may be left.
 *
 * A strategy is written as a state machine that `progress` moves on. Without communication cores
 * (run.comm_cores = 0) the loop's thread calls `progress` between the device's ops and, after
 * `end`, until `done` fires; with them a helper thread of core's calls it all the time, at the same
 * time as begin, ready and end: those only publish what happened, progress does the work.
 *
 * Scale: backward gives the mean over the micro-batch, a communicator SUMS over the workers, the
 * optimizer multiplies once by step->scale = 1 / (workers * accumulate * loss scale).
 */
#ifndef DPBENCH_COMM_H
#define DPBENCH_COMM_H

#include "queue.h"
#include "status.h"
#include "types.h"

struct dpb_event;     /* host.h */
struct dpb_optimizer; /* host.h */

/* Capabilities of a communicator (dpb_plugin.capabilities): what it promises and what it needs. */
#define DPB_COMM_SYNC UINT64_C(0x001)    /* the mean gradient over the global batch, every step */
#define DPB_COMM_BITWISE UINT64_C(0x002) /* replicas are equal bit for bit */
#define DPB_COMM_OVERLAP UINT64_C(0x004) /* buckets are exchanged while backward goes on */
#define DPB_COMM_SERVERS UINT64_C(0x008) /* can use processes of role server */
#define DPB_COMM_LOCAL UINT64_C(0x010)   /* replicas do not exchange: consistency "none" */
/* Ranks may be on several machines; without it a job on several is refused. */
#define DPB_COMM_MULTI_NODE UINT64_C(0x020)
#define DPB_COMM_LAUNCHER UINT64_C(0x040) /* needs the runtime of mpirun or srun, as MPI does */
/* Wants its arenas in the memory of a device; refused with a device that has none of
 * its own. */
#define DPB_COMM_DEVICE UINT64_C(0x080)
/* With arenas on a device, `ready` is called with events of a queue that have not
 * fired, the strategy's work is enqueued behind them, and *done of `end` is such an event, behind
 * which the next forward is enqueued. */
#define DPB_COMM_EVENTS UINT64_C(0x100)
/* Keeps its arenas in the memory of a device that has some. */
#define DPB_COMM_EITHER UINT64_C(0x200)

typedef enum dpb_role { DPB_WORKER, DPB_SERVER } dpb_role;

/* A span of a bucket's way, for host->span(). */
typedef enum dpb_phase {
    DPB_PHASE_QUEUE,     /* ready here, not yet begun: not counted as communication */
    DPB_PHASE_WAIT_PEER, /* nothing can be done because a peer is late */
    DPB_PHASE_TRANSFER,  /* bytes move, or others work for us */
    DPB_PHASE_REDUCE,    /* summing */
    DPB_PHASE_UPDATE,    /* the optimizer; reported by core itself */
    DPB_PHASES
} dpb_phase;

struct dpb_comm_args {
    uint32_t rank, n_workers, n_servers; /* ranks [0, n_workers) are workers */
    dpb_role role;
    uint64_t bucket_bytes; /* comm.bucket */
    uint32_t comm_cores;   /* 0: progress runs on the loop's thread */
    /* The machine of each rank, servers too. @borrowed until close. Machines are
     * numbered from 0 in the order of their lowest ranks. Ranks of one machine, and no others,
     * share memory and a clock. comm.hosts may say that they are apart though they are not
     * (tests). */
    const uint32_t *machines;
    uint32_t n_machines; /* at least 1 */
    /* The device of this worker where it has memory of its own; NULL: it computes on
     * the host's (and servers have none). @borrowed until close. */
    const struct dpb_device_arenas *device;
};

/* The weight arena and the gradient arena, before they exist. */
struct dpb_layout {
    uint64_t n_elements;     /* of either, gaps between tensors included */
    dpb_dtype weight_type;   /* fp32 or fp64: master weights */
    dpb_dtype gradient_type; /* as comm.gradient says */
    uint64_t hash;           /* of all that two ranks must share */
};

typedef enum dpb_memory {
    DPB_MEMORY_NONE,    /* not needed on this rank */
    DPB_MEMORY_PRIVATE, /* this process alone */
    DPB_MEMORY_SHARED,  /* mapped by all ranks of this machine; starts as zeros */
    /* The same two in the memory of the worker's device. Weights, gradients (and
     * with them optimizer state) are both on the device or both on the host. */
    DPB_MEMORY_DEVICE,
    DPB_MEMORY_DEVICE_SHARED
} dpb_memory;

/* What a communicator wants; zeroed by core before `plan`. */
struct dpb_comm_plan {
    uint64_t bucket_elements; /* buckets are [i, i + 1) * this; the last may be shorter. Core has
                                 put comm.bucket here; the same on all ranks */
    dpb_memory weights, gradients, scratch;
    uint64_t scratch_bytes;
    /* The ranges whose optimizer state (and update) belong to this rank, rising, disjoint. NULL
     * with n_owned = 0: none. Written to memory from host->alloc; core frees it. */
    struct dpb_range *owned;
    uint64_t n_owned;
    /* Scratch on the device beside the host's (DPB_MEMORY_NONE and the two of a
     * device). */
    dpb_memory device_scratch;
    uint64_t device_scratch_bytes;
    /* Where dpb_device_arenas.no_capture is NULL: `capture` and
     * `replay` may be called. */
    bool captures;
};

/* The arenas of this rank and, where they are shared, of the others. @borrowed until close.
 * Entries of peers that have no such shared arena, or are on another machine, are NULL; the own
 * entry is the own arena. */
struct dpb_arenas {
    void *weights, *gradients, *scratch;
    void *const *peer_weights, *const *peer_gradients, *const *peer_scratch; /* by rank */
    struct dpb_optimizer *optimizer; /* for the owned ranges; NULL where none is owned */
    uint64_t n_buckets, bucket_elements;
    struct dpb_layout layout;
    /* On a device, and those of the peers, mapped; `direct` by rank: whether
     * arithmetic may read a peer's memory, or `copy` alone. NULL without arenas on a device. */
    void *device_scratch;
    void *const *peer_device_scratch;
    const bool *direct;
};

/* The parameters of one step; the same on all ranks. */
struct dpb_step {
    uint64_t step; /* rises by one with every begin, verification steps included */
    double learning_rate;
    double scale; /* see above */
    bool plain;   /* w -= learning_rate * scale * gradient: no momentum, no decay, state untouched.
                     Verification uses it */
};

/* The model as this strategy defines it. @borrowed until the next begin. */
struct dpb_view {
    const void *weights; /* the whole arena, in layout.weight_type */
};

/* What a strategy's options need beyond its capabilities. */
struct dpb_comm_needs {
    uint64_t capabilities;
    const char *because; /* which option, for messages: "comm.transport = mpi"; a constant */
};

#define DPB_FOREVER INT64_C(-1)

struct dpb_comm_ops {
    /* Refuses by name what it cannot do. Sets *comm (@owned until close) on success only. */
    dpb_status (*open)(const void *options, const struct dpb_comm_args *args, void **comm);
    /* Before anything is allocated. */
    dpb_status (*plan)(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want);
    /* The arenas exist on all ranks. */
    dpb_status (*bind)(void *comm, const struct dpb_arenas *arenas);
    /* Collective over the workers: the weights in their arenas (the same on all) become the model,
     * wherever this strategy keeps it. May block. Optimizer state is core's matter. */
    dpb_status (*load)(void *comm);
    dpb_status (*begin)(void *comm, const struct dpb_step *step);
    /* In bucket order, the same on every rank. The bucket is final once `event` (NULL: at once)
     * fires; neither it nor its weights are used by the device again in this step. Returns
     * promptly.*/
    dpb_status (*ready)(void *comm, uint64_t bucket, struct dpb_event *event);
    /* Does what can be done now and returns after about `budget_ns`; with DPB_FOREVER it may block
     * in host->flag->wait until something could be done, then returns. One thread at a time. */
    dpb_status (*progress)(void *comm, int64_t budget_ns);
    /* All buckets of the step were given. When *done fires, the weight arena holds what the next
     * forward uses, the gradient arena may be written again, and all of the step's spans and bytes
     * have been reported. Never blocks. */
    dpb_status (*end)(void *comm, struct dpb_event **done);
    /* Collective over the workers, between steps: which weights are the model. May block. */
    dpb_status (*publish)(void *comm, struct dpb_view *view);
    /* Role server only: works until the workers have closed. NULL without DPB_COMM_SERVERS. */
    dpb_status (*serve)(void *comm);
    void (*close)(void *comm); /* accepts NULL; waits for no peer, or a second at most */
    /* May be NULL: these options need nothing. Called before `open`, in the launcher
     * too, with *needs zeroed. Refuses what this build or machine has nothing for; may load a
     * library, opens nothing. */
    dpb_status (*needs)(const void *options, struct dpb_comm_needs *needs);
    /* May be NULL: none. The device_scratch_bytes that `plan` will want, for
     * `dpbench check`: called without `open`, with args->device NULL and comm.bucket in
     * elements. */
    uint64_t (*device_scratch)(const void *options, const struct dpb_comm_args *args,
                               const struct dpb_layout *layout, uint64_t bucket_elements);
    /* May be NULL: none. Bytes of the host's memory that grow with the model and are
     * neither weights, gradients nor optimizer state: of scratch, and what `bind` takes by itself,
     * as pinned memory. Called as device_scratch is. */
    uint64_t (*host_memory)(const void *options, const struct dpb_comm_args *args,
                            const struct dpb_layout *layout, uint64_t bucket_elements);
    /* NULL unless plans say `captures`. The exchange is being captured: until `end`
     * has returned `ready` gives events of the capture, nothing may be looked at or waited for, and
     * what is enqueued is work of any step, that is not `plain`. *done of `end` is then an event of
     * the capture behind all of it. */
    dpb_status (*capture)(void *comm, const struct dpb_capture *capture);
    /* In place of ready and end: the graph is launched next, and all that
     * it did before is done. What depends on the step is brought where the graph reads it. *done is
     * as that of `end`, for what comes behind the launch. */
    dpb_status (*replay)(void *comm, struct dpb_event **done);
};

#endif
