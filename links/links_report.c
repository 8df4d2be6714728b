/* links_report.c - see links_report.h. */
#include "links/links_report.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "dpbench/host.h"
#include "links/slow.h"
#include "record/series.h"

/* The point of the largest messages of a way; NULL: there is none. */
static const json_t *largest_of(const json_t *way)
{
    const json_t *rate = json_object_get(way, "rate");
    return json_array_get(rate, json_array_size(rate) - 1);
}

static const json_t *find_way(const json_t *network, size_t from, size_t to)
{
    dpb_each_item(json_object_get(network, "ways"), i, way)
        if (dpb_json_number(way, "from") == (double)from &&
            dpb_json_number(way, "to") == (double)to)
            return way;
    return NULL;
}

/* A number for each way; `-` where there is none. */
static void print_matrix(const json_t *network, const char *title,
                         double (*cell)(const json_t *way), FILE *out)
{
    const size_t n = json_array_size(json_object_get(network, "machines"));
    fprintf(out, "  %-16s", title);
    for (size_t to = 0; to < n; to++)
        fprintf(out, " %9zu", to);
    fputc('\n', out);
    for (size_t from = 0; from < n; from++) {
        fprintf(out, "  %16zu", from);
        for (size_t to = 0; to < n; to++) {
            const double value = cell(find_way(network, from, to));
            if (isnan(value))
                fprintf(out, " %9s", "-");
            else
                fprintf(out, " %9.4g", value);
        }
        fputc('\n', out);
    }
}

static double latency_us(const json_t *way)
{
    return dpb_json_number(way, "latency_s.median") * 1e6;
}

static double largest_gbit_per_s(const json_t *way)
{
    return dpb_json_number(largest_of(way), "bytes_per_s.median") * 8e-9;
}

static void print_network(const json_t *network, FILE *out)
{
    fputs(
        "network: TCP from machine to machine, each in one pair at a time; messages answered by a "
        "byte\n",
        out);
    dpb_each_item(json_object_get(network, "machines"), i, machine)
        fprintf(out, "  %zu: %s, interface %s\n", i, dpb_json_text(machine, "host", "?"),
                dpb_json_text(machine, "interface", "?"));
    print_matrix(network, "latency us, to", latency_us, out);
    print_matrix(network, "Gbit/s, to", largest_gbit_per_s, out);
    dpb_links_slow_print(network, out);
}

/* ---- the document -------------------------------------------------------------------------- */

/* `windows` goes into the series. */
static json_t *value_to_json(const struct dpb_links_value *value)
{
    json_t *windows = json_array();
    for (uint32_t i = 0; i < value->n_windows; i++)
        json_array_append_new(windows, dpb_json_real(value->windows[i]));
    return json_pack("{s:o, s:o, s:o, s:o}", "median", dpb_json_real(value->median), "least",
                     dpb_json_real(value->least), "most", dpb_json_real(value->most), "windows",
                     windows);
}

static json_t *latency_to_json(const struct dpb_links_value *value)
{
    return isnan(value->median) ? json_null() : value_to_json(value);
}

static json_t *rates_to_json(const struct dpb_links_value rates[DPB_LINKS_SIZES])
{
    json_t *points = json_array();
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++) {
        if (isnan(rates[i].median))
            continue;
        json_array_append_new(points,
                              json_pack("{s:I, s:o}", "bytes", (json_int_t)dpb_links_size(i),
                                        "bytes_per_s", value_to_json(&rates[i])));
    }
    return points;
}

static json_t *node_to_json(uint32_t node)
{
    return node == UINT32_MAX ? json_null() : json_integer(node);
}

json_t *dpb_links_memory_to_json(const struct dpb_links_memory *memory)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "threads", (json_int_t)memory->n_threads,
                     "cpu_node", node_to_json(memory->cpu_node), "memory_node",
                     node_to_json(memory->memory_node), "read", rates_to_json(memory->read), "copy",
                     rates_to_json(memory->copy));
}

json_t *dpb_links_latency_to_json(const struct dpb_links_cores *cores, const char *shared)
{
    return json_pack("{s:i, s:i, s:s, s:o}", "a", cores->a, "b", cores->b, "shared", shared,
                     "latency_s", latency_to_json(&cores->latency));
}

