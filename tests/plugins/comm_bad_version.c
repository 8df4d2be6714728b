/* comm_bad_version.c - without a version. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_version");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.version = NULL;
    return &plugin;
}
