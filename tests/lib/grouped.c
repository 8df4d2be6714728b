/* grouped.c - see grouped.h. */
#include "lib/grouped.h"

#include "conform/networks.h"

const struct dpb_plugin grouped_model = {.name = "grouped", .ops = &dpb_network_grouped};
