/* comm_bad_struct_size.c - built with a larger struct. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_struct_size");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.struct_size += 8;
    return &plugin;
}
