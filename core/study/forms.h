/*
 * forms.h - the tables of a sweep as Markdown, for a page, and as CSV, for a program.
 */
#ifndef DPB_CORE_STUDY_FORMS_H
#define DPB_CORE_STUDY_FORMS_H

#include <jansson.h>
#include <stdio.h>

/* Both tables of dpb_sweep_print, and the notes below them as a list. */
void dpb_sweep_markdown(const json_t *document, FILE *out);
/* rows[], a line each, by RFC 4180 but for the line's end, a line feed. The columns are the fields
 * of rows[] by their paths, as in `to_target.seconds.mean`; lists are left out, null is empty. */
void dpb_sweep_csv(const json_t *document, FILE *out);

#endif
