/*
 * comm.h - a communicator: a complete variable-update strategy, from "this gradient is ready" to
 * "these are the weights of the next forward".
 *
 * Every rank (workers first, then servers) opens the same plugin. A rank's life is
 *
 *     open -> plan -> bind -> load -> steps -> close        (servers: serve in place of steps)
 *
 * and a worker's step is
 *
 *     begin -> ready(0) ... ready(n_buckets - 1) -> end -> [progress until *done fires]
 *
 * `progress` does the work; begin, ready and end only say what happened. Without communication
 * cores (run.comm_cores = 0) the loop's thread calls `progress` between the device's ops and, after
 * `end`, until *done fires. With them a helper thread of core calls `progress` all the time, beside
 * begin, ready and end.
 *
 * With comm.late = 1 core makes a synchronous strategy one step late: its weights and gradients are
 * arenas that the device does not touch, all buckets are ready at a step's end, one behind the
 * other, and `progress` goes on during the next step.
 *
 * Scale: backward gives the mean over the micro-batch, a communicator sums over the workers, the
 * optimizer multiplies once by step->scale.
 *
 * After close a process may open again with another layout. It then uses new keys in the store.
 */
#ifndef DPBENCH_COMM_H
#define DPBENCH_COMM_H

#include "contract.h"
#include "queue.h"
#include "status.h"
#include "types.h"

struct dpb_codec; /* codec.h */
struct dpb_comm_ops;
struct dpb_tensor;    /* graph.h */
struct dpb_event;     /* host.h */
struct dpb_optimizer; /* host.h */

/* Capabilities of a communicator (dpb_plugin.capabilities): what it can do and what it needs. */
#define DPB_COMM_OVERLAP UINT64_C(0x001)    /* buckets are exchanged while backward goes on */
#define DPB_COMM_SERVERS UINT64_C(0x002)    /* can use processes of role server */
#define DPB_COMM_ALONE UINT64_C(0x004)      /* workers do not exchange: contract DPB_ALONE */
#define DPB_COMM_MULTI_NODE UINT64_C(0x008) /* ranks may be on several machines */
#define DPB_COMM_LAUNCHER UINT64_C(0x010)   /* needs the runtime of mpirun or srun, as MPI does */
#define DPB_COMM_SERVED UINT64_C(0x020) /* with SERVERS: needs one, for workers have no shards */
#define DPB_COMM_CODECS UINT64_C(0x040) /* carries codecs, on the host: args->codec */
#define DPB_COMM_ROUNDS UINT64_C(0x080) /* with CODECS: codecs of two rounds, too */

typedef enum dpb_role { DPB_WORKER, DPB_SERVER } dpb_role;

/* A span of a bucket's way, for host->span(). */
typedef enum dpb_phase {
    DPB_PHASE_QUEUE,     /* ready here, not yet begun: not counted as communication */
    DPB_PHASE_WAIT_PEER, /* nothing can be done because a peer is late */
    DPB_PHASE_TRANSFER,  /* bytes move, or others work for this rank */
    DPB_PHASE_REDUCE,    /* summing */
    DPB_PHASE_UPDATE,    /* the optimizer; reported by core itself */
    DPB_PHASES
} dpb_phase;

struct dpb_comm_args {
    uint32_t rank, n_workers, n_servers; /* ranks [0, n_workers) are workers */
    dpb_role role;
    uint64_t bucket_bytes; /* comm.bucket */
    uint32_t comm_cores;   /* 0: progress runs on the loop's thread */
    /* The machine of each rank, servers too, numbered from 0 in the order of their lowest ranks.
     * Ranks of one machine, and no others, share memory and a clock. @borrowed until close. */
    const uint32_t *machines;
    uint32_t n_machines; /* at least 1 */
    /* The worker's device, if it has memory of its own; otherwise, and on servers, the host, whose
     * queues do their work when it is given. NULL in `memory`. @borrowed until close. */
    const struct dpb_device_arenas *device;
    const struct dpb_codec *codec; /* comm.codec; NULL: none */
};

/* The weight arena and the gradient arena, before they exist. */
struct dpb_layout {
    uint64_t n_elements;     /* of either, gaps between tensors included */
    dpb_dtype weight_type;   /* fp32 or fp64: master weights */
    dpb_dtype gradient_type; /* as comm.gradient says */
    uint64_t hash;           /* of all that two ranks must share */
    /* In arena order, for codecs; none where no model is trained. @borrowed until close. */
    const struct dpb_tensor *tensors;
    uint32_t n_tensors;
};

