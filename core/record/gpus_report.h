/*
 * gpus_report.h - `gpus` of a run's result and of `dpbench comm`: whether workers of the job shared
 * a GPU, and how the GPU ran their work: at once, by a service of the driver's, or in slices of
 * time.
 */
#ifndef DPB_CORE_RECORD_GPUS_REPORT_H
#define DPB_CORE_RECORD_GPUS_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "dpbench/device.h"
#include "world/board.h"

/* "time slices", or the service's name; NULL: the driver does not report it. @borrowed. */
const char *dpb_sharing_name(const struct dpb_sharing *sharing);
/* Whether two ranks compute on one GPU; false for ranks that compute on the host. */
bool dpb_gpus_same(struct dpb_board *board, uint32_t a, uint32_t b);

/* null: no rank computed on a GPU; `board` may be NULL. @owned. */
json_t *dpb_gpus_to_json(struct dpb_board *board);
/* Appends gpu_shared where workers took turns, or may have taken turns. */
void dpb_gpus_warn(const json_t *gpus, json_t *warnings);
/* A line for people, where a GPU was shared. */
void dpb_gpus_print(const json_t *gpus, FILE *out);

#endif
