/*
 * memory.h - the memory that a job can have on this machine, and the processes that the system
 * killed for lack of it. `root` stands before /proc and /sys: "", but for tests.
 */
#ifndef DPB_CORE_MACHINE_MEMORY_H
#define DPB_CORE_MACHINE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct dpb_machine_memory {
    uint64_t total_bytes;     /* the machine's, or a smaller limit; UINT64_MAX: unknown */
    uint64_t available_bytes; /* the part that no process holds now, as the system guesses */
    uint64_t used_bytes; /* on the machine, or in the group that limits it; UINT64_MAX: unknown */
    bool limited;        /* by a control group */
};

/* Swap does not count as memory: a training that swaps measures the disk. */
void dpb_memory_look(const char *root, struct dpb_machine_memory *memory);

/* Processes that the system has killed for lack of memory: of this process's control group where
 * the system counts by group, else of all. UINT64_MAX: not reported. */
uint64_t dpb_memory_kills(const char *root);

#endif
