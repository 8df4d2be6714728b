/*
 * statistics.h - batch norm's running statistics: the statistics of a micro-batch, their mean over
 * a step, the average that moves once a step, and its mean over the workers.
 */
#ifndef DPB_CORE_OPTIM_STATISTICS_H
#define DPB_CORE_OPTIM_STATISTICS_H

#include "dpbench/graph.h"
#include "dpbench/status.h"

/* Arrays of graph->n_state_elements on the host. */
struct dpb_statistics {
    const struct dpb_graph *graph; /* @borrowed; NULL: there are none */
    dpb_dtype type;
    void *running;     /* the moving average, which the device uses to evaluate */
    void *micro_batch; /* from the device's last backward */
    void *step;        /* the mean over the step's micro-batches */
};

dpb_status dpb_statistics_open(const struct dpb_graph *graph, dpb_dtype type,
                               struct dpb_statistics *statistics);
void dpb_statistics_close(struct dpb_statistics *statistics); /* accepts zeroed ones */
/* Adds the device's statistics of micro-batch `i` of `n` to the step's mean. */
void dpb_statistics_add(struct dpb_statistics *statistics, uint32_t i, uint32_t n);
/* Moves the average by the step's mean. */
void dpb_statistics_move(struct dpb_statistics *statistics);
/* Writes the mean of the running statistics to `average`, over the living ranks of the first
 * n_workers. `name` is used once a job. Collective among these ranks. */
dpb_status dpb_statistics_average(const struct dpb_statistics *statistics, uint32_t n_workers,
                                  const char *name, void *average);

#endif
