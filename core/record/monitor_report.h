/*
 * monitor_report.h - result.monitor: the samples of run.monitor for each machine and each GPU,
 * interval by interval; and its lines for people.
 */
#ifndef DPB_CORE_RECORD_MONITOR_REPORT_H
#define DPB_CORE_RECORD_MONITOR_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "plan/experiment.h"
#include "world/board.h"

/* null without run.monitor. @owned. */
json_t *dpb_monitor_to_json(const struct dpb_experiment *experiment, struct dpb_board *board);
/* Means of the machines, and the energy of a sample. */
void dpb_monitor_print(const json_t *document, FILE *out);

#endif
