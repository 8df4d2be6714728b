/* series.c - see series.h. */
#include "record/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

const struct dpb_series_field dpb_series_fields[] = {
    {"samples_per_s", "run,data", DPB_SERIES_COUNTS, 1, "", "samples_per_second",
     "Samples a second of all workers together, or of a data source."},
    {"slowest_samples_per_s", "data", DPB_SERIES_COUNTS, 1, "slowest_", "samples_per_second",
     "Samples a second of a data source on the slowest worker of a job."},
    {"tokens_per_s", "run", DPB_SERIES_COUNTS, 1, "", "tokens_per_second",
     "Tokens a second of all workers together."},
    {"bytes_read_per_s", "data", DPB_SERIES_BYTES, 1, "read_", "bytes_per_second",
     "Bytes a second that a data source read."},
    {"bytes_decoded_per_s", "data", DPB_SERIES_BYTES, 1, "decoded_", "bytes_per_second",
     "Bytes a second that a data source decoded."},
    {"algorithm_gb_per_s", "comm", DPB_SERIES_BYTES, 1e9, "algorithm_", "bytes_per_second",
     "Algorithm bandwidth of an exchange, as tests of collectives define it."},
    {"bus_gb_per_s", "comm", DPB_SERIES_BYTES, 1e9, "bus_", "bytes_per_second",
     "Bus bandwidth of an exchange, as tests of collectives define it."},
    {"time_us", "comm", DPB_SERIES_TIME, 1e-6, "exchange_", "seconds", "Time of an exchange."},
    {"bytes_per_s", "links", DPB_SERIES_BYTES, 1, "link_", "bytes_per_second",
     "Bytes a second over a link."},
    {"latency_s", "links", DPB_SERIES_TIME, 1, "latency_", "seconds",
     "Latency of a link, one way."},
    {0}};

const struct dpb_series_field *dpb_series_field_find(const char *name)
{
    for (const struct dpb_series_field *field = dpb_series_fields; field->name; field++)
        if (strcmp(field->name, name) == 0)
            return field;
    return NULL;
}

/* ---- writing ------------------------------------------------------------------------------- */

json_t *dpb_series_add(json_t *document, json_t *key)
{
    if (!json_object_get(document, "series"))
        json_object_set_new(document, "series", json_array());
    json_t *row = json_pack("{s:o, s:{}}", "key", key, "values");
    json_array_append_new(json_object_get(document, "series"), row);
    return row;
}

void dpb_series_set(json_t *row, const char *field, const double *x, size_t n)
{
    json_t *values = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(values, dpb_json_real(x[i]));
    json_object_set_new(json_object_get(row, "values"), field, values);
}

size_t dpb_series_batches(const double *x, size_t n, dpb_series_batch *each, void *context)
{
    const size_t n_batches = n < DPB_SERIES_REPEATS ? n : DPB_SERIES_REPEATS;
    for (size_t batch = 0; batch < n_batches; batch++) {
        const size_t begin = batch * n / n_batches, end = (batch + 1) * n / n_batches;
        each(context, batch, x + begin, end - begin);
    }
    return n_batches;
}

static void add_mean(void *means_, size_t batch, const double *x, size_t n)
{
    double *means = means_, sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    means[batch] = sum / (double)n;
}

/* The rate of a batch is the run's, by how much faster than the run the batch stepped: so it is the
 * run's rate in the mean, also where workers do not wait for each other. */
void dpb_series_of_run(json_t *result)
{
    const double rate = dpb_json_number(result, "timing.samples_per_s.mean");
    const double tokens = dpb_json_number(result, "model.tokens_per_sample");
    double x[DPB_SERIES_REPEATS] = {0}, mean_ns = NAN;
    size_t n_steps;
    double *step_ns = dpb_json_numbers(dpb_json_at(result, "timing.step_ns"), "", &n_steps);
    json_t *row = dpb_series_add(result, json_object());
    const size_t n = dpb_series_batches(step_ns, n_steps, add_mean, x);
    if (n > 0)
        add_mean(&mean_ns, 0, step_ns, n_steps);
    for (size_t i = 0; i < n; i++)
        x[i] = rate * mean_ns / x[i];
    dpb_series_set(row, "samples_per_s", x, n);
    for (size_t i = 0; i < n; i++)
        x[i] *= tokens;
    if (tokens > 0)
        dpb_series_set(row, "tokens_per_s", x, n);
    free(step_ns);
}

