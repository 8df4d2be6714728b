/*
 * refuse_plugins.h - refuses settings that the chosen plugins exclude, the strategy above all: see
 * refuse.h.
 */
#ifndef DPB_CORE_PLAN_REFUSE_PLUGINS_H
#define DPB_CORE_PLAN_REFUSE_PLUGINS_H

#include "plan/plan.h"

/* Before options are parsed: refuses options that only other plugins have. Takes out, with a
 * warning, those of a file's plugin in whose place the command line chose another. */
dpb_status dpb_refuse_unknown(struct dpb_experiment *experiment);
/* Refuses by the strategy, without its plan. */
dpb_status dpb_refuse_strategy(const struct dpb_experiment *experiment);
/* Refuses by the strategy's contract: before the run, and again by the contract of its plan. */
dpb_status dpb_refuse_contract(const struct dpb_experiment *experiment,
                               const struct dpb_contract *contract);
/* Refuses norms of tensors of which workers have shards alone. Built experiments only. */
dpb_status dpb_refuse_shards(const struct dpb_experiment *experiment);

#endif
