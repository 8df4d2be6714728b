/* predict_print.c - a prediction as a table for people; read from the document alone. */
#include <math.h>

#include "base/json.h"
#include "study/predict/predict_report.h"

static void print_bandwidth(double bytes_per_s, FILE *out)
{
    if (isnan(bytes_per_s))
        fprintf(out, " %12s", "none");
    else if (bytes_per_s == 0)
        fprintf(out, " %12s", "any");
    else
        fprintf(out, " %12.3g", bytes_per_s * 8 / 1e9);
}

static void print_share(const json_t *row, const char *path, FILE *out)
{
    const double share = dpb_json_number(row, path);
    if (isnan(share))
        fprintf(out, " %8s", "-");
    else
        fprintf(out, " %6.0f %%", 100 * share);
}

static void print_row(const json_t *row, FILE *out)
{
    const double rate = dpb_json_number(row, "samples_per_s");
    const double low = dpb_json_number(row, "low_efficiency"),
                 high = dpb_json_number(row, "high_efficiency");
    char between[40] = "-";
    if (high > low)
        snprintf(between, sizeof between, "%.1f..%.1f %%", 100 * low, 100 * high);
    fprintf(out, "%7.0f %-12s%c %9.4g %11.*f %5.0f %% %13s", dpb_json_number(row, "workers"),
            dpb_json_text(row, "strategy", "?"), dpb_json_true(row, "fastest") ? '*' : ' ',
            dpb_json_number(row, "step_ns") / 1e6, rate < 1000 ? 1 : 0, rate,
            100 * dpb_json_number(row, "efficiency"), between);
    print_share(row, "controls.simple.efficiency", out);
    fprintf(out, " %6.1f %%", 100 * dpb_json_number(row, "exposed_share"));
    print_bandwidth(dpb_json_number(row, "least_bytes_per_s"), out);
    dpb_each_item(json_object_get(row, "beyond"), i, word)
        fprintf(out, "%s%s", i == 0 ? "  " : ",", json_string_value(word));
    fputc('\n', out);
}

static void print_head(const json_t *document, const json_t *row, FILE *out)
{
    const json_t *link =
        json_array_get(json_object_get(document, "links"), dpb_json_index(row, "link"));
    const double bytes_per_s = dpb_json_number(link, "bytes_per_s");
    const char *fitted = dpb_json_text(link, "strategy", NULL);
    fprintf(out, "\nlink %s", dpb_json_text(link, "name", "?"));
    if (dpb_json_is(link, "source", "measured") && !isnan(bytes_per_s)) {
        if (fitted)
            fprintf(out, " (by %s, %.0f workers:", fitted, dpb_json_number(link, "workers"));
        else
            fputs(" (measured:", out);
        fprintf(out, " %.3g Gbit/s, %.3g us; %s within %.1f %%)", bytes_per_s * 8 / 1e9,
                dpb_json_number(link, "latency_s") * 1e6, fitted ? "fits" : "windows",
                100 * dpb_json_number(link, "error"));
    }
    if (dpb_json_is(link, "source", "data sheet"))
        fputs(" by its data sheet, so an upper bound", out);
    fprintf(out, ", buckets of %.0f bytes, batch %.0f\n", dpb_json_number(row, "bucket_bytes"),
            dpb_json_number(row, "batch"));
    fprintf(out,
            "workers strategy        step ms   samples/s  effic.       between   simple exposed "
            "least Gbit/s  beyond\n");
}

/* Whether rows stand under the same head. */
static bool same_table(const json_t *a, const json_t *b)
{
    static const char *const names[] = {"link", "batch", "bucket_bytes"};
    for (size_t i = 0; i < 3; i++)
        if (dpb_json_number(a, names[i]) != dpb_json_number(b, names[i]))
            return false;
    return true;
}

void dpb_predict_report_print(const json_t *document, FILE *out)
{
    const json_t *rows = json_object_get(document, "rows"), *before = NULL;
    fprintf(out,
            "%s, %s: batch %.0f, one worker %.1f samples/s, %.4g ms a step of which %.3g update; "
            "%.4g MB of gradients",
            dpb_json_text(document, "model", "?"), dpb_json_text(document, "kind", "?"),
            dpb_json_number(document, "worker.batch"),
            dpb_json_number(document, "worker.samples_per_s"),
            dpb_json_number(document, "worker.step_ns") / 1e6,
            dpb_json_number(document, "worker.update_ns") / 1e6,
            dpb_json_number(document, "worker.gradient_bytes") / 1e6);
    if (dpb_json_number(document, "worker.steps") > 0)
        fprintf(out, "; %.0f steps", dpb_json_number(document, "worker.steps"));
    fprintf(out, "\n");
    if (dpb_json_text(document, "delay", NULL))
        fprintf(out, "delay of each worker's step: %s, a mean of %.4g ms\n",
                dpb_json_text(document, "delay", "?"),
                dpb_json_number(document, "worker.delay_ns") / 1e6);
    if (dpb_json_text(document, "codec", NULL))
        fprintf(out, "codec %s, encoded and decoded at the speed of a core\n",
                dpb_json_text(document, "codec", "?"));
    if (dpb_json_text(document, "source", NULL))
        fprintf(out, "source: %s\n", dpb_json_text(document, "source", "?"));
    if (dpb_json_is(document, "worker.ready", "even"))
        fprintf(out, "assumed: gradients become final evenly over backward, since the result's "
                     "device did not tell\n");
    if (dpb_json_is(document, "worker.update", "none"))
        fprintf(out, "assumed: updates take no time, since the profile has no "
                     "update_elements_per_s: give --update RATE\n");
    dpb_each_item(rows, i, row) {
        if (!before || !same_table(before, row))
            print_head(document, row, out);
        print_row(row, out);
        before = row;
    }
    if (dpb_json_text(document, "run.verdict", NULL))
        fprintf(out, "\npredicted %.4g ms, measured %.4g ms: %s\n",
                dpb_json_number(document, "run.predicted_ns") / 1e6,
                dpb_json_number(document, "run.measured_ns") / 1e6,
                dpb_json_text(document, "run.verdict", "?"));
    fputs(
        "\n* fastest, within 1 %, of those that exchange\n"
        "between: by a data sheet, from a fifth of its rate and steps that spread by 4 % to its "
        "rate and equal steps; by measurements, 95 %\n"
        "simple: a control of times and bytes alone, forward + max(backward, link) + last bucket; "
        "the other control says 100 % in each row\n"
        "least Gbit/s: the slowest link at which at most 5 % of the step is exposed\n"
        "beyond: inputs that were not measured: batch, workers, bucket, strategy; steps: fewer "
        "steps were timed than there are workers; model: a published algorithm, which no run of "
        "ours has confirmed\n",
        out);
}
