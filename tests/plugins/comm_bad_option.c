/* comm_bad_option.c - an option that would be written behind its options struct. */
#include "stub.h"

static const struct dpb_option rows[] = {
    {"behind", DPB_OPT_INT, NULL, "1", 0, 0, NULL, 8, "Lies behind the struct."},
    {NULL, DPB_OPT_INT, NULL, NULL, 0, 0, NULL, 0, NULL}};

static struct dpb_plugin plugin = STUB_PLUGIN("bad_option");

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    plugin.options = rows;
    plugin.options_size = 8;
    return &plugin;
}
