/*
 * trace_file.h - the file of run.trace: the last steps of all ranks as Chrome's trace event format,
 * which ui.perfetto.dev reads. Made from the rings of measure/trace.h once the ranks have ended.
 *
 * Times are those of CLOCK_MONOTONIC of rank 0's machine. The pings of launch/part.c estimate the
 * offset of other machines' clocks; the file has the estimate and its error.
 */
#ifndef DPB_CORE_RECORD_TRACE_FILE_H
#define DPB_CORE_RECORD_TRACE_FILE_H

#include "plan/experiment.h"
#include "world/board.h"

/* Writes run.trace, whole or not at all; nothing without that setting. `ended`: the job's status.
 * Warns of ranks whose spans are lost or did not fit into their rings. DPB_IO, DPB_NO_MEMORY. */
dpb_status dpb_trace_file(const struct dpb_experiment *experiment, struct dpb_board *board,
                          dpb_status ended);

#endif
