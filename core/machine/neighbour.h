/*
 * neighbour.h - finds another dpbench job on the cores of this one (load.h).
 */
#ifndef DPB_CORE_MACHINE_NEIGHBOUR_H
#define DPB_CORE_MACHINE_NEIGHBOUR_H

#include "machine/load.h"

/* Rank R is called "dpb-rankR". */
#define DPB_RANK_NAME "dpb-rank"

/* Looks for a rank of another launcher that may run on a hardware thread of kind DPB_CPU_USED.
 * `pids`: the job's own ranks, all of them. `root` stands before /proc: "", but for tests. */
void dpb_neighbour_find(const char *root, const uint8_t *cpus, size_t n_cpus, const int32_t *pids,
                        uint32_t n_pids, struct dpb_neighbour *found);

#endif
