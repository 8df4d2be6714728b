/*
 * test_compare.c - two results side by side: what differs, whose rate is higher, and when that is
 * shown (core/study/compare.c).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "study/compare.h"
#include "study/json.h"

/* A run of that rate, uncertainty and strategy. */
static json_t *run_of(double rate, double uncertainty, const char *comm)
{
    return json_pack("{s:s, s:s, s:{s:{s:{s:s, s:s}}, s:{s:{s:s, s:s}}}, s:{s:{s:f, s:f}}, "
                     "s:{s:i, s:s}, s:{s:{s:{s:{s:s, s:s}}}}}",
                     "schema", "dpbench.result/1", "status", "ok", "config", "comm", "name",
                     "value", comm, "origin", comm, "run", "results", "value", comm, "origin", "x",
                     "timing", "samples_per_s", "mean", rate, "uncertainty", uncertainty, "machine",
                     "cores", 2, "host", comm, "versions", "plugins", "comm", "file", "path", comm,
                     "crc32", "same");
}

/* A cell of a sweep; a rate of NaN: it failed. */
static json_t *cell_of(const char *comm, double low, double rate, double high)
{
    return json_pack("{s:{s:s}, s:{s:o, s:o, s:o}}", "cell", "comm.name", comm, "samples_per_s",
                     "median", dpb_json_real(rate), "low", dpb_json_real(low), "high",
                     dpb_json_real(high));
}

static json_t *sweep_of(json_t *first, json_t *second)
{
    return json_pack("{s:s, s:[o, o]}", "schema", "dpbench.sweep/1", "rows", first, second);
}

/* Releases a and b. */
static json_t *compare(json_t *a, json_t *b, double threshold, bool *regression)
{
    const struct dpb_compared of_a = {"a.json", a}, of_b = {"b.json", b};
    json_t *document = NULL;
    dpb_status status = dpb_compare_make(&of_a, &of_b, threshold, &document, regression);
    json_decref(a);
    json_decref(b);
    assert_int_equal(status, DPB_OK);
    return document;
}

static void every_difference_is_named(void **state)
{
    static const char *const paths[] = {"config.comm.name", "machine.host"};
    bool regression;
    (void)state;
    json_t *document = compare(run_of(100, 1, "shm"), run_of(100, 1, "ps"), NAN, &regression);
    const json_t *list = json_object_get(document, "differences");
    assert_int_equal(json_array_size(list),
                     2); /* no origin, no place of a file or of the results */
    for (size_t i = 0; i < 2; i++) {
        const json_t *entry = json_array_get(list, i);
        assert_string_equal(dpb_json_text(entry, "path", ""), paths[i]);
        assert_string_equal(dpb_json_text(entry, "a", ""), "shm");
        assert_string_equal(dpb_json_text(entry, "b", ""), "ps");
    }
    json_decref(document);
}

/* What only one of the two has is a difference, from whichever side it is seen. */
static void what_one_lacks_is_a_difference(void **state)
{
    bool regression;
    (void)state;
    for (int side = 0; side < 2; side++) {
        json_t *with = run_of(100, 1, "shm"), *without = run_of(100, 1, "shm");
        json_object_set_new(json_object_get(with, "machine"), "smt", json_integer(1));
        json_t *document = side == 0 ? compare(with, without, NAN, &regression)
                                     : compare(without, with, NAN, &regression);
        const json_t *list = json_object_get(document, "differences");
        const json_t *entry = json_array_get(list, 0);
        assert_int_equal(json_array_size(list), 1);
        assert_string_equal(dpb_json_text(entry, "path", ""), "machine.smt");
        assert_int_equal(json_is_null(json_object_get(entry, side == 0 ? "b" : "a")), 1);
        json_decref(document);
    }
}

static void intervals_decide(void **state)
{
    static const struct {
        double rate_a, uncertainty_a, rate_b, uncertainty_b, threshold;
        const char *verdict;
        bool regression;
    } rows[] = {
        {100, 1, 105, 1, NAN, "faster", false},
        {100, 1, 95, 1, NAN, "slower", false},
        {100, 1, 95, 1, 0.04, "slower", true},
        {100, 1, 95, 1, 0.06, "slower", false},
        {100, 1, 80, 20, 0.05, "no difference shown", false}, /* 80 +- 39 */
        {100, 1, 103, 1, 0.0, "no difference shown", false},  /* 98.04..101.96, 101.04..104.96 */
        {100, 1, 104, 1, 0.0, "faster", false},
        {100, 1, NAN, NAN, NAN, "not measured", false},
        {100, 1, NAN, NAN, 0.5, "not measured", true},
        {NAN, NAN, 100, 1, 0.5, "not measured", true},
        {100, NAN, 50, NAN, 0.1, "no difference shown", false}, /* one step has no interval */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool regression = !rows[i].regression;
        json_t *document = compare(
            sweep_of(cell_of("x", rows[i].rate_a - 1.96 * rows[i].uncertainty_a, rows[i].rate_a,
                             rows[i].rate_a + 1.96 * rows[i].uncertainty_a),
                     cell_of("y", 9, 10, 11)),
            sweep_of(cell_of("y", 9, 10, 11),
                     cell_of("x", rows[i].rate_b - 1.96 * rows[i].uncertainty_b, rows[i].rate_b,
                             rows[i].rate_b + 1.96 * rows[i].uncertainty_b)),
            rows[i].threshold, &regression);
        const json_t *row = json_array_get(json_object_get(document, "rows"), 0);
        if (strcmp(dpb_json_text(row, "verdict", ""), rows[i].verdict) != 0 ||
            regression != rows[i].regression ||
            json_is_true(json_object_get(document, "regression")) != rows[i].regression)
            fail_msg("row %zu: '%s', regression %d", i, dpb_json_text(row, "verdict", ""),
                     regression);
        assert_string_equal(
            dpb_json_text(json_array_get(json_object_get(document, "rows"), 1), "verdict", ""),
            "no difference shown");
        json_decref(document);
    }
}

