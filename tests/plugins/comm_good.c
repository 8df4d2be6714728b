/*
 * comm_good.c - two plugins in one shared object, with nothing wrong; `open` fails by the host, and
 * learners are refused.
 */
#include "stub.h"

static const struct dpb_host *host;

static dpb_status good_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    (void)options;
    (void)args;
    (void)comm;
    return host->fail(DPB_IO, "failed in open");
}

static dpb_status good_contract(const void *options, const struct dpb_comm_args *args,
                                struct dpb_contract *contract)
{
    (void)options;
    (void)contract;
    return args->learners > 1 ? host->fail(DPB_UNSUPPORTED, "comm 'good' has no place for learners")
                              : DPB_OK;
}

static struct dpb_comm_ops good_ops = {STUB_OPS};
static const struct dpb_plugin second = STUB_PLUGIN("good_second");
static const struct dpb_plugin good = {DPB_PLUGIN_HEAD(COMM, good_ops), .name = "good",
                                       .version = "1", .summary = "a test's", .next = &second};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *the_host)
{
    host = the_host;
    good_ops.open = good_open;
    good_ops.contract = good_contract;
    return &good;
}
