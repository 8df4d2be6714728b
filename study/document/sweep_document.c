/* sweep_document.c - the document of a sweep: its head, its runs, its status; see sweep.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"
#include "record/facts.h"
#include "study/document/target.h"
#include "study/sweep/sweep.h"

static void add_axis(const struct dpb_sweep_axis *axis, json_t *axes)
{
    char key[256];
    json_t *values = json_array();
    for (size_t v = 0; v < axis->n_values; v++)
        json_array_append_new(values, dpb_json_string(axis->values[v]));
    snprintf(key, sizeof key, "%s.%s", axis->section, axis->key);
    json_object_set_new(axes, key, values);
}

json_t *dpb_sweep_document(const struct dpb_sweep *sweep, const struct dpb_config *config)
{
    json_t *axes = json_object(), *over = json_object();
    for (size_t i = 0; i < sweep->n_axes; i++)
        add_axis(&sweep->axes[i], axes);
    if (sweep->replicates.n_values > 0)
        add_axis(&sweep->replicates, over);
    const struct dpb_setting *name = dpb_config_get(sweep->base, "run", "name");
    json_t *made =
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:[], s:[], s:o}", //
                  "schema", "dpbench.sweep/1",                                           //
                  "status", "interrupted",                                               //
                  "error", json_null(),                                                  //
                  "name", dpb_json_string(name ? name->value : "run"),                   //
                  "started", dpb_json_time(time(NULL)),                                  //
                  "axes", axes,                                                          //
                  "over", over,                                                          //
                  "repeats", (json_int_t)sweep->repeats,                                 //
                  "accuracy_steps", (json_int_t)sweep->accuracy,                         //
                  "config", dpb_config_to_json(config), "rows", "runs",                  //
                  "warnings", dpb_warnings_collect(NULL));
    if (sweep->tunes)
        json_object_set_new(made, "tune", json_object());
    if (sweep->published)
        json_object_set(made, "published", sweep->published);
    return made;
}

bool dpb_sweep_has(const struct dpb_sweep *sweep, const json_t *run)
{
    const double index = dpb_json_number(run, "cell_index");
    if (!(index >= 0 && index < (double)sweep->n_cells))
        return false;
    json_t *cell = dpb_sweep_cell(sweep, (size_t)index);
    bool same = json_equal(cell, json_object_get(run, "cell")) == 1;
    json_decref(cell);
    return same;
}

static const char *purpose_of(const struct dpb_sweep_job *job)
{
    return job->accuracy ? "accuracy" : "timing";
}

void dpb_sweep_add(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job, json_t *result,
                   json_t *document)
{
    json_object_set_new(result, "cell", dpb_sweep_cell(sweep, job->cell));
    json_object_set_new(result, "cell_index", json_integer((json_int_t)job->cell));
    json_object_set_new(result, "repeat", json_integer((json_int_t)job->repeat));
    json_object_set_new(result, "purpose", json_string(purpose_of(job)));
    json_array_append_new(json_object_get(document, "runs"), result);
}

/* ---- runs ---------------------------------------------------------------------------------- */

bool dpb_sweep_done(const struct dpb_sweep *sweep, const json_t *document,
                    const struct dpb_sweep_job *job)
{
    int64_t n_disturbed = 0;
    bool clean = false;
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        if (!dpb_json_is(run, "status", "ok") ||
            dpb_json_number(run, "cell_index") != (double)job->cell ||
            dpb_json_number(run, "repeat") != (double)job->repeat ||
            !dpb_json_is(run, "purpose", purpose_of(job)))
            continue;
        const bool disturbed = dpb_json_true(run, "load.disturbed");
        clean |= job->accuracy || !disturbed;
        n_disturbed += disturbed;
    }
    return clean || n_disturbed > sweep->retry_disturbed;
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
        if (dpb_json_is(run, "status", "ok") || (tunes && dpb_sweep_refused(run)))
            continue;
        n_bad++;
        first = first ? first : dpb_json_text(run, "error", "no reason given");
    }
    bool missed = dpb_sweep_missed(document);
    bool found = !tunes || json_is_object(dpb_json_at(document, "tune.best"));
    const char *text = status == DPB_INTERRUPTED                           ? "interrupted"
                       : status != DPB_OK || n_bad > 0 || missed || !found ? "failed"
                                                                           : "ok";
    json_object_set_new(document, "status", json_string(text));
    if (missed)
        json_object_set_new(document, "error",
                            json_string("eval.require_target: not all runs reached eval.target"));
    if (!found && status != DPB_INTERRUPTED)
        json_object_set_new(document, "error", json_string("no trial has a value"));
    if (n_bad > 0)
        json_object_set_new(document, "error",
                            json_sprintf("%zu of %zu runs are not ok; the first: %s", n_bad,
                                         json_array_size(runs), first));
}

void dpb_sweep_finish(dpb_status status, json_t *document)
{
    json_t *warnings = json_object_get(document, "warnings");
    dpb_sweep_make_rows(document);
    dpb_sweep_add_accuracy(document);
    dpb_sweep_add_speedups(document);
    dpb_target_rank(json_object_get(document, "rows"));
    warn_of_cores(document, warnings);
    set_status(status, document);
}
