/*
 * wall.h - where a job's time by the clock on the wall went: `wall` of a result.
 */
#ifndef DPB_CORE_RECORD_WALL_H
#define DPB_CORE_RECORD_WALL_H

#include <jansson.h>
#include <stdio.h>

#include "measure/journal.h"
#include "world/board.h"

/* From the command's begin until now, in parts by rank 0's journal, which add up to it. Null: no
 * job was begun. @owned. */
json_t *dpb_wall_to_json(struct dpb_board *board, const struct dpb_journal *journal);
/* A line for people, of the result's `wall`. Parts below a thousandth are left out. */
void dpb_wall_print(const json_t *wall, FILE *out);

#endif
