/*
 * sweep_runs.h - the document of a sweep (dpbench.sweep/1) while it runs: its head, its runs, and
 * the jobs that are done.
 */
#ifndef DPB_STUDY_SWEEP_SWEEP_RUNS_H
#define DPB_STUDY_SWEEP_SWEEP_RUNS_H

#include <jansson.h>
#include <stdbool.h>

#include "study/sweep/sweep_cells.h"

/* A new document without runs, with this process's warnings. @owned; NULL: out of memory. */
json_t *dpb_sweep_document(const struct dpb_sweep *sweep);
/* Appends a job's result (stolen) with its cell and repeat. */
void dpb_sweep_add(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job, json_t *result,
                   json_t *document);
/* Whether the run or row, of a foreign document, belongs to the cell that its index names. */
bool dpb_sweep_has(const struct dpb_sweep *sweep, const json_t *run);
/* Marks the last run, a disturbed one, as the last of its job (budget.h). */
void dpb_sweep_stay(json_t *document);
/* Whether the job needs no further run: the document has a good run that was not disturbed, was
 * repeated sweep.retry_disturbed times, or stays disturbed. */
bool dpb_sweep_done(const struct dpb_sweep *sweep, const json_t *document,
                    const struct dpb_sweep_job *job);

#endif
