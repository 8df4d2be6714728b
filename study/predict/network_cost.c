/* network_cost.c - see network_cost.h. */
#include "study/predict/network_cost.h"

#include <math.h>

#include "base/json.h"

/* The point of the largest messages of a way; NULL: there is none. */
static const json_t *largest_of(const json_t *way)
{
    const json_t *rate = json_object_get(way, "rate");
    return json_array_get(rate, json_array_size(rate) - 1);
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
