/* result_print.c - one result as a table for people; read from the document alone. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "record/emulation_report.h"
#include "record/facts.h"
#include "record/gpus_report.h"
#include "record/monitor_report.h"
#include "record/profile.h"
#include "record/result.h"
#include "record/summary.h"
#include "record/wall.h"
#include "record/why.h"

static const char *plural(double n)
{
    return n == 1 ? "" : "s";
}

/* A plugin of DPBENCH_PLUGIN_PATH may have the name of one of dpbench's own. */
static void print_foreign(const json_t *document, FILE *out)
{
    dpb_each_member(dpb_json_at(document, "versions.plugins"), kind, plugin)
        if (json_is_false(dpb_json_at(plugin, "file.own")))
            fprintf(out, "  %-13s %s '%s' from %s, not dpbench's own%s%s\n", "plugin", kind,
                    dpb_json_text(plugin, "name", "?"), dpb_json_text(plugin, "file.path", "?"),
                    strcmp(kind, "device") == 0 ? "; conform: " : "",
                    strcmp(kind, "device") == 0
                        ? dpb_json_text(document, "verification.device", "?")
                        : "");
}

static void print_head(const json_t *document, FILE *out)
{
    double workers = dpb_json_number(document, "world.workers"),
           servers = dpb_json_number(document, "world.servers"),
           learners = dpb_json_number(document, "world.learners");
    double threads = json_number_value(
        dpb_json_at(json_array_get(json_object_get(document, "ranks"), 0), "threads"));
    fprintf(out, "%s: %s on %s, %s\n", dpb_json_text(document, "name", "run"),
            dpb_json_text(document, "model.name", "?"),
            dpb_json_text(document, "config.data.name.value", "?"),
            dpb_json_text(document, "config.run.precision.value", "?"));
    const double parameters = dpb_json_number(document, "model.parameters");
    if (parameters > 0) /* a rank that fails early knows none */
        fprintf(out, "  %-13s %.0f parameters, %.0f multiply-accumulates a sample\n", "model",
                parameters, dpb_json_number(document, "model.macs_per_sample"));
    const char *consistency = dpb_json_text(document, "strategy.consistency", "?");
    fprintf(out, "  %-13s %s%s%s\n", "strategy", dpb_json_text(document, "strategy.name", "?"),
            consistency[0] ? ", consistency: " : "", consistency);
    print_foreign(document, out);
    if (json_is_object(dpb_json_at(document, "strategy.age")))
        fprintf(out, "  %-13s %.2f updates on average, median %.0f, p99 %.0f, at most %.0f\n",
                "gradients' age", dpb_json_number(document, "strategy.age.mean"),
                dpb_json_number(document, "strategy.age.p50"),
                dpb_json_number(document, "strategy.age.p99"),
                dpb_json_number(document, "strategy.age.max"));
    if (dpb_json_number(document, "strategy.age.dropped_share") > 0)
        fprintf(out, "  %-13s %.1f %% of the gradients; the others are %.1f samples/s\n", "dropped",
                100.0 * dpb_json_number(document, "strategy.age.dropped_share"),
                dpb_json_number(document, "strategy.age.counted_samples_per_s"));
    fprintf(out, "  %-13s %.0f worker%s", "processes", workers, plural(workers));
    if (threads > 0) /* a rank that fails early has none yet */
        fprintf(out, " of %.0f thread%s", threads, plural(threads));
    fprintf(out, " on %s", dpb_json_text(document, "config.device.name.value", "?"));
    if (learners > 1)
        fprintf(out, ", %.0f place%s x %.0f learners", workers / learners,
                plural(workers / learners), learners);
    if (servers > 0)
        fprintf(out, ", %.0f server%s", servers, plural(servers));
    if (dpb_json_number(document, "world.left") < workers)
        fprintf(out, "; %.0f worker%s LEFT: the others died",
                dpb_json_number(document, "world.left"),
                plural(dpb_json_number(document, "world.left")));
    if (dpb_json_true(document, "world.oversubscribed"))
        fputs("; OVERSUBSCRIBED: too few cores for its processes or data threads", out);
    fprintf(out, "\n  %-13s %.0f a worker, %.0f in all", "batch",
            dpb_json_number(document, "batch.per_worker"),
            dpb_json_number(document, "batch.global"));
    if (dpb_json_number(document, "batch.accumulate") > 1)
        fprintf(out, ", %.0f micro-batches a step", dpb_json_number(document, "batch.accumulate"));
    fputc('\n', out);
    dpb_emulation_print(json_object_get(document, "emulated"), out);
    dpb_gpus_print(json_object_get(document, "gpus"), out);
    dpb_facts_print(json_object_get(document, "ranks"), "  ", out);
}

