/* curves.c - see curves.h. */
#include "study/page/curves.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/stats.h"
#include "study/document/spill.h"

enum { MOST_COLUMNS = 360, MOST_MACHINES = 8, MOST_GPUS = 8 };

/* Points in the order of x. Over several seeds y is their median, `low` their least, `high` their
 * largest. A y that is no number is NaN. */
struct line {
    double *x, *y;      /* @owned */
    double *low, *high; /* one memory, @owned by `low`; NULL: of one run */
    size_t n;
};

static void line_free(struct line *line)
{
    free(line->x);
    free(line->y);
    free(line->low);
}

/* A line as [[x, y], ...], or [[x, y, low, high], ...]: all its points; of a long line the least
 * and the largest of each column, so that a long run is no long page. NaN is null. Frees the line.
 */
static json_t *line_to_json(struct line line)
{
    json_t *points = json_array();
    const size_t n = line.n;
    const size_t every = n > 2 * MOST_COLUMNS ? (n + MOST_COLUMNS - 1) / MOST_COLUMNS : 1;
    for (size_t from = 0; from < n; from += every) {
        size_t low = from, high = from;
        double least = NAN, largest = NAN;
        for (size_t i = from; i < n && i < from + every; i++) {
            low = isfinite(line.y[i]) && !(line.y[i] >= line.y[low]) ? i : low;
            high = isfinite(line.y[i]) && !(line.y[i] <= line.y[high]) ? i : high;
            least = fmin(least, line.low ? line.low[i] : NAN);
            largest = fmax(largest, line.low ? line.high[i] : NAN);
        }
        const size_t ends[] = {low < high ? low : high, low < high ? high : low};
        for (size_t k = 0; k < (low == high ? 1 : 2); k++) {
            json_t *point =
                json_pack("[o, o]", dpb_json_real(line.x[ends[k]]), dpb_json_real(line.y[ends[k]]));
            if (line.low) {
                json_array_append_new(point, dpb_json_real(least));
                json_array_append_new(point, dpb_json_real(largest));
            }
            json_array_append_new(points, point);
        }
    }
    line_free(&line);
    return points;
}

/* The numbers at the paths of two lists of as many items as a line; else no points. */
static struct line line_between(const json_t *of_x, const char *x, const json_t *of_y,
                                const char *y)
{
    size_t n_x, n_y;
    struct line line = {.x = dpb_json_numbers(of_x, x, &n_x), .y = dpb_json_numbers(of_y, y, &n_y)};
    line.n = n_x == n_y ? n_x : 0;
    return line;
}

enum curve {
    NS_BY_STEP,
    LOSS_BY_SAMPLES,
    LOSS_BY_SECONDS,
    ACCURACY_BY_SAMPLES,
    ACCURACY_BY_SECONDS
};

/* Loss by seconds only where the time of each step is known, the warm-up's too. */
static struct line line_of(const json_t *run, enum curve what)
{
    const json_t *evals = json_object_get(run, "eval");
    if (what == ACCURACY_BY_SAMPLES || what == ACCURACY_BY_SECONDS)
        return line_between(evals, what == ACCURACY_BY_SAMPLES ? "trained_samples" : "trained_s",
                            evals, "accuracy");
    json_t *before = dpb_run_part(run, "timing.warmup_step_ns");
    json_t *timed = dpb_run_part(run, "timing.step_ns"), *loss = dpb_run_part(run, "loss");
    const size_t n_before = json_array_size(before), n_ns = n_before + json_array_size(timed);
    const size_t n = what == NS_BY_STEP ? n_ns : json_array_size(loss);
    const double first = dpb_json_number(run, "timing.first_step"),
                 batch = dpb_json_number(run, "batch.global"),
                 warmup = fmax(dpb_json_number(run, "timing.warmup_steps"), 0); /* 0 for NaN */
    double *x = calloc(n + 1, sizeof *x), *y = calloc(n + 1, sizeof *y), all_ns = 0;
    for (size_t k = 0; x && y && k < n; k++) {
        const double ns =
            k < n_before ? dpb_json_item(before, k) : dpb_json_item(timed, k - n_before);
        all_ns += ns;
        y[k] = what == NS_BY_STEP ? ns : dpb_json_item(loss, k);
        x[k] = what == LOSS_BY_SAMPLES   ? (first + (double)k + 1) * batch
               : what == LOSS_BY_SECONDS ? all_ns / 1e9
               : k < n_before            ? (double)k + 1
                                         : warmup + (double)(k - n_before) + 1;
    }
    json_decref(before);
    json_decref(timed);
    json_decref(loss);
    return (struct line){
        .x = x, .y = y, .n = !x || !y || (what == LOSS_BY_SECONDS && n_ns != n) ? 0 : n};
}

