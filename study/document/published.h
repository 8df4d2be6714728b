/*
 * published.h - figures that others published for cells of a sweep, to stand beside ours as
 * speedups. They come from other hardware, so they are never a pass or a fail.
 */
#ifndef DPB_STUDY_DOCUMENT_PUBLISHED_H
#define DPB_STUDY_DOCUMENT_PUBLISHED_H

#include <jansson.h>
#include <stdio.h>

/* The figure of a row by that of another, both of one source and hardware; NaN: there is none. */
double dpb_published_speedup(const json_t *document, const json_t *row, const json_t *over);

/* Prints the sources of the figures in one line; nothing if the document has none. */
void dpb_published_note(const json_t *document, FILE *out);

#endif
