/*
 * rank.h - the life of one rank: open everything, prove the strategy, train, check, close.
 */
#ifndef DPB_CORE_TRAIN_RANK_H
#define DPB_CORE_TRAIN_RANK_H

#include "train/experiment.h"

/*
 * Runs this process's part of the job (dpb_world is open). On rank 0 `report` is called once, after
 * the last step and the checks and before teardown, when every rank's journal is complete; its status
 * is passed on. A run whose verification failed returns DPB_VERIFICATION after the report; one that
 * SIGINT or SIGTERM ended returns DPB_INTERRUPTED after it.
 */
dpb_status dpb_rank_run(struct dpb_experiment *experiment,
                        dpb_status (*report)(void *context, dpb_status status), void *context);

#endif