/* The points that all seeds have: the median, the least and the largest; none where one has no
 * number. The line of one run, where there are no seeds or they do not share x. *how: which. */
static json_t *over_seeds(const struct dpb_drawn *runs, enum curve what, json_t **how)
{
    struct line line = line_of(runs->one, what);
    const size_t n = runs->n;
    size_t n_shared = line.n, longest = line.n;
    double *all = n > 1 ? calloc(n * line.n + 1, sizeof *all) : NULL; /* by point, then by seed */
    for (size_t k = 0; all && k < n; k++) {
        struct line own = line_of(runs->of_seeds[k], what);
        longest = own.n > longest ? own.n : longest;
        n_shared = own.n < n_shared ? own.n : n_shared;
        if (n_shared > 0 && memcmp(own.x, line.x, n_shared * sizeof *own.x) != 0)
            n_shared = 0;
        for (size_t i = 0; i < n_shared; i++)
            all[i * n + k] = own.y[i];
        line_free(&own);
    }
    line.low = all && n_shared > 1 ? calloc(2 * n_shared, sizeof *line.low) : NULL;
    for (size_t i = 0; line.low && i < n_shared; i++) {
        struct dpb_stats stats;
        dpb_stats_of(all + i * n, n, &stats);
        line.y[i] = stats.median;
        line.low[i] = stats.min;
        line.low[n_shared + i] = stats.max;
    }
    line.high = line.low ? line.low + n_shared : NULL;
    line.n = line.low ? n_shared : line.n;
    *how = line.low ? json_sprintf("%zu seeds: median, least to largest%s", n,
                                   n_shared < longest ? ", until the first one ends" : "")
                    : json_string("one run each");
    free(all);
    return line_to_json(line);
}

json_t *dpb_curves_steps(const json_t *run)
{
    return line_to_json(line_of(run, NS_BY_STEP));
}

json_t *dpb_curves_training(const struct dpb_drawn *losses, const struct dpb_drawn *accuracies)
{
    json_t *of_loss, *of_accuracy;
    json_t *loss = over_seeds(losses, LOSS_BY_SAMPLES, &of_loss);
    json_t *accuracy = over_seeds(accuracies, ACCURACY_BY_SAMPLES, &of_accuracy);
    return json_pack("{s:[o, o], s:[o, o], s:{s:o, s:o}}", "loss", loss,
                     line_to_json(line_of(losses->one, LOSS_BY_SECONDS)), "accuracy", accuracy,
                     line_to_json(line_of(accuracies->one, ACCURACY_BY_SECONDS)), "how", "loss",
                     of_loss, "accuracy", of_accuracy);
}

/* A line of what run.monitor saw of a machine or a GPU. */
static json_t *seen(const json_t *of, const char *key)
{
    return line_to_json(
        line_between(json_object_get(of, "seconds"), "", json_object_get(of, key), ""));
}

json_t *dpb_curves_monitor(const json_t *run)
{
    const json_t *all = dpb_json_at(run, "monitor.machines");
    const int n = (int)json_array_size(all);
    json_t *machines = json_array(), *gpus = json_array();
    dpb_each_item(all, i, machine) {
        if (i >= MOST_MACHINES)
            break;
        json_t *own =
            json_pack("{s:o}", "host", dpb_json_string(dpb_json_text(machine, "host", "?")));
        json_object_set_new(own, "own_cpus", seen(machine, "own_cpus"));
        json_object_set_new(own, "others_cpus", seen(machine, "others_cpus"));
        json_array_append_new(machines, own);
    }
    dpb_each_item(n > 0 ? dpb_json_at(run, "monitor.gpus") : NULL, i, gpu) {
        if (i >= MOST_GPUS)
            break;
        json_t *own = json_pack("{s:o}", "power_w", seen(gpu, "power_w"));
        json_object_set_new(own, "rank", dpb_json_real(dpb_json_number(gpu, "rank")));
        json_array_append_new(gpus, own);
    }
    return json_pack("{s:o, s:o, s:i}", "machines", machines, "gpus", gpus, "left_out",
                     n > MOST_MACHINES ? n - MOST_MACHINES : 0);
}
