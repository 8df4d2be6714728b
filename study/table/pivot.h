/*
 * pivot.h - rows[] of a sweep as a table; the caller chooses the keys of lines, columns and cells.
 */
#ifndef DPB_STUDY_TABLE_PIVOT_H
#define DPB_STUDY_TABLE_PIVOT_H

#include <jansson.h>
#include <stdio.h>

#include "dpbench/status.h"

/* `rows` and `values` are lists of keys, with commas between; `columns` is one key. A key is an
 * axis, as `comm.name`, or a field of rows[] by its path, as `samples_per_s.median`. */
struct dpb_pivot {
    const char *rows;
    const char *columns; /* NULL: a column for each key of `values` */
    const char *values;  /* NULL: samples_per_s.median */
};

enum dpb_pivot_form { DPB_PIVOT_TEXT, DPB_PIVOT_MARKDOWN, DPB_PIVOT_CSV };

/* DPB_USAGE: no row has a key; a list has a key twice; two rows have one cell. DPB_NO_MEMORY. */
dpb_status dpb_pivot_print(const json_t *document, const struct dpb_pivot *pivot,
                           enum dpb_pivot_form form, FILE *out);

#endif
