/*
 * usage.h - the resources that a machine, and a job on it, have used so far: CPU time, memory,
 * network, disks, energy. Counters of the system: differences of two samples count.
 */
#ifndef DPB_CORE_MACHINE_USAGE_H
#define DPB_CORE_MACHINE_USAGE_H

#include <stdbool.h>
#include <stdint.h>

enum { DPB_USAGE_PACKAGES = 64, DPB_USAGE_NAME = 64 };

struct dpb_usage {
    int64_t at_ns;   /* CLOCK_MONOTONIC */
    uint32_t cpus;   /* hardware threads of the machine */
    uint32_t living; /* of the job's processes: one that has ended takes its times with it */
    int64_t own_ns,
        busy_ns;           /* CPU time of the job's processes, and of all; busy_ns < 0: not told */
    uint64_t memory_bytes; /* in use on the machine, or in the control group that limits it;
                              UINT64_MAX: not told */
    uint64_t own_memory_bytes;           /* of the job's processes; shared pages are left out */
    uint64_t received_bytes, sent_bytes; /* by the kernel's network, without RDMA and loopback */
    uint64_t loopback_bytes;
    uint64_t read_bytes, written_bytes; /* of disks */
    double package_j;                   /* energy of all processors since the meter's first sample;
                                           NaN: not told, as often without root */
};

/* The last values of the energy counters, which wrap around. Zeroed before the first sample. */
struct dpb_usage_meter {
    uint32_t n_packages;
    char names[DPB_USAGE_PACKAGES][DPB_USAGE_NAME]; /* "package-0" */
    char zones[DPB_USAGE_PACKAGES][DPB_USAGE_NAME]; /* its directory in /sys/class/powercap */
    uint64_t last_uj[DPB_USAGE_PACKAGES], range_uj[DPB_USAGE_PACKAGES];
    uint64_t sum_uj;
    bool looked;
};

/* `root` stands before /proc and /sys: "", but for tests. `pids`: the job's processes. */
void dpb_usage_sample(const char *root, const int32_t *pids, uint32_t n_pids,
                      struct dpb_usage_meter *meter, struct dpb_usage *usage);
/* Reads the energy counters alone, lest one wraps twice between samples. */
void dpb_usage_follow(const char *root, struct dpb_usage_meter *meter);
/* How long the threads that this process has now have waited for a core (schedstat), added up; 0
 * where the kernel does not count it. Any thread. */
int64_t dpb_usage_run_delay_ns(void);
/* The bytes that this process has had fetched from disks and file servers (proc_pid_io(5)), without
 * those that the page cache held; -1 where the kernel does not count them. Any thread. */
int64_t dpb_usage_storage_bytes(void);

#endif
