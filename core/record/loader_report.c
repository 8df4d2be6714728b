/* loader_report.c - see loader_report.h. */
#include "record/loader_report.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/stats.h"
#include "machine/cores.h"
#include "record/facts.h"
#include "record/invocation.h"
#include "record/result.h"
#include "record/series.h"

/* ---- the document -------------------------------------------------------------------------- */

/* Samples a second of each window, rising. */
static void sort_rates(const struct dpb_loader_point *point, double rates[DPB_LOADER_WINDOWS])
{
    for (uint32_t i = 0; i < point->n_windows; i++)
        rates[i] = (double)point->windows[i].samples * 1e9 / (double)point->windows[i].ns;
    dpb_sort(rates, point->n_windows);
}

/* NaN where nothing was measured. */
static double median_rate(const struct dpb_loader_point *point)
{
    double rates[DPB_LOADER_WINDOWS];
    sort_rates(point, rates);
    return point->n_windows > 0 ? dpb_quantile_of_sorted(rates, point->n_windows, 0.5) : NAN;
}

static json_t *window_to_json(const struct dpb_loader_window *window, bool counted)
{
    json_t *json = json_pack("{s:I, s:I, s:I}", "ns", (json_int_t)window->ns, "batches",
                             (json_int_t)window->batches, "samples", (json_int_t)window->samples);
    if (window->storage_bytes >= 0)
        json_object_set_new(json, "storage_bytes", json_integer(window->storage_bytes));
    if (counted)
        json_object_update_new(
            json, json_pack("{s:I, s:I, s:I}", "bytes_read", (json_int_t)window->counts.bytes_read,
                            "bytes_decoded", (json_int_t)window->counts.bytes_decoded,
                            "skipped_samples", (json_int_t)window->counts.skipped));
    return json;
}

static json_t *rates_to_json(const struct dpb_loader_point *point, bool counted)
{
    double rates[DPB_LOADER_WINDOWS] = {0}, elapsed_s = 0, stored = 0;
    struct dpb_data_counts sum = {0};
    json_t *windows = json_array();
    sort_rates(point, rates);
    for (uint32_t i = 0; i < point->n_windows; i++) {
        const struct dpb_loader_window *window = &point->windows[i];
        elapsed_s += (double)window->ns * 1e-9;
        sum.bytes_read += window->counts.bytes_read;
        sum.bytes_decoded += window->counts.bytes_decoded;
        sum.skipped = window->counts.skipped; /* a total already */
        stored = window->storage_bytes < 0 ? NAN : stored + (double)window->storage_bytes;
        json_array_append_new(windows, window_to_json(window, counted));
    }
    return json_pack(
        "{s:{s:o, s:o, s:o}, s:o, s:o, s:o, s:o, s:o}",                                 //
        "samples_per_s",                                                                //
        "median", dpb_json_real(median_rate(point)),                                    //
        "min", dpb_json_real(point->n_windows > 0 ? rates[0] : NAN),                    //
        "max", dpb_json_real(point->n_windows > 0 ? rates[point->n_windows - 1] : NAN), //
        "bytes_read_per_s", dpb_json_real(counted ? (double)sum.bytes_read / elapsed_s : NAN),
        "bytes_decoded_per_s",
        dpb_json_real(counted ? (double)sum.bytes_decoded / elapsed_s : NAN),             //
        "storage_bytes_per_s", dpb_json_real(stored / elapsed_s),                         //
        "skipped_samples", counted ? json_integer((json_int_t)sum.skipped) : json_null(), //
        "windows", windows);
}

static void add_ranks(const struct dpb_loader_ranks *ranks, uint32_t at, bool counted, json_t *json)
{
    json_t *list = json_array();
    uint32_t slowest = 0;
    for (uint32_t rank = 0; rank < ranks->n; rank++) {
        const struct dpb_loader_point *point = &ranks->journals[rank]->points[at];
        json_t *row = rates_to_json(point, counted);
        json_object_set_new(row, "rank", json_integer((json_int_t)rank));
        json_object_set_new(row, "host", dpb_json_string(dpb_board_page(ranks->board, rank)->host));
        json_array_append_new(list, row);
        if (median_rate(point) < median_rate(&ranks->journals[slowest]->points[at]))
            slowest = rank;
    }
    json_object_set_new(json, "ranks", list);
    json_object_set_new(json, "slowest", json_integer((json_int_t)slowest));
}

static json_t *point_to_json(const struct dpb_loader *loader, const struct dpb_loader_ranks *ranks,
                             uint32_t at, bool counted)
{
    const struct dpb_loader_point *point = &loader->points[at], *first = &loader->points[0];
    double speedup = first->threads == 1 ? median_rate(point) / median_rate(first) : NAN;
    json_t *json = rates_to_json(point, counted);
    json_object_set_new(json, "threads", json_integer((json_int_t)point->threads));
    json_object_set_new(json, "speedup", dpb_json_real(speedup));
    if (ranks)
        add_ranks(ranks, at, counted, json);
    return json;
}

