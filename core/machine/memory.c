/* memory.c - see memory.h. */
#include "machine/memory.h"

#include "machine/cgroup.h"
#include "machine/proc.h"

static uint64_t bytes_of(const char *root, const char *name)
{
    uint64_t kib = dpb_proc_number(root, "proc/meminfo", name);
    return kib < UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
}

/* The part of a group's limit that its processes do not hold. */
static uint64_t left_of(uint64_t limit, uint64_t used, uint64_t cache)
{
    const uint64_t held = used == UINT64_MAX || used < cache ? 0 : used - cache;
    return limit > held ? limit - held : 0;
}

void dpb_memory_look(const char *root, struct dpb_machine_memory *memory)
{
    uint64_t used, cache, limit = dpb_cgroup_memory(root, &used, &cache);
    uint64_t total = bytes_of(root, "MemTotal:"), available = bytes_of(root, "MemAvailable:");
    const uint64_t left = limit < total ? left_of(limit, used, cache) : UINT64_MAX;
    if (limit >= total)
        used = available <= total && total < UINT64_MAX ? total - available : UINT64_MAX;
    *memory = (struct dpb_machine_memory){.total_bytes = limit < total ? limit : total,
                                          .available_bytes = left < available ? left : available,
                                          .used_bytes = used,
                                          .limited = limit < total};
}

uint64_t dpb_memory_kills(const char *root)
{
    uint64_t kills = dpb_cgroup_memory_kills(root);
    return kills < UINT64_MAX ? kills : dpb_proc_number(root, "proc/vmstat", "oom_kill");
}
