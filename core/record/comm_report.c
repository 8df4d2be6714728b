/* comm_report.c - see comm_report.h. */
#include "record/comm_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/stats.h"
#include "bench/codec_rates.h"
#include "machine/cores.h"
#include "record/facts.h"
#include "record/gpus_report.h"
#include "record/invocation.h"
#include "record/load_report.h"
#include "record/result.h"
#include "record/series.h"

struct maker {
    const struct dpb_experiment *experiment;
    const struct dpb_comm_journal **journals; /* of the workers */
    double *times_us;                         /* room for the most samples of a point */
};

static uint64_t n_samples_of(const struct dpb_comm_journal *journal, uint32_t point)
{
    uint64_t n = __atomic_load_n(&journal->records[point].n_samples, __ATOMIC_ACQUIRE);
    return n < journal->capacity ? n : journal->capacity;
}

/* With one clock, from the last worker's beginning to the last worker's end; else the longest of
 * the times that workers measured, each by its own clock. */
static double time_of(const struct maker *maker, uint32_t point, uint64_t i)
{
    int64_t began_ns = INT64_MIN, ended_ns = INT64_MIN, longest_ns = 0;
    for (uint32_t rank = 0; rank < maker->experiment->n_workers; rank++) {
        const struct dpb_comm_journal *journal = maker->journals[rank];
        const struct dpb_comm_sample *one = &journal->samples[point * journal->capacity + i];
        began_ns = one->begin_ns > began_ns ? one->begin_ns : began_ns;
        ended_ns = one->end_ns > ended_ns ? one->end_ns : ended_ns;
        longest_ns =
            one->end_ns - one->begin_ns > longest_ns ? one->end_ns - one->begin_ns : longest_ns;
    }
    return (double)(maker->journals[0]->by_memory ? ended_ns - began_ns : longest_ns) / 1e3;
}

/* The times that all workers have; how many. */
static size_t find_times(const struct maker *maker, uint32_t point)
{
    uint64_t n = UINT64_MAX;
    for (uint32_t rank = 0; rank < maker->experiment->n_workers; rank++) {
        uint64_t own = n_samples_of(maker->journals[rank], point);
        n = own < n ? own : n;
    }
    for (uint64_t i = 0; i < n; i++)
        maker->times_us[i] = time_of(maker, point, i);
    return n;
}

static json_t *times_to_json(const double *times_us, size_t n)
{
    static const struct {
        const char *name;
        double p;
    } quantiles[] = {{"min", 0},   {"p10", 0.1},  {"p50", 0.5},
                     {"p90", 0.9}, {"p99", 0.99}, {"max", 1}};
    json_t *json = json_object();
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++)
        json_object_set_new(
            json, quantiles[i].name,
            dpb_json_real(n > 0 ? dpb_quantile_of_sorted(times_us, n, quantiles[i].p) : NAN));
    return json;
}

static void add_median(void *medians_, size_t batch, const double *x, size_t n)
{
    double *medians = medians_, *sorted = malloc(n * sizeof *sorted);
    medians[batch] = NAN;
    if (!sorted)
        return;
    memcpy(sorted, x, n * sizeof *sorted);
    dpb_sort(sorted, n);
    medians[batch] = dpb_quantile_of_sorted(sorted, n, 0.5);
    free(sorted);
}

static const char *operation_of(const struct maker *maker)
{
    return dpb_collective_names[maker->experiment->settings.comm_test.operation];
}

/* As the fields of these names of the point: docs/measuring.md has the formulas. */
static void rates_of(double time_us, const struct maker *maker, const struct dpb_comm_point *point,
                     double *algorithm, double *bus)
{
    const double n = maker->experiment->n_workers, share = (n - 1) / n;
    const double factors[] = {[DPB_ALL_REDUCE] = 2 * share,
                              [DPB_REDUCE_SCATTER] = share,
                              [DPB_ALL_GATHER] = share,
                              [DPB_BROADCAST] = 1,
                              [DPB_ALL_TO_ALL] = share};
    *algorithm = (double)point->bytes / (time_us * 1e3);
    *bus = n > 1 ? *algorithm * factors[maker->experiment->settings.comm_test.operation] : NAN;
}

