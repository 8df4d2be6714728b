/*
 * facts.h - facts that strategies report of each rank (the host's `report`): which interface, which
 * device.
 */
#ifndef DPB_CORE_STUDY_FACTS_H
#define DPB_CORE_STUDY_FACTS_H

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

#endif
