/*
 * nccl.h - NCCL for strategies that sum by NCCL: `nccl` over all workers, `hierarchical` over the
 * workers of a machine. Here are options, communicators made without blocking, errors, versions.
 *
 * A call of NCCL may return before it has finished. It is polled until it has finished, within a
 * deadline. Options are written into NCCL's configuration or into the environment, which NCCL reads
 * once in a process.
 *
 * This code lies in a shared object of its own, libdpbench-nccl.so beside the plugins, which
 * `hierarchical` loads before use. Comm nccl is linked to NCCL anyway and contains the same code.
 *
 * One thread at a time calls these functions. The worker's GPU is current on that thread (any call
 * with a queue of the device makes it current). A function that returns a dpb_status other than
 * DPB_OK has written the message; the communicator can then only be aborted.
 */
#ifndef DPB_PLUGINS_LIB_NCCL_H
#define DPB_PLUGINS_LIB_NCCL_H

#include <stddef.h>

#include "dpbench/plugin.h"

struct ncclComm;

/* ---- options ------------------------------------------------------------------------------- */

enum dpb_nccl_host_ids { DPB_HOST_IDS_MACHINE, DPB_HOST_IDS_RANK };

struct dpb_nccl_options {
    int64_t min_ctas, max_ctas; /* 0: NCCL's own choice */
    int algo, proto;            /* index into dpb_nccl_algos, dpb_nccl_protos */
    int host_ids;               /* enum dpb_nccl_host_ids */
};

/* NCCL's needs with these options (dpb_comm_needs): NCCL identifies a GPU by host and bus. */
static inline uint64_t dpb_nccl_capabilities(const struct dpb_nccl_options *given)
{
    return given->host_ids == DPB_HOST_IDS_MACHINE ? DPB_COMM_OWN_DEVICE : 0;
}

/* Choices of options; 0 is "auto", for host_ids "machine". */
extern const char *const dpb_nccl_algos[], *const dpb_nccl_protos[], *const dpb_nccl_host_ids[];

/* The options' rows, for a struct with a member `nccl` of this type. `NEEDS`: what NCCL
 * needs. */
#define DPB_NCCL_OPTION_ROWS(STRUCT, NEEDS)                                                      \
    DPB_OPTION_ROW("min_ctas", INT, NULL, "0", 0, 64, NULL, STRUCT, nccl.min_ctas,               \
                   "thread blocks that NCCL takes for a collective at least; 0: NCCL's choice",  \
                   NEEDS),                                                                       \
        DPB_OPTION_ROW(                                                                          \
            "max_ctas", INT, NULL, "0", 0, 64, NULL, STRUCT, nccl.max_ctas,                      \
            "thread blocks that NCCL takes for a collective at most; fewer leave more of the "   \
            "GPU to backward; 0: NCCL's choice",                                                 \
            NEEDS),                                                                              \
        DPB_OPTION_ROW("algo", CHOICE, NULL, "auto", 0, 0, dpb_nccl_algos, STRUCT, nccl.algo,    \
                       "NCCL's algorithm (NCCL_ALGO); auto: NCCL's choice by size", NEEDS),      \
        DPB_OPTION_ROW("proto", CHOICE, NULL, "auto", 0, 0, dpb_nccl_protos, STRUCT, nccl.proto, \
                       "NCCL's protocol (NCCL_PROTO); auto: NCCL's choice by size", NEEDS),      \
        DPB_OPTION_ROW(                                                                          \
            "host_ids", CHOICE, NULL, "machine", 0, 0, dpb_nccl_host_ids, STRUCT, nccl.host_ids, \
            "rank: NCCL takes each worker for a machine of its own (NCCL_HOSTID), so that "      \
            "several may share a GPU; for tests",                                                \
            NEEDS)

/* ---- communicators ------------------------------------------------------------------------- */

/* Ranks that sum together; equal on all members except for `rank`. */
struct dpb_nccl_group {
    const char *name; /* unique in the job: part of the group's key in the store */
    uint32_t rank, n_ranks;
    const uint32_t *ranks; /* the job's rank of each, for messages; NULL: the same */
};

struct dpb_communicator {
    const struct dpb_host *host;
    struct ncclComm *nccl; /* NULL: none, or aborted */
};

/* Elements of device memory; equal on all ranks except for `memory`. */
struct dpb_nccl_range {
    void *memory;
    dpb_dtype type; /* fp32, bf16 or fp16 */
    uint64_t n;
};

/*
 * Work is enqueued: sums are made in place when the queues of all ranks have reached the call. All
 * ranks of a communicator make the same calls in the same order. A call blocks until NCCL has
 * enqueued the work. `what`: step, bucket and bytes, for messages.
 *
 * Slices are slices.h's: rank i owns the i-th of n_slices <= n_ranks. If all ranks have slices
 * of equal length, the calls are ncclReduceScatter and ncclAllGather. Else they are a group of
 * ncclReduce and of ncclBroadcast, one for each slice.
 */
struct dpb_nccl_library {
    const struct dpb_library *versions; /* ended by name = NULL */
    const char *(*missing)(void);       /* why NCCL cannot run here; NULL: it can */

    /* Refuses options that contradict each other or the environment. Writes options for NCCL into
     * the environment. Call before the process calls NCCL for the first time. */
    dpb_status (*settle_options)(const struct dpb_nccl_options *options,
                                 const struct dpb_comm_args *job);
    /* Connects the group; collective. Ranks whose versions of NCCL or settings differ are refused,
     * by name. After a failure abort the communicator. */
    dpb_status (*open)(const struct dpb_nccl_options *options, const struct dpb_nccl_group *group,
                       struct dpb_communicator *made);
    /* DPB_OK while NCCL reports no error of unfinished work; `what`: the oldest of this work. */
    dpb_status (*look)(const struct dpb_communicator *communicator, const struct dpb_wait *what);

    dpb_status (*all_reduce)(const struct dpb_communicator *communicator, struct dpb_queue *queue,
                             const struct dpb_nccl_range *range, const struct dpb_wait *what);
    /* Sums each slice into its rank's memory. Memory of other ranks' slices keeps its contents:
     * NCCL does not write to memory that it only sends. */
    dpb_status (*reduce_slices)(const struct dpb_communicator *communicator,
                                struct dpb_queue *queue, const struct dpb_nccl_range *range,
                                uint32_t n_slices, const struct dpb_wait *what);
    /* Copies each slice from its rank to all ranks. */
    dpb_status (*gather_slices)(const struct dpb_communicator *communicator,
                                struct dpb_queue *queue, const struct dpb_nccl_range *range,
                                uint32_t n_slices, const struct dpb_wait *what);

    /* Stops the communicator's work on the GPU, and frees. Waits for no peer. Does nothing without
     * a communicator, or after an abort. */
    void (*abort)(struct dpb_communicator *communicator);
    /* Frees, after all work was seen to be finished. Waits for no peer: after a second the
     * communicator is aborted. */
    void (*close)(struct dpb_communicator *communicator);
};

/* Loads the object, once a process. Refuses, and names the missing part, if the object was not
 * built or cannot be loaded. */
dpb_status dpb_nccl_load(const struct dpb_host *host, const struct dpb_nccl_library **library);

#endif
