/*
 * rank.h - the life of one rank: open everything, prove the strategy, train, check, close.
 */
#ifndef DPB_CORE_TRAIN_RANK_H
#define DPB_CORE_TRAIN_RANK_H

#include "train/experiment.h"

/*
 * Runs this process's part of the job (dpb_world is open; `experiment` is created, not yet built).
 * What it measured is in its journal on the board. A failed verification is DPB_VERIFICATION, a run
 * that a signal ended DPB_INTERRUPTED; both after everything measured is in the journal.
 */
dpb_status dpb_rank_run(struct dpb_experiment *experiment);

#endif
