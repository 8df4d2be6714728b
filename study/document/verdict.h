/*
 * verdict.h - what all runs of a cell have shown of its strategy, as one verdict: also runs that
 * failed or were disturbed, and the run for the accuracy.
 */
#ifndef DPB_STUDY_DOCUMENT_VERDICT_H
#define DPB_STUDY_DOCUMENT_VERDICT_H

#include <jansson.h>

/* Puts `verified`, `proved`, `verdict` and `verdict_reason` into the row:
 *   NO (1 of 4)  one of four runs failed a check
 *   ends only    checked before and after training; of some run no step was followed
 *   yes          core followed steps of each run
 *   n/a          nothing is exchanged
 *   null         no run ended well
 * odd[i]: why a run of the document is wrong beside the runs of other cells, or null. */
void dpb_verdict_set(const json_t *document, const json_t *odd, json_t *row);

/* The first row whose verdict is NO; NULL: there is none. */
const json_t *dpb_verdict_failed(const json_t *document);

#endif
