/* sweep_runs.c - see sweep_runs.h. */
#include "study/sweep/sweep_runs.h"

#include <stdio.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "record/facts.h"

static void add_axis(const struct dpb_sweep_axis *axis, json_t *axes)
{
    char key[256];
    json_t *values = json_array();
    for (size_t v = 0; v < axis->n_values; v++)
        json_array_append_new(values, dpb_json_string(axis->values[v]));
    snprintf(key, sizeof key, "%s.%s", axis->section, axis->key);
    json_object_set_new(axes, key, values);
}

json_t *dpb_sweep_document(const struct dpb_sweep *sweep)
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
                  "repeats", (json_int_t)sweep->options.repeats,                         //
                  "accuracy_steps", (json_int_t)sweep->options.accuracy,                 //
                  "config", dpb_config_to_json(sweep->given), "rows", "runs",            //
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

void dpb_sweep_stay(json_t *document)
{
    const json_t *runs = json_object_get(document, "runs");
    json_object_set_new(json_array_get(runs, json_array_size(runs) - 1), "stays_disturbed",
                        json_true());
}

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
        const bool disturbed =
            dpb_json_true(run, "load.disturbed") && !json_object_get(run, "turns");
        clean |= job->accuracy || !disturbed || dpb_json_true(run, "stays_disturbed");
        n_disturbed += disturbed;
    }
    return clean || n_disturbed > sweep->options.retry_disturbed;
}
