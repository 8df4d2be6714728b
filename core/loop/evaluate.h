/*
 * evaluate.h - accuracy and loss on the test set. Each worker takes its share of the samples; the
 * sums meet in rank 0's journal. Strategies whose workers do not exchange report rank 0's model
 * alone: its whole test set is then rank 0's share (open_feeds in trainer.c).
 */
#ifndef DPB_CORE_LOOP_EVALUATE_H
#define DPB_CORE_LOOP_EVALUATE_H

#include "loop/trainer.h"

/* Evaluates the published weights on the test set, which is shared among the workers, with
 * batch-norm statistics averaged over them. Sums go into rank 0's journal. Collective; not
 * timed. */
dpb_status dpb_evaluate(struct dpb_trainer *trainer);

#endif
