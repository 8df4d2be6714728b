/* comm_bad_serve.c - promises servers and has no hook for them. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_serve");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.capabilities = DPB_COMM_SERVERS;
    return &plugin;
}
