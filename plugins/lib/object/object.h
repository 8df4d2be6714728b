/*
 * object.h - shared objects beside the plugins, for code that only some runs of a strategy need. A
 * strategy that can load such an object does not depend on the libraries that the object needs.
 */
#ifndef DPB_PLUGINS_LIB_OBJECT_H
#define DPB_PLUGINS_LIB_OBJECT_H

#include "dpbench/host.h"

/* The object's one symbol: returns its table of functions; NULL after host->fail. */
typedef const void *dpb_object_entry(const struct dpb_host *host);

/* Loads `file` from the directory of the calling plugin, for as long as the process lives, and
 * calls its `symbol`, a dpb_object_entry. Refuses if the file is missing or cannot be loaded;
 * `what` is the library's name in the message. */
dpb_status dpb_object_load(const struct dpb_host *host, const char *file, const char *what,
                           const char *symbol, const void **table);

#endif
