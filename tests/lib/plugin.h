/*
 * plugin.h - a plugin taken straight from its shared object, without core's search and checks: for
 * tests of devices, models and data that no run surrounds.
 */
#ifndef DPB_TESTS_LIB_PLUGIN_H
#define DPB_TESTS_LIB_PLUGIN_H

#include "dpbench/plugin.h"

/* What core hands to devices, models and data, but nothing of a world. A copy with another hook is
 * a test's own host; it must outlive the plugins loaded with it. */
extern const struct dpb_host plugin_host;

/* All plugins of KIND_FILE.so in the build directory's plugins, linked by `next`. Fails the test
 * when it is not there. Never unloaded; loaded again with another host, it gives that host to both.
 */
const struct dpb_plugin *plugin_load(dpb_plugin_kind kind, const char *file,
                                     const struct dpb_host *host);
/* The same, from another directory below the build directory than "plugins". */
const struct dpb_plugin *plugin_load_from(const char *directory, dpb_plugin_kind kind,
                                          const char *file, const struct dpb_host *host);

#endif
