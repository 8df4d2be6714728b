/*
 * rows.h - the rows and the status of a sweep's document, from its runs.
 */
#ifndef DPB_STUDY_DOCUMENT_ROWS_H
#define DPB_STUDY_DOCUMENT_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "dpbench/status.h"

/* Whether the run is a good run of the row's cell, for "timing" or "accuracy". */
bool dpb_sweep_is_of(const json_t *run, const json_t *row, const char *purpose);
/* Whether a run failed (`failure`) because its combination cannot work, or for memory. To a search
 * such a cell has no value; to a sweep the cell failed. */
bool dpb_sweep_refused(const json_t *run);
enum { DPB_SWEEP_REPEATS = 100000 }; /* rates of a row, at most */
/* Makes rows[] anew from runs[]: one for each cell that has a run. */
void dpb_sweep_make_rows(json_t *document);
/* Whether two rows or runs have the same cell, but for workers, learners and servers. */
bool dpb_sweep_same_but_ranks(const json_t *row, const json_t *other);
/* Puts the accuracy of the accuracy runs into the rows of their strategy that have the same cell
 * but for the ranks, and their workers into accuracy_workers where all have as many. */
void dpb_sweep_add_accuracy(json_t *document);
void dpb_sweep_add_speedups(json_t *document); /* of rows[] over those of one worker */
/* Makes rows[], the warnings, and the status (DPB_OK, DPB_INTERRUPTED or a failure). */
void dpb_sweep_finish(dpb_status status, json_t *document);
/* Whether a run missed eval.target of a sweep with eval.require_target; finished documents only. */
bool dpb_sweep_missed(const json_t *document);
/* "4"; "2x2": 2 places of 2 learners; "3 of 4": one died. */
void dpb_sweep_workers(const json_t *row, char *text, size_t capacity);
/* Whether the document is one of a [tune]. */
bool dpb_tune_is(const json_t *document);

#endif
