/*
 * cores.h - the cores for this process, within affinity and cgroup limits, by hwloc; and their
 * division among the ranks of a job.
 */
#ifndef DPB_CORE_MACHINE_CORES_H
#define DPB_CORE_MACHINE_CORES_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpbench/status.h"

/* Physical cores usable here: affinity mask, cpuset, and the cgroup's CPU quota (rounded down, at
 * least 1) bound it. One hardware thread a core is counted and used. */
dpb_status dpb_cores_available(uint32_t *n_cores);

/*
 * The ranks that divide the cores, workers first. Each place gets `threads + comm_cores` cores;
 * its `learners`, workers of consecutive ranks, share them evenly, and each keeps comm_cores of its
 * share for communication. A server gets one core, after those of the places. threads = 0: an even
 * share of the cores.
 */
struct dpb_cores_job {
    uint32_t n_workers, n_servers;
    uint32_t learners; /* of a place; at least 1 */
    uint32_t comm_cores, threads;
};

/* A rank's share: cores [first, first + n) of the usable ones; n = 0: too few cores for all. */
struct dpb_cores_share {
    uint32_t first, n;
    uint32_t threads;       /* for computing, at least 1 */
    uint32_t place_threads; /* of its place, if the place had one learner */
    uint32_t n_all; /* cores of all ranks, with those of a place that its learners leave idle */
};

/* The share of `rank` of n_cores cores. Where the number of workers is no multiple of the learners,
 * a launcher has bound the learners of a place separately: every worker then is a place. */
struct dpb_cores_share dpb_cores_place(uint32_t n_cores, const struct dpb_cores_job *job,
                                       uint32_t rank);

/* Binds the process to its share; where there are not enough cores, to none. */
dpb_status dpb_cores_bind(const struct dpb_cores_job *job, uint32_t rank,
                          struct dpb_cores_share *share);

/* Starts a thread that is bound to a hardware thread, as the system numbers them. An errno. */
int dpb_cores_start_thread(uint16_t cpu, void *(*body)(void *), void *argument, pthread_t *thread);

/* Memory of the NUMA nodes that hardware threads are on: what a process bound to them has near it.
 * 0: not known. */
uint64_t dpb_cores_memory(const uint16_t *cores, uint32_t n);

/* The hardware threads (as the system numbers them) that dpb_cores_bind gives a rank here, at most
 * `capacity` of them; their number, 0 where there are not enough. */
uint32_t dpb_cores_of(const struct dpb_cores_job *job, uint32_t rank, uint16_t *cores,
                      uint32_t capacity);

/* Two halves of the usable hardware threads as lists, "0-3,8"; "": there is one alone. */
void dpb_cores_halves(char *first, char *second, size_t size);

/* The kind (DPB_CPU_* of load.h) of each hardware thread, by the system's number, for a job that is
 * bound to the first n_cores of the usable cores, or to none of them (0: all may be used). */
void dpb_cores_kinds(uint32_t n_cores, uint8_t *kinds, size_t n);

/* result.machine: processor's name, family, microcode, virtual or not, SMT, cores, threads, NUMA
 * nodes, caches, memory, cgroup limits, governor and clocks where the system reports them, kernel,
 * host name. @owned. */
json_t *dpb_machine_describe(void);

#endif