static double mean_step_ns(const json_t *document)
{
    return dpb_json_number(document, "timing.elapsed_ns") /
           dpb_json_number(document, "timing.steps");
}

/* The rate over all timed steps, and those of the steps one by one. */
static void print_rates(const json_t *document, FILE *out)
{
    double mean = dpb_json_number(document, "timing.samples_per_s.mean");
    double first_to_last = dpb_json_number(document, "timing.samples_per_s.first_to_last");
    const json_t *interval = dpb_json_at(document, "timing.samples_per_s.ci95");
    fprintf(out, "  %-13s %.1f over all timed steps (SamplesPerSec)%s\n", "samples/s", mean,
            dpb_json_true(document, "throttled") ? "; THROTTLED: a GPU's clocks were held down"
                                                 : "");
    const double tokens = dpb_json_number(document, "model.tokens_per_sample");
    if (isfinite(tokens))
        fprintf(out, "  %-13s %.0f\n", "tokens/s", mean * tokens);
    if (fabs(first_to_last - mean) > 0.01 * mean) /* workers that do not wait for each other */
        fprintf(out, "  %-13s %.1f from the first worker's begin to the last one's end\n", "",
                first_to_last);
    bool too_short = dpb_json_true(document, "timing.too_short");
    fprintf(out, "  %-13s step by step: median %.1f", "",
            dpb_json_number(document, "timing.samples_per_s.median"));
    if (!too_short && isfinite(dpb_json_item(interval, 0)))
        fprintf(out, " (95 %%: %.1f .. %.1f)", dpb_json_item(interval, 0),
                dpb_json_item(interval, 1));
    fprintf(out, ", p10 %.1f, p90 %.1f%s", dpb_json_number(document, "timing.samples_per_s.p10"),
            dpb_json_number(document, "timing.samples_per_s.p90"),
            too_short ? "; TOO SHORT for a conclusion" : "");
    fputc('\n', out);
}

static void print_timing(const json_t *document, FILE *out)
{
    bool gated = dpb_json_true(document, "timing.gated");
    bool steady = dpb_json_true(document, "timing.steady");
    fprintf(out, "  %-13s %.0f timed after %.0f of warm-up, %s\n", "steps",
            dpb_json_number(document, "timing.steps"),
            dpb_json_number(document, "timing.warmup_steps"),
            steady  ? "steady"
            : gated ? "NOT STEADY"
                    : "no steady-state gate");
    print_rates(document, out);
    if (json_is_object(json_object_get(document, "goodput")))
        fprintf(out, "  %-13s %.1f useful samples/s over all of %.3f s%s\n", "goodput",
                dpb_json_number(document, "goodput.samples_per_s"),
                dpb_json_number(document, "goodput.wall_s"),
                dpb_json_true(document, "goodput.restarted")
                    ? "; RESTARTED: the steps are the last start's"
                    : "");
}

static void print_codec(const json_t *document, FILE *out)
{
    if (!json_is_object(dpb_json_at(document, "comm.codec")))
        return;
    const double decode_ns = dpb_json_number(document, "comm.codec.decode_ns");
    fprintf(out, "  %-13s %s: %.3f MB a worker and step, %.4f of fp32; a step encodes for %.3f ms",
            "codec", dpb_json_text(document, "comm.codec.name", "?"),
            dpb_json_number(document, "comm.codec.message_bytes") / 1e6,
            dpb_json_number(document, "comm.codec.ratio"),
            dpb_json_number(document, "comm.codec.encode_ns") / 1e6);
    if (isfinite(decode_ns))
        fprintf(out, ", decodes for %.3f ms\n", decode_ns / 1e6);
    else
        fputs("; servers decode, untimed\n", out);
    if (dpb_json_number(document, "comm.codec.start_step") > 0)
        fprintf(out, "  %-13s after %.0f steps without a codec\n", "begins",
                dpb_json_number(document, "comm.codec.start_step"));
    if (json_is_number(dpb_json_at(document, "comm.codec.residual_share")))
        fprintf(out, "  %-13s %.3g times the norm of the gradients\n", "residual",
                dpb_json_number(document, "comm.codec.residual_share"));
}

