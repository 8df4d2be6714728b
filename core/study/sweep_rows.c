/*
 * sweep_rows.c - the document of a sweep: its runs, and one row a cell made from them.
 *
 * A row is made from the runs that nobody disturbed, and from disturbed ones only where there is no
 * other. Its rate is the median over the repeats of their mean rates. Its interval is the 95 %
 * interval of the mean logarithm: steps of one process share its luck with memory and cores, so
 * repeats are the unit (base/comparison.h).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/stats.h"
#include "study/json.h"
#include "study/rates.h"
#include "study/result.h"
#include "study/sweep.h"
#include "study/target.h"
#include "study/warnings.h"

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
    time_t now = time(NULL);
    struct tm utc;
    char started[32];
    gmtime_r(&now, &utc);
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const struct dpb_setting *name = dpb_config_get(sweep->base, "run", "name");
    json_t *made =
        json_pack("{s:s, s:s, s:o, s:o, s:s, s:o, s:o, s:I, s:I, s:o, s:[], s:[], s:o}", //
                  "schema", "dpbench.sweep/1",                                           //
                  "status", "interrupted",                                               //
                  "error", json_null(),                                                  //
                  "name", dpb_json_string(name ? name->value : "run"),                   //
                  "started", started,                                                    //
                  "axes", axes,                                                          //
                  "over", over,                                                          //
                  "repeats", (json_int_t)sweep->repeats,                                 //
                  "accuracy_steps", (json_int_t)sweep->accuracy,                         //
                  "config", dpb_config_to_json(config), "rows", "runs",                  //
                  "warnings", dpb_warnings_collect(NULL));
    if (sweep->tunes)
        json_object_set_new(made, "tune", json_object());
    return made;
}

static json_t *cell_to_json(const struct dpb_sweep *sweep, size_t cell)
{
    json_t *json = json_object();
    for (size_t i = 0; i < sweep->n_axes; i++) {
        char key[256];
        snprintf(key, sizeof key, "%s.%s", sweep->axes[i].section, sweep->axes[i].key);
        json_object_set_new(json, key, dpb_json_string(dpb_sweep_value(sweep, cell, i)));
    }
    return json;
}

bool dpb_sweep_has(const struct dpb_sweep *sweep, const json_t *run)
{
    const double index = dpb_json_number(run, "cell_index");
    if (!(index >= 0 && index < (double)sweep->n_cells))
        return false;
    json_t *cell = cell_to_json(sweep, (size_t)index);
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
    json_object_set_new(result, "cell", cell_to_json(sweep, job->cell));
    json_object_set_new(result, "cell_index", json_integer((json_int_t)job->cell));
    json_object_set_new(result, "repeat", json_integer((json_int_t)job->repeat));
    json_object_set_new(result, "purpose", json_string(purpose_of(job)));
    json_array_append_new(json_object_get(document, "runs"), result);
}

/* ---- the runs of a cell -------------------------------------------------------------------- */

static bool is_ok(const json_t *run)
{
    return strcmp(dpb_json_text(run, "status", ""), "ok") == 0;
}

static bool is_timing(const json_t *run)
{
    return strcmp(dpb_json_text(run, "purpose", ""), "timing") == 0;
}

static bool is_disturbed(const json_t *run)
{
    return json_is_true(dpb_json_at(run, "load.disturbed"));
}

bool dpb_sweep_done(const struct dpb_sweep *sweep, const json_t *document,
                    const struct dpb_sweep_job *job)
{
    const json_t *runs = json_object_get(document, "runs"), *run;
    int64_t n_disturbed = 0;
    bool clean = false;
    size_t i;
    json_array_foreach(runs, i, run)
    {
        if (!is_ok(run) || dpb_json_number(run, "cell_index") != (double)job->cell ||
            dpb_json_number(run, "repeat") != (double)job->repeat ||
            strcmp(dpb_json_text(run, "purpose", ""), purpose_of(job)) != 0)
            continue;
        clean |= job->accuracy || !is_disturbed(run);
        n_disturbed += is_disturbed(run);
    }
    return clean || n_disturbed > sweep->retry_disturbed;
}

