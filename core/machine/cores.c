/*
 * cores.c - cores by hwloc, and the machine as a result describes it.
 */
#include "machine/cores.h"

#include <errno.h>
#include <hwloc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/log.h"
#include "base/text.h"
#include "machine/cgroup.h"
#include "machine/load.h"
#include "machine/proc.h"

/* The resources usable when this process first asked: binding the process later does not make the
 * machine smaller. Kept for as long as the process lives. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hwloc_topology_t topology;
static unsigned *usable; /* the hardware thread to use of each usable core (OS index) */
static uint32_t n_usable;

/* Every process of a job reads the topology. These plugins of hwloc say nothing about cores, and
 * their libraries (OpenCL, X11, libxml2) would take a fifth of a short job's processor time. */
#define NEEDLESS_PLUGINS "hwloc_opencl.so,hwloc_gl.so,hwloc_xml_libxml.so"

static dpb_status load_topology(void)
{
    setenv("HWLOC_PLUGINS_BLACKLIST", NEEDLESS_PLUGINS, 0);
    if (hwloc_topology_init(&topology) != 0)
        return dpb_fail(DPB_NO_MEMORY, "out of memory for the machine's topology");
    /* Component x86 knows no more than the system, but asks each core in turn, beside ranks that
     * are timed. */
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return dpb_fail(DPB_FAILED, "hwloc cannot read the machine's topology: %s",
                        strerror(errno));
    }
    return DPB_OK;
}

/* The affinity mask within the cores that the cpuset allows. */
static dpb_status find_usable(void)
{
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), shared = hwloc_bitmap_alloc();
    int n_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    hwloc_obj_type_t type = n_cores > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int n = hwloc_get_nbobjs_by_type(topology, type);
    usable = n > 0 ? calloc((size_t)n, sizeof *usable) : NULL;
    bool ready = allowed && shared && usable;
    if (ready && hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(topology));
    for (int i = 0; ready && i < n; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(topology, type, (unsigned)i);
        hwloc_bitmap_and(shared, core->cpuset, allowed);
        int thread = hwloc_bitmap_first(shared);
        if (thread >= 0)
            usable[n_usable++] = (unsigned)thread;
    }
    hwloc_bitmap_free(allowed);
    hwloc_bitmap_free(shared);
    if (!ready || n_usable == 0)
        return dpb_fail(DPB_FAILED, "no core of this machine is usable by this process");
    const double quota = dpb_cgroup_cpus("");
    if (quota < n_usable)
        n_usable = quota >= 1 ? (uint32_t)quota : 1;
    return DPB_OK;
}

