/*
 * libnvidia-ml.c - stands in for the NVML of NVIDIA's driver, found by LD_LIBRARY_PATH: two GPUs,
 * at 00000000:1B:00.0 and 00000000:3D:00.0. What it answers comes from the environment:
 *
 *   FAKE_NVML_INIT=9         the error of nvmlInit_v2
 *   FAKE_NVML_ERROR=NAME:3   the error of the function NAME
 *   FAKE_NVML_REASONS=0x4    what holds the clocks down, from the second call on
 *   FAKE_NVML_HELD_NS=N      by which the first of the violations grows with each call
 *   FAKE_NVML_LINKS=18       active NVLinks of each GPU, to the other; FAKE_NVML_SWITCH: to a
 *                            switch
 *   FAKE_NVML_LEVEL=40       of the GPUs' common ancestor
 *
 *   FAKE_NVML_FIELD=269      a field that it does not know
 *
 * It has nothing that NVML gives up in CUDA 14, but with FAKE_BEFORE that and not what has taken
 * its place, and with FAKE_BETWEEN both. With FAKE_OLD it has no nvmlInit_v2, with
 * FAKE_WITHOUT_ENERGY no nvmlDeviceGetTotalEnergyConsumption.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FAKE(type) __attribute__((visibility("default"))) type

enum { N_GPUS = 2 };
static const char *const addresses[N_GPUS] = {"00000000:1B:00.0", "00000000:3D:00.0"};
static struct gpu {
    unsigned n_reasons, n_energy, n_violations, n_clocks;
} gpus[N_GPUS];
static int opened; /* init less shutdown */

struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
struct violation {
    unsigned long long reference_us, held_ns;
};

static unsigned long long number(const char *name, unsigned long long otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? strtoull(value, NULL, 0) : otherwise;
}

/* Uninitialized before init, what FAKE_NVML_ERROR says of this function, or success. */
static int error_of(const char *function)
{
    const char *wanted = getenv("FAKE_NVML_ERROR");
    size_t n = strlen(function);
    if (opened <= 0)
        return 1;
    return wanted != NULL && strncmp(wanted, function, n) == 0 && wanted[n] == ':'
               ? atoi(wanted + n + 1)
               : 0;
}

#define FUNCTION(name, ...)      \
    FAKE(int) name(__VA_ARGS__); \
    int name(__VA_ARGS__)

FAKE(const char *) nvmlErrorString(int error);
const char *nvmlErrorString(int error)
{
    return error == 1   ? "Uninitialized"
           : error == 3 ? "Not Supported"
           : error == 6 ? "Not Found"
           : error == 9 ? "Driver Not Loaded"
                        : "Unknown Error";
}

#ifndef FAKE_OLD
FUNCTION(nvmlInit_v2, void)
{
    int error = (int)number("FAKE_NVML_INIT", 0);
    opened += error == 0;
    return error;
}
#endif

FUNCTION(nvmlShutdown, void)
{
    opened--;
    return 0;
}

FUNCTION(nvmlSystemGetDriverVersion, char *text, unsigned bytes)
{
    snprintf(text, bytes, "580.82.07");
    return error_of(__func__);
}

FUNCTION(nvmlDeviceGetHandleByPciBusId_v2, const char *address, struct gpu **gpu)
{
    /* NVML writes domains with eight digits, and reads them with four, too, as CUDA writes them. */
    const char *rest = strchr(address, ':');
    for (int i = 0; i < N_GPUS; i++)
        if (rest != NULL && strtoul(address, NULL, 16) == 0 &&
            strcasecmp(strchr(addresses[i], ':'), rest) == 0) {
            *gpu = &gpus[i];
            return error_of(__func__);
        }
    return 6;
}

FUNCTION(nvmlDeviceGetName, struct gpu *gpu, char *text, unsigned bytes)
{
    snprintf(text, bytes, "NVIDIA Fake %d", (int)(gpu - gpus));
    return error_of(__func__);
}

/* 1: multiprocessors, which slow down at each look; 2: memory. */
FUNCTION(nvmlDeviceGetClockInfo, struct gpu *gpu, int type, unsigned *mhz)
{
    *mhz = type == 1 ? 1980 - 240 * gpu->n_clocks++ : 3201;
    return error_of(__func__);
}

FUNCTION(nvmlDeviceGetMaxClockInfo, struct gpu *gpu, int type, unsigned *mhz)
{
    (void)gpu;
    *mhz = type == 1 ? 1980 : 3202;
    return error_of(__func__);
}

