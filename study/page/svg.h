/*
 * svg.h - small plots as inline SVG: lines over two axes, rows of dots with intervals, rows of
 * stacked bars. It is no general drawing library: no legends, no styles, no layout.
 *
 * Colours and fonts are classes that the page's style sheet defines: c0 to c7 and cn (neutral) of
 * series, p0 to p7 of parts. A plot is DPB_SVG_WIDTH units wide and scales with its place. Values
 * are in the unit that the axis' title names. A function returns false, and draws nothing, if there
 * is nothing finite to draw. With `out` NULL it only returns whether there is.
 */
#ifndef DPB_STUDY_PAGE_SVG_H
#define DPB_STUDY_PAGE_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { DPB_SVG_WIDTH = 360, DPB_SVG_COLORS = 8, DPB_SVG_PARTS = 8, DPB_SVG_NEUTRAL = -1 };

/* "c3"; "cn". */
const char *dpb_svg_color(int color);

/* One line. @borrowed. x rises; a value that is not finite breaks the line. */
struct dpb_svg_series {
    const double *x, *y;
    const bool *hollow; /* marks of doubtful points; NULL: none */
    size_t n;
    int color;
    bool dashed, marked; /* a mark at each point */
};

struct dpb_svg_plot {
    const char *name; /* for readers who hear the page */
    const char *x_title, *y_title;
    const struct dpb_svg_series *series;
    size_t n_series;
    const double *x_ticks; /* NULL: round numbers */
    size_t n_x_ticks;
    bool x_log, y_log; /* of values above 0 */
    bool y_from_zero;  /* the axis begins at 0, else near the least value */
    double shaded_to;  /* the range of x up to here is shaded; 0: none */
};

/* A series of many points is thinned to the least and the largest value of each column. */
bool dpb_svg_lines(const struct dpb_svg_plot *plot, FILE *out);

/* One row. A label is cut after 22 characters. */
struct dpb_svg_row {
    char label[128], text[32]; /* to its left and to its right */
    double value, low, high;   /* of a dot; low and high may be NaN */
    int color;
    bool hollow;
    double parts[DPB_SVG_PARTS]; /* of a bar; 0 or NaN: not drawn */
};

/* The axis begins at 0. `title`: of the labels. An interval that reaches beyond 1.5 times the
 * largest value runs out of the plot, without its end: it would leave no room for the dots. */
struct dpb_svg_rows {
    const char *name, *title, *x_title;
    const struct dpb_svg_row *rows;
    size_t n_rows;
    bool bars; /* else dots */
};

bool dpb_svg_rows_draw(const struct dpb_svg_rows *plot, FILE *out);

#endif
