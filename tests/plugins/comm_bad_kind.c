/* comm_bad_kind.c - a data plugin under a communicator's file name. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_kind");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.kind = DPB_PLUGIN_DATA;
    return &plugin;
}
