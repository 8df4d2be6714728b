/*
 * pair.h - a cell by two builds side by side, in turns (turns.h): a pair of `dpbench gate`. Each
 * pair starts both anew, so pairs hold the luck of a start, as the layout of its memory.
 */
#ifndef DPB_STUDY_SWEEP_PAIR_H
#define DPB_STUDY_SWEEP_PAIR_H

#include "study/sweep/execute.h"
#include "study/sweep/turns.h"

struct dpb_pairs {
    struct dpb_cells builds[2];
    struct dpb_turns_needs needs;
    int64_t block; /* the next one's number */
};

/* DPB_UNSUPPORTED: they cannot run side by side; dpb_first_error says why, and no message is
 * written. Release it in any case. */
dpb_status dpb_pairs_open(const struct dpb_sweep *sweep, const char *const programs[2],
                          struct dpb_pairs *pairs);
void dpb_pairs_release(struct dpb_pairs *pairs);
/* Runs the cell by both. made[]: their ends, by build; results are @owned, where there are any. */
dpb_status dpb_pairs_run(struct dpb_pairs *pairs, size_t cell, struct dpb_execution made[2]);

#endif
