/*
 * refuse.h - what cannot be: settings and plugins that do not work together. A refusal names the
 * setting, where it comes from, and what to do; DPB_USAGE or DPB_UNSUPPORTED.
 */
#ifndef DPB_CORE_TRAIN_REFUSE_H
#define DPB_CORE_TRAIN_REFUSE_H

#include "train/experiment.h"

/* Before options are parsed: options that other plugins have. */
dpb_status dpb_refuse_unknown(const struct dpb_experiment *experiment);
/* By what follows from the configuration alone. */
dpb_status dpb_refuse_settings(const struct dpb_experiment *experiment);
/* The part of these that concerns the strategy. */
dpb_status dpb_refuse_strategy(const struct dpb_experiment *experiment);
/* The same by the strategy's contract: before the run, and again by that of its plan. */
dpb_status dpb_refuse_contract(const struct dpb_experiment *experiment,
                               const struct dpb_contract *contract);
/* By what the network's layout says besides. */
dpb_status dpb_refuse_network(const struct dpb_experiment *experiment);
/* By what the open data say of themselves. */
dpb_status dpb_refuse_data(const struct dpb_experiment *experiment);

#endif
