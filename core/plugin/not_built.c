/* not_built.c - the plugins of ours that this program was built without, as make has found
 * (tools/not-built). */
#include "plugin/check.h"

#define NOT_BUILT(kind, name, reason) {DPB_PLUGIN_##kind, name, reason},
const struct dpb_plugin_not_built dpb_plugins_not_built[] = {
#include "not_built.h"
    {DPB_PLUGIN_KINDS, NULL, NULL}};
