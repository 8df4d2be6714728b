/*
 * load.h - disturbances of the machine while the timed steps ran: others' processes on the job's
 * cores and on their siblings, a hypervisor, a control group's quota, heat. A result measured
 * beside these reports them.
 */
#ifndef DPB_CORE_MACHINE_LOAD_H
#define DPB_CORE_MACHINE_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Another dpbench job on cores of this job: two that start together bind to the same cores, since
 * each sees a machine of its own. */
struct dpb_neighbour {
    int32_t pid;         /* of its launcher; 0: there is no such job */
    char directory[256]; /* the launcher's; "": another user's */
    char halves[2][96];  /* of the usable cores, as `taskset -c` takes them; "": one core */
};

/* Shares are of the time that those hardware threads have; NaN where the system does not report
 * them. */
struct dpb_load {
    bool known; /* the timed steps came to their end */
    double seconds;
    uint32_t cpus;       /* hardware threads that the job computes on */
    double own_share;    /* of them, by the job's processes */
    double others_share; /* of them, by any other process */
    /* Of the other hardware threads of the same cores; NaN: there are none. */
    double siblings_share;
    double stolen_share; /* of them, by a hypervisor */
    uint64_t throttled; /* periods in which the control group's CPU quota held its processes back */
    double throttled_s; /* summed over its processes */
    double suspended_s; /* a worker's process did not run, the longest one; NaN: not known */
    uint64_t hot;       /* times that a processor slowed down for its heat */
    struct dpb_neighbour neighbour;
};

/* The kind of a hardware thread for the job, by the system's number. */
enum { DPB_CPU_OTHER, DPB_CPU_USED, DPB_CPU_SIBLING };

/* Counters of the system; differences count. */
struct dpb_load_sample {
    int64_t at_ns;
    int64_t used_ns, siblings_ns, stolen_ns, own_ns; /* used_ns < 0: unknown */
    uint32_t n_used, n_siblings;
    uint64_t throttled, hot;
    int64_t throttled_ns;
};

/* `root` stands before /proc and /sys: "", but for tests. `pids`: the job's processes. */
void dpb_load_sample(const char *root, const uint8_t *cpus, size_t n_cpus, const int32_t *pids,
                     uint32_t n_pids, struct dpb_load_sample *sample);
/* The same without `throttled` and `hot`, which take a file a CPU. `cpus`: NULL: all are used. */
void dpb_load_times(const char *root, const uint8_t *cpus, size_t n_cpus, const int32_t *pids,
                    uint32_t n_pids, struct dpb_load_sample *sample);
void dpb_load_between(const struct dpb_load_sample *from, const struct dpb_load_sample *to,
                      struct dpb_load *load);

#endif
