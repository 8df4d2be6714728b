/*
 * result.c - the document of one run. Its numbers come from summary.c, its names are those that
 * scripts count on: see docs/ and tests/system/test_cli_run.c, which walks the list.
 */
#include "record/result.h"

#include "record/gpus_report.h"
#include "record/result_private.h"
#include "record/series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "launch/hosts.h"
#include "machine/cores.h"
#include "plan/contract.h"
#include "plan/unused.h"
#include "record/emulation_report.h"
#include "record/facts.h"
#include "record/invocation.h"
#include "record/load_report.h"
#include "record/monitor_report.h"
#include "record/profile.h"
#include "record/summary.h"
#include "record/wall.h"
#include "record/why.h"

/* ---- parts --------------------------------------------------------------------------------- */

static json_t *rate_to_json(struct dpb_result_maker *maker)
{
    static const char name[] = "timing.samples_per_s";
    const struct dpb_stats *rate = &maker->summary.rate;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:[o, o], s:o, s:o}",                             //
                     "mean", dpb_result_real(maker, rate->mean, name),                            //
                     "first_to_last", dpb_result_real(maker, maker->summary.first_to_last, name), //
                     "median", dpb_result_real(maker, rate->median, name),                        //
                     "p10", dpb_result_real(maker, rate->p10, name),                              //
                     "p90", dpb_result_real(maker, rate->p90, name),                              //
                     "ci95", dpb_result_real(maker, rate->ci95[0], name),
                     dpb_result_real(maker, rate->ci95[1], name),          //
                     "jitter", dpb_result_real(maker, rate->jitter, name), //
                     "uncertainty", dpb_result_real(maker, rate->uncertainty, name));
}

/* When gradients were final; null: the host's clock does not show it. */
static json_t *ready_to_json(const struct dpb_journal *journal)
{
    if (!journal || journal->n_ready == 0)
        return json_null();
    json_t *elements = json_array(), *ns = json_array();
    for (uint64_t i = 0; i < journal->n_ready; i++) {
        const struct dpb_ready *ready = &journal->ready[i];
        json_array_append_new(elements, json_integer((json_int_t)ready->elements));
        json_array_append_new(ns, dpb_json_real((double)ready->sum_ns / (double)ready->steps));
    }
    return json_pack("{s:o, s:o}", "elements", elements, "ns", ns);
}

static json_t *integers_to_json(const int64_t *values, uint64_t n)
{
    json_t *json = json_array();
    for (uint64_t k = 0; k < n; k++)
        json_array_append_new(json, json_integer((json_int_t)values[k]));
    return json;
}

/* Steps in which a worker's process did not run for a while; those of warm-up, too. */
static json_t *suspended_to_json(const struct dpb_result_maker *maker)
{
    json_t *list = json_array();
    for (uint32_t rank = 0; rank < maker->n_workers; rank++) {
        const struct dpb_journal *journal = maker->journals[rank];
        for (uint64_t k = 0; journal && k < dpb_journal_records(journal); k++)
            if (journal->records[k].missed_ns > 0)
                json_array_append_new(
                    list, json_pack("{s:I, s:I, s:f}",                                       //
                                    "step", (json_int_t)journal->first_step + (json_int_t)k, //
                                    "rank", (json_int_t)rank,                                //
                                    "seconds", (double)journal->records[k].missed_ns * 1e-9));
    }
    return list;
}

