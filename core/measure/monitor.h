/*
 * monitor.h - run.monitor: a thread samples the load of the machine and of the rank's GPU while the
 * rank trains or serves. Each rank with a GPU samples that GPU. One rank samples the machine: the
 * lowest rank of each machine under mpirun or srun, else rank 0. A job in turns (launch/turns.h) is
 * sampled by its launcher instead: a parked rank could not.
 *
 * The samples stand behind the records of the journal. The launcher makes result.monitor from them
 * (record/monitor_report.h). A series that is full keeps every second sample and doubles its
 * interval: samples are counters, so only detail is lost.
 */
#ifndef DPB_CORE_MEASURE_MONITOR_H
#define DPB_CORE_MEASURE_MONITOR_H

#include "base/settings.h"
#include "dpbench/status.h"
#include "machine/gpu.h"
#include "machine/usage.h"

enum { DPB_MONITOR_SAMPLES = 2048 };

struct dpb_monitor_sample {
    int64_t at_ns;            /* since the series began */
    struct dpb_usage machine; /* of the series of a machine */
    struct dpb_gpu_sample gpu;
};

/* The rank raises `n` (release) after a sample is whole. */
struct dpb_monitor_series {
    uint64_t n;
    int64_t from_ns, to_ns; /* of a job in turns, by the clock of the ranks; else 0 */
    int64_t interval_ns;    /* of its samples; above run.monitor if it was full */
    int64_t cpu_ns;         /* CPU time of sampling, at the end */
    bool of_machine;
    struct dpb_monitor_sample samples[];
};

/* Bytes of a series; 0: the settings ask for none. */
size_t dpb_monitor_bytes(const struct dpb_settings *settings);
/* When to look at the machine next, if the next sample is due at `due_ns`. Energy counters wrap
 * around, some within 65 s at 1 kW, so a long interval needs looks in between. */
int64_t dpb_monitor_look_ns(int64_t now_ns, int64_t due_ns);
/* When the next sample is due after one that was due at `due_ns` and came at `taken_ns`: on the
 * grid of intervals, and no sooner than half of one later. */
int64_t dpb_monitor_due_ns(int64_t due_ns, int64_t taken_ns, int64_t interval_ns);
/* Adds a sample. `capacity` is even. */
void dpb_monitor_add(struct dpb_monitor_series *series, uint64_t capacity,
                     const struct dpb_monitor_sample *sample);

/* `series` is zeroed and @borrowed until the end; NULL: do nothing. `gpu`: the rank's. One monitor
 * a process. */
dpb_status dpb_monitor_begin(struct dpb_monitor_series *series, int64_t interval_ns,
                             struct dpb_gpu_use *gpu);
void dpb_monitor_end(void);

/* Samples a job in turns, in its launcher. `begins`: the call precedes a turn, and the rise of the
 * counters since the last call does not count. Else the call is within a turn or follows one.
 * `root`: see dpb_usage_sample. `ranks_ns`: now, by the clock of the ranks. Returns the time until
 * the next sample within the turn. */
int64_t dpb_monitor_turn(const char *root, struct dpb_monitor_series *series, const int32_t *pids,
                         uint32_t n_pids, bool begins, int64_t ranks_ns);

#endif
