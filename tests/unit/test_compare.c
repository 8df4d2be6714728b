/*
 * test_compare.c - two results side by side: what differs, whose rate is higher, and when that is
 * shown (study/table/compare.c).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "lib/printed.h"
#include "lib/test.h"
#include "study/table/compare.h"

/* A run of that strategy whose steps take 90 to 110 % of the mean. */
static json_t *run_of(double rate, const char *comm)
{
    json_t *run =
        json_pack("{s:s, s:s, s:{s:{s:{s:s, s:s}}, s:{s:{s:s, s:s}}}, s:{s:{s:f}}, "
                  "s:{s:i, s:s}, s:{s:{s:{s:{s:s, s:s}}}}}",
                  "schema", "dpbench.result/1", "status", "ok", "config", "comm", "name", "value",
                  comm, "origin", comm, "run", "results", "value", comm, "origin", "x", "timing",
                  "samples_per_s", "mean", rate, "machine", "cores", 2, "host", comm, "versions",
                  "plugins", "comm", "file", "path", comm, "crc32", "same");
    json_t *steps = json_array();
    for (int i = 0; i < 100; i++)
        json_array_append_new(steps, json_real((0.9e9 + 2e6 * (i * 37 % 101)) / rate));
    json_object_set_new(json_object_get(run, "timing"), "step_ns", steps);
    return run;
}

/* A cell of a sweep with the rates of three repeats; a rate of NaN: it failed. */
static json_t *cell_of(const char *comm, double low, double rate, double high)
{
    return json_pack("{s:{s:s}, s:{s:o}, s:[o, o, o]}", "cell", "comm.name", comm, "samples_per_s",
                     "median", dpb_json_real(rate), "rates", dpb_json_real(low),
                     dpb_json_real(rate), dpb_json_real(high));
}

static json_t *sweep_of(json_t *first, json_t *second)
{
    return json_pack("{s:s, s:[o, o]}", "schema", "dpbench.sweep/1", "rows", first, second);
}

/* Releases a and b; the test owns the document. */
static json_t *compare(json_t *a, json_t *b, double threshold, bool *regression)
{
    const struct dpb_compared of_a = {"a.json", a}, of_b = {"b.json", b};
    const struct dpb_compare_how how = {.threshold = threshold};
    json_t *document = NULL;
    dpb_status status = dpb_compare_make(&of_a, &of_b, &how, &document, regression);
    json_decref(a);
    json_decref(b);
    assert_int_equal(status, DPB_OK);
    return own_json(document);
}

TEST(every_difference_is_named)
{
    static const char *const paths[] = {"config.comm.name", "machine.host"};
    bool regression;
    json_t *document = compare(run_of(100, "shm"), run_of(100, "ps"), NAN, &regression);
    const json_t *list = json_object_get(document, "differences");
    assert_int_equal(json_array_size(list),
                     2); /* no origin, no place of a file or of the results */
    for (size_t i = 0; i < 2; i++) {
        const json_t *entry = json_array_get(list, i);
        assert_string_equal(dpb_json_text(entry, "path", ""), paths[i]);
        assert_string_equal(dpb_json_text(entry, "a", ""), "shm");
        assert_string_equal(dpb_json_text(entry, "b", ""), "ps");
    }
}

/* A run of a sweep, whose plugin and data have this checksum. */
static json_t *run_by(const char *comm, const char *crc32)
{
    return json_pack("{s:{s:s}, s:{s:{s:{s:s}}}, s:{s:{s:s}}, s:{s:{s:{s:s, s:{s:s}}}}}", "machine",
                     "host", "x", "config", "data", "path", "value", comm, "inputs", "data.path",
                     "fingerprint", crc32, "versions", "plugins", "comm", "name", comm, "file",
                     "crc32", crc32);
}

