/*
 * sweep_rows.c - the rows of a sweep: one a cell, made from its runs.
 *
 * A row is made from the runs that nobody disturbed, and from disturbed ones only where there is no
 * other. Its rate is the median over the repeats of their mean rates. Its interval is the 95 %
 * interval of the mean logarithm: steps of one process share its luck with memory and cores, so
 * repeats are the unit (study/document/comparison.h).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/settings.h"
#include "base/stats.h"
#include "study/document/spill.h"
#include "record/summary.h"
#include "study/document/cross_check.h"
#include "study/document/learning.h"
#include "study/document/quantity.h"
#include "study/document/rates.h"
#include "study/document/rows.h"
#include "study/document/target.h"
#include "study/document/verdict.h"

static const char rate_path[] = "timing.samples_per_s.mean";

/* ---- the runs of a cell -------------------------------------------------------------------- */

static bool is_ok(const json_t *run)
{
    return dpb_json_is(run, "status", "ok");
}

static bool is_timing(const json_t *run)
{
    return dpb_json_is(run, "purpose", "timing");
}

/* What disturbs a run in turns disturbs those beside it, too. */
static bool is_disturbed(const json_t *run)
{
    return dpb_json_true(run, "load.disturbed") && !json_object_get(run, "turns");
}

/* The cell of a timing run; NaN: it has none. */
static double cell_of(const json_t *run)
{
    const double cell = dpb_json_number(run, "cell_index");
    return is_timing(run) && cell >= 0 && json_is_object(json_object_get(run, "cell")) ? cell : NAN;
}

/* The timing runs of one cell, or of one setup there; @borrowed. */
struct cell_runs {
    const json_t **ok, **good; /* `good` has the disturbed ones, too */
    size_t n_ok, n_good, n_failed;
    size_t n_disturbed; /* good runs that are left out, since others were not disturbed */
    const json_t *any;  /* one of them, a good one if there is: for facts that all have in common */
    const char *reason; /* why the first failed one failed */
    const char *refused; /* why one could not run; NULL: all could */
};

/* `setup` NULL: all. */
static bool cell_runs_find(const json_t *document, double cell, const json_t *setup,
                           struct cell_runs *found)
{
    const json_t *runs = json_object_get(document, "runs");
    *found = (struct cell_runs){.ok = calloc(json_array_size(runs) + 1, sizeof *found->ok),
                                .good = calloc(json_array_size(runs) + 1, sizeof *found->good)};
    if (!found->ok || !found->good)
        return false;
    dpb_each_item(runs, i, run) {
        if (cell_of(run) != cell ||
            (setup && !json_equal(json_object_get(json_object_get(run, "cell"), "setup"), setup)))
            continue;
        if (is_ok(run))
            found->good[found->n_good++] = run;
        else if (dpb_json_is(run, "status", "refused"))
            found->refused = dpb_json_text(run, "error", "no reason given");
        else if (!dpb_json_is(run, "status", "interrupted") && found->n_failed++ == 0)
            found->reason = dpb_json_text(run, "error", "no reason given");
        if (!found->any || (is_ok(run) && !is_ok(found->any)))
            found->any = run;
    }
    size_t n_clean = 0;
    for (size_t i = 0; i < found->n_good; i++)
        n_clean += !is_disturbed(found->good[i]);
    for (size_t i = 0; i < found->n_good; i++)
        if (n_clean == 0 || !is_disturbed(found->good[i]))
            found->ok[found->n_ok++] = found->good[i];
    found->n_disturbed = found->n_good - found->n_ok;
    return true;
}

/* A number of a run, by the path to it. */
typedef double number_of(const json_t *run, const char *path);

/* The median over the good runs; NaN where none has the number. */
static double median_of(const struct cell_runs *runs, number_of *of, const char *path)
{
    double median = NAN, *values = calloc(runs->n_ok + 1, sizeof *values);
    size_t n = 0;
    for (size_t i = 0; values && i < runs->n_ok; i++) {
        values[n] = of(runs->ok[i], path);
        n += isfinite(values[n]) ? 1 : 0;
    }
    if (n > 0) {
        dpb_sort(values, n);
        median = dpb_quantile_of_sorted(values, n, 0.5);
    }
    free(values);
    return median;
}

