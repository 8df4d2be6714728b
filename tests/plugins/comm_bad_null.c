/* comm_bad_null.c - cannot work here and says why. */
#include "dpbench/plugin.h"

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    host->fail(DPB_UNSUPPORTED, "no adapter number %d: plug one in", 7);
    return NULL;
}
