/*
 * Statistics against stats_oracle.h (made by Python's library and exact fractions), and the gate on
 * series whose verdict is known.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "dpbench/random.h"
#include "lib/test.h"
#include "stats_oracle.h"

enum { N_CASES = sizeof oracle_cases / sizeof *oracle_cases };

static void assert_near(const char *name, const char *what, double is, double should)
{
    double error = fabs(is - should);
    if (!(error <= 1e-12 * fabs(should)))
        fail_msg("%s of '%s' is %.17g, should be %.17g", what, name, is, should);
}

TEST(test_oracle)
{
    for (size_t i = 0; i < N_CASES; i++) {
        const struct oracle_case *c = &oracle_cases[i];
        struct dpb_stats s;
        dpb_stats_of(c->x, c->n, &s);
        assert_int_equal(s.n, c->n);
        assert_near(c->name, "mean", s.mean, c->mean);
        assert_near(c->name, "stddev", s.stddev, c->stddev);
        assert_near(c->name, "min", s.min, c->min);
        assert_near(c->name, "p10", s.p10, c->p10);
        assert_near(c->name, "median", s.median, c->median);
        assert_near(c->name, "p90", s.p90, c->p90);
        assert_near(c->name, "p99", s.p99, c->p99);
        assert_near(c->name, "max", s.max, c->max);
        assert_near(c->name, "jitter", s.jitter, c->jitter);
        assert_near(c->name, "uncertainty", s.uncertainty, c->uncertainty);
    }
}

static void interval_of(const double *x, size_t n, double ci95[2])
{
    double *sorted = malloc(n * sizeof *sorted);
    assert_non_null(sorted);
    memcpy(sorted, x, n * sizeof *sorted);
    dpb_sort(sorted, n);
    dpb_median_interval(sorted, n, ci95);
    free(sorted);
}

TEST(test_bootstrap_oracle)
{
    int checked = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        const struct oracle_case *c = &oracle_cases[i];
        const double *bounds = c->ci95_bounds;
        if (bounds[3] == 0)
            continue;
        double ci95[2];
        interval_of(c->x, c->n, ci95);
        if (!(ci95[0] >= bounds[0] && ci95[0] <= bounds[1] && ci95[1] >= bounds[2] &&
              ci95[1] <= bounds[3]))
            fail_msg("ci95 of '%s' is %.17g to %.17g", c->name, ci95[0], ci95[1]);
        checked++;
    }
    assert_int_equal(checked, 2);
}

/* Of an even number the median of a resample lies between two order statistics. For 0 to 5 it is 5
 * with a probability of 0.9 % and at least 4.5 with 3.5 %: 97.5 % are not above 4.5. The 3rd or the
 * 4th smallest alone would be whole numbers. */
TEST(test_bootstrap_even)
{
    const double x[6] = {0, 1, 2, 3, 4, 5};
    double ci95[2];
    dpb_median_interval(x, 6, ci95);
    assert_true(ci95[0] == 0.5 && ci95[1] == 4.5);
}

TEST(test_bootstrap_repeats)
{
    enum { N = 100000 };
    double *x = malloc(N * sizeof *x);
    for (uint32_t i = 0; i < N; i++)
        x[i] = (double)i / N;
    struct dpb_stats s;
    double ci95[2], again[2];
    dpb_stats_of(x, N, &s);
    dpb_median_interval(x, N, ci95);
    dpb_median_interval(x, N, again);
    assert_memory_equal(ci95, again, sizeof ci95);
    /* Evenly spread: 1.96 / (2 sqrt(n)) to either side. */
    double expected = 0.98 / sqrt(N);
    assert_true(fabs(s.median - ci95[0] - expected) < 0.05 * expected);
    assert_true(fabs(ci95[1] - s.median - expected) < 0.05 * expected);
    for (int i = 0; i < N; i++)
        x[i] = 0.1;
    dpb_stats_of(x, N, &s);
    assert_true(s.mean == 0.1); /* a plain sum is off by 2e-12 */
    free(x);
}

TEST(test_degenerate)
{
    struct dpb_stats s;
    dpb_stats_of(NULL, 0, &s);
    assert_int_equal(s.n, 0);
    assert_true(isnan(s.mean) && isnan(s.median) && isnan(s.max));
    double one = 3;
    dpb_stats_of(&one, 1, &s);
    assert_true(s.mean == 3 && s.median == 3 && s.p99 == 3 && s.min == 3 && s.max == 3);
    assert_true(isnan(s.stddev) && isnan(s.uncertainty) && isnan(s.jitter));
    double bad[3] = {1, NAN, 2};
    dpb_stats_of(bad, 3, &s);
    assert_true(isnan(s.mean) && isnan(s.min));
    bad[1] = INFINITY;
    dpb_stats_of(bad, 3, &s);
    assert_true(isnan(s.mean) && isnan(s.min));
}

