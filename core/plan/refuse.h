/*
 * refuse.h - refuses settings that do not work together: DPB_USAGE or DPB_UNSUPPORTED. A refusal
 * names the setting, its origin and the remedy.
 */
#ifndef DPB_CORE_PLAN_REFUSE_H
#define DPB_CORE_PLAN_REFUSE_H

#include "plan/plan.h"

/* Refuses by the configuration alone. */
dpb_status dpb_refuse_settings(const struct dpb_experiment *experiment);
/* Refuses by the network's layout besides. */
dpb_status dpb_refuse_network(const struct dpb_experiment *experiment);
/* Refuses too many buckets: before the run, and again by the bucket of the strategy's plan. */
dpb_status dpb_refuse_buckets(const struct dpb_experiment *experiment,
                              const struct dpb_graph *graph, uint64_t bucket_elements);
/* Refuses by the properties of the open data. */
dpb_status dpb_refuse_data(const struct dpb_experiment *experiment);

/* Refuses a job that a launcher cannot park (launch/turns.h): its work would go on. */
dpb_status dpb_refuse_turns(const struct dpb_experiment *experiment);

#endif
