/*
 * check.h - the kinds of plugins, and what is wrong with a plugin as its entry gives it.
 */
#ifndef DPB_CORE_PLUGIN_CHECK_H
#define DPB_CORE_PLUGIN_CHECK_H

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

/* Plugins of ours that this program was built without. */
struct dpb_plugin_not_built {
    dpb_plugin_kind kind;
    const char *name; /* NULL: the end of the list */
    const char *reason;
};
extern const struct dpb_plugin_not_built dpb_plugins_not_built[];

#endif
