/*
 * published_read.h - a [published] beside a [sweep]: figures of others for its cells (published.h).
 *
 *     [published]
 *     comm.name independent run.workers 1 = 908.11, keras-multi-gpu (2017), 2 Tesla M60
 *     comm.name ps_gpu run.workers 2 = 1743.60, keras-multi-gpu (2017), 2 Tesla M60
 *
 * A key names one cell by settings of axes or of the experiment, values without their blanks. The
 * value is FIGURE, SOURCE, HARDWARE. Figures of one source and hardware have one unit, whichever.
 */
#ifndef DPB_STUDY_SWEEP_PUBLISHED_READ_H
#define DPB_STUDY_SWEEP_PUBLISHED_READ_H

#include "base/config.h"
#include "study/sweep/sweep_cells.h"

/* Sets sweep->published; the sweep's cells are known. Refuses (DPB_USAGE) with the origin: a
 * malformed line, a cell that the sweep lacks or that has a figure already, settings that several
 * cells have. Leaves out cells that the command line removed or divided. */
dpb_status dpb_published_read(const struct dpb_config *config, struct dpb_sweep *sweep);

#endif
