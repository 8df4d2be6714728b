/*
 * comm_host.h - the host table of communicators in run.mode = comm. Its optimizer only copies the
 * sum to the weights.
 */
#ifndef DPB_CORE_PLAN_COMM_HOST_H
#define DPB_CORE_PLAN_COMM_HOST_H

#include "exchange/exchange.h"

/* The state of the communicator under test: a process has one. */
extern struct dpb_reduced {
    const struct dpb_exchange *exchange;
    bool in_place;       /* settled: nothing is left to copy */
    uint64_t n_in_place; /* elements whose sum was in the own gradient arena */
} dpb_reduced;

const struct dpb_host *dpb_comm_host(void);

#endif
