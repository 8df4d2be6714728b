/* core_latency.c - see core_latency.h. */
#include "study/document/core_latency.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/stats.h"

static const double far_factor = 2, least_share = 0.05;

static bool has_turns(const json_t *document)
{
    bool turns = false;
    dpb_each_item(json_object_get(document, "runs"), i, run)
        turns |= json_array_size(dpb_json_at(run, "turns.core_to_core_ns")) > 0;
    return turns;
}

/* Those on the cores and the machine of the first run, from the shortest to the longest; *n of
 * them. @owned. */
static double *sorted_latencies(const json_t *document, bool turns, size_t *n)
{
    const json_t *first = NULL;
    json_t *all = json_array();
    size_t n_all;
    dpb_each_item(json_object_get(document, "runs"), i, run) {
        const json_t *cores = dpb_json_at(run, "core_to_core.cores");
        first = first || !cores ? first : run;
        if (!cores || !json_equal(cores, dpb_json_at(first, "core_to_core.cores")) ||
            strcmp(dpb_json_text(run, "machine.host", ""),
                   dpb_json_text(first, "machine.host", "")) != 0)
            continue;
        if (turns)
            json_array_extend(all, (json_t *)(uintptr_t)dpb_json_at(run, "turns.core_to_core_ns"));
        else
            json_array_append(all, (json_t *)(uintptr_t)dpb_json_at(run, "core_to_core.ns"));
    }
    if (!json_object_get(document, "runs"))
        json_array_append(all, (json_t *)(uintptr_t)dpb_json_at(document, "core_to_core.ns"));
    double *ns = dpb_json_numbers(all, "", &n_all);
    json_decref(all);
    *n = 0;
    for (size_t i = 0; i < n_all; i++)
        if (isfinite(ns[i]))
            ns[(*n)++] = ns[i];
    if (*n > 0)
        dpb_sort(ns, *n);
    return ns;
}

bool dpb_core_latency_changed(const json_t *document, struct dpb_core_latency *latency)
{
    size_t n;
    *latency = (struct dpb_core_latency){.turns = has_turns(document)};
    double *of = sorted_latencies(document, latency->turns, &n);
    latency->most_near_ns = n > 0 ? far_factor * of[0] : NAN;
    for (size_t i = 0; i < n; i++) {
        const bool near = of[i] <= latency->most_near_ns;
        *(near ? &latency->n_near : &latency->n_far) += 1;
        *(near ? &latency->near_ns : &latency->far_ns) += of[i];
    }
    free(of);
    latency->near_ns /= (double)latency->n_near;
    latency->far_ns /= (double)latency->n_far;
    const double least = fmax(2, least_share * (double)n);
    return (double)latency->n_near >= least && (double)latency->n_far >= least;
}

bool dpb_core_latency_differ(const json_t *a, const json_t *b, double *ns_a, double *ns_b)
{
    size_t n_a, n_b;
    double *of_a = sorted_latencies(a, has_turns(a), &n_a),
           *of_b = sorted_latencies(b, has_turns(b), &n_b);
    const bool both = n_a > 0 && n_b > 0;
    *ns_a = both ? of_a[n_a / 2] : NAN;
    *ns_b = both ? of_b[n_b / 2] : NAN;
    free(of_a);
    free(of_b);
    return fmax(*ns_a, *ns_b) > far_factor * fmin(*ns_a, *ns_b);
}

json_t *dpb_core_latency_part(const json_t *row, const struct dpb_core_latency *latency, bool near)
{
    static const char *const lists[] = {"block", "repeat", "samples_per_s"};
    json_t *part = json_copy((json_t *)(uintptr_t)row), *turns = json_object();
    const json_t *of = dpb_json_at(row, "turns.core_to_core_ns");
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        json_t *kept = json_array();
        dpb_each_item(of, k, ns)
            if (json_is_number(ns) && (json_number_value(ns) <= latency->most_near_ns) == near)
                json_array_append(
                    kept,
                    json_array_get(json_object_get(json_object_get(row, "turns"), lists[i]), k));
        json_object_set_new(turns, lists[i], kept);
    }
    json_object_set_new(part, "turns", turns);
    return part;
}