typedef enum dpb_memory {
    DPB_MEMORY_NONE,    /* not needed on this rank */
    DPB_MEMORY_PRIVATE, /* this process alone */
    DPB_MEMORY_SHARED   /* mapped by all ranks of this machine; starts as zeros */
} dpb_memory;

/* What a communicator wants. Core fills in the defaults before `plan`: no memory, and the bucket
 * and contract of a synchronous mean. */
struct dpb_comm_plan {
    uint64_t bucket_elements; /* buckets are [i, i + 1) * this; the last may be shorter. The same
                                 on all ranks */
    dpb_memory weights, gradients;
    /* scratch is the host's, for flags and words that ranks look at. inbox lies where the gradients
     * lie. */
    dpb_memory scratch, inbox;
    uint64_t scratch_bytes, inbox_bytes;
    /* The ranges whose optimizer state and update belong to this rank: rising, disjoint. From
     * host->alloc; core frees them. NULL with n_owned = 0: none. */
    struct dpb_range *owned;
    uint64_t n_owned;
    struct dpb_contract contract; /* the same on all ranks */
    /* The hooks from now on, for a strategy of several forms. Core sets the plugin's. */
    const struct dpb_comm_ops *ops;
    bool captures; /* see `capture` */
};

/* The arenas of this rank and, where they are shared, of its machine's other ranks. @borrowed until
 * close. The own entry is the own arena; entries that cannot be reached are NULL. */
struct dpb_arenas {
    void *weights, *gradients, *scratch, *inbox;
    void *const *peer_weights, *const *peer_gradients; /* by rank */
    void *const *peer_scratch, *const *peer_inbox;     /* likewise */
    const bool *direct; /* by rank: arithmetic may read the peer's memory, not `copy` alone */
    struct dpb_optimizer *optimizer; /* for the owned ranges; NULL where none is owned */
    uint64_t n_buckets, bucket_elements;
    struct dpb_layout layout;
};

/* The parameters of one step; the same on all ranks. Pass the whole struct to the optimizer, from
 * one rank to another byte by byte. */
struct dpb_step {
    uint64_t step; /* rises by one with every begin */
    double learning_rate;
    double scale;  /* 1 / (contract.divisor x accumulate x loss scale) */
    uint64_t seal; /* the optimizer's: says which rule applies, and that core made this step */
};

/* The model as this strategy defines it. @borrowed until the next begin. */
struct dpb_view {
    const void *weights; /* the whole arena, in layout.weight_type, where the own arena is */
};

/* An array that belongs to training beside weights and optimizer: a residual, a replica that
 * differs from the model, a clock. */
struct dpb_saved_array {
    const char *name; /* a snake_case word; a checkpoint has it as comm.STRATEGY.NAME */
    dpb_dtype type;   /* fp32 or fp64; counts below 2^53 as fp64 */
    bool common;      /* one for all workers, rank 0's; else each worker has one of its own */
    uint64_t n_elements;
    void *memory; /* on the host, @borrowed until the next hook; NULL: common, and rank 0 has it */
};

enum { DPB_SAVED = 8 };
struct dpb_saved {
    struct dpb_saved_array arrays[DPB_SAVED];
    uint32_t n;
};

/* What a strategy needs with its options, and where it works. */
struct dpb_comm_needs {
    uint64_t capabilities; /* beyond the plugin's */
    /* Weights, gradients, inbox and optimizer state lie in args->device's memory. */
    bool on_device;
    /* With on_device, where the device has memory of its own: `ready` takes events that have not
     * fired, the strategy enqueues its work behind them, and *done of `end` is such an event. */
    bool takes_events;
    /* The workers' device has memory of its own, with queues of this runtime
     * (dpb_queue_ops.runtime): "cuda", or "any". NULL: the host will do. */
    const char *runtime;
    const char *because; /* which option, for messages: "comm.transport = mpi"; a constant */
};

/* Bytes that a rank takes beside weights, gradients and optimizer state, if they grow with the
 * model: scratch, pinned memory, inboxes. */
struct dpb_comm_memory {
    uint64_t host_bytes, device_bytes;
    uint64_t state_elements; /* of the layout, whose optimizer state the rank has; preset: all */
};