#if defined FAKE_BEFORE || defined FAKE_BETWEEN
FUNCTION(nvmlDeviceGetApplicationsClock, struct gpu *gpu, int type, unsigned *mhz)
{
    (void)gpu;
    *mhz = type == 1 ? 1830 : 3200;
    return error_of(__func__);
}
#endif

#ifdef FAKE_BEFORE
#define REASONS nvmlDeviceGetCurrentClocksThrottleReasons
#else
#define REASONS nvmlDeviceGetCurrentClocksEventReasons
#endif
FUNCTION(REASONS, struct gpu *gpu, unsigned long long *reasons)
{
    *reasons = gpu->n_reasons++ == 0 ? 0x1 : number("FAKE_NVML_REASONS", 0x2);
    return error_of(__func__);
}

static unsigned degrees(const struct gpu *gpu, int sensor)
{
    return sensor == 0 ? 40 + 21 * (gpu->n_clocks > 1) : 999;
}

#ifdef FAKE_BEFORE
FUNCTION(nvmlDeviceGetTemperature, struct gpu *gpu, int sensor, unsigned *celsius)
{
    *celsius = degrees(gpu, sensor);
    return error_of(__func__);
}
#else
struct temperature {
    unsigned version;
    int sensor, celsius;
};

FUNCTION(nvmlDeviceGetTemperatureV, struct gpu *gpu, struct temperature *temperature)
{
    if (temperature->version != (sizeof *temperature | 1u << 24))
        return 25;
    temperature->celsius = (int)degrees(gpu, temperature->sensor);
    return error_of(__func__);
}
#endif

FUNCTION(nvmlDeviceGetPowerUsage, struct gpu *gpu, unsigned *milliwatts)
{
    (void)gpu;
    *milliwatts = 612500;
    return error_of(__func__);
}

FUNCTION(nvmlDeviceGetEnforcedPowerLimit, struct gpu *gpu, unsigned *milliwatts)
{
    (void)gpu;
    *milliwatts = 700000;
    return error_of(__func__);
}

#ifndef FAKE_WITHOUT_ENERGY
FUNCTION(nvmlDeviceGetTotalEnergyConsumption, struct gpu *gpu, unsigned long long *millijoules)
{
    *millijoules = 5000000 + 250500ULL * gpu->n_energy++;
    return error_of(__func__);
}
#endif

/* A look at power: nanoseconds. */
static unsigned long long held_ns(struct gpu *gpu)
{
    return 1000 + number("FAKE_NVML_HELD_NS", 0) * gpu->n_violations++;
}

#if defined FAKE_BEFORE || defined FAKE_BETWEEN
FUNCTION(nvmlDeviceGetViolationStatus, struct gpu *gpu, int type, struct violation *violation)
{
    *violation = (struct violation){.reference_us = 1};
    if (type == 0)
        violation->held_ns = held_ns(gpu);
    return error_of(__func__);
}
#endif

#ifndef FAKE_BEFORE
struct field {
    unsigned id, scope;
    long long at_us, latency_us;
    int type, status;
    unsigned long long value;
};

FUNCTION(nvmlDeviceGetFieldValues, struct gpu *gpu, int n, struct field *fields)
{
    for (int i = 0; i < n; i++) {
        const unsigned id = fields[i].id;
        const bool known = (id >= 74 && id <= 79) || id == 269;
        fields[i].status = !known || id == number("FAKE_NVML_FIELD", 0) ? 3 : 0;
        fields[i].type = 3;
        fields[i].value = id == 74 && fields[i].status == 0 ? held_ns(gpu) : 0;
    }
    return error_of(__func__);
}
#endif

FUNCTION(nvmlDeviceGetTopologyCommonAncestor, struct gpu *a, struct gpu *b, int *level)
{
    *level = a == b ? 0 : (int)number("FAKE_NVML_LEVEL", 50);
    return error_of(__func__);
}

FUNCTION(nvmlDeviceGetNvLinkState, struct gpu *gpu, unsigned link, int *active)
{
    (void)gpu;
    *active = link < number("FAKE_NVML_LINKS", 0);
    return error_of(__func__);
}

FUNCTION(nvmlDeviceGetNvLinkRemotePciInfo_v2, struct gpu *gpu, unsigned link, struct pci *pci)
{
    (void)link;
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", addresses[gpu == &gpus[0]]);
    return error_of(__func__);
}

FUNCTION(nvmlDeviceGetNvLinkRemoteDeviceType, struct gpu *gpu, unsigned link, int *type)
{
    (void)gpu;
    (void)link;
    *type = getenv("FAKE_NVML_SWITCH") != NULL ? 2 : 0;
    return error_of(__func__);
}