json_t *dpb_links_cores_to_json(const struct dpb_links_cores *cores, const char *shared)
{
    return json_pack("{s:i, s:i, s:s, s:o}", "a", cores->a, "b", cores->b, "shared", shared, "rate",
                     rates_to_json(cores->rate));
}

json_t *dpb_links_loopback_to_json(const struct dpb_links_loopback *loopback, uint16_t a,
                                   uint16_t b)
{
    return json_pack("{s:i, s:i, s:o, s:o}", "a", a, "b", b, "latency_s",
                     latency_to_json(&loopback->latency), "rate", rates_to_json(loopback->rate));
}

json_t *dpb_links_host_to_json(const struct dpb_links_host *host)
{
    return json_pack("{s:I, s:s, s:o, s:o, s:o, s:o, s:o}",          //
                     "device", (json_int_t)host->device,             //
                     "memory", host->pinned ? "pinned" : "pageable", //
                     "latency_to_device_s", latency_to_json(&host->latency[DPB_LINKS_TO_DEVICE]),
                     "latency_from_device_s",
                     latency_to_json(&host->latency[DPB_LINKS_FROM_DEVICE]), "to_device",
                     rates_to_json(host->rate[DPB_LINKS_TO_DEVICE]), "from_device",
                     rates_to_json(host->rate[DPB_LINKS_FROM_DEVICE]), "both",
                     rates_to_json(host->rate[DPB_LINKS_BOTH]));
}

json_t *dpb_links_pair_to_json(const struct dpb_links_pair *pair)
{
    const char *way = pair->from == pair->to ? "within" : pair->direct ? "peer" : "staged";
    return json_pack("{s:I, s:I, s:s, s:b, s:o, s:o, s:o}", "from", (json_int_t)pair->from, "to",
                     (json_int_t)pair->to, "way", way, "possible", pair->possible, "latency_s",
                     latency_to_json(&pair->latency), "one_way", rates_to_json(pair->one_way),
                     "both", rates_to_json(pair->both));
}

json_t *dpb_links_way_to_json(uint32_t from, uint32_t to, const struct dpb_links_value *latency,
                              const struct dpb_links_value rate[DPB_LINKS_SIZES])
{
    return json_pack("{s:I, s:I, s:o, s:o}", "from", (json_int_t)from, "to", (json_int_t)to,
                     "latency_s", latency_to_json(latency), "rate", rates_to_json(rate));
}

/* ---- the series ---------------------------------------------------------------------------- */

/* The member's name without its unit. */
static json_t *key_with(const json_t *key, const char *what)
{
    json_t *made = json_copy((json_t *)(uintptr_t)key);
    const size_t length = strlen(what) - (dpb_ends_on(what, "_s") ? strlen("_s") : 0);
    json_object_set_new(made, "what", json_stringn(what, length));
    return made;
}

/* Moves the windows of a value into the series. */
static void add_value(json_t *document, json_t *key, const char *field, json_t *value)
{
    json_t *row = dpb_series_add(document, key);
    json_object_set(json_object_get(row, "values"), field, json_object_get(value, "windows"));
    json_object_del(value, "windows");
}

/* Adds the values that a member of a row has: a latency, or rates by size. */
static void add_member(json_t *document, const json_t *key, const char *name, json_t *member)
{
    if (json_object_get(member, "windows"))
        add_value(document, key_with(key, name), "latency_s", member);
    dpb_each_item(json_is_array(member) ? member : NULL, i, point) {
        json_t *value = json_object_get(point, "bytes_per_s");
        json_t *sized = key_with(key, name);
        json_object_set(sized, "size", json_object_get(point, "bytes"));
        add_value(document, sized, "bytes_per_s", value);
    }
}

/* A row's numbers and texts are its key. */
static void add_row(json_t *document, const char *part, const char *plugin, json_t *row)
{
    json_t *key = json_pack("{s:s, s:s*}", "part", part, "plugin", plugin);
    dpb_each_member(row, name, value)
        if (json_is_integer(value) || json_is_string(value))
            json_object_set(key, name, value);
    dpb_each_member(row, name, member)
        add_member(document, key, name, member);
    json_decref(key);
}

