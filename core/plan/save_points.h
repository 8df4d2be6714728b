/* save_points.h - when checkpoints are due, and their names. */
#ifndef DPB_CORE_PLAN_SAVE_POINTS_H
#define DPB_CORE_PLAN_SAVE_POINTS_H

#include "base/settings.h"
#include "dpbench/status.h"
#include "world/board.h"

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
/* The same of checkpoint i that the launcher keeps, for processes of its machine and user. */
void dpb_kept_path(const struct dpb_board_kept *kept, uint32_t i, char *path, size_t capacity);

#endif
