/*
 * loader_report.h - the measurements of `dpbench data`: one JSON document, schema dpbench.data/1,
 * and its table.
 */
#ifndef DPB_CORE_RECORD_LOADER_REPORT_H
#define DPB_CORE_RECORD_LOADER_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "bench/data_test.h"
#include "world/board.h"

/* The workers of a job. */
struct dpb_loader_ranks {
    uint32_t n;
    const struct dpb_data_journal *const *journals;
    struct dpb_board *board;
};

/* `ranks`: the loader has their total; NULL: this process measured alone. status: DPB_OK,
 * DPB_INTERRUPTED, or a failure, with `error` (NULL: none). open_ns: the time of opening the
 * source, the longest of all ranks; 0: not all have opened it. @owned; NULL for lack of memory. */
json_t *dpb_loader_report_make(const struct dpb_loader *loader,
                               const struct dpb_loader_ranks *ranks, int64_t open_ns,
                               dpb_status status, const char *error);
void dpb_loader_report_print(const json_t *document, FILE *out);

#endif
