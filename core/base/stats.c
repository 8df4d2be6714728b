/*
 * stats.c - statistics of a series.
 */
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/random.h"

enum {
    RESAMPLES = 10000,
    STREAM_BOOTSTRAP = 0xB0 /* not of enum dpb_stream: the seed is fixed and used here alone */
};

static const uint64_t bootstrap_seed = UINT64_C(0x6d656469616e);

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void dpb_sort(double *x, size_t n)
{
    qsort(x, n, sizeof *x, compare);
}

double dpb_quantile_of_sorted(const double *sorted, size_t n, double p)
{
    double position = (double)(n - 1) * p;
    size_t below = (size_t)position;
    if (below + 1 >= n)
        return sorted[n - 1];
    double part = position - (double)below;
    return sorted[below] + part * (sorted[below + 1] - sorted[below]);
}

/* ---- bootstrap ----------------------------------------------------------------------------- */

struct draws {
    uint32_t resample, next;
};

/* Marsaglia, Tsang: A simple method for generating gamma variables. ACM TOMS 26(3), 2000. Shape
 * >= 1. */
static double draw_gamma(struct draws *draws, double shape)
{
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        struct dpb_random4 r = dpb_random(bootstrap_seed, (enum dpb_stream)STREAM_BOOTSTRAP,
                                          draws->resample, draws->next++, 0, 0);
        double normal[2];
        dpb_random_normal(r.v[0], r.v[1], normal);
        double v = 1.0 + c * normal[0];
        v = v * v * v;
        double u = ((double)r.v[2] + 1.0) * 0x1p-32;
        if (v > 0 && log(u) < 0.5 * normal[0] * normal[0] + d - d * v + d * log(v))
            return d * v;
    }
}

static double at_share(const double *sorted, size_t n, double share)
{
    size_t i = (size_t)(share * (double)n);
    return sorted[i < n ? i : n - 1];
}

/*
 * The median of one resample. A resample picks x[floor(n u)] for n uniform u, so its m-th smallest
 * element is x[floor(n u_(m))]. u_(m), the m-th smallest of n uniform numbers, has the distribution
 * Beta(m, n - m + 1). Drawing u_(m) directly takes the same time for every n. For an even n the
 * next one, u_(m+1), is the smallest of the n - m numbers above u_(m).
 */
static double resampled_median(const double *sorted, size_t n, uint32_t resample)
{
    struct draws draws = {resample, 0};
    size_t m = (n + 1) / 2;
    double a = draw_gamma(&draws, (double)m), b = draw_gamma(&draws, (double)(n - m + 1));
    double lower = a / (a + b);
    if (n % 2 == 1)
        return at_share(sorted, n, lower);
    struct dpb_random4 r =
        dpb_random(bootstrap_seed, (enum dpb_stream)STREAM_BOOTSTRAP, resample, draws.next, 1, 0);
    double u = ((double)r.v[0] + 1.0) * 0x1p-32;
    double upper = lower + (1.0 - lower) * -expm1(log(u) / (double)(n - m));
    return 0.5 * (at_share(sorted, n, lower) + at_share(sorted, n, upper));
}

void dpb_median_interval(const double *sorted, size_t n, double ci95[2])
{
    double medians[RESAMPLES];
    for (uint32_t i = 0; i < RESAMPLES; i++)
        medians[i] = resampled_median(sorted, n, i);
    dpb_sort(medians, RESAMPLES);
    ci95[0] = dpb_quantile_of_sorted(medians, RESAMPLES, 0.025);
    ci95[1] = dpb_quantile_of_sorted(medians, RESAMPLES, 0.975);
}

/* ---- statistics ---------------------------------------------------------------------------- */

static void mean_and_deviation(const double *x, size_t n, double *mean, double *stddev)
{
    double sum = 0, rest = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    double rough = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        rest += x[i] - rough;
        squares += (x[i] - rough) * (x[i] - rough);
    }
    *mean = rough + rest / (double)n;
    *stddev = sqrt((squares - rest * rest / (double)n) / (double)(n - 1)); /* n = 1: 0 / 0 */
}

