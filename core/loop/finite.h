/*
 * finite.h - losses, weights and gradients that are not finite: the end of a run or a warning
 * (run.nan); with fp16, a step that all ranks skip and another loss scale.
 */
#ifndef DPB_CORE_LOOP_FINITE_H
#define DPB_CORE_LOOP_FINITE_H

#include "loop/trainer.h"

/* Checks the loss, and the weights that this worker or a server has updated. On NaN the run fails,
 * or continues after one warning, by run.nan. */
dpb_status dpb_look_for_nan(struct dpb_trainer *trainer, double loss);
/* fp16: sets *overflow where the last backward's gradients are not finite, else leaves it. */
dpb_status dpb_look_for_overflow(const struct dpb_engine *engine, bool *overflow);
/* fp16, collective: exchanges gradients once those of all ranks are known to be finite. If one is
 * not finite, no rank exchanges, and the step is skipped. */
dpb_status dpb_exchange_if_finite(struct dpb_trainer *trainer, double rate, double scale,
                                  bool own_overflow);

#endif
