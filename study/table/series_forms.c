/* series_forms.c - see series_forms.h. */
#include "study/table/series_forms.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "record/series.h"
#include "study/document/rates.h"
#include "study/table/forms.h"

enum { LABELS = 2048, KEY = 512 };

/* Calls `visit` for each field that a row of a document has; unknown fields have no unit. */
typedef void visit_field(void *context, const struct dpb_compared *of, const json_t *row,
                         const struct dpb_series_field *field);

static void each_field(const struct dpb_compared *documents, size_t n, visit_field *visit,
                       void *context)
{
    for (size_t i = 0; i < n; i++)
        dpb_each_item(json_object_get(documents[i].document, "series"), k, row)
            for (const struct dpb_series_field *field = dpb_series_fields; field->name; field++)
                if (json_object_get(json_object_get(row, "values"), field->name))
                    visit(context, &documents[i], row, field);
}

/* The mean and the ends of its interval, in base units where `unit` is the field's. */
struct value {
    double mean, low, high;
    size_t n;
};

static struct value value_of(const json_t *row, const struct dpb_series_field *field, double unit)
{
    struct dpb_estimate estimate;
    struct value value;
    double *x = dpb_series_values(row, field->name, &value.n);
    dpb_series_estimate(x, value.n, &estimate);
    free(x);
    dpb_estimate_interval(&estimate, &value.low, &value.high);
    value.mean = exp(estimate.mean) * unit;
    value.low *= unit;
    value.high *= unit;
    return value;
}

/* ---- the table and CSV --------------------------------------------------------------------- */

static void print_number(double value, FILE *out)
{
    if (isfinite(value))
        fprintf(out, "  %11.5g", value);
    else
        fprintf(out, "  %11s", "-");
}

struct printing {
    FILE *out;
    int width;
    const struct dpb_compared *last;
    bool titled;
};

static void label_of(const json_t *row, const struct dpb_series_field *field, char label[KEY])
{
    dpb_series_key_text(json_object_get(row, "key"), label, KEY);
    const size_t length = strlen(label);
    snprintf(label + length, KEY - length, "%s%s", length > 0 ? " " : "", field->name);
}

static void widen(void *printing_, const struct dpb_compared *of, const json_t *row,
                  const struct dpb_series_field *field)
{
    struct printing *printing = printing_;
    char label[KEY];
    (void)of;
    label_of(row, field, label);
    if ((int)strlen(label) > printing->width)
        printing->width = (int)strlen(label);
}

static void print_line(void *printing_, const struct dpb_compared *of, const json_t *row,
                       const struct dpb_series_field *field)
{
    struct printing *printing = printing_;
    const struct value value = value_of(row, field, 1);
    char label[KEY];
    if (printing->titled && printing->last != of) {
        json_t *labels = dpb_series_labels(of->document);
        char text[KEY];
        dpb_series_key_text(labels, text, sizeof text);
        fprintf(printing->out, "%s%s: %s\n", printing->last ? "\n" : "", of->file, text);
        json_decref(labels);
    }
    if (printing->last != of)
        fprintf(printing->out, "%-*s  %11s  %11s  %11s  %7s\n", printing->width, "row", "mean",
                "95 % from", "to", "repeats");
    printing->last = of;
    label_of(row, field, label);
    fprintf(printing->out, "%-*s", printing->width, label);
    print_number(value.mean, printing->out);
    print_number(value.low, printing->out);
    print_number(value.high, printing->out);
    fprintf(printing->out, "  %7zu\n", value.n);
}

void dpb_series_print(const struct dpb_compared *documents, size_t n, FILE *out)
{
    struct printing printing = {.out = out, .width = 3, .titled = true};
    each_field(documents, n, widen, &printing);
    each_field(documents, n, print_line, &printing);
}

static void add_object(void *list, const struct dpb_compared *of, const json_t *row,
                       const struct dpb_series_field *field)
{
    const struct value value = value_of(row, field, 1);
    json_t *object = json_pack("{s:o}", "file", dpb_json_string(of->file));
    json_object_update_new(object, dpb_series_labels(of->document));
    json_object_update(object, json_object_get(row, "key"));
    json_object_update_new(
        object, json_pack("{s:s, s:o, s:o, s:o, s:I}", "field", field->name, "value",
                          dpb_json_real(value.mean), "low", dpb_json_real(value.low), "high",
                          dpb_json_real(value.high), "repeats", (json_int_t)value.n));
    json_array_append_new(list, object);
}

void dpb_series_csv(const struct dpb_compared *documents, size_t n, FILE *out)
{
    json_t *list = json_array();
    each_field(documents, n, add_object, list);
    dpb_objects_csv(list, out);
    json_decref(list);
}

/* ---- Prometheus ---------------------------------------------------------------------------- */

/* https://prometheus.io/docs/instrumenting/exposition_formats/: a label's value is quoted; `\`, `"`
 * and line feeds are escaped. */
static void print_label(const char *comma, const char *name, const json_t *value, FILE *out)
{
    fputs(comma, out);
    for (const char *c = name; *c != '\0'; c++)
        fputc(isalpha((unsigned char)*c) || (c > name && isdigit((unsigned char)*c)) ? *c : '_',
              out);
    fputs("=\"", out);
    if (json_is_integer(value))
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    for (const char *c = dpb_json_text(value, "", ""); *c != '\0'; c++)
        if (*c == '\n')
            fputs("\\n", out);
        else
            fprintf(out, "%s%c", *c == '\\' || *c == '"' ? "\\" : "", *c);
    fputc('"', out);
}

