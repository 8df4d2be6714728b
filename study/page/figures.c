/* figures.c - see figures.h. */
#include "study/page/figures.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "study/page/markup.h"
#include "study/document/rates.h"
#include "record/summary.h"

enum { MOST_WORKERS = 32 };

bool dpb_figure_is_doubtful(const json_t *of)
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
    dpb_markup(out, "<figure><figcaption><b>%s</b> %s</figcaption>\n", title, about);
    if (n > 0)
        fputs("<ul class=\"key\">", out);
    for (size_t i = 0; i < n; i++) {
        fputs("<li><svg viewBox=\"0 0 18 10\" aria-hidden=\"true\">", out);
        if (keys[i].box)
            fprintf(out, "<rect class=\"%s\" x=\"2\" width=\"14\" height=\"10\"/>", keys[i].class);
        else
            fprintf(out, "<path class=\"line %s%s\" d=\"M0 5H18\"/>", keys[i].class,
                    keys[i].dashed ? " dashed" : "");
        dpb_markup(out, "</svg>%s</li>", keys[i].name);
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

static void write_rows(const char *about, const struct dpb_figure_key *keys, size_t n_keys,
                       const struct dpb_svg_rows *plot, FILE *out)
{
    if (!dpb_svg_rows_draw(plot, NULL))
        return;
    write_caption(plot->name, about, keys, n_keys, out);
    dpb_svg_rows_draw(plot, out);
    fputs("</figure>\n", out);
}

/* ---- rates --------------------------------------------------------------------------------- */

void dpb_figure_rate(const json_t *document, const json_t *row, struct dpb_svg_row *rate)
{
    const json_t *of = row ? row : document;
    *rate = (struct dpb_svg_row){.low = NAN, .high = NAN, .hollow = dpb_figure_is_doubtful(of)};
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
        snprintf(rate->text, sizeof rate->text, rate->value < 1000 ? "%.1f" : "%.0f", rate->value);
    else
        snprintf(rate->text, sizeof rate->text, "no rate");
}

void dpb_figure_of_rates(const struct dpb_svg_row *rows, size_t n, const char *what, FILE *out)
{
    const struct dpb_svg_rows plot = {
        .name = "Rates", .title = what, .x_title = "samples/s", .rows = rows, .n_rows = n};
    bool doubtful = false;
    for (size_t i = 0; i < n; i++)
        doubtful |= rows[i].hollow && isfinite(rows[i].value);
    write_rows(doubtful ? "with 95 % intervals; hollow: no conclusion, for the reason in the table"
                        : "with 95 % intervals",
               NULL, 0, &plot, out);
}

/* ---- parts of the step --------------------------------------------------------------------- */

enum { PARTS = DPB_BREAKDOWN_STEP };
/* As dpb_breakdown_names. */
static const struct {
    const char *name, *class;
} parts[PARTS] = {{"waiting for data", "p0"}, {"forward", "p1"},
                  {"run.delay", "p2"},        {"backward", "p3"},
                  {"optimizer", "p4"},        {"communication (exposed)", "p5"}};

void dpb_figure_fill_parts(const json_t *breakdown_ns, struct dpb_svg_row *bar)
{
    for (size_t i = 0; i < PARTS; i++)
        bar->parts[i] = dpb_json_number(breakdown_ns, dpb_breakdown_names[i]);
}

double dpb_figure_sum_of_parts(const struct dpb_svg_row *bar)
{
    double sum = 0;
    for (size_t i = 0; i < PARTS; i++)
        sum += bar->parts[i] > 0 ? bar->parts[i] : 0;
    return sum;
}

void dpb_figure_bars(struct dpb_svg_row *bars, size_t n, const char *what, const char *about,
                     FILE *out)
{
    struct dpb_figure_key keys[PARTS];
    double most = 0;
    size_t n_keys = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, dpb_figure_sum_of_parts(&bars[i]));
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
        const double sum = dpb_figure_sum_of_parts(&bars[i]);
        snprintf(bars[i].text, sizeof bars[i].text, sum < 100 ? "%.2f" : "%.0f", sum);
    }
    const struct dpb_svg_rows plot = {.name = "Parts of the step",
                                      .title = what,
                                      .x_title = most < 1e6 ? "mean step, us" : "mean step, ms",
                                      .rows = bars,
                                      .n_rows = n,
                                      .bars = true};
    write_rows(about, keys, n_keys, &plot, out);
}

static void write_parts_of_run(const json_t *document, FILE *out)
{
    struct dpb_svg_row bars[MOST_WORKERS + 1] = {{.label = "the run"}};
    size_t n = 1, n_workers = 0;
    dpb_figure_fill_parts(dpb_json_at(document, "timing.breakdown_ns"), &bars[0]);
    dpb_each_item(json_object_get(document, "ranks"), i, rank) {
        if (!dpb_json_is(rank, "role", "worker") || n_workers++ >= MOST_WORKERS)
            continue;
        snprintf(bars[n].label, sizeof bars[n].label, "rank %.0f", dpb_json_number(rank, "rank"));
        dpb_figure_fill_parts(json_object_get(rank, "breakdown_ns"), &bars[n]);
        n++;
    }
    dpb_figure_bars(bars, n_workers > 1 ? n : 1, "",
                    n_workers > MOST_WORKERS
                        ? "of the first 32 workers; hidden communication is not in it"
                        : "hidden communication is not in it",
                    out);
}

