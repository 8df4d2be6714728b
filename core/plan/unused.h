/*
 * unused.h - settings that do nothing beside the others. Refused (DPB_USAGE) where the file, or the
 * command line, says both; a warning `unused_setting` where the setting is of a document, or where
 * an axis or the command line has turned off a setting of the file. Ranks do not look again.
 */
#ifndef DPB_CORE_PLAN_UNUSED_H
#define DPB_CORE_PLAN_UNUSED_H

#include "plan/plan.h"

/* Whether `by` (NULL: a default) turned the setting off, so that a warning is due. */
bool dpb_turned_off(const struct dpb_setting *setting, const struct dpb_setting *by);
/* Warns, or refuses: "ORIGIN: SECTION.KEY = VALUE does nothing" WHY. */
DPB_PRINTF(3, 4)
dpb_status dpb_unused(const struct dpb_setting *setting, bool turned_off, const char *why, ...);
/* By the column `needs` of all tables. */
dpb_status dpb_unused_by_needs(const struct dpb_experiment *experiment);
/* The last step of a training, if the settings alone say which; 0: they do not. */
uint64_t dpb_ends_at(const struct dpb_settings *settings);
/* By the last step, if run.steps alone says which it is: checkpoints and evaluations behind it. The
 * result of a run of another length warns of them. */
dpb_status dpb_unused_by_length(const struct dpb_experiment *experiment);

#endif
