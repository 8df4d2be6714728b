/* ps_rule.c - see ps_rule.h. */
#include "comm/ps_cpu/ps_rule.h"

static bool takes_newest(const struct ps_async_options *options)
{
    return options->policy == PS_K_SYNC || options->policy == PS_K_BATCH_SYNC;
}

/* Says which option contradicts something else, and the remedy; NULL: no option does. */
static const char *contradiction(const struct ps_async_options *options,
                                 const struct dpb_comm_args *args)
{
    const uint32_t n_workers = args->n_workers;
    const bool k_rule = options->policy != PS_ASYNC;
    const bool apart = options->push_every > 1 || options->fetch_every > 1;
    const bool newest = takes_newest(options), held = newest || options->policy == PS_K_ASYNC;
    if (args->survives && options->ps.transport == PS_OVER_VERBS)
        return "run.survive = yes, and RDMA does not say that a worker has died; leave out "
               "comm.transport = verbs";
    if (options->softsync > n_workers)
        return "comm.softsync is more than the workers; give at most one push a worker";
    if (k_rule && options->softsync > 1)
        return "comm.softsync and comm.policy both say what makes an update; give one of them";
    if (k_rule && options->k < 1)
        return "comm.policy needs comm.k";
    if (k_rule && options->k > n_workers && options->policy != PS_K_BATCH_SYNC)
        return "comm.k is more than the workers; with comm.policy = k_batch_sync alone a worker "
               "may give several gradients of an update";
    if (!k_rule && options->k > 0)
        return "comm.k goes with comm.policy = k_sync, k_batch_sync, k_async or k_batch_async; "
               "give one of them";
    if (newest && options->bound >= 0)
        return "comm.bound says how old gradients may be, and with comm.policy = k_sync or "
               "k_batch_sync none that counts is; leave out comm.bound";
    if (newest && options->rate == PS_STALENESS)
        return "with comm.policy = k_sync or k_batch_sync no gradient that counts is stale; leave "
               "out comm.rate";
    if (options->policy == PS_K_ASYNC && options->bound >= 0)
        return "with comm.policy = k_async a worker waits for its update, which may need a worker "
               "that comm.bound holds back; leave out comm.bound";
    if (apart && held)
        return "with comm.policy = k_sync, k_batch_sync or k_async each step pushes and fetches; "
               "leave out comm.push_every and comm.fetch_every";
    if (apart && options->bound >= 0)
        return "comm.bound counts steps, and with comm.push_every or comm.fetch_every above 1 "
               "servers do not see each step; leave out comm.bound";
    return NULL;
}

dpb_status ps_make_rule(const struct ps_async_options *options, const struct dpb_comm_args *args,
                        struct ps_rule *rule)
{
    const char *reason = contradiction(options, args);
    if (reason)
        return ps_host->fail(DPB_UNSUPPORTED, "%s", reason);
    rule->count = (uint32_t)(options->policy == PS_ASYNC ? options->softsync : options->k);
    rule->batch = rule->count > 1 && options->policy != PS_K_SYNC && options->policy != PS_K_ASYNC;
    rule->sync = takes_newest(options);
    rule->rejoins = options->policy == PS_K_BATCH_SYNC;
    return DPB_OK;
}
