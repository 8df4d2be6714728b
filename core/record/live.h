/*
 * live.h - the present state of a running job, in lines for people, from its board alone: for its
 * launcher and for `dpbench watch`. Its ranks write meanwhile, so a line may mix two moments.
 */
#ifndef DPB_CORE_RECORD_LIVE_H
#define DPB_CORE_RECORD_LIVE_H

#include "world/board.h"

enum { DPB_LIVE_LINE = 512 };

/* "[3/24] comm.name=shm step 52 / 150 939 samples/s loss 1.21 ETA 4 s, all 2 min". Where `columns`
 * are too few, the names of the label's settings go first, then its end, then the line's end. */
void dpb_live_line(struct dpb_board *board, size_t columns, char *line, size_t capacity);
/* " rank 1 (host1, pid 812) backward of step 52": one rank of the job. */
void dpb_live_rank(struct dpb_board *board, uint32_t rank, size_t columns, char *line,
                   size_t capacity);

#endif
