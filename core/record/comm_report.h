/*
 * comm_report.h - the measurements of `dpbench comm`: one JSON document, schema dpbench.comm/1, and
 * its table. Bandwidths: algorithm = bytes / time, bus = algorithm * 2 (n - 1) / n for n workers,
 * the minimum that each worker sends and receives.
 */
#ifndef DPB_CORE_RECORD_COMM_REPORT_H
#define DPB_CORE_RECORD_COMM_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "bench/comm_test.h"
#include "world/board.h"

/* status: DPB_OK, DPB_INTERRUPTED, or a failure, with `error` (NULL: none). Journals may be
 * incomplete; the experiment is built. @owned; NULL for lack of memory. */
json_t *dpb_comm_report_make(const struct dpb_experiment *experiment, struct dpb_board *board,
                             dpb_status status, const char *error);
void dpb_comm_report_print(const json_t *document, FILE *out);

#endif
