/* loop.h - the training loop: see loop.c. */
#ifndef DPB_CORE_LOOP_LOOP_H
#define DPB_CORE_LOOP_LOOP_H

#include "loop/trainer.h"

/* DPB_INTERRUPTED: a signal ended the training. */
dpb_status dpb_train(struct dpb_trainer *trainer);

#endif