/* `{name="value",...}` of a document and a row's key (NULL: none). @owned; NULL: out of memory. */
static char *labels_of(const json_t *document, const json_t *key)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return NULL;
    json_t *labels = dpb_series_labels(document);
    json_object_update(labels, (json_t *)(uintptr_t)key);
    const char *comma = "{";
    dpb_each_member(labels, name, value) {
        print_label(comma, name, value, out);
        comma = ",";
    }
    fputc('}', out);
    json_decref(labels);
    return fclose(out) == 0 ? text : NULL;
}

static void print_head(const char *name, const char *help, FILE *out)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
}

static void print_sample(const char *name, const json_t *document, const json_t *key, double value,
                         FILE *out)
{
    char *labels = isfinite(value) ? labels_of(document, key) : NULL;
    if (labels)
        fprintf(out, "%s%s %.17g\n", name, labels, value);
    free(labels);
}

/* One metric: a field's mean, or an end of its interval. */
struct metric {
    const struct dpb_series_field *field;
    const char *which;
    bool headed;
    FILE *out;
};

static void print_metric(void *metric_, const struct dpb_compared *of, const json_t *row,
                         const struct dpb_series_field *field)
{
    struct metric *metric = metric_;
    char name[128], help[256];
    if (field != metric->field)
        return;
    const struct value value = value_of(row, field, field->unit);
    const bool mean = metric->which[0] == '\0', low = metric->which[0] == 'l';
    snprintf(name, sizeof name, "dpbench_%s%s%s", field->stem, metric->which, field->base);
    snprintf(help, sizeof help, "%s%s", field->help,
             mean  ? ""
             : low ? " Lower end of the 95 % interval of the mean."
                   : " Upper end of the 95 % interval of the mean.");
    if (!metric->headed)
        print_head(name, help, metric->out);
    metric->headed = true;
    print_sample(name, of->document, json_object_get(row, "key"),
                 mean  ? value.mean
                 : low ? value.low
                       : value.high,
                 metric->out);
}

/* NaN: the document does not say when. */
static double ended_of(const json_t *document)
{
    return dpb_rates_moment(
        dpb_json_text(document, "ended", dpb_json_text(document, "started", "")));
}

/* The rows of all documents, to find two that Prometheus cannot tell apart. */
struct seen {
    json_t *files;            /* @owned: by field and labels */
    char problem[3 * LABELS]; /* "": there is none */
};

static void note_labels(struct seen *seen, const char *file, const char *name, char *labels)
{
    char text[LABELS];
    snprintf(text, sizeof text, "%s%s", name, labels ? labels : "");
    free(labels);
    const char *other = dpb_json_text(json_object_get(seen->files, text), "", NULL);
    if (other && seen->problem[0] == '\0')
        snprintf(seen->problem, sizeof seen->problem, "%s and %s both have %s", other, file, text);
    json_object_set_new(seen->files, text, dpb_json_string(file));
}

static void note_row(void *seen, const struct dpb_compared *of, const json_t *row,
                     const struct dpb_series_field *field)
{
    note_labels(seen, of->file, field->name, labels_of(of->document, json_object_get(row, "key")));
}

static dpb_status check_labels(const struct dpb_compared *documents, size_t n)
{
    struct seen seen = {.files = json_object()};
    for (size_t i = 0; i < n; i++)
        note_labels(&seen, documents[i].file, "", labels_of(documents[i].document, NULL));
    each_field(documents, n, note_row, &seen);
    json_decref(seen.files);
    if (seen.problem[0] == '\0')
        return DPB_OK;
    return dpb_fail(DPB_USAGE,
                    "%s, and Prometheus takes one value of it: give one of them, or another "
                    "run.name to each",
                    seen.problem);
}

/* Metrics of documents: when each was measured, and whether it is ok. */
static void print_documents(const struct dpb_compared *documents, size_t n, FILE *out)
{
    static const char up[] = "dpbench_up", when[] = "dpbench_measured_timestamp_seconds";
    print_head(up, "Whether the measurement ended well.", out);
    for (size_t i = 0; i < n; i++)
        print_sample(up, documents[i].document, NULL,
                     dpb_json_is(documents[i].document, "status", "ok"), out);
    print_head(when, "When the measurement ended; of a run, when it started.", out);
    for (size_t i = 0; i < n; i++)
        print_sample(when, documents[i].document, NULL, ended_of(documents[i].document), out);
}

dpb_status dpb_series_prometheus(const struct dpb_compared *documents, size_t n, FILE *out)
{
    static const char *const which[] = {"", "low_", "high_"};
    DPB_TRY(check_labels(documents, n));
    print_documents(documents, n, out);
    for (const struct dpb_series_field *field = dpb_series_fields; field->name; field++)
        for (size_t i = 0; i < sizeof which / sizeof which[0]; i++) {
            struct metric metric = {.field = field, .which = which[i], .out = out};
            each_field(documents, n, print_metric, &metric);
        }
    return DPB_OK;
}