static json_t *timing_to_json(struct dpb_result_maker *maker)
{
    const struct dpb_summary *summary = &maker->summary;
    const struct dpb_journal *journal = maker->journals[0];
    json_int_t first_step = journal ? (json_int_t)journal->first_step : 0;
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", //
        "clock", journal && journal->by_device ? "device" : "host",                    //
        "first_step", first_step,                                                      //
        "warmup_steps", (json_int_t)summary->warmup_steps,                             //
        "steps", (json_int_t)summary->n_steps,                                         //
        "steady", summary->steady,                                                     //
        "gated", summary->gated,                                                       //
        "too_short", summary->too_short,                                               //
        "elapsed_ns", (json_int_t)summary->elapsed_ns,                                 //
        "drift", dpb_result_real(maker, dpb_drift_of(summary->step_ns, summary->n_steps), "drift"),
        "samples_per_s", rate_to_json(maker),                                           //
        "breakdown_ns", dpb_result_breakdown(maker, &summary->breakdown),               //
        "ready", ready_to_json(journal),                                                //
        "warmup_step_ns", integers_to_json(summary->warmup_step_ns, summary->n_warmup), //
        "step_ns", integers_to_json(summary->step_ns, summary->n_steps),                //
        "suspended", suspended_to_json(maker));
}

/* A number for each step that has a loss. */
static json_t *steps_to_json(struct dpb_result_maker *maker, const double *values, const char *what)
{
    json_t *list = json_array();
    const bool none = dpb_experiment_emulates(maker->experiment);
    for (uint64_t k = 0; k < maker->summary.n_losses && !none; k++) {
        char name[48];
        snprintf(name, sizeof name, "%s[%llu]", what, (unsigned long long)k);
        json_array_append_new(list, dpb_result_real(maker, values[k], name));
    }
    return list;
}

static uint64_t n_evals_of(const struct dpb_journal *journal)
{
    uint64_t n = journal ? __atomic_load_n(&journal->n_evals, __ATOMIC_ACQUIRE) : 0;
    return n < DPB_JOURNAL_EVALS ? n : DPB_JOURNAL_EVALS;
}

static json_t *one_eval_to_json(struct dpb_result_maker *maker, const struct dpb_eval *eval)
{
    const double labels = eval->labels > 0 ? (double)eval->labels : NAN;
    const double accuracy = (double)eval->correct / labels;
    const double top5 = maker->journals[0]->classes > 5 ? (double)eval->in_top5 / labels : NAN;
    return json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:I}", //
                     "step", (json_int_t)eval->step,                       //
                     "epoch", (json_int_t)eval->epoch,                     //
                     "trained_samples", (json_int_t)eval->trained_samples, //
                     "trained_s",
                     dpb_result_real(maker, (double)eval->trained_ns / 1e9, "eval[].trained_s"),
                     "accuracy", dpb_result_real(maker, accuracy, "eval[].accuracy"), //
                     "top5_accuracy", dpb_json_real(top5),                            //
                     "loss", dpb_result_real(maker, eval->loss, "eval[].loss"),       //
                     "correct", (json_int_t)eval->correct,                            //
                     "samples", (json_int_t)eval->samples,                            //
                     "labels", (json_int_t)eval->labels);
}

static json_t *eval_to_json(struct dpb_result_maker *maker)
{
    json_t *list = json_array();
    const struct dpb_journal *journal = maker->journals[0];
    for (uint64_t i = 0; i < n_evals_of(journal); i++)
        json_array_append_new(list, one_eval_to_json(maker, &journal->evals[i]));
    return list;
}

/* When the target was reached; null where there is none. */
static json_t *target_to_json(struct dpb_result_maker *maker)
{
    static const char *const criteria[] = {[DPB_LAST] = "last", [DPB_MEDIAN5] = "median5"};
    const struct dpb_settings *settings = &maker->experiment->settings;
    const struct dpb_journal *journal = maker->journals[0];
    const double accuracy = settings->eval.target, loss = settings->eval.target_loss;
    if (accuracy == 0 && loss == 0)
        return json_null();
    bool met = journal && journal->target_met > 0;
    json_t *json = json_pack("{s:o, s:o, s:s, s:b}",                                   //
                             "accuracy", dpb_json_real(accuracy > 0 ? accuracy : NAN), //
                             "loss", dpb_json_real(loss > 0 ? loss : NAN),             //
                             "criterion", criteria[settings->eval.criterion], "met", met);
    if (met)
        json_object_set_new(json, "at",
                            one_eval_to_json(maker, &journal->evals[journal->target_met - 1]));
    return json;
}

