/*
 * stats.h - statistics of step times, and the gate that decides when step times are steady.
 *
 * Rates come from times: the mean rate is samples / mean(t), never the mean of samples / t.
 */
#ifndef DPB_CORE_BASE_STATS_H
#define DPB_CORE_BASE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rates that differ by less are called equal; the largest width of a useful interval follows. */
#define DPB_MARGIN 0.05

struct dpb_stats {
    size_t n;
    double mean, stddev;                    /* of the sample, n - 1 */
    double min, p10, median, p90, p99, max; /* linear interpolation between order statistics */
    double jitter;                          /* 1.4826 * median |x - median| */
    double uncertainty;                     /* stddev / sqrt(n) */
    double ci95[2];                         /* of the median; dpb_rate_of alone sets it */
};

/* All fields are NaN for an empty series, a value that is not finite, or lack of memory. For one
 * element stddev, jitter and uncertainty are NaN. Allocates. */
void dpb_stats_of(const double *x, size_t n, struct dpb_stats *stats);

/* The 95 % interval of the median of a rising series, n > 1: percentile bootstrap, 10000 resamples,
 * Philox, fixed seed. The order statistics are drawn directly, so the time hardly grows with n:
 * some milliseconds. */
void dpb_median_interval(const double *sorted, size_t n, double ci95[2]);

/* Sorts n numbers, none of them NaN: rising. */
void dpb_sort(double *x, size_t n);

/* A quantile of a rising series, n > 0: linear between the order statistics around (n - 1) p (type
 * 7 of Hyndman and Fan). */
double dpb_quantile_of_sorted(const double *sorted, size_t n, double p);

/* Samples/s from step times. mean = samples / mean(t). All other fields are statistics of the
 * rates, in samples/s; p10 of the rate belongs to the slow steps. A step of no time makes every
 * field NaN. */
void dpb_rate_of(const int64_t *step_ns, size_t n, double samples_per_step, struct dpb_stats *rate);

/* The standard error of the mean of n numbers that may depend on their predecessors, by a circular
 * block bootstrap (Politis, Romano 1992); NaN: too few. *freedom: its degrees of freedom. */
double dpb_block_error(const double *x, size_t n, double *freedom);
/* Half the width of a 95 % interval in standard errors: the quantile 0.975 of Student's t.
 * freedom >= 1. */
double dpb_student(double freedom);

/*
 * The steady-state gate judges windows of `window` steps. A window is steady when its drift (|slope
 * of the least-squares line| * window / mean) and its spread (p90 - p10 over the median) are within
 * limits. Its median must also be within the drift limit of the previous window's. The gate opens
 * after `in_a_row` steady windows. (See docs/measuring.md for why.)
 */
struct dpb_gate_limits {
    uint32_t window, in_a_row; /* 20, 3 */
    double drift, spread;      /* 0.01, 0.05 */
};

/* window >= 2, in_a_row >= 1. Windows do not overlap; the first has no previous one. */
struct dpb_gate; /* opaque; preallocated: adding neither allocates nor makes a system call */
struct dpb_gate *dpb_gate_create(const struct dpb_gate_limits *limits);
void dpb_gate_destroy(struct dpb_gate *gate); /* accepts NULL */
/* Adds a step's time; true once the gate is open. */
bool dpb_gate_add(struct dpb_gate *gate, int64_t step_ns);
/* The drift of a whole series by the same formula, as a share of its mean; 0 for n < 2. */
double dpb_drift_of(const int64_t *step_ns, size_t n);

#endif
