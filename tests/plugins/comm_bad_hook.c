/* comm_bad_hook.c - one hook left out. */
#include "stub.h"

static struct dpb_comm_ops ops;
static struct dpb_plugin plugin = STUB_PLUGIN("bad_hook");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    ops = stub_ops;
    ops.publish = NULL;
    plugin.ops = &ops;
    return &plugin;
}
