/* comm_bad_silent.c - cannot work here and does not say why. */
#include "dpbench/plugin.h"

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    return NULL;
}
