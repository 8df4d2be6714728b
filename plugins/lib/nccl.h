/*
 * nccl.h - NCCL for the strategies that sum by it: `nccl` over all workers, `hierarchical` over
 * those of a machine. What they share is here: options, communicators made without blocking,
 * errors, versions.
 *
 * Every call of NCCL may go on behind its return, and is looked at until it is over, within a
 * deadline. What the options set goes into NCCL's configuration or into the environment that NCCL
 * reads, once in a process.
 *
 * It lies in a shared object of its own, libdpbench-nccl.so beside the plugins, that `hierarchical`
 * loads when it is to use it; comm nccl is linked to NCCL anyway and has the same code in itself.
 *
 * All functions are for one thread at a time, on which the GPU is the worker's (any call with a
 * queue of its device makes it that). Those that return dpb_status have written the message when it
 * is not DPB_OK; the communicator is then of no use but to be aborted.
 */
#ifndef DPB_PLUGINS_LIB_NCCL_H
#define DPB_PLUGINS_LIB_NCCL_H

#include <stddef.h>

#include "dpbench/plugin.h"

struct ncclComm;

/* ---- options ------------------------------------------------------------------------------- */

enum nccl_host_ids { HOST_IDS_MACHINE, HOST_IDS_RANK };

struct nccl_options {
    int64_t min_ctas, max_ctas; /* 0: NCCL's own choice */
    int algo, proto;            /* index into nccl_algos, nccl_protos */
    int host_ids;               /* enum nccl_host_ids */
};

/* What NCCL needs with these options (dpb_comm_needs): it knows a GPU by host and bus. */
static inline uint64_t nccl_capabilities(const struct nccl_options *given)
{
    return given->host_ids == HOST_IDS_MACHINE ? DPB_COMM_OWN_DEVICE : 0;
}

/* Choices of options; 0 is "auto", of host_ids "machine". */
extern const char *const nccl_algos[], *const nccl_protos[], *const nccl_host_ids[];

/* Their rows, for a struct whose member `nccl` they are. */
#define NCCL_OPTION_ROWS(STRUCT)                                                            \
    {"min_ctas",                                                                            \
     DPB_OPT_INT,                                                                           \
     NULL,                                                                                  \
     "0",                                                                                   \
     0,                                                                                     \
     64,                                                                                    \
     NULL,                                                                                  \
     offsetof(STRUCT, nccl.min_ctas),                                                       \
     "thread blocks that NCCL takes for a collective at least; 0: NCCL's choice"},          \
        {"max_ctas",                                                                        \
         DPB_OPT_INT,                                                                       \
         NULL,                                                                              \
         "0",                                                                               \
         0,                                                                                 \
         64,                                                                                \
         NULL,                                                                              \
         offsetof(STRUCT, nccl.max_ctas),                                                   \
         "and at most; fewer leave more of the GPU to backward; 0: NCCL's choice"},         \
        {"algo",                                                                            \
         DPB_OPT_CHOICE,                                                                    \
         NULL,                                                                              \
         "auto",                                                                            \
         0,                                                                                 \
         0,                                                                                 \
         nccl_algos,                                                                        \
         offsetof(STRUCT, nccl.algo),                                                       \
         "NCCL's algorithm (NCCL_ALGO); auto: NCCL's choice by size"},                      \
        {"proto",                                                                           \
         DPB_OPT_CHOICE,                                                                    \
         NULL,                                                                              \
         "auto",                                                                            \
         0,                                                                                 \
         0,                                                                                 \
         nccl_protos,                                                                       \
         offsetof(STRUCT, nccl.proto),                                                      \
         "NCCL's protocol (NCCL_PROTO); auto: NCCL's choice by size"},                      \
    {                                                                                       \
        "host_ids", DPB_OPT_CHOICE, NULL, "machine", 0, 0, nccl_host_ids,                   \
            offsetof(STRUCT, nccl.host_ids),                                                \
            "rank: NCCL takes each worker for a machine of its own (NCCL_HOSTID), so that " \
            "several may share a GPU; for tests"                                            \
    }

/* ---- communicators ------------------------------------------------------------------------- */

/* Who sums together; the same on all of them but for `rank`. */
struct nccl_group {
    const char *name; /* of the group, once a job: part of its key in the store */
    uint32_t rank, n_ranks;
    const uint32_t *ranks; /* the job's rank of each, for messages; NULL: the same */
};

struct communicator {
    const struct dpb_host *host;
    struct ncclComm *nccl; /* NULL: none, or aborted */
};

/* Elements of device memory, the same on all ranks but for where they lie. */
struct nccl_range {
    void *memory;
    dpb_dtype type; /* fp32, bf16 or fp16 */
    uint64_t n;
};

/*
 * Work is enqueued: sums are made in place when the queues of all ranks have got there. All ranks
 * of a communicator make the same calls in the same order. A call blocks until NCCL has given the
 * work to the queue. `what`: step, bucket and bytes, for messages.
 *
 * Slices are lib/slices.h's: of n_slices <= n_ranks the i-th is rank i's. Where all ranks have one
 * of equal length it is ncclReduceScatter and ncclAllGather, else a group of ncclReduce and of
 * ncclBroadcast, one for each.
 */
struct nccl_library {
    const struct dpb_library *versions; /* ended by name = NULL */
    const char *missing;                /* why it cannot run here; NULL: it can */

    /* Refuses options that contradict each other or the environment, and puts into that what NCCL
     * reads from there. Before the process calls NCCL for the first time. */
    dpb_status (*settle_options)(const struct nccl_options *options,
                                 const struct dpb_comm_args *job);
    /* Connects the group; collective. Ranks whose versions of NCCL or settings differ are refused,
     * by name. After a failure abort what is there. */
    dpb_status (*open)(const struct nccl_options *options, const struct nccl_group *group,
                       struct communicator *made);
    /* DPB_OK while NCCL reports no error of what goes on behind its calls; `what`: the oldest of
     * it. */
    dpb_status (*look)(const struct communicator *communicator, const struct dpb_wait *what);

    dpb_status (*all_reduce)(const struct communicator *communicator, struct dpb_queue *queue,
                             const struct nccl_range *range, const struct dpb_wait *what);
    /* Each slice is summed into its rank's memory. The others' memory keeps what they gave: NCCL
     * does not write what it sends from. */
    dpb_status (*reduce_slices)(const struct communicator *communicator, struct dpb_queue *queue,
                                const struct nccl_range *range, uint32_t n_slices,
                                const struct dpb_wait *what);
    /* Each slice is copied from its rank to all. */
    dpb_status (*gather_slices)(const struct communicator *communicator, struct dpb_queue *queue,
                                const struct nccl_range *range, uint32_t n_slices,
                                const struct dpb_wait *what);

    /* Stops what runs on the GPU, and frees. Waits for no peer. Of none, or one that was aborted:
     * does nothing. */
    void (*abort)(struct communicator *communicator);
    /* Frees, after all work was seen done. Waits for no peer: NCCL is given a second, then it is
     * aborted. */
    void (*close)(struct communicator *communicator);
};

/* Loads it, once a process. Refused with what is missing where it was not built, or cannot be
 * loaded. */
dpb_status nccl_load(const struct dpb_host *host, const struct nccl_library **library);

#endif