/* ---- courses: step times, loss, accuracy --------------------------------------------------- */

bool dpb_figure_line_create(size_t n, struct dpb_figure_line *course)
{
    *course =
        (struct dpb_figure_line){calloc(n + 1, sizeof(double)), calloc(n + 1, sizeof(double)), 0};
    return course->x && course->y;
}

void dpb_figure_line_release(struct dpb_figure_line *course)
{
    free(course->x);
    free(course->y);
    *course = (struct dpb_figure_line){0};
}

void dpb_figure_line_add(struct dpb_figure_line *course, double x, double y)
{
    course->x[course->n] = x;
    course->y[course->n++] = y;
}

/* By seconds only where the time of each step is known, the warm-up's too. */
static void course_of_loss(const json_t *run, enum dpb_by by, struct dpb_figure_line *course)
{
    const json_t *loss = json_object_get(run, "loss");
    const json_t *before = dpb_json_at(run, "timing.warmup_step_ns");
    const json_t *timed = dpb_json_at(run, "timing.step_ns");
    const size_t n = json_array_size(loss), n_before = json_array_size(before);
    double ns = 0, first = dpb_json_number(run, "timing.first_step"),
           batch = dpb_json_number(run, "batch.global");
    if ((by == DPB_BY_SECONDS && n_before + json_array_size(timed) != n) ||
        !dpb_figure_line_create(n, course))
        return;
    for (size_t k = 0; k < n; k++) {
        ns += by == DPB_BY_SAMPLES ? 0
              : k < n_before       ? dpb_json_item(before, k)
                                   : dpb_json_item(timed, k - n_before);
        dpb_figure_line_add(course,
                            by == DPB_BY_SECONDS ? ns / 1e9 : (first + (double)k + 1) * batch,
                            dpb_json_item(loss, k));
    }
}

static void course_of_accuracy(const json_t *run, enum dpb_by by, struct dpb_figure_line *course)
{
    const json_t *evals = json_object_get(run, "eval");
    if (!dpb_figure_line_create(json_array_size(evals), course))
        return;
    dpb_each_item(evals, i, eval)
        dpb_figure_line_add(
            course, dpb_json_number(eval, by == DPB_BY_SECONDS ? "trained_s" : "trained_samples"),
            100 * dpb_json_number(eval, "accuracy"));
}

void dpb_figure_course(const struct dpb_named_run *runs, size_t n_runs, enum dpb_figure_of of,
                       enum dpb_by by, const char *about, FILE *out)
{
    struct dpb_figure_line courses[DPB_FIGURE_SERIES] = {{0}};
    struct dpb_svg_series series[DPB_FIGURE_SERIES];
    struct dpb_figure_key keys[DPB_FIGURE_SERIES];
    const size_t n = n_runs < DPB_FIGURE_SERIES ? n_runs : DPB_FIGURE_SERIES;
    const bool is_loss = of == DPB_OF_LOSS;
    for (size_t i = 0; i < n; i++) {
        const bool dashed = runs[i].color >= DPB_SVG_COLORS;
        if (is_loss)
            course_of_loss(runs[i].run, by, &courses[i]);
        else
            course_of_accuracy(runs[i].run, by, &courses[i]);
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
        .name = is_loss ? by == DPB_BY_SAMPLES ? "Loss by samples" : "Loss by seconds"
                : by == DPB_BY_SAMPLES ? "Accuracy by samples"
                                       : "Accuracy by seconds",
        .x_title = by == DPB_BY_SAMPLES ? "samples trained" : "seconds of training",
        .y_title = is_loss ? "loss" : "accuracy, % of the test set",
        .series = series,
        .n_series = n};
    dpb_figure_lines(about, keys, n > 1 ? n : 0, &plot, out);
    for (size_t i = 0; i < n; i++)
        dpb_figure_line_release(&courses[i]);
}