/* The age below which a share of the n gradients is, by the nearest rank. */
static uint64_t age_quantile(const uint64_t *counts, uint64_t n, double share)
{
    const uint64_t wanted = (uint64_t)ceil(share * (double)n);
    uint64_t seen = 0;
    for (uint64_t age = 0; age < DPB_JOURNAL_AGES; age++)
        if ((seen += counts[age]) >= wanted)
            return age;
    return DPB_JOURNAL_AGES;
}

/* How old gradients were when servers applied them, over all workers; null: none was reported. */
static json_t *ages_to_json(const struct dpb_result_maker *maker)
{
    static uint64_t counts[DPB_JOURNAL_AGES];
    json_t *histogram = json_array(), *of_workers = json_array(), *dropped = json_array();
    uint64_t n = 0, most = 0, n_dropped = 0;
    double sum = 0;
    memset(counts, 0, sizeof counts);
    for (uint32_t w = 0; w < maker->n_workers; w++) {
        const struct dpb_journal *journal = maker->journals[w];
        uint64_t own = 0;
        for (uint64_t age = 0; journal && age < DPB_JOURNAL_AGES; age++) {
            counts[age] += journal->ages[age];
            own += journal->ages[age];
        }
        json_array_append_new(of_workers, json_integer((json_int_t)own));
        json_array_append_new(dropped, json_integer(journal ? (json_int_t)journal->dropped : 0));
        n_dropped += journal ? journal->dropped : 0;
        n += own;
        sum += journal ? (double)journal->sum_of_ages : 0;
        most = journal && journal->most_age > most ? journal->most_age : most;
    }
    for (uint64_t age = 0; age <= most && age < DPB_JOURNAL_AGES; age++)
        json_array_append_new(histogram, json_integer((json_int_t)counts[age]));
    const double counted = n > 0 ? (double)n / (double)(n + n_dropped) : 0.0;
    json_t *json =
        json_pack("{s:f, s:I, s:I, s:I, s:o, s:o, s:o, s:f, s:o}", "mean",
                  n > 0 ? sum / (double)n : 0.0, "p50", (json_int_t)age_quantile(counts, n, 0.5),
                  "p99", (json_int_t)age_quantile(counts, n, 0.99), "max", (json_int_t)most,
                  "histogram", histogram, "contributions", of_workers, "dropped", dropped,
                  "dropped_share", counted > 0 ? 1.0 - counted : 0.0, "counted_samples_per_s",
                  dpb_json_real(counted * maker->summary.rate.mean));
    if (n > 0)
        return json;
    json_decref(json);
    return json_null();
}

/* The codec's figures, a mean over the timed steps of all workers; null: no codec, or nothing was
 * timed. */
static json_t *codec_to_json(const struct dpb_result_maker *maker)
{
    const struct dpb_codec *codec = dpb_experiment_codec(maker->experiment);
    struct dpb_coding sum = {0};
    double n = 0;
    for (uint32_t w = 0; codec && w < maker->n_workers; w++) {
        if (!maker->journals[w])
            continue;
        dpb_coding_add(&sum, &maker->journals[w]->coding);
        n += (double)maker->journals[w]->coded_steps;
    }
    if (sum.elements == 0 || maker->summary.n_steps == 0)
        return json_null();
    const double decode_ns =
        maker->experiment->n_servers > 0 ? NAN : (double)sum.decode_ns / n; /* have no journal */
    return json_pack(
        "{s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "name", codec->name, "start_step",
        (json_int_t)codec->options->start_step, "message_bytes",
        dpb_json_real((double)sum.message_bytes / n), "ratio",
        dpb_json_real((double)sum.message_bytes / ((double)sum.elements * sizeof(float))),
        "encode_ns", dpb_json_real((double)sum.encode_ns / n), "decode_ns",
        dpb_json_real(decode_ns), "residual_share",
        dpb_json_real(sqrt(sum.residual / sum.gradients)));
}

