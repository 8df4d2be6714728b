/* comm_bad_bits.c - a capability that no header names. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_bits");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.capabilities |= UINT64_C(1) << 40;
    return &plugin;
}