static dpb_status find_cores(void)
{
    dpb_status status = DPB_OK;
    pthread_mutex_lock(&lock);
    if (n_usable == 0) {
        status = load_topology();
        if (status == DPB_OK) {
            status = find_usable();
            if (status != DPB_OK) {
                free(usable);
                usable = NULL;
                hwloc_topology_destroy(topology);
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

dpb_status dpb_cores_available(uint32_t *n_cores)
{
    DPB_TRY(find_cores());
    *n_cores = n_usable;
    return DPB_OK;
}

/* The number of a share's cores that communication leaves; at least 1. */
static uint32_t left_to_compute(uint64_t n_cores, uint32_t comm_cores)
{
    return n_cores > comm_cores ? (uint32_t)(n_cores - comm_cores) : 1;
}

struct dpb_cores_share dpb_cores_place(uint32_t n_cores, const struct dpb_cores_job *job,
                                       uint32_t rank)
{
    const bool given = job->threads > 0, server = rank >= job->n_workers;
    const bool together = job->n_workers % job->learners == 0;
    const uint32_t comm_cores = job->comm_cores, learners = together ? job->learners : 1;
    const uint32_t places = job->n_workers / learners;
    uint64_t whole = (uint64_t)job->threads + comm_cores;
    if (!given)
        whole = places > 0 && n_cores > job->n_servers ? (n_cores - job->n_servers) / places : 0;
    const uint64_t each = whole / (given ? job->learners : learners);
    const uint64_t extent = together ? whole : each, of_places = extent * places;
    struct dpb_cores_share share = {.threads = 1, .place_threads = 1};
    if (!server) {
        share.threads = left_to_compute(each, comm_cores);
        share.place_threads =
            given || together ? left_to_compute(whole, comm_cores) : share.threads * job->learners;
    }
    if ((places > 0 && each <= comm_cores) || of_places + job->n_servers > n_cores)
        return share;
    share.n_all = (uint32_t)of_places + job->n_servers;
    share.n = server ? 1 : (uint32_t)each;
    share.first = server ? (uint32_t)of_places + (rank - job->n_workers)
                         : (uint32_t)(extent * (rank / learners) + each * (rank % learners));
    return share;
}

dpb_status dpb_cores_bind(const struct dpb_cores_job *job, uint32_t rank,
                          struct dpb_cores_share *share)
{
    DPB_TRY(find_cores());
    *share = dpb_cores_place(n_usable, job, rank);
    if (share->n == 0)
        return DPB_OK;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    DPB_TRY(dpb_allocated(set));
    for (uint32_t i = 0; i < share->n; i++)
        hwloc_bitmap_set(set, usable[share->first + i]);
    int result = hwloc_set_cpubind(topology, set, HWLOC_CPUBIND_PROCESS);
    int error = errno;
    hwloc_bitmap_free(set);
    if (result != 0)
        return dpb_fail(DPB_FAILED, "cannot bind rank %u to its %u cores: %s", rank, share->n,
                        strerror(error));
    return DPB_OK;
}

int dpb_cores_start_thread(uint16_t cpu, void *(*body)(void *), void *argument, pthread_t *thread)
{
    pthread_attr_t attributes;
    size_t bytes = CPU_ALLOC_SIZE((size_t)cpu + 1);
    cpu_set_t *set = CPU_ALLOC((size_t)cpu + 1);
    if (!set)
        return ENOMEM;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(cpu, bytes, set);
    int error = pthread_attr_init(&attributes);
    if (error == 0) {
        error = pthread_attr_setaffinity_np(&attributes, bytes, set);
        if (error == 0)
            error = pthread_create(thread, &attributes, body, argument);
        pthread_attr_destroy(&attributes);
    }
    CPU_FREE(set);
    return error;
}

uint32_t dpb_cores_of(const struct dpb_cores_job *job, uint32_t rank, uint16_t *cores,
                      uint32_t capacity)
{
    if (find_cores() != DPB_OK)
        return 0;
    const struct dpb_cores_share share = dpb_cores_place(n_usable, job, rank);
    const uint32_t n = share.n < capacity ? share.n : capacity;
    for (uint32_t i = 0; i < n; i++)
        cores[i] = (uint16_t)usable[share.first + i];
    return n;
}

uint64_t dpb_cores_memory(const uint16_t *cores, uint32_t n)
{
    hwloc_bitmap_t nodes = find_cores() == DPB_OK ? hwloc_bitmap_alloc() : NULL;
    hwloc_obj_t node = NULL;
    uint64_t bytes = 0;
    for (uint32_t i = 0; nodes && i < n; i++) {
        hwloc_obj_t thread = hwloc_get_pu_obj_by_os_index(topology, cores[i]);
        if (thread && thread->nodeset)
            hwloc_bitmap_or(nodes, nodes, thread->nodeset);
    }
    while (nodes && (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)))
        if (hwloc_bitmap_isset(nodes, node->os_index))
            bytes += node->attr->numanode.local_memory;
    hwloc_bitmap_free(nodes);
    return bytes;
}

void dpb_cores_halves(char *first, char *second, size_t size)
{
    char *const lists[2] = {first, second};
    *first = *second = '\0';
    if (find_cores() != DPB_OK || n_usable < 2)
        return;
    for (uint32_t half = 0; half < 2; half++) {
        hwloc_bitmap_t set = hwloc_bitmap_alloc();
        for (uint32_t i = half * n_usable / 2; set && i < (half + 1) * n_usable / 2; i++)
            hwloc_bitmap_set(set, usable[i]);
        if (set)
            hwloc_bitmap_list_snprintf(lists[half], size, set);
        hwloc_bitmap_free(set);
    }
}

void dpb_cores_kinds(uint32_t n_cores, uint8_t *kinds, size_t n)
{
    memset(kinds, DPB_CPU_OTHER, n);
    if (find_cores() != DPB_OK)
        return;
    uint32_t n_used = n_cores > 0 && n_cores < n_usable ? n_cores : n_usable;
    for (uint32_t i = 0; i < n_used; i++) {
        hwloc_obj_t thread = hwloc_get_pu_obj_by_os_index(topology, usable[i]);
        hwloc_obj_t core =
            thread ? hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, thread) : NULL;
        for (int cpu = core ? hwloc_bitmap_first(core->cpuset) : -1; cpu >= 0;
             cpu = hwloc_bitmap_next(core->cpuset, cpu))
            if ((size_t)cpu < n)
                kinds[cpu] = n_cores > 0 ? DPB_CPU_SIBLING : DPB_CPU_USED;
        if (usable[i] < n)
            kinds[usable[i]] = DPB_CPU_USED;
    }
}

/* ---- the machine --------------------------------------------------------------------------- */

/* The first line of a file; JSON null if the system does not report it. */
static json_t *line_of(const char *path)
{
    char line[256];
    return dpb_proc_line(line, sizeof line, "%s", path) ? json_string(line) : json_null();
}

/* A clock of the first processor, Hz. */
static json_t *clock_of(const char *name)
{
    uint64_t khz = 0;
    dpb_proc_count(&khz, "/sys/devices/system/cpu/cpu0/cpufreq/%s", name);
    return khz > 0 ? json_real((double)khz * 1e3) : json_null();
}

/* The value of a line "NAME : VALUE" in /proc/cpuinfo. */
static json_t *field_of(const char *name)
{
    char *line = NULL;
    size_t capacity = 0, n = strlen(name);
    json_t *value = NULL;
    FILE *file = dpb_proc_open("/proc/cpuinfo");
    while (file && !value && getline(&line, &capacity, file) > 0) {
        const char *colon = strchr(line, ':');
        if (!colon || !dpb_begins_with(line, name) ||
            strspn(line + n, " \t") + n != (size_t)(colon - line))
            continue;
        const char *text = colon + 1 + strspn(colon + 1, " \t");
        value = json_stringn(text, strcspn(text, "\n"));
    }
    if (file)
        fclose(file);
    free(line);
    return value ? value : json_null();
}

/* The instruction sets that decide how fast a network computes. */
static json_t *describe_instructions(void)
{
    static const char *const sets[] = {"avx2",     "fma",         "avx512f",     "avx512_vnni",
                                       "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16",
                                       "asimd",    "sve",         "bf16"};
    json_t *found = json_array();
    json_t *flags = field_of("flags");
    if (!json_is_string(flags))
        flags = field_of("Features"); /* as ARM's say */
    const char *text = json_is_string(flags) ? json_string_value(flags) : "";
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (dpb_text_lists(text, " ", sets[i], strlen(sets[i])))
            json_array_append_new(found, json_string(sets[i]));
    json_decref(flags);
    return found;
}

/* The processor's name and the other facts about it. */
static void set_processor(json_t *machine)
{
    static const struct {
        const char *name, *field;
    } fields[] = {{"vendor", "vendor_id"},
                  {"family", "cpu family"},
                  {"model", "model"},
                  {"stepping", "stepping"},
                  {"microcode", "microcode"}};
    json_object_set_new(machine, "processor", field_of("model name"));
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        json_object_set_new(machine, fields[i].name, field_of(fields[i].field));
    json_object_set_new(machine, "instructions", describe_instructions());
    json_object_set_new(machine, "smt", line_of("/sys/devices/system/cpu/smt/active"));
    json_object_set_new(machine, "isolated_cpus", line_of("/sys/devices/system/cpu/isolated"));
    json_object_set_new(machine, "numa_balancing", line_of("/proc/sys/kernel/numa_balancing"));
}

/* One row a kind of cache: level, bytes, how many of them, how many hardware threads share one. */
static json_t *describe_caches(void)
{
    json_t *caches = json_array();
    for (int depth = 0; depth < hwloc_topology_get_depth(topology); depth++) {
        hwloc_obj_t cache = hwloc_get_obj_by_depth(topology, depth, 0);
        if (!cache || !hwloc_obj_type_is_cache(cache->type))
            continue;
        char name[32];
        hwloc_obj_type_snprintf(name, sizeof name, cache, 0);
        json_array_append_new(caches,
                              json_pack("{s:s, s:I, s:i, s:i}", "name", name, "bytes",
                                        (json_int_t)cache->attr->cache.size, "number",
                                        (int)hwloc_get_nbobjs_by_depth(topology, depth),
                                        "threads_each", hwloc_bitmap_weight(cache->cpuset)));
    }
    return caches;
}

static void set_topology(json_t *machine)
{
    json_object_set_new(machine, "cores",
                        json_integer(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE)));
    json_object_set_new(machine, "threads",
                        json_integer(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU)));
    json_object_set_new(machine, "usable_cores", json_integer(n_usable));
    json_object_set_new(machine, "packages",
                        json_integer(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE)));
    json_object_set_new(machine, "numa_nodes",
                        json_integer(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE)));
    json_object_set_new(machine, "memory_bytes",
                        json_integer((json_int_t)hwloc_get_root_obj(topology)->total_memory));
    json_object_set_new(machine, "caches", describe_caches());
}

