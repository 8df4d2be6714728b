/*
 * figures.h - the figures of a result or a sweep, as <figure> elements with inline SVG. A figure
 * that does not exist for these results is left out. Numbers are read from the document; none is
 * estimated here but by rates.h.
 */
#ifndef DPB_STUDY_PAGE_FIGURES_H
#define DPB_STUDY_PAGE_FIGURES_H

#include <jansson.h>
#include <stdio.h>

#include "study/page/svg.h"
#include "study/table/table.h"

/* The meaning of a line, or a box, of a figure. */
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
 * of rows. */
void dpb_figures_of_sweep(const json_t *document, const struct dpb_table *table, FILE *out);
/* CPUs of each machine, power of the GPUs; nothing without run.monitor. */
void dpb_figures_of_monitor(const json_t *document, FILE *out);
/* The rates of runs or of rows, one below the other. */
void dpb_figure_of_rates(const struct dpb_svg_row *rows, size_t n, const char *what, FILE *out);
/* One of its rows, without label, of a run (`row` NULL) or of a row. */
void dpb_figure_rate(const json_t *document, const json_t *row, struct dpb_svg_row *rate);

enum { DPB_FIGURE_SERIES = 24 }; /* the colours distinguish no more */

/* Whether the rate of a run or row allows no conclusion. */
bool dpb_figure_is_doubtful(const json_t *of);

/* The parts of a step as a bar, and their sum. */
void dpb_figure_fill_parts(const json_t *breakdown_ns, struct dpb_svg_row *bar);
double dpb_figure_sum_of_parts(const struct dpb_svg_row *bar);
/* `bars`: in nanoseconds; they become the unit of the figure. */
void dpb_figure_bars(struct dpb_svg_row *bars, size_t n, const char *what, const char *about,
                     FILE *out);

/* A line that owns its points. */
struct dpb_figure_line {
    double *x, *y;
    size_t n;
};

/* Room for n points. False: out of memory. dpb_figure_line_release either way. */
bool dpb_figure_line_create(size_t n, struct dpb_figure_line *course);
void dpb_figure_line_release(struct dpb_figure_line *course);
void dpb_figure_line_add(struct dpb_figure_line *course, double x, double y);

struct dpb_named_run {
    const char *name;
    const json_t *run;
    int color;
};

enum dpb_figure_of { DPB_OF_LOSS, DPB_OF_ACCURACY };
enum dpb_by { DPB_BY_SAMPLES, DPB_BY_SECONDS };

/* Loss or accuracy of some runs. */
void dpb_figure_course(const struct dpb_named_run *runs, size_t n_runs, enum dpb_figure_of of,
                       enum dpb_by by, const char *about, FILE *out);

#endif