TEST(test_rate)
{
    const int64_t step_ns[4] = {1000000000, 2000000000, 1000000000, 4000000000};
    struct dpb_stats rate;
    dpb_rate_of(step_ns, 4, 100, &rate);
    assert_near("rate", "mean", rate.mean, 400.0 / 8); /* not the mean of the rates, 68.75 */
    assert_near("rate", "median", rate.median, 75);
    assert_near("rate", "min", rate.min, 25);
    assert_near("rate", "max", rate.max, 100);
    assert_near("rate", "p10", rate.p10, 32.5);
    assert_near("rate", "jitter", rate.jitter, 1.4826 * 25);
    double ci95[2];
    interval_of((const double[]){100, 50, 100, 25}, 4, ci95);
    assert_memory_equal(rate.ci95, ci95, sizeof ci95);
    dpb_rate_of(step_ns, 1, 100, &rate);
    assert_true(rate.mean == 100 && isnan(rate.ci95[0]));
    const int64_t stopped[2] = {1000, 0};
    dpb_rate_of(stopped, 2, 100, &rate);
    assert_true(isnan(rate.mean) && isnan(rate.max));
}

/* ---- the gate ------------------------------------------------------------------------------ */

static const struct dpb_gate_limits usual = {20, 3, 0.01, 0.05};

typedef double series(int step);

/* Uniform in [-1, 1), a function of the step. */
static double noise(int step)
{
    return 2.0 * (double)dpb_random_uniform(
                     dpb_random(9, DPB_STREAM_SHUFFLE, (uint32_t)step, 0, 0, 0).v[0]) -
           1.0;
}

static double steady(int step)
{
    return 1e6 * (1 + 0.004 * noise(step));
}

static double rising(int step) /* 2 % a window */
{
    return 1e6 * (1 + 0.001 * step + 0.002 * noise(step));
}

static double falling(int step) /* 2 % a window, for ever */
{
    return 1e9 * exp(-0.001 * step);
}

static double staircase(int step) /* flat within each window, 3 % from one to the next */
{
    return 1e6 * pow(1.03, step / 20);
}

static double bimodal(int step) /* two speeds, 20 % apart, without a slope: 1 0 0 1 */
{
    return step % 4 == 1 || step % 4 == 2 ? 1.0e6 : 1.2e6;
}

static double noisy(int step) /* 30 % to either side */
{
    return 1e6 * (1 + 0.3 * noise(step));
}

static double outlier(int step)
{
    return step == 30 ? 1e7 : steady(step);
}

static double warm_up(int step) /* ten times slower, settling by step 50 */
{
    return steady(step) * (1 + 9 * exp(-step / 7.0));
}

static double
one_slow_step_in_20(int step) /* p90 does not see it; nor would a user wait for less */
{
    return step % 20 == 10 ? 1.05e6 : steady(step);
}

/* The first step after which the gate is open; -1: never. */
static int opens_at(series *of, int steps)
{
    struct dpb_gate *gate = dpb_gate_create(&usual);
    int at = -1;
    for (int step = 0; step < steps; step++) {
        bool open = dpb_gate_add(gate, (int64_t)of(step));
        if (at >= 0)
            assert_true(open); /* once open, open */
        if (open && at < 0)
            at = step + 1;
    }
    dpb_gate_destroy(gate);
    return at;
}

TEST(test_gate)
{
    assert_int_equal(opens_at(steady, 1000), 60);
    assert_int_equal(opens_at(one_slow_step_in_20, 1000), 60);
    assert_int_equal(opens_at(outlier, 1000),
                     100); /* the window of steps 20 to 39 starts it anew */
    int warm = opens_at(warm_up, 1000);
    assert_in_range(warm, 100, 140);
    assert_int_equal(warm % 20, 0);
    assert_int_equal(opens_at(rising, 500), -1);
    assert_int_equal(opens_at(falling, 3000), -1);
    assert_int_equal(opens_at(staircase, 1000), -1);
    assert_int_equal(opens_at(bimodal, 1000), -1);
    assert_int_equal(opens_at(noisy, 1000), -1);
}

TEST(test_gate_limits)
{
    struct dpb_gate_limits limits = {2, 1, 0.01, 0.05};
    struct dpb_gate *gate = dpb_gate_create(&limits);
    assert_false(dpb_gate_add(gate, 100));
    assert_true(dpb_gate_add(gate, 100));
    dpb_gate_destroy(gate);
    dpb_gate_destroy(NULL);
}

TEST(test_drift)
{
    int64_t ramp[101];
    for (int i = 0; i <= 100; i++)
        ramp[i] = 1000 + 2 * i; /* slope 2, mean 1100 */
    assert_near("ramp", "drift", dpb_drift_of(ramp, 101), 2.0 * 101 / 1100);
    for (int i = 0; i <= 100; i++)
        ramp[i] = 1200 - 2 * i;
    assert_near("falling ramp", "drift", dpb_drift_of(ramp, 101), 2.0 * 101 / 1100);
    const int64_t flat[3] = {5, 5, 5}, zero[3] = {0, 0, 0};
    assert_true(dpb_drift_of(flat, 3) == 0 && dpb_drift_of(zero, 3) == 0);
    assert_true(dpb_drift_of(ramp, 1) == 0 && dpb_drift_of(NULL, 0) == 0);
}

TEST_MAIN(NULL, NULL)