/* ---- reading ------------------------------------------------------------------------------- */

double *dpb_series_values(const json_t *row, const char *field, size_t *n)
{
    return dpb_json_numbers(json_object_get(json_object_get(row, "values"), field), "", n);
}

void dpb_series_estimate(const double *x, size_t n, struct dpb_estimate *estimate)
{
    double *logarithms = malloc((n + 1) * sizeof *logarithms);
    bool complete = logarithms != NULL;
    for (size_t i = 0; i < n && complete; i++) {
        complete = isfinite(x[i]) && x[i] > 0;
        logarithms[i] = complete ? log(x[i]) : NAN;
    }
    *estimate = (struct dpb_estimate){NAN, NAN, NAN, n, false};
    if (complete)
        dpb_estimate_of(logarithms, n, estimate);
    free(logarithms);
}

void dpb_series_command(const json_t *document, char command[32])
{
    static const char begin[] = "dpbench.";
    const char *schema = dpb_json_text(document, "schema", "");
    const char *name = dpb_begins_with(schema, begin) ? schema + strlen(begin) : "?";
    snprintf(command, 32, "%.*s", (int)(strcspn(name, "/") % 32), name);
    if (strcmp(command, "result") == 0)
        snprintf(command, 32, "run");
}

json_t *dpb_series_labels(const json_t *document)
{
    char command[32];
    dpb_series_command(document, command);
    return json_pack("{s:s, s:O*, s:O*, s:O*, s:O*}", "command", command, //
                     "name", json_object_get(document, "name"),           //
                     "strategy", dpb_json_at(document, "strategy.name"),  //
                     "workers", dpb_json_at(document, "world.workers"),   //
                     "host", dpb_json_at(document, "machine.host"));
}

void dpb_series_key_text(const json_t *key, char *text, size_t capacity)
{
    struct dpb_text list = dpb_text_in(text, capacity);
    dpb_each_member(key, name, value) {
        if (json_is_integer(value))
            dpb_text_item(&list, " ", "%s=%lld", name, (long long)json_integer_value(value));
        else
            dpb_text_item(&list, " ", "%s=%s", name, dpb_json_text(value, "", "?"));
    }
}

/* All fields of a row have as many repeats, but a document may have come from anywhere. */
static size_t repeats_of(const json_t *row)
{
    size_t most = 0;
    dpb_each_member(json_object_get(row, "values"), field, values) {
        (void)field;
        most = json_array_size(values) > most ? json_array_size(values) : most;
    }
    return most;
}

void dpb_series_lines(const json_t *document, FILE *out)
{
    json_t *labels = dpb_series_labels(document);
    json_t *time = json_object_get(document, "ended");
    json_object_set(labels, "time", time ? time : json_object_get(document, "started"));
    json_object_set(labels, "status", json_object_get(document, "status"));
    dpb_each_item(json_object_get(document, "series"), i, row) {
        for (size_t repeat = 0; repeat < repeats_of(row); repeat++) {
            json_t *line = json_copy(labels);
            json_object_update(line, json_object_get(row, "key"));
            json_object_set_new(line, "repeat", json_integer((json_int_t)repeat));
            dpb_each_member(json_object_get(row, "values"), field, values)
                json_object_set(line, field, json_array_get(values, repeat));
            json_dumpf(line, out, JSON_COMPACT | JSON_REAL_PRECISION(17));
            fputc('\n', out);
            json_decref(line);
        }
    }
    json_decref(labels);
}
