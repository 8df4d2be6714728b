/*
 * test_series.c - the judge of thresholds against intervals that are computed here, with quantiles
 * of Student's t from a table; the demands of the command line; and batches of consecutive numbers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lib/capture.h"
#include "lib/says.h"
#include "lib/test.h"
#include "record/demands.h"
#include "record/series.h"

/* ---- the judge ----------------------------------------------------------------------------- */

/* The quantile 0.975 by degrees of freedom: NIST/SEMATECH e-Handbook, table 1.3.6.7.2. */
static const double student[] = {NAN,   12.706, 4.303, 3.182, 2.776,
                                 2.571, 2.447,  2.365, 2.306, 2.262};

static void interval_of(const double *x, size_t n, double *low, double *high)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        mean += log(x[i]) / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (log(x[i]) - mean) * (log(x[i]) - mean);
    const double half = student[n - 1] * sqrt(squares / (double)(n - 1) / (double)n);
    *low = exp(mean - half);
    *high = exp(mean + half);
}

/* Four digits of the table leave an error of 0.02 % of the interval's half width. */
static void expect_ends(const double *x, size_t n)
{
    double low, high;
    interval_of(x, n, &low, &high);
    const double slack = 1e-3 * (high - low);
    const struct {
        double limit;
        dpb_judged least, most;
    } cases[] = {{low - slack, DPB_JUDGED_HOLDS, DPB_JUDGED_FAILS},
                 {low + slack, DPB_JUDGED_OPEN, DPB_JUDGED_OPEN},
                 {high - slack, DPB_JUDGED_OPEN, DPB_JUDGED_OPEN},
                 {high + slack, DPB_JUDGED_FAILS, DPB_JUDGED_HOLDS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(dpb_demand_judge(x, n, cases[i].limit, false), cases[i].least);
        assert_int_equal(dpb_demand_judge(x, n, cases[i].limit, true), cases[i].most);
    }
}

TEST(both_ends_decide)
{
    const double x[] = {9.1, 10.4, 9.7, 11.2, 10.0, 9.9, 10.1, 8.8, 10.6, 9.5};
    for (size_t n = 2; n <= 10; n++)
        expect_ends(x, n);
}

TEST(without_an_interval_nothing_is_decided)
{
    const double bad[] = {NAN, INFINITY, 0, -1};
    double x[3] = {10, 10, 10};
    assert_int_equal(dpb_demand_judge(x, 0, 1, false), DPB_JUDGED_OPEN);
    assert_int_equal(dpb_demand_judge(x, 1, 1, false), DPB_JUDGED_OPEN);
    assert_int_equal(dpb_demand_judge(x, 1, 1000, false), DPB_JUDGED_OPEN);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        x[1] = bad[i];
        assert_int_equal(dpb_demand_judge(x, 3, 1, false), DPB_JUDGED_OPEN);
        assert_int_equal(dpb_demand_judge(x, 3, 1000, false), DPB_JUDGED_OPEN);
        assert_int_equal(dpb_demand_judge(x, 3, 1000, true), DPB_JUDGED_OPEN);
    }
}

/* ---- demands ------------------------------------------------------------------------------- */

static const char document_text[] =
    "{\"series\": ["
    "{\"key\": {\"size\": 65536}, \"values\": {\"bus_gb_per_s\": [10, 11, 12], \"time_us\": [5, 6, "
    "7]}},"
    "{\"key\": {\"size\": 67108864}, \"values\": {\"bus_gb_per_s\": [20, 21, 22]}},"
    "{\"key\": {\"size\": 1024, \"model\": \"lenet\"}, \"values\": {\"bus_gb_per_s\": [1, null]}},"
    "{\"key\": \"none\", \"values\": 3}, 7]}";

/* Judges demands, "--least TEXT" or "--most TEXT", ended by NULL. Returns what it said. */
static const char *judge(dpb_status should, const char *const *words)
{
    json_t *demands = NULL, *document = json_loads(document_text, 0, NULL);
    assert_non_null(document);
    capture_begin();
    for (size_t i = 0; words[i]; i += 2)
        assert_int_equal(dpb_demand_parse("comm", words[i], words[i + 1], &demands), DPB_OK);
    const dpb_status status = dpb_demands_judge(demands, document);
    const char *text = capture_end();
    json_decref(demands);
    json_decref(document);
    if (status != should)
        fail_msg("%s: %s, not %s\n%s", words[1], dpb_status_name(status), dpb_status_name(should),
                 text);
    return text;
}

