/*
 * figures.h - which figures a result or a sweep has, as <figure> elements with inline SVG. A figure
 * that does not exist for these results is left out. Numbers are read from the document; none is
 * estimated here but by rates.h.
 */
#ifndef DPB_CORE_STUDY_FIGURES_H
#define DPB_CORE_STUDY_FIGURES_H

#include <jansson.h>
#include <stdio.h>

#include "study/svg.h"

/* What a line, or a box, of a figure stands for. */
struct dpb_figure_key {
    const char *name, *class;
    bool dashed, box;
};

/* A figure of lines with its caption and key; none where there is nothing to draw. */
void dpb_figure_lines(const char *about, const struct dpb_figure_key *keys, size_t n_keys,
                      const struct dpb_svg_plot *plot, FILE *out);

/* Step times, parts of the step, loss and accuracy of one run. */
void dpb_figures_of_run(const json_t *document, FILE *out);
/* sweep_figures.c: rates, speedup, efficiency, parts of the step, loss and accuracy, for each group
 * of rows. `table`: of dpb_sweep_table. */
void dpb_figures_of_sweep(const json_t *document, const json_t *table, FILE *out);
/* monitor_figures.c: CPUs of each machine, power of the GPUs; nothing without run.monitor. */
void dpb_figures_of_monitor(const json_t *document, FILE *out);
/* The rates of runs or of rows, one below the other. */
void dpb_figure_of_rates(const struct dpb_svg_row *rows, size_t n, const char *what, FILE *out);
/* One of its rows, without label, of a run (`row` NULL) or of a row. */
void dpb_figure_rate(const json_t *document, const json_t *row, struct dpb_svg_row *rate);
/* "disturbed, timed only once": why the rate of a run or row allows no conclusion; "": it does. */
void dpb_figure_doubts(const json_t *of, char *text, size_t capacity);

#endif