json_t *dpb_machine_describe(void)
{
    struct utsname system;
    json_t *machine = json_object();
    uint64_t used_bytes, cache_bytes, memory = dpb_cgroup_memory("", &used_bytes, &cache_bytes);
    if (!machine)
        return NULL;
    if (uname(&system) == 0) {
        json_object_set_new(machine, "host", json_string(system.nodename));
        json_object_set_new(machine, "kernel", json_string(system.release));
        json_object_set_new(machine, "architecture", json_string(system.machine));
    }
    set_processor(machine);
    if (find_cores() == DPB_OK)
        set_topology(machine);
    double quota = dpb_cgroup_cpus("");
    json_t *limits = json_object();
    json_object_set_new(limits, "cpus", isfinite(quota) ? json_real(quota) : json_null());
    json_object_set_new(limits, "memory_bytes",
                        memory != UINT64_MAX ? json_integer((json_int_t)memory) : json_null());
    json_object_set_new(machine, "cgroup", limits);
    json_object_set_new(machine, "governor",
                        line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    json_object_set_new(machine, "clock_min_hz", clock_of("cpuinfo_min_freq"));
    json_object_set_new(machine, "clock_max_hz", clock_of("cpuinfo_max_freq"));
    json_object_set_new(machine, "transparent_huge_pages",
                        line_of("/sys/kernel/mm/transparent_hugepage/enabled"));
    return machine;
}
