/*
 * merge.h - several results as one sweep: the runs of all of them, a row for each cell.
 *
 * The axes are those of the sweeps, then each setting in which the results differ, then `setup`
 * where results differ in machine, versions, environment, inputs or launcher. Defaults that differ
 * since each plugin has its own are no axis. Runs that differ only in replicates (run.seed, and the
 * settings that a sweep varies by repeat) share a row. Repeats are pairs only within one sweep. A
 * row never has runs of two setups.
 */
#ifndef DPB_STUDY_TABLE_MERGE_H
#define DPB_STUDY_TABLE_MERGE_H

#include <jansson.h>
#include <stdio.h>

#include "dpbench/status.h"
#include "study/table/compare.h"

/* A dpbench.sweep/1 document with `merged` (docs/results.md). Runs of one sweep's directory that
 * are given one by one are one sweep. `pool`: a path (machine.host) in which setups may differ
 * and are one all the same; NULL: none. DPB_USAGE: the results are of different models, or have
 * no run. The results stay unchanged, and have no control characters. *document is @owned. */
dpb_status dpb_merge(const struct dpb_compared *results, size_t n, const char *pool,
                     json_t **document);
/* Names the files and every difference that is no column, one paragraph a line. Nothing for a
 * document that is not merged. */
void dpb_merge_notes(const json_t *document, FILE *out);

#endif