/* The order of the runs is drawn. A plugin that one sweep alone has is no difference. */
TEST(runs_of_sweeps_are_compared_by_name)
{
    static const char *const paths[2][4] = {{"inputs.data.path = none"},
                                            {"inputs.data.path = ring.fingerprint",
                                             "inputs.data.path = none",
                                             "versions.plugins.comm 'ring'.file.crc32"}};
    bool regression;
    for (size_t other = 0; other < 2; other++) {
        json_t *a = sweep_of(cell_of("shm", 99, 100, 101), cell_of("ring", 99, 100, 101));
        json_t *b = json_deep_copy(a), *ring = run_by("ring", other ? "4" : "2");
        json_object_set_new(
            a, "runs",
            json_pack("[o, o, o]", run_by("shm", "1"), run_by("ring", "2"), run_by("none", "3")));
        json_object_set_new(b, "runs", json_pack("[o, o]", ring, run_by("shm", "1")));
        json_t *document = compare(a, b, NAN, &regression);
        const json_t *list = json_object_get(document, "differences");
        for (size_t i = 0; i <= 3; i++) {
            const char *path = dpb_json_text(json_array_get(list, i), "path", "none");
            assert_string_equal(path, paths[other][i] ? paths[other][i] : "none");
        }
    }
}

/* The name of the difference contains the place of the data. */
TEST(data_in_a_deep_directory_are_compared)
{
    char place[300];
    bool regression;
    memset(place, 'x', sizeof place - 1);
    place[sizeof place - 1] = '\0';
    json_t *a = sweep_of(cell_of("x", 99, 100, 101), cell_of("y", 99, 100, 101));
    json_t *b = json_deep_copy(a);
    json_object_set_new(a, "runs", json_pack("[o]", run_by(place, "1")));
    json_object_set_new(b, "runs", json_pack("[o]", run_by(place, "2")));
    json_t *document = compare(a, b, NAN, &regression);
    assert_int_equal(json_array_size(json_object_get(document, "differences")), 2);
}

/* What only one of the two has is a difference, from whichever side it is seen. */
TEST(what_one_lacks_is_a_difference)
{
    bool regression;
    for (int side = 0; side < 2; side++) {
        json_t *with = run_of(100, "shm"), *without = run_of(100, "shm");
        json_object_set_new(json_object_get(with, "machine"), "smt", json_integer(1));
        json_t *document = side == 0 ? compare(with, without, NAN, &regression)
                                     : compare(without, with, NAN, &regression);
        const json_t *list = json_object_get(document, "differences");
        const json_t *entry = json_array_get(list, 0);
        assert_int_equal(json_array_size(list), 1);
        assert_string_equal(dpb_json_text(entry, "path", ""), "machine.smt");
        assert_int_equal(json_is_null(json_object_get(entry, side == 0 ? "b" : "a")), 1);
    }
}