static json_t *strategy_to_json(const struct dpb_result_maker *maker)
{
    const struct dpb_journal *journal = maker->journals[0];
    json_t *json = dpb_result_strategy(maker->experiment, journal ? journal->consistency : "");
    json_object_set_new(json, "age", ages_to_json(maker));
    return json;
}

static json_t *verification_to_json(const struct dpb_summary *summary)
{
    static const char *const names[] = {
        [DPB_VERDICT_SKIPPED] = "skipped",
        [DPB_VERDICT_PASS] = "pass",
        [DPB_VERDICT_FAIL] = "fail",
        [DPB_VERDICT_NOT_APPLICABLE] = "not_applicable",
    };
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s?, s:s}", "pattern", names[summary->pattern],
                     "exchange", names[summary->exchange], "replicas", names[summary->replicas],
                     "after", names[summary->after], "steps", names[summary->steps], "steps_reason",
                     summary->steps_reason, "device",
                     names[DPB_VERDICT_NOT_APPLICABLE]); /* cli/conform.c has another */
}

static json_t *model_to_json(const struct dpb_result_maker *maker)
{
    const struct dpb_journal *journal = maker->journals[0];
    bool known = journal && journal->parameters > 0;
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o}", "name", maker->experiment->plugins[DPB_PLUGIN_MODEL]->name,
        "parameters", known ? json_integer((json_int_t)journal->parameters) : json_null(),
        "macs_per_sample", known ? json_integer((json_int_t)journal->macs_per_sample) : json_null(),
        "tokens_per_sample",
        known && journal->tokens > 0 ? json_integer((json_int_t)journal->tokens) : json_null(),
        "classes",
        known && journal->classes > 0 ? json_integer((json_int_t)journal->classes) : json_null());
}

json_t *dpb_result_strategy(const struct dpb_experiment *experiment, const char *consistency)
{
    const struct dpb_plugin *comm = experiment->plugins[DPB_PLUGIN_COMM];
    return json_pack("{s:s, s:s}", "name", comm->name, "consistency", consistency);
}

/* Null where the timed part allows no conclusion. */
static json_t *why_to_json(const struct dpb_result_maker *maker)
{
    const struct dpb_experiment *experiment = maker->experiment;
    const struct dpb_summary *summary = &maker->summary;
    const struct dpb_why_args args = {
        .journals = maker->journals,
        .n_workers = maker->n_workers,
        .first = summary->warmup_steps,
        .n_steps = summary->n_steps,
        .samples = (double)experiment->batch * experiment->accumulate,
        .apart = maker->apart,
    };
    json_t *why =
        summary->too_short || maker->n_left < maker->n_workers ? NULL : dpb_why_to_json(&args);
    return why ? why : json_null();
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* When the job began by the clock on the wall: a label, no part of any measurement. */
static json_t *started_to_json(const struct dpb_result_maker *maker)
{
    const struct dpb_journal *journal = maker->journals[0];
    time_t when = time(NULL);
    if (dpb_journal_records(journal) > 0)
        when -= (time_t)((dpb_now_ns() - dpb_journal_began_ns(journal, 0) + journal->start_ns) /
                         INT64_C(1000000000));
    return dpb_json_time(when);
}

json_t *dpb_result_world(const struct dpb_experiment *experiment, uint32_t n_left,
                         bool oversubscribed)
{
    const char *network = getenv(DPB_HOSTS_NETWORK_VARIABLE);
    json_t *world = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:s, s:b}", "workers", (json_int_t)experiment->n_workers, "left",
        (json_int_t)n_left, "servers", (json_int_t)experiment->n_servers, "learners",
        (json_int_t)experiment->settings.run.learners, "machines",
        (json_int_t)experiment->n_machines, "launcher", "local", "oversubscribed", oversubscribed);
    json_t *hosts = network ? json_loads(network, 0, NULL) : NULL;
    if (hosts)
        json_object_set_new(world, "hosts", hosts);
    return world;
}

