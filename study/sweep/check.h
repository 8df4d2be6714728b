/*
 * check.h - the cells of a sweep or search before the first runs: those that are refused, and what
 * the others need.
 */
#ifndef DPB_STUDY_SWEEP_CHECK_H
#define DPB_STUDY_SWEEP_CHECK_H

#include "base/output.h"
#include "study/sweep/turns.h"

/* Of the first cell that can run; texts are @owned. */
struct dpb_sweep_plan {
    char *results, *name; /* NULL: no cell can */
    uint64_t seed;
    struct dpb_turns_needs needs; /* with sweep.turns */
};

/* Fills the sweep's refusals: all that its runs would refuse before they begin. `files` are those
 * of the command. Without sweep.skip_refused lists them and returns the status of the first; a
 * search skips combinations that cannot work in any case. Another failure, as a missing file, ends
 * the look. The caller frees the texts, also then. */
dpb_status dpb_sweep_find_refused(struct dpb_sweep *sweep, const struct dpb_named_file *files,
                                  size_t n_files, struct dpb_sweep_plan *plan);
/* `dpbench check`: every cell, also after a refused one, and the most memory and time that they
 * take. Returns the exit code. */
int dpb_sweep_check(const struct dpb_config *config);

#endif
