/*
 * independent - no exchange at all: every worker trains a replica of its own. The upper bound that
 * the other strategies are measured against.
 *
 * Bytes moved per step: none. Consistency: none.
 */
#include "dpbench/plugin.h"
#include "lib/strategy.h"

static const struct dpb_host *host;

/* ---- stage: update, once the own gradients are final --------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_READY, strategy_self(comm), bucket);
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait_ready(comm, strategy_self(comm), bucket);
}

static const struct stage stages[] = {{update_due, strategy_update_bucket, update_wait}};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status independent_open(const void *options, const struct dpb_comm_args *args,
                                   void **comm)
{
    (void)options;
    return strategy_open(host, args, sizeof(struct strategy), comm);
}

static dpb_status independent_plan(void *comm, const struct dpb_layout *layout,
                                   struct dpb_comm_plan *want)
{
    return strategy_plan_replica(comm, layout, DPB_MEMORY_PRIVATE, want);
}

static dpb_status independent_bind(void *comm, const struct dpb_arenas *arenas)
{
    return strategy_bind(comm, arenas, stages, 1);
}

static const struct dpb_comm_ops independent_ops = {.open = independent_open,
                                                    .plan = independent_plan,
                                                    .bind = independent_bind,
                                                    .load = strategy_load,
                                                    .begin = strategy_begin,
                                                    STRATEGY_HOOKS,
                                                    .close = strategy_close};

static const struct dpb_plugin independent = {
    DPB_PLUGIN_HEAD(COMM, independent_ops),
    .capabilities = DPB_COMM_LOCAL | DPB_COMM_MULTI_NODE,
    .name = "independent",
    .version = DPB_VERSION,
    .summary = "no exchange: the upper bound",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &independent;
}
