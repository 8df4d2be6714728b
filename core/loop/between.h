/*
 * between.h - the untimed work between two steps of a training: the actions that the ranks have
 * agreed on, the end of warm-up and of the run, pauses for an evaluation or a checkpoint. All ranks
 * leave a training together.
 */
#ifndef DPB_CORE_LOOP_BETWEEN_H
#define DPB_CORE_LOOP_BETWEEN_H

#include "loop/trainer.h"

/* Takes the actions that the ranks have agreed on, and pauses where this step begins with an
 * evaluation or a checkpoint. *stop: this step is not begun. May block. */
dpb_status dpb_between_steps(struct dpb_trainer *trainer, bool *stop);
/* Rank 0, in each step: proposes to end warm-up, by count and by the gate. Others: nothing. */
void dpb_watch_warm_up(struct dpb_trainer *trainer);
/* Collective: no rank returns before all have trained to their end. DPB_INTERRUPTED: a signal ended
 * the training. */
dpb_status dpb_end_training(struct dpb_trainer *trainer);

#endif
