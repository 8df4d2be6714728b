/*
 * experiment.h - from a configuration to an experiment. The launcher makes one to refuse
 * combinations that cannot work, each rank makes one to do the work. No device and no other rank is
 * touched here.
 */
#ifndef DPB_CORE_PLAN_EXPERIMENT_H
#define DPB_CORE_PLAN_EXPERIMENT_H

#include "base/output.h"
#include "feed/feed.h"
#include "launch/launch.h"
#include "plan/host.h"
#include "plan/plan.h"

/* Parses, loads plugins, checks every combination by name (DPB_USAGE, DPB_UNSUPPORTED). *experiment
 * is @owned. */
dpb_status dpb_experiment_create(const struct dpb_config *config,
                                 struct dpb_experiment **experiment);
/* Opens the data, as rank `rank` will use it (servers use none), and builds the graph. In run.mode
 * = comm there are no data: samples and classes are the model's. */
dpb_status dpb_experiment_build(struct dpb_experiment *experiment, uint32_t rank);
/* Before dpb_experiment_build, which opens no data then: has those of an experiment that was built
 * for a server and has the same, if they are still there. */
void dpb_experiment_take_data(struct dpb_experiment *experiment, struct dpb_experiment *from);
/* Whether the run can begin here: plugins, the device of the first place, and the files that the
 * run will write, the result aside: none of them may be one that it reads. `beside`: other files of
 * the command, as -c and --output; NULL: none. */
dpb_status dpb_experiment_probe(const struct dpb_experiment *experiment,
                                const struct dpb_named_file *beside, size_t n_beside);
/* The arguments of rank 0's feed of the training set from experiment->start, with data.threads
 * helpers. Built experiments only. Pointers are @borrowed from the experiment. */
struct dpb_feed_args dpb_experiment_feed(const struct dpb_experiment *experiment);
void dpb_experiment_destroy(struct dpb_experiment *experiment); /* accepts NULL */

/* config.SECTION.KEY.{value,origin} of all tables. @owned. */
json_t *dpb_experiment_effective(const struct dpb_experiment *experiment);
/* The shape of the run's journals: launch/launch.h. */
struct dpb_journal_shape dpb_experiment_journal_shape(const struct dpb_experiment *experiment);
/* Bytes of journal that the longest run of these settings may need; sparse memory. */
size_t dpb_experiment_journal_bytes(const struct dpb_experiment *experiment);
/* Environment of the ranks (thread variables of plugins): NULL-terminated, @owned: one free() frees
 * all. `threads` is a worker's. */
const char *const *dpb_experiment_environment(const struct dpb_experiment *experiment,
                                              uint32_t threads);

#endif
