/*
 * tune_print.h - the document of a search, for people.
 */
#ifndef DPB_STUDY_TABLE_TUNE_PRINT_H
#define DPB_STUDY_TABLE_TUNE_PRINT_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/* The number of trials that are over. */
size_t dpb_tune_trials(const json_t *document);
enum { DPB_TUNE_LINE = 4608 }; /* capacity that holds every reason */
/* A line of the table of trials, as wide as its reasons; `trial` -1: its head. */
void dpb_tune_line(const json_t *document, long trial, char *line, size_t capacity);
/* The table. */
void dpb_tune_print(const json_t *document, FILE *out);
/* The best setting as lines of an .ini file, and how to read the table. */
void dpb_tune_print_best(const json_t *document, FILE *out);

#endif
