/*
 * published.h - figures that others published for cells of a sweep, to stand beside ours as
 * speedups. They come from other hardware, so they are never a pass or a fail.
 *
 *     [published]
 *     comm.name independent run.workers 1 = 908.11, keras-multi-gpu (2017), 2 Tesla M60
 *     comm.name ps_gpu run.workers 2 = 1743.60, keras-multi-gpu (2017), 2 Tesla M60
 *
 * A key names one cell by settings of axes or of the experiment, values without their blanks. The
 * value is FIGURE, SOURCE, HARDWARE. Figures of one source and hardware have one unit, whichever.
 */
#ifndef DPB_STUDY_DOCUMENT_PUBLISHED_H
#define DPB_STUDY_DOCUMENT_PUBLISHED_H

#include <jansson.h>
#include <stdio.h>

#include "base/config.h"

struct dpb_sweep;

/* Sets sweep->published; the sweep's cells are known. Refuses (DPB_USAGE) with the origin: a
 * malformed line, a cell that the sweep lacks or that has a figure already, settings that several
 * cells have. Leaves out cells that the command line removed or divided. */
dpb_status dpb_published_read(const struct dpb_config *config, struct dpb_sweep *sweep);

/* The figure of a row by that of another, both of one source and hardware; NaN: there is none. */
double dpb_published_speedup(const json_t *document, const json_t *row, const json_t *over);

/* Prints the sources of the figures in one line; nothing if the document has none. */
void dpb_published_note(const json_t *document, FILE *out);

#endif
