/*
 * gpu.h - the state of a rank's GPU around the timed steps, from the monitor of the device plugin
 * (dpbench/monitor.h). One GPU at a time.
 */
#ifndef DPB_CORE_MACHINE_GPU_H
#define DPB_CORE_MACHINE_GPU_H

#include "dpbench/monitor.h"

/* By dpb_gpu_reason and dpb_gpu_hold. */
extern const struct dpb_gpu_reason_row {
    const char *name; /* "power_cap" */
    bool throttles;   /* false: idle, or a setting */
} dpb_gpu_reasons[DPB_GPU_REASONS];
extern const char *const dpb_gpu_holds[DPB_GPU_HOLDS]; /* "power", "thermal", ... */

/* Finds the GPU. If that fails, `use` has the reason and the other functions do nothing. begin and
 * end take a sample; end closes the monitor. `monitor`: NULL: the plugin has none. */
void dpb_gpu_open(const struct dpb_monitor_ops *monitor, const char *pci_address,
                  struct dpb_gpu_use *use);
void dpb_gpu_begin(struct dpb_gpu_use *use);
void dpb_gpu_end(struct dpb_gpu_use *use);

/* The GPU now; not `known` before open and after end. Any thread. */
void dpb_gpu_sample(struct dpb_gpu_use *use, struct dpb_gpu_sample *sample);

/* The reasons that throttled at both samples: bits of dpb_gpu_reason. */
uint64_t dpb_gpu_throttles(const struct dpb_gpu_use *use);
/* Seconds that a hold lasted between the samples; NaN: not known. */
double dpb_gpu_held_s(const struct dpb_gpu_use *use, uint32_t hold);
/* Whether a throttle's bit was seen or a hold lasted longer than 1 % of the time. */
bool dpb_gpu_throttled(const struct dpb_gpu_use *use);

#endif
