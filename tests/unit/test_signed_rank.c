/* test_signed_rank.c - Wilcoxon's test against enumeration and printed tables, its intervals
 * against its definition, and the level of all looks together. */
#include <math.h>

#include "dpbench/random.h"
#include "gate_study.h"
#include "lib/test.h"
#include "study/document/signed_rank.h"

enum { SERIES = 20000 };

static uint32_t w_of(const double *x, size_t n, double centre)
{
    uint32_t w = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && x[i] > centre; k++)
            w += fabs(x[k] - centre) <= fabs(x[i] - centre);
    return w;
}

/* The share of all signs of 1 .. n whose positive numbers have at least this sum. */
static double enumerated(size_t n, uint32_t least)
{
    uint32_t found = 0;
    for (uint32_t signs = 0; signs < UINT32_C(1) << n; signs++) {
        uint32_t w = 0;
        for (uint32_t i = 0; i < n; i++)
            w += signs >> i & 1 ? i + 1 : 0;
        found += w >= least;
    }
    return ldexp(found, -(int)n);
}

TEST(tails_are_those_of_all_signs)
{
    for (size_t n = 0; n <= 8; n++)
        for (uint32_t w = 0; w <= n * (n + 1) / 2 + 1; w++)
            assert_true(dpb_signed_rank_tail(n, w) == enumerated(n, w));
    assert_true(fabs(dpb_signed_rank_tail(30, 233) - 0.5) < 1e-12); /* of 465: half is above */
}

/* Wilcoxon, Wilcox: Some rapid approximate statistical procedures, 1964: the largest sum of the
 * rarer sign at 0.025 on a side. */
TEST(criticals_are_those_of_printed_tables)
{
    static const uint32_t table[][2] = {{6, 0},   {7, 2},   {8, 3},   {9, 5},   {10, 8},
                                        {15, 25}, {20, 52}, {25, 89}, {30, 137}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const uint32_t n = table[i][0], all = n * (n + 1) / 2;
        assert_int_equal(dpb_signed_rank_critical(n, 0.025), all - table[i][1]);
    }
    assert_int_equal(dpb_signed_rank_critical(5, 0.025), 16); /* none: there are 15 */
    assert_int_equal(dpb_signed_rank_critical(10, 0.025 * pow(10 / 30.0, 1.5)), 53);
}

static double normal(uint32_t series, uint32_t i)
{
    struct dpb_random4 r = dpb_random(59, DPB_STREAM_SYNTHETIC, series, i, 0, 0);
    double two[2];
    dpb_random_normal(r.v[0], r.v[1], two);
    return two[0];
}

static void draw(uint32_t series, uint32_t n, double *x)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = normal(series, i);
}

TEST(an_interval_has_the_centres_that_are_not_refused)
{
    double x[DPB_LOOK_UNITS];
    struct dpb_centre c;
    for (uint32_t n = 6; n <= DPB_LOOK_UNITS; n++) {
        const uint32_t critical = dpb_signed_rank_critical(n, 0.025), all = n * (n + 1) / 2;
        draw(n, n, x);
        dpb_signed_rank_centre(x, n, critical, &c);
        assert_true(w_of(x, n, c.low - 1e-9) >= critical && w_of(x, n, c.low + 1e-9) < critical);
        assert_true(all - w_of(x, n, c.high + 1e-9) >= critical);
        assert_true(all - w_of(x, n, c.high - 1e-9) < critical);
        assert_true(c.low < c.estimate && c.estimate < c.high);
        assert_true(w_of(x, n, c.estimate - 1e-9) * 2 >= all);
        assert_true(w_of(x, n, c.estimate + 1e-9) * 2 <= all);
    }
    dpb_signed_rank_centre(x, 5, 16, &c);
    assert_true(isfinite(c.estimate) && isnan(c.low) && isnan(c.high));
    dpb_signed_rank_centre(x, 0, 1, &c);
    assert_true(isnan(c.estimate) && isnan(c.low));
}

TEST(units_are_means_of_what_was_measured)
{
    const double x[7] = {1, 3, NAN, 5, 7, INFINITY, 9};
    double units[DPB_LOOK_UNITS], many[DPB_LOOK_UNITS + 1] = {0};
    assert_int_equal(dpb_look_units(x, 7, 30, units), 5);
    assert_true(units[2] == 5 && units[4] == 9);
    assert_int_equal(dpb_look_units(x, 7, 31, units), 2); /* of two each; 9 waits for another */
    assert_true(units[0] == 2 && units[1] == 6);
    assert_int_equal(dpb_look_units(many, DPB_LOOK_UNITS + 1, 1, units), DPB_LOOK_UNITS);
    assert_int_equal(dpb_look_units(x, 0, 0, units), 0);
}

