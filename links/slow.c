/* slow.c - see slow.h. */
#include "links/slow.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/stats.h"
#include "record/series.h"

enum { ALL = -1 }; /* the others, as one end of a way */

struct way {
    const json_t *value; /* bytes_per_s, at the size */
    double rate;
    int from, to;
    bool named; /* belongs to a row of the slow */
};

struct ways {
    struct way *ways;
    size_t n;
    int n_machines;
    double bytes; /* of a message */
    double *x;    /* room for n numbers, or a way's windows */
    json_t *slow;
};

/* A machine's direction, or a way. */
struct candidate {
    int from, to;
    size_t n; /* ways */
    struct dpb_estimate estimate;
    double low, high, others;
};

/* ---- reading ------------------------------------------------------------------------------- */

static const json_t *point_of(const json_t *way, double bytes)
{
    dpb_each_item(json_object_get(way, "rate"), i, point)
        if (dpb_json_number(point, "bytes") == bytes)
            return point;
    return NULL;
}

/* The largest size that all ways have; NaN: none. */
static double common_bytes(const json_t *list)
{
    double bytes = NAN;
    dpb_each_item(json_object_get(json_array_get(list, 0), "rate"), i, point) {
        const double candidate = dpb_json_number(point, "bytes");
        bool common = true;
        dpb_each_item(list, k, way)
            common = common && point_of(way, candidate);
        bytes = common ? candidate : bytes;
    }
    return bytes;
}

static bool read_ways(const json_t *network, struct ways *all)
{
    const json_t *list = json_object_get(network, "ways");
    all->n = json_array_size(list);
    all->n_machines = (int)json_array_size(json_object_get(network, "machines"));
    all->bytes = common_bytes(list);
    if (all->n != (size_t)all->n_machines * (size_t)(all->n_machines - 1) || isnan(all->bytes))
        return false;
    all->ways = calloc(all->n, sizeof *all->ways);
    all->x = calloc(all->n, sizeof *all->x);
    if (!all->ways || !all->x)
        return false;
    dpb_each_item(list, i, way) {
        const json_t *value = json_object_get(point_of(way, all->bytes), "bytes_per_s");
        all->ways[i] = (struct way){.value = value,
                                    .rate = dpb_json_number(value, "median"),
                                    .from = (int)dpb_json_number(way, "from"),
                                    .to = (int)dpb_json_number(way, "to")};
    }
    return true;
}

/* ---- judging ------------------------------------------------------------------------------- */

static bool is_of(const struct way *way, const struct candidate *candidate)
{
    return (candidate->from == ALL || candidate->from == way->from) &&
           (candidate->to == ALL || candidate->to == way->to);
}

/* Of a way: every other one. Of a machine: those between other machines. */
static bool is_other(const struct way *way, const struct candidate *candidate)
{
    const int machine = candidate->from == ALL ? candidate->to : candidate->from;
    if (candidate->from != ALL && candidate->to != ALL)
        return !is_of(way, candidate);
    return way->from != machine && way->to != machine;
}

static void estimate(struct ways *all, struct candidate *candidate)
{
    struct dpb_stats others;
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++)
        if (!all->ways[i].named && is_other(&all->ways[i], candidate))
            all->x[n++] = all->ways[i].rate;
    dpb_stats_of(all->x, n, &others);
    candidate->others = n > 0 ? others.median : NAN;
    candidate->n = 0;
    const json_t *windows = NULL;
    for (size_t i = 0; i < all->n; i++) {
        if (all->ways[i].named || !is_of(&all->ways[i], candidate))
            continue;
        all->x[candidate->n++] = all->ways[i].rate;
        windows = json_object_get(all->ways[i].value, "windows");
    }
    if (candidate->from != ALL && candidate->to != ALL) {
        double *x = dpb_json_numbers(windows, "", &n);
        dpb_series_estimate(x, n, &candidate->estimate);
        free(x);
    } else {
        dpb_series_estimate(all->x, candidate->n, &candidate->estimate);
    }
    dpb_estimate_interval(&candidate->estimate, &candidate->low, &candidate->high);
}