static void print_breakdown(const json_t *document, FILE *out)
{
    /* As dpb_breakdown_names. */
    static const struct {
        const char *name, *meaning;
    } parts[DPB_BREAKDOWN] = {
        {"data_wait", "waiting for the batch"},
        {"forward", ""},
        {"delay", "run.delay"},
        {"backward", ""},
        {"optimizer", "the worker's own updates"},
        {"comm_exposed", "communication that computing waits for"},
        {"comm_hidden", "communication behind computing; not in the sum"},
        {"wait_peer", "of both: a late peer"},
        {"exposed_wait", "of comm_exposed: a late peer"},
    };
    const json_t *breakdown_ns = dpb_json_at(document, "timing.breakdown_ns");
    double step = mean_step_ns(document);
    double unit_ns = step < 1e6 ? 1e3 : 1e6;
    const char *unit = step < 1e6 ? "us" : "ms";
    fprintf(out, "  %-13s %10.3f %s\n", "step", step / unit_ns, unit);
    for (size_t i = 0; i < DPB_BREAKDOWN; i++) {
        double value = dpb_json_number(breakdown_ns, dpb_breakdown_names[i]);
        if (!(value > 0) && (strcmp(parts[i].name, "delay") == 0 || i == DPB_BREAKDOWN - 1))
            continue; /* as most runs have none */
        fprintf(out, "    %-12s %9.3f %s %5.1f %%%s%s\n", parts[i].name, value / unit_ns, unit,
                100 * value / step, parts[i].meaning[0] ? "  " : "", parts[i].meaning);
    }
    fprintf(out, "  %-13s %.3f MB a step, over all processes\n", "payload",
            dpb_json_number(document, "comm.bytes_per_step") / 1e6);
    print_codec(document, out);
}

/* The process that took most of the host's memory. */
static void print_memory(const json_t *document, FILE *out)
{
    const json_t *ranks = json_object_get(document, "ranks"), *most = NULL;
    dpb_each_item(ranks, i, rank)
        if (!most ||
            dpb_json_number(rank, "peak_memory_bytes") > dpb_json_number(most, "peak_memory_bytes"))
            most = rank;
    if (dpb_json_number(most, "peak_memory_bytes") > 0)
        fprintf(out, "  %-13s at most %.1f MB in a process (rank %.0f)\n", "memory",
                dpb_json_number(most, "peak_memory_bytes") / 1e6, dpb_json_number(most, "rank"));
}

static void print_verification(const json_t *document, FILE *out)
{
    static const char *const parts[] = {"pattern", "exchange", "replicas", "after", "steps"};
    const json_t *verification = json_object_get(document, "verification");
    const char *reason = dpb_json_text(verification, "steps_reason", NULL);
    fprintf(out, "  %-13s", "verification");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *verdict = dpb_json_text(verification, parts[i], "?");
        fprintf(out, "%s %s %s", i > 0 ? "," : "", parts[i],
                strcmp(verdict, "not_applicable") == 0 ? "n/a" : verdict);
    }
    fputc('\n', out);
    if (reason && !dpb_json_is(verification, "pattern", "not_applicable"))
        fprintf(out, "  %-13s %s\n", "not followed", reason);
}

void dpb_result_goal(const json_t *target, char *text, size_t capacity)
{
    const double loss = dpb_json_number(target, "loss");
    if (isfinite(loss))
        snprintf(text, capacity, "loss %.6g", loss);
    else
        snprintf(text, capacity, "%.2f %%", 100 * dpb_json_number(target, "accuracy"));
}

static void print_evaluation(const json_t *document, const json_t *last, FILE *out)
{
    const double top5 = dpb_json_number(last, "top5_accuracy");
    fprintf(out, "  %-13s %.2f %% of the test set", "accuracy",
            100 * dpb_json_number(last, "accuracy"));
    if (dpb_json_number(document, "config.eval.batches.value") > 0)
        fprintf(out, "'s first %.0f samples", dpb_json_number(last, "samples"));
    if (isfinite(top5))
        fprintf(out, ", %.2f %% in the top 5,", 100 * top5);
    if (isfinite(dpb_json_number(document, "model.tokens_per_sample")))
        fprintf(out, " perplexity %.4g,", exp(dpb_json_number(last, "loss")));
    fprintf(out, " after %.0f steps\n", dpb_json_number(last, "step"));
}