bool dpb_sweep_refused(const json_t *run)
{
    const char *failure = dpb_json_text(run, "failure", "");
    return strcmp(failure, dpb_status_name(DPB_UNSUPPORTED)) == 0 ||
           strcmp(failure, dpb_status_name(DPB_NO_MEMORY)) == 0;
}

/* The cell of a timing run; NaN: it has none. */
static double cell_of(const json_t *run)
{
    const double cell = dpb_json_number(run, "cell_index");
    return is_timing(run) && cell >= 0 && json_is_object(json_object_get(run, "cell")) ? cell : NAN;
}

/* The timing runs of one cell; @borrowed. */
struct cell_runs {
    const json_t **ok, **good; /* `good` has the disturbed ones, too */
    size_t n_ok, n_good, n_failed, n_interrupted;
    size_t n_disturbed; /* good runs that are left out, since others were not disturbed */
    const json_t *any;  /* one of them, a good one if there is: for what all have in common */
    const char *reason; /* why the first failed one failed */
};

static bool cell_runs_find(const json_t *document, double cell, struct cell_runs *found)
{
    const json_t *runs = json_object_get(document, "runs"), *run;
    size_t i;
    *found = (struct cell_runs){.ok = calloc(json_array_size(runs) + 1, sizeof *found->ok),
                                .good = calloc(json_array_size(runs) + 1, sizeof *found->good)};
    if (!found->ok || !found->good)
        return false;
    json_array_foreach(runs, i, run)
    {
        if (cell_of(run) != cell)
            continue;
        if (is_ok(run)) {
            found->ok[found->n_ok++] = run;
            found->good[found->n_good++] = run;
        } else if (strcmp(dpb_json_text(run, "status", ""), "interrupted") == 0) {
            found->n_interrupted++;
        } else {
            if (found->n_failed++ == 0)
                found->reason = dpb_json_text(run, "error", "no reason given");
        }
        if (!found->any || (is_ok(run) && !is_ok(found->any)))
            found->any = run;
    }
    size_t n_clean = 0;
    for (i = 0; i < found->n_ok; i++)
        n_clean += !is_disturbed(found->ok[i]);
    for (size_t k = i = 0; n_clean > 0 && i < found->n_ok; i++)
        if (!is_disturbed(found->ok[i]))
            found->ok[k++] = found->ok[i];
    if (n_clean > 0) {
        found->n_disturbed = found->n_ok - n_clean;
        found->n_ok = n_clean;
    }
    return true;
}

/* The median of a number of every good run; NaN where there is none. */
static double median_of(const struct cell_runs *runs, double (*of)(const json_t *run))
{
    double median = NAN, *values = calloc(runs->n_ok + 1, sizeof *values);
    size_t n = 0;
    for (size_t i = 0; values && i < runs->n_ok; i++) {
        values[n] = of(runs->ok[i]);
        n += isfinite(values[n]) ? 1 : 0;
    }
    if (n > 0) {
        dpb_sort(values, n);
        median = dpb_quantile_of_sorted(values, n, 0.5);
    }
    free(values);
    return median;
}

static double rate_of_run(const json_t *run)
{
    return dpb_json_number(run, "timing.samples_per_s.mean");
}

static double step_of_run(const json_t *run)
{
    return dpb_json_number(run, "timing.elapsed_ns") / dpb_json_number(run, "timing.steps");
}

static double exposed_of_run(const json_t *run)
{
    return dpb_json_number(run, "timing.breakdown_ns.comm_exposed") / step_of_run(run);
}

static double hidden_of_run(const json_t *run)
{
    return dpb_json_number(run, "timing.breakdown_ns.comm_hidden") / step_of_run(run);
}

static double bytes_of_run(const json_t *run)
{
    return dpb_json_number(run, "comm.bytes_per_step");
}

static double ratio_of_run(const json_t *run)
{
    return dpb_json_number(run, "comm.codec.ratio");
}

static double encode_of_run(const json_t *run)
{
    return dpb_json_number(run, "comm.codec.encode_ns");
}

static double decode_of_run(const json_t *run)
{
    return dpb_json_number(run, "comm.codec.decode_ns");
}

