/*
 * sweep.h - a Cartesian product of settings, run in interleaved random order with repeats, and the
 * table that compares its cells.
 *
 *     [sweep]
 *     comm.name = independent, shm      an axis: SECTION.KEY = list (sweep_list.h)
 *     run.workers = 1..8 x2
 *     when = comm.name != independent or run.workers > 1      which cells of the product
 *     repeats = 3                       how often every cell is timed
 *     seeds = 5                         or: by repeat another run.seed, 5 of them
 *     over = run.seed                   or: by repeat another value of this list, which is no axis
 *     retry_disturbed = 3               how often a disturbed run is repeated at once
 *     accuracy = 500                    steps of one more run a strategy, for its test accuracy
 *     launch = mpirun -np {ranks}       what starts a cell (launch_line.h); empty: dpbench itself
 *
 * A [published] beside it has figures of others for its cells (published.h).
 *
 * On the command line an axis is `sweep.SECTION.KEY=a,b`; a plain SECTION.KEY=VALUE replaces the
 * file's axis of this name. If an axis lists plugins (comm.name, data.name), an option that only
 * some of them have goes to these. The caller runs the cells. A [tune] is read the same way and
 * makes a sweep whose cells a search chooses (tune.h).
 */
#ifndef DPB_STUDY_SWEEP_SWEEP_H
#define DPB_STUDY_SWEEP_SWEEP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "base/sweep_options.h"

struct dpb_experiment; /* plan/experiment.h */

struct dpb_sweep_axis {
    char *section, *key, *origin;
    char **values;
    size_t n_values;
};

/* One job of a sweep. */
struct dpb_sweep_job {
    size_t cell;
    uint32_t repeat;
    bool accuracy; /* trains for sweep.accuracy steps and evaluates; its times are not compared */
};

struct dpb_sweep {
    struct dpb_config *base; /* @owned: without [sweep] */
    struct dpb_sweep_axis *axes;
    size_t n_axes, n_cells;
    size_t *cells;                    /* @owned: by cell, its number in the product */
    struct dpb_sweep_axis replicates; /* repeat r takes value r modulo n_values; none: all equal */
    struct dpb_sweep_options options;         /* `when` and `over` while the sweep is made */
    const struct dpb_settings_section *study; /* @borrowed */
    bool tunes;                               /* the study is [tune] */
    const char *launch_origin;                /* @borrowed from the configuration */
    json_t *published; /* @owned: of the document (published.h); NULL: none */
};

/* Refuses (DPB_USAGE) with the origin: a malformed list or condition (sweep_list.h), a key that is
 * no SECTION.KEY, a [sweep] beside a [tune], all that dpb_published_read refuses. */
dpb_status dpb_sweep_create(const struct dpb_config *config, struct dpb_sweep **sweep);
void dpb_sweep_destroy(struct dpb_sweep *sweep); /* accepts NULL */

/* The axis SECTION.KEY; NULL: none. */
const struct dpb_sweep_axis *dpb_sweep_axis_of(const struct dpb_sweep *sweep, const char *section,
                                               const char *key);
/* A cell's value on an axis. Cells count with the last axis fastest; cells for which sweep.when
 * does not hold do not count. @borrowed. */
const char *dpb_sweep_value(const struct dpb_sweep *sweep, size_t cell, size_t axis);
/* A cell's value for SECTION.KEY, from an axis or the base; "": the default. Ignores replicates. */
const char *dpb_sweep_setting(const struct dpb_sweep *sweep, size_t cell, const char *section,
                              const char *key);
/* The configuration of one job. *config is @owned. */
dpb_status dpb_sweep_config(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                            struct dpb_config **config);
/* The experiment of one job. *experiment is @owned: dpb_experiment_destroy. */
dpb_status dpb_sweep_experiment(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                                struct dpb_experiment **experiment);
/* The number of a cell's data and network: cells of one number have the same values for both. */
size_t dpb_sweep_network(const struct dpb_sweep *sweep, size_t cell);
/* A cell's axes and values: {"comm.name": "shm", "run.workers": "2"}. @owned. */
json_t *dpb_sweep_cell(const struct dpb_sweep *sweep, size_t cell);
/* "comm.name=shm run.workers=2": for people. */
void dpb_sweep_label(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job, char *text,
                     size_t capacity);
/* The order of the repeats * n_cells timing jobs: each repeat has every cell once, in an order of
 * its own, drawn by `seed`. So a slow change of the machine affects all cells alike. */
void dpb_sweep_order(const struct dpb_sweep *sweep, uint64_t seed, struct dpb_sweep_job *jobs);
/* The accuracy jobs: one for each comm.name, with the most workers; none if sweep.accuracy is 0.
 * Returns their number, at most n_cells. */
size_t dpb_sweep_accuracy_jobs(const struct dpb_sweep *sweep, struct dpb_sweep_job *jobs);

/* ---- the document (dpbench.sweep/1) -------------------------------------------------------- */

/* A new document without runs, with this process's warnings. @owned; NULL: out of memory. */
json_t *dpb_sweep_document(const struct dpb_sweep *sweep, const struct dpb_config *config);
/* Appends a job's result (stolen) with its cell and repeat. */
void dpb_sweep_add(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job, json_t *result,
                   json_t *document);
/* Whether the run or row, of a foreign document, belongs to the cell that its index names. */
bool dpb_sweep_has(const struct dpb_sweep *sweep, const json_t *run);
/* Whether the job needs no further run: the document has a good run that was not disturbed, or that
 * was repeated sweep.retry_disturbed times. */
bool dpb_sweep_done(const struct dpb_sweep *sweep, const json_t *document,
                    const struct dpb_sweep_job *job);

#endif
