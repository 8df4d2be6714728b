/*
 * cgroup.h - the limits that a container or a batch system sets by control groups, of version 2
 * or 1.
 */
#ifndef DPB_CORE_MACHINE_CGROUP_H
#define DPB_CORE_MACHINE_CGROUP_H

#include <stdint.h>

/*
 * The tightest limit on the way from this process's group to the root of all groups; INFINITY or
 * UINT64_MAX when there is none or the system does not tell. `root` stands before /sys and /proc:
 * "", but for tests.
 */
double dpb_cgroup_cpus(const char *root);
/* `used_bytes`: what the group with this limit uses, page cache included; or UINT64_MAX. */
uint64_t dpb_cgroup_memory(const char *root, uint64_t *used_bytes);
/* How often a CPU quota on that way held the processes of its group back, and for how long in all;
 * of the group where it was most. 0: never, or the system does not tell. */
void dpb_cgroup_throttled(const char *root, uint64_t *times, int64_t *ns);
/* Processes of this process's group that the system has ended for want of memory. UINT64_MAX: the
 * system does not tell, as in the root group of version 2. */
uint64_t dpb_cgroup_memory_kills(const char *root);

#endif