/* Null without a codec. */
static json_t *codec_to_json(const struct cell_runs *runs)
{
    const double ratio = median_of(runs, ratio_of_run);
    if (!isfinite(ratio))
        return json_null();
    return json_pack("{s:f, s:o, s:o}", "ratio", ratio, "encode_ns",
                     dpb_json_real(median_of(runs, encode_of_run)), "decode_ns",
                     dpb_json_real(median_of(runs, decode_of_run)));
}

static double accuracy_of_run(const json_t *run)
{
    const json_t *evals = json_object_get(run, "eval");
    size_t n = json_array_size(evals);
    return n > 0 ? dpb_json_number(json_array_get(evals, n - 1), "accuracy") : NAN;
}

static double threads_of_run(const json_t *run)
{
    return dpb_json_number(json_array_get(json_object_get(run, "ranks"), 0), "threads");
}

/* Means over the runs, so that the parts sum to the mean step. */
static json_t *breakdown_to_json(const struct cell_runs *runs)
{
    static const char *const parts[] = {"data_wait",   "forward",       "delay",
                                        "backward",    "optimizer",     "comm_exposed",
                                        "comm_hidden", "comm_wait_peer"};
    json_t *json = json_object();
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        double sum = runs->n_ok > 0 ? 0 : NAN;
        for (size_t k = 0; k < runs->n_ok; k++)
            sum += dpb_json_number(dpb_json_at(runs->ok[k], "timing.breakdown_ns"), parts[i]);
        json_object_set_new(json, parts[i], dpb_json_real(sum / (double)runs->n_ok));
    }
    return json;
}

/* ---- loss at the same number of samples ---------------------------------------------------- */

static bool is_training(const json_t *run)
{
    return strcmp(dpb_json_text(run, "config.run.mode.value", "train"), "train") == 0;
}

/* The largest number of samples that every training run reached; 0: none. */
static double common_samples(const json_t *document)
{
    const json_t *run;
    size_t i;
    double common = INFINITY;
    json_array_foreach(json_object_get(document, "runs"), i, run)
    {
        if (is_timing(run) && is_ok(run) && is_training(run))
            common = fmin(common, (double)json_array_size(json_object_get(run, "loss")) *
                                      dpb_json_number(run, "batch.global"));
    }
    return fabs(common) < 1e18 ? common : 0;
}

/* Mean loss of the steps that end within the last tenth of the first `samples`: as many samples for
 * every strategy and number of workers. */
static double loss_at(const json_t *run, double samples)
{
    const json_t *loss = json_object_get(run, "loss");
    double global_batch = dpb_json_number(run, "batch.global");
    if (!is_training(run) || !(samples >= global_batch))
        return NAN;
    size_t end = (size_t)(samples / global_batch);
    size_t begin = (size_t)ceil(0.9 * samples / global_batch);
    begin = begin < end ? begin : end - 1;
    double sum = 0;
    for (size_t k = begin; k < end; k++) {
        const json_t *value = json_array_get(loss, k);
        sum += json_is_number(value) ? json_number_value(value) : NAN;
    }
    return sum / (double)(end - begin);
}

static double mean_loss_at(const struct cell_runs *runs, double samples)
{
    double sum = 0;
    for (size_t i = 0; i < runs->n_ok; i++)
        sum += loss_at(runs->ok[i], samples);
    return runs->n_ok > 0 ? sum / (double)runs->n_ok : NAN;
}

/* ---- verdicts ------------------------------------------------------------------------------ */

static bool verdict_is(const json_t *run, const char *path, const char *verdict)
{
    return strcmp(dpb_json_text(run, path, "skipped"), verdict) == 0;
}

/* true, false, or null where there is nothing to verify (no exchange, no training). */
static json_t *verified(const struct cell_runs *runs)
{
    bool all = runs->n_ok > 0, applicable = false;
    for (size_t i = 0; i < runs->n_ok; i++) {
        const json_t *run = runs->ok[i];
        if (!is_training(run))
            continue;
        bool pattern = verdict_is(run, "verification.pattern", "pass");
        bool no_pattern = verdict_is(run, "verification.pattern", "not_applicable");
        bool replicas = verdict_is(run, "verification.replicas", "pass");
        bool no_replicas = verdict_is(run, "verification.replicas", "not_applicable");
        applicable |= !no_pattern || !no_replicas;
        all &= (pattern || no_pattern) && (replicas || no_replicas);
    }
    return all && !applicable ? json_null() : json_boolean(all);
}

