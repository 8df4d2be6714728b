/* usage.c - see usage.h. */
#include "machine/usage.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "machine/load.h"
#include "machine/memory.h"
#include "machine/proc.h"

enum { SECTOR_BYTES = 512, NAME = DPB_USAGE_NAME };

/* Whether the object of that class has the entry. */
static bool has_entry(const char *root, const char *class, const char *object, const char *entry)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sys/%s/%s/%s", root, class, object, entry);
    return access(path, F_OK) == 0;
}

static void sample_cpus(const char *root, const int32_t *pids, uint32_t n_pids,
                        struct dpb_usage *usage)
{
    struct dpb_load_sample load;
    dpb_load_times(root, NULL, 0, pids, n_pids, &load);
    usage->at_ns = load.at_ns;
    usage->cpus = load.n_used;
    usage->own_ns = load.own_ns;
    usage->busy_ns = load.used_ns;
}

static void sample_memory(const char *root, const int32_t *pids, uint32_t n_pids,
                          struct dpb_usage *usage)
{
    struct dpb_machine_memory memory;
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    dpb_memory_look(root, &memory);
    usage->memory_bytes = memory.used_bytes;
    for (uint32_t i = 0; i < n_pids; i++) {
        char line[128];
        unsigned long long resident, shared;
        if (!dpb_proc_line(line, sizeof line, "%s/proc/%d/statm", root, pids[i]))
            continue;
        usage->living++;
        if (sscanf(line, "%*u %llu %llu", &resident, &shared) == 2 && resident > shared)
            usage->own_memory_bytes += (resident - shared) * page_bytes;
    }
}

/* Whether another interface counts the same bytes. A member of a bridge or bond has a master, which
 * does. A VLAN stands on an interface that does, and a master on its members alone. */
static bool is_counted_elsewhere(const char *root, const char *name)
{
    static const char below[] = "lower_";
    char path[PATH_MAX];
    bool found = has_entry(root, "class/net", name, "master");
    snprintf(path, sizeof path, "%s/sys/class/net/%s", root, name);
    DIR *directory = found ? NULL : opendir(path);
    for (const struct dirent *entry; directory && !found && (entry = readdir(directory));)
        found = dpb_begins_with(entry->d_name, below) &&
                !has_entry(root, "class/net", entry->d_name + strlen(below), "master");
    if (directory)
        closedir(directory);
    return found;
}

/* Lines are "NAME: received packets ... sent ...". */
static void sample_network(const char *root, struct dpb_usage *usage)
{
    char line[512], name[NAME];
    FILE *file = dpb_proc_open("%s/proc/net/dev", root);
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long received, sent;
        if (sscanf(line, " %63[^: ]: %llu %*u %*u %*u %*u %*u %*u %*u %llu", name, &received,
                   &sent) != 3)
            continue;
        if (strcmp(name, "lo") == 0) {
            usage->loopback_bytes += received;
        } else if (!is_counted_elsewhere(root, name)) {
            usage->received_bytes += received;
            usage->sent_bytes += sent;
        }
    }
    if (file)
        fclose(file);
}

/* Whole disks: the counts of a partition or a mapping are in the counts of a disk. */
static void sample_disks(const char *root, struct dpb_usage *usage)
{
    char line[512], name[NAME];
    FILE *file = dpb_proc_open("%s/proc/diskstats", root);
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long read_sectors, written_sectors;
        if (sscanf(line, "%*u %*u %63s %*u %*u %llu %*u %*u %*u %llu", name, &read_sectors,
                   &written_sectors) != 3)
            continue;
        if (has_entry(root, "block", name, "device")) {
            usage->read_bytes += read_sectors * SECTOR_BYTES;
            usage->written_bytes += written_sectors * SECTOR_BYTES;
        }
    }
    if (file)
        fclose(file);
}

static bool read_energy(const char *root, const char *zone, const char *name, uint64_t *uj)
{
    return dpb_proc_count(uj, "%s/sys/class/powercap/%s/%s", root, zone, name);
}

/* Packages alone: a zone psys holds them, and zones below them are parts of them. Two drivers may
 * report the same package. The name of the zone is shorter than DPB_USAGE_NAME. */
static void look_at_zone(const char *root, const char *zone, struct dpb_usage_meter *meter)
{
    char name[NAME];
    uint64_t energy_uj, range_uj;
    uint32_t i = 0;
    if (!dpb_proc_line(name, sizeof name, "%s/sys/class/powercap/%s/name", root, zone) ||
        !dpb_begins_with(name, "package") || !read_energy(root, zone, "energy_uj", &energy_uj) ||
        !read_energy(root, zone, "max_energy_range_uj", &range_uj))
        return;
    while (i < meter->n_packages && strcmp(meter->names[i], name) != 0)
        i++;
    if (i == DPB_USAGE_PACKAGES)
        return;
    snprintf(meter->names[i], sizeof meter->names[i], "%s", name);
    memcpy(meter->zones[i], zone, strlen(zone) + 1);
    meter->last_uj[i] = energy_uj;
    meter->range_uj[i] = range_uj;
    meter->n_packages += i == meter->n_packages;
}

static void find_packages(const char *root, struct dpb_usage_meter *meter)
{
    char zones[PATH_MAX];
    struct dirent **entries;
    snprintf(zones, sizeof zones, "%s/sys/class/powercap", root);
    const int n = scandir(zones, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strlen(entries[i]->d_name) < DPB_USAGE_NAME)
            look_at_zone(root, entries[i]->d_name, meter);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    meter->looked = true;
}

void dpb_usage_follow(const char *root, struct dpb_usage_meter *meter)
{
    if (!meter->looked)
        find_packages(root, meter);
    for (uint32_t i = 0; i < meter->n_packages; i++) {
        uint64_t now_uj = meter->last_uj[i];
        read_energy(root, meter->zones[i], "energy_uj", &now_uj);
        const bool wrapped = now_uj < meter->last_uj[i];
        meter->sum_uj += now_uj + (wrapped ? meter->range_uj[i] : 0) - meter->last_uj[i];
        meter->last_uj[i] = now_uj;
    }
}

void dpb_usage_sample(const char *root, const int32_t *pids, uint32_t n_pids,
                      struct dpb_usage_meter *meter, struct dpb_usage *usage)
{
    *usage = (struct dpb_usage){.at_ns = 0};
    sample_cpus(root, pids, n_pids, usage);
    sample_memory(root, pids, n_pids, usage);
    sample_network(root, usage);
    sample_disks(root, usage);
    dpb_usage_follow(root, meter);
    usage->package_j = meter->n_packages > 0 ? (double)meter->sum_uj * 1e-6 : NAN;
}

int64_t dpb_usage_run_delay_ns(void)
{
    DIR *tasks = opendir("/proc/self/task");
    long long sum_ns = 0;
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[sizeof "/proc/self/task//schedstat" + sizeof entry->d_name];
        unsigned long long delay_ns;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "re") : NULL;
        if (!file)
            continue; /* of a thread that has ended */
        if (fscanf(file, "%*u %llu", &delay_ns) == 1)
            sum_ns += (long long)delay_ns;
        fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return sum_ns;
}

int64_t dpb_usage_storage_bytes(void)
{
    FILE *file = fopen("/proc/self/io", "re");
    char line[64];
    long long bytes = -1;
    while (file && fgets(line, sizeof line, file) && sscanf(line, "read_bytes: %lld", &bytes) != 1)
        ;
    if (file)
        fclose(file);
    return bytes;
}