static void print_training(const json_t *document, FILE *out)
{
    const json_t *loss = json_object_get(document, "loss");
    const json_t *accuracy = json_object_get(document, "training_accuracy");
    const json_t *evals = json_object_get(document, "eval");
    size_t n = json_array_size(loss), n_evals = json_array_size(evals);
    print_verification(document, out);
    if (n > 0)
        fprintf(out, "  %-13s %.4f at the first step, %.4f at the last (%zu)\n", "loss",
                dpb_json_item(loss, 0), dpb_json_item(loss, n - 1), n);
    if (json_object_get(document, "loss_scale"))
        fprintf(out, "  %-13s %g at the end, %.0f steps skipped for an overflow\n", "loss scale",
                dpb_json_number(document, "loss_scale.final"),
                dpb_json_number(document, "loss_scale.skipped_steps"));
    if (n > 0 && json_array_size(accuracy) == n) { /* older results have none */
        const size_t first = n - (n + 9) / 10;
        double sum = 0;
        for (size_t k = first; k < n; k++)
            sum += dpb_json_item(accuracy, k);
        fprintf(out, "  %-13s accuracy %.2f %% in the last tenth of the steps\n", "training",
                100 * sum / (double)(n - first));
    }
    if (n_evals > 0)
        print_evaluation(document, json_array_get(evals, n_evals - 1), out);
    const json_t *met = dpb_json_at(document, "target.at");
    char goal[48];
    dpb_result_goal(json_object_get(document, "target"), goal, sizeof goal);
    if (json_is_object(met))
        fprintf(out, "  %-13s %s reached at step %.0f, after %.0f samples, %.1f s of training\n",
                "target", goal, dpb_json_number(met, "step"),
                dpb_json_number(met, "trained_samples"), dpb_json_number(met, "trained_s"));
}

static void print_warnings(const json_t *document, FILE *out)
{
    dpb_each_item(json_object_get(document, "warnings"), i, entry) {
        double count = dpb_json_number(entry, "count");
        fprintf(out, "  warning       %s: %s", dpb_json_text(entry, "code", "?"),
                dpb_json_text(entry, "text", "?"));
        if (count > 1)
            fprintf(out, " (%.0f times)", count);
        fputc('\n', out);
    }
}

static void print_run(const json_t *document, FILE *out)
{
    print_head(document, out);
    if (dpb_json_number(document, "timing.steps") > 0) {
        print_timing(document, out);
        print_breakdown(document, out);
        dpb_why_print(document, out);
    }
    dpb_wall_print(json_object_get(document, "wall"), out);
    print_memory(document, out);
    dpb_monitor_print(document, out);
    if (json_object_get(document, "profile"))
        dpb_profile_print(json_object_get(document, "profile"), out);
    print_training(document, out);
}

void dpb_result_print(const json_t *document, FILE *out)
{
    const char *status = dpb_json_text(document, "status", "?");
    if (json_object_get(document, "world"))
        print_run(document, out);
    else /* dpb_result_refused */
        fprintf(out, "%s: nothing was measured\n",
                dpb_json_text(document, "config.run.name.value", "run"));
    print_warnings(document, out);
    if (strcmp(status, "ok") != 0)
        fprintf(out, "  %-13s %s: %s\n", "status", status,
                dpb_json_text(document, "error", "no reason given"));
    double mean = dpb_json_number(document, "timing.samples_per_s.mean");
    if (strcmp(status, "failed") == 0) /* whoever takes the last line takes no rate for good */
        return;
    if (dpb_json_number(document, "timing.steps") == 1)
        fprintf(out, "SamplesPerSec: %.1f (of one step: its uncertainty is unknown)\n", mean);
    else if (dpb_json_number(document, "timing.steps") > 0)
        fprintf(out, "SamplesPerSec: %.1f +- %.1f (jitter %.1f)\n", mean,
                dpb_json_number(document, "timing.samples_per_s.uncertainty"),
                dpb_json_number(document, "timing.samples_per_s.jitter"));
}
