/*
 * nvml.h - what the driver of NVIDIA's GPUs tells of one of them: clocks, what holds them down,
 * temperature, power, energy; and how two of them are connected. By libnvidia-ml.so.1, which comes
 * with the driver and is looked for at run time; a machine without it has no GPU to tell of.
 * Nothing is set, and nothing runs on a GPU. One thread at a time.
 */
#ifndef DPB_CORE_MACHINE_NVML_H
#define DPB_CORE_MACHINE_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DPB_GPU_ADDRESS = 32, DPB_GPU_TEXT = 256, DPB_GPU_PATH = 16 };

/* What holds clocks down, of bits and of times; NVML's names (nvmlClocksEventReasons). */
enum { DPB_GPU_REASONS = 9 };
struct dpb_gpu_reason {
    uint64_t bit;
    const char *name; /* "power_cap" */
    bool throttles;   /* false: idle, or what somebody has set */
};
extern const struct dpb_gpu_reason dpb_gpu_reasons[DPB_GPU_REASONS];

/* Times that the driver adds up. */
enum { DPB_GPU_HOLDS = 5 };
extern const char *const dpb_gpu_holds[DPB_GPU_HOLDS]; /* "power", "thermal", ... */

/* Clocks in MHz, 0: not told; locked ones are told by NVML only as `application`. */
struct dpb_gpu_clock {
    uint32_t now, maximal, application;
};

/* At one moment. NaN: not told. */
struct dpb_gpu_sample {
    bool known;
    int64_t at_ns;
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
    char unknown[DPB_GPU_TEXT]; /* the first thing that the driver did not tell, and why; or "" */
    struct dpb_gpu_sample first, last;
};

/* Opens the library and finds the GPU, for tenths of a second; what is wrong stands in `use`, and
 * then the others do nothing. begin and end take a sample, for milliseconds; end closes the
 * library. */
void dpb_gpu_open(const char *pci_address, struct dpb_gpu_use *use);
void dpb_gpu_begin(struct dpb_gpu_use *use);
void dpb_gpu_end(struct dpb_gpu_use *use);

/* Of both moments, of what throttles: bits of dpb_gpu_reasons. */
uint64_t dpb_gpu_throttles(const struct dpb_gpu_use *use);
/* Seconds that a hold lasted between the samples; NaN: not known. */
double dpb_gpu_held_s(const struct dpb_gpu_use *use, uint32_t hold);
/* Whether a throttle's bit was seen or a hold lasted longer than 1 % of the time. */
bool dpb_gpu_throttled(const struct dpb_gpu_use *use);

/* How two GPUs are connected, as `nvidia-smi topo -m` names it: "NV18", "PIX", "PXB", "PHB",
 * "NODE", "SYS"; "X" for one and the same. "?" with the reason in `problem` where the driver does
 * not tell. */
void dpb_gpu_path(const char *a, const char *b, char path[DPB_GPU_PATH],
                  char problem[DPB_GPU_TEXT]);

#endif
