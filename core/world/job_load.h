/*
 * job_load.h - the load of this job's cores (machine/load.h) while the timed steps run, with the
 * processes of all ranks of this machine as the job's own.
 */
#ifndef DPB_CORE_WORLD_JOB_LOAD_H
#define DPB_CORE_WORLD_JOB_LOAD_H

#include "machine/load.h"

/* Rank 0 calls these at the first timed step and after the last; neither is in a step's time.
 * `n_cores`: the cores to which all ranks together are bound; 0: they are not bound. */
void dpb_load_begin(uint32_t n_cores);
void dpb_load_end(struct dpb_load *load);

/* The processes of the ranks of this machine, and 0 for each rank elsewhere; `pids` has room for
 * all ranks, whose number is returned. Any thread. */
uint32_t dpb_job_pids(int32_t *pids);

#endif
