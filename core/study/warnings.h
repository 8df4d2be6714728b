/*
 * warnings.h - warnings[] of a result: what the launcher and all ranks warned of, each text once.
 */
#ifndef DPB_CORE_STUDY_WARNINGS_H
#define DPB_CORE_STUDY_WARNINGS_H

#include <jansson.h>

#include "world/board.h"

/* An array of {code, text, count, ranks[]}, of this process and of the board's ranks (NULL: none).
 * ranks[] is empty for the launcher's own. @owned. */
json_t *dpb_warnings_collect(struct dpb_board *board);
/* Appends one of the result itself. */
void dpb_warnings_add(json_t *warnings, const char *code, const char *format, ...) DPB_PRINTF(3, 4);

#endif
