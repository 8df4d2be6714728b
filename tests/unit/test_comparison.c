/*
 * Comparisons of rates: Student's t and block errors against stats_oracle.h, then made-up studies.
 * Rates of a study drift and depend on their predecessors, as those of a machine do that warms up
 * and has other users.
 */
#include <math.h>

#include "dpbench/random.h"
#include "lib/test.h"
#include "study/document/comparison.h"
#include "study/document/signed_rank.h"
#include "stats_oracle.h"

enum { N_CASES = sizeof oracle_cases / sizeof *oracle_cases, MOST = 64, STUDIES = 1000 };

static void assert_close(double is, double should, double error)
{
    if (!(fabs(is - should) <= error * fabs(should)))
        fail_msg("%.17g should be %.17g", is, should);
}

TEST(student_is_that_of_the_oracle)
{
    for (size_t i = 0; i < sizeof oracle_student / sizeof *oracle_student; i++)
        assert_close(dpb_student((double)i + 1), oracle_student[i], 1e-7);
    assert_close(dpb_student(1e6), 1.959966, 1e-5);
    assert_true(dpb_student(2.5) < dpb_student(2) && dpb_student(2.5) > dpb_student(3));
}

TEST(estimates_are_those_of_the_oracle)
{
    int n_blocks = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        const struct oracle_case *c = &oracle_cases[i];
        struct dpb_estimate estimate;
        dpb_estimate_of(c->x, c->n, &estimate);
        assert_close(estimate.mean, c->mean, 1e-12);
        assert_close(estimate.error, c->uncertainty, 1e-7); /* one is 1e9 and a little */
        assert_int_equal(estimate.n, c->n);
        assert_true(estimate.freedom == (double)c->n - 1);
        dpb_estimate_of_steps(c->x, c->n, 50, &estimate);
        assert_true(estimate.of_steps && estimate.mean == log(50));
        if (c->block_error > 0)
            assert_close(estimate.error, c->block_error, 0.02);
        n_blocks += c->block_error > 0;
    }
    assert_int_equal(n_blocks, 5);
}

TEST(gaps_and_single_values_are_told)
{
    const double x[4] = {1, NAN, 3, INFINITY};
    struct dpb_estimate estimate;
    struct dpb_comparison comparison;
    dpb_estimate_of(x, 4, &estimate);
    assert_int_equal(estimate.n, 2);
    assert_true(estimate.mean == 2 && estimate.error == 1);
    dpb_estimate_of(x, 2, &estimate);
    assert_true(estimate.n == 1 && estimate.mean == 1 && isnan(estimate.error));
    dpb_compare_paired(&estimate, 0.05, &comparison);
    assert_true(comparison.outcome == DPB_UNDECIDED && comparison.take == 3);
    assert_true(isnan(comparison.low));
    dpb_estimate_of(x + 3, 1, &estimate);
    dpb_compare_paired(&estimate, 0.05, &comparison);
    assert_int_equal(comparison.outcome, DPB_NOT_MEASURED);
    dpb_estimate_of_steps(x, 1, 5, &estimate);
    assert_true(estimate.n == 1 && isnan(estimate.error));
    dpb_estimate_of_steps(x, 1, NAN, &estimate);
    assert_int_equal(estimate.n, 0);
}

