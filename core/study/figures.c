/* figures.c - see figures.h. */
#include "study/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "study/json.h"
#include "study/rates.h"

enum { TEXT = 128, MOST_SERIES = 24, MOST_WORKERS = 32 };

static double item(const json_t *array, size_t i)
{
    const json_t *value = json_array_get(array, i);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

void dpb_figure_doubts(const json_t *of, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < DPB_DOUBTS; i++) {
        const char *doubt = dpb_rates_doubt(of, i);
        if (!doubt || used >= capacity)
            continue;
        int n = snprintf(text + used, capacity - used, "%s%s", used > 0 ? ", " : "", doubt);
        used += n > 0 ? (size_t)n : 0;
    }
}

static bool is_doubtful(const json_t *of)
{
    for (size_t i = 0; i < DPB_DOUBTS; i++)
        if (dpb_rates_doubt(of, i))
            return true;
    return false;
}

/* ---- a figure and its key ------------------------------------------------------------------ */

static void write_caption(const char *title, const char *about, const struct dpb_figure_key *keys,
                          size_t n, FILE *out)
{
    fputs("<figure><figcaption><b>", out);
    dpb_svg_text(title, out);
    fputs("</b> ", out);
    dpb_svg_text(about, out);
    fputs("</figcaption>\n", out);
    if (n > 0)
        fputs("<ul class=\"key\">", out);
    for (size_t i = 0; i < n; i++) {
        fputs("<li><svg viewBox=\"0 0 18 10\" aria-hidden=\"true\">", out);
        if (keys[i].box)
            fprintf(out, "<rect class=\"%s\" x=\"2\" width=\"14\" height=\"10\"/>", keys[i].class);
        else
            fprintf(out, "<path class=\"line %s%s\" d=\"M0 5H18\"/>", keys[i].class,
                    keys[i].dashed ? " dashed" : "");
        fputs("</svg>", out);
        dpb_svg_text(keys[i].name, out);
        fputs("</li>", out);
    }
    if (n > 0)
        fputs("</ul>\n", out);
}

void dpb_figure_lines(const char *about, const struct dpb_figure_key *keys, size_t n_keys,
                      const struct dpb_svg_plot *plot, FILE *out)
{
    if (!dpb_svg_lines(plot, NULL))
        return;
    write_caption(plot->name, about, keys, n_keys, out);
    dpb_svg_lines(plot, out);
    fputs("</figure>\n", out);
}

/* ---- rates --------------------------------------------------------------------------------- */

void dpb_figure_rate(const json_t *document, const json_t *row, char text[32],
                     struct dpb_svg_row *rate)
{
    const json_t *of = row ? row : document;
    *rate = (struct dpb_svg_row){.text = text, .low = NAN, .high = NAN, .hollow = is_doubtful(of)};
    if (row) {
        rate->value = dpb_json_number(row, "samples_per_s.median");
        rate->low = dpb_json_number(row, "samples_per_s.low");
        rate->high = dpb_json_number(row, "samples_per_s.high");
    } else {
        struct dpb_estimate estimate;
        dpb_rates_estimate(document, NULL, &estimate);
        dpb_estimate_interval(&estimate, &rate->low, &rate->high);
        rate->value = dpb_json_number(document, "timing.samples_per_s.mean");
    }
    if (isfinite(rate->value))
        snprintf(text, 32, rate->value < 1000 ? "%.1f" : "%.0f", rate->value);
    else
        snprintf(text, 32, "no rate");
}

void dpb_figure_of_rates(const struct dpb_svg_row *rows, size_t n, const char *what, FILE *out)
{
    const struct dpb_svg_rows plot = {
        .name = "Rates", .title = what, .x_title = "samples/s", .rows = rows, .n_rows = n};
    bool doubtful = false;
    for (size_t i = 0; i < n; i++)
        doubtful |= rows[i].hollow && isfinite(rows[i].value);
    if (!dpb_svg_dots(&plot, NULL))
        return;
    write_caption(plot.name,
                  doubtful
                      ? "with 95 % intervals; hollow: no conclusion, for the reason in the table"
                      : "with 95 % intervals",
                  NULL, 0, out);
    dpb_svg_dots(&plot, out);
    fputs("</figure>\n", out);
}

/* ---- parts of the step --------------------------------------------------------------------- */

