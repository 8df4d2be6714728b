/* comm_bad_ops_size.c - built with fewer hooks. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_ops_size");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.ops_size -= 8;
    return &plugin;
}
