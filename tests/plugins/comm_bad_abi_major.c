/* comm_bad_abi_major.c - built for the next ABI. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_abi_major");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.abi_major = DPB_ABI_MAJOR + 1;
    return &plugin;
}
