/*
 * gpu_report.h - ranks[].gpu: clocks and power of the GPU that a rank computed on, what held them
 * down, and the warning of a throttled GPU.
 */
#ifndef DPB_CORE_STUDY_GPU_REPORT_H
#define DPB_CORE_STUDY_GPU_REPORT_H

#include <jansson.h>

#include "machine/gpu.h"

/* null where the rank computed on the host. @owned. */
json_t *dpb_gpu_to_json(const struct dpb_gpu_use *use);
/* The GPU now, without a run: the content of `first`. @owned. */
json_t *dpb_gpu_moment_to_json(const struct dpb_gpu_use *use);
/* Appends gpu_throttled or gpu_unknown if it applies. */
void dpb_gpu_warn(const struct dpb_gpu_use *use, uint32_t rank, json_t *warnings);

#endif