/* From the times in their order. */
static void add_series(const struct maker *maker, const struct dpb_comm_point *point, size_t n,
                       json_t *document)
{
    double times_us[DPB_SERIES_REPEATS] = {0}, algorithm[DPB_SERIES_REPEATS] = {0};
    double bus[DPB_SERIES_REPEATS] = {0};
    json_t *key = json_pack("{s:s, s:I, s:s*}", "operation", operation_of(maker), "size",
                            (json_int_t)point->bytes, "model",
                            point->model ? maker->experiment->settings.model.name : NULL);
    json_t *row = dpb_series_add(document, key);
    n = dpb_series_batches(maker->times_us, n, add_median, times_us);
    for (size_t i = 0; i < n; i++)
        rates_of(times_us[i], maker, point, &algorithm[i], &bus[i]);
    dpb_series_set(row, "time_us", times_us, n);
    dpb_series_set(row, "algorithm_gb_per_s", algorithm, n);
    if (maker->experiment->n_workers > 1)
        dpb_series_set(row, "bus_gb_per_s", bus, n);
}

static json_t *point_to_json(const struct maker *maker, uint32_t at,
                             const struct dpb_comm_point *point, json_t *document)
{
    const struct dpb_experiment *experiment = maker->experiment;
    const struct dpb_comm_record *first = &maker->journals[0]->records[at];
    uint64_t n_wrong = 0, n_exchanges = first->n_exchanges;
    for (uint32_t rank = 0; rank < experiment->n_workers; rank++)
        n_wrong += maker->journals[rank]->records[at].n_wrong;
    size_t n = find_times(maker, at);
    add_series(maker, point, n, document);
    dpb_sort(maker->times_us, n);
    double median_us = n > 0 ? dpb_quantile_of_sorted(maker->times_us, n, 0.5) : NAN;
    double algorithm, bus;
    rates_of(median_us, maker, point, &algorithm, &bus);
    return json_pack("{s:o, s:I, s:I, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:b}", "model",
                     point->model ? json_string(experiment->settings.model.name) : json_null(), //
                     "bytes", (json_int_t)point->bytes,                                         //
                     "count", (json_int_t)point->n_elements,                                    //
                     "type", dpb_dtype_name(experiment->gradient_type),                         //
                     "buckets", (json_int_t)first->n_buckets,                                   //
                     "iterations", (json_int_t)n,                                               //
                     "checked", (json_int_t)n_exchanges,                                        //
                     "time_us", times_to_json(maker->times_us, n),                              //
                     "algorithm_gb_per_s", dpb_json_real(algorithm),                            //
                     "bus_gb_per_s", dpb_json_real(bus),                                        //
                     "wrong", (json_int_t)n_wrong,                                              //
                     "in_place", first->in_place);
}

/* Adds points[] and series[]: of those that were begun. */
static void add_points(const struct maker *maker, json_t *document)
{
    struct dpb_comm_point points[DPB_COMM_POINTS];
    uint32_t n = 0;
    json_t *list = json_array();
    if (dpb_comm_points(maker->experiment, points, &n) != DPB_OK)
        n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (maker->journals[0]->records[i].n_exchanges > 0)
            json_array_append_new(list, point_to_json(maker, i, &points[i], document));
    json_object_set_new(document, "points", list);
}

static json_t *make_document(const struct maker *maker, struct dpb_board *board, dpb_status status,
                             const char *error)
{
    const struct dpb_experiment *experiment = maker->experiment;
    const struct dpb_comm_journal *first = maker->journals[0];
    const struct dpb_load *load = first->load.known ? &first->load : NULL;
    json_t *warnings = dpb_warnings_collect(board);
    json_t *barrier =
        first->opened ? json_string(first->by_memory ? "memory" : "exchange") : json_null();
    json_t *gpus = dpb_gpus_to_json(board);
    dpb_load_warn(load, warnings);
    dpb_gpus_warn(gpus, warnings);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:[], s:[], s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o}",                                                          //
        "schema", "dpbench.comm/1",                                                          //
        "status", dpb_result_status(status),                                                 //
        "name", experiment->settings.run.name,                                               //
        "operation", operation_of(maker),                                                    //
        "ended", dpb_json_time(time(NULL)),                                                  //
        "error", error ? dpb_json_string(error) : json_null(),                               //
        "warnings", warnings,                                                                //
        "world", dpb_result_world(experiment, experiment->n_workers, first->oversubscribed), //
        "strategy", dpb_result_strategy(experiment, "synchronous"),                          //
        "bucket_bytes", (json_int_t)experiment->settings.comm.bucket,                        //
        "barrier", barrier,                                                                  //
        "points", "series",                                                                  //
        "gpus", gpus,                                                                        //
        "ranks", dpb_facts_of_ranks(board),                                                  //
        "load", dpb_load_to_json(load),                                                      //
        "config", dpb_experiment_effective(experiment),                                      //
        "versions", dpb_result_versions(experiment),                                         //
        "machine", dpb_machine_describe(),                                                   //
        "invocation", dpb_result_invocation());
}

