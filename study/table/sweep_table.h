/*
 * sweep_table.h - the table of a sweep, and its columns.
 */
#ifndef DPB_STUDY_TABLE_SWEEP_TABLE_H
#define DPB_STUDY_TABLE_SWEEP_TABLE_H

#include <stddef.h>

#include "study/table/table.h"

enum dpb_sweep_column {
    DPB_SWEEP_STRATEGY = DPB_TABLE_STRATEGY,
    DPB_SWEEP_LABEL = DPB_TABLE_LABEL,
    DPB_SWEEP_WORKERS = DPB_TABLE_WORKERS,
    DPB_SWEEP_RATE = DPB_TABLE_NEXT,
    DPB_SWEEP_INTERVAL,
    DPB_SWEEP_N,
    DPB_SWEEP_SPEEDUP,
    DPB_SWEEP_PUBLISHED,
    DPB_SWEEP_EFFICIENCY,
    DPB_SWEEP_EXPOSED,
    DPB_SWEEP_WAIT,
    DPB_SWEEP_BYTES,
    DPB_SWEEP_CODING,
    DPB_SWEEP_LOSS,
    DPB_SWEEP_ACCURACY,
    DPB_SWEEP_VERIFIED,
    DPB_SWEEP_EMULATED,
    DPB_SWEEP_COLUMNS
};

/* False: out of memory; the table is empty then. dpb_table_release either way. */
bool dpb_sweep_table_make(const json_t *document, struct dpb_table *table);
/* For people: where a line is too long, efficiencies are left out. */
void dpb_sweep_table_fit(struct dpb_table *table);
/* The repeats of a row that were measured, of `planned`. */
size_t dpb_sweep_measured(const json_t *row, size_t *planned);

#endif
