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
 *     retry_budget = 60                 seconds of all these repeats; else what other runs take
 *     limit_s = 75                      no run starts later
 *     turns = yes                       all cells side by side, a short time each (turns.h)
 *     budget = 40                       seconds of all turns; else run.seconds a cell
 *     accuracy = 500                    steps of one more run a strategy, for its test accuracy
 *     launch = mpirun -np {ranks}       what starts a cell (launch_line.h); empty: dpbench itself
 *
 * [sweep.shm] beside it has settings for one value of an axis (sweep_own.h). Numeric settings
 * may be expressions over others (cli/derive.h). A [published] beside it has figures of others for
 * its cells (published.h).
 *
 * On the command line an axis is `sweep.SECTION.KEY=a,b`; a plain SECTION.KEY=VALUE replaces the
 * file's axis of this name. If an axis lists plugins (comm.name, data.name), an option that only
 * some of them have goes to these. The caller runs the cells. A [tune] is read the same way and
 * makes a sweep whose cells a search chooses (tune.h).
 */
#ifndef DPB_STUDY_SWEEP_SWEEP_H
#define DPB_STUDY_SWEEP_SWEEP_H

#include "plan/experiment.h"
#include "study/sweep/sweep_cells.h"

/* Refuses (DPB_USAGE) with the origin: a malformed list or condition (sweep_list.h), a key that is
 * no SECTION.KEY, a [sweep] beside a [tune], all that dpb_published_read refuses. */
dpb_status dpb_sweep_create(const struct dpb_config *config, struct dpb_sweep **sweep);
void dpb_sweep_destroy(struct dpb_sweep *sweep); /* accepts NULL */

/* The configuration of one job; of a cell that is known to be refused as it is written, without
 * derived values. *config is @owned. */
dpb_status dpb_sweep_config(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                            struct dpb_config **config);
/* The experiment of one job. *experiment is @owned: dpb_experiment_destroy. */
dpb_status dpb_sweep_experiment(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                                struct dpb_experiment **experiment);

#endif
