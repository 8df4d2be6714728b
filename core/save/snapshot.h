/*
 * snapshot.h - saves a training in a checkpoint, and begins one with a checkpoint.
 * checkpoint/checkpoint.h knows the file, plan/save_points.h when one is due, plan/resume.h what is
 * continued.
 *
 * A file has the weights that the strategy publishes, the mean of the workers' batch-norm
 * statistics, and the optimizer's state, collected from the ranks that own it (collect.h). saved.h
 * adds a strategy's further state. A file without such state does not depend on the number of
 * workers, the machines or the strategy.
 */
#ifndef DPB_CORE_SAVE_SNAPSHOT_H
#define DPB_CORE_SAVE_SNAPSHOT_H

#include "exchange/exchange.h"
#include "measure/journal.h"
#include "optim/statistics.h"
#include "save/collect.h"

/* The parts of a training that its checkpoints have. */
struct dpb_snapshot {
    struct dpb_exchange *exchange; /* these three are @borrowed */
    struct dpb_statistics *statistics;
    struct dpb_journal *journal; /* gets the verdict on the published weights */
    struct dpb_collection collection;
    uint32_t n_begun; /* by all workers alike: for names in the store */
};

/* Once the exchange is open; collective over all ranks. Prepares the collection of the optimizer's
 * state if checkpoints are saved. */
dpb_status dpb_snapshot_open(struct dpb_snapshot *snapshot, struct dpb_exchange *exchange,
                             struct dpb_statistics *statistics, struct dpb_journal *journal);
void dpb_snapshot_close(struct dpb_snapshot *snapshot); /* accepts zeroed ones */

/* Workers: initialises weights and statistics or loads them from checkpoint.load, into the arenas.
 * Any rank: loads the state of the ranges that it owns. */
dpb_status dpb_snapshot_load(struct dpb_snapshot *snapshot);
/* Collective over the workers, between steps: rank 0 writes checkpoint.save, the others wait.
 * Nothing if that is not set. */
dpb_status dpb_snapshot_save(struct dpb_snapshot *snapshot, const struct dpb_progress *progress);
/* The same, with the step in the file's name, or into memory of the launcher: checkpoint.place. */
dpb_status dpb_snapshot_save_step(struct dpb_snapshot *snapshot,
                                  const struct dpb_progress *progress);
/* The launcher, after all processes have ended: removes a partial file that a process left beside
 * the checkpoint when it died while writing. */
void dpb_snapshot_clean_up(const char *save, const int32_t *pids, uint32_t n);

#endif
