/*
 * evaluations.h - the evaluations of a training, which its checkpoints keep. So a training that is
 * continued reaches its target where the whole one does.
 */
#ifndef DPB_CORE_PLAN_EVALUATIONS_H
#define DPB_CORE_PLAN_EVALUATIONS_H

#include "base/settings.h"
#include "dpbench/status.h"
#include "measure/journal.h"

/* In the file's metadata: "STEP EPOCH SAMPLES NS LOSS CORRECT TOP5 SAMPLES LABELS;" for each. */
#define DPB_EVALUATIONS_KEY "dpbench.evaluations"

/* @owned text; NULL: no memory. */
char *dpb_evaluations_text(const struct dpb_eval *evals, uint64_t n);
/* Reads those of a checkpoint into `evals`, which has room for `capacity`. A file of another
 * program has none. DPB_DATA: they are damaged, or more. */
dpb_status dpb_evaluations_read(const char *path, struct dpb_eval *evals, uint64_t capacity,
                                uint64_t *n);
/* Whether the last of them meet eval.target or eval.target_loss, by eval.criterion. */
bool dpb_evaluations_meet(const struct dpb_eval *evals, uint64_t n,
                          const struct dpb_settings *settings);

#endif
