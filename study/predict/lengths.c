/* lengths.c - see lengths.h. */
#include "study/predict/lengths.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/stats.h"
#include "plan/delay.h"

/* A distribution in so many values. The largest value of a normal one is 3.3 deviations above the
 * mean, as is the largest of 1,024 draws on average. */
enum { VALUES = 1024, MOST_SUMS = 65536 };
static const double least_factor = 0.1;

/* The standard normal distribution's quantile, by bisection. */
static double normal_quantile(double p)
{
    double low = -9, high = 9;
    for (int i = 0; i < 50; i++) {
        const double middle = (low + high) / 2;
        *(erfc(-middle / sqrt(2)) / 2 < p ? &low : &high) = middle;
    }
    return low;
}

dpb_status dpb_lengths_normal(double spread, struct dpb_lengths *made)
{
    const size_t n = spread > 0 ? VALUES : 1;
    *made = (struct dpb_lengths){.factors = calloc(n, sizeof(double)), .n = n};
    DPB_TRY(dpb_allocated(made->factors));
    for (size_t i = 0; i < n; i++)
        made->factors[i] =
            fmax(least_factor, 1 + spread * normal_quantile(((double)i + 0.5) / (double)n));
    return DPB_OK;
}

/* ---- delays --------------------------------------------------------------------------------- */

/* Rising values in at most so many: means of neighbours. */
static size_t thin(double *values, size_t n, size_t most)
{
    if (n <= most)
        return n;
    for (size_t i = 0; i < most; i++) {
        const size_t from = i * n / most, to = (i + 1) * n / most;
        double sum = 0;
        for (size_t k = from; k < to; k++)
            sum += values[k];
        values[i] = sum / (double)(to - from);
    }
    return most;
}

/* The integral of the delay as a function of u (delay.h) from 0 to u. */
static double integral(const struct dpb_delay *delay, double u)
{
    const double t = delay->time_ns / 1e9, left = 1 - 1 / delay->shape;
    if (delay->kind == DPB_DELAY_CONSTANT)
        return t * u;
    if (delay->kind == DPB_DELAY_EXPONENTIAL)
        return u > 0 ? t * u * (1 - log(u)) : 0;
    if (delay->kind == DPB_DELAY_CHANCE)
        return t * fmin(u, delay->shape);
    return t * pow(u, left) / left;
}

/* Rising, each the mean over its part of the distribution, so that their mean is the delay's.
 * @owned; NULL: out of memory. */
static double *values_of(const struct dpb_delay *delay, size_t *n)
{
    const bool trace = delay->kind == DPB_DELAY_TRACE;
    *n = trace ? delay->n_trace : delay->kind == DPB_DELAY_CONSTANT ? 1 : VALUES;
    double *values = calloc(*n, sizeof *values);
    for (size_t i = 0; i < *n && values; i++) {
        const double u = 1 - (double)i / (double)*n, after = 1 - (double)(i + 1) / (double)*n;
        values[i] = trace ? (double)delay->trace_ns[i] / 1e9
                          : (double)*n * (integral(delay, u) - integral(delay, after));
    }
    if (trace && values) {
        dpb_sort(values, *n);
        *n = thin(values, *n, VALUES);
    }
    return values;
}

dpb_status dpb_lengths_delay(struct dpb_lengths *lengths, double compute_s,
                             const struct dpb_delay *delay)
{
    size_t n_delays;
    double *delays_s = values_of(delay, &n_delays);
    DPB_TRY(dpb_allocated(delays_s));
    const size_t n_factors = thin(lengths->factors, lengths->n, MOST_SUMS / n_delays);
    const size_t n = n_factors * n_delays;
    double *sums = calloc(n, sizeof *sums);
    for (size_t i = 0; i < n && sums; i++)
        sums[i] = lengths->factors[i / n_delays] * compute_s + delays_s[i % n_delays];
    free(delays_s);
    DPB_TRY(dpb_allocated(sums));
    dpb_sort(sums, n);
    const size_t n_sums = thin(sums, n, VALUES);
    free(lengths->factors);
    *lengths = (struct dpb_lengths){
        .factors = calloc(n_sums, sizeof(double)), .delays_s = sums, .n = n_sums};
    DPB_TRY(dpb_allocated(lengths->factors));
    for (size_t i = 0; i < n_sums; i++) {
        lengths->factors[i] = fmin(1, sums[i] / compute_s);
        sums[i] = fmax(0, sums[i] - compute_s);
    }
    return DPB_OK;
}

double dpb_lengths_mean_delay(const struct dpb_lengths *lengths, double compute_s)
{
    double sum_s = 0;
    for (size_t i = 0; i < lengths->n && lengths->delays_s; i++)
        sum_s += compute_s * (lengths->factors[i] - 1) + lengths->delays_s[i];
    return sum_s / (double)lengths->n;
}

void dpb_lengths_release(struct dpb_lengths *lengths)
{
    free(lengths->factors);
    free(lengths->delays_s);
    *lengths = (struct dpb_lengths){0};
}
