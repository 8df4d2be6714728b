/*
 * target_print.h - the table of the time to accuracy (study/document/target.h), for people.
 */
#ifndef DPB_STUDY_TABLE_TARGET_PRINT_H
#define DPB_STUDY_TABLE_TARGET_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "study/table/table.h"

/* The rows with a target. False: there is none. dpb_table_release either way. */
bool dpb_target_table_make(const json_t *document, struct dpb_table *table);
/* Without a row with a target these print nothing. print: the table, at most 100 columns wide.
 * notes: how to read the table, a line a paragraph. */
void dpb_target_print(const json_t *document, FILE *out);
void dpb_target_notes(const json_t *document, FILE *out);

#endif