static json_t *median_to_json(const struct cell_runs *runs, number_of *of, const char *path)
{
    return dpb_json_real(median_of(runs, of, path));
}

static double by_step(const json_t *run, const char *path)
{
    return dpb_json_number(run, path) / dpb_json_number(run, "timing.steps");
}

static double share_of_step(const json_t *run, const char *path)
{
    return dpb_json_number(run, path) / by_step(run, "timing.elapsed_ns");
}

static double in_first_rank(const json_t *run, const char *path)
{
    json_t *ranks = dpb_run_part(run, "ranks");
    const double number = dpb_json_number(json_array_get(ranks, 0), path);
    json_decref(ranks);
    return number;
}

/* A number of the place that rank 0 shares; older results know no learners. */
static double of_place(const json_t *run, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "place_%s", name);
    const double number = in_first_rank(run, path);
    return isfinite(number) ? number : in_first_rank(run, name);
}

static double in_last_eval(const json_t *run, const char *path)
{
    const json_t *evals = json_object_get(run, "eval");
    return dpb_json_number(json_array_get(evals, json_array_size(evals) - 1), path);
}

/* Null without a codec. */
static json_t *codec_to_json(const struct cell_runs *runs)
{
    const double ratio = median_of(runs, dpb_json_number, "comm.codec.ratio");
    if (!isfinite(ratio))
        return json_null();
    return json_pack("{s:f, s:o, s:o}", "ratio", ratio, "encode_ns",
                     median_to_json(runs, dpb_json_number, "comm.codec.encode_ns"), "decode_ns",
                     median_to_json(runs, dpb_json_number, "comm.codec.decode_ns"));
}