static void write_steps(const json_t *document, FILE *out)
{
    const json_t *before = dpb_json_at(document, "timing.warmup_step_ns");
    const json_t *timed = dpb_json_at(document, "timing.step_ns");
    const size_t n_before = json_array_size(before), n_timed = json_array_size(timed);
    const double warmup = dpb_json_number(document, "timing.warmup_steps");
    struct dpb_figure_line course;
    double most_ns = 0;
    if (dpb_figure_line_create(n_before + n_timed, &course)) {
        for (size_t k = 0; k < n_before; k++)
            dpb_figure_line_add(&course, (double)k + 1, dpb_json_item(before, k));
        for (size_t k = 0; k < n_timed; k++)
            dpb_figure_line_add(&course, (warmup > 0 ? warmup : 0) + (double)k + 1,
                                dpb_json_item(timed, k));
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
    dpb_figure_line_release(&course);
}

void dpb_figures_of_run(const json_t *document, FILE *out)
{
    const struct dpb_named_run run = {"", document, 0};
    fputs("<div class=\"figures\">\n", out);
    write_steps(document, out);
    write_parts_of_run(document, out);
    dpb_figure_course(&run, 1, DPB_OF_LOSS, DPB_BY_SAMPLES, "of each step, warm-up included", out);
    dpb_figure_course(&run, 1, DPB_OF_LOSS, DPB_BY_SECONDS, "evaluations and pauses left out", out);
    dpb_figure_course(&run, 1, DPB_OF_ACCURACY, DPB_BY_SAMPLES, "", out);
    dpb_figure_course(&run, 1, DPB_OF_ACCURACY, DPB_BY_SECONDS, "evaluations and pauses left out",
                      out);
    fputs("</div>\n", out);
}

/* ---- result.monitor -------------------------------------------------------------------------- */

enum { TEXT = 128, MOST_MACHINES = 8 };

/* Adds a line if its list is as long as that of the seconds. */
static void add_line(const json_t *of, const char *name, struct dpb_svg_plot *plot,
                     struct dpb_svg_series *lines)
{
    size_t n, n_seconds;
    double *x = dpb_json_numbers(json_object_get(of, "seconds"), "", &n_seconds);
    double *y = dpb_json_numbers(json_object_get(of, name), "", &n);
    if (n == 0 || n != n_seconds) {
        free(x);
        free(y);
        return;
    }
    lines[plot->n_series] =
        (struct dpb_svg_series){.x = x, .y = y, .n = n, .color = (int)plot->n_series};
    plot->n_series++;
}

static void write_plot(const char *about, const struct dpb_figure_key *keys,
                       const struct dpb_svg_plot *plot, FILE *out)
{
    dpb_figure_lines(about, keys, plot->n_series, plot, out);
    for (size_t i = 0; i < plot->n_series; i++) {
        free((void *)(uintptr_t)plot->series[i].x);
        free((void *)(uintptr_t)plot->series[i].y);
    }
}

static void write_machine(const json_t *machine, FILE *out)
{
    static const struct dpb_figure_key keys[] = {{"the job", "c0", false, false},
                                                 {"all others", "c1", false, false}};
    struct dpb_svg_series lines[2];
    char name[TEXT];
    snprintf(name, sizeof name, "CPUs of %.80s", dpb_json_text(machine, "host", "?"));
    struct dpb_svg_plot plot = {.name = name,
                                .x_title = "seconds since the first step",
                                .y_title = "hardware threads that are busy",
                                .series = lines,
                                .y_from_zero = true};
    add_line(machine, "own_cpus", &plot, lines);
    if (plot.n_series == 1)
        add_line(machine, "others_cpus", &plot, lines);
    write_plot("", keys, &plot, out);
}

static void write_power(const json_t *gpus, FILE *out)
{
    struct dpb_svg_series lines[DPB_SVG_COLORS];
    struct dpb_figure_key keys[DPB_SVG_COLORS];
    char names[DPB_SVG_COLORS][32], colors[DPB_SVG_COLORS][8];
    struct dpb_svg_plot plot = {.name = "Power of the GPUs",
                                .x_title = "seconds since the first step",
                                .y_title = "W",
                                .series = lines,
                                .y_from_zero = true};
    dpb_each_item(gpus, i, gpu) {
        const size_t k = plot.n_series;
        if (k == DPB_SVG_COLORS)
            break;
        add_line(gpu, "power_w", &plot, lines);
        snprintf(names[k], sizeof names[k], "rank %.0f", dpb_json_number(gpu, "rank"));
        snprintf(colors[k], sizeof colors[k], "%s", dpb_svg_color((int)k));
        keys[k] = (struct dpb_figure_key){names[k], colors[k], false, false};
    }
    write_plot(json_array_size(gpus) > DPB_SVG_COLORS ? "the first eight" : "", keys, &plot, out);
}

void dpb_figures_of_monitor(const json_t *document, FILE *out)
{
    const json_t *machines = dpb_json_at(document, "monitor.machines");
    const size_t n = json_array_size(machines);
    if (n == 0)
        return;
    if (n > MOST_MACHINES)
        fprintf(out,
                "<p class=\"about\">CPUs are those of the first %d machines; %zu more have no "
                "figure.</p>\n",
                MOST_MACHINES, n - MOST_MACHINES);
    fputs("<div class=\"figures\">\n", out);
    dpb_each_item(machines, i, machine)
        if (i < MOST_MACHINES)
            write_machine(machine, out);
    write_power(dpb_json_at(document, "monitor.gpus"), out);
    fputs("</div>\n", out);
}
