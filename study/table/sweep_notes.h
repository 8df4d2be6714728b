/*
 * sweep_notes.h - what stands below the table of a sweep.
 */
#ifndef DPB_STUDY_TABLE_SWEEP_NOTES_H
#define DPB_STUDY_TABLE_SWEEP_NOTES_H

#include <jansson.h>
#include <stdio.h>

/* The notes and warnings below the table, each in one line, however long. */
void dpb_sweep_notes(const json_t *document, FILE *out);
/* The document's warnings and, unless it is ok, its status. */
void dpb_sweep_warnings(const json_t *document, FILE *out);

#endif