TEST(outcomes_follow_from_intervals)
{
    static const struct {
        double mean, error, margin;
        const char *text;
    } rows[] = {
        {0.10, 0.01, 0.05, "faster"},
        {-0.10, 0.01, 0.05, "slower"},
        {0.01, 0.01, 0.05, "equal within 5 %"},
        {0.03, 0.005, 0.05, "equal within 5 %"}, /* no 1, but no 1.05 either */
        {0.03, 0.005, 0.02, "faster"},
        {0.01, 0.03, 0.05, "undecided: take 61 repeats"},
        {0.01, 5, 0.05, "undecided: take 1000 or more repeats"},
        {0.01, NAN, 0.05, "undecided: take 11 repeats"},
        {NAN, 0.01, 0.05, "not measured"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct dpb_estimate difference = {rows[i].mean, rows[i].error, 9, 10, false};
        struct dpb_comparison comparison;
        char text[64];
        dpb_compare_paired(&difference, rows[i].margin, &comparison);
        dpb_comparison_text(&comparison, text, sizeof text);
        assert_string_equal(text, rows[i].text);
    }
}

TEST(repeats_are_a_sentence_about_time)
{
    static const struct {
        double error, repeat_s;
        const char *text;
    } rows[] = {{0.03, 100, ", about 1 h 42 min, or 18 for 10 %"},
                {0.03, NAN, ", or 18 for 10 %"},
                {0.005, 100, ""}, /* equal */
                {0.02, 2, ", about 58 s, or 10 for 10 %"},
                {5, 100, ""}, /* nobody waits for 1000 */
                {0.03, 3600, ", about 3 days, or 18 for 10 %"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct dpb_estimate difference = {0.01, rows[i].error, 9, 10, false};
        struct dpb_comparison comparison;
        char text[96];
        dpb_compare_paired(&difference, 0.05, &comparison);
        dpb_comparison_effort(&comparison, rows[i].repeat_s, text, sizeof text);
        assert_string_equal(text, rows[i].text);
    }
}

/* ---- made-up studies ------------------------------------------------------------------------- */

struct noise {
    double level, memory; /* of the machine: its deviation, and its correlation from run to run */
    double drift;         /* over a whole study of 10 repeats */
    double own;           /* of each run alone */
};

/* 5 % in all, most of it the machine's. */
static const struct noise machine = {0.045, 0.95, 0.10, 0.02};
static const struct noise white = {0, 0, 0, 0.05};

static double normal(uint32_t study, uint32_t i, uint32_t which)
{
    struct dpb_random4 r = dpb_random(42, DPB_STREAM_SYNTHETIC, study, i, which, 7);
    double two[2];
    dpb_random_normal(r.v[0], r.v[1], two);
    return two[0];
}

/* Logarithms of the rates of A and B, each repeat in an order of its own; B is `effect` faster. */
static void make_study(const struct noise *noise, uint32_t study, uint32_t n, double effect,
                       double *a, double *b)
{
    double level = noise->level * normal(study, 0, 0);
    for (uint32_t i = 0; i < 2 * n; i++) {
        bool of_b = (i + (dpb_random(1, DPB_STREAM_SHUFFLE, study, i / 2, 0, 0).v[0] & 1)) % 2 == 1;
        level = noise->memory * level +
                noise->level * sqrt(1 - noise->memory * noise->memory) * normal(study, i, 1);
        double rate = log(1000) + level - noise->drift * i / 20 + noise->own * normal(study, i, 2);
        *(of_b ? &b[i / 2] : &a[i / 2]) = rate + (of_b ? effect : 0);
    }
}

static struct dpb_comparison compare_study(const struct noise *noise, uint32_t study, uint32_t n,
                                           double effect, bool paired)
{
    double a[MOST], b[MOST];
    struct dpb_estimate of_a, of_b;
    struct dpb_comparison comparison;
    make_study(noise, study, n, effect, a, b);
    if (!paired) {
        dpb_estimate_of(a, n, &of_a);
        dpb_estimate_of(b, n, &of_b);
        dpb_compare_apart(&of_a, &of_b, DPB_MARGIN, &comparison);
        return comparison;
    }
    for (uint32_t i = 0; i < n; i++)
        b[i] -= a[i];
    dpb_estimate_of(b, n, &of_b);
    dpb_compare_paired(&of_b, DPB_MARGIN, &comparison);
    return comparison;
}

static int count(const struct noise *noise, uint32_t n, double effect, bool paired,
                 enum dpb_shown outcome)
{
    int found = 0;
    for (uint32_t study = 0; study < STUDIES; study++)
        found += compare_study(noise, study, n, effect, paired).outcome == outcome;
    return found;
}

static const uint32_t sizes[] = {2, 3, 5, 10, 20, 40};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* In at least 95 of 100, whatever the number of repeats. Where each run has its own 5 % alone, the
 * interval's 5 of 100 are all there. */
TEST(equal_rates_are_not_called_different)
{
    static const struct {
        const struct noise *noise;
        bool paired;
        int most;
    } rows[] = {{&machine, true, STUDIES / 20},
                {&white, true, STUDIES / 20 + 21}, /* 5 of 100, and three standard errors */
                {&white, false, STUDIES / 20 + 21}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (size_t i = 0; i < SIZES; i++) {
            int wrong = count(rows[k].noise, sizes[i], 0, rows[k].paired, DPB_FASTER) +
                        count(rows[k].noise, sizes[i], 0, rows[k].paired, DPB_SLOWER);
            if (wrong > rows[k].most)
                fail_msg("noise %zu: %d of %d with %u repeats", k, wrong, STUDIES, sizes[i]);
        }
    assert_true(count(&machine, 20, 0, true, DPB_EQUAL) > STUDIES * 9 / 10);
}

TEST(slowdowns_are_found)
{
    assert_true(count(&machine, 10, log(0.95), true, DPB_SLOWER) >= STUDIES * 9 / 10);
    assert_true(count(&machine, 10, log(0.90), true, DPB_SLOWER) >= STUDIES * 9 / 10);
    assert_true(count(&white, 10, log(0.90), true, DPB_SLOWER) >= STUDIES * 9 / 10);
    assert_int_equal(count(&machine, 10, log(0.95), true, DPB_FASTER), 0);
}

TEST(power_never_falls_with_repeats)
{
    const struct noise *const noises[] = {&machine, &white};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 1; i < SIZES; i++) {
            int fewer = count(noises[k], sizes[i - 1], log(0.95), true, DPB_SLOWER);
            int more = count(noises[k], sizes[i], log(0.95), true, DPB_SLOWER);
            if (more < fewer)
                fail_msg("%d, then %d with %u repeats", fewer, more, sizes[i]);
        }
}

/* Where each run has 5 % of its own no test finds 5 % with 10 repeats in 90 of 100. The number that
 * the comparison names does. */
TEST(the_repeats_named_are_enough)
{
    int undecided = 0, decided = 0, found = 0;
    for (uint32_t study = 0; study < STUDIES; study++) {
        struct dpb_comparison first = compare_study(&white, study, 10, log(0.95), true);
        if (first.outcome != DPB_UNDECIDED)
            continue;
        assert_true(first.take > 10);
        uint32_t n = first.take < MOST ? (uint32_t)first.take : MOST;
        struct dpb_comparison second = compare_study(&white, study + STUDIES, n, log(0.95), true);
        undecided++;
        decided += second.outcome != DPB_UNDECIDED;
        found += second.outcome == DPB_SLOWER;
    }
    assert_true(undecided > STUDIES / 4);
    assert_true(decided >= undecided * 9 / 10);
    assert_true(found >= undecided * 9 / 10);
}

/* Blocks: the interval of signed ranks; alike neighbours widen it, unlike ones do not narrow it. */
TEST(neighbours_that_are_alike_widen_the_interval)
{
    static const struct {
        int wave; /* blocks of one sign */
        double wider;
    } rows[] = {{1, 1}, {5, 1.9149}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double x[31] = {[30] = NAN}; /* one of them had no turn there */
        struct dpb_centre centre;
        struct dpb_comparison c;
        for (int k = 0; k < 30; k++)
            x[k] = 0.01 + (k / rows[i].wave % 2 == 0 ? 0.02 : -0.02);
        dpb_look_at(x, 30, true, &centre);
        dpb_compare_blocks(x, 31, NULL, 0.05, &c);
        assert_close(c.ratio, exp(centre.estimate), 1e-12);
        assert_close(log(c.ratio / c.low), rows[i].wider * (centre.estimate - centre.low), 1e-3);
        assert_close(log(c.high / c.ratio), rows[i].wider * (centre.high - centre.estimate), 1e-3);
        assert_true(c.paired && c.of_blocks && c.outcome == DPB_EQUAL);
        for (int k = 0; k < 30; k++)
            x[k] = 0.1 * (k * 7 % 30 - 14.5) / 30;
        dpb_compare_blocks(x, 31, NULL, 0.005, &c);
        assert_true(c.outcome == DPB_UNDECIDED && c.take > 30);
    }
    struct dpb_comparison none;
    double x[DPB_LOOK_UNITS];
    struct dpb_centre centre;
    for (int k = 0; k < DPB_LOOK_UNITS; k++)
        x[k] = 0.1 + (k % 2 == 0 ? 0.01 : -0.01);
    for (size_t n = 9; n < 13; n++) { /* the latest look: none, then that at 10 */
        dpb_compare_blocks(x, n, &(struct dpb_looks){.planned = 30}, 0.05, &none);
        assert_int_equal(none.outcome, n < 10 ? DPB_UNDECIDED : DPB_FASTER);
    }
    dpb_look_at(x, 10, false, &centre);
    assert_close(none.low, exp(centre.low), 1e-12);
    dpb_compare_blocks((double[]){NAN, NAN}, 2, NULL, 0.05, &none);
    assert_int_equal(none.outcome, DPB_NOT_MEASURED);
}

/* Of 100 intervals at least 90 have the truth, also where what disturbs one cell alone outlasts a
 * block: `memory` is its correlation from block to block. */
TEST(intervals_of_blocks_have_the_truth)
{
    static const struct {
        const struct noise *noise;
        double memory;
    } rows[] = {{&machine, 0}, {&white, 0}, {&machine, 0.5}};
    enum { BLOCKS = 40, EACH = 400 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int has = 0;
        for (uint32_t study = 0; study < EACH; study++) {
            double a[MOST], b[MOST], alone = 0;
            struct dpb_comparison c;
            make_study(rows[i].noise, study, BLOCKS, 0.03, a, b);
            for (uint32_t k = 0; k < BLOCKS; k++) {
                alone = rows[i].memory * (alone + 0.05 * normal(study, k, 3));
                b[k] += alone - a[k];
            }
            dpb_compare_blocks(b, BLOCKS, NULL, DPB_MARGIN, &c);
            has += log(c.low) <= 0.03 && log(c.high) >= 0.03;
        }
        if (has < EACH * 9 / 10)
            fail_msg("row %zu: %d of %d", i, has, (int)EACH);
    }
}

TEST_MAIN(NULL, NULL)
