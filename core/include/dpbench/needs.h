/*
 * needs.h - a strategy's abilities, requirements, memory and promise, which the launcher asks for
 * before the run. The hooks are called without `open`, on ranks, too.
 *
 * For strategies whose options decide on memory or machines. A first plugin does not need this
 * header.
 *
 *     needs    with these options. *needs is zeroed. Refuses by name if this build or machine lacks
 *              something; may load a library. NULL: the plugin's capabilities say all.
 *     memory   of rank args->rank. *memory has its presets, else zeros; args->device is NULL. NULL:
 *              none.
 *     contract the contract that `plan` will set. *contract is preset as in `plan`; args->device is
 *              NULL. Refuses options that contradict each other or args. NULL: the launcher takes
 *              the preset.
 */
#ifndef DPBENCH_NEEDS_H
#define DPBENCH_NEEDS_H

#include "types.h"

/* Capabilities of a communicator (dpb_plugin.capabilities): abilities and requirements. */
#define DPB_COMM_OVERLAP UINT64_C(0x001)    /* buckets are exchanged while backward goes on */
#define DPB_COMM_SERVERS UINT64_C(0x002)    /* can use processes of role server */
#define DPB_COMM_ALONE UINT64_C(0x004)      /* workers do not exchange: contract DPB_ALONE */
#define DPB_COMM_MULTI_NODE UINT64_C(0x008) /* ranks may be on several machines */
#define DPB_COMM_LAUNCHER UINT64_C(0x010)   /* needs the runtime of mpirun or srun, as MPI does */
#define DPB_COMM_SERVED UINT64_C(0x020) /* with SERVERS: needs one, for workers have no shards */
#define DPB_COMM_CODECS UINT64_C(0x040) /* carries codecs of one round: args->codec */
#define DPB_COMM_ROUNDS UINT64_C(0x080) /* likewise those of two rounds, whose messages are sums */
/* Every worker updates all weights once a step, by one thread, from its own gradient arena, where
 * the gradients stay until `done`: core may update all weights with the last range. On a device all
 * updates are of one queue, the last behind all sums. */
#define DPB_COMM_WHOLE UINT64_C(0x100)
/* With WHOLE: also where a worker owns a part of the weights. With args->whole the owners then
 * exchange sums of squares (dpb_optimizer_ops.squares) before they update their parts. */
#define DPB_COMM_WHOLE_SHARDS UINT64_C(0x200)
#define DPB_COMM_OWN_DEVICE UINT64_C(0x400) /* workers cannot share a device: run.learners = 1 */
/* run.survive: the other workers, and servers, go on when a worker's process has died. */
#define DPB_COMM_SURVIVES UINT64_C(0x800)
/* Threads of the strategy, or of its library, work beside those of core. */
#define DPB_COMM_THREADS UINT64_C(0x1000)

/* A strategy's requirements with its options, and where it works. */
struct dpb_comm_needs {
    uint64_t capabilities; /* beyond the plugin's */
    /* Weights, gradients, inbox and optimizer state lie in args->device's memory. */
    bool on_device;
    bool codec_on_host; /* with on_device: but with a codec they are the host's */
    /* With on_device: of a job of several machines they lie in the host's memory. */
    bool on_one_machine;
    /* With on_device, where the device has memory of its own: `ready` takes events that have not
     * fired, the strategy enqueues its work behind them, and *done of `end` is such an event. */
    bool takes_events;
    /* The workers' device has memory of its own, with queues of this runtime
     * (dpb_queue_ops.runtime): "cuda", or "any". NULL: the host will do. */
    const char *runtime;
    const char *because; /* which option, for messages: "comm.transport = mpi"; a constant */
    /* With CODECS or ROUNDS: the option with which the strategy carries none, likewise. NULL: it
     * carries them. */
    const char *no_codec;
};

/* Gradients in slots. With dpb_comm_plan.gradient_slots the host's gradients lie in slots of one
 * bucket each: this many, beside the slots that one node of backward fills. Addresses stay those of
 * a whole arena. The elements of a bucket are rounded up to whole pages of memory.
 *
 * The hook `taken` counts the buckets of this exchange, from the first on, whose gradients no rank
 * reads any more. Core then gives the slot of a counted bucket to a later bucket. The loop's thread
 * calls `taken` between calls of `progress`; `progress` with DPB_FOREVER returns when the count has
 * grown.
 *
 * Where a slot is free before its sum is used, a strategy keeps the sums of its own ranges:
 * dpb_comm_plan.keeps_sums. With args->accumulates each micro-batch of a step is an exchange of its
 * own, from begin to *done. dpb_step.adds: the strategy adds its sums to the kept sums.
 * dpb_step.more: a micro-batch of the step follows, so nothing is updated. */
enum { DPB_SLOT_ALIGNMENT = 4096 /* bytes */ };

/* Weights on need. With dpb_comm_plan.weights_on_need a worker of the host keeps the weights of its
 * owned ranges alone, one range in each bucket. Before the device reads other weights of a bucket,
 * core calls `need`: the strategy brings them into this worker's arena. When the device has read
 * them, or the bucket's gradients are handed over, core gives their pages back to the system.
 *
 * `need` never blocks; `progress` does the work, between steps, too. All workers need the same
 * buckets in the same order, also among the calls of `ready`. `met` counts the needs since `bind`
 * that are met, in this order; `progress` with DPB_FOREVER returns when the count has grown. When
 * *done of `end` fires, the owned ranges hold new weights, here and wherever a need takes them
 * from. Core calls `publish` when all weights are here. progress runs on the loop's thread. */

/* Bytes that a rank takes beside weights, gradients and optimizer state, if they grow with the
 * model: scratch, pinned memory, inboxes. */
struct dpb_comm_memory {
    uint64_t host_bytes, device_bytes;
    uint64_t beside_bytes;   /* where weights and gradients lie: the host or the device */
    uint64_t state_elements; /* of the layout, whose optimizer state the rank has; preset: all */
    uint64_t gradient_slots; /* as dpb_comm_plan has them */
    bool keeps_sums;         /* likewise */
};

#endif
