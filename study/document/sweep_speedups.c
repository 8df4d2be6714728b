/* sweep_speedups.c - the workers of a row, and its speedup over another row: see rows.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "study/document/published.h"
#include "study/document/rows.h"

/* The places of a row's workers; a place has `learners` workers. */
static double places_of(const json_t *row)
{
    const double learners = dpb_json_number(row, "learners");
    return dpb_json_number(row, "workers") / (learners > 1 ? learners : 1);
}

void dpb_sweep_workers(const json_t *row, char *text, size_t capacity)
{
    const double workers = dpb_json_number(row, "workers"), places = places_of(row);
    const double left = dpb_json_number(row, "left");
    struct dpb_text all = dpb_text_in(text, capacity);
    if (left < workers)
        dpb_text_add(&all, "%.0f of ", left);
    if (places == workers)
        dpb_text_add(&all, "%.0f", workers);
    else
        dpb_text_add(&all, "%.0fx%.0f", places, dpb_json_number(row, "learners"));
}

bool dpb_sweep_is_of(const json_t *run, const json_t *row, const char *purpose)
{
    return dpb_json_is(run, "status", "ok") && dpb_json_is(run, "purpose", purpose) &&
           json_equal(json_object_get(run, "cell"), json_object_get(row, "cell"));
}

/* ---- speedups -------------------------------------------------------------------------------- */

/* Settings in which a row may differ from the one it is compared with. */
static bool may_differ(const char *key, bool other_strategy)
{
    return strcmp(key, "run.workers") == 0 || strcmp(key, "run.learners") == 0 ||
           strcmp(key, "run.servers") == 0 || (other_strategy && dpb_begins_with(key, "comm."));
}

/* Whether the rows have profiles of one accelerator for one model, which differ in the batch. */
static bool differ_in_batch(const json_t *row, const json_t *other)
{
    static const char *const alike[] = {"accelerator", "model", "precision", "kind"};
    const json_t *is = json_object_get(row, "emulated"), *was = json_object_get(other, "emulated");
    bool same = json_is_object(is) && dpb_json_number(row, "batch_per_worker") !=
                                          dpb_json_number(other, "batch_per_worker");
    for (size_t i = 0; i < sizeof alike / sizeof *alike && same; i++)
        same = json_equal(json_object_get(is, alike[i]), json_object_get(was, alike[i]));
    return same;
}

static bool same_cell(const json_t *row, const json_t *other, bool other_strategy, bool other_batch)
{
    dpb_each_member(json_object_get(row, "cell"), key, value)
        if (!may_differ(key, other_strategy) &&
            !(other_batch &&
              (strcmp(key, "device.profile") == 0 || strcmp(key, "model.file") == 0)) &&
            !json_equal(value, json_object_get(json_object_get(other, "cell"), key)))
            return false;
    return true;
}

bool dpb_sweep_same_but_ranks(const json_t *row, const json_t *other)
{
    return same_cell(row, other, false, false);
}

/* Same cores of a place, same batch (of a worker, or of the job), same in all else. */
static bool comparable(const json_t *row, const json_t *other, bool other_strategy)
{
    if (!same_cell(row, other, other_strategy, differ_in_batch(row, other)))
        return false;
    bool same_batch =
        dpb_json_number(row, "batch_per_worker") == dpb_json_number(other, "batch_per_worker") ||
        dpb_json_number(row, "batch_global") == dpb_json_number(other, "batch_global");
    return same_batch &&
           dpb_json_number(row, "place_threads") == dpb_json_number(other, "place_threads");
}

static bool has_rate(const json_t *row, const char *strategy)
{
    return dpb_json_is(row, "strategy", strategy) &&
           isfinite(dpb_json_number(row, "samples_per_s.median"));
}

/* The row of the fewest workers to compare with. NULL: the sweep has none, or all of them have as
 * many workers, more than one. */
static const json_t *find_baseline(const json_t *rows, const json_t *row, bool independent)
{
    const char *strategy = independent ? "independent" : dpb_json_text(row, "strategy", "");
    const json_t *least = NULL;
    double most_workers = dpb_json_number(row, "workers");
    dpb_each_item(rows, i, other) {
        const double workers = dpb_json_number(other, "workers");
        if (!has_rate(other, strategy) || !comparable(row, other, independent))
            continue;
        most_workers = fmax(most_workers, workers);
        if (!least || workers < dpb_json_number(least, "workers"))
            least = other;
    }
    const double workers = dpb_json_number(least, "workers");
    return workers == 1 || workers < most_workers ? least : NULL;
}

static void add_speedup(const json_t *document, json_t *row, const json_t *independent,
                        const json_t *same)
{
    const json_t *baseline = independent ? independent : same;
    const double rate = dpb_json_number(row, "samples_per_s.median"),
                 speedup = rate / dpb_json_number(baseline, "samples_per_s.median"),
                 speedup_same = rate / dpb_json_number(same, "samples_per_s.median");
    json_object_set_new(row, "speedup", dpb_json_real(speedup));
    json_object_set_new(row, "efficiency",
                        dpb_json_real(speedup * places_of(baseline) / places_of(row)));
    json_object_set_new(row, "speedup_over_same_strategy", dpb_json_real(speedup_same));
    json_object_set_new(row, "published_speedup",
                        dpb_json_real(dpb_published_speedup(document, row, baseline)));
    if (!baseline) {
        json_object_set_new(row, "speedup_over", json_null());
        return;
    }
    char text[64];
    const double workers = dpb_json_number(baseline, "workers");
    snprintf(text, sizeof text, "%s, %.0f worker%s", independent ? "independent" : "same strategy",
             workers, workers == 1 ? "" : "s");
    json_object_set_new(row, "speedup_over", json_string(text));
}

void dpb_sweep_add_speedups(json_t *document)
{
    json_t *rows = json_object_get(document, "rows");
    dpb_each_item(rows, i, row) {
        const json_t *independent = find_baseline(rows, row, true);
        const json_t *same = find_baseline(rows, row, false);
        /* One worker of the same strategy goes before several of independent. */
        if (dpb_json_number(independent, "workers") > 1 && dpb_json_number(same, "workers") == 1)
            independent = NULL;
        add_speedup(document, row, independent, same);
    }
}
