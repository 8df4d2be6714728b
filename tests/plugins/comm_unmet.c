/* comm_unmet.c - two strategies, each with needs that no machine meets. */
#include "stub.h"

static const struct dpb_host *host;

static dpb_status first_needs(const void *options, struct dpb_comm_needs *needs)
{
    (void)options;
    (void)needs;
    return host->fail(DPB_UNSUPPORTED, "the first needs a moon");
}

static dpb_status second_needs(const void *options, struct dpb_comm_needs *needs)
{
    (void)options;
    (void)needs;
    return host->fail(DPB_UNSUPPORTED, "the second needs a sun");
}

static const struct dpb_comm_ops first_ops = {STUB_OPS, .needs = first_needs};
static const struct dpb_comm_ops second_ops = {STUB_OPS, .needs = second_needs};
static const struct dpb_plugin second = {DPB_PLUGIN_HEAD(COMM, second_ops), .name = "unmet_second",
                                         .version = "1", .summary = "a test's"};
static const struct dpb_plugin first = {DPB_PLUGIN_HEAD(COMM, first_ops), .name = "unmet",
                                        .version = "1", .summary = "a test's", .next = &second};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *the_host)
{
    host = the_host;
    return &first;
}
