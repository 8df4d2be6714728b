/*
 * refuse.h - refuses settings and plugins that do not work together: DPB_USAGE or DPB_UNSUPPORTED.
 * A refusal names the setting, its origin and the remedy.
 */
#ifndef DPB_CORE_PLAN_REFUSE_H
#define DPB_CORE_PLAN_REFUSE_H

#include "plan/experiment.h"

/* Names the plugins of the kinds (bits 1 << kind) that `wanted` picks, for a message: a blank
 * stands before each name; "" where it picks none. */
enum { DPB_REFUSE_NAMES = 256 }; /* capacity; what does not fit is cut */
dpb_status dpb_refuse_names(uint32_t kinds,
                            bool (*wanted)(const struct dpb_plugin *plugin, const void *of),
                            const void *of, char names[DPB_REFUSE_NAMES]);

/* Before options are parsed: refuses options that only other plugins have. */
dpb_status dpb_refuse_unknown(const struct dpb_experiment *experiment);
/* Refuses by the configuration alone. */
dpb_status dpb_refuse_settings(const struct dpb_experiment *experiment);
/* The refusals among these that concern the strategy. */
dpb_status dpb_refuse_strategy(const struct dpb_experiment *experiment);
/* Refuses by the strategy's contract: before the run, and again by the contract of its plan. */
dpb_status dpb_refuse_contract(const struct dpb_experiment *experiment,
                               const struct dpb_contract *contract);
/* Refuses by the network's layout besides. */
dpb_status dpb_refuse_network(const struct dpb_experiment *experiment);
/* The refusals among these that concern norms of tensors of which workers have parts. */
dpb_status dpb_refuse_shards(const struct dpb_experiment *experiment);
/* Refuses too many buckets: before the run, and again by the bucket of the strategy's plan. */
dpb_status dpb_refuse_buckets(const struct dpb_experiment *experiment,
                              const struct dpb_graph *graph, uint64_t bucket_elements);
/* Refuses by the properties of the open data. */
dpb_status dpb_refuse_data(const struct dpb_experiment *experiment);

#endif
