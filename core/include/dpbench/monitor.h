/*
 * monitor.h - the driver's readings of a GPU: clocks, causes that hold clocks down, temperature,
 * power, energy; and how two GPUs are connected. A device plugin may offer them
 * (dpb_device_ops.monitor). Core asks around the timed steps of a run, and for `dpbench links`.
 * Asking sets nothing and runs nothing on a GPU.
 *
 * For devices whose driver tells clocks and power. A first plugin does not need this header.
 */
#ifndef DPBENCH_MONITOR_H
#define DPBENCH_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

enum { DPB_GPU_ADDRESS = 32, DPB_GPU_TEXT = 256, DPB_GPU_PATH = 16 };

/* Causes that hold clocks down: bit numbers of dpb_gpu_sample.reasons. */
typedef enum dpb_gpu_reason {
    DPB_GPU_IDLE,
    DPB_GPU_APPLICATION_CLOCKS, /* somebody has set them */
    DPB_GPU_POWER_CAP,
    DPB_GPU_HARDWARE_SLOWDOWN,
    DPB_GPU_SYNC_BOOST,
    DPB_GPU_THERMAL,
    DPB_GPU_HARDWARE_HEAT,
    DPB_GPU_POWER_BRAKE,
    DPB_GPU_DISPLAY_CLOCKS,
    DPB_GPU_REASONS
} dpb_gpu_reason;

/* Causes for which the driver adds up the time that they held clocks down. */
typedef enum dpb_gpu_hold {
    DPB_GPU_HOLD_POWER,
    DPB_GPU_HOLD_THERMAL,
    DPB_GPU_HOLD_SYNC_BOOST,
    DPB_GPU_HOLD_BOARD_LIMIT,
    DPB_GPU_HOLD_RELIABILITY,
    DPB_GPU_HOLDS
} dpb_gpu_hold;

/* Clocks in MHz, 0: unknown. Locked clocks may show only as `application`. */
struct dpb_gpu_clock {
    uint32_t now, maximal, application;
};

/* At one moment. NaN: unknown. */
struct dpb_gpu_sample {
    bool known;
    int64_t at_ns; /* core's */
    struct dpb_gpu_clock sm, memory;
    bool reasons_known;
    uint64_t reasons;
    double temperature_c, power_w, power_limit_w;
    double energy_j, held_s[DPB_GPU_HOLDS]; /* since some moment: differences count */
};

/* Around the timed part of a run. */
struct dpb_gpu_use {
    char pci_address[DPB_GPU_ADDRESS]; /* "": the rank computes on the host */
    char name[96], driver[80];
    char problem[DPB_GPU_TEXT]; /* why nothing is known; "": something is */
    char unknown[DPB_GPU_TEXT]; /* the first reading that the driver did not give, and why; or "" */
    struct dpb_gpu_sample first, last;
};

/* Called by one thread at a time. */
struct dpb_monitor_ops {
    /* Finds the GPU of use->pci_address: fills name and driver, or `problem`. May take tenths of a
     * second. Returns whether the functions below may be called. */
    bool (*open)(struct dpb_gpu_use *use);
    /* Fills *sample, or `problem`. Takes milliseconds. */
    void (*sample)(struct dpb_gpu_use *use, struct dpb_gpu_sample *sample);
    void (*close)(void);
    /* How the GPUs at two addresses are connected: "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"; "X"
     * for one and the same. "?" with the reason in `problem` if the driver does not know. Opens
     * and closes by itself. */
    void (*path)(const char *a, const char *b, char path[DPB_GPU_PATH], char problem[DPB_GPU_TEXT]);
};

#endif
