/*
 * figure_parts.h - what the figures of a run and those of a sweep share: private to figures.c and
 * sweep_figures.c.
 */
#ifndef DPB_CORE_STUDY_FIGURE_PARTS_H
#define DPB_CORE_STUDY_FIGURE_PARTS_H

#include "study/figures.h"

enum { DPB_FIGURE_SERIES = 24 }; /* colours tell no more apart */

/* Whether the rate of a run or row allows no conclusion. */
bool dpb_figure_is_doubtful(const json_t *of);

/* The parts of a step as a bar, and their sum. */
void dpb_figure_fill_parts(const json_t *breakdown_ns, struct dpb_svg_row *bar);
double dpb_figure_sum_of_parts(const struct dpb_svg_row *bar);
/* `bars`: in nanoseconds; they become the unit of the figure. */
void dpb_figure_bars(struct dpb_svg_row *bars, size_t n, const char *what, const char *about,
                     FILE *out);

/* A line that owns its points. */
struct dpb_course {
    double *x, *y;
    size_t n;
};

/* Room for n points. False: out of memory. dpb_course_release either way. */
bool dpb_course_create(size_t n, struct dpb_course *course);
void dpb_course_release(struct dpb_course *course);
void dpb_course_add(struct dpb_course *course, double x, double y);

enum dpb_by { DPB_BY_SAMPLES, DPB_BY_SECONDS };
typedef void dpb_course_of(const json_t *run, enum dpb_by by, struct dpb_course *course);
/* By seconds only where the time of each step is known, the warm-up's too. */
void dpb_course_of_loss(const json_t *run, enum dpb_by by, struct dpb_course *course);
void dpb_course_of_accuracy(const json_t *run, enum dpb_by by, struct dpb_course *course);

struct dpb_named_run {
    const char *name;
    const json_t *run;
    int color;
};

/* Loss or accuracy of some runs. */
void dpb_figure_course(const struct dpb_named_run *runs, size_t n_runs, dpb_course_of *of,
                       enum dpb_by by, const char *about, FILE *out);

#endif
