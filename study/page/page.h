/*
 * page.h - results as one self-contained page of HTML: templates/report.html with the documents in
 * it. The template's script draws tables and figures; this file writes what the script reads.
 *
 * All texts and statistics are made here, by the code of the tables for people (result_print.c,
 * sweep_print.c): the script computes none. Fields of results keep their names (docs/results.md). A
 * reader without scripts sees the tables as `dpbench report` prints them.
 */
#ifndef DPB_STUDY_PAGE_PAGE_H
#define DPB_STUDY_PAGE_PAGE_H

#include <jansson.h>
#include <stddef.h>

#include "dpbench/status.h"

struct dpb_page; /* opaque */

struct dpb_page *dpb_page_create(void);       /* NULL: out of memory */
void dpb_page_destroy(struct dpb_page *page); /* accepts NULL */
/* Appends a section. `document` is from dpb_json_printable; it is no longer needed afterwards. */
void dpb_page_add(struct dpb_page *page, const char *path, const json_t *document);
/* The whole page, of *length bytes: the template with its marks @SCRIPT@ (the hash of its script,
 * for the content security policy), @TEXT@ and @REPORT@ replaced, which stand in this order. Call
 * it once. *text is @owned. DPB_IO: the template lacks a mark. DPB_NO_MEMORY. */
dpb_status dpb_page_finish(struct dpb_page *page, const char *template, char **text,
                           size_t *length);

#endif
