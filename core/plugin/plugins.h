/*
 * plugins.h - finds, loads and checks plugins.
 */
#ifndef DPB_CORE_PLUGIN_PLUGINS_H
#define DPB_CORE_PLUGIN_PLUGINS_H

#include "dpbench/plugin.h"

/* "model", "data", "device", "comm", "codec" */
extern const char *const dpb_plugin_kind_name[DPB_PLUGIN_KINDS];
/* The setting that names the plugin of a kind; the plugin's options are in the same section. */
extern const struct dpb_plugin_place {
    const char *section, *key;
} dpb_plugin_place[DPB_PLUGIN_KINDS];

enum { DPB_PLUGIN_CHAIN = 256 /* plugins of a shared object */, DPB_REASON_BYTES = 1024 };

/* The kinds whose options are in a section, as bits 1 << kind. */
uint32_t dpb_plugin_kinds_in(const char *section);

/* [a-z0-9_]+ */
bool dpb_plugin_name_valid(const char *name);
/* Whether the plugins from `first` on are of `kind`, for this ABI, complete, and their options lie
 * within their structs; else `reason` names the field. No hook is called. */
bool dpb_plugin_check(const struct dpb_plugin *first, dpb_plugin_kind kind,
                      char reason[DPB_REASON_BYTES]);
/* Whether `ops`, the plugin's or others of its kind, have all hooks that the plugin must have. */
bool dpb_plugin_check_hooks(const struct dpb_plugin *plugin, const void *ops,
                            char reason[DPB_REASON_BYTES]);

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

/* Plugins of ours that this program was built without. */
struct dpb_plugin_not_built {
    dpb_plugin_kind kind;
    const char *name; /* NULL: the end of the list */
    const char *reason;
};
extern const struct dpb_plugin_not_built dpb_plugins_not_built[];

#endif
