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
#include "study/sweep/child.h"
#include "study/sweep/sweep_cells.h"

struct dpb_cells {
    const struct dpb_sweep *sweep;
    char program[PATH_MAX]; /* dpbench, and which file it is */
    dev_t device;
    ino_t inode;
    const char *without; /* a variable to remove from its environment; NULL: none */
};

/* Finds dpbench. Refuses (DPB_USAGE) a program of sweep.launch that is not there. */
dpb_status dpb_cells_open(const struct dpb_sweep *sweep, struct dpb_cells *cells);
/* The cells of another build, with the plugins beside it. */
dpb_status dpb_cells_of_build(const struct dpb_sweep *sweep, const char *program,
                              struct dpb_cells *cells);
/* Runs a cell to its end. The child prints its messages; *execution has all errors. No result:
 * dpb_first_error says why. */
void dpb_cell_execute(const struct dpb_cells *cells, const struct dpb_config *config,
                      const struct dpb_live_place *place, struct dpb_execution *execution);
/* A cell that runs beside others. */
struct dpb_cell_run {
    struct dpb_child_running running;
    struct dpb_child_end end; /* of dpb_child_take */
    char **words, *request, path[PATH_MAX];
    size_t n_words;
};

/* Starts a cell; `held` NULL: and runs it to its end. dpb_cell_end follows, after a failure too. */
dpb_status dpb_cell_start(const struct dpb_cells *cells, const struct dpb_config *config,
                          const struct dpb_live_place *place, const struct dpb_signals *held,
                          struct dpb_cell_run *run);
/* The result of a cell that has ended, or was not started (`status`). Releases the run. */
void dpb_cell_end(const struct dpb_cells *cells, struct dpb_cell_run *run, dpb_status status,
                  struct dpb_execution *execution);
/* "; by mpirun -np 4", for people; nothing without sweep.launch. */
void dpb_cell_launch_print(const struct dpb_sweep *sweep, const struct dpb_experiment *experiment,
                           FILE *out);

#endif