/* The lowest rate that a rank has in this window. */
static double least_rate(const struct dpb_loader_ranks *ranks, uint32_t at, uint32_t window)
{
    double least = INFINITY;
    for (uint32_t rank = 0; rank < ranks->n; rank++) {
        const struct dpb_loader_window *one = &ranks->journals[rank]->points[at].windows[window];
        least = fmin(least, (double)one->samples * 1e9 / (double)one->ns);
    }
    return least;
}

static void add_series(const struct dpb_loader *loader, const struct dpb_loader_ranks *ranks,
                       uint32_t at, bool counted, json_t *document)
{
    const struct dpb_loader_point *point = &loader->points[at];
    double samples[DPB_LOADER_WINDOWS] = {0}, read[DPB_LOADER_WINDOWS] = {0};
    double decoded[DPB_LOADER_WINDOWS] = {0}, least[DPB_LOADER_WINDOWS] = {0};
    json_t *row =
        dpb_series_add(document, json_pack("{s:I}", "threads", (json_int_t)point->threads));
    for (uint32_t i = 0; i < point->n_windows; i++) {
        const struct dpb_loader_window *window = &point->windows[i];
        const double s = (double)window->ns * 1e-9;
        samples[i] = (double)window->samples / s;
        read[i] = (double)window->counts.bytes_read / s;
        decoded[i] = (double)window->counts.bytes_decoded / s;
        least[i] = ranks ? least_rate(ranks, at, i) : NAN;
    }
    dpb_series_set(row, "samples_per_s", samples, point->n_windows);
    if (ranks)
        dpb_series_set(row, "slowest_samples_per_s", least, point->n_windows);
    if (!counted)
        return;
    dpb_series_set(row, "bytes_read_per_s", read, point->n_windows);
    dpb_series_set(row, "bytes_decoded_per_s", decoded, point->n_windows);
}

static json_t *source_to_json(const struct dpb_experiment *experiment, int64_t open_ns)
{
    const struct dpb_sample_format *format = &experiment->data_info.format;
    return json_pack("{s:s, s:[I, I, I], s:s, s:I, s:I, s:I, s:I, s:o}", //
                     "name", experiment->settings.data.name,             //
                     "shape", (json_int_t)format->shape.c, (json_int_t)format->shape.h,
                     (json_int_t)format->shape.w,                                             //
                     "type", dpb_dtype_name(format->type),                                    //
                     "sample_bytes", (json_int_t)dpb_sample_bytes(format),                    //
                     "classes", (json_int_t)experiment->data_info.nclass,                     //
                     "train_samples", (json_int_t)experiment->data_info.n_samples[DPB_TRAIN], //
                     "test_samples", (json_int_t)experiment->data_info.n_samples[DPB_TEST],   //
                     "open_s", dpb_json_real(open_ns > 0 ? (double)open_ns * 1e-9 : NAN));
}

json_t *dpb_loader_report_make(const struct dpb_loader *loader,
                               const struct dpb_loader_ranks *ranks, int64_t open_ns,
                               dpb_status status, const char *error)
{
    const struct dpb_experiment *experiment = loader->experiment;
    bool counted =
        ((const struct dpb_data_ops *)experiment->plugins[DPB_PLUGIN_DATA]->ops)->count != NULL;
    uint32_t n_cores = 0;
    json_t *points = json_array();
    for (uint32_t i = 0; i < loader->n_points; i++)
        json_array_append_new(points, point_to_json(loader, ranks, i, counted));
    if (dpb_cores_available(&n_cores) != DPB_OK)
        n_cores = 0;
    json_t *document =
        json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o, s:[], s:o, s:o, s:o}", //
                  "schema", "dpbench.data/1",                                                     //
                  "status", dpb_result_status(status),                                            //
                  "name", experiment->settings.run.name,                                          //
                  "ended", dpb_json_time(time(NULL)),                                             //
                  "error", error ? dpb_json_string(error) : json_null(),                          //
                  "warnings", dpb_warnings_collect(ranks ? ranks->board : NULL),                  //
                  "data", source_to_json(experiment, open_ns),                                    //
                  "batch", (json_int_t)experiment->batch,                                         //
                  "workers", ranks ? json_integer((json_int_t)ranks->n) : json_null(), "cores",
                  (json_int_t)n_cores,                            //
                  "points", points, "series",                     //
                  "config", dpb_experiment_effective(experiment), //
                  "versions", dpb_result_versions(experiment),    //
                  "machine", dpb_machine_describe());
    for (uint32_t i = 0; document && i < loader->n_points; i++)
        add_series(loader, ranks, i, counted, document);
    return document;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* `worker`: of a job's table; NULL: another. `point` is one, or an item of its ranks[]. */