const char *dpb_result_status(dpb_status status)
{
    return status == DPB_OK ? "ok" : status == DPB_INTERRUPTED ? "interrupted" : "failed";
}

static bool exchanges(const struct dpb_result_maker *maker)
{
    const struct dpb_experiment *experiment = maker->experiment;
    return maker->n_workers > 1 && experiment->settings.run.mode == DPB_MODE_TRAIN &&
           !(experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE);
}

static uint64_t most_unrecorded(const struct dpb_result_maker *maker)
{
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < maker->n_workers; rank++)
        if (maker->journals[rank] && maker->journals[rank]->unrecorded > most)
            most = maker->journals[rank]->unrecorded;
    return most;
}

/* No exact exchange moves less than an all-reduce. One step of slack: bytes of a step may be
 * reported in the next. */
static void warn_of_bytes(const struct dpb_result_maker *maker, json_t *warnings)
{
    const struct dpb_summary *summary = &maker->summary;
    const struct dpb_journal *journal = maker->journals[0];
    const bool exact = exchanges(maker) && journal && maker->n_left == maker->n_workers &&
                       !dpb_experiment_codec(maker->experiment) &&
                       (strcmp(journal->consistency, "synchronous") == 0 ||
                        strncmp(journal->consistency, "late", strlen("late")) == 0);
    if (!exact || !(summary->bytes_per_step > 0))
        return;
    const double n_steps = (double)summary->n_steps;
    const double n_exchanges = n_steps - 1 - (double)journal->skipped_steps;
    const double least = 2.0 * (maker->n_workers - 1) * (double)journal->parameters *
                         (double)dpb_dtype_size(maker->experiment->gradient_type);
    if (summary->bytes_per_step * n_steps < least * n_exchanges)
        dpb_warnings_add(warnings, "few_bytes",
                         "comm '%s' reports %.6g bytes a step; the exact mean of %u workers' "
                         "gradients takes at least %.6g: its bytes are not all counted",
                         maker->experiment->settings.comm.name, summary->bytes_per_step,
                         maker->n_workers, least);
}

/* A GPU's driver has threads of its own, as a library has. */
static void warn_of_threads(const struct dpb_result_maker *maker, json_t *warnings)
{
    const uint64_t unknown = DPB_COMM_THREADS | DPB_COMM_LAUNCHER;
    const struct dpb_device_ops *device = maker->experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    if (device->queues || device->emulation ||
        (dpb_experiment_promises(maker->experiment) & unknown))
        return;
    for (uint32_t rank = 0; rank < maker->n_workers; rank++) {
        const struct dpb_journal *journal = maker->journals[rank];
        if (!journal || journal->others_wall_ns <= 0)
            continue;
        const double cores = (double)journal->others_cpu_ns / (double)journal->others_wall_ns;
        const bool shares = journal->place_threads > journal->threads; /* but in evaluations */
        const double helpers = (shares ? journal->place_threads : journal->threads) - 1.0;
        if (cores > helpers + 0.1) {
            dpb_warnings_add(warnings, "undeclared_threads",
                             "threads of rank %u beside core's kept %.2f cores busy, and "
                             "device.threads allows %.0f beside the loop's: a plugin runs threads "
                             "of its own (a strategy declares them by DPB_COMM_THREADS)",
                             rank, cores, helpers);
            return;
        }
    }
}

