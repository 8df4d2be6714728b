/*
 * trial.h - whether a shared object can be loaded at all, found out where it does no harm: a
 * truncated file kills the process that loads it, and a constructor may exit, abort or hang.
 */
#ifndef DPB_CORE_PLUGIN_TRIAL_H
#define DPB_CORE_PLUGIN_TRIAL_H

#include <stdbool.h>
#include <stddef.h>

#include "dpbench/plugin.h"

/* Whether `path` is a regular file that holds all that its program headers map. What is no ELF file
 * is for dlopen to refuse. */
bool dpb_trial_look(const char *path, char *reason, size_t size);
/* Loads it and calls its entry in a child, which has 5 s and prints nothing. What comes back at all
 * is told by the same in this process. */
bool dpb_trial_load(const char *path, const struct dpb_host *host, char *reason, size_t size);

#endif
