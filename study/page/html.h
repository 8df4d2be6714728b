/*
 * html.h - results as one self-contained page of HTML: no scripts, no files, no network.
 *
 * Numbers are those of the tables for people (result_print.c, sweep_print.c), figures those of
 * figures.h. Text of results is escaped. The page follows the reader's light or dark scheme, and
 * prints light.
 */
#ifndef DPB_STUDY_PAGE_HTML_H
#define DPB_STUDY_PAGE_HTML_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

struct dpb_html; /* opaque */

struct dpb_html *dpb_html_create(void);       /* NULL: out of memory */
void dpb_html_destroy(struct dpb_html *html); /* accepts NULL */
/* Appends a section. `document` is from dpb_json_printable; it is no longer needed afterwards. */
void dpb_html_add(struct dpb_html *html, const char *path, const json_t *document);
/* The whole page, of *length bytes. Call it once. @owned. NULL: out of memory. */
char *dpb_html_finish(struct dpb_html *html, size_t *length);

/* Below the head of a sweep: its tables, notes, warnings and figures. */
void dpb_html_sweep(const json_t *document, FILE *out);

#endif