void dpb_links_series(json_t *document)
{
    static const struct {
        const char *part, *path;
    } lists[] = {{"memory", "memory"},
                 {"cores", "cores.latency"},
                 {"cores", "cores.rate"},
                 {"network", "network.ways"}};
    json_object_set_new(document, "ended", dpb_json_time(time(NULL)));
    json_object_set_new(document, "series", json_array());
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        dpb_each_item(dpb_json_at(document, lists[i].path), k, row)
            add_row(document, lists[i].part, NULL, row);
    add_row(document, "loopback", NULL, json_object_get(document, "loopback"));
    dpb_each_item(json_object_get(document, "devices"), i, plugin) {
        const char *name = dpb_json_text(plugin, "name", "?");
        dpb_each_item(json_object_get(plugin, "host"), k, row)
            add_row(document, "host", name, row);
        dpb_each_item(json_object_get(plugin, "pairs"), k, row)
            add_row(document, "pairs", name, row);
    }
}

/* ---- tables -------------------------------------------------------------------------------- */

enum { COLUMNS = 9, TITLE = 24 };

struct column {
    char title[TITLE];
    const json_t *points;
};
struct table {
    struct column columns[COLUMNS];
    size_t n;
};

static double rate_at(const json_t *points, double bytes)
{
    dpb_each_item(points, i, point)
        if (dpb_json_number(point, "bytes") == bytes)
            return dpb_json_number(point, "bytes_per_s.median");
    return NAN;
}

static void print_table(const struct table *table, FILE *out)
{
    static const char *const names[DPB_LINKS_SIZES] = {"1 KiB",   "4 KiB",  "16 KiB", "64 KiB",
                                                       "256 KiB", "1 MiB",  "4 MiB",  "16 MiB",
                                                       "64 MiB",  "256 MiB"};
    fprintf(out, "  %8s", "GB/s");
    for (size_t c = 0; c < table->n; c++)
        fprintf(out, "  %*s", (int)fmax(8, (double)strlen(table->columns[c].title)),
                table->columns[c].title);
    fputc('\n', out);
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++) {
        bool any = false;
        for (size_t c = 0; c < table->n; c++)
            any |= !isnan(rate_at(table->columns[c].points, (double)dpb_links_size(i)));
        if (!any)
            continue;
        fprintf(out, "  %8s", names[i]);
        for (size_t c = 0; c < table->n; c++) {
            double rate = rate_at(table->columns[c].points, (double)dpb_links_size(i));
            int width = (int)fmax(8, (double)strlen(table->columns[c].title));
            if (isnan(rate))
                fprintf(out, "  %*s", width, "-");
            else
                fprintf(out, "  %*.*f", width, rate < 1e9 ? 3 : rate < 1e10 ? 2 : 1, rate * 1e-9);
        }
        fputc('\n', out);
    }
}

/* A full table is printed and begins anew. */
DPB_PRINTF(4, 5)
static void add_column(struct table *table, const json_t *points, FILE *out, const char *format,
                       ...)
{
    if (json_array_size(points) == 0)
        return;
    if (table->n == COLUMNS) {
        print_table(table, out);
        table->n = 0;
    }
    struct column *column = &table->columns[table->n++];
    column->points = points;
    DPB_PRINT_ARGUMENTS(column->title, sizeof column->title, format);
}

static void flush(struct table *table, FILE *out)
{
    if (table->n > 0)
        print_table(table, out);
    table->n = 0;
}

static void print_memory(const json_t *rows, FILE *out)
{
    struct table table = {.n = 0};
    bool several = false; /* nodes */
    dpb_each_item(rows, i, row)
        several |= !(dpb_json_number(row, "cpu_node") == 0);
    fprintf(out, "\nmemory: one size gone over by so many threads together%s; a copy counts once\n",
            several ? ", node of the threads > node of the memory" : "");
    dpb_each_item(rows, i, row) {
        double threads = dpb_json_number(row, "threads"), cpu = dpb_json_number(row, "cpu_node"),
               memory = dpb_json_number(row, "memory_node");
        char nodes[TITLE / 2] = "";
        if (several && !isnan(cpu) && !isnan(memory))
            snprintf(nodes, sizeof nodes, ", %.0f>%.0f", cpu, memory);
        add_column(&table, json_object_get(row, "read"), out, "read %.0f%s", threads, nodes);
        add_column(&table, json_object_get(row, "copy"), out, "copy %.0f%s", threads, nodes);
    }
    flush(&table, out);
}

