/* comm_bad_abi.c - built for the next ABI. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_abi");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.abi = DPB_ABI + 1;
    return &plugin;
}