static bool proved(const struct cell_runs *runs)
{
    bool all = runs->n_ok > 0;
    for (size_t i = 0; i < runs->n_ok; i++)
        all &= verdict_is(runs->ok[i], "verification.exchange", "pass");
    return all;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static int64_t repeats_of(const json_t *document)
{
    return (int64_t)fmin(fmax(dpb_json_number(document, "repeats"), 0), DPB_SWEEP_REPEATS);
}

/* The rate of every repeat; null: it has none. */
static json_t *rates_to_json(const json_t *document, const struct cell_runs *runs)
{
    const int64_t n = repeats_of(document);
    json_t *rates = json_array();
    for (int64_t repeat = 0; repeat < n; repeat++) {
        double rate = NAN;
        for (size_t i = 0; i < runs->n_ok; i++)
            if (dpb_json_number(runs->ok[i], "repeat") == (double)repeat)
                rate = rate_of_run(runs->ok[i]);
        json_array_append_new(rates, dpb_json_real(rate));
    }
    return rates;
}

/* Puts rates[] and samples_per_s into the row. */
static void set_rate(const struct cell_runs *runs, const json_t *document, json_t *row)
{
    struct dpb_estimate estimate;
    double low, high;
    json_object_set_new(row, "rates", rates_to_json(document, runs));
    json_object_set_new(row, "samples_per_s",
                        json_pack("{s:o}", "median", dpb_json_real(median_of(runs, rate_of_run))));
    dpb_rates_estimate(document, row, &estimate);
    dpb_estimate_interval(&estimate, &low, &high);
    json_object_update_new(json_object_get(row, "samples_per_s"),
                           json_pack("{s:o, s:o, s:s}", "low", dpb_json_real(low), "high",
                                     dpb_json_real(high), "interval",
                                     estimate.of_steps ? "95 % of the run's mean, by its steps"
                                                       : "95 % of the mean of the repeats"));
}

static bool any_true(const struct cell_runs *runs, const char *path, bool value)
{
    bool any = false;
    for (size_t i = 0; i < runs->n_ok; i++)
        any |= json_is_true(dpb_json_at(runs->ok[i], path)) == value;
    return any;
}

static const char *text_of_any(const json_t *run, const char *path, const char *in_config)
{
    return dpb_json_text(run, path, dpb_json_text(run, in_config, "?"));
}

/* A job that was refused never had a world; its settings say how many it would have had. */
static json_t *workers_to_json(const json_t *run)
{
    const json_t *workers = dpb_json_at(run, "world.workers");
    if (workers)
        return json_incref((json_t *)(uintptr_t)workers);
    const json_t *cell = json_object_get(run, "cell");
    const char *text = dpb_json_text(run, "config.run.workers.value", "");
    text = dpb_json_text(json_object_get(cell, "run.workers"), "", text);
    long n = strtol(text, NULL, 10);
    return n > 0 ? json_integer(n) : json_null();
}

static json_t *row_to_json(const struct cell_runs *runs, double samples, const json_t *document)
{
    bool timed = isfinite(median_of(runs, rate_of_run));
    const char *status = runs->n_failed > 0 ? "failed"
                         : timed            ? "ok"
                         : runs->n_ok > 0   ? "not timed"
                                            : "interrupted";
    const char *error = runs->n_ok > 0 && !timed
                            ? "no timed steps that all workers ran at once; give it more steps"
                            : runs->reason;
    double accuracy = median_of(runs, accuracy_of_run);
    json_t *row =
        json_pack("{s:O, s:O, s:s, s:s, s:s, s:o, s:s?, s:I, s:I, s:I}",                         //
                  "cell_index", json_object_get(runs->any, "cell_index"),                        //
                  "cell", json_object_get(runs->any, "cell"),                                    //
                  "status", status,                                                              //
                  "strategy", text_of_any(runs->any, "strategy.name", "config.comm.name.value"), //
                  "consistency", dpb_json_text(runs->any, "strategy.consistency", "?"),          //
                  "workers", workers_to_json(runs->any),                                         //
                  "error", error,                                                                //
                  "runs", (json_int_t)runs->n_ok,                                                //
                  "failed_runs", (json_int_t)runs->n_failed,                                     //
                  "disturbed_runs", (json_int_t)runs->n_disturbed);
    set_rate(runs, document, row);
    json_t *numbers = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:b, s:b, s:b, "
        "s:b}",                                                                            //
        "step_ns", dpb_json_real(median_of(runs, step_of_run)),                            //
        "comm_exposed_share", dpb_json_real(median_of(runs, exposed_of_run)),              //
        "comm_hidden_share", dpb_json_real(median_of(runs, hidden_of_run)),                //
        "bytes_per_step", dpb_json_real(median_of(runs, bytes_of_run)),                    //
        "threads", dpb_json_real(median_of(runs, threads_of_run)),                         //
        "batch_per_worker", dpb_json_real(dpb_json_number(runs->any, "batch.per_worker")), //
        "batch_global", dpb_json_real(dpb_json_number(runs->any, "batch.global")),         //
        "loss", dpb_json_real(mean_loss_at(runs, samples)),                                //
        "accuracy", dpb_json_real(accuracy),                                               //
        "verified", verified(runs),                                                        //
        "proved", proved(runs),                                                            //
        "oversubscribed", any_true(runs, "world.oversubscribed", true),                    //
        "throttled", any_true(runs, "throttled", true),                                    //
        "disturbed", any_true(runs, "load.disturbed", true),                               //
        "too_short", any_true(runs, "timing.too_short", true),                             //
        "gated", any_true(runs, "timing.gated", true),                                     //
        "steady", runs->n_ok > 0 && !any_true(runs, "timing.steady", false));
    json_t *to_target =
        dpb_target_of_runs(runs->good, runs->n_good, runs->n_failed, repeats_of(document));
    json_object_set_new(row, "to_target", to_target ? to_target : json_null());
    json_object_update(row, numbers);
    json_decref(numbers);
    json_object_set_new(row, "breakdown_ns", breakdown_to_json(runs));
    json_object_set_new(row, "codec", codec_to_json(runs));
    return row;
}

