/* memory.c - see memory.h. */
#include "machine/memory.h"

#include "machine/cgroup.h"
#include "machine/proc.h"

static uint64_t bytes_of(const char *root, const char *name)
{
    uint64_t kib = dpb_proc_number(root, "proc/meminfo", name);
    return kib < UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
}

void dpb_memory_look(const char *root, struct dpb_machine_memory *memory)
{
    uint64_t used, limit = dpb_cgroup_memory(root, &used);
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
    uint64_t kills = dpb_cgroup_memory_kills(root);
    return kills < UINT64_MAX ? kills : dpb_proc_number(root, "proc/vmstat", "oom_kill");
}
