/*
 * comm_points.h - the layouts that `dpbench comm` goes through, and the memory that they take.
 */
#ifndef DPB_CORE_PLAN_COMM_POINTS_H
#define DPB_CORE_PLAN_COMM_POINTS_H

#include "measure/journal.h"
#include "plan/plan.h"

/* A layout: n_elements of the exchange's type. */
struct dpb_comm_point {
    uint64_t n_elements, bytes;
    bool model; /* the layout of model.name; else one of the sizes */
};

/* The points of a built experiment: sizes, then the model's layout if model.name was given and the
 * operation is that of training. Of other operations a size has equal slices (collectives.h).
 * DPB_USAGE for malformed sizes and too many sizes. */
dpb_status dpb_comm_points(const struct dpb_experiment *experiment,
                           struct dpb_comm_point points[DPB_COMM_POINTS], uint32_t *n);
/* Bytes of the arenas of a rank, on the largest layout. */
uint64_t dpb_comm_memory(const struct dpb_experiment *experiment, uint32_t rank);
size_t dpb_comm_journal_bytes(const struct dpb_experiment *experiment);

#endif