/* False, too, where an end is not known. */
static bool is_slow(const struct candidate *candidate)
{
    return candidate->high < DPB_LINKS_SLOW * candidate->others;
}

static json_t *machine_to_json(int machine)
{
    return machine == ALL ? json_null() : json_integer(machine);
}

static void name(struct ways *all, const struct candidate *candidate)
{
    for (size_t i = 0; i < all->n; i++)
        all->ways[i].named = all->ways[i].named || is_of(&all->ways[i], candidate);
    json_array_append_new(all->slow,
                          json_pack("{s:o, s:o, s:I, s:I, s:{s:o, s:o, s:o}, s:o}",       //
                                    "from", machine_to_json(candidate->from),             //
                                    "to", machine_to_json(candidate->to),                 //
                                    "ways", (json_int_t)candidate->n,                     //
                                    "size", (json_int_t)all->bytes,                       //
                                    "bytes_per_s",                                        //
                                    "mean", dpb_json_real(exp(candidate->estimate.mean)), //
                                    "low", dpb_json_real(candidate->low),                 //
                                    "high", dpb_json_real(candidate->high),               //
                                    "others_bytes_per_s", dpb_json_real(candidate->others)));
}

/* Names the slowest machine and direction, if one is slow. */
static bool name_machine(struct ways *all)
{
    struct candidate slowest = {.high = INFINITY, .others = NAN};
    for (int i = 0; i < 2 * all->n_machines; i++) {
        struct candidate candidate = {.from = i % 2 == 0 ? i / 2 : ALL,
                                      .to = i % 2 == 0 ? ALL : i / 2};
        estimate(all, &candidate);
        if (candidate.n > 1 && is_slow(&candidate) && candidate.high < slowest.high)
            slowest = candidate;
    }
    if (isinf(slowest.high))
        return false;
    name(all, &slowest);
    return true;
}

json_t *dpb_links_slow(const json_t *network)
{
    struct ways all = {.slow = json_array()};
    const bool complete = read_ways(network, &all);
    while (complete && name_machine(&all))
        ;
    for (size_t i = 0; complete && i < all.n; i++) {
        struct candidate candidate = {.from = all.ways[i].from, .to = all.ways[i].to};
        if (all.ways[i].named)
            continue;
        estimate(&all, &candidate);
        if (is_slow(&candidate))
            name(&all, &candidate);
    }
    free(all.ways);
    free(all.x);
    if (complete)
        return all.slow;
    json_decref(all.slow);
    return json_null();
}

/* ---- printing ------------------------------------------------------------------------------ */

static void print_machine(const json_t *network, const json_t *machine, FILE *out)
{
    const json_t *row =
        json_array_get(json_object_get(network, "machines"), (size_t)json_integer_value(machine));
    fprintf(out, "machine %lld (%s)", (long long)json_integer_value(machine),
            dpb_json_text(row, "host", "?"));
}

void dpb_links_slow_print(const json_t *network, FILE *out)
{
    const json_t *slow = json_object_get(network, "slow");
    if (json_is_array(slow) && json_array_size(slow) == 0)
        fprintf(out,
                "  nothing is slow: no machine and no way has less than %.0f %% of the others\n",
                100 * DPB_LINKS_SLOW);
    dpb_each_item(slow, i, row) {
        const json_t *from = json_object_get(row, "from"), *to = json_object_get(row, "to");
        fputs("  slow: ", out);
        print_machine(network, json_is_null(from) ? to : from, out);
        fputs(json_is_null(from) ? " receives" : json_is_null(to) ? " sends" : " to ", out);
        if (!json_is_null(from) && !json_is_null(to))
            print_machine(network, to, out);
        fprintf(out, " %.4g Gbit/s (%.4g .. %.4g); the others %.4g\n",
                8e-9 * dpb_json_number(row, "bytes_per_s.mean"),
                8e-9 * dpb_json_number(row, "bytes_per_s.low"),
                8e-9 * dpb_json_number(row, "bytes_per_s.high"),
                8e-9 * dpb_json_number(row, "others_bytes_per_s"));
    }
}
