/*
 * html_parts.h - private to html.c, html_sweep.c and html_style.c: the parts of a page.
 */
#ifndef DPB_CORE_STUDY_HTML_PARTS_H
#define DPB_CORE_STUDY_HTML_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

extern const char dpb_html_style[];

/* Below the head of a sweep: its tables, notes, warnings and figures. */
void dpb_html_sweep(const json_t *document, FILE *out);

static inline bool dpb_html_begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

#endif
