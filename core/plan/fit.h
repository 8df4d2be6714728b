/*
 * fit.h - whether a run fits into the memory of its machine. The sum has: the planned memory of
 * core and of the device with its libraries; the strategy's memory that grows with the model; the
 * memory that the data source took when opened; idle processes, the launcher among them. Memory
 * that a source takes later is not counted.
 */
#ifndef DPB_CORE_PLAN_FIT_H
#define DPB_CORE_PLAN_FIT_H

#include "machine/memory.h"
#include "plan/experiment.h"

struct dpb_fit {
    uint64_t worker_bytes, server_bytes; /* of the one with the most */
    uint64_t all_bytes;                  /* of all ranks on one machine */
    uint64_t device_bytes;               /* of the strategy, on the device with the most */
};

/* A built experiment's; `machine` as in experiment->machines, UINT32_MAX: all of them are one.
 * Plans the device's program: some tenths of a second for large networks. */
void dpb_fit_of(const struct dpb_experiment *experiment, uint32_t machine, struct dpb_fit *fit);

/* run.memory = refuse: DPB_UNSUPPORTED if the run cannot fit; warn: the warning `memory`. Also
 * warns if less memory is free than the run needs. */
dpb_status dpb_fit_check(const struct dpb_experiment *experiment, const struct dpb_fit *fit,
                         const struct dpb_machine_memory *memory);

/* Before a process starts: DPB_UNSUPPORTED where the processes of the job alone cannot fit. For
 * created experiments on one machine. */
dpb_status dpb_fit_processes(const struct dpb_experiment *experiment);

/* dpb_experiment_build. With run.memory = refuse, refuses data larger than this process may have
 * before they take memory. `alone`: not in a rank; no rank takes its share beside it. */
dpb_status dpb_fit_build(struct dpb_experiment *experiment, uint32_t rank, bool alone);

#endif
