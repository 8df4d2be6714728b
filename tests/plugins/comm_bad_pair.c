/* comm_bad_pair.c - two promises that exclude each other. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_pair");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.capabilities |= DPB_COMM_ALONE | DPB_COMM_LAUNCHER;
    return &plugin;
}
