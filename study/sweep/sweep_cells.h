/*
 * sweep_cells.h - the cells of a sweep (sweep.h): their settings, their jobs, and their order.
 */
#ifndef DPB_STUDY_SWEEP_SWEEP_CELLS_H
#define DPB_STUDY_SWEEP_SWEEP_CELLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/sweep_options.h"

struct dpb_sweep_axis {
    char *section, *key, *origin;
    char **values;
    size_t n_values;
};

/* The settings of one value of an axis for itself (sweep_own.h). */
struct dpb_sweep_own {
    size_t axis, value;
    struct dpb_config *settings; /* @owned */
};

/* One job of a sweep. */
struct dpb_sweep_job {
    size_t cell;
    uint32_t repeat;
    bool accuracy; /* trains for sweep.accuracy steps and evaluates; its times are not compared */
};

/* Why a cell cannot run. */
struct dpb_sweep_refusal {
    dpb_status status;
    char *reason; /* @owned; NULL: it can */
};

struct dpb_sweep {
    struct dpb_config *given; /* @owned: as it runs, without what the command line replaced */
    struct dpb_config *base;  /* @owned: without [sweep] */
    struct dpb_sweep_axis *axes;
    size_t n_axes, n_cells;
    struct dpb_sweep_own *own; /* @owned */
    size_t n_own;
    struct dpb_sweep_refusal *refusals; /* @owned, by cell; NULL: not looked for (check.h) */
    size_t *cells;                      /* @owned: by cell, its number in the product */
    struct dpb_sweep_axis replicates; /* repeat r takes value r modulo n_values; none: all equal */
    struct dpb_sweep_options options; /* `when` and `over` while the sweep is made */
    const struct dpb_settings_section *study; /* @borrowed */
    bool tunes;                               /* the study is [tune] */
    struct {
        bool on;
        int64_t ns, steps; /* of a turn; 0: not given */
    } turns;
    const char *launch_origin; /* @borrowed from the configuration */
    json_t *published;         /* @owned: of the document (published.h); NULL: none */
};

/* The axis SECTION.KEY; NULL: none. */
const struct dpb_sweep_axis *dpb_sweep_axis_of(const struct dpb_sweep *sweep, const char *section,
                                               const char *key);
/* A cell's value on an axis. Cells count with the last axis fastest; cells for which sweep.when
 * does not hold do not count. @borrowed. */
const char *dpb_sweep_value(const struct dpb_sweep *sweep, size_t cell, size_t axis);
/* Whether the cell has the value of these settings. */
bool dpb_sweep_owns(const struct dpb_sweep *sweep, size_t cell, const struct dpb_sweep_own *own);
/* A cell's value for SECTION.KEY as it was written: from an axis, its values' own settings or the
 * base; "": the default. Ignores replicates. */
const char *dpb_sweep_setting(const struct dpb_sweep *sweep, size_t cell, const char *section,
                              const char *key);
/* The number of a cell's data and network: cells of one number have the same values for both. */
size_t dpb_sweep_network(const struct dpb_sweep *sweep, size_t cell);
/* A cell's axes and values: {"comm.name": "shm", "run.workers": "2"}. @owned. */
json_t *dpb_sweep_cell(const struct dpb_sweep *sweep, size_t cell);
/* "comm.name=shm run.workers=2": for people. */
void dpb_sweep_label(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job, char *text,
                     size_t capacity);
/* Whether the cell is known to be refused. */
bool dpb_sweep_is_refused(const struct dpb_sweep *sweep, size_t cell);
/* The order of the repeats * n_cells timing jobs: each repeat has every cell once, in an order of
 * its own, drawn by `seed`. So a slow change of the machine affects all cells alike. */
void dpb_sweep_order(const struct dpb_sweep *sweep, uint64_t seed, struct dpb_sweep_job *jobs);
/* The accuracy jobs: one for each comm.name, of its cell with the most workers that can run; none
 * if sweep.accuracy is 0. Returns their number, at most n_cells. */
size_t dpb_sweep_accuracy_jobs(const struct dpb_sweep *sweep, struct dpb_sweep_job *jobs);

#endif