json_t *dpb_comm_report_make(const struct dpb_experiment *experiment, struct dpb_board *board,
                             dpb_status status, const char *error)
{
    struct maker maker = {.experiment = experiment};
    uint64_t capacity = 1;
    maker.journals = calloc(experiment->n_workers, sizeof *maker.journals);
    for (uint32_t rank = 0; maker.journals && rank < experiment->n_workers; rank++) {
        maker.journals[rank] = dpb_board_journal(board, rank, NULL);
        if (maker.journals[rank]->capacity > capacity)
            capacity = maker.journals[rank]->capacity;
    }
    maker.times_us = malloc(capacity * sizeof *maker.times_us);
    json_t *document =
        maker.journals && maker.times_us ? make_document(&maker, board, status, error) : NULL;
    if (document)
        add_points(&maker, document);
    free(maker.times_us);
    free(maker.journals);
    return document;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* Three decimals, or three digits for a link so slow that three decimals show less. */
static int digits_of_rate(const json_t *point, const char *path)
{
    double value = dpb_json_number(point, path);
    return value > 0 && value < 0.1 ? (int)fmin(8, 2 - floor(log10(value))) : 3;
}

static void print_point(const json_t *point, FILE *out)
{
    const char *model = dpb_json_text(point, "model", NULL);
    fprintf(out, "%11.0f %11.0f  %-4s", dpb_json_number(point, "bytes"),
            dpb_json_number(point, "count"), dpb_json_text(point, "type", "?"));
    dpb_json_print_cell(point, "buckets", 1, 9, 0, out);
    dpb_json_print_cell(point, "iterations", 1, 12, 0, out);
    dpb_json_print_cell(point, "time_us.min", 1, 12, 2, out);
    dpb_json_print_cell(point, "time_us.p50", 1, 12, 2, out);
    dpb_json_print_cell(point, "time_us.p99", 1, 12, 2, out);
    static const char *const rates[] = {"algorithm_gb_per_s", "bus_gb_per_s"};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        dpb_json_print_cell(point, rates[i], 1, 12, digits_of_rate(point, rates[i]), out);
    dpb_json_print_cell(point, "wrong", 1, 10, 0, out);
    fprintf(out, "  %-8s%s%s\n", dpb_json_true(point, "in_place") ? "yes" : "no", model ? "  " : "",
            model ? model : "");
}

void dpb_comm_report_print(const json_t *document, FILE *out)
{
    const char *status = dpb_json_text(document, "status", "?");
    double servers = dpb_json_number(document, "world.servers");
    double workers = dpb_json_number(document, "world.workers");
    const char *operation = dpb_json_text(document, "operation", "all_reduce");
    fprintf(out, "%s: comm %s, ", dpb_json_text(document, "name", "?"),
            dpb_json_text(document, "strategy.name", "?"));
    if (strcmp(operation, "all_reduce") != 0)
        fprintf(out, "%s, ", operation);
    fprintf(out, "%.0f worker%s", workers, workers == 1 ? "" : "s");
    if (servers > 0)
        fprintf(out, ", %.0f server%s", servers, servers == 1 ? "" : "s");
    fprintf(out, "; buckets of %.0f bytes; barrier by %s%s\n",
            dpb_json_number(document, "bucket_bytes"), dpb_json_text(document, "barrier", "none"),
            dpb_json_true(document, "world.oversubscribed") ? "; oversubscribed" : "");
    dpb_gpus_print(json_object_get(document, "gpus"), out);
    dpb_facts_print(json_object_get(document, "ranks"), "", out);
    fprintf(out, "      bytes       count  type  buckets  iterations      min us      p50 us      "
                 "p99 us  algbw GB/s  busbw GB/s     wrong  in place\n");
    dpb_each_item(json_object_get(document, "points"), i, point)
        print_point(point, out);
    dpb_codec_rates_print(json_object_get(document, "codecs"), out);
    if (strcmp(status, "ok") != 0)
        fprintf(out, "%s: %s\n", status, dpb_json_text(document, "error", "no reason given"));
}
