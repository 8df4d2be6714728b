/*
 * resume.h - what this run continues of the training in checkpoint.load, checked before any rank
 * runs.
 */
#ifndef DPB_CORE_PLAN_RESUME_H
#define DPB_CORE_PLAN_RESUME_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/saved_names.h"
#include "plan/plan.h"

/* Whether the run continues the training of checkpoint.load. */
bool dpb_resumes(const struct dpb_settings *settings);
/* Names the state of a training that is continued; another optimizer's has no name here. Returns
 * the number of arrays. */
uint32_t dpb_resumed_state(const struct dpb_settings *settings, struct dpb_checkpoint *checkpoint);
/* Checks checkpoint.load against the experiment's graph and optimizer; *start is the point where
 * the training continues, all zero if nothing is loaded or resumed. */
dpb_status dpb_resume_check(const struct dpb_experiment *experiment, struct dpb_progress *start);

/* DPB_USAGE, or with checkpoint.partial = yes a warning of rank 0. `what`: "it has", "it lacks". */
dpb_status dpb_lost_tell(const struct dpb_experiment *experiment, const struct dpb_lost *lost,
                         const char *what);

#endif