#define DPB_FOREVER INT64_C(-1)

/* Hooks that may be NULL say so. A hook that fails has called host->fail. */
struct dpb_comm_ops {
    /* ---- before the run, in the launcher too, without `open`; may be NULL ---- */

    /* *needs is zeroed. Refuses what this build or machine lacks; may load a library. */
    dpb_status (*needs)(const void *options, struct dpb_comm_needs *needs);
    /* Of rank args->rank. *memory has its presets, else zeros; args->device is NULL. */
    void (*memory)(const void *options, const struct dpb_comm_args *args,
                   const struct dpb_layout *layout, uint64_t bucket_elements,
                   struct dpb_comm_memory *memory);

    /* ---- life: collective, in this order, but for close ---- */

    /* Refuses by name what it cannot do. Sets *comm (@owned until close) on success only. */
    dpb_status (*open)(const void *options, const struct dpb_comm_args *args, void **comm);
    dpb_status (*plan)(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want);
    dpb_status (*bind)(void *comm, const struct dpb_arenas *arenas); /* they exist on all ranks */
    /* Workers: the weights in their arenas, equal on all, become the model. May block. */
    dpb_status (*load)(void *comm);
    void (*close)(void *comm); /* accepts NULL; waits for no peer, or a second at most */

    /* ---- step ---- */

    dpb_status (*begin)(void *comm, const struct dpb_step *step);
    /* In bucket order, the same on every rank. The bucket is final once `event` fires (NULL: at
     * once). In this step the device touches neither it nor its weights again. Never blocks. */
    dpb_status (*ready)(void *comm, uint64_t bucket, struct dpb_event *event);
    /* Does what can be done now and returns after about budget_ns. With DPB_FOREVER it may block
     * until something could be done. One thread at a time. */
    dpb_status (*progress)(void *comm, int64_t budget_ns);
    /* All buckets were given. When *done fires, the weight arena holds what the next forward uses,
     * the gradient arena may be written, and the step's spans and bytes are reported. Never
     * blocks. */
    dpb_status (*end)(void *comm, struct dpb_event **done);

    /* ---- model: workers, collective, between steps; may block ---- */

    dpb_status (*publish)(void *comm, struct dpb_view *view); /* which weights are the model */
    /* Applies what is on its way; until its next step nobody waits for this worker. Not collective:
     * core calls it, too, when a worker's training ends, or waits for a pause of all. May be NULL:
     * nothing is on its way. */
    dpb_status (*settle)(void *comm);
    /* With DPB_PROOF_BOOKS; *books is zeroed. */
    dpb_status (*books)(void *comm, struct dpb_books *books);
    /* The part of an element of this worker's mean gradient of `step`, one of the last 64, that was
     * applied: in place of contract.share. 0: dropped. May be NULL: contract.share. */
    double (*applied)(void *comm, uint64_t step, uint64_t element);
    /* The gradients of the step under way will be dropped, whatever they are: core need not compute
     * them, and hands over all buckets as they are. The loop's thread asks; never blocks. May be
     * NULL: never. */
    bool (*cancelled)(void *comm);
    /* What a checkpoint needs beside published weights and optimizer state, so that a training goes
     * on from it bit for bit: the same arrays on all workers; *saved is zeroed. Core reads them
     * after `publish`. To continue, core writes them after `load` and before the first step. May be
     * NULL: nothing. */
    dpb_status (*state)(void *comm, struct dpb_saved *saved);

    /* ---- servers ---- */

    dpb_status (*serve)(
        void *comm); /* with DPB_COMM_SERVERS: works until the workers have closed */

    /* ---- capture: may be NULL unless plans say `captures` ---- */

    /* In place of progress: a step's exchange is captured with its backward, once, and launched
     * with it from then on. The steps are
     *     begin -> capture -> ready(0) ... ready(n - 1) -> end -> replay      for the first
     *     begin -> replay                                                     after it
     * Until `end` returns, `ready` gives events of the capture, nothing may be polled or waited
     * for, and *done is an event of the capture behind all work. */
    dpb_status (*capture)(void *comm, const struct dpb_capture *capture);
    /* The graph is launched next, and its last launch is done. Brings what depends on the step to
     * where the graph reads it. *done is that of `end`, for work behind the launch. */
    dpb_status (*replay)(void *comm, struct dpb_event **done);
};

#endif
