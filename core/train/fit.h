/*
 * fit.h - does a run fit into the memory of the machine that it is to run on? What it needs is what
 * core and the device, with its libraries, plan to take, what a strategy takes that grows with the
 * model, what the data source took when it was opened, and what idle processes take, the launcher's
 * among them. What a source takes later is not counted.
 */
#ifndef DPB_CORE_TRAIN_FIT_H
#define DPB_CORE_TRAIN_FIT_H

#include "machine/memory.h"
#include "train/experiment.h"

struct dpb_fit {
    uint64_t worker_bytes, server_bytes; /* of the one that needs most */
    uint64_t all_bytes;                  /* of all ranks on one machine */
    uint64_t device_bytes; /* of the strategy, on the worker's device that needs most */
};

/* A built experiment's; `machine` as in experiment->machines, UINT32_MAX: all of them are one.
 * Plans the device's program: some tenths of a second for large networks. */
void dpb_fit_of(const struct dpb_experiment *experiment, uint32_t machine, struct dpb_fit *fit);

/* run.memory = refuse: DPB_UNSUPPORTED where it cannot fit; warn: `memory`. A warning, too, where
 * others hold what it needs. */
dpb_status dpb_fit_check(const struct dpb_experiment *experiment, const struct dpb_fit *fit,
                         const struct dpb_machine_memory *memory);

/* Before a process starts: DPB_UNSUPPORTED where the processes of the job alone cannot fit. For
 * created experiments on one machine. */
dpb_status dpb_fit_processes(const struct dpb_experiment *experiment);

/* dpb_experiment_build; data that take more than this process may have are refused before they take
 * it (run.memory = refuse). `alone`: not in a rank; no rank takes its share beside it. */
dpb_status dpb_fit_build(struct dpb_experiment *experiment, uint32_t rank, bool alone);

#endif
