/*
 * load_report.h - result.load, and the warnings of a machine that had other things to do while it
 * was measured.
 */
#ifndef DPB_CORE_STUDY_LOAD_REPORT_H
#define DPB_CORE_STUDY_LOAD_REPORT_H

#include <jansson.h>

#include "machine/load.h"

/* null where there is none (NULL); `disturbed` where any of the warnings holds. @owned. */
json_t *dpb_load_to_json(const struct dpb_load *load);
/* Appends busy_machine, busy_siblings, stolen_time, throttled, hot where they hold. */
void dpb_load_warn(const struct dpb_load *load, json_t *warnings);

#endif
