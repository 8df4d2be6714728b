/* comm_bad_name.c - another name than its file's. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_name");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.name = "other_name";
    return &plugin;
}
