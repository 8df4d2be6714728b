/*
 * tune.h - the search of a [tune]: chooses the next cell of the product to try, and the best.
 *
 *     [tune]
 *     comm.bucket = 64..16384 KiB x2    an axis, as in [sweep] (sweep.h); here an ordered one
 *     comm.name = shm, replicated       a categorical axis
 *     objective = samples_per_s         or time_to_target
 *     threshold = 10                    percent
 *
 * Begins with the first value of each axis and goes through the axes in their order, round by
 * round, until a round changes nothing. An axis whose values are numbers that rise or fall all
 * along is ordered: the values after the present one are tried while each is better than all before
 * it, and one is taken where its gain over the present one is above the threshold. So gains that
 * are small one by one add up. If none is taken, the values before are tried, and one is taken
 * while the best of the axis gains no more than the threshold over it. On any other axis all values
 * are tried, and the best is taken. Each cell is tried once: its value is that of all its repeats.
 * A cell without a value (refused, out of memory, failed, target missed) is never taken from one
 * that has a value, so it ends its direction.
 *
 * The search ends after at most as many rounds as cells. (A round depends only on the cell where it
 * begins, so more rounds would repeat.)
 *
 * The threshold: Koliousis et al.: Crossbow, section 4.4. PVLDB 12(11), 2019, which stops at the
 * first gain below it. There a trial is a window of running training; here a trial is a run of its
 * own that was timed when steady.
 *
 * The search keeps no state: each call goes through it again with the values that the document has,
 * until one is missing. So a search continues from the runs of an interrupted one.
 */
#ifndef DPB_STUDY_SWEEP_TUNE_H
#define DPB_STUDY_SWEEP_TUNE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "study/sweep/sweep_cells.h"

/* Makes rows[] and the object `tune` (docs/results.md) of the document of a [tune] from its runs[].
 * True: the search needs *job next. False: it is over, or, with *failed, out of memory. */
bool dpb_tune_next(const struct dpb_sweep *sweep, json_t *document, struct dpb_sweep_job *job,
                   bool *failed);

#endif