static const struct {
    const char *path, *name, *class;
} parts[] = {{"data_wait", "waiting for data", "p0"},
             {"forward", "forward", "p1"},
             {"delay", "run.delay", "p2"},
             {"backward", "backward", "p3"},
             {"optimizer", "optimizer", "p4"},
             {"comm_exposed", "communication (exposed)", "p5"}};
enum { PARTS = sizeof parts / sizeof parts[0] };

static void fill_parts(const json_t *breakdown_ns, struct dpb_svg_row *bar)
{
    for (size_t i = 0; i < PARTS; i++)
        bar->parts[i] = dpb_json_number(breakdown_ns, parts[i].path);
}

static double sum_of_parts(const struct dpb_svg_row *bar)
{
    double sum = 0;
    for (size_t i = 0; i < PARTS; i++)
        sum += bar->parts[i] > 0 ? bar->parts[i] : 0;
    return sum;
}

/* `bars`: in nanoseconds; they become the unit of the figure. `sums`: room for their texts. */
static void write_bars(struct dpb_svg_row *bars, char (*sums)[32], size_t n, const char *what,
                       const char *about, FILE *out)
{
    struct dpb_figure_key keys[PARTS];
    double most = 0;
    size_t n_keys = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, sum_of_parts(&bars[i]));
    const double unit_ns = most < 1e6 ? 1e3 : 1e6;
    for (size_t k = 0; k < PARTS; k++) {
        bool used = false;
        for (size_t i = 0; i < n; i++) {
            used |= bars[i].parts[k] > 0;
            bars[i].parts[k] /= unit_ns;
        }
        if (used)
            keys[n_keys++] = (struct dpb_figure_key){parts[k].name, parts[k].class, false, true};
    }
    for (size_t i = 0; i < n; i++) {
        const double sum = sum_of_parts(&bars[i]);
        snprintf(sums[i], sizeof sums[i], sum < 100 ? "%.2f" : "%.0f", sum);
        bars[i].text = sums[i];
    }
    const struct dpb_svg_rows plot = {.name = "Parts of the step",
                                      .title = what,
                                      .x_title = most < 1e6 ? "mean step, us" : "mean step, ms",
                                      .rows = bars,
                                      .n_rows = n};
    if (!dpb_svg_bars(&plot, NULL))
        return;
    write_caption(plot.name, about, keys, n_keys, out);
    dpb_svg_bars(&plot, out);
    fputs("</figure>\n", out);
}

static bool is_worker(const json_t *rank)
{
    return strcmp(dpb_json_text(rank, "role", ""), "worker") == 0;
}

static void write_parts_of_run(const json_t *document, FILE *out)
{
    struct dpb_svg_row bars[MOST_WORKERS + 1] = {{.label = "the run"}};
    char labels[MOST_WORKERS + 1][32], sums[MOST_WORKERS + 1][32];
    const json_t *ranks = json_object_get(document, "ranks"), *rank;
    size_t n = 1, n_workers = 0, i;
    fill_parts(dpb_json_at(document, "timing.breakdown_ns"), &bars[0]);
    json_array_foreach(ranks, i, rank)
    {
        if (!is_worker(rank) || n_workers++ >= MOST_WORKERS)
            continue;
        snprintf(labels[n], sizeof labels[n], "rank %.0f", dpb_json_number(rank, "rank"));
        bars[n] = (struct dpb_svg_row){.label = labels[n]};
        fill_parts(json_object_get(rank, "breakdown_ns"), &bars[n]);
        n++;
    }
    write_bars(bars, sums, n_workers > 1 ? n : 1, "",
               n_workers > MOST_WORKERS
                   ? "of the first 32 workers; hidden communication is not in it"
                   : "hidden communication is not in it",
               out);
}

/* ---- courses: step times, loss, accuracy --------------------------------------------------- */

/* A line that owns its points. */
struct course {
    double *x, *y;
    size_t n;
};

static bool course_create(size_t n, struct course *course)
{
    *course = (struct course){calloc(n + 1, sizeof(double)), calloc(n + 1, sizeof(double)), 0};
    return course->x && course->y;
}

static void course_release(struct course *course)
{
    free(course->x);
    free(course->y);
    *course = (struct course){0};
}

static void course_add(struct course *course, double x, double y)
{
    course->x[course->n] = x;
    course->y[course->n++] = y;
}

enum by { BY_SAMPLES, BY_SECONDS };
typedef void course_of(const json_t *run, enum by by, struct course *course);

