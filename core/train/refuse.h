/*
 * refuse.h - what cannot be: settings and plugins that do not work together. A refusal names the
 * setting, where it comes from, and what to do; DPB_USAGE or DPB_UNSUPPORTED.
 */
#ifndef DPB_CORE_TRAIN_REFUSE_H
#define DPB_CORE_TRAIN_REFUSE_H

#include "train/experiment.h"

/* By what follows from the configuration alone. */
dpb_status dpb_refuse_settings(const struct dpb_experiment *experiment);
/* By what the open data say of themselves. */
dpb_status dpb_refuse_data(const struct dpb_experiment *experiment);

#endif
