/*
 * object.h - shared objects beside the plugins, which hold what only some runs of a strategy need:
 * a library's name in them does not make the strategy need it.
 */
#ifndef DPB_PLUGINS_LIB_OBJECT_H
#define DPB_PLUGINS_LIB_OBJECT_H

#include "dpbench/host.h"

/* The object's one symbol: returns its table of functions; NULL after host->fail. */
typedef const void *object_entry(const struct dpb_host *host);

/* Loads `file` from beside the plugin that this is part of, for as long as the process lives, and
 * calls `symbol` in it, an object_entry. Refused where it is not there, or cannot be loaded; `what`
 * is the library's name. */
dpb_status object_load(const struct dpb_host *host, const char *file, const char *what,
                       const char *symbol, const void **table);

#endif
