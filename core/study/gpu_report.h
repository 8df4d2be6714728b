/*
 * gpu_report.h - ranks[].gpu: clocks, power and what held them down, of the GPU that a rank
 * computed on; and the warning of one that was throttled.
 */
#ifndef DPB_CORE_STUDY_GPU_REPORT_H
#define DPB_CORE_STUDY_GPU_REPORT_H

#include <jansson.h>

#include "machine/gpu.h"

/* null where the rank computed on the host. @owned. */
json_t *dpb_gpu_to_json(const struct dpb_gpu_use *use);
/* As it is now, without a run: what `first` has. @owned. */
json_t *dpb_gpu_moment_to_json(const struct dpb_gpu_use *use);
/* Appends gpu_throttled or gpu_unknown where it holds. */
void dpb_gpu_warn(const struct dpb_gpu_use *use, uint32_t rank, json_t *warnings);

#endif
