/*
 * facts.h - texts of ranks beside numbers: facts that strategies report (the host's `report`), as
 * interface and device; and warnings[] of a result, from launcher and ranks, each text once.
 */
#ifndef DPB_CORE_RECORD_FACTS_H
#define DPB_CORE_RECORD_FACTS_H

#include <jansson.h>
#include <stdio.h>

#include "world/board.h"

/* An object of texts; NULL: the rank has reported nothing. @owned. */
json_t *dpb_facts_to_json(const struct dpb_status_page *page);
/* ranks[] of `dpbench comm`: rank, host and facts of the ranks that reported something. @owned. */
json_t *dpb_facts_of_ranks(struct dpb_board *board);
/* For people: the facts of a document's `ranks`; ranks with equal facts share a line. Each line
 * begins with `margin`. */
void dpb_facts_print(const json_t *ranks, const char *margin, FILE *out);

/* An array of {code, text, count, ranks[]} from this process and the board's ranks (NULL: no
 * board). ranks[] is empty for the launcher's own warnings. @owned. */
json_t *dpb_warnings_collect(struct dpb_board *board);
/* Appends a warning of the result itself. */
void dpb_warnings_add(json_t *warnings, const char *code, const char *format, ...) DPB_PRINTF(3, 4);

#endif
