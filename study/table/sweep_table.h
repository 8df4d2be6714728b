/*
 * sweep_table.h - the table of a sweep, and its columns.
 */
#ifndef DPB_STUDY_TABLE_SWEEP_TABLE_H
#define DPB_STUDY_TABLE_SWEEP_TABLE_H

#include "study/table/table.h"

enum dpb_sweep_column {
    STRATEGY = DPB_TABLE_STRATEGY,
    LABEL = DPB_TABLE_LABEL,
    WORKERS = DPB_TABLE_WORKERS,
    RATE = DPB_TABLE_NEXT,
    INTERVAL,
    SPEEDUP,
    PUBLISHED,
    EFFICIENCY,
    EXPOSED,
    BYTES,
    CODING,
    LOSS,
    ACCURACY,
    VERIFIED,
    COLUMNS
};

/* False: out of memory; the table is empty then. dpb_table_release either way. */
bool dpb_sweep_table_make(const json_t *document, struct dpb_table *table);

#endif
