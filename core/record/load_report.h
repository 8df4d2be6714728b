/*
 * load_report.h - result.load and ranks[].gpu: the machine's load by others during the measurement;
 * clocks and power of a rank's GPU, and the reasons that held them down. With their warnings.
 */
#ifndef DPB_CORE_RECORD_LOAD_REPORT_H
#define DPB_CORE_RECORD_LOAD_REPORT_H

#include <jansson.h>

#include "machine/gpu.h"
#include "machine/load.h"
#include "world/board.h"

/* null for NULL; `disturbed`: whether any of the warnings applies. @owned. */
json_t *dpb_load_to_json(const struct dpb_load *load);
/* result.core_to_core; null: not known. board: may be NULL. @owned. */
json_t *dpb_core_to_core_to_json(struct dpb_board *board);
/* Appends each of busy_machine, busy_siblings, stolen_time, throttled, hot, suspended that applies.
 */
void dpb_load_warn(const struct dpb_load *load, json_t *warnings);

/* null where the rank computed on the host. @owned. */
json_t *dpb_gpu_to_json(const struct dpb_gpu_use *use);
/* The GPU now, without a run: the content of `first`. @owned. */
json_t *dpb_gpu_moment_to_json(const struct dpb_gpu_use *use);
/* Appends gpu_throttled or gpu_unknown if it applies. */
void dpb_gpu_warn(const struct dpb_gpu_use *use, uint32_t rank, json_t *warnings);

#endif
