/* sweep_figures.c - the figures of a sweep, for each group of its rows: see figures.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "study/page/figures.h"
#include "base/json.h"
#include "study/page/markup.h"
#include "study/document/rows.h"

enum { TEXT = 128 };

/* The lines of one group. */
struct group {
    const json_t *document;
    const struct dpb_table_line *lines; /* @borrowed */
    size_t n;
    const char *strategies[DPB_FIGURE_SERIES]; /* of the whole table */
    size_t n_strategies, n_left_out;
};

static const char *strategy_of(const json_t *row)
{
    return dpb_json_text(row, "strategy", "?");
}

static bool is_independent(const char *strategy)
{
    return strcmp(strategy, "independent") == 0;
}

/* The same color in all figures of the sweep. */
static int color_of(const struct group *group, const char *strategy)
{
    int color = 0;
    if (is_independent(strategy))
        return DPB_SVG_NEUTRAL;
    for (size_t i = 0; i < group->n_strategies; i++) {
        if (strcmp(group->strategies[i], strategy) == 0)
            return color;
        color += !is_independent(group->strategies[i]);
    }
    return color;
}

/* Colors distinguish DPB_FIGURE_SERIES strategies; a strategy that comes twice counts once. */
static void find_strategies(const struct dpb_table *table, struct group *group)
{
    json_t *left_out = json_object();
    for (size_t i = 0; i < table->n; i++) {
        const char *strategy = strategy_of(table->lines[i].row);
        size_t k = 0;
        while (k < group->n_strategies && strcmp(group->strategies[k], strategy) != 0)
            k++;
        if (k == DPB_FIGURE_SERIES)
            json_object_set_new(left_out, strategy, json_true());
        else if (k == group->n_strategies)
            group->strategies[group->n_strategies++] = strategy;
    }
    group->n_left_out = json_object_size(left_out);
    json_decref(left_out);
}

static void write_rates_and_parts(const struct group *group, FILE *out)
{
    struct dpb_svg_row *dots = calloc(group->n + 1, sizeof *dots);
    struct dpb_svg_row *bars = calloc(group->n + 1, sizeof *bars);
    size_t n_bars = 0;
    for (size_t i = 0; dots && bars && i < group->n; i++) {
        const json_t *row = group->lines[i].row;
        dpb_figure_rate(group->document, row, &dots[i]);
        snprintf(dots[i].label, sizeof dots[i].label, "%.100s, %.0f", strategy_of(row),
                 dpb_json_number(row, "workers"));
        dots[i].color = color_of(group, strategy_of(row));
        memcpy(bars[n_bars].label, dots[i].label, sizeof dots[i].label);
        dpb_figure_fill_parts(json_object_get(row, "breakdown_ns"), &bars[n_bars]);
        n_bars += dpb_figure_sum_of_parts(&bars[n_bars]) > 0;
    }
    if (dots && bars) {
        dpb_figure_of_rates(dots, group->n, "strategy, workers", out);
        dpb_figure_bars(bars, n_bars, "strategy, workers",
                        "means over the runs; hidden communication is not in it", out);
    }
    free(dots);
    free(bars);
}

/* A number of a strategy's rows over their workers. */
struct scaling {
    struct dpb_figure_line course;
    bool *hollow;
};

static int by_workers(const void *a, const void *b)
{
    const double x = dpb_json_number(*(const json_t *const *)a, "workers");
    const double y = dpb_json_number(*(const json_t *const *)b, "workers");
    return (x > y) - (x < y);
}

