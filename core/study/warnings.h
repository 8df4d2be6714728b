/*
 * warnings.h - warnings[] of a result: the warnings of the launcher and all ranks, each text once.
 */
#ifndef DPB_CORE_STUDY_WARNINGS_H
#define DPB_CORE_STUDY_WARNINGS_H

#include <jansson.h>

#include "world/board.h"

/* An array of {code, text, count, ranks[]} from this process and the board's ranks (NULL: no
 * board). ranks[] is empty for the launcher's own warnings. @owned. */
json_t *dpb_warnings_collect(struct dpb_board *board);
/* Appends a warning of the result itself. */
void dpb_warnings_add(json_t *warnings, const char *code, const char *format, ...) DPB_PRINTF(3, 4);

#endif
