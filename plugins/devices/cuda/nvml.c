/*
 * nvml.c - the monitor of NVIDIA's GPUs: libnvidia-ml.so.1, which comes with the driver and is
 * looked for at run time. A machine without this library has no GPU to tell of.
 *
 * Signatures and numbers are those of NVIDIA's nvml.h, whose versioned symbols keep theirs. Calls
 * that NVML gives up in CUDA 14 are made where a driver lacks their successors.
 */
#include "nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dpbench/host.h"

typedef void *nvml_device;

/* nvmlPciInfo_t of the functions _v2 and _v3. */
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_violation {
    unsigned long long reference_us, held_ns;
};

/* nvmlTemperature_v1_t */
struct nvml_temperature {
    unsigned version;
    int sensor, celsius;
};

/* nvmlFieldValue_t: `status` is of this field alone. */
struct nvml_field {
    unsigned id, scope;
    long long at_us, latency_us;
    int type, status;
    union {
        unsigned u;
        unsigned long ul;
        unsigned long long ull;
    } value;
};
enum { FIELD_UNSIGNED = 1, FIELD_UNSIGNED_LONG = 2, FIELD_UNSIGNED_LONG_LONG = 3 };

enum { NVML_SUCCESS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0, N_LINKS = 36 };
enum { LINK_ACTIVE = 1, REMOTE_SWITCH = 2 };

/* Those that need not be there are NULL in older drivers. */
static struct {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int);
    int (*driver_version)(char *, unsigned);
    int (*by_address)(const char *, nvml_device *);
    int (*name)(nvml_device, char *, unsigned);
    int (*clock)(nvml_device, int, unsigned *);
    int (*max_clock)(nvml_device, int, unsigned *);
    int (*application_clock)(nvml_device, int, unsigned *);
    int (*reasons)(nvml_device, unsigned long long *);
    int (*temperature)(nvml_device, struct nvml_temperature *);
    int (*older_temperature)(nvml_device, int, unsigned *);
    int (*power)(nvml_device, unsigned *);
    int (*power_limit)(nvml_device, unsigned *);
    int (*energy)(nvml_device, unsigned long long *);
    int (*fields)(nvml_device, int, struct nvml_field *);
    int (*violation)(nvml_device, int, struct nvml_violation *);
    int (*common_ancestor)(nvml_device, nvml_device, int *);
    int (*link_state)(nvml_device, unsigned, int *);
    int (*link_remote)(nvml_device, unsigned, struct nvml_pci *);
    int (*link_remote_type)(nvml_device, unsigned, int *);
} nvml;

static const struct symbol {
    const char *name;
    void **function;
    bool needed;
    const char *older; /* of the same signature; NULL: there is none */
} symbols[] = {
    {"nvmlErrorString", (void **)&nvml.error_string, true, NULL},
    {"nvmlInit_v2", (void **)&nvml.init, true, NULL},
    {"nvmlShutdown", (void **)&nvml.shutdown, true, NULL},
    {"nvmlSystemGetDriverVersion", (void **)&nvml.driver_version, true, NULL},
    {"nvmlDeviceGetHandleByPciBusId_v2", (void **)&nvml.by_address, true, NULL},
    {"nvmlDeviceGetName", (void **)&nvml.name, false, NULL},
    {"nvmlDeviceGetClockInfo", (void **)&nvml.clock, false, NULL},
    {"nvmlDeviceGetMaxClockInfo", (void **)&nvml.max_clock, false, NULL},
    {"nvmlDeviceGetApplicationsClock", (void **)&nvml.application_clock, false, NULL},
    {"nvmlDeviceGetCurrentClocksEventReasons", (void **)&nvml.reasons, false,
     "nvmlDeviceGetCurrentClocksThrottleReasons"},
    {"nvmlDeviceGetTemperatureV", (void **)&nvml.temperature, false, NULL},
    {"nvmlDeviceGetTemperature", (void **)&nvml.older_temperature, false, NULL},
    {"nvmlDeviceGetPowerUsage", (void **)&nvml.power, false, NULL},
    {"nvmlDeviceGetEnforcedPowerLimit", (void **)&nvml.power_limit, false, NULL},
    {"nvmlDeviceGetTotalEnergyConsumption", (void **)&nvml.energy, false, NULL},
    {"nvmlDeviceGetFieldValues", (void **)&nvml.fields, false, NULL},
    {"nvmlDeviceGetViolationStatus", (void **)&nvml.violation, false, NULL},
    {"nvmlDeviceGetTopologyCommonAncestor", (void **)&nvml.common_ancestor, false, NULL},
    {"nvmlDeviceGetNvLinkState", (void **)&nvml.link_state, false, NULL},
    {"nvmlDeviceGetNvLinkRemotePciInfo_v2", (void **)&nvml.link_remote, false, NULL},
    {"nvmlDeviceGetNvLinkRemoteDeviceType", (void **)&nvml.link_remote_type, false, NULL}};

