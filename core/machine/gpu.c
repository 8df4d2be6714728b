/* gpu.c - see gpu.h. */
#include "machine/gpu.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "base/log.h"

const struct dpb_gpu_reason_row dpb_gpu_reasons[DPB_GPU_REASONS] = {
    [DPB_GPU_IDLE] = {"idle", false},
    [DPB_GPU_APPLICATION_CLOCKS] = {"application_clocks", false},
    [DPB_GPU_POWER_CAP] = {"power_cap", true},
    [DPB_GPU_HARDWARE_SLOWDOWN] = {"hardware_slowdown", true},
    [DPB_GPU_SYNC_BOOST] = {"sync_boost", true},
    [DPB_GPU_THERMAL] = {"thermal", true},
    [DPB_GPU_HARDWARE_HEAT] = {"hardware_heat", true},
    [DPB_GPU_POWER_BRAKE] = {"power_brake", true},
    [DPB_GPU_DISPLAY_CLOCKS] = {"display_clocks", false}};

const char *const dpb_gpu_holds[DPB_GPU_HOLDS] = {[DPB_GPU_HOLD_POWER] = "power",
                                                  [DPB_GPU_HOLD_THERMAL] = "thermal",
                                                  [DPB_GPU_HOLD_SYNC_BOOST] = "sync_boost",
                                                  [DPB_GPU_HOLD_BOARD_LIMIT] = "board_limit",
                                                  [DPB_GPU_HOLD_RELIABILITY] = "reliability"};

/* A plugin's monitor is called by one thread at a time: run.monitor has a thread of its own. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct dpb_monitor_ops *opened; /* NULL: none is */

void dpb_gpu_open(const struct dpb_monitor_ops *monitor, const char *pci_address,
                  struct dpb_gpu_use *use)
{
    *use = (struct dpb_gpu_use){0};
    snprintf(use->pci_address, sizeof use->pci_address, "%s", pci_address);
    if (!monitor)
        snprintf(use->problem, sizeof use->problem, "its device plugin has no monitor");
    else if (monitor->open(use))
        opened = monitor;
}

void dpb_gpu_sample(struct dpb_gpu_use *use, struct dpb_gpu_sample *sample)
{
    pthread_mutex_lock(&lock);
    if (opened) {
        int64_t now_ns = dpb_now_ns();
        opened->sample(use, sample);
        sample->at_ns = now_ns;
    }
    pthread_mutex_unlock(&lock);
}

void dpb_gpu_begin(struct dpb_gpu_use *use)
{
    dpb_gpu_sample(use, &use->first);
}

void dpb_gpu_end(struct dpb_gpu_use *use)
{
    if (use->first.known)
        dpb_gpu_sample(use, &use->last);
    pthread_mutex_lock(&lock);
    if (opened)
        opened->close();
    opened = NULL;
    pthread_mutex_unlock(&lock);
}

uint64_t dpb_gpu_throttles(const struct dpb_gpu_use *use)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < DPB_GPU_REASONS; i++)
        mask |= dpb_gpu_reasons[i].throttles ? UINT64_C(1) << i : 0;
    return (use->first.reasons | use->last.reasons) & mask;
}

double dpb_gpu_held_s(const struct dpb_gpu_use *use, uint32_t hold)
{
    return use->last.known ? use->last.held_s[hold] - use->first.held_s[hold] : NAN;
}

bool dpb_gpu_throttled(const struct dpb_gpu_use *use)
{
    double seconds = (double)(use->last.at_ns - use->first.at_ns) * 1e-9;
    for (uint32_t i = 0; i < DPB_GPU_HOLDS; i++)
        if (dpb_gpu_held_s(use, i) > 0.01 * seconds) /* false for NaN */
            return true;
    return dpb_gpu_throttles(use) != 0;
}
