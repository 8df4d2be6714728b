/*
 * gate.c - the steady-state gate: judges each window by its drift, its spread and its distance from
 * the window before.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/stats.h"

struct dpb_gate {
    struct dpb_gate_limits limits;
    uint32_t filled;      /* steps in the current window */
    uint32_t steady;      /* windows in a row */
    double median_before; /* of the window before; NAN: none */
    bool open;
    double *sorted;  /* the steps of the current window, by size */
    int64_t steps[]; /* by time; `sorted` is behind them */
};

struct dpb_gate *dpb_gate_create(const struct dpb_gate_limits *limits)
{
    assert(limits->window >= 2 && limits->in_a_row >= 1);
    const size_t each = sizeof(int64_t) + sizeof(double);
    struct dpb_gate *gate = calloc(1, sizeof *gate + limits->window * each);
    if (dpb_allocated(gate) != DPB_OK)
        return NULL;
    gate->limits = *limits;
    gate->median_before = NAN;
    gate->sorted = (double *)(void *)(gate->steps + limits->window);
    return gate;
}

void dpb_gate_destroy(struct dpb_gate *gate)
{
    free(gate);
}

/* Inserts into the sorted times. Sorting at the window's end would make that step slow.
 */
static void insert_sorted(double *sorted, uint32_t n, double value)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sorted[middle] <= value)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(sorted + low + 1, sorted + low, (n - low) * sizeof *sorted);
    sorted[low] = value;
}

static bool window_is_steady(const struct dpb_gate *gate, double median)
{
    const struct dpb_gate_limits *limits = &gate->limits;
    uint32_t n = limits->window;
    double spread = dpb_quantile_of_sorted(gate->sorted, n, 0.90) -
                    dpb_quantile_of_sorted(gate->sorted, n, 0.10);
    if (!(spread <= limits->spread * median) || dpb_drift_of(gate->steps, n) > limits->drift)
        return false;
    return isnan(gate->median_before) ||
           fabs(median - gate->median_before) <= limits->drift * gate->median_before;
}

bool dpb_gate_add(struct dpb_gate *gate, int64_t step_ns)
{
    if (gate->open)
        return true;
    insert_sorted(gate->sorted, gate->filled, (double)step_ns);
    gate->steps[gate->filled++] = step_ns;
    if (gate->filled < gate->limits.window)
        return false;
    double median = dpb_quantile_of_sorted(gate->sorted, gate->filled, 0.50);
    gate->steady = window_is_steady(gate, median) ? gate->steady + 1 : 0;
    gate->median_before = median;
    gate->filled = 0;
    gate->open = gate->steady >= gate->limits.in_a_row;
    return gate->open;
}

double dpb_drift_of(const int64_t *step_ns, size_t n)
{
    if (n < 2)
        return 0;
    double mean = 0, slope = 0, middle = (double)(n - 1) / 2;
    for (size_t i = 0; i < n; i++)
        mean += (double)step_ns[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        slope += ((double)i - middle) * ((double)step_ns[i] - mean);
    double count = (double)n;
    slope /= count * (count * count - 1) / 12;
    return mean > 0 ? fabs(slope) * count / mean : 0;
}
