/* sweep_speedups.c - the rows of a sweep over those of one worker: see sweep.h. */
#include <math.h>
#include <string.h>

#include "study/json.h"
#include "study/sweep.h"

/* Settings in which a row may differ from the one it is compared with. */
static bool may_differ(const char *key, bool other_strategy)
{
    return strcmp(key, "run.workers") == 0 || strcmp(key, "run.learners") == 0 ||
           strcmp(key, "run.servers") == 0 || (other_strategy && strncmp(key, "comm.", 5) == 0);
}

/* Same cores of a place, same batch (of a worker, or of the job), same in all else. */
static bool comparable(const json_t *row, const json_t *other, bool other_strategy)
{
    dpb_each_member(json_object_get(row, "cell"), key, value)
        if (!may_differ(key, other_strategy) &&
            !json_equal(value, json_object_get(json_object_get(other, "cell"), key)))
            return false;
    bool same_batch =
        dpb_json_number(row, "batch_per_worker") == dpb_json_number(other, "batch_per_worker") ||
        dpb_json_number(row, "batch_global") == dpb_json_number(other, "batch_global");
    return same_batch &&
           dpb_json_number(row, "place_threads") == dpb_json_number(other, "place_threads");
}

/* The one-worker row to compare with; NULL: the sweep has none. */
static const json_t *find_baseline(const json_t *rows, const json_t *row, bool independent)
{
    const char *strategy = dpb_json_text(row, "strategy", "");
    dpb_each_item(rows, i, other) {
        const char *name = dpb_json_text(other, "strategy", "?");
        if (strcmp(name, independent ? "independent" : strategy) == 0 &&
            dpb_json_number(other, "workers") == 1 &&
            isfinite(dpb_json_number(other, "samples_per_s.median")) &&
            comparable(row, other, independent))
            return other;
    }
    return NULL;
}

void dpb_sweep_add_speedups(json_t *document)
{
    json_t *rows = json_object_get(document, "rows");
    dpb_each_item(rows, i, row) {
        const json_t *independent = find_baseline(rows, row, true);
        const json_t *same = find_baseline(rows, row, false);
        const json_t *baseline = independent ? independent : same;
        double rate = dpb_json_number(row, "samples_per_s.median");
        double speedup = rate / dpb_json_number(baseline, "samples_per_s.median");
        double speedup_same = rate / dpb_json_number(same, "samples_per_s.median");
        const char *text = independent ? "independent, 1 worker"
                           : same      ? "same strategy, 1 worker"
                                       : NULL;
        json_object_set_new(row, "speedup", dpb_json_real(speedup));
        json_object_set_new(row, "efficiency", dpb_json_real(speedup / dpb_sweep_places(row)));
        json_object_set_new(row, "speedup_over", text ? json_string(text) : json_null());
        json_object_set_new(row, "speedup_over_same_strategy", dpb_json_real(speedup_same));
    }
}
