/*
 * snapshot.h - saving a training and continuing it: when checkpoints are due, under which name, and
 * how the parts that the ranks hold come together. The file itself is graph/checkpoint.h's.
 *
 * Weights are those that the strategy publishes, batch-norm statistics the mean over the workers,
 * the optimizer's state is collected from the ranks that own it (collect.h). What a strategy keeps
 * beside them is saved.h's. A file without such state does not know by how many workers, on how
 * many machines or by which strategy it was made.
 */
#ifndef DPB_CORE_TRAIN_SNAPSHOT_H
#define DPB_CORE_TRAIN_SNAPSHOT_H

#include "graph/checkpoint.h"
#include "train/settings.h"
#include "world/world.h"

struct dpb_trainer;
struct dpb_experiment;

enum { DPB_SAVE_POINTS = 64 };

/* When a training is saved, its end aside. */
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

/* Checks checkpoint.load against the experiment's graph and optimizer; *start is where it goes on,
 * all zero where nothing is loaded or resumed. */
dpb_status dpb_snapshot_check(const struct dpb_experiment *experiment, struct dpb_progress *start);

/* Workers: weights and statistics, initialised or from checkpoint.load, into the arenas; any rank:
 * the state of the ranges that it owns. */
dpb_status dpb_snapshot_load(struct dpb_trainer *trainer);
/* Collective over the workers, between steps: rank 0 writes checkpoint.save, the others wait.
 * Nothing where there is none. */
dpb_status dpb_snapshot_save(struct dpb_trainer *trainer);
/* The same, with the step in the file's name. */
dpb_status dpb_snapshot_save_step(struct dpb_trainer *trainer);
/* The launcher, once all processes have ended: removes what one that died while it wrote a
 * checkpoint has left beside the file's place. */
void dpb_snapshot_sweep(const char *save, const int32_t *pids, uint32_t n);

#endif
