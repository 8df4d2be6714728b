/*
 * communicator.h - NCCL's communicator of all workers, made without blocking: every call of NCCL may go
 * on behind its return, and is looked at until it is over, within a deadline. What the options set goes
 * into NCCL's configuration or into the environment that NCCL reads, once in a process.
 *
 * All functions are for one thread, on which the GPU is the worker's. Those that return dpb_status have
 * written the message when it is not DPB_OK; the communicator is then of no use but to be aborted.
 */
#ifndef DPB_NCCL_COMMUNICATOR_H
#define DPB_NCCL_COMMUNICATOR_H

#include <nccl.h>

#include "dpbench/plugin.h"

enum nccl_host_ids { HOST_IDS_MACHINE, HOST_IDS_RANK };

struct nccl_options {
    int64_t min_ctas, max_ctas; /* 0: NCCL's own choice */
    int algo, proto;            /* index into nccl_algos, nccl_protos */
    int host_ids;               /* enum nccl_host_ids */
};

/* Choices of options; 0 is "auto". */
extern const char *const nccl_algos[], *const nccl_protos[];

struct communicator {
    const struct dpb_host *host;
    ncclComm_t nccl; /* NULL: none, or aborted */
};

/* Refuses options that contradict each other or the environment, and puts into that what NCCL reads from
 * there. Before the process calls NCCL for the first time. */
dpb_status communicator_settle_options(const struct dpb_host *host,
                                       const struct nccl_options *options,
                                       const struct dpb_comm_args *args);

/* Connects all workers; collective. Ranks whose versions of NCCL or settings differ are refused, by name.
 * After a failure abort what is there. */
dpb_status communicator_open(struct communicator *made, const struct dpb_host *host,
                             const struct nccl_options *options, const struct dpb_comm_args *args);

/* DPB_OK while NCCL reports no error of what goes on behind its calls; `what`: the oldest of it. */
dpb_status communicator_look(const struct communicator *communicator, const struct dpb_wait *what);

/* Of a call that came back with `code`: blocks until NCCL is through with it; for work on a stream that
 * is when the stream has been given it. */
dpb_status communicator_finish(const struct communicator *communicator, const char *call,
                               ncclResult_t code, const struct dpb_wait *what);

/* Stops what runs on the GPU, and frees. Waits for no peer. Nothing to do: nothing is done. */
void communicator_abort(struct communicator *communicator);

/* Frees, after all work was seen done. Waits for no peer: NCCL is given a second, then it is aborted. */
void communicator_close(struct communicator *communicator);

#endif