static void scaling_of(const struct group *group, const char *strategy, const char *path,
                       double unit, struct scaling *scaling)
{
    const json_t **rows = calloc(group->n + 1, sizeof *rows);
    size_t n = 0;
    *scaling = (struct scaling){.hollow = calloc(group->n + 1, sizeof *scaling->hollow)};
    for (size_t i = 0; rows && i < group->n; i++)
        if (strcmp(strategy_of(group->lines[i].row), strategy) == 0 &&
            isfinite(dpb_json_number(group->lines[i].row, path)))
            rows[n++] = group->lines[i].row;
    if (n > 0)
        qsort(rows, n, sizeof *rows, by_workers);
    if (dpb_figure_line_create(n, &scaling->course) && scaling->hollow) {
        for (size_t i = 0; i < n; i++) {
            scaling->hollow[i] = dpb_figure_is_doubtful(rows[i]);
            dpb_figure_line_add(&scaling->course, dpb_json_number(rows[i], "workers"),
                                dpb_json_number(rows[i], path) * unit);
        }
    }
    free(rows);
}

/* The numbers of workers, rising; `workers` has room for one a row. */
static size_t find_workers(const struct group *group, double *workers)
{
    size_t n = 0;
    for (size_t i = 0; i < group->n; i++) {
        const double w = dpb_json_number(group->lines[i].row, "workers");
        size_t k = 0;
        while (k < n && workers[k] != w)
            k++;
        if (k == n && w > 0 && isfinite(dpb_json_number(group->lines[i].row, "speedup")))
            workers[n++] = w;
    }
    if (n > 0)
        dpb_sort(workers, n);
    return n;
}

/* The baseline of all speedups of the group; NULL: they have several baselines. */
static const char *baseline_of(const struct group *group)
{
    const char *over = NULL;
    for (size_t i = 0; i < group->n; i++) {
        const char *own = dpb_json_text(group->lines[i].row, "speedup_over", NULL);
        if (own && over && strcmp(own, over) != 0)
            return NULL;
        over = own ? own : over;
    }
    return over;
}

/* The speedup of each worker at an efficiency of 100 %: 1 over one worker, a half over two. */
static double ideal_of_worker(const struct group *group)
{
    for (size_t i = 0; i < group->n; i++) {
        const double share = dpb_json_number(group->lines[i].row, "efficiency") *
                             dpb_json_number(group->lines[i].row, "workers");
        if (share > 0)
            return dpb_json_number(group->lines[i].row, "speedup") / share;
    }
    return NAN;
}

/* Speedup (`path`), or efficiency, over the workers, with its ideal. */
static void write_scaling(const struct group *group, const char *path, FILE *out)
{
    const bool is_speedup = strcmp(path, "speedup") == 0;
    double *workers = calloc(group->n, sizeof *workers), *ideal = calloc(group->n, sizeof *ideal);
    const size_t n_workers = workers && ideal ? find_workers(group, workers) : 0;
    struct scaling scalings[DPB_FIGURE_SERIES];
    struct dpb_svg_series series[DPB_FIGURE_SERIES + 1];
    struct dpb_figure_key keys[DPB_FIGURE_SERIES + 1] = {{"ideal", "cn", true, false}};
    const char *baseline = baseline_of(group);
    const size_t n_ideals = baseline || !is_speedup; /* one line is no ideal of several */
    size_t n = n_ideals;
    char about[TEXT];
    for (size_t i = 0; i < n_workers; i++)
        ideal[i] = is_speedup ? workers[i] * ideal_of_worker(group) : 100;
    series[0] = (struct dpb_svg_series){
        .x = workers, .y = ideal, .n = n_workers, .color = DPB_SVG_NEUTRAL, .dashed = true};
    for (size_t i = 0; i < group->n_strategies; i++) {
        struct scaling *s = &scalings[i];
        const int color = color_of(group, group->strategies[i]);
        scaling_of(group, group->strategies[i], path, is_speedup ? 1 : 100, s);
        if (s->course.n == 0)
            continue;
        const bool dashed = color >= DPB_SVG_COLORS;
        keys[n] =
            (struct dpb_figure_key){group->strategies[i], dpb_svg_color(color), dashed, false};
        series[n] = (struct dpb_svg_series){.x = s->course.x,
                                            .y = s->course.y,
                                            .n = s->course.n,
                                            .hollow = s->hollow,
                                            .color = color,
                                            .dashed = dashed,
                                            .marked = true};
        n++;
    }
    const bool wide = n_workers > 0 && workers[n_workers - 1] >= 16 * workers[0];
    const struct dpb_svg_plot plot = {.name = is_speedup ? "Speedup" : "Efficiency",
                                      .x_title = "workers",
                                      .y_title = is_speedup ? "speedup" : "% of the ideal",
                                      .series = series,
                                      .n_series = n,
                                      .x_ticks = workers,
                                      .n_x_ticks = n_workers,
                                      .x_log = wide,
                                      .y_log = wide && is_speedup,
                                      .y_from_zero = !(wide && is_speedup)};
    snprintf(about, sizeof about, is_speedup ? "over %.80s" : "speedup by workers",
             baseline ? baseline : "the fewest workers of each setting");
    if (n > n_ideals)
        dpb_figure_lines(about, keys, n, &plot, out);
    for (size_t i = 0; i < group->n_strategies; i++) {
        dpb_figure_line_release(&scalings[i].course);
        free(scalings[i].hollow);
    }
    free(workers);
    free(ideal);
}