/* A run's interval is 95 % of its mean. */
static void runs_have_the_interval_of_their_mean(void **state)
{
    bool regression;
    (void)state;
    json_t *document = compare(run_of(200, 2, "shm"), run_of(190, 2, "shm"), 0.01, &regression);
    const json_t *row = json_array_get(json_object_get(document, "rows"), 0);
    assert_true(json_is_null(json_object_get(row, "cell")));
    assert_true(fabs(dpb_json_number(row, "a.low") - 196.08) < 1e-9);
    assert_true(fabs(dpb_json_number(row, "b.high") - 193.92) < 1e-9);
    assert_true(fabs(dpb_json_number(row, "ratio") - 0.95) < 1e-12);
    assert_true(regression);
    json_decref(document);
}

static const json_t *doubts_of_row(const json_t *document, const char *path)
{
    return dpb_json_at(json_array_get(json_object_get(document, "rows"), 0), path);
}

/* What speaks against a rate stands beside the verdict, and takes no gate away. */
static void doubts_stand_beside_the_verdict(void **state)
{
    bool regression;
    char *text = NULL;
    size_t length;
    (void)state;
    json_t *disturbed = cell_of("x", 49, 50, 51), *once = cell_of("x", 99, 100, 101);
    json_object_update_new(disturbed, json_pack("{s:i, s:i, s:b, s:b}", "failed_runs", 0, "runs", 3,
                                                "disturbed", 1, "oversubscribed", 1));
    json_object_update_new(once, json_pack("{s:i, s:i}", "failed_runs", 0, "runs", 1));
    json_t *document = compare(sweep_of(once, cell_of("y", 9, 10, 11)),
                               sweep_of(disturbed, cell_of("y", 9, 10, 11)), 0.1, &regression);
    assert_true(regression);
    const json_t *doubts = doubts_of_row(document, "b.doubts");
    assert_int_equal(json_array_size(doubts), 2);
    assert_string_equal(json_string_value(json_array_get(doubts, 1)), "disturbed");
    FILE *out = open_memstream(&text, &length);
    dpb_compare_print(document, out);
    fclose(out);
    assert_non_null(strstr(text,
                           "  slower REGRESSION; A was timed only once; B was oversubscribed, "
                           "disturbed\n"));
    assert_non_null(strstr(text, "  no difference shown\n"));
    free(text);
    json_decref(document);

    json_t *run = run_of(100, 1, "shm");
    json_object_set_new(json_object_get(run, "timing"), "too_short", json_true());
    document = compare(run_of(100, 1, "shm"), run, NAN, &regression);
    assert_int_equal(json_array_size(doubts_of_row(document, "a.doubts")), 0);
    doubts = doubts_of_row(document, "b.doubts");
    assert_string_equal(json_string_value(json_array_get(doubts, 0)), "timed too shortly");
    json_decref(document);
}

/* Cells are matched by their values, whatever their order; one that B lost fails a gate. */
static void cells_are_matched(void **state)
{
    bool regression;
    (void)state;
    for (int gate = 0; gate < 2; gate++) {
        json_t *document = compare(sweep_of(cell_of("a", 9, 10, 11), cell_of("b", 19, 20, 21)),
                                   sweep_of(cell_of("b", 29, 30, 31), cell_of("c", 1, 2, 3)),
                                   gate ? 0.5 : NAN, &regression);
        const json_t *rows = json_object_get(document, "rows");
        assert_int_equal(json_array_size(rows), 1);
        assert_true(fabs(dpb_json_number(json_array_get(rows, 0), "ratio") - 1.5) < 1e-12);
        assert_int_equal(json_array_size(json_object_get(document, "only_a")), 1);
        assert_int_equal(json_array_size(json_object_get(document, "only_b")), 1);
        assert_int_equal(regression, gate);
        json_decref(document);
    }
}

static void unlike_documents_are_refused(void **state)
{
    bool regression;
    (void)state;
    json_t *run = run_of(1, 1, "shm"), *document = NULL;
    json_t *sweep = sweep_of(cell_of("a", 1, 2, 3), cell_of("b", 1, 2, 3));
    json_t *other = sweep_of(cell_of("c", 1, 2, 3), cell_of("d", 1, 2, 3));
    const struct dpb_compared a = {"a.json", run}, b = {"b.json", sweep}, c = {"c.json", other};
    assert_int_equal(dpb_compare_make(&a, &b, NAN, &document, &regression), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "compare two runs, or two sweeps"));
    dpb_first_error_clear();
    assert_int_equal(dpb_compare_make(&b, &c, NAN, &document, &regression), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "no cell in common"));
    assert_null(document);
    json_decref(run);
    json_decref(sweep);
    json_decref(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_difference_is_named),
        cmocka_unit_test(what_one_lacks_is_a_difference),
        cmocka_unit_test(intervals_decide),
        cmocka_unit_test(runs_have_the_interval_of_their_mean),
        cmocka_unit_test(doubts_stand_beside_the_verdict),
        cmocka_unit_test(cells_are_matched),
        cmocka_unit_test(unlike_documents_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