/* Warnings that only the finished numbers justify. */
static void warn_of_numbers(struct dpb_result_maker *maker, json_t *warnings)
{
    const struct dpb_summary *summary = &maker->summary;
    const struct dpb_run_settings *run = &maker->experiment->settings.run;
    double drift = dpb_drift_of(summary->step_ns, summary->n_steps);
    if (summary->no_common_window)
        dpb_warnings_add(warnings, "no_common_window",
                         "the workers have no timed steps in common: give the run more steps");
    if (summary->gated && summary->n_steps > 0 && fabs(drift) > run->steady_drift)
        dpb_warnings_add(warnings, "drift",
                         "the timed steps drift by %.1f %% from first to last, more than "
                         "run.steady_drift = %.2g %%",
                         100 * drift, 100 * run->steady_drift);
    if (summary->gated && summary->n_steps > 0 && !summary->steady)
        dpb_warnings_add(
            warnings, "not_steady",
            "step times were not steady within run.steady_limit_s = %g s and were timed "
            "all the same",
            (double)run->steady_limit_ns / 1e9);
    if (summary->too_short && summary->n_steps > 0)
        dpb_warnings_add(warnings, "too_short",
                         "%llu timed steps in %.3g s allow no conclusion; time at least %d steps "
                         "and %.3g s by run.steps or run.seconds",
                         (unsigned long long)summary->n_steps, (double)summary->elapsed_ns / 1e9,
                         DPB_LEAST_STEPS, (double)DPB_LEAST_NS / 1e9);
    struct dpb_contract contract;
    if (summary->n_steps > 0 && exchanges(maker) && summary->bytes_per_step > 0 &&
        dpb_contract_ask(maker->experiment, &contract) == DPB_OK &&
        contract.consistency == DPB_PERIODIC && summary->n_steps < contract.parameter)
        dpb_warnings_add(warnings, "part_of_period",
                         "%llu timed steps hold a meeting, which takes place in one of %u, so the "
                         "rate has too many of them; time whole periods",
                         (unsigned long long)summary->n_steps, contract.parameter);
    if (summary->n_steps > 0 && summary->bytes_per_step == 0 && exchanges(maker))
        dpb_warnings_add(warnings, "nothing_exchanged",
                         "no byte went between workers in the timed steps, so the rate is that of "
                         "workers alone; time more steps than from one meeting or push to the "
                         "next");
    warn_of_bytes(maker, warnings);
    warn_of_threads(maker, warnings);
    const uint64_t unrecorded = most_unrecorded(maker);
    if (unrecorded > 0)
        dpb_warnings_add(warnings, "steps_not_recorded",
                         "the result has no room for the last %llu steps: its times and losses "
                         "end before them; run.steps makes room for the steps it gives",
                         (unsigned long long)unrecorded);
    dpb_load_warn(maker->load.known ? &maker->load : NULL, warnings);
    for (uint32_t rank = 0; rank < maker->n_ranks; rank++)
        if (maker->journals[rank])
            dpb_gpu_warn(&maker->journals[rank]->gpu, rank, warnings);
    const struct dpb_settings *settings = &maker->experiment->settings;
    if (summary->n_steps == 0 && !summary->no_common_window &&
        settings->run.mode != DPB_MODE_EVALUATE)
        dpb_warnings_add(warnings, "nothing_timed", "the run ended before its first timed step");
    const double loss = settings->eval.target_loss;
    if (settings->eval.target + loss > 0 && maker->journals[0] &&
        maker->journals[0]->target_met == 0)
        dpb_warnings_add(
            warnings, "target_not_met",
            maker->journals[0]->n_evals > 0
                ? "the run ended before it reached eval.%s = %.6g"
                : "nothing was evaluated: the run ended before its first evaluation, so whether it "
                  "reached eval.%s = %.6g is not known",
            loss > 0 ? "target_loss" : "target", loss > 0 ? loss : settings->eval.target);
    if (maker->n_not_finite > 0)
        dpb_warnings_add(warnings, "not_finite",
                         "%llu numbers are not finite and stand as null; the first is %s",
                         (unsigned long long)maker->n_not_finite, maker->first_not_finite);
}