TEST(looks_have_an_interval_where_one_is_due_or_last)
{
    double x[DPB_LOOK_UNITS];
    struct dpb_centre c;
    draw(1, DPB_LOOK_UNITS, x);
    for (size_t n = 1; n <= DPB_LOOK_UNITS; n++) {
        const bool due = n >= 10 && (n - 10) % 4 == 0;
        assert_true(dpb_look_is_due(n) == due);
        dpb_look_at(x, n, false, &c);
        assert_true(c.n == n && isfinite(c.estimate) && isfinite(c.low) == due);
        assert_int_equal(dpb_look_decides(&c, 100), due ? DPB_LOOK_BELOW : DPB_LOOK_OPEN);
        assert_int_equal(dpb_look_decides(&c, -100), due ? DPB_LOOK_ABOVE : DPB_LOOK_OPEN);
        const double width = c.high - c.low;
        dpb_look_at(x, n, true, &c);
        assert_true(isfinite(c.low) == (n > 1));
        assert_true(!due || c.high - c.low <= width);
        assert_int_equal(dpb_look_decides(&c, c.estimate), DPB_LOOK_OPEN);
    }
    dpb_look_at(x, 0, true, &c);
    assert_true(isnan(c.estimate) && dpb_look_decides(&c, 0) == DPB_LOOK_OPEN);
    const double three[3] = {0.9, 1, 1.1};
    dpb_look_at(three, 3, true, &c); /* 4.303 standard errors of 0.0577 */
    assert_true(fabs(c.low - 0.7516) < 1e-4 && fabs(c.high - 1.2484) < 1e-4);
}

/* W of the first n units, for all n: each newcomer raises the ranks above its own. */
static void walk(uint32_t series, uint16_t w[DPB_LOOK_UNITS + 1])
{
    uint32_t size[DPB_LOOK_UNITS], sum = 0;
    bool above[DPB_LOOK_UNITS];
    struct dpb_random4 r = {{0}};
    for (uint32_t n = 0; n < DPB_LOOK_UNITS; n++) {
        if (n % 4 == 0)
            r = dpb_random(60, DPB_STREAM_SYNTHETIC, series, n, 0, 0);
        size[n] = r.v[n % 4] >> 1;
        above[n] = r.v[n % 4] & 1;
        uint32_t rank = 1;
        for (uint32_t i = 0; i < n; i++) {
            rank += size[i] < size[n];
            sum += size[i] >= size[n] && above[i];
        }
        sum += above[n] ? rank : 0;
        w[n + 1] = (uint16_t)sum;
    }
}

/* The W at which a look of n units decides, from its interval: units 0, 1, 3, 9, .. have means that
 * all differ, so the lower end tells its place. */
static uint32_t critical_of(size_t n, bool last)
{
    double units[DPB_LOOK_UNITS];
    struct dpb_centre c;
    for (size_t i = 0; i < n; i++)
        units[i] = pow(3, (double)i);
    dpb_look_at(units, n, last, &c);
    return w_of(units, n, c.low * (1 - 1e-13));
}

/* A series without effect crosses on a side by look n in at most 0.025 (n / 30)^1.5 of all, and in
 * at most 0.025 by its last look, whichever look that is. Four standard errors are chance. */
TEST(looks_hold_their_level_together)
{
    static uint32_t by_due[DPB_LOOK_UNITS + 1], by_last[DPB_LOOK_UNITS + 1];
    uint32_t due[DPB_LOOK_UNITS + 1] = {0}, last[DPB_LOOK_UNITS + 1] = {0};
    for (size_t n = DPB_LOOK_FIRST; n <= DPB_LOOK_UNITS; n++) {
        due[n] = dpb_look_is_due(n) ? critical_of(n, false) : UINT32_MAX;
        last[n] = critical_of(n, true);
    }
    assert_true(due[10] == 53 && due[14] == 92 && due[30] == 340 && last[10] == 47);
    for (uint32_t series = 0; series < SERIES; series++) {
        uint16_t w[DPB_LOOK_UNITS + 1];
        bool crossed = false;
        walk(series, w);
        for (size_t n = DPB_LOOK_FIRST; n <= DPB_LOOK_UNITS; n++) {
            by_last[n] += crossed || w[n] >= last[n];
            crossed |= w[n] >= due[n];
            by_due[n] += crossed;
        }
    }
    for (size_t n = DPB_LOOK_FIRST; n <= DPB_LOOK_UNITS; n++) {
        const double share = 0.025 * pow((double)n / 30, 1.5);
        assert_true(by_due[n] <= SERIES * share + 4 * sqrt(SERIES * share));
        assert_true(by_last[n] <= SERIES * 0.025 + 4 * sqrt(SERIES * 0.025));
        assert_true(by_last[n] >= SERIES * 0.018);
    }
}

/* make check-long LONG=conclusions draws 10,000 studies of each, and prints them. */
TEST(gates_of_recorded_pairs_hold_their_level)
{
    enum { STUDIES = 300 };
    for (int is_normal = 0; is_normal < 2; is_normal++) {
        struct gate_tally equal = {0}, at = {0}, slower = {0};
        gate_studies(0, 0.02, is_normal, STUDIES, &equal);
        gate_studies(0.02, 0.02, is_normal, STUDIES, &at);
        gate_studies(0.05, 0.02, is_normal, STUDIES, &slower);
        assert_in_range(equal.regressions, 0, STUDIES / 100 + 5); /* and three standard errors */
        assert_in_range(at.regressions, 0, STUDIES * 35 / 1000 + 10);
        assert_in_range(slower.regressions, STUDIES * 95 / 100, STUDIES);
        assert_in_range(equal.passes, STUDIES * 90 / 100, STUDIES);
        assert_int_equal(slower.passes, 0);
        assert_true(slower.pairs < 20.0 * STUDIES); /* it ends when it has decided */
    }
}

TEST_MAIN(NULL, NULL)
