/*
 * loader_report.h - what `dpbench data` measured: one JSON document, schema dpbench.data/1, and a
 * table of it.
 */
#ifndef DPB_CORE_STUDY_LOADER_REPORT_H
#define DPB_CORE_STUDY_LOADER_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "train/loader.h"

/* status: DPB_OK, DPB_INTERRUPTED, or what failed, with `error` (NULL: none). open_ns: how long
 * opening the source took. @owned; NULL for lack of memory. */
json_t *dpb_loader_report_make(const struct dpb_loader *loader, int64_t open_ns, dpb_status status,
                               const char *error);
void dpb_loader_report_print(const json_t *document, FILE *out);

#endif
