/*
 * sweep_print.h - the document of a sweep or search, for people.
 */
#ifndef DPB_STUDY_TABLE_SWEEP_PRINT_H
#define DPB_STUDY_TABLE_SWEEP_PRINT_H

#include <jansson.h>
#include <stdio.h>

/* Prints the table for people, at most 100 columns wide, and how to read the table. */
void dpb_sweep_print(const json_t *document, FILE *out);
/* The same for a search, without the table of its trials. */
void dpb_sweep_print_best(const json_t *document, FILE *out);

#endif
