/* comm_bad_circle.c - a list of plugins that has no end. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_circle");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.next = &plugin;
    return &plugin;
}
