/*
 * sweep_own.h - settings that one value of an axis has for itself:
 *
 *     [sweep]
 *     comm.name = shm, ps_async
 *     [sweep.ps_async]                         on the command line sweep.ps_async.run.servers=1
 *     run.servers = 1
 *
 * The cells of the value take them in place of the plain settings. Where two axes have the value,
 * [sweep.comm.name.ps_async] names one. A plain setting of the command line replaces those of the
 * file.
 */
#ifndef DPB_STUDY_SWEEP_SWEEP_OWN_H
#define DPB_STUDY_SWEEP_SWEEP_OWN_H

#include "study/sweep/sweep_cells.h"

/* Whether the setting is one of these, not an axis and no key of the study. */
bool dpb_sweep_own_is(const struct dpb_settings_section *study, const struct dpb_setting *setting);
/* From `given` to `own` of the sweep. `left`: axes that the command line replaced by plain
 * settings: of their values that setting keeps its own, as plain ones, and `given` loses the
 * others. DPB_USAGE, with the origin: no axis has the value, or several; the setting is an axis; it
 * is given twice, or for values of two axes. */
dpb_status dpb_sweep_own_read(struct dpb_sweep *sweep, const struct dpb_sweep_axis *left,
                              size_t n_left);
void dpb_sweep_own_release(struct dpb_sweep *sweep);

#endif
