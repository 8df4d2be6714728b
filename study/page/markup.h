/*
 * markup.h - writes HTML and SVG with texts from documents, which may have come from anywhere.
 */
#ifndef DPB_STUDY_PAGE_MARKUP_H
#define DPB_STUDY_PAGE_MARKUP_H

#include <stdio.h>

#include "dpbench/host.h"

/* Writes the format. Each %s stands for the text of an element, or of an attribute in double
 * quotes: no byte of the text can be markup. The format has no other conversion. */
DPB_PRINTF(2, 3) void dpb_markup(FILE *out, const char *format, ...);

#endif
