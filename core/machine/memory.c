/* memory.c - see memory.h. */
#include "machine/memory.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "machine/cgroup.h"

/* The number behind `name` in a file of lines "NAME NUMBER ..."; UINT64_MAX: not there. */
static uint64_t number_of(const char *root, const char *file_name, const char *name)
{
    char path[PATH_MAX], line[256], found[64];
    unsigned long long value;
    uint64_t result = UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", root, file_name);
    FILE *file = fopen(path, "re");
    while (file && result == UINT64_MAX && fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %llu", found, &value) == 2 && strcmp(found, name) == 0)
            result = value;
    if (file)
        fclose(file);
    return result;
}

static uint64_t bytes_of(const char *root, const char *name)
{
    uint64_t kib = number_of(root, "proc/meminfo", name);
    return kib < UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
}

/* Where control groups are looked up for this process. */
struct groups {
    char mount[PATH_MAX], self[PATH_MAX];
};

static struct groups groups_below(const char *root)
{
    struct groups groups;
    snprintf(groups.mount, sizeof groups.mount, "%s/sys/fs/cgroup", root);
    snprintf(groups.self, sizeof groups.self, "%s/proc/self/cgroup", root);
    return groups;
}

void dpb_memory_look(const char *root, struct dpb_machine_memory *memory)
{
    const struct groups groups = groups_below(root);
    uint64_t used, limit = dpb_cgroup_memory(groups.mount, groups.self, &used);
    uint64_t total = bytes_of(root, "MemTotal:"), available = bytes_of(root, "MemAvailable:");
    if (limit >= total)
        used = available <= total && total < UINT64_MAX ? total - available : UINT64_MAX;
    *memory = (struct dpb_machine_memory){.total_bytes = limit < total ? limit : total,
                                          .available_bytes = limit < available ? limit : available,
                                          .used_bytes = used,
                                          .limited = limit < total};
}

uint64_t dpb_memory_kills(const char *root)
{
    const struct groups groups = groups_below(root);
    uint64_t kills = dpb_cgroup_memory_kills(groups.mount, groups.self);
    return kills < UINT64_MAX ? kills : number_of(root, "proc/vmstat", "oom_kill");
}