/* By seconds only where the time of each step is known, the warm-up's too. */
static void loss_of(const json_t *run, enum by by, struct course *course)
{
    const json_t *loss = json_object_get(run, "loss");
    const json_t *before = dpb_json_at(run, "timing.warmup_step_ns");
    const json_t *timed = dpb_json_at(run, "timing.step_ns");
    const size_t n = json_array_size(loss), n_before = json_array_size(before);
    double ns = 0, first = dpb_json_number(run, "timing.first_step"),
           batch = dpb_json_number(run, "batch.global");
    if ((by == BY_SECONDS && n_before + json_array_size(timed) != n) || !course_create(n, course))
        return;
    for (size_t k = 0; k < n; k++) {
        ns += by == BY_SAMPLES ? 0 : k < n_before ? item(before, k) : item(timed, k - n_before);
        course_add(course, by == BY_SECONDS ? ns / 1e9 : (first + (double)k + 1) * batch,
                   item(loss, k));
    }
}

static void accuracy_of(const json_t *run, enum by by, struct course *course)
{
    const json_t *evals = json_object_get(run, "eval"), *eval;
    size_t i;
    if (!course_create(json_array_size(evals), course))
        return;
    json_array_foreach(evals, i, eval) course_add(
        course, dpb_json_number(eval, by == BY_SECONDS ? "trained_s" : "trained_samples"),
        100 * dpb_json_number(eval, "accuracy"));
}

struct named_run {
    const char *name;
    const json_t *run;
    int color;
};

/* Loss or accuracy of some runs. */
static void write_course(const struct named_run *runs, size_t n_runs, course_of *of, enum by by,
                         const char *about, FILE *out)
{
    struct course courses[MOST_SERIES] = {{0}};
    struct dpb_svg_series series[MOST_SERIES];
    struct dpb_figure_key keys[MOST_SERIES];
    const size_t n = n_runs < MOST_SERIES ? n_runs : MOST_SERIES;
    const bool is_loss = of == loss_of;
    for (size_t i = 0; i < n; i++) {
        const bool dashed = runs[i].color >= DPB_SVG_COLORS;
        of(runs[i].run, by, &courses[i]);
        series[i] = (struct dpb_svg_series){.x = courses[i].x,
                                            .y = courses[i].y,
                                            .n = courses[i].n,
                                            .color = runs[i].color,
                                            .dashed = dashed,
                                            .marked = courses[i].n <= 40};
        keys[i] =
            (struct dpb_figure_key){runs[i].name, dpb_svg_color(runs[i].color), dashed, false};
    }
    const struct dpb_svg_plot plot = {
        .name = is_loss            ? by == BY_SAMPLES ? "Loss by samples" : "Loss by seconds"
                : by == BY_SAMPLES ? "Accuracy by samples"
                                   : "Accuracy by seconds",
        .x_title = by == BY_SAMPLES ? "samples trained" : "seconds of training",
        .y_title = is_loss ? "loss" : "accuracy, % of the test set",
        .series = series,
        .n_series = n};
    dpb_figure_lines(about, keys, n > 1 ? n : 0, &plot, out);
    for (size_t i = 0; i < n; i++)
        course_release(&courses[i]);
}

static void write_steps(const json_t *document, FILE *out)
{
    const json_t *before = dpb_json_at(document, "timing.warmup_step_ns");
    const json_t *timed = dpb_json_at(document, "timing.step_ns");
    const size_t n_before = json_array_size(before), n_timed = json_array_size(timed);
    const double warmup = dpb_json_number(document, "timing.warmup_steps");
    struct course course;
    double most_ns = 0;
    if (course_create(n_before + n_timed, &course)) {
        for (size_t k = 0; k < n_before; k++)
            course_add(&course, (double)k + 1, item(before, k));
        for (size_t k = 0; k < n_timed; k++)
            course_add(&course, (warmup > 0 ? warmup : 0) + (double)k + 1, item(timed, k));
    }
    for (size_t k = 0; k < course.n; k++)
        most_ns = fmax(most_ns, course.y[k]);
    const double unit_ns = most_ns < 1e6 ? 1e3 : 1e6;
    for (size_t k = 0; k < course.n; k++)
        course.y[k] /= unit_ns;
    const struct dpb_svg_series series = {.x = course.x, .y = course.y, .n = course.n};
    const struct dpb_svg_plot plot = {.name = "Time of each step",
                                      .x_title = "step",
                                      .y_title = most_ns < 1e6 ? "us" : "ms",
                                      .series = &series,
                                      .n_series = 1,
                                      .y_from_zero = true,
                                      .shaded_to = n_before > 0 ? (double)n_before + 0.5 : 0};
    const struct dpb_figure_key keys[] = {{"a step of all workers", "c0", false, false},
                                          {"warm-up, not timed", "shade", false, true}};
    dpb_figure_lines(course.n > 2 * DPB_SVG_WIDTH ? "least and largest of each column" : "", keys,
                     n_before > 0 ? 2 : 0, &plot, out);
    course_release(&course);
}

