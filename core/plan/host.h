/*
 * host.h - the table of functions that plugins get (dpbench/host.h). In run.mode = comm the
 * communicator gets a table whose optimizer only copies the sum to the weights.
 */
#ifndef DPB_CORE_PLAN_HOST_H
#define DPB_CORE_PLAN_HOST_H

#include "dpbench/plugin.h"

extern const struct dpb_host dpb_host;
const struct dpb_host *dpb_comm_host(void);

/* The state of the communicator under test: a process has one. */
extern struct dpb_reduced {
    const struct dpb_arenas *arenas;
    const struct dpb_queue_ops *ops; /* of the memory of weights and gradients */
    bool in_place;                   /* settled: nothing is left to copy */
    uint64_t n_in_place;             /* elements whose sum was in the own gradient arena */
} dpb_reduced;

#endif