/* The cells that have timing runs, in their order. @owned; NULL: out of memory. */
static double *cells_of(const json_t *document, size_t *n)
{
    const json_t *runs = json_object_get(document, "runs"), *run;
    double *cells = calloc(json_array_size(runs) + 1, sizeof *cells);
    size_t n_runs = 0, i;
    *n = 0;
    json_array_foreach(runs, i, run)
    {
        if (cells && isfinite(cell_of(run)))
            cells[n_runs++] = cell_of(run);
    }
    if (n_runs > 0)
        dpb_sort(cells, n_runs);
    for (i = 0; i < n_runs; i++)
        if (*n == 0 || cells[i] != cells[*n - 1])
            cells[(*n)++] = cells[i];
    return cells;
}

void dpb_sweep_make_rows(json_t *document)
{
    double samples = common_samples(document);
    size_t n_cells;
    double *cells = cells_of(document, &n_cells);
    json_array_clear(json_object_get(document, "rows"));
    json_object_set_new(document, "loss_samples", json_integer((json_int_t)samples));
    for (size_t i = 0; i < n_cells; i++) {
        struct cell_runs runs;
        if (cell_runs_find(document, cells[i], &runs) && runs.any)
            json_array_append_new(json_object_get(document, "rows"),
                                  row_to_json(&runs, samples, document));
        free(runs.ok);
        free(runs.good);
    }
    free(cells);
}

/* The accuracy runs speak for all rows of their strategy. */
static void add_accuracy(json_t *document)
{
    const json_t *run;
    json_t *row;
    size_t i, k;
    json_array_foreach(json_object_get(document, "runs"), i, run)
    {
        if (is_timing(run))
            continue;
        const char *strategy = text_of_any(run, "strategy.name", "config.comm.name.value");
        const json_t *workers = dpb_json_at(run, "world.workers");
        if (is_ok(run) && workers)
            json_object_set(document, "accuracy_workers", (json_t *)(uintptr_t)workers);
        json_array_foreach(json_object_get(document, "rows"), k, row)
        {
            if (strcmp(dpb_json_text(row, "strategy", ""), strategy) != 0)
                continue;
            json_object_set_new(row, "accuracy",
                                dpb_json_real(is_ok(run) ? accuracy_of_run(run) : NAN));
            if (!is_ok(run) && json_is_null(json_object_get(row, "error")))
                json_object_set(row, "error", json_object_get(run, "error"));
        }
    }
}

