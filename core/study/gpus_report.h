/*
 * gpus_report.h - `gpus` of a run's result and of `dpbench comm`: whether workers of the job shared
 * a GPU, and how the GPU ran their work: at once, by a service of the driver's, or in slices of
 * time.
 */
#ifndef DPB_CORE_STUDY_GPUS_REPORT_H
#define DPB_CORE_STUDY_GPUS_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "dpbench/device.h"
#include "world/board.h"

/* "time slices", or the service's name; NULL: the driver does not report it. @borrowed. */
const char *dpb_sharing_name(const struct dpb_sharing *sharing);
/* The GPU of a rank, as its journal has it. @borrowed. */
struct dpb_gpu_seat {
    const char *pci_address; /* "": the rank computes on the host */
    const struct dpb_sharing *sharing;
};
typedef struct dpb_gpu_seat (*dpb_gpu_seat_of)(struct dpb_board *board, uint32_t rank);
/* The GPUs of the ranks of a run. */
struct dpb_gpu_seat dpb_gpu_of_run(struct dpb_board *board, uint32_t rank);

/* Whether two ranks of a run compute on one GPU; false for ranks that compute on the host. */
bool dpb_gpus_same(struct dpb_board *board, uint32_t a, uint32_t b);

/* null: no rank computed on a GPU; `board` may be NULL. @owned. */
json_t *dpb_gpus_to_json(struct dpb_board *board, dpb_gpu_seat_of seat_of);
/* Appends gpu_shared where workers took turns, or may have taken turns. */
void dpb_gpus_warn(const json_t *gpus, json_t *warnings);
/* A line for people, where a GPU was shared. */
void dpb_gpus_print(const json_t *gpus, FILE *out);

#endif
