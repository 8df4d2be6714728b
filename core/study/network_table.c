/* network_table.c - see network_table.h. */
#include "study/network_table.h"

#include <math.h>

#include "study/json.h"

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

void dpb_network_report_print(const json_t *network, FILE *out)
{
    fputs("network: TCP from machine to machine, one way at a time; messages answered by a byte\n",
          out);
    dpb_each_item(json_object_get(network, "machines"), i, machine)
        fprintf(out, "  %zu: %s, interface %s\n", i, dpb_json_text(machine, "host", "?"),
                dpb_json_text(machine, "interface", "?"));
    print_matrix(network, "latency us, to", latency_us, out);
    print_matrix(network, "Gbit/s, to", largest_gbit_per_s, out);
}

/* A message takes twice the latency, with its answer, beside the time of its bytes. */
static double bandwidth_of(const json_t *way, double latency_s)
{
    const json_t *point = largest_of(way);
    const double bytes = dpb_json_number(point, "bytes");
    const double rate = dpb_json_number(point, "bytes_per_s.median");
    const double rest_s = bytes / rate - 2 * latency_s;
    return rest_s > 0.5 * bytes / rate ? bytes / rest_s : rate;
}

bool dpb_network_slowest(const json_t *network, struct dpb_cost *cost, double *error)
{
    *cost = (struct dpb_cost){.bytes_per_s = INFINITY};
    dpb_each_item(json_object_get(network, "ways"), i, way) {
        const double latency_s = dpb_json_number(way, "latency_s.median");
        const double bytes_per_s = bandwidth_of(way, latency_s);
        const json_t *rate = json_object_get(largest_of(way), "bytes_per_s");
        if (!(latency_s > 0) || !(bytes_per_s > 0) || !isfinite(bytes_per_s))
            return false;
        cost->latency_s = fmax(cost->latency_s, latency_s);
        if (bytes_per_s >= cost->bytes_per_s)
            continue;
        cost->bytes_per_s = bytes_per_s;
        *error = (dpb_json_number(rate, "most") - dpb_json_number(rate, "least")) /
                 dpb_json_number(rate, "median") / 2;
    }
    return isfinite(cost->bytes_per_s);
}