/* ---- speedup ------------------------------------------------------------------------------- */

/* Settings in which a row may differ from the one it is compared with. */
static bool may_differ(const char *key, bool other_strategy)
{
    return strcmp(key, "run.workers") == 0 || strcmp(key, "run.servers") == 0 ||
           (other_strategy && strncmp(key, "comm.", 5) == 0);
}

/* Same cores of a worker, same batch (of a worker, or of the job), same in all else. */
static bool comparable(const json_t *row, const json_t *other, bool other_strategy)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(row, "cell"), key, value)
    {
        if (!may_differ(key, other_strategy) &&
            !json_equal(value, json_object_get(json_object_get(other, "cell"), key)))
            return false;
    }
    bool same_batch =
        dpb_json_number(row, "batch_per_worker") == dpb_json_number(other, "batch_per_worker") ||
        dpb_json_number(row, "batch_global") == dpb_json_number(other, "batch_global");
    return same_batch && dpb_json_number(row, "threads") == dpb_json_number(other, "threads");
}

/* The one-worker row to compare with; NULL: the sweep has none. */
static const json_t *find_baseline(const json_t *rows, const json_t *row, bool independent)
{
    const char *strategy = dpb_json_text(row, "strategy", "");
    const json_t *other;
    size_t i;
    json_array_foreach(rows, i, other)
    {
        const char *name = dpb_json_text(other, "strategy", "?");
        if (strcmp(name, independent ? "independent" : strategy) == 0 &&
            dpb_json_number(other, "workers") == 1 &&
            isfinite(dpb_json_number(other, "samples_per_s.median")) &&
            comparable(row, other, independent))
            return other;
    }
    return NULL;
}

static void add_speedups(json_t *document)
{
    json_t *rows = json_object_get(document, "rows"), *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
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
        json_object_set_new(row, "efficiency",
                            dpb_json_real(speedup / dpb_json_number(row, "workers")));
        json_object_set_new(row, "speedup_over", text ? json_string(text) : json_null());
        json_object_set_new(row, "speedup_over_same_strategy", dpb_json_real(speedup_same));
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Rows by workers compare only where a worker has the same cores in all of them. */
static void warn_of_cores(json_t *document, json_t *warnings)
{
    if (json_object_get(json_object_get(document, "axes"), "device.threads"))
        return; /* asked for */
    double least = INFINITY, most = 0;
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(document, "rows"), i, row)
    {
        double threads = dpb_json_number(row, "threads");
        least = fmin(least, threads);
        most = fmax(most, threads);
    }
    if (least < most)
        dpb_warnings_add(
            warnings, "cores_differ",
            "workers compute with %.0f to %.0f threads: their rows do not compare; set "
            "device.threads",
            least, most);
}

static bool is_yes(const json_t *value)
{
    bool yes = false;
    return dpb_parse_bool(dpb_json_text(value, "", "no"), &yes) && yes;
}

bool dpb_sweep_missed(const json_t *document)
{
    bool required = is_yes(dpb_json_at(document, "config.eval.require_target.value"));
    const json_t *axes = json_object_get(document, "axes"), *value;
    size_t i;
    json_array_foreach(json_object_get(axes, "eval.require_target"), i, value)
    {
        required |= is_yes(value);
    }
    return required && !json_object_get(document, "tune") &&
           dpb_target_missed(json_object_get(document, "rows"));
}

static void set_status(dpb_status status, json_t *document)
{
    const json_t *runs = json_object_get(document, "runs"), *run;
    const bool tunes = json_object_get(document, "tune") != NULL;
    size_t i, n_bad = 0;
    const char *first = NULL;
    json_array_foreach(runs, i, run)
    {
        if (is_ok(run) || (tunes && dpb_sweep_refused(run)))
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
    add_accuracy(document);
    add_speedups(document);
    dpb_target_rank(json_object_get(document, "rows"));
    warn_of_cores(document, warnings);
    set_status(status, document);
}