TEST(rows_that_match_are_judged_and_named)
{
    const char *text = judge(DPB_OK, WORDS("--least", "bus_gb_per_s@size=64KiB=5"));
    EXPECT_WORDS("holds", text, "--least bus_gb_per_s@size=64KiB=5 holds in 1 row\n");
    text = judge(DPB_REGRESSION, WORDS("--least", "bus_gb_per_s@size=64MiB=30GB/s"));
    EXPECT_WORDS("fails", text, "error: bus_gb_per_s at size=67108864 is 20.98 [", "less than 30");
    text = judge(DPB_REGRESSION, WORDS("--most", "bus_gb_per_s@size=64MiB=40Gbit/s"));
    EXPECT_WORDS("most", text, "bus_gb_per_s at size=67108864", "more than 5\n");
    text = judge(DPB_NOT_DECIDED, WORDS("--least", "bus_gb_per_s@size=65536=11"));
    EXPECT_WORDS("open", text, "at size=65536", "3 repeats do not decide");
    text = judge(DPB_NOT_DECIDED, WORDS("--least", "bus_gb_per_s@model=lenet=0.1"));
    EXPECT_WORDS("null", text, "size=1024 model=lenet has no interval: a repeat has no value");
    judge(DPB_OK, WORDS("--most", "time_us=20us"));
    judge(DPB_OK, WORDS("--most", "time_us=20"));
    judge(DPB_REGRESSION, WORDS("--most", "time_us=0.001ms"));
    text = judge(DPB_REGRESSION, WORDS("--least", "bus_gb_per_s=15"));
    EXPECT_WORDS("all rows", text, "at size=65536 is", "size=1024 model=lenet has no interval");
}

TEST(the_first_in_the_order_of_exit_codes_counts)
{
    static const char fails[] = "bus_gb_per_s@size=64KiB=20", open[] = "bus_gb_per_s@size=64KiB=11",
                      holds[] = "bus_gb_per_s@size=64KiB=1", none[] = "bus_gb_per_s@size=8=1";
    judge(DPB_NOT_DECIDED, WORDS("--least", holds, "--least", open));
    judge(DPB_REGRESSION, WORDS("--least", open, "--least", fails, "--least", holds));
    const char *text = judge(DPB_USAGE, WORDS("--least", fails, "--least", none, "--least", open));
    EXPECT_WORDS("all are named", text, "less than 20",
                 "no row has this field and these keys; "
                 "keys are size, model",
                 "do not decide");
}

TEST(what_is_no_demand_is_refused)
{
    static const struct {
        const char *command, *text, *says;
    } cases[] = {
        {"comm", "bus_gb_per_s", "takes FIELD[@KEY=VALUE,...]=NUMBER"},
        {"comm", "=3", "takes FIELD"},
        {"comm", "a=1@b", "takes FIELD"},
        {"comm", "busbw=1", "its fields are algorithm_gb_per_s, bus_gb_per_s, time_us"},
        {"comm", "samples_per_s=1", "`dpbench comm` has no field 'samples_per_s'"},
        {"comm", "bus_gb_per_s@bytes=8=1", "no key 'bytes'; keys are operation,size,model"},
        {"comm", "bus_gb_per_s@size=1", "'size' is not KEY=VALUE"},
        {"comm", "bus_gb_per_s=0", "'0' is no number above 0 or rate"},
        {"comm", "bus_gb_per_s=nan", "'nan' is no number"},
        {"comm", "bus_gb_per_s=10us", "'10us' is no number"},
        {"comm", "time_us=1GB/s", "or time, as in 50us"},
        {"run", "samples_per_s=10Gbit", "'10Gbit' is no number above 0\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *demands = NULL;
        dpb_first_error_clear();
        capture_begin();
        const dpb_status status =
            dpb_demand_parse(cases[i].command, "--least", cases[i].text, &demands);
        const char *text = capture_end();
        if (status != DPB_USAGE || !strstr(text, cases[i].says))
            fail_msg("%s: %s: %s", cases[i].text, dpb_status_name(status), text);
        json_decref(demands);
    }
}

/* ---- batches ------------------------------------------------------------------------------- */

static void add_one(void *counts, size_t batch, const double *x, size_t n)
{
    static double next;
    if (batch == 0)
        next = x[0];
    assert_true(x[0] == next); /* none is left out, none comes twice */
    next += (double)n;
    ((size_t *)counts)[batch] = n;
}

TEST(batches_are_consecutive_and_alike)
{
    double x[137];
    for (size_t i = 0; i < 137; i++)
        x[i] = (double)i;
    for (size_t n = 0; n <= 137; n++) {
        size_t counts[DPB_SERIES_REPEATS] = {0}, all = 0;
        const size_t n_batches = dpb_series_batches(x, n, add_one, counts);
        assert_int_equal(n_batches, n < 10 ? n : 10);
        for (size_t i = 0; i < n_batches; i++) {
            assert_true(counts[i] == n / n_batches || counts[i] == n / n_batches + 1);
            all += counts[i];
        }
        assert_int_equal(all, n);
    }
}

TEST_MAIN(NULL, NULL)
