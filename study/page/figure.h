/*
 * figure.h - a figure of a page as a file: node runs the page's own script (templates/figure.js).
 */
#ifndef DPB_STUDY_PAGE_FIGURE_H
#define DPB_STUDY_PAGE_FIGURE_H

#include <stddef.h>

#include "dpbench/status.h"

/* The figure `name` ("speedup") of the page as SVG. `script`: the path of figure.js. *svg is
 * @owned. DPB_USAGE: there is no such figure; the message lists those there are. DPB_UNSUPPORTED:
 * there is no node. */
dpb_status dpb_figure_make(const char *script, const char *name, const char *page, size_t length,
                           char **svg, size_t *svg_length);

#endif
