/* comm_bad_magic.c - no plugin by its first word. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_magic");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.magic = 0x1234;
    return &plugin;
}
