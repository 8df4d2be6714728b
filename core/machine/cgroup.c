/*
 * cgroup.c - limits of control groups, read by hand.
 *
 * A container often sees its own group as the root of the mount while the membership names a path
 * of the host's that does not exist here: files that are missing say nothing, and the root is
 * always looked at.
 */
#include "machine/cgroup.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "machine/proc.h"

/* cpu.max is "QUOTA PERIOD" or "max PERIOD"; version 1 has two files and -1 for none. */
static double cpus_of(const char *directory)
{
    char line[128], period_line[128];
    double quota = -1, period = 0;
    if (dpb_proc_line(line, sizeof line, "%s/cpu.max", directory)) {
        if (sscanf(line, "%lf %lf", &quota, &period) != 2)
            return INFINITY;
    } else if (dpb_proc_line(line, sizeof line, "%s/cpu.cfs_quota_us", directory) &&
               dpb_proc_line(period_line, sizeof period_line, "%s/cpu.cfs_period_us", directory)) {
        quota = strtod(line, NULL);
        period = strtod(period_line, NULL);
    }
    return quota > 0 && period > 0 ? quota / period : INFINITY;
}

static double memory_of(const char *directory)
{
    char line[128];
    char *end;
    if (!dpb_proc_line(line, sizeof line, "%s/memory.max", directory) &&
        !dpb_proc_line(line, sizeof line, "%s/memory.limit_in_bytes", directory))
        return INFINITY;
    double bytes = strtod(line, &end);
    return end != line && bytes < 0x1p62 ? bytes : INFINITY; /* version 1: a huge number for none */
}

/* The least limit so far, and its group's directory; `nearest`: the first that there is. */
struct tightest {
    double limit;
    bool nearest;
    char directory[PATH_MAX];
};

static void tighten(struct tightest *tightest, const char *directory, double limit)
{
    if (limit < tightest->limit && !(tightest->nearest && isfinite(tightest->limit))) {
        tightest->limit = limit;
        snprintf(tightest->directory, sizeof tightest->directory, "%s", directory);
    }
}

/* From a group ("/": the root) over those above it to the root. */
static void look_at(const char *root, const char *group, double (*limit)(const char *directory),
                    struct tightest *tightest)
{
    char directory[PATH_MAX];
    size_t root_length = strlen(root);
    bool fits = (size_t)snprintf(directory, sizeof directory, "%s%s", root, group) < PATH_MAX;
    if (access(root, F_OK) != 0)
        return;
    while (fits && strlen(directory) > root_length + 1) {
        tighten(tightest, directory, limit(directory));
        *strrchr(directory, '/') = '\0';
    }
    tighten(tightest, root, limit(root));
}

/* Lines are ID:CONTROLLERS:GROUP; version 2 has the one with no controllers. */
static struct tightest look(const char *root, const char *controller,
                            double (*limit)(const char *directory), bool nearest)
{
    char line[PATH_MAX + 128], mount[PATH_MAX], below[PATH_MAX + 128];
    struct tightest result = {.limit = INFINITY, .nearest = nearest};
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
    FILE *file = dpb_proc_open("%s/proc/self/cgroup", root);
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        if (*controllers == '\0') {
            look_at(mount, group, limit, &result);
            snprintf(below, sizeof below, "%s/unified", mount);
            look_at(below, group, limit, &result);
        } else if (dpb_text_lists(controllers, ",", controller, strlen(controller))) {
            snprintf(below, sizeof below, "%s/%s", mount, controller);
            look_at(below, group, limit, &result);
            snprintf(below, sizeof below, "%s/%s", mount, controllers);
            if (strcmp(controllers, controller) != 0)
                look_at(below, group, limit, &result);
        }
    }
    if (file)
        fclose(file);
    tighten(&result, mount, limit(mount));
    return result;
}

static double limit_of(const char *root, const char *controller,
                       double (*limit)(const char *directory))
{
    return look(root, controller, limit, false).limit;
}

/* The counter of that name in one of the group's files; `none` where there is none. */
static double counter_of(const char *directory, const char *file_name, const char *name,
                         double none)
{
    const uint64_t value = dpb_proc_number(directory, file_name, name);
    return value < UINT64_MAX ? (double)value : none;
}

/* Negative, for limit_of takes the least: the group that was held back most. */
static double times_of(const char *directory)
{
    return -counter_of(directory, "cpu.stat", "nr_throttled", 0);
}

/* Version 2 counts microseconds, version 1 nanoseconds. */
static double held_ns_of(const char *directory)
{
    return -fmax(1e3 * counter_of(directory, "cpu.stat", "throttled_usec", 0),
                 counter_of(directory, "cpu.stat", "throttled_time", 0));
}

void dpb_cgroup_throttled(const char *root, uint64_t *times, int64_t *ns)
{
    *times = (uint64_t)-limit_of(root, "cpu", times_of);
    *ns = (int64_t)-limit_of(root, "cpu", held_ns_of);
}

double dpb_cgroup_cpus(const char *root)
{
    return limit_of(root, "cpu", cpus_of);
}

const char *dpb_cgroup_name_quota(const char *root, uint32_t n_cores, char text[DPB_CGROUP_QUOTA])
{
    const double quota = dpb_cgroup_cpus(root);
    text[0] = '\0';
    if (quota < n_cores + 1.0)
        snprintf(text, DPB_CGROUP_QUOTA, " (the control group's CPU quota is %.4g)", quota);
    return text;
}

/* In version 1 these names are the group's own numbers, beside totals; in version 2 the totals. */
static uint64_t cache_of(const char *directory)
{
    char line[128], name[64];
    uint64_t own = 0, total = 0;
    unsigned long long bytes;
    FILE *file = dpb_proc_open("%s/memory.stat", directory);
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63s %llu", name, &bytes) != 2)
            continue;
        if (strcmp(name, "inactive_file") == 0 || strcmp(name, "active_file") == 0)
            own += bytes;
        else if (strcmp(name, "total_inactive_file") == 0 || strcmp(name, "total_active_file") == 0)
            total += bytes;
    }
    if (file)
        fclose(file);
    return total > own ? total : own;
}

uint64_t dpb_cgroup_memory(const char *root, uint64_t *used_bytes, uint64_t *cache_bytes)
{
    char line[128];
    const struct tightest group = look(root, "memory", memory_of, false);
    *used_bytes = UINT64_MAX;
    *cache_bytes = 0;
    if (!isfinite(group.limit))
        return UINT64_MAX;
    if (dpb_proc_line(line, sizeof line, "%s/memory.current", group.directory) ||
        dpb_proc_line(line, sizeof line, "%s/memory.usage_in_bytes", group.directory))
        *used_bytes = strtoull(line, NULL, 10);
    *cache_bytes = cache_of(group.directory);
    return (uint64_t)group.limit;
}

static double kills_of(const char *directory)
{
    return fmin(counter_of(directory, "memory.events", "oom_kill", INFINITY),
                counter_of(directory, "memory.oom_control", "oom_kill", INFINITY));
}

/* The own group's kills: in version 2 a group above counts other groups' kills, too; in version 1
 * it does not count the groups below. */
uint64_t dpb_cgroup_memory_kills(const char *root)
{
    double kills = look(root, "memory", kills_of, true).limit;
    return isfinite(kills) ? (uint64_t)kills : UINT64_MAX;
}
