/*
 * memory_group.h - dpbench in a control group of its own, with or without a limit on its memory.
 */
#ifndef DPB_TESTS_LIB_MEMORY_GROUP_H
#define DPB_TESTS_LIB_MEMORY_GROUP_H

#include "lib/command.h"

/* dpbench with a line of arguments; `limit_mib` 0: no limit. The last line of its standard error is
 * "peak BYTES", the most that the group had, where the system tells. False: this process may make
 * no group. */
bool run_in_group(struct command *command, unsigned limit_mib, const char *arguments);

#endif
