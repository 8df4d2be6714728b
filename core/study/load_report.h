/*
 * load_report.h - result.load, and the warnings of a machine that others used during the
 * measurement.
 */
#ifndef DPB_CORE_STUDY_LOAD_REPORT_H
#define DPB_CORE_STUDY_LOAD_REPORT_H

#include <jansson.h>

#include "machine/load.h"

/* null for NULL; `disturbed`: whether any of the warnings applies. @owned. */
json_t *dpb_load_to_json(const struct dpb_load *load);
/* Appends those of busy_machine, busy_siblings, stolen_time, throttled, hot that apply. */
void dpb_load_warn(const struct dpb_load *load, json_t *warnings);

#endif
