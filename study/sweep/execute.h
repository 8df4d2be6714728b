/*
 * execute.h - runs a cell of a sweep, a trial of a search or a cell of a rerun: always a child
 * `dpbench -c - --json` (cli/cell.h), which sweep.launch puts the launcher's words before.
 */
#ifndef DPB_STUDY_SWEEP_EXECUTE_H
#define DPB_STUDY_SWEEP_EXECUTE_H

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

#include "cli/cli.h"
#include "study/sweep/sweep_cells.h"

struct dpb_cells {
    const struct dpb_sweep *sweep;
    char program[PATH_MAX]; /* dpbench, and which file it is */
    dev_t device;
    ino_t inode;
};

/* Finds dpbench. Refuses (DPB_USAGE) a program of sweep.launch that is not there. */
dpb_status dpb_cells_open(const struct dpb_sweep *sweep, struct dpb_cells *cells);
/* Runs a cell to its end. The child prints its messages; *execution has all errors. No result:
 * dpb_first_error says why. */
void dpb_cell_execute(const struct dpb_cells *cells, const struct dpb_config *config,
                      const struct dpb_live_place *place, struct dpb_execution *execution);
/* "; by mpirun -np 4", for people; nothing without sweep.launch. */
void dpb_cell_launch_print(const struct dpb_sweep *sweep, const struct dpb_experiment *experiment,
                           FILE *out);

#endif