/* One line for all pairs that share the same thing. */
static void print_latencies(const json_t *rows, FILE *out)
{
    dpb_each_item(rows, i, row) {
        const char *shared = dpb_json_text(row, "shared", "?");
        double sum = 0, least = INFINITY, most = 0;
        uint32_t n = 0;
        if (dpb_json_find(rows, "shared", json_object_get(row, "shared")) != row)
            continue;
        dpb_each_item(rows, k, other) {
            double latency = dpb_json_number(other, "latency_s.median");
            if (!dpb_json_is(other, "shared", shared) || isnan(latency))
                continue;
            sum += latency;
            least = fmin(least, latency);
            most = fmax(most, latency);
            n++;
        }
        if (n > 0)
            fprintf(out, "  latency, same %s: %.0f ns (%.0f .. %.0f, %u pair%s)\n", shared,
                    sum / n * 1e9, least * 1e9, most * 1e9, n, n == 1 ? "" : "s");
    }
}

static void print_cores(const json_t *cores, FILE *out)
{
    struct table table = {.n = 0};
    if (json_array_size(json_object_get(cores, "latency")) == 0) {
        fputs("\ncores: there is one usable core only\n", out);
        return;
    }
    fputs("\ncores: one copies bytes that another has just written into shared memory\n", out);
    print_latencies(json_object_get(cores, "latency"), out);
    dpb_each_item(json_object_get(cores, "rate"), i, row)
        add_column(&table, json_object_get(row, "rate"), out, "%.0f>%.0f (%.8s)",
                   dpb_json_number(row, "a"), dpb_json_number(row, "b"),
                   dpb_json_text(row, "shared", "?"));
    flush(&table, out);
}

static void print_loopback(const json_t *loopback, FILE *out)
{
    struct table table = {.n = 0};
    fprintf(out,
            "\nloopback: TCP over 127.0.0.1, messages answered by a byte\n"
            "  latency: %.1f us\n",
            dpb_json_number(loopback, "latency_s.median") * 1e6);
    add_column(&table, json_object_get(loopback, "rate"), out, "one way");
    flush(&table, out);
}

static void print_clock(const json_t *device, const char *what, const char *name, FILE *out)
{
    const json_t *clock = dpb_json_at(device, name);
    fprintf(out, ", %s ", what);
    if (isnan(dpb_json_number(clock, "now"))) {
        fputs("clock not told", out);
        return;
    }
    fprintf(out, "%.0f MHz (maximal %.0f", dpb_json_number(clock, "now"),
            dpb_json_number(clock, "maximal"));
    if (!isnan(dpb_json_number(clock, "application")))
        fprintf(out, ", application %.0f", dpb_json_number(clock, "application"));
    fputc(')', out);
}

static void print_paths(const json_t *devices, FILE *out)
{
    size_t k, n = json_array_size(devices);
    if (n < 2)
        return;
    fputs("          ", out);
    for (k = 0; k < n; k++)
        fprintf(out, "%6zu", k);
    fputc('\n', out);
    dpb_each_item(devices, i, device) {
        fprintf(out, "  %8zu", i);
        for (k = 0; k < n; k++) {
            const char *path =
                json_string_value(json_array_get(json_object_get(device, "paths"), k));
            fprintf(out, "%6s", path ? path : "?");
        }
        fputc('\n', out);
    }
}

static void print_copies(const json_t *plugin, FILE *out)
{
    struct table table = {.n = 0};
    dpb_each_item(json_object_get(plugin, "host"), i, row) {
        const char *memory = dpb_json_text(row, "memory", "?");
        double device = dpb_json_number(row, "device");
        fprintf(out, "  latency, host and %.0f, %s: %.1f us to, %.1f us from\n", device, memory,
                dpb_json_number(row, "latency_to_device_s.median") * 1e6,
                dpb_json_number(row, "latency_from_device_s.median") * 1e6);
        add_column(&table, json_object_get(row, "to_device"), out, "H>%.0f %s", device, memory);
        add_column(&table, json_object_get(row, "from_device"), out, "%.0f>H %s", device, memory);
        add_column(&table, json_object_get(row, "both"), out, "H<>%.0f %s", device, memory);
    }
    flush(&table, out);
    dpb_each_item(json_object_get(plugin, "pairs"), i, row) {
        const char *way = dpb_json_text(row, "way", "?");
        double from = dpb_json_number(row, "from"), to = dpb_json_number(row, "to");
        if (!dpb_json_true(row, "possible")) {
            fprintf(out, "  %.0f and %.0f cannot reach each other's memory (%s)\n", from, to, way);
            continue;
        }
        fprintf(out, "  latency, %.0f to %.0f, %s: %.1f us\n", from, to, way,
                dpb_json_number(row, "latency_s.median") * 1e6);
        add_column(&table, json_object_get(row, "one_way"), out, "%.0f>%.0f %s", from, to, way);
        add_column(&table, json_object_get(row, "both"), out, "%.0f<>%.0f %s", from, to, way);
    }
    flush(&table, out);
}