/* nvmlClocksEventReasons has bits in the order of dpb_gpu_reason. */
_Static_assert(1 << DPB_GPU_POWER_CAP == 0x4 && 1 << DPB_GPU_DISPLAY_CLOCKS == 0x100,
               "NVML's bits of reasons");

/* NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, _SW_THERM_SLOWDOWN, _SYNC_BOOST,
 * NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT, _RELIABILITY: in nanoseconds. Then the older
 * nvmlPerfPolicyType_t, in the same order: 4 is a GPU with too little work. */
static const unsigned hold_fields[DPB_GPU_HOLDS] = {74, 269, 76, 77, 79};
static const int hold_types[DPB_GPU_HOLDS] = {0, 1, 2, 3, 5};

/* The first one stays. */
DPB_PRINTF(2, 3) static void say(char text[DPB_GPU_TEXT], const char *format, ...)
{
    va_list list;
    if (text[0] != '\0')
        return;
    va_start(list, format);
    vsnprintf(text, DPB_GPU_TEXT, format, list);
    va_end(list);
}

static void unload(void)
{
    if (nvml.library)
        nvml.shutdown();
    nvml.library = NULL;
}

/* False with the reason in `problem`. Once loaded the library stays in the process. */
static bool load(char driver[80], char problem[DPB_GPU_TEXT])
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        say(problem, "there is no NVML: %s", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        *symbols[i].function = dlsym(library, symbols[i].name);
        if (!*symbols[i].function && symbols[i].older)
            *symbols[i].function = dlsym(library, symbols[i].older);
        if (!*symbols[i].function && symbols[i].needed) {
            say(problem, "the NVIDIA driver is too old: its libnvidia-ml.so.1 has no %s",
                symbols[i].name);
            dlclose(library);
            return false;
        }
    }
    int error = nvml.init();
    if (error != NVML_SUCCESS) {
        say(problem, "nvmlInit_v2: %s (%d)", nvml.error_string(error), error);
        dlclose(library);
        return false;
    }
    nvml.library = library;
    if (nvml.driver_version(driver, 80) != NVML_SUCCESS)
        snprintf(driver, 80, "?");
    return true;
}

static const char *name_of(const void *function)
{
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
        if ((const void *)symbols[i].function == function)
            return symbols[i].name;
    return "?";
}

/* Calls a function that may be missing; true where it answered. Otherwise `unknown` says why
 * not. */
#define ASK(unknown, function, ...)                                                      \
    (!nvml.function                                                                      \
         ? (say(unknown, "libnvidia-ml.so.1 has no %s", name_of(&nvml.function)), false) \
         : answered(unknown, nvml.function(__VA_ARGS__), name_of(&nvml.function)))

static bool answered(char unknown[DPB_GPU_TEXT], int error, const char *name)
{
    if (error != NVML_SUCCESS)
        say(unknown, "%s: %s (%d)", name, nvml.error_string(error), error);
    return error == NVML_SUCCESS;
}

static bool find(const char *pci_address, nvml_device *device, char problem[DPB_GPU_TEXT])
{
    int error = nvml.by_address(pci_address, device);
    if (error != NVML_SUCCESS)
        say(problem, "nvmlDeviceGetHandleByPciBusId_v2 of %s: %s (%d)", pci_address,
            nvml.error_string(error), error);
    return error == NVML_SUCCESS;
}

/* ---- samples ------------------------------------------------------------------------------- */

static void read_clock(nvml_device device, int type, char *unknown, struct dpb_gpu_clock *clock)
{
    unsigned mhz;
    *clock = (struct dpb_gpu_clock){0};
    if (ASK(unknown, clock, device, type, &mhz))
        clock->now = mhz;
    if (ASK(unknown, max_clock, device, type, &mhz))
        clock->maximal = mhz;
    /* NVML gives these clocks up and puts nothing in their place: that is no warning. */
    if (nvml.application_clock && ASK(unknown, application_clock, device, type, &mhz))
        clock->application = mhz;
}

static double read_temperature(nvml_device device, char unknown[DPB_GPU_TEXT])
{
    struct nvml_temperature now = {.version = sizeof now | 1u << 24, .sensor = SENSOR_GPU};
    unsigned older;
    if (!nvml.temperature && nvml.older_temperature)
        return ASK(unknown, older_temperature, device, SENSOR_GPU, &older) ? (double)older : NAN;
    return ASK(unknown, temperature, device, &now) ? (double)now.celsius : NAN;
}

/* False: this driver does not know the field. */
static bool nanoseconds_in(const struct nvml_field *field, double *ns)
{
    if (field->status != NVML_SUCCESS)
        return false;
    if (field->type == FIELD_UNSIGNED)
        *ns = field->value.u;
    else if (field->type == FIELD_UNSIGNED_LONG)
        *ns = (double)field->value.ul;
    else if (field->type == FIELD_UNSIGNED_LONG_LONG)
        *ns = (double)field->value.ull;
    else
        return false;
    return true;
}

