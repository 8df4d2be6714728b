/* monitor_figures.c - the figures of result.monitor: see figures.h. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "study/figures.h"
#include "study/json.h"

enum { TEXT = 128, MOST_MACHINES = 8 };

/* A list of the series; NULL: empty, or no memory. @owned. */
static double *values_of(const json_t *series, const char *name, size_t *n)
{
    const json_t *list = json_object_get(series, name);
    *n = json_array_size(list);
    double *values = *n > 0 ? calloc(*n, sizeof *values) : NULL;
    for (size_t i = 0; values && i < *n; i++) {
        const json_t *value = json_array_get(list, i);
        values[i] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    return values;
}

/* Adds a line if its list is as long as that of the seconds. */
static void add_line(const json_t *of, const char *name, struct dpb_svg_plot *plot,
                     struct dpb_svg_series *lines)
{
    size_t n, n_seconds;
    double *x = values_of(of, "seconds", &n_seconds), *y = values_of(of, name, &n);
    if (!x || !y || n != n_seconds) {
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
    if (json_array_size(machines) == 0)
        return;
    fputs("<div class=\"figures\">\n", out);
    dpb_each_item(machines, i, machine)
        if (i < MOST_MACHINES)
            write_machine(machine, out);
    write_power(dpb_json_at(document, "monitor.gpus"), out);
    fputs("</div>\n", out);
}
