/*
 * turns.h - the cells of a sweep side by side. Each is a job of its own, parked but for its turns
 * (launch/turns.h); a block has a turn of each cell, in random order. So a change of the machine
 * meets all cells alike.
 *
 * A turn is the shortest with 5 steps, at least 0.1 s, or 0.5 s under a CPU quota, which lets work
 * pile up; or as sweep.turns says. Shorter turns meet a busy machine more alike: in 12 s beside
 * builds of others, a cell against itself had intervals of 4 % to either side by turns of 0.1 s,
 * 10 % by 0.2 s and 25 % by 1 s. Where memory does not hold all cells, they run in groups, one
 * after another. The sweep's first cell is in all groups: ratios by it are within blocks.
 *
 * With looks, blocks end before the budget does once all ratios by the first cell are decided
 * (document/signed_rank.h). The budget and the lengths of the turns fix the number of blocks.
 */
#ifndef DPB_STUDY_SWEEP_TURNS_H
#define DPB_STUDY_SWEEP_TURNS_H

#include "study/sweep/execute.h"

/* By cell; @owned. */
struct dpb_turns_needs {
    uint64_t *bytes;
    double *seconds; /* run.seconds; 0: it ends by itself */
};
/* DPB_UNSUPPORTED: a cell cannot be parked; dpb_first_error says which, and why. A cell that is
 * refused anyway needs nothing. */
dpb_status dpb_turns_needs(const struct dpb_sweep *sweep, struct dpb_turns_needs *needs);
void dpb_turns_needs_release(struct dpb_turns_needs *needs);

struct dpb_turns_group {
    const struct dpb_cells *cells[2]; /* of the first job, and of the others */
    struct dpb_sweep_job *jobs;       /* with capacity for one more than are asked for */
    size_t n;
    double budget_s;            /* in which blocks begin; INFINITY: until all have ended */
    struct dpb_deadline before; /* no block begins later */
    bool looks;                 /* blocks end when they have decided */
    bool quiet;                 /* does not say how many cells and blocks there are */
    uint64_t seed;
    int64_t block; /* the next one's number */
    /* A cell has ended; `execution` is the callee's, and has all errors. */
    void (*ended)(void *context, const struct dpb_sweep_job *job, struct dpb_execution *execution);
    void *context;
};

/* Takes jobs of one repeat from jobs[] (n > 0 of them) into the group: as many as memory holds, but
 * at least two with the sweep's first cell. Returns how many of jobs[] it took. */
size_t dpb_turns_group_fill(const struct dpb_turns_needs *needs, const struct dpb_sweep_job *jobs,
                            size_t n, struct dpb_turns_group *group);
/* Starts the cells one after another, gives them their turns, and ends them. Signals of this
 * process go to all of them. */
dpb_status dpb_turns_run(struct dpb_turns_group *group);

#endif
