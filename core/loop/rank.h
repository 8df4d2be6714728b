/*
 * rank.h - the life of one rank: open everything, prove the strategy, train, check, close.
 */
#ifndef DPB_CORE_LOOP_RANK_H
#define DPB_CORE_LOOP_RANK_H

#include "plan/experiment.h"

/*
 * Runs this process's part of the job (dpb_world is open; `experiment` is created, not yet built).
 * The rank's measurements are in its journal on the board. Returns DPB_VERIFICATION if a check
 * failed, DPB_INTERRUPTED if a signal ended the run; both after the journal is complete.
 */
dpb_status dpb_rank_run(struct dpb_experiment *experiment);

#endif