/* Reads the fields by one call; missing ones by the older call, one call each. */
static void read_holds(nvml_device device, char unknown[DPB_GPU_TEXT], double held_s[DPB_GPU_HOLDS])
{
    struct nvml_field fields[DPB_GPU_HOLDS] = {{0}};
    struct nvml_violation violation;
    for (int i = 0; i < DPB_GPU_HOLDS; i++)
        fields[i].id = hold_fields[i];
    bool told = nvml.fields && nvml.fields(device, DPB_GPU_HOLDS, fields) == NVML_SUCCESS;
    for (int i = 0; i < DPB_GPU_HOLDS; i++) {
        double ns;
        if (told && nanoseconds_in(&fields[i], &ns))
            held_s[i] = ns / 1e9;
        else if (ASK(unknown, violation, device, hold_types[i], &violation))
            held_s[i] = (double)violation.held_ns / 1e9;
        else
            held_s[i] = NAN;
    }
}

static void take_sample(nvml_device device, char unknown[DPB_GPU_TEXT],
                        struct dpb_gpu_sample *sample)
{
    unsigned number;
    unsigned long long reasons, millijoules;
    *sample = (struct dpb_gpu_sample){
        .known = true, .power_w = NAN, .power_limit_w = NAN, .energy_j = NAN};
    read_clock(device, CLOCK_SM, unknown, &sample->sm);
    read_clock(device, CLOCK_MEMORY, unknown, &sample->memory);
    sample->reasons_known = ASK(unknown, reasons, device, &reasons);
    sample->reasons = sample->reasons_known ? reasons : 0;
    sample->temperature_c = read_temperature(device, unknown);
    if (ASK(unknown, power, device, &number))
        sample->power_w = number / 1e3;
    if (ASK(unknown, power_limit, device, &number))
        sample->power_limit_w = number / 1e3;
    if (ASK(unknown, energy, device, &millijoules))
        sample->energy_j = (double)millijoules / 1e3;
    read_holds(device, unknown, sample->held_s);
}

static bool monitor_open(struct dpb_gpu_use *use)
{
    nvml_device device;
    if (!load(use->driver, use->problem))
        return false;
    if (!find(use->pci_address, &device, use->problem)) {
        unload();
        return false;
    }
    if (!ASK(use->unknown, name, device, use->name, sizeof use->name))
        use->name[0] = '\0';
    return true;
}

static void monitor_sample(struct dpb_gpu_use *use, struct dpb_gpu_sample *sample)
{
    nvml_device device;
    if (find(use->pci_address, &device, use->problem))
        take_sample(device, use->unknown, sample);
}

/* ---- topology ------------------------------------------------------------------------------ */

/* By numbers: CUDA writes domains with four digits, NVML with eight. */
static bool is_same(const char *a, const char *b)
{
    static const char format[] = "%x:%x:%x.%x";
    unsigned one[4], other[4];
    return sscanf(a, format, &one[0], &one[1], &one[2], &one[3]) == 4 &&
           sscanf(b, format, &other[0], &other[1], &other[2], &other[3]) == 4 &&
           memcmp(one, other, sizeof one) == 0;
}

/* NVLinks from `a` to the other GPU, or to the switch that leads to it. */
static uint32_t count_links(nvml_device a, const char *b)
{
    uint32_t n = 0;
    char none[DPB_GPU_TEXT] = "";
    for (unsigned link = 0; link < N_LINKS; link++) {
        int active = 0, type = 0;
        struct nvml_pci remote = {0};
        if (!ASK(none, link_state, a, link, &active) || active != LINK_ACTIVE)
            continue;
        bool to_switch = ASK(none, link_remote_type, a, link, &type) && type == REMOTE_SWITCH;
        if (to_switch || (ASK(none, link_remote, a, link, &remote) && is_same(remote.bus_id, b)))
            n++;
    }
    return n;
}

static const char *ancestor_name(int level)
{
    static const struct {
        int level;
        const char *name;
    } levels[] = {{0, "PIX"}, {10, "PIX"}, {20, "PXB"}, {30, "PHB"}, {40, "NODE"}, {50, "SYS"}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (levels[i].level == level)
            return levels[i].name;
    return "?";
}

static void monitor_path(const char *a, const char *b, char path[DPB_GPU_PATH],
                         char problem[DPB_GPU_TEXT])
{
    nvml_device first, second;
    char driver[80];
    int level = -1;
    problem[0] = '\0';
    snprintf(path, DPB_GPU_PATH, "%s", is_same(a, b) ? "X" : "?");
    if (path[0] == 'X' || !load(driver, problem))
        return;
    if (find(a, &first, problem) && find(b, &second, problem)) {
        uint32_t links = count_links(first, b);
        if (links > 0)
            snprintf(path, DPB_GPU_PATH, "NV%u", links);
        else if (ASK(problem, common_ancestor, first, second, &level))
            snprintf(path, DPB_GPU_PATH, "%s", ancestor_name(level));
    }
    unload();
}

const struct dpb_monitor_ops cuda_monitor = {
    .open = monitor_open, .sample = monitor_sample, .close = unload, .path = monitor_path};