/* Steps that a run whose length was not known did not come to. */
static void warn_of_unreached(const struct dpb_result_maker *maker, json_t *warnings)
{
    const struct dpb_settings *settings = &maker->experiment->settings;
    const struct dpb_save_points *points = &maker->experiment->save_points;
    const struct dpb_journal *journal = maker->journals[0];
    if (!journal || settings->run.mode != DPB_MODE_TRAIN || journal->target_met > 0 ||
        dpb_ends_at(settings) > 0)
        return;
    const uint64_t last = journal->first_step + journal->n_records + journal->unrecorded;
    const struct {
        const char *name;
        double step;
    } rows[] = {
        {"checkpoint.at", points->n > 0 ? (double)points->at[points->n - 1] : 0},
        {"checkpoint.every", (double)points->every},
        {"eval.every", (double)settings->eval.every},
        {"eval.every_epochs", settings->eval.every_epochs * (double)journal->steps_per_epoch}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].step > (double)last)
            dpb_warnings_add(warnings, "unused_setting",
                             "%s: the run ended at step %llu, before step %.10g", rows[i].name,
                             (unsigned long long)last, rows[i].step);
}

static void find_journals(struct dpb_result_maker *maker)
{
    maker->n_workers = maker->experiment->n_workers;
    maker->n_ranks = maker->n_workers + maker->experiment->n_servers;
    uint32_t on_board = maker->board ? dpb_board_ranks(maker->board) : 0;
    maker->n_left = maker->n_workers;
    for (uint32_t rank = 0; rank < maker->n_ranks && rank < on_board; rank++) {
        maker->journals[rank] = dpb_board_journal(maker->board, rank, NULL);
        maker->lost[rank] = dpb_board_lost(maker->board, rank);
        maker->n_left -= maker->lost[rank];
    }
}

static void find_load(struct dpb_result_maker *maker)
{
    maker->load = maker->journals[0] ? maker->journals[0]->load : (struct dpb_load){0};
    maker->load.suspended_s = 0;
    for (uint32_t rank = 0; rank < maker->n_workers; rank++) {
        const struct dpb_journal *journal = maker->journals[rank];
        const uint64_t n = journal ? dpb_journal_records(journal) : 0;
        int64_t missed_ns = 0;
        for (uint64_t k = n > 0 ? journal->timed_from : 0; k < n; k++)
            missed_ns += journal->records[k].missed_ns;
        maker->load.suspended_s = fmax(maker->load.suspended_s, (double)missed_ns * 1e-9);
    }
}