static void print_plugin(const json_t *plugin, FILE *out)
{
    fprintf(out, "\ndevices of %s", dpb_json_text(plugin, "name", "?"));
    const char *missing = dpb_json_text(plugin, "missing", NULL);
    fprintf(out, "%s%s\n", missing ? ": none: " : "", missing ? missing : "");
    dpb_each_item(json_object_get(plugin, "devices"), i, device) {
        fprintf(out, "  %zu: %s at %s, %.1f GiB", i, dpb_json_text(device, "name", "?"),
                dpb_json_text(device, "pci_address", "?"),
                dpb_json_number(device, "memory_bytes") / (1024. * 1024 * 1024));
        print_clock(device, "SM", "driver.sm_mhz", out);
        print_clock(device, "memory", "driver.memory_mhz", out);
        fputc('\n', out);
        const char *unknown = dpb_json_text(device, "driver.problem", NULL);
        if (unknown)
            fprintf(out, "     %s\n", unknown);
    }
    print_paths(json_object_get(plugin, "devices"), out);
    print_copies(plugin, out);
}

static void print_topology(const json_t *topology, FILE *out)
{
    fprintf(out, "topology: %.0f package%s, %.0f cores, %.0f hardware threads\n",
            dpb_json_number(topology, "packages"),
            dpb_json_number(topology, "packages") == 1 ? "" : "s",
            dpb_json_number(topology, "cores"), dpb_json_number(topology, "threads"));
    dpb_each_item(json_object_get(topology, "nodes"), i, row)
        fprintf(out, "  node %.0f: %.1f GiB, threads %s\n", dpb_json_number(row, "node"),
                dpb_json_number(row, "memory_bytes") / (1024. * 1024 * 1024),
                dpb_json_text(row, "threads", "?"));
    dpb_each_item(json_object_get(topology, "pci"), i, row) {
        fprintf(out, "  %s %s %s", dpb_json_text(row, "pci_address", "?"),
                dpb_json_text(row, "kind", "?"),
                dpb_json_text(row, "name", dpb_json_text(row, "ids", "?")));
        dpb_each_item(json_object_get(row, "system_names"), k, name)
            fprintf(out, " %s", json_string_value(name));
        if (!isnan(dpb_json_number(row, "node")))
            fprintf(out, ", node %.0f", dpb_json_number(row, "node"));
        if (!isnan(dpb_json_number(row, "link_bytes_per_s")))
            fprintf(out, ", link %.1f GB/s", dpb_json_number(row, "link_bytes_per_s") * 1e-9);
        fputc('\n', out);
    }
}

void dpb_links_report_print(const json_t *document, FILE *out)
{
    const json_t *part;
    const char *status = dpb_json_text(document, "status", "?");
    if (json_is_object(part = json_object_get(document, "topology")))
        print_topology(part, out);
    if (json_is_array(part = json_object_get(document, "memory")))
        print_memory(part, out);
    if (json_is_object(part = json_object_get(document, "cores")))
        print_cores(part, out);
    if (json_is_object(part = json_object_get(document, "loopback")))
        print_loopback(part, out);
    if (json_is_object(part = json_object_get(document, "network")))
        print_network(part, out);
    dpb_each_item(json_object_get(document, "devices"), i, plugin)
        print_plugin(plugin, out);
    dpb_each_item(json_object_get(document, "warnings"), i, warning)
        fprintf(out, "warning: %s: %s\n", dpb_json_text(warning, "code", "?"),
                dpb_json_text(warning, "text", "?"));
    const json_t *failed = json_object_get(document, "failed");
    dpb_each_item(failed, i, row)
        fprintf(out, "\n%s: failed: %s\n", dpb_json_text(row, "part", "?"),
                dpb_json_text(row, "error", "?"));
    if (strcmp(status, "interrupted") == 0 || (strcmp(status, "ok") != 0 && !failed))
        fprintf(out, "%s: %s\n", status, dpb_json_text(document, "error", "no reason given"));
}
