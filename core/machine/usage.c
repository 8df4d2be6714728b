/* usage.c - see usage.h. */
#include "machine/usage.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpbench/host.h"
#include "machine/load.h"
#include "machine/memory.h"

enum { SECTOR_BYTES = 512, NAME = DPB_USAGE_NAME };

/* A file's path below the root. */
struct path {
    char text[PATH_MAX];
};

DPB_PRINTF(2, 3) static struct path below(const char *root, const char *format, ...)
{
    struct path path;
    va_list list;
    const int n = snprintf(path.text, sizeof path.text, "%s", root);
    va_start(list, format);
    vsnprintf(path.text + n, sizeof path.text - (size_t)n, format, list);
    va_end(list);
    return path;
}

static bool is_there(const struct path *path)
{
    return access(path->text, F_OK) == 0;
}

/* A file of one number. */
static bool read_number(const struct path *path, uint64_t *number)
{
    unsigned long long value;
    FILE *file = fopen(path->text, "re");
    const bool found = file && fscanf(file, "%llu", &value) == 1;
    if (file)
        fclose(file);
    if (found)
        *number = value;
    return found;
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
        unsigned long long resident, shared;
        const struct path path = below(root, "/proc/%d/statm", pids[i]);
        FILE *file = fopen(path.text, "re");
        if (file && fscanf(file, "%*u %llu %llu", &resident, &shared) == 2 && resident > shared)
            usage->own_memory_bytes += (resident - shared) * page_bytes;
        if (file)
            fclose(file);
    }
}

/* Lines are "NAME: received packets ... sent ...". A member of a bridge or bond has a master, which
 * counts the same bytes. */
static void sample_network(const char *root, struct dpb_usage *usage)
{
    char line[512], name[NAME];
    const struct path devices = below(root, "/proc/net/dev");
    FILE *file = fopen(devices.text, "re");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long received, sent;
        if (sscanf(line, " %63[^: ]: %llu %*u %*u %*u %*u %*u %*u %*u %llu", name, &received,
                   &sent) != 3)
            continue;
        const struct path master = below(root, "/sys/class/net/%s/master", name);
        if (strcmp(name, "lo") == 0) {
            usage->loopback_bytes += received;
        } else if (!is_there(&master)) {
            usage->received_bytes += received;
            usage->sent_bytes += sent;
        }
    }
    if (file)
        fclose(file);
}

/* Whole disks: a partition or a mapping counts what a disk counts. */
static void sample_disks(const char *root, struct dpb_usage *usage)
{
    char line[512], name[NAME];
    const struct path disks = below(root, "/proc/diskstats");
    FILE *file = fopen(disks.text, "re");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long read_sectors, written_sectors;
        if (sscanf(line, "%*u %*u %63s %*u %*u %llu %*u %*u %*u %llu", name, &read_sectors,
                   &written_sectors) != 3)
            continue;
        const struct path device = below(root, "/sys/block/%s/device", name);
        if (is_there(&device)) {
            usage->read_bytes += read_sectors * SECTOR_BYTES;
            usage->written_bytes += written_sectors * SECTOR_BYTES;
        }
    }
    if (file)
        fclose(file);
}

static struct path zone_file(const char *root, const char *zone, const char *file)
{
    return below(root, "/sys/class/powercap/%s/%s", zone, file);
}

/* Packages alone: a zone psys holds them, and zones below them are parts of them. Two drivers may
 * tell of the same package. */
static void look_at_zone(const char *root, const char *zone, struct dpb_usage_meter *meter)
{
    char name[NAME] = "";
    const struct path named = zone_file(root, zone, "name");
    const struct path energy = zone_file(root, zone, "energy_uj");
    const struct path range = zone_file(root, zone, "max_energy_range_uj");
    uint64_t energy_uj, range_uj;
    uint32_t i = 0;
    FILE *file = fopen(named.text, "re");
    if (file && !fgets(name, sizeof name, file))
        name[0] = '\0';
    if (file)
        fclose(file);
    if (strncmp(name, "package", strlen("package")) != 0 || !read_number(&energy, &energy_uj) ||
        !read_number(&range, &range_uj))
        return;
    while (i < meter->n_packages && strcmp(meter->names[i], name) != 0)
        i++;
    if (i == DPB_USAGE_PACKAGES)
        return;
    snprintf(meter->names[i], sizeof meter->names[i], "%s", name);
    snprintf(meter->zones[i], sizeof meter->zones[i], "%s", zone);
    meter->last_uj[i] = energy_uj;
    meter->range_uj[i] = range_uj;
    meter->n_packages += i == meter->n_packages;
}

static void find_packages(const char *root, struct dpb_usage_meter *meter)
{
    const struct path all = below(root, "/sys/class/powercap");
    struct dirent **entries;
    const int n = scandir(all.text, &entries, NULL, alphasort);
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
        const struct path energy = zone_file(root, meter->zones[i], "energy_uj");
        uint64_t now_uj = meter->last_uj[i];
        read_number(&energy, &now_uj);
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
