/* comm_bad_characters.c - a name that no user could write. */
#include "stub.h"

static struct dpb_plugin plugin = STUB_PLUGIN("bad_characters");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.name = "Bad-Name";
    return &plugin;
}