/* Of three repeats each: rates of +- 1 % have an interval of +- 2.3 % about their ratio. */
TEST(intervals_decide)
{
    static const struct {
        double rate_a, share_a, rate_b, share_b, threshold;
        const char *verdict, *judgement; /* NULL: nothing is judged */
    } rows[] = {
        {100, 0.01, 110, 0.01, NAN, "faster", NULL},
        {100, 0.01, 90, 0.01, NAN, "slower", NULL},
        {100, 0.01, 90, 0.01, 0.04, "slower", "regression"},
        {100, 0.01, 95, 0.01, 0.06, "slower, undecided whether by 6 %", "undecided"},
        {100, 0.01, 97, 0.01, 0.02, "slower, undecided whether by 2 %", "undecided"},
        {100, 0.01, 98, 0.01, 0.05, "equal within 5 %", "pass"},
        {100, 0.01, 110, 0.01, 0.02, "faster", "pass"},
        {100, 0.01, 101, 0.01, 0.02, "not slower by 2 %", "pass"},
        {100, 0.01, 99, 0.01, 0.02, "undecided: take 11 repeats", "undecided"},
        {100, 0.01, 80, 0.20, 0.05, "undecided: take 270 repeats", "undecided"},
        {100, 0.01, 97, 0.001, 0.0, "slower", "regression"},
        {100, 0.01, NAN, NAN, NAN, "not measured", NULL},
        {100, 0.01, NAN, NAN, 0.5, "not measured", "regression"},
        {NAN, NAN, 100, 0.01, 0.5, "not measured", "regression"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool regression;
        json_t *document =
            compare(sweep_of(cell_of("x", rows[i].rate_a * (1 - rows[i].share_a), rows[i].rate_a,
                                     rows[i].rate_a * (1 + rows[i].share_a)),
                             cell_of("y", 9.99, 10, 10.01)),
                    sweep_of(cell_of("y", 9.99, 10, 10.01),
                             cell_of("x", rows[i].rate_b * (1 - rows[i].share_b), rows[i].rate_b,
                                     rows[i].rate_b * (1 + rows[i].share_b))),
                    rows[i].threshold, &regression);
        const json_t *row = json_array_get(json_object_get(document, "rows"), 0);
        const char *judgement = rows[i].judgement ? rows[i].judgement : "none";
        if (strcmp(dpb_json_text(row, "verdict", ""), rows[i].verdict) != 0 ||
            regression != (strcmp(judgement, "regression") == 0) ||
            strcmp(dpb_json_text(row, "judgement", "none"), judgement) != 0)
            fail_msg("row %zu: '%s', '%s'", i, dpb_json_text(row, "verdict", ""),
                     dpb_json_text(row, "judgement", "none"));
        row = json_array_get(json_object_get(document, "rows"), 1);
        assert_memory_equal(dpb_json_text(row, "verdict", ""), "equal within", 12);
    }
}

/* One run each has the interval of its steps, and says so. */
TEST(runs_have_the_interval_of_their_steps)
{
    bool regression;
    json_t *document = compare(run_of(200, "shm"), run_of(170, "shm"), 0.01, &regression);
    const json_t *row = json_array_get(json_object_get(document, "rows"), 0);
    assert_true(json_is_null(json_object_get(row, "cell")));
    assert_true(fabs(dpb_json_number(row, "ratio") - 0.85) < 1e-12);
    assert_true(dpb_json_number(row, "low") <= 0.85 && dpb_json_number(row, "high") >= 0.85);
    assert_true(dpb_json_number(row, "high") < 0.9);
    assert_true(regression);
    char *text = printed_as(document, dpb_compare_print);
    assert_non_null(strstr(text, "slower REGRESSION (by the steps of one run)\n"));
    assert_null(strstr(text, "median")); /* both are the run's rate */
    assert_non_null(strstr(text, "\nregression: B is slower by more than 1 %"));
}

/* A part that must be the same refuses the comparison by the name of what differs. */
TEST(required_parts_must_be_the_same)
{
    static const struct {
        const char *same, *named;
    } rows[] = {{"machine", "a.json and b.json differ in machine.host"},
                {"inputs,config", "a.json and b.json differ in config.comm.name"},
                {"inputs,versions", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *of_a = own_json(run_of(1, "shm")), *of_b = own_json(run_of(1, "ps")),
               *document = NULL;
        const struct dpb_compared a = {"a.json", of_a}, b = {"b.json", of_b};
        bool regression;
        const struct dpb_compare_how how = {.threshold = NAN, .same = rows[i].same};
        dpb_first_error_clear();
        dpb_status status = dpb_compare_make(&a, &b, &how, &document, &regression);
        assert_int_equal(status, rows[i].named != NULL ? DPB_USAGE : DPB_OK);
        if (rows[i].named != NULL)
            assert_non_null(strstr(dpb_first_error(NULL), rows[i].named));
        json_decref(document);
    }
    dpb_first_error_clear();
}

static const json_t *doubts_of_row(const json_t *document, const char *path)
{
    return dpb_json_at(json_array_get(json_object_get(document, "rows"), 0), path);
}

/* Where anything speaks against a rate there is no conclusion, and it is named. */
TEST(doubtful_rates_conclude_nothing)
{
    bool regression;
    json_t *disturbed = cell_of("x", 49, 50, 51), *clean = cell_of("x", 99, 100, 101);
    json_object_update_new(disturbed, json_pack("{s:i, s:i, s:b, s:b}", "failed_runs", 0, "runs", 3,
                                                "disturbed", 1, "oversubscribed", 1));
    json_t *document =
        compare(sweep_of(clean, cell_of("y", 9.99, 10, 10.01)),
                sweep_of(disturbed, cell_of("y", 9.99, 10, 10.01)), 0.1, &regression);
    assert_false(regression);
    const json_t *doubts = doubts_of_row(document, "b.doubts");
    assert_int_equal(json_array_size(doubts), 2);
    assert_string_equal(json_string_value(json_array_get(doubts, 1)), "disturbed");
    char *text = printed_as(document, dpb_compare_print);
    assert_non_null(strstr(text, "  no conclusion; B was oversubscribed, disturbed\n"));
    assert_non_null(strstr(text, "  equal within 10 %\n"));
    assert_null(strstr(text, "nothing differs"));

    json_t *run = run_of(100, "shm");
    json_object_set_new(json_object_get(run, "timing"), "too_short", json_true());
    document = compare(run_of(100, "shm"), run, NAN, &regression);
    assert_int_equal(json_array_size(doubts_of_row(document, "a.doubts")), 0);
    doubts = doubts_of_row(document, "b.doubts");
    assert_string_equal(json_string_value(json_array_get(doubts, 0)), "timed too shortly");
}

/* Two runs between which the host has moved the processors to other caches. */
TEST(core_latency_is_a_difference)
{
    static const double latencies[][2] = {{26.4, 152.6}, {26, 51}, {NAN, 150}};
    for (size_t i = 0; i < sizeof latencies / sizeof *latencies; i++) {
        bool regression;
        json_t *runs[2];
        for (int k = 0; k < 2; k++) {
            runs[k] = run_of(100, "shm");
            json_object_set_new(runs[k], "core_to_core",
                                isnan(latencies[i][k]) ? json_null()
                                                       : json_pack("{s:[i, i], s:f}", "cores", 0, 1,
                                                                   "ns", latencies[i][k]));
        }
        char *text = printed_as(compare(runs[0], runs[1], NAN, &regression), dpb_compare_print);
        const char *line = strstr(text, "core_to_core.ns");
        assert_int_equal(line != NULL, i == 0);
        assert_true(!line || strstr(line, " 26.0 | 153.0\n"));
    }
}

/* Of GPUs that workers share in one way in A and in another in B, as in a sweep's table. */
TEST(unlike_sharing_concludes_nothing)
{
    static const struct {
        const char *a, *b;
        bool apart;
    } rows[] = {{"MPS", "MPS", false}, {"MPS", "time slices", true}, {"mixed", "mixed", true}};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const bool apart = rows[i / 2].apart;
        bool regression;
        json_t *a = run_of(100, "shm"), *b = run_of(80, "shm");
        json_object_set_new(a, "gpus", json_pack("{s:s}", "sharing", rows[i / 2].a));
        json_object_set_new(b, "gpus", json_pack("{s:s}", "sharing", rows[i / 2].b));
        if (i % 2 == 1) {
            json_decref(a);
            json_decref(b);
            a = cell_of("x", 99, 100, 101);
            b = cell_of("x", 79, 80, 81);
            json_object_set_new(a, "gpu_sharing", json_string(rows[i / 2].a));
            json_object_set_new(b, "gpu_sharing", json_string(rows[i / 2].b));
            a = sweep_of(a, cell_of("y", 9.99, 10, 10.01));
            b = sweep_of(b, cell_of("y", 9.99, 10, 10.01));
        }
        json_t *document = compare(a, b, 0.1, &regression);
        assert_int_equal(regression, !apart);
        char *text = printed_as(document, dpb_compare_print);
        assert_true((strstr(text, "no conclusion; GPUs shared in different ways\n") ||
                     strstr(text, "no conclusion (by the steps of one run); GPUs shared in "
                                  "different ways\n")) == apart);
    }
}

/* Cells are matched by their values, whatever their order; one that B lost fails a gate. */
TEST(cells_are_matched)
{
    bool regression;
    for (int gate = 0; gate < 2; gate++) {
        json_t *document = compare(sweep_of(cell_of("a", 9, 10, 11), cell_of("b", 19, 20, 21)),
                                   sweep_of(cell_of("b", 29, 30, 31), cell_of("c", 1, 2, 3)),
                                   gate ? 0.5 : NAN, &regression);
        const json_t *rows = json_object_get(document, "rows");
        assert_int_equal(json_array_size(rows), 1);
        assert_true(fabs(dpb_json_number(json_array_get(rows, 0), "ratio") - 1.5) < 0.01);
        assert_int_equal(json_array_size(json_object_get(document, "only_a")), 1);
        assert_int_equal(json_array_size(json_object_get(document, "only_b")), 1);
        assert_int_equal(regression, gate);
    }
}

/* A cell of comm.bucket and comm.ratio, which a run has read. */
static json_t *sweep_at(const char *bucket, const char *ratio, double read)
{
    json_t *row = cell_of("shm", 9, 10, 11);
    json_t *cell = json_pack("{s:s, s:s}", "comm.bucket", bucket, "comm.ratio", ratio);
    json_object_update_new(row, json_pack("{s:o, s:i}", "cell", cell, "cell_index", 1));
    json_t *sweep = sweep_of(row, cell_of("a", 19, 20, 21));
    json_object_update_new(sweep, json_pack("{s:{s:[s]}, s:{s:{s:{s:s}}, s:{s:{s:s}}}, "
                                            "s:[{s:i, s:{}, s:{s:{s:{s:f}}}}]}",
                                            "axes", "comm.ratio", ratio, "config", "comm", "bucket",
                                            "value", bucket, "sweep", "comm.ratio", "value", ratio,
                                            "runs", "cell_index", 1, "world", "config", "comm",
                                            "ratio", "value", read));
    return sweep;
}

/* Users write one value in several ways: core's options read it, a plugin's have been read. */
TEST(cells_are_matched_by_values)
{
    bool regression;
    for (int same = 0; same < 2; same++) {
        json_t *document = compare(sweep_at("4 MiB", "0.1", 0.1),
                                   sweep_at("4MiB", "0.10", same ? 0.1 : 0.2), NAN, &regression);
        const size_t n = json_array_size(json_object_get(document, "rows"));
        assert_int_equal(n, 1 + same);
        assert_int_equal(json_array_size(json_object_get(document, "only_a")), 1 - same);
        assert_int_equal(json_array_size(json_object_get(document, "differences")), 1 - same);
    }
}

/* What both have in common cancels where they ran by turns. */
TEST(turns_are_pairs)
{
    for (int paired = 0; paired < 2; paired++) {
        json_t *of_a = own_json(sweep_of(cell_of("a", 100, 150, 200), cell_of("b", 9, 10, 11)));
        json_t *of_b = own_json(sweep_of(cell_of("a", 89, 135, 181), cell_of("b", 9, 10, 11)));
        const struct dpb_compared a = {"a.json", of_a}, b = {"b.json", of_b};
        const struct dpb_compare_how how = {.threshold = 0.05, .paired = paired};
        json_t *document = NULL;
        bool regression;
        assert_int_equal(dpb_compare_make(&a, &b, &how, &document, &regression), DPB_OK);
        assert_int_equal(regression, paired);
        char *text = printed_as(document, dpb_compare_print);
        assert_non_null(strstr(text, "\nsamples/s: median of the repeats; B / A: ratio of their"));
        json_decref(document);
    }
}

/* n repeats of about that rate, none like another. */
static json_t *cell_with(const char *comm, size_t n, double rate)
{
    json_t *cell = cell_of(comm, rate, rate, rate);
    json_array_clear(json_object_get(cell, "rates"));
    for (size_t i = 0; i < n; i++)
        json_array_append_new(json_object_get(cell, "rates"),
                              json_real(rate * (1 + 0.01 * (double)(i * 7 % 11) / 11)));
    return cell;
}

/* Of 10 % less at a threshold of 5 %: no word before the first look, then that of the latest. */
TEST(pairs_are_judged_at_looks)
{
    static const struct {
        size_t n, planned;
        bool last;
        const char *judgement;
    } rows[] = {{9, 30, false, "undecided"},   {10, 30, false, "regression"},
                {13, 30, false, "regression"}, {3, 3, true, "regression"},
                {2, 30, true, "undecided"},    {30, 60, true, "regression"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = rows[i].n;
        json_t *of_a = own_json(sweep_of(cell_with("a", n, 100), cell_of("b", 9, 9, 9)));
        json_t *of_b = own_json(sweep_of(cell_with("a", n, 90), cell_of("b", 9, 9, 9)));
        const struct dpb_compared a = {"a.json", of_a}, b = {"b.json", of_b};
        const struct dpb_compare_how how = {
            .threshold = 0.05, .paired = true, .looks = {rows[i].planned, rows[i].last}};
        json_t *document = NULL;
        bool regression;
        if (n == 2) /* one of the pairs is lost, so there is no interval */
            json_array_set_new(
                json_object_get(json_array_get(json_object_get(of_a, "rows"), 0), "rates"), 0,
                json_null());
        assert_int_equal(dpb_compare_make(&a, &b, &how, &document, &regression), DPB_OK);
        const json_t *row = json_array_get(json_object_get(document, "rows"), 0);
        assert_string_equal(dpb_json_text(row, "judgement", ""), rows[i].judgement);
        json_decref(document);
    }
}

/* All runs of both were disturbed: nothing was seen, and a gate that sees nothing does not pass. */
TEST(what_is_not_decided_is_no_success)
{
    static const struct {
        const char *undecided;
        dpb_status status;
    } rows[] = {{NULL, DPB_NOT_DECIDED}, {"pass", DPB_OK}, {"fail", DPB_REGRESSION}};
    json_t *cells[2];
    bool regression;
    for (int i = 0; i < 2; i++) {
        cells[i] = cell_of("x", 99, 100, 101);
        json_object_update_new(
            cells[i], json_pack("{s:i, s:i, s:b}", "failed_runs", 0, "runs", 3, "disturbed", 1));
    }
    json_t *document = compare(sweep_of(cells[0], cell_of("y", 9, 10, 11)),
                               sweep_of(cells[1], cell_of("y", 9, 10, 11)), 0.5, &regression);
    assert_string_equal(dpb_json_text(document, "judgement", ""), "undecided");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dpb_first_error_clear();
        assert_int_equal(dpb_compare_status(document, rows[i].undecided), rows[i].status);
    }
    assert_non_null(
        strstr(dpb_first_error(NULL), "not shown whether b.json is slower than a.json"));
    dpb_first_error_clear();
    char *text = printed_as(document, dpb_compare_print);
    assert_non_null(strstr(text, "\nundecided: it is not shown whether B is slower by 50 %"));
}

/* A side with one clean turn allows no conclusion, and the line says why. */
TEST(one_turn_concludes_nothing)
{
    json_t *of_a = own_json(sweep_of(cell_of("a", NAN, 150, NAN), cell_of("b", NAN, NAN, NAN)));
    json_t *of_b = own_json(sweep_of(cell_of("a", 89, 90, 91), cell_of("b", 9, 10, 11)));
    for (int i = 0; i < 2; i++) /* the second has no good run */
        json_object_update_new(json_array_get(json_object_get(of_a, "rows"), (size_t)i),
                               json_pack("{s:i, s:i, s:i}", "runs", 1 - i, "failed_runs", 3 * i,
                                         "disturbed_runs", 8 - 8 * i));
    const struct dpb_compared a = {"a.json", of_a}, b = {"b.json", of_b};
    const struct dpb_compare_how how = {.threshold = NAN, .paired = true};
    json_t *document = NULL;
    bool regression;
    assert_int_equal(dpb_compare_make(&a, &b, &how, &document, &regression), DPB_OK);
    assert_false(regression);
    char *text = printed_as(document, dpb_compare_print);
    assert_non_null(strstr(text, "no conclusion"));
    assert_non_null(strstr(text, "; A was undisturbed only once\n"));
    assert_non_null(strstr(text, "  not measured\n"));
    json_decref(document);
}

TEST(unlike_documents_are_refused)
{
    bool regression;
    json_t *run = own_json(run_of(1, "shm")), *document = NULL;
    json_t *sweep = own_json(sweep_of(cell_of("a", 1, 2, 3), cell_of("b", 1, 2, 3)));
    json_t *other = own_json(sweep_of(cell_of("c", 1, 2, 3), cell_of("d", 1, 2, 3)));
    const struct dpb_compared a = {"a.json", run}, b = {"b.json", sweep}, c = {"c.json", other};
    const struct dpb_compare_how how = {.threshold = NAN};
    assert_int_equal(dpb_compare_make(&a, &b, &how, &document, &regression), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "compare two runs, two sweeps"));
    dpb_first_error_clear();
    assert_int_equal(dpb_compare_make(&b, &c, &how, &document, &regression), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "no cell in common"));
    assert_null(document);
}

TEST_MAIN(NULL, NULL)
