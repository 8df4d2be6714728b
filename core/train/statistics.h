/*
 * statistics.h - batch norm's running statistics: those of a micro-batch, their mean over a step,
 * the average that moves once a step, and its mean over the workers.
 */
#ifndef DPB_CORE_TRAIN_STATISTICS_H
#define DPB_CORE_TRAIN_STATISTICS_H

#include "dpbench/graph.h"
#include "dpbench/status.h"

/* Arrays of graph->n_state_elements on the host. */
struct dpb_statistics {
    const struct dpb_graph *graph; /* @borrowed; NULL: there are none */
    dpb_dtype type;
    void *running;     /* the moving average, which the device evaluates with */
    void *micro_batch; /* what the device found in its last backward */
    void *step;        /* the mean over the step's micro-batches */
};

dpb_status dpb_statistics_open(const struct dpb_graph *graph, dpb_dtype type,
                               struct dpb_statistics *statistics);
void dpb_statistics_close(struct dpb_statistics *statistics); /* accepts zeroed ones */
/* Takes what the device found in micro-batch `i` of `n` into the step's mean. */
void dpb_statistics_add(struct dpb_statistics *statistics, uint32_t i, uint32_t n);
/* Moves the average by the step's mean. */
void dpb_statistics_move(struct dpb_statistics *statistics);
/* The running statistics, averaged over those of the first n_workers ranks that live, into
 * `average`; `name` is used once a job. Collective among them. */
dpb_status dpb_statistics_average(const struct dpb_statistics *statistics, uint32_t n_workers,
                                  const char *name, void *average);

#endif
