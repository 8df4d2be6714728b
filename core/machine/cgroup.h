/*
 * cgroup.h - the limits that a container or a batch system sets by control groups, of version 2
 * or 1.
 */
#ifndef DPB_CORE_MACHINE_CGROUP_H
#define DPB_CORE_MACHINE_CGROUP_H

#include <stdint.h>

/*
 * The tightest limit on the way from this process's group to the root of all groups; INFINITY or
 * UINT64_MAX when there is none or the system does not report it. `root` stands before /sys and
 * /proc: "", but for tests.
 */
double dpb_cgroup_cpus(const char *root);
enum { DPB_CGROUP_QUOTA = 64 };
/* " (the control group's CPU quota is 1.5)" where that limit is why only `n_cores` are usable, else
 * "". Returns `text`. */
const char *dpb_cgroup_name_quota(const char *root, uint32_t n_cores, char text[DPB_CGROUP_QUOTA]);
/* `used_bytes`: memory that the group with this limit uses, page cache included; or UINT64_MAX.
 * `cache_bytes`: of files in the page cache, which make room for others; 0: not reported. */
uint64_t dpb_cgroup_memory(const char *root, uint64_t *used_bytes, uint64_t *cache_bytes);
/* How often, and for how long in all, CPU quotas on the way to the root held processes back; each
 * the largest of any group. 0: never, or the system does not report it. */
void dpb_cgroup_throttled(const char *root, uint64_t *times, int64_t *ns);
/* Processes of this process's group that the system has killed for lack of memory. UINT64_MAX: not
 * reported, as in the root group of version 2. */
uint64_t dpb_cgroup_memory_kills(const char *root);

#endif