void dpb_figures_of_run(const json_t *document, FILE *out)
{
    const struct named_run run = {"", document, 0};
    fputs("<div class=\"figures\">\n", out);
    write_steps(document, out);
    write_parts_of_run(document, out);
    write_course(&run, 1, loss_of, BY_SAMPLES, "of each step, warm-up included", out);
    write_course(&run, 1, loss_of, BY_SECONDS, "evaluations and pauses left out", out);
    write_course(&run, 1, accuracy_of, BY_SAMPLES, "", out);
    write_course(&run, 1, accuracy_of, BY_SECONDS, "evaluations and pauses left out", out);
    fputs("</div>\n", out);
}

/* ---- sweeps -------------------------------------------------------------------------------- */

/* The rows of one group. */
struct group {
    const json_t *document;
    const char *name;
    const json_t **rows; /* @owned; @borrowed rows, in the order of the table */
    size_t n;
    const char *strategies[MOST_SERIES]; /* of the whole table */
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

/* Colors do not tell more apart than MOST_SERIES; a strategy that comes twice counts once. */
static void find_strategies(const json_t *lines, struct group *group)
{
    json_t *left_out = json_object();
    const json_t *line;
    size_t i;
    json_array_foreach(lines, i, line)
    {
        const char *strategy = strategy_of(json_object_get(line, "row"));
        size_t k = 0;
        while (k < group->n_strategies && strcmp(group->strategies[k], strategy) != 0)
            k++;
        if (k == MOST_SERIES)
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
    char(*labels)[TEXT] = calloc(group->n + 1, sizeof *labels);
    char(*texts)[32] = calloc(group->n + 1, sizeof *texts);
    char(*sums)[32] = calloc(group->n + 1, sizeof *sums);
    size_t n_bars = 0;
    if (dots && bars && labels && texts && sums) {
        for (size_t i = 0; i < group->n; i++) {
            const json_t *row = group->rows[i];
            snprintf(labels[i], TEXT, "%.100s, %.0f", strategy_of(row),
                     dpb_json_number(row, "workers"));
            dpb_figure_rate(group->document, row, texts[i], &dots[i]);
            dots[i].label = labels[i];
            dots[i].color = color_of(group, strategy_of(row));
            bars[n_bars] = (struct dpb_svg_row){.label = labels[i]};
            fill_parts(json_object_get(row, "breakdown_ns"), &bars[n_bars]);
            n_bars += sum_of_parts(&bars[n_bars]) > 0;
        }
        dpb_figure_of_rates(dots, group->n, "strategy, workers", out);
        write_bars(bars, sums, n_bars, "strategy, workers",
                   "means over the runs; hidden communication is not in it", out);
    }
    free(dots);
    free(bars);
    free(labels);
    free(texts);
    free(sums);
}

/* A number of a strategy's rows over their workers. */
struct scaling {
    struct course course;
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
        if (strcmp(strategy_of(group->rows[i]), strategy) == 0 &&
            isfinite(dpb_json_number(group->rows[i], path)))
            rows[n++] = group->rows[i];
    if (n > 0)
        qsort(rows, n, sizeof *rows, by_workers);
    if (course_create(n, &scaling->course) && scaling->hollow) {
        for (size_t i = 0; i < n; i++) {
            scaling->hollow[i] = is_doubtful(rows[i]);
            course_add(&scaling->course, dpb_json_number(rows[i], "workers"),
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
        const double w = dpb_json_number(group->rows[i], "workers");
        size_t k = 0;
        while (k < n && workers[k] != w)
            k++;
        if (k == n && w > 0 && isfinite(dpb_json_number(group->rows[i], "speedup")))
            workers[n++] = w;
    }
    if (n > 0)
        dpb_sort(workers, n);
    return n;
}

/* Speedup (`path`), or efficiency, over the workers, with its ideal. */
static void write_scaling(const struct group *group, const char *path, FILE *out)
{
    const bool is_speedup = strcmp(path, "speedup") == 0;
    double *workers = calloc(group->n, sizeof *workers), *ideal = calloc(group->n, sizeof *ideal);
    const size_t n_workers = workers && ideal ? find_workers(group, workers) : 0;
    struct scaling scalings[MOST_SERIES];
    struct dpb_svg_series series[MOST_SERIES + 1];
    struct dpb_figure_key keys[MOST_SERIES + 1] = {{"ideal", "cn", true, false}};
    size_t n = 1;
    char about[TEXT];
    for (size_t i = 0; i < n_workers; i++)
        ideal[i] = is_speedup ? workers[i] : 100;
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
    const char *over = dpb_json_text(group->rows[0], "speedup_over", "one worker");
    snprintf(about, sizeof about, is_speedup ? "over %.80s" : "speedup by workers", over);
    if (n > 1)
        dpb_figure_lines(about, keys, n, &plot, out);
    for (size_t i = 0; i < group->n_strategies; i++) {
        course_release(&scalings[i].course);
        free(scalings[i].hollow);
    }
    free(workers);
    free(ideal);
}

/* A good run of the row: the first that was not disturbed, or the first. NULL: none. */
static const json_t *run_of(const json_t *document, const json_t *row, const char *purpose)
{
    const json_t *run, *first = NULL;
    size_t i;
    json_array_foreach(json_object_get(document, "runs"), i, run)
    {
        if (strcmp(dpb_json_text(run, "status", ""), "ok") != 0 ||
            strcmp(dpb_json_text(run, "purpose", ""), purpose) != 0 ||
            json_equal(json_object_get(run, "cell"), json_object_get(row, "cell")) != 1)
            continue;
        if (!json_is_true(dpb_json_at(run, "load.disturbed")))
            return run;
        first = first ? first : run;
    }
    return first;
}

/* One run of each strategy, with the most workers. */
static void write_training(const struct group *group, const char *purpose, course_of *of, FILE *out)
{
    struct named_run runs[MOST_SERIES];
    size_t n = 0;
    double most = 0;
    char about[TEXT];
    for (size_t i = 0; i < group->n; i++)
        if (run_of(group->document, group->rows[i], purpose))
            most = fmax(most, dpb_json_number(group->rows[i], "workers"));
    for (size_t i = 0; i < group->n && n < MOST_SERIES; i++) {
        const json_t *row = group->rows[i];
        const json_t *run =
            dpb_json_number(row, "workers") == most ? run_of(group->document, row, purpose) : NULL;
        if (run)
            runs[n++] =
                (struct named_run){strategy_of(row), run, color_of(group, strategy_of(row))};
    }
    snprintf(about, sizeof about, "%.0f worker%s, one run each", most, most == 1 ? "" : "s");
    write_course(runs, n, of, BY_SAMPLES, about, out);
    write_course(runs, n, of, BY_SECONDS, about, out);
}

static void write_group(const struct group *group, FILE *out)
{
    if (group->name[0] != '\0') {
        fputs("<h4>", out);
        dpb_svg_text(group->name, out);
        fputs("</h4>\n", out);
    }
    fputs("<div class=\"figures\">\n", out);
    write_rates_and_parts(group, out);
    write_scaling(group, "speedup", out);
    write_scaling(group, "efficiency", out);
    write_training(group, "timing", loss_of, out);
    write_training(group,
                   dpb_json_number(group->document, "accuracy_steps") > 0 ? "accuracy" : "timing",
                   accuracy_of, out);
    fputs("</div>\n", out);
}

void dpb_figures_of_sweep(const json_t *document, const json_t *table, FILE *out)
{
    const json_t *lines = json_object_get(table, "lines");
    const size_t n = json_array_size(lines);
    struct group group = {.document = document, .rows = calloc(n + 1, sizeof *group.rows)};
    find_strategies(lines, &group);
    if (group.n_left_out > 0)
        fprintf(out,
                "<p class=\"about\">Curves are those of the first %d strategies; %zu more have "
                "none.</p>\n",
                MOST_SERIES, group.n_left_out);
    for (size_t i = 0; group.rows && i < n; i++) {
        const json_t *line = json_array_get(lines, i);
        const json_t *next = json_array_get(lines, i + 1);
        group.name = dpb_json_text(line, "group", "");
        group.rows[group.n++] = json_object_get(line, "row");
        if (next && strcmp(dpb_json_text(next, "group", ""), group.name) == 0)
            continue;
        write_group(&group, out);
        group.n = 0;
    }
    free(group.rows);
}
