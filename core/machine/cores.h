/*
 * cores.h - which cores there are for this process, within affinity and cgroup limits, by hwloc;
 * and their division among the ranks of a job.
 */
#ifndef DPB_CORE_MACHINE_CORES_H
#define DPB_CORE_MACHINE_CORES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpbench/status.h"

/* Physical cores usable here: affinity mask, cpuset, and the cgroup's CPU quota (rounded down, at
 * least 1) bound it. One hardware thread a core is counted and used. */
dpb_status dpb_cores_available(uint32_t *n_cores);

/*
 * Binds the process to its share: workers get disjoint sets of `threads + comm_cores` cores in rank
 * order, servers one core each after the workers'. When there are not enough, nobody is bound and
 * *oversubscribed is true. threads = 0 means: an even share of what there is, at least one.
 * *threads is what this rank may compute with.
 */
dpb_status dpb_cores_bind(uint32_t rank, uint32_t n_workers, uint32_t n_servers,
                          uint32_t comm_cores, uint32_t *threads, bool *oversubscribed);

/* The arithmetic of dpb_cores_bind: the rank's share is cores [*first, *first + *n) of n_cores;
 * when there are not enough *n is 0. `threads` in and out as above. */
void dpb_cores_place(uint32_t n_cores, uint32_t rank, uint32_t n_workers, uint32_t n_servers,
                     uint32_t comm_cores, uint32_t *threads, uint32_t *first, uint32_t *n);

/* The hardware threads (as the system numbers them) that dpb_cores_bind gives a rank here, at most
 * `capacity` of them; their number, 0 where there are not enough. */
uint32_t dpb_cores_of(uint32_t rank, uint32_t n_workers, uint32_t n_servers, uint32_t comm_cores,
                      uint32_t threads, uint16_t *cores, uint32_t capacity);

/* By the system's number of a hardware thread: what it is to a job that is bound to the first
 * n_cores of the usable cores, or to none of them (0: all may be used): DPB_CPU_* of load.h. */
void dpb_cores_kinds(uint32_t n_cores, uint8_t *kinds, size_t n);

/* result.machine: processor's name, family, microcode, virtual or not, SMT, cores, threads, NUMA
 * nodes, caches, memory, cgroup limits, governor and clocks where the system tells, kernel, host
 * name. @owned. */
json_t *dpb_machine_describe(void);

#endif
