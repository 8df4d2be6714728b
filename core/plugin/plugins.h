/*
 * plugins.h - finds, loads and checks plugins.
 */
#ifndef DPB_CORE_PLUGIN_PLUGINS_H
#define DPB_CORE_PLUGIN_PLUGINS_H

#include "plugin/check.h"

/*
 * The plugin `name` of a kind: KIND_NAME.so in the directories of DPBENCH_PLUGIN_PATH (colons),
 * then EXE/plugins, then EXE/../lib/dpbench; then, for plugins that share another's object, every
 * other KIND_*.so there. Loaded once a process, never unloaded. Refused with the path and the
 * reason: dlopen's message, no entry, wrong magic, ABI, struct size, kind, ops size, a missing
 * hook. Not found: every path tried with its own reason, and a "did you mean". `where`: the origin
 * of the name, for messages; may be NULL. `host` is passed to entries.
 */
dpb_status dpb_plugin_load(dpb_plugin_kind kind, const char *name, const char *where,
                           const struct dpb_host *host, const struct dpb_plugin **plugin);

/* For processes that outlive a job: whatever happens to the files of plugins does not happen to a
 * process that calls this first. Ranks keep the files mapped: many of them share the memory, and
 * profilers find the functions' names. */
void dpb_plugins_detach(void);

/* The shared object that a loaded plugin is in; lives as long as the process. NULL: none was loaded
 * for it. */
const char *dpb_plugin_path(const struct dpb_plugin *plugin);
/* Whether that object came with dpbench: it is in one of dpbench's own directories, or below the
 * one of the program. */
bool dpb_plugin_is_own(const struct dpb_plugin *plugin);

/* One row of `dpbench plugins`: a plugin, or one that cannot be loaded, with the reason. */
struct dpb_plugin_row {
    dpb_plugin_kind kind;
    const char *path;                /* of the shared object */
    const struct dpb_plugin *plugin; /* NULL: refused */
    const char *reason;              /* when refused */
};
enum { DPB_PLUGIN_ALL_KINDS = (1 << DPB_PLUGIN_KINDS) - 1 };
/* The plugins of the kinds whose bits (1 << kind) are set, sorted by kind and name. `name`: only
 * plugins of files called KIND_NAME.so, and no other file is opened; NULL: all. *rows is @owned:
 * free(). Strings live as long as the process. */
dpb_status dpb_plugin_list(const struct dpb_host *host, uint32_t kinds, const char *name,
                           struct dpb_plugin_row **rows, size_t *n_rows);

#endif
