/* load.c - see load.h. */
#include "machine/load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "machine/cgroup.h"
#include "machine/proc.h"

/* Lines are "cpuN user nice system idle iowait irq softirq steal ...", in ticks. */
static void add_cpu(struct dpb_load_sample *sample, uint8_t kind, const char *counters)
{
    unsigned long long user = 0, nice = 0, system = 0, stolen = 0;
    if (sscanf(counters, "%llu %llu %llu %*u %*u %*u %*u %llu", &user, &nice, &system, &stolen) < 3)
        return;
    int64_t busy_ns = (int64_t)(user + nice + system) * dpb_proc_tick_ns();
    if (kind == DPB_CPU_USED) {
        sample->used_ns += busy_ns;
        sample->stolen_ns += (int64_t)stolen * dpb_proc_tick_ns();
        sample->n_used++;
    } else if (kind == DPB_CPU_SIBLING) {
        sample->siblings_ns += busy_ns;
        sample->n_siblings++;
    }
}

static void sample_cpus(const char *root, const uint8_t *cpus, size_t n_cpus,
                        struct dpb_load_sample *sample)
{
    char line[512];
    FILE *file = dpb_proc_open("%s/proc/stat", root);
    while (file && fgets(line, sizeof line, file)) {
        unsigned cpu;
        int length = 0;
        /* The first line, "cpu  ...", is the sum of all. */
        if (line[3] != ' ' && sscanf(line, "cpu%u %n", &cpu, &length) == 1 &&
            (!cpus || cpu < n_cpus))
            add_cpu(sample, cpus ? cpus[cpu] : DPB_CPU_USED, line + length);
    }
    if (file)
        fclose(file);
    if (sample->n_used == 0)
        sample->used_ns = -1;
}

/* Not every processor has these counters. */
static uint64_t sample_heat(const char *root, const uint8_t *cpus, size_t n_cpus)
{
    uint64_t sum = 0;
    for (size_t cpu = 0; cpu < n_cpus; cpu++) {
        uint64_t count;
        if (cpus[cpu] == DPB_CPU_USED &&
            dpb_proc_count(&count,
                           "%s/sys/devices/system/cpu/cpu%zu/thermal_throttle/core_throttle_count",
                           root, cpu))
            sum += count;
    }
    return sum;
}

void dpb_load_times(const char *root, const uint8_t *cpus, size_t n_cpus, const int32_t *pids,
                    uint32_t n_pids, struct dpb_load_sample *sample)
{
    *sample = (struct dpb_load_sample){.at_ns = dpb_now_ns()};
    sample_cpus(root, cpus, n_cpus, sample);
    for (uint32_t i = 0; i < n_pids; i++) {
        struct dpb_proc proc;
        if (dpb_proc_read(root, pids[i], &proc))
            sample->own_ns += proc.cpu_ns;
    }
}

void dpb_load_sample(const char *root, const uint8_t *cpus, size_t n_cpus, const int32_t *pids,
                     uint32_t n_pids, struct dpb_load_sample *sample)
{
    dpb_load_times(root, cpus, n_cpus, pids, n_pids, sample);
    dpb_cgroup_throttled(root, &sample->throttled, &sample->throttled_ns);
    sample->hot = sample_heat(root, cpus, n_cpus);
}

static double share_of(int64_t ns, int64_t span_ns, uint32_t n)
{
    return n > 0 && span_ns > 0 ? fmax(0, (double)ns / ((double)span_ns * n)) : NAN;
}

void dpb_load_between(const struct dpb_load_sample *from, const struct dpb_load_sample *to,
                      struct dpb_load *load)
{
    int64_t span_ns = to->at_ns - from->at_ns, own_ns = to->own_ns - from->own_ns;
    bool counted = from->used_ns >= 0 && to->used_ns >= 0;
    uint32_t n = counted ? to->n_used : 0;
    *load = (struct dpb_load){
        .known = true,
        .seconds = (double)span_ns * 1e-9,
        .cpus = n,
        .own_share = share_of(own_ns, span_ns, n),
        .others_share = share_of(to->used_ns - from->used_ns - own_ns, span_ns, n),
        .siblings_share = share_of(to->siblings_ns - from->siblings_ns, span_ns, to->n_siblings),
        .stolen_share = share_of(to->stolen_ns - from->stolen_ns, span_ns, n),
        .throttled = to->throttled - from->throttled,
        .suspended_s = NAN, /* of it the workers know */
        .throttled_s = (double)(to->throttled_ns - from->throttled_ns) * 1e-9,
        .hot = to->hot - from->hot};
}
