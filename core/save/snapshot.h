/*
 * snapshot.h - saves a training and continues it: when checkpoints are due, their names, and the
 * collection of the ranks' parts. graph/checkpoint.h writes the file.
 *
 * A file has the weights that the strategy publishes, the mean of the workers' batch-norm
 * statistics, and the optimizer's state, collected from the ranks that own it (collect.h). saved.h
 * adds a strategy's further state. A file without such state does not depend on the number of
 * workers, the machines or the strategy.
 */
#ifndef DPB_CORE_SAVE_SNAPSHOT_H
#define DPB_CORE_SAVE_SNAPSHOT_H

#include "graph/checkpoint.h"
#include "base/settings.h"
#include "world/world.h"

struct dpb_trainer;
struct dpb_experiment;

enum { DPB_SAVE_POINTS = 64 };

/* The steps at which a training is saved, its end aside. */
struct dpb_save_points {
    uint64_t at[DPB_SAVE_POINTS], every; /* steps; every = 0: never */
    uint32_t n;
};

/* From checkpoint.at and checkpoint.every: DPB_USAGE, naming `origin`, for a malformed list. */
dpb_status dpb_save_points_make(const struct dpb_settings *settings, const char *origin,
                                struct dpb_save_points *points);
bool dpb_save_points_due(const struct dpb_save_points *points, uint64_t step);

/* checkpoint.save with the step in its name: net.safetensors -> net-step100.safetensors. False: too
 * long. */
bool dpb_snapshot_path(const char *save, uint64_t step, char *path, size_t capacity);

/* Checks checkpoint.load against the experiment's graph and optimizer; *start is the point where
 * the training continues, all zero if nothing is loaded or resumed. */
dpb_status dpb_snapshot_check(const struct dpb_experiment *experiment, struct dpb_progress *start);

/* Workers: initialises weights and statistics or loads them from checkpoint.load, into the arenas.
 * Any rank: loads the state of the ranges that it owns. */
dpb_status dpb_snapshot_load(struct dpb_trainer *trainer);
/* Collective over the workers, between steps: rank 0 writes checkpoint.save, the others wait.
 * Nothing if that is not set. */
dpb_status dpb_snapshot_save(struct dpb_trainer *trainer);
/* The same, with the step in the file's name. */
dpb_status dpb_snapshot_save_step(struct dpb_trainer *trainer);
/* The launcher, after all processes have ended: removes a partial file that a process left beside
 * the checkpoint when it died while writing. */
void dpb_snapshot_sweep(const char *save, const int32_t *pids, uint32_t n);

#endif
