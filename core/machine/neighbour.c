/* neighbour.c - see neighbour.h. */
#include "machine/neighbour.h"

#include <dirent.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "machine/cores.h"
#include "machine/proc.h"

#define ALLOWED "Cpus_allowed_list:"

/* Whether the list, as "0-3,8", has a hardware thread that the job uses. */
static bool has_used(const char *list, const uint8_t *cpus, size_t n_cpus)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    bool found = false;
    if (set && hwloc_bitmap_list_sscanf(set, list) == 0)
        for (size_t i = 0; i < n_cpus && !found; i++)
            found = cpus[i] == DPB_CPU_USED && hwloc_bitmap_isset(set, (unsigned)i) != 0;
    hwloc_bitmap_free(set);
    return found;
}

static bool shares(const char *root, int32_t pid, const uint8_t *cpus, size_t n_cpus)
{
    char line[4096];
    bool found = false;
    FILE *file = dpb_proc_open("%s/proc/%d/status", root, (int)pid);
    while (file && !found && fgets(line, sizeof line, file))
        if (dpb_begins_with(line, ALLOWED)) {
            const char *list = line + strlen(ALLOWED);
            line[strcspn(line, "\n")] = '\0';
            found = has_used(list + strspn(list, " \t"), cpus, n_cpus);
        }
    if (file)
        fclose(file);
    return found;
}

/* A rank's child has its name, too. */
static bool is_own(int32_t pid, int32_t parent, const int32_t *pids, uint32_t n_pids)
{
    for (uint32_t i = 0; i < n_pids; i++)
        if (pids[i] == pid || pids[i] == parent)
            return true;
    return false;
}

static void describe(const char *root, int32_t launcher, struct dpb_neighbour *found)
{
    char path[300];
    *found = (struct dpb_neighbour){.pid = launcher};
    snprintf(path, sizeof path, "%s/proc/%d/cwd", root, (int)launcher);
    const ssize_t n = readlink(path, found->directory, sizeof found->directory - 1);
    if (n > 0)
        found->directory[n] = '\0';
    dpb_cores_halves(found->halves[0], found->halves[1], sizeof found->halves[0]);
}

void dpb_neighbour_find(const char *root, const uint8_t *cpus, size_t n_cpus, const int32_t *pids,
                        uint32_t n_pids, struct dpb_neighbour *found)
{
    char path[300], name[64];
    struct dpb_proc proc;
    snprintf(path, sizeof path, "%s/proc", root);
    DIR *list = opendir(path);
    found->pid = 0;
    for (const struct dirent *entry; list && found->pid == 0 && (entry = readdir(list));) {
        const int32_t pid = (int32_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0 && dpb_proc_line(name, sizeof name, "%s/proc/%d/comm", root, (int)pid) &&
            dpb_begins_with(name, DPB_RANK_NAME) && dpb_proc_read(root, pid, &proc) &&
            !is_own(pid, proc.parent, pids, n_pids) && shares(root, pid, cpus, n_cpus))
            describe(root, proc.parent, found);
    }
    if (list)
        closedir(list);
}
