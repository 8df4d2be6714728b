/*
 * resume.h - what this run continues of the training in checkpoint.load, checked before any rank
 * runs; the names of a strategy's state in the file (save/saved.h).
 */
#ifndef DPB_CORE_PLAN_RESUME_H
#define DPB_CORE_PLAN_RESUME_H

#include "checkpoint/checkpoint.h"
#include "dpbench/saved.h"
#include "plan/plan.h"

/* Whether the run continues the training of checkpoint.load. */
bool dpb_resumes(const struct dpb_settings *settings);
/* Names the state of a training that is continued; another optimizer's has no name here. Returns
 * the number of arrays. */
uint32_t dpb_resumed_state(const struct dpb_settings *settings, struct dpb_checkpoint *checkpoint);
/* Checks checkpoint.load against the experiment's graph and optimizer; *start is the point where
 * the training continues, all zero if nothing is loaded or resumed. */
dpb_status dpb_resume_check(const struct dpb_experiment *experiment, struct dpb_progress *start);

enum { DPB_SAVED_NAME = 192 };

/* An array of the strategy's state as a tensor of a file. */
struct dpb_safetensor dpb_saved_tensor(const struct dpb_experiment *experiment,
                                       const struct dpb_saved_array *array, uint32_t rank,
                                       char name[DPB_SAVED_NAME]);

/* The strategies' state in a file that this run cannot keep. */
struct dpb_lost {
    const struct dpb_experiment *experiment;
    const struct dpb_safetensors *file;
    const struct dpb_saved *saved; /* NULL: the strategy has not been asked */
    uint32_t n_ranks;              /* in the file */
    uint32_t n_own, n;             /* of this strategy; not kept */
    char first[DPB_SAVED_NAME];
};

/* Fills in the numbers and the first name. */
void dpb_lost_look(struct dpb_lost *lost);
/* DPB_USAGE, or with checkpoint.partial = yes a warning of rank 0. `what`: "it has", "it lacks". */
dpb_status dpb_lost_tell(const struct dpb_lost *lost, const char *what);

#endif
