/*
 * facts.h - what strategies report of each rank (the host's `report`): which interface, which
 * device.
 */
#ifndef DPB_CORE_STUDY_FACTS_H
#define DPB_CORE_STUDY_FACTS_H

#include <jansson.h>
#include <stdio.h>

#include "world/board.h"

/* An object of texts; NULL: the rank has reported nothing. @owned. */
json_t *dpb_facts_to_json(const struct dpb_status_page *page);
/* ranks[] of `dpbench comm`: rank, host and what it reported, of those that reported something.
 * @owned. */
json_t *dpb_facts_of_ranks(struct dpb_board *board);
/* For people: what `ranks` (of a document) have reported, ranks alike in one line, each line behind
 * `margin`. */
void dpb_facts_print(const json_t *ranks, const char *margin, FILE *out);

#endif