static void set_unknown(struct dpb_stats *stats, size_t n)
{
    *stats = (struct dpb_stats){n, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, {NAN, NAN}};
}

void dpb_stats_of(const double *x, size_t n, struct dpb_stats *stats)
{
    set_unknown(stats, n);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return;
    double *sorted = n > 0 ? malloc(n * sizeof *sorted) : NULL;
    if (!sorted)
        return;
    memcpy(sorted, x, n * sizeof *sorted);
    dpb_sort(sorted, n);
    mean_and_deviation(sorted, n, &stats->mean, &stats->stddev);
    stats->min = sorted[0];
    stats->p10 = dpb_quantile_of_sorted(sorted, n, 0.10);
    stats->median = dpb_quantile_of_sorted(sorted, n, 0.50);
    stats->p90 = dpb_quantile_of_sorted(sorted, n, 0.90);
    stats->p99 = dpb_quantile_of_sorted(sorted, n, 0.99);
    stats->max = sorted[n - 1];
    if (n > 1) {
        stats->uncertainty = stats->stddev / sqrt((double)n);
        for (size_t i = 0; i < n; i++)
            sorted[i] = fabs(sorted[i] - stats->median);
        dpb_sort(sorted, n);
        stats->jitter = 1.4826 * dpb_quantile_of_sorted(sorted, n, 0.50);
    }
    free(sorted);
}

void dpb_rate_of(const int64_t *step_ns, size_t n, double samples_per_step, struct dpb_stats *rate)
{
    set_unknown(rate, n);
    double *rates = n > 0 ? malloc(n * sizeof *rates) : NULL;
    if (!rates)
        return;
    double elapsed_s = 0;
    for (size_t i = 0; i < n; i++) {
        double step_s = (double)step_ns[i] * 1e-9;
        rates[i] = step_ns[i] > 0 ? samples_per_step / step_s : NAN;
        elapsed_s += step_s;
    }
    dpb_stats_of(rates, n, rate);
    if (isfinite(rate->mean)) {
        rate->mean = samples_per_step * (double)n / elapsed_s;
        if (n > 1) {
            dpb_sort(rates, n);
            dpb_median_interval(rates, n, rate->ci95);
        }
    }
    free(rates);
}

/* ---- errors of a mean ----------------------------------------------------------------------- */

double dpb_block_error(const double *x, size_t n, double *freedom)
{
    size_t length = (size_t)ceil(sqrt((double)n)), blocks = length > 0 ? n / length : 0;
    *freedom = NAN;
    if (blocks < 2)
        return NAN;
    double sum = 0, block = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i];
        block += i < length ? x[i] : 0;
    }
    for (size_t i = 0; i < n; i++) { /* the block that begins with number i */
        double off = block / (double)length - sum / (double)n;
        squares += off * off;
        block += x[(i + length) % n] - x[i];
    }
    /* The error of the mean of `blocks` blocks, drawn with equal probability; `freedom` corrects
     * for spread about their own mean. */
    *freedom = (double)blocks - 1;
    return sqrt(squares / (double)n / *freedom);
}

/* The integral of cos^power from 0 to `angle`, by Simpson's rule. */
static double integrate(double power, double angle)
{
    enum { PARTS = 64 };
    double sum = 1 + pow(cos(angle), power);
    for (int i = 1; i < PARTS; i++)
        sum += (i % 2 == 1 ? 4 : 2) * pow(cos(angle * i / PARTS), power);
    return sum * angle / (3 * PARTS);
}

/* With t = sqrt(freedom) tan(angle) the probability of |T| <= t is such an integral. It is concave
 * in `angle`, so Newton's steps from below never pass the root. */
double dpb_student(double freedom)
{
    double scale = 2 / sqrt(M_PI) * exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2));
    double angle = atan(1.95 / sqrt(freedom)), step = 1;
    for (int i = 0; i < 20 && step > 1e-12 * angle; i++) {
        step = (0.95 / scale - integrate(freedom - 1, angle)) / pow(cos(angle), freedom - 1);
        angle += step;
    }
    return sqrt(freedom) * tan(angle);
}
