/* sweep_document.c - what a sweep's document says of its runs: see rows.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "record/facts.h"
#include "record/series.h"
#include "study/document/cross_check.h"
#include "study/document/rows.h"
#include "study/document/setup.h"
#include "study/document/target.h"
#include "study/document/verdict.h"

bool dpb_tune_is(const json_t *document)
{
    return json_is_object(json_object_get(document, "tune"));
}

bool dpb_sweep_refused(const json_t *run)
{
    return dpb_json_is(run, "failure", dpb_status_name(DPB_UNSUPPORTED)) ||
           dpb_json_is(run, "failure", dpb_status_name(DPB_NO_MEMORY));
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Rows by workers compare only where a place has the same cores in all of them. */
static void warn_of_cores(json_t *document, json_t *warnings)
{
    if (json_object_get(json_object_get(document, "axes"), "device.threads"))
        return; /* asked for */
    double least = INFINITY, most = 0;
    bool learners = false;
    dpb_each_item(json_object_get(document, "rows"), i, row) {
        learners |= dpb_json_number(row, "learners") > 1;
        double threads = dpb_json_number(row, "place_threads");
        least = fmin(least, threads);
        most = fmax(most, threads);
    }
    if (least < most)
        dpb_warnings_add(warnings, "cores_differ",
                         "%s compute with %.0f to %.0f threads: their rows do not compare; set "
                         "device.threads",
                         learners ? "places" : "workers", least, most);
}

static bool is_yes(const json_t *value)
{
    bool yes = false;
    return dpb_parse_bool(dpb_json_text(value, "", "no"), &yes) && yes;
}

bool dpb_sweep_missed(const json_t *document)
{
    bool required = is_yes(dpb_json_at(document, "config.eval.require_target.value"));
    const json_t *axes = json_object_get(document, "axes");
    dpb_each_item(json_object_get(axes, "eval.require_target"), i, value)
        required |= is_yes(value);
    return required && !json_object_get(document, "tune") &&
           dpb_target_missed(json_object_get(document, "rows"));
}

static void set_status(dpb_status status, json_t *document)
{
    const json_t *runs = json_object_get(document, "runs");
    const bool tunes = json_object_get(document, "tune") != NULL;
    size_t n_bad = 0;
    const char *first = NULL;
    dpb_each_item(runs, i, run) {
        if (dpb_json_is(run, "status", "ok") || dpb_json_is(run, "status", "refused") ||
            (tunes && dpb_sweep_refused(run)))
            continue;
        n_bad++;
        first = first ? first : dpb_json_text(run, "error", "no reason given");
    }
    const json_t *wrong = dpb_verdict_failed(document);
    bool missed = dpb_sweep_missed(document);
    bool found = !tunes || json_is_object(dpb_json_at(document, "tune.best"));
    const char *text = status == DPB_INTERRUPTED                                    ? "interrupted"
                       : status != DPB_OK || n_bad > 0 || wrong || missed || !found ? "failed"
                                                                                    : "ok";
    json_object_set_new(document, "status", json_string(text));
    if (missed)
        json_object_set_new(document, "error",
                            json_string("eval.require_target: not all runs reached eval.target"));
    if (!found && status != DPB_INTERRUPTED)
        json_object_set_new(document, "error", json_string("no trial has a value"));
    if (wrong)
        json_object_set_new(document, "error",
                            json_sprintf("verification of %s failed: %s",
                                         dpb_json_text(wrong, "strategy", "?"),
                                         dpb_json_text(wrong, "verdict_reason", "?")));
    if (n_bad > 0)
        json_object_set_new(document, "error",
                            json_sprintf("%zu of %zu runs are not ok; the first: %s", n_bad,
                                         json_array_size(runs), first));
}

/* The rates of the repeats by cell. */
static void make_series(json_t *document)
{
    json_object_set_new(document, "series", json_array());
    dpb_each_item(json_object_get(document, "rows"), i, row) {
        const json_t *workers = json_object_get(row, "workers");
        json_t *key = json_pack("{s:O, s:O*}", "strategy", json_object_get(row, "strategy"),
                                "workers", json_is_integer(workers) ? workers : NULL);
        json_object_update(key, json_object_get(row, "cell"));
        json_t *made = dpb_series_add(document, key);
        json_object_set(json_object_get(made, "values"), "samples_per_s",
                        json_object_get(row, "rates"));
    }
}

void dpb_sweep_finish(dpb_status status, json_t *document)
{
    json_t *warnings = json_object_get(document, "warnings");
    if (!json_object_get(document, "merged")) /* which has the setups of its sources */
        dpb_setups_split(document);
    dpb_sweep_make_rows(document);
    dpb_sweep_add_accuracy(document);
    dpb_sweep_add_speedups(document);
    dpb_target_rank(json_object_get(document, "rows"));
    warn_of_cores(document, warnings);
    dpb_cross_check_warn(document, warnings);
    set_status(status, document);
    make_series(document);
}