static json_t *make_document(struct dpb_result_maker *maker, dpb_status status, const char *error)
{
    const struct dpb_experiment *experiment = maker->experiment;
    json_t *warnings = dpb_warnings_collect(maker->board);
    json_t *world = dpb_result_world(experiment, maker->n_left, maker->summary.oversubscribed);
    json_int_t steps_per_epoch =
        maker->journals[0] ? (json_int_t)maker->journals[0]->steps_per_epoch : 0;
    json_t *batch =
        json_pack("{s:I, s:I, s:I, s:I}", "per_worker", (json_int_t)experiment->batch, //
                  "global", (json_int_t)experiment->global_batch,                      //
                  "accumulate", (json_int_t)experiment->accumulate,                    //
                  "per_epoch", steps_per_epoch * (json_int_t)experiment->global_batch);
    if (status == DPB_OK || status == DPB_REGRESSION || status == DPB_NOT_STEADY)
        warn_of_unreached(maker, warnings);
    maker->counting = maker->summary.n_steps > 0;
    json_t *timing = timing_to_json(maker);
    json_t *comm =
        json_pack("{s:o, s:o}", "bytes_per_step",
                  dpb_result_real(maker, maker->summary.bytes_per_step, "comm.bytes_per_step"),
                  "codec", codec_to_json(maker));
    json_t *document = json_pack(
        "{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "schema", "dpbench.result/1",                                                            //
        "status", dpb_result_status(status),                                                     //
        "name", experiment->settings.run.name,                                                   //
        "started", started_to_json(maker),                                                       //
        "error", error ? dpb_json_string(error) : json_null(),                                   //
        "world", world,                                                                          //
        "model", model_to_json(maker),                                                           //
        "strategy", strategy_to_json(maker),                                                     //
        "batch", batch,                                                                          //
        "timing", timing,                                                                        //
        "why", why_to_json(maker),                                                               //
        "comm", comm,                                                                            //
        "loss", steps_to_json(maker, maker->summary.loss, "loss"),                               //
        "training_accuracy", steps_to_json(maker, maker->summary.accuracy, "training_accuracy"), //
        "eval", eval_to_json(maker),                                                             //
        "target", target_to_json(maker),                                                         //
        "verification", verification_to_json(&maker->summary),                                   //
        "load", dpb_load_to_json(maker->load.known ? &maker->load : NULL),                       //
        "core_to_core", dpb_core_to_core_to_json(maker->board),                                  //
        "throttled", dpb_result_throttled(maker),                                                //
        "ranks", dpb_result_ranks(maker),                                                        //
        "config", dpb_experiment_effective(experiment),                                          //
        "versions", dpb_result_versions(experiment),                                             //
        "machine", dpb_machine_describe());
    warn_of_numbers(maker, warnings); /* last: it counts numbers that are not finite */
    if (!document) {
        json_decref(warnings);
        return NULL;
    }
    json_object_set_new(document, "gpus", dpb_gpus_to_json(maker->board));
    dpb_gpus_warn(json_object_get(document, "gpus"), warnings);
    json_object_set_new(document, "emulated",
                        dpb_emulation_to_json(experiment, maker->journals, maker->n_ranks));
    dpb_emulation_warn(json_object_get(document, "emulated"), warnings);
    json_object_set_new(document, "wall", dpb_wall_to_json(maker->board, maker->journals[0]));
    json_object_set_new(document, "warnings", warnings);
    json_object_set_new(document, "monitor", dpb_monitor_to_json(experiment, maker->board));
    if (experiment->settings.run.precision == DPB_PRECISION_FP16 && maker->journals[0])
        json_object_set_new(document, "loss_scale",
                            json_pack("{s:f, s:I}", "final", maker->journals[0]->loss_scale,
                                      "skipped_steps",
                                      (json_int_t)maker->journals[0]->skipped_steps));
    if (experiment->settings.run.profile && maker->journals[0])
        json_object_set_new(document, "profile",
                            dpb_profile_to_json(maker->journals[0], experiment->batch));
    return document;
}

json_t *dpb_result_make(const struct dpb_experiment *experiment, struct dpb_board *board,
                        dpb_status status, const char *error)
{
    struct dpb_result_maker maker = {.experiment = experiment, .board = board};
    find_journals(&maker);
    find_load(&maker);
    maker.apart = (experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE) != 0 ||
                  (maker.journals[0] && maker.journals[0]->apart);
    const struct dpb_summary_args args = {
        .journals = maker.journals,
        .n_workers = maker.n_workers,
        .n_servers = experiment->n_servers,
        .global_batch = experiment->global_batch,
        .local = maker.apart,
        .lost = maker.lost,
    };
    maker.apart = maker.apart && maker.n_workers > 1;
    if (dpb_summary_make(&args, &maker.summary) != DPB_OK)
        return NULL;
    json_t *document = make_document(&maker, status, error);
    if (document)
        dpb_series_of_run(document);
    dpb_summary_release(&maker.summary);
    return document;
}

json_t *dpb_result_refused(const struct dpb_config *config, dpb_status status, const char *error)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:o, s:o, s:o}", "schema", "dpbench.result/1", "status",
                     dpb_result_status(status), "started", dpb_json_time(time(NULL)), "failure",
                     dpb_status_name(status), "error", dpb_json_string(error ? error : ""),
                     "warnings", dpb_warnings_collect(NULL), "config", dpb_config_to_json(config));
}