static void print_rates(const json_t *point, double threads, const char *worker, FILE *out)
{
    char spread[64] = "-";
    double least = dpb_json_number(point, "samples_per_s.min");
    double most = dpb_json_number(point, "samples_per_s.max");
    if (!isnan(least))
        snprintf(spread, sizeof spread, "%.0f .. %.0f", least, most);
    fprintf(out, "  %7.0f", threads);
    if (worker)
        fprintf(out, "  %6s", worker);
    dpb_json_print_cell(point, "samples_per_s.median", 1, 11, 0, out);
    fprintf(out, "  %20s", spread);
    dpb_json_print_cell(point, "speedup", 1, 9, 2, out);
    dpb_json_print_cell(point, "bytes_read_per_s", 1e6, 11, 1, out);
    dpb_json_print_cell(point, "bytes_decoded_per_s", 1e6, 14, 1, out);
    dpb_json_print_cell(point, "skipped_samples", 1, 9, 0, out);
    fputc('\n', out);
}

static void print_point(const json_t *point, FILE *out)
{
    const double threads = dpb_json_number(point, "threads");
    const json_t *ranks = json_object_get(point, "ranks");
    dpb_each_item(ranks, i, rank) {
        char worker[24];
        snprintf(worker, sizeof worker, "%.0f", dpb_json_number(rank, "rank"));
        print_rates(rank, threads, worker, out);
    }
    print_rates(point, threads, ranks ? "all" : NULL, out);
}

/* Whether the timed windows found their files in the page cache. */
static void print_cache(const json_t *points, FILE *out)
{
    double bytes = 0;
    size_t n = 0;
    dpb_each_item(points, i, point)
        dpb_each_item(json_object_get(point, "windows"), w, window) {
            bytes += dpb_json_number(window, "storage_bytes");
            n++;
        }
    if (n == 0)
        return;
    if (isnan(bytes))
        fprintf(out, "cache: the kernel does not say what came from storage\n");
    else if (bytes > 0)
        fprintf(out, "cache: cold: %.1f MB came from storage in the windows\n", bytes / 1e6);
    else
        fprintf(out, "cache: warm: nothing came from storage in a window\n");
}

/* Of a job with several workers. */
static void print_slowest(const json_t *point, FILE *out)
{
    const json_t *ranks = json_object_get(point, "ranks");
    const json_t *rank =
        json_array_get(ranks, (size_t)json_integer_value(json_object_get(point, "slowest")));
    if (json_array_size(ranks) < 2 || isnan(dpb_json_number(rank, "samples_per_s.median")))
        return;
    fprintf(out, "slowest with %.0f thread%s: worker %.0f on %s, %.0f samples/s\n",
            dpb_json_number(point, "threads"), dpb_json_number(point, "threads") == 1 ? "" : "s",
            dpb_json_number(rank, "rank"), dpb_json_text(rank, "host", "?"),
            dpb_json_number(rank, "samples_per_s.median"));
}

void dpb_loader_report_print(const json_t *document, FILE *out)
{
    const json_t *data = json_object_get(document, "data");
    const json_t *shape = json_object_get(data, "shape");
    const json_t *points = json_object_get(document, "points");
    const char *status = dpb_json_text(document, "status", "?");
    const double n_workers = dpb_json_number(document, "workers");
    fprintf(out,
            "%s: data %s, %.0f training samples of %lld x %lld x %lld %s, batch %.0f, opened in "
            "%.2f s\n",
            dpb_json_text(document, "name", "?"), dpb_json_text(data, "name", "?"),
            dpb_json_number(data, "train_samples"), json_integer_value(json_array_get(shape, 0)),
            json_integer_value(json_array_get(shape, 1)),
            json_integer_value(json_array_get(shape, 2)), dpb_json_text(data, "type", "?"),
            dpb_json_number(document, "batch"), dpb_json_number(data, "open_s"));
    fprintf(out,
            "  threads%s  samples/s   slowest .. fastest  speedup  read MB/s  decoded MB/s  "
            "skipped\n",
            isnan(n_workers) ? "" : "  worker");
    dpb_each_item(points, i, point)
        print_point(point, out);
    fprintf(out, "median of up to %d windows, in turn with the other rows; %.0f cores here\n",
            DPB_LOADER_WINDOWS, dpb_json_number(document, "cores"));
    if (!isnan(n_workers))
        fprintf(out,
                "%.0f workers at the same time; all: their samples, over a window's longest time\n",
                n_workers);
    dpb_each_item(points, k, point)
        print_slowest(point, out);
    print_cache(points, out);
    if (strcmp(status, "ok") != 0)
        fprintf(out, "%s: %s\n", status, dpb_json_text(document, "error", "no reason given"));
}