/* A good run of the row: the first that was not disturbed, or the first. NULL: none. */
static const json_t *run_of(const json_t *document, const json_t *row, const char *purpose)
{
    const json_t *first = NULL;
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        if (!dpb_sweep_is_of(run, row, purpose))
            continue;
        if (!dpb_json_true(run, "load.disturbed"))
            return run;
        first = first ? first : run;
    }
    return first;
}

/* One run of each strategy, with the most workers. */
static void write_training(const struct group *group, const char *purpose, enum dpb_figure_of of,
                           FILE *out)
{
    struct dpb_named_run runs[DPB_FIGURE_SERIES];
    size_t n = 0;
    double most = 0;
    char about[TEXT];
    for (size_t i = 0; i < group->n; i++)
        if (run_of(group->document, group->lines[i].row, purpose))
            most = fmax(most, dpb_json_number(group->lines[i].row, "workers"));
    for (size_t i = 0; i < group->n && n < DPB_FIGURE_SERIES; i++) {
        const json_t *row = group->lines[i].row;
        const json_t *run =
            dpb_json_number(row, "workers") == most ? run_of(group->document, row, purpose) : NULL;
        if (run)
            runs[n++] =
                (struct dpb_named_run){strategy_of(row), run, color_of(group, strategy_of(row))};
    }
    snprintf(about, sizeof about, "%.0f worker%s, one run each", most, most == 1 ? "" : "s");
    dpb_figure_course(runs, n, of, DPB_BY_SAMPLES, about, out);
    dpb_figure_course(runs, n, of, DPB_BY_SECONDS, about, out);
}

static void write_group(const struct group *group, FILE *out)
{
    if (group->lines[0].group[0] != '\0')
        dpb_markup(out, "<h4>%s</h4>\n", group->lines[0].group);
    fputs("<div class=\"figures\">\n", out);
    write_rates_and_parts(group, out);
    write_scaling(group, "speedup", out);
    write_scaling(group, "efficiency", out);
    write_training(group, "timing", DPB_OF_LOSS, out);
    write_training(group,
                   dpb_json_number(group->document, "accuracy_steps") > 0 ? "accuracy" : "timing",
                   DPB_OF_ACCURACY, out);
    fputs("</div>\n", out);
}

void dpb_figures_of_sweep(const json_t *document, const struct dpb_table *table, FILE *out)
{
    struct group group = {.document = document};
    find_strategies(table, &group);
    if (group.n_left_out > 0)
        fprintf(out,
                "<p class=\"about\">Curves are those of the first %d strategies; %zu more have "
                "none.</p>\n",
                DPB_FIGURE_SERIES, group.n_left_out);
    for (size_t i = 0; i < table->n; i += group.n) {
        group.lines = &table->lines[i];
        group.n = 1;
        while (i + group.n < table->n &&
               strcmp(group.lines[group.n].group, group.lines[0].group) == 0)
            group.n++;
        write_group(&group, out);
    }
}