/* Means over the runs, so that the parts sum to the mean step. */
static json_t *breakdown_to_json(const struct cell_runs *runs)
{
    json_t *json = json_object();
    for (size_t i = 0; i < DPB_BREAKDOWN; i++) {
        double sum = runs->n_ok > 0 ? 0 : NAN;
        for (size_t k = 0; k < runs->n_ok; k++)
            sum += dpb_json_number(dpb_json_at(runs->ok[k], "timing.breakdown_ns"),
                                   dpb_breakdown_names[i]);
        json_object_set_new(json, dpb_breakdown_names[i], dpb_json_real(sum / (double)runs->n_ok));
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
    double common = INFINITY;
    dpb_each_item(json_object_get(document, "runs"), i, run)
        if (is_timing(run) && is_ok(run) && is_training(run))
            common = fmin(common,
                          (double)dpb_run_size(run, "loss") * dpb_json_number(run, "batch.global"));
    return fabs(common) < 1e18 ? common : 0;
}

static double mean_at(const struct cell_runs *runs, const char *what, double samples)
{
    double sum = 0;
    for (size_t i = 0; i < runs->n_ok; i++)
        sum += dpb_quantity_at(runs->ok[i], what, samples);
    return runs->n_ok > 0 ? sum / (double)runs->n_ok : NAN;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static int64_t repeats_of(const json_t *document)
{
    return (int64_t)fmin(fmax(dpb_json_number(document, "repeats"), 0), DPB_SWEEP_REPEATS);
}

/* The rate of every repeat; null: it has none. A repeat that was disturbed each time has several
 * runs, and none of them is better than the others: their median. */
static json_t *rates_to_json(const json_t *document, const struct cell_runs *runs)
{
    const int64_t n = repeats_of(document);
    struct cell_runs own = {.ok = calloc(runs->n_ok + 1, sizeof *own.ok)};
    json_t *rates = json_array();
    for (int64_t repeat = 0; repeat < n && own.ok; repeat++) {
        own.n_ok = 0;
        for (size_t i = 0; i < runs->n_ok; i++)
            if (dpb_json_number(runs->ok[i], "repeat") == (double)repeat)
                own.ok[own.n_ok++] = runs->ok[i];
        json_array_append_new(rates, median_to_json(&own, dpb_json_number, rate_path));
    }
    free(own.ok);
    return rates;
}

/* Puts rates[] and samples_per_s into the row. */
static void set_rate(const struct cell_runs *runs, const json_t *document, json_t *row)
{
    struct dpb_estimate estimate;
    double low, high;
    json_object_set_new(row, "rates", rates_to_json(document, runs));
    json_object_set_new(
        row, "samples_per_s",
        json_pack("{s:o}", "median", median_to_json(runs, dpb_json_number, rate_path)));
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
        any |= dpb_json_true(runs->ok[i], path) == value;
    return any;
}

/* The GPU sharing of all runs, or "mixed"; null: no run was on a GPU whose driver reports it. */
static json_t *sharing_to_json(const struct cell_runs *runs)
{
    const char *all = NULL;
    for (size_t i = 0; i < runs->n_ok; i++) {
        const char *one = dpb_json_text(runs->ok[i], "gpus.sharing", NULL);
        all = i == 0 || (all && one && strcmp(all, one) == 0) ? one : all || one ? "mixed" : NULL;
    }
    return all ? json_string(all) : json_null();
}

static const char *text_of_any(const json_t *run, const char *path, const char *in_config)
{
    return dpb_json_text(run, path, dpb_json_text(run, in_config, "?"));
}

/* A count of section [run], in the cell or beside it; 1 by default. */
static long setting_of(const json_t *run, const char *key)
{
    char path[64], axis[64];
    snprintf(path, sizeof path, "config.run.%s.value", key);
    snprintf(axis, sizeof axis, "run.%s", key);
    const json_t *value = dpb_json_at(run, path);
    const char *text = dpb_json_text(json_object_get(json_object_get(run, "cell"), axis), "", "");
    if (!text[0] && json_is_integer(value)) /* a rerun gives numbers */
        return (long)json_integer_value(value);
    text = text[0] ? text : dpb_json_text(run, path, "");
    return text[0] ? strtol(text, NULL, 10) : 1;
}

/* A job that was refused never had a world; its settings say which world it would have had. */
static void set_world(const json_t *run, json_t *row)
{
    const long places = setting_of(run, "workers"), each = setting_of(run, "learners");
    const bool known = places > 0 && places <= DPB_JOB_RANKS && each > 0 && each <= DPB_JOB_RANKS;
    json_object_set_new(row, "workers", known ? json_integer(places * each) : json_null());
    json_object_set_new(row, "learners", known ? json_integer(each) : json_null());
    json_object_update_new(row,
                           json_pack("{s:O*, s:O*}", "workers", dpb_json_at(run, "world.workers"),
                                     "learners", dpb_json_at(run, "world.learners")));
}

/* The fewest workers left in any run that ended well; null: no run knows them. */
static void set_left(const struct cell_runs *runs, json_t *row)
{
    double fewest = NAN;
    for (size_t i = 0; i < runs->n_ok; i++)
        fewest = fmin(fewest, dpb_json_number(runs->ok[i], "world.left"));
    const bool known = fewest >= 0 && fewest <= DPB_JOB_RANKS;
    json_object_set_new(row, "left", known ? json_integer((json_int_t)fewest) : json_null());
}

/* What the cell emulates, without how well. Older results know no emulation. @borrowed. */
static json_t *emulated_of(const json_t *run)
{
    json_t *emulated = json_object_get(run, "emulated");
    return emulated ? emulated : json_null();
}

/* The rates of all turns, by block, the repeats of these, and the looks at them where one run has
 * all; null: the cell had none. */
static json_t *turns_to_json(const struct cell_runs *runs)
{
    json_t *blocks = json_array(), *rates = json_array(), *repeats = json_array(),
           *latencies = json_array();
    for (size_t i = 0; i < runs->n_ok; i++) {
        json_array_extend(blocks, (json_t *)(uintptr_t)dpb_json_at(runs->ok[i], "turns.block"));
        while (json_array_size(repeats) < json_array_size(blocks))
            json_array_append(repeats, json_object_get(runs->ok[i], "repeat"));
        json_array_extend(rates,
                          (json_t *)(uintptr_t)dpb_json_at(runs->ok[i], "turns.samples_per_s"));
        json_array_extend(latencies,
                          (json_t *)(uintptr_t)dpb_json_at(runs->ok[i], "turns.core_to_core_ns"));
    }
    json_t *made = json_array_size(blocks) > 0
                       ? json_pack("{s:O, s:O, s:O, s:O}", "block", blocks, "repeat", repeats,
                                   "samples_per_s", rates, "core_to_core_ns", latencies)
                       : json_null();
    const json_t *planned = runs->n_ok == 1 ? dpb_json_at(runs->ok[0], "turns.planned") : NULL;
    if (planned) {
        json_object_set(made, "planned", (json_t *)(uintptr_t)planned);
        json_object_set(made, "decided",
                        (json_t *)(uintptr_t)dpb_json_at(runs->ok[0], "turns.decided"));
    }
    json_decref(blocks);
    json_decref(repeats);
    json_decref(rates);
    json_decref(latencies);
    return made;
}

/* odd: see verdict.h. */
static json_t *row_to_json(const struct cell_runs *runs, double samples, const json_t *document,
                           const json_t *odd)
{
    bool timed = isfinite(median_of(runs, dpb_json_number, rate_path));
    const char *status = runs->n_failed > 0 ? "failed"
                         : timed            ? "ok"
                         : runs->n_ok > 0   ? "not timed"
                         : runs->refused    ? "refused"
                                            : "interrupted";
    const char *error = runs->n_failed == 0 && runs->n_ok > 0 && !timed
                            ? "no timed steps that all workers ran at once; give it more steps"
                        : runs->reason ? runs->reason
                                       : runs->refused;
    json_t *row =
        json_pack("{s:O, s:O, s:s, s:s, s:s, s:n, s:n, s:o?, s:I, s:I, s:I}",                    //
                  "cell_index", json_object_get(runs->any, "cell_index"),                        //
                  "cell", json_object_get(runs->any, "cell"),                                    //
                  "status", status,                                                              //
                  "strategy", text_of_any(runs->any, "strategy.name", "config.comm.name.value"), //
                  "consistency", dpb_json_text(runs->any, "strategy.consistency", "?"),          //
                  "workers", "learners",                                                         //
                  "error", error ? dpb_json_line(error) : NULL,                                  //
                  "runs", (json_int_t)runs->n_ok,                                                //
                  "failed_runs", (json_int_t)runs->n_failed,                                     //
                  "disturbed_runs", (json_int_t)runs->n_disturbed);
    set_world(runs->any, row);
    set_left(runs, row);
    set_rate(runs, document, row);
    json_t *numbers = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:b, s:b, "
        "s:b, s:b}",                                                   //
        "step_ns", median_to_json(runs, by_step, "timing.elapsed_ns"), //
        "comm_exposed_share",
        median_to_json(runs, share_of_step, "timing.breakdown_ns.comm_exposed"), //
        "comm_wait_share",
        median_to_json(runs, share_of_step, "timing.breakdown_ns.comm_exposed_wait"), //
        "comm_hidden_share",
        median_to_json(runs, share_of_step, "timing.breakdown_ns.comm_hidden"),            //
        "bytes_per_step", median_to_json(runs, dpb_json_number, "comm.bytes_per_step"),    //
        "threads", median_to_json(runs, in_first_rank, "threads"),                         //
        "place_threads", median_to_json(runs, of_place, "threads"),                        //
        "batch_per_worker", dpb_json_real(dpb_json_number(runs->any, "batch.per_worker")), //
        "batch_global", dpb_json_real(dpb_json_number(runs->any, "batch.global")),         //
        "loss", dpb_json_real(mean_at(runs, "loss", samples)),                             //
        "training_accuracy", dpb_json_real(mean_at(runs, "training_accuracy", samples)),   //
        "accuracy", median_to_json(runs, in_last_eval, "accuracy"),                        //
        "oversubscribed", any_true(runs, "world.oversubscribed", true),                    //
        "throttled", any_true(runs, "throttled", true),                                    //
        "time_sliced", any_true(runs, "gpus.time_sliced", true),                           //
        "disturbed", any_true(runs, "load.disturbed", true),                               //
        "too_short", any_true(runs, "timing.too_short", true),                             //
        "gated", any_true(runs, "timing.gated", true),                                     //
        "steady", runs->n_ok > 0 && !any_true(runs, "timing.steady", false));
    json_t *to_target =
        dpb_target_of_runs(runs->good, runs->n_good, runs->n_failed, repeats_of(document));
    json_object_set_new(row, "to_target", to_target ? to_target : json_null());
    json_object_set_new(row, "learning",
                        is_training(runs->any) ? dpb_learning_of_runs(runs->ok, runs->n_ok)
                                               : json_null());
    json_object_set_new(
        row, "by_repeat",
        dpb_quantity_by_repeat(runs->good, runs->n_good, repeats_of(document), samples));
    json_object_update_new(row, numbers);
    dpb_verdict_set(document, odd, row);
    json_object_set_new(row, "breakdown_ns", breakdown_to_json(runs));
    json_object_set_new(row, "codec", codec_to_json(runs));
    json_object_set_new(row, "turns", turns_to_json(runs));
    json_object_set_new(row, "gpu_sharing", sharing_to_json(runs));
    json_object_set(row, "emulated", emulated_of(runs->any));
    json_object_set_new(row, "emulation_late", json_boolean(any_true(runs, "emulated.late", true)));
    json_object_set_new(row, "restarted", json_boolean(any_true(runs, "goodput.restarted", true)));
    return row;
}

/* The cells that have timing runs, in their order. @owned; NULL: out of memory. */
static double *cells_of(const json_t *document, size_t *n)
{
    const json_t *runs = json_object_get(document, "runs");
    double *cells = calloc(json_array_size(runs) + 1, sizeof *cells);
    size_t n_runs = 0;
    *n = 0;
    dpb_each_item(runs, i, run)
        if (cells && isfinite(cell_of(run)))
            cells[n_runs++] = cell_of(run);
    if (n_runs > 0)
        dpb_sort(cells, n_runs);
    for (size_t i = 0; i < n_runs; i++)
        if (*n == 0 || cells[i] != cells[*n - 1])
            cells[(*n)++] = cells[i];
    return cells;
}

void dpb_sweep_make_rows(json_t *document)
{
    double samples = common_samples(document);
    const json_t *setups = json_object_get(json_object_get(document, "axes"), "setup");
    const size_t n_setups = setups ? json_array_size(setups) : 1;
    size_t n_cells;
    double *cells = cells_of(document, &n_cells);
    json_t *odd = dpb_cross_check(document);
    json_array_clear(json_object_get(document, "rows"));
    json_object_set_new(document, "loss_samples", json_integer((json_int_t)samples));
    for (size_t i = 0; i < n_cells * n_setups; i++) {
        struct cell_runs runs;
        const json_t *setup = json_array_get(setups, i % n_setups);
        if (cell_runs_find(document, cells[i / n_setups], setup, &runs) && runs.any)
            json_array_append_new(json_object_get(document, "rows"),
                                  row_to_json(&runs, samples, document, odd));
        free(runs.ok);
        free(runs.good);
    }
    dpb_learning_judge(json_object_get(document, "rows"));
    json_decref(odd);
    free(cells);
}

void dpb_sweep_add_accuracy(json_t *document)
{
    const json_t *all_workers = NULL;
    bool differ = false;
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        if (is_timing(run))
            continue;
        const char *strategy = text_of_any(run, "strategy.name", "config.comm.name.value");
        const json_t *workers = dpb_json_at(run, "world.workers");
        differ |= is_ok(run) && workers && all_workers && !json_equal(workers, all_workers);
        all_workers = is_ok(run) && workers ? workers : all_workers;
        dpb_each_item(json_object_get(document, "rows"), k, row) {
            if (!dpb_json_is(row, "strategy", strategy) || !dpb_sweep_same_but_ranks(row, run))
                continue;
            json_object_set_new(row, "accuracy",
                                dpb_json_real(is_ok(run) ? in_last_eval(run, "accuracy") : NAN));
            if (!is_ok(run) && json_is_null(json_object_get(row, "error")))
                json_object_set_new(row, "error", dpb_json_line(dpb_json_text(run, "error", "")));
        }
    }
    json_object_del(document, "accuracy_workers");
    if (all_workers && !differ)
        json_object_set(document, "accuracy_workers", (json_t *)(uintptr_t)all_workers);
}
