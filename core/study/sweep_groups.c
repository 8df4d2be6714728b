/* sweep_groups.c - rows of a sweep that differ in strategy and workers alone are a group. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "study/json.h"
#include "study/sweep.h"

void dpb_sweep_group(const json_t *row, char *group, size_t capacity)
{
    struct dpb_text text = dpb_text_in(group, capacity);
    dpb_each_member(json_object_get(row, "cell"), key, value)
        if (strcmp(key, "comm.name") != 0 && strcmp(key, "run.workers") != 0)
            dpb_text_item(&text, ", ", "%s = %s", key, dpb_json_text(value, "", "?"));
}

double dpb_sweep_places(const json_t *row)
{
    const double learners = dpb_json_number(row, "learners");
    return dpb_json_number(row, "workers") / (learners > 1 ? learners : 1);
}

void dpb_sweep_workers(const json_t *row, char *text, size_t capacity)
{
    const double workers = dpb_json_number(row, "workers"), places = dpb_sweep_places(row);
    const double left = dpb_json_number(row, "left");
    if (left < workers) {
        const int n = snprintf(text, capacity, "%.0f of ", left);
        text += n;
        capacity -= (size_t)n;
    }
    if (places == workers)
        snprintf(text, capacity, "%.0f", workers);
    else
        snprintf(text, capacity, "%.0fx%.0f", places, dpb_json_number(row, "learners"));
}

bool dpb_sweep_is_of(const json_t *run, const json_t *row, const char *purpose)
{
    return dpb_json_is(run, "status", "ok") && dpb_json_is(run, "purpose", purpose) &&
           json_equal(json_object_get(run, "cell"), json_object_get(row, "cell"));
}

/* By group as it first appears, within it by cell. */
size_t dpb_sweep_order_rows(const json_t *rows, const json_t **ordered)
{
    size_t n = json_array_size(rows), n_ordered = 0;
    bool *taken = calloc(n + 1, sizeof *taken);
    for (size_t i = 0; taken && i < n; i++) {
        char group[DPB_SWEEP_GROUP], other[DPB_SWEEP_GROUP];
        dpb_sweep_group(json_array_get(rows, i), group, sizeof group);
        for (size_t k = i; k < n; k++) {
            dpb_sweep_group(json_array_get(rows, k), other, sizeof other);
            if (taken[k] || strcmp(group, other) != 0)
                continue;
            taken[k] = true;
            ordered[n_ordered++] = json_array_get(rows, k);
        }
    }
    free(taken);
    return n_ordered;
}
