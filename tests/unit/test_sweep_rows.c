/* test_sweep_rows.c - the rows of a sweep: rates, speedups and intervals against numbers by hand,
 * and which runs and baselines count. */

#include "base/text.h"
#include "lib/documented.h"
#include "study/table/forms.h"
#include "sweep_study.h"
#include "study/document/rates.h"
#include "study/document/rows.h"
#include "study/document/spill.h"
#include "study/sweep/sweep_runs.h"

TEST(rows_compare_with_independent)
{
    struct study s = make_study();
    dpb_sweep_finish(DPB_OK, s.document);
    assert_string_equal(dpb_json_text(s.document, "status", ""), "ok");
    assert_int_equal(json_array_size(json_object_get(s.document, "runs")), 10);
    expect_documented(s.document);
    assert_int_equal(json_array_size(json_object_get(s.document, "rows")), 4);
    const json_t *row = row_at(&s, 3); /* shm, 2 workers */
    assert_string_equal(dpb_json_text(row, "strategy", ""), "shm");
    assert_near(dpb_json_number(row, "samples_per_s.median"), 1600);
    /* 12.706 standard errors of the mean logarithm, one degree of freedom. */
    double middle = sqrt(1580.0 * 1620), half = 12.706204736174676 * log(1620.0 / 1580) / 2;
    assert_true(fabs(dpb_json_number(row, "samples_per_s.low") - middle * exp(-half)) < 1e-3);
    assert_true(fabs(dpb_json_number(row, "samples_per_s.high") - middle * exp(half)) < 1e-3);
    assert_string_equal(dpb_json_text(row, "samples_per_s.interval", ""),
                        "95 % of the mean of the repeats");
    assert_near(json_number_value(json_array_get(json_object_get(row, "rates"), 1)), 1620);
    assert_near(dpb_json_number(row, "speedup"), 1.6);
    assert_near(dpb_json_number(row, "efficiency"), 0.8);
    assert_string_equal(dpb_json_text(row, "speedup_over", ""), "independent, 1 worker");
    assert_near(dpb_json_number(row, "speedup_over_same_strategy"), 1600.0 / 980);
    assert_near(dpb_json_number(row, "comm_exposed_share"), 0.15);
    assert_near(dpb_json_number(row, "breakdown_ns.comm_exposed"), /* of both repeats: the mean */
                0.15 * (20e9 / 1580 + 20e9 / 1620) / 2);
    assert_near(dpb_json_number(row, "accuracy"), 0.875);
    assert_true(json_is_true(json_object_get(row, "verified")));
    assert_true(json_is_false(json_object_get(row, "proved")));
    /* All reached 400 samples: its last tenth ends with steps at 370, 380, 390, 400 of one worker
     * and at 380, 400 of two. */
    assert_near(dpb_json_number(s.document, "loss_samples"), 400);
    assert_near(dpb_json_number(row_at(&s, 2), "loss"), 9 - 3.85);
    assert_near(dpb_json_number(row, "loss"), 9 - 3.90);
    assert_true(json_is_null(json_object_get(row_at(&s, 1), "verified")));
    assert_near(dpb_json_number(row_at(&s, 0), "accuracy"), 0.8125);
    assert_int_equal(json_array_size(json_object_get(s.document, "warnings")), 0);
}

TEST(rows_fall_back_to_the_same_strategy)
{
    struct study s = STUDY("sweep.comm.name=shm", "sweep.run.workers=1,4", "sweep.repeats=1");
    add_run(&s, 0, 0, (struct made_run){"shm", 1, 0, 500, 0, 10, NULL, 0});
    add_run(&s, 1, 0, (struct made_run){"shm", 4, 0, 1000, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    const json_t *row = row_at(&s, 1);
    assert_near(dpb_json_number(row, "speedup"), 2);
    assert_near(dpb_json_number(row, "efficiency"), 0.5);
    assert_string_equal(dpb_json_text(row, "speedup_over", ""), "same strategy, 1 worker");
    double low = dpb_json_number(row, "samples_per_s.low"); /* of one run, by its steps */
    double high = dpb_json_number(row, "samples_per_s.high");
    assert_true(low < 990 && low > 500 && fabs(low * high - 1e6) < 1e-3);
    assert_string_equal(dpb_json_text(row, "samples_per_s.interval", ""),
                        "95 % of the run's mean, by its steps");
}

/* sweep.when may leave out one worker of independent. */
TEST(one_worker_goes_before_several_of_independent)
{
    struct study s =
        STUDY("sweep.comm.name=independent,shm", "sweep.run.workers=1,2,4", "sweep.repeats=1");
    add_run(&s, 1, 0, (struct made_run){"independent", 2, 0, 1000, 0, 10, NULL, 0});
    add_run(&s, 2, 0, (struct made_run){"independent", 4, 0, 1900, 0, 10, NULL, 0});
    add_run(&s, 3, 0, (struct made_run){"shm", 1, 0, 500, 0, 10, NULL, 0});
    add_run(&s, 5, 0, (struct made_run){"shm", 4, 0, 1500, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    const json_t *independent = row_at(&s, 1), *shm = row_at(&s, 3);
    assert_near(dpb_json_number(shm, "speedup"), 3);
    assert_near(dpb_json_number(shm, "efficiency"), 0.75);
    assert_string_equal(dpb_json_text(shm, "speedup_over", ""), "same strategy, 1 worker");
    assert_near(dpb_json_number(independent, "speedup"), 1.9);
    assert_near(dpb_json_number(independent, "efficiency"), 0.95);
}

/* Without a row of one worker; the note says so. One number of workers alone compares nothing. */
TEST(rows_fall_back_to_the_smallest_cell)
{
    struct study s = STUDY("sweep.comm.name=shm", "sweep.run.workers=2,8", "sweep.repeats=1");
    add_run(&s, 1, 0, (struct made_run){"shm", 8, 0, 1500, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    assert_true(json_is_null(json_object_get(row_at(&s, 0), "speedup")));
    add_run(&s, 0, 0, (struct made_run){"shm", 2, 0, 500, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    const json_t *row = row_at(&s, 1);
    assert_near(dpb_json_number(row, "speedup"), 3);
    assert_near(dpb_json_number(row, "efficiency"), 0.75);
    assert_string_equal(dpb_json_text(row, "speedup_over", ""), "same strategy, 2 workers");
    assert_near(dpb_json_number(row_at(&s, 0), "speedup"), 1);
    assert_near(dpb_json_number(row_at(&s, 0), "efficiency"), 1);
    EXPECT_TABLE(&s, "over the same strategy with 2 workers, the smallest cell",
                 "effic. = speedup / (workers / 2)");
}

/* Another batch or other cores are no baseline, and other cores are warned of. */
TEST(unlike_cells_do_not_compare)
{
    struct study s =
        STUDY("sweep.comm.name=independent,shm", "sweep.run.workers=1,2", "sweep.repeats=1");
    add_run(&s, 0, 0, (struct made_run){"independent", 1, 2, 500, 0, 10, NULL, 0});
    add_run(&s, 3, 0, (struct made_run){"shm", 2, 1, 1000, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    const json_t *row = row_at(&s, 1);
    assert_true(json_is_null(json_object_get(row, "speedup")));
    assert_true(json_is_null(json_object_get(row, "speedup_over")));
    const json_t *warnings = json_object_get(s.document, "warnings");
    assert_int_equal(json_array_size(warnings), 1);
    assert_string_equal(dpb_json_text(json_array_get(warnings, 0), "code", ""), "cores_differ");

    s = STUDY("sweep.comm.name=independent,shm", "sweep.run.batch=10,20", "sweep.repeats=1");
    add_run(&s, 0, 0, (struct made_run){"independent", 1, 1, 500, 0, 10, NULL, 0});
    add_run(&s, 3, 0, (struct made_run){"shm", 2, 1, 1000, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    assert_true(json_is_null(json_object_get(row_at(&s, 1), "speedup")));
}

/* The batch may differ without an axis that says so: each model has its own default. */
TEST(other_batches_do_not_compare)
{
    struct study s = STUDY("sweep.comm.name=independent,shm", "sweep.repeats=1");
    add_run(&s, 0, 0, (struct made_run){"independent", 1, 1, 500, 0, 10, NULL, 16});
    add_run(&s, 1, 0, (struct made_run){"shm", 2, 1, 1000, 0, 10, NULL, 12});
    dpb_sweep_finish(DPB_OK, s.document);
    assert_true(json_is_null(json_object_get(row_at(&s, 1), "speedup")));

    /* Strong scaling: the same global batch compares. */
    s = STUDY("sweep.comm.name=independent,shm", "sweep.repeats=1");
    add_run(&s, 0, 0, (struct made_run){"independent", 1, 1, 500, 0, 10, NULL, 24});
    add_run(&s, 1, 0, (struct made_run){"shm", 2, 1, 900, 0, 10, NULL, 12});
    dpb_sweep_finish(DPB_OK, s.document);
    assert_near(dpb_json_number(row_at(&s, 1), "speedup"), 1.8);
}

/* An accuracy run says nothing of a row with other settings, whose training is another. */
TEST(accuracy_is_that_of_the_settings)
{
    struct study s = STUDY("sweep.comm.name=independent,shm", "sweep.run.batch=10,20",
                           "sweep.run.workers=1,2", "sweep.repeats=1", "sweep.accuracy=500");
    for (size_t cell = 0; cell < 8; cell++)
        add_run(&s, cell, 0,
                (struct made_run){cell < 4 ? "independent" : "shm", 1 + (int)cell % 2, 1, 1000, 0,
                                  40, NULL, cell / 2 % 2 == 0 ? 10 : 20});
    add_accuracy_run(&s, 0, 0.5, (struct made_run){"independent", 1, 1, 1000, 0, 40, NULL, 10});
    add_accuracy_run(&s, 5, 0.75, (struct made_run){"shm", 2, 1, 1000, 0, 40, NULL, 10});
    EXPECT_TABLE(&s, "after 500 steps with the strategy's most workers");
    for (size_t cell = 0; cell < 8; cell++) {
        const double accuracy = dpb_json_number(row_at(&s, cell), "accuracy");
        if (cell / 2 % 2 == 0)
            assert_near(accuracy, cell < 4 ? 0.5 : 0.75);
        else
            assert_true(isnan(accuracy));
    }
    assert_null(json_object_get(s.document, "accuracy_workers"));
}

TEST(accuracy_of_one_worker)
{
    struct study s = STUDY("sweep.comm.name=independent", "sweep.repeats=1", "sweep.accuracy=500");
    add_run(&s, 0, 0, (struct made_run){"independent", 1, 1, 1000, 0, 40, NULL, 10});
    add_accuracy_run(&s, 0, 0.5, (struct made_run){"independent", 1, 1, 1000, 0, 40, NULL, 10});
    EXPECT_TABLE(&s, "after 500 steps with 1 worker.");
}

/* Without accuracy runs a row has the accuracy of its own runs, if they evaluate. */
TEST(timing_runs_may_evaluate)
{
    struct study s = STUDY("sweep.run.workers=1,2", "sweep.repeats=1");
    for (size_t cell = 0; cell < 2; cell++) {
        struct made_run run = {"shm", (int)cell + 1, 1, 500, 0, 10, "pass", 0};
        json_t *result = make_result(&run);
        json_object_set_new(
            result, "eval",
            json_pack("[{s:i, s:f}]", "step", 10, "accuracy", 0.5 + 0.25 * (double)cell));
        dpb_sweep_add(s.sweep, &(struct dpb_sweep_job){.cell = cell}, result, s.document);
    }
    dpb_sweep_finish(DPB_OK, s.document);
    assert_near(dpb_json_number(row_at(&s, 0), "accuracy"), 0.5);
    assert_near(dpb_json_number(row_at(&s, 1), "accuracy"), 0.75);
}

static json_t *refused(const char *error)
{
    return json_pack("{s:s, s:s, s:s, s:{s:{s:{s:s}}}}", "schema", "dpbench.result/1", "status",
                     "failed", "error", error, "config", "comm", "name", "value", "shm");
}

TEST(failed_cells_are_rows)
{
    struct study s = STUDY("sweep.comm.name=independent,shm", "sweep.repeats=1");
    add_run(&s, 0, 0, (struct made_run){"independent", 1, 1, 500, 0, 10, "not_applicable", 0});
    const struct dpb_sweep_job job = {.cell = 1};
    dpb_sweep_add(s.sweep, &job, refused("comm 'shm' cannot do that"), s.document);
    dpb_sweep_finish(DPB_FAILED, s.document);
    assert_string_equal(dpb_json_text(s.document, "status", ""), "failed");
    assert_string_equal(dpb_json_text(s.document, "error", ""),
                        "1 of 2 runs are not ok; the first: comm 'shm' cannot do that");
    const json_t *row = row_at(&s, 1);
    assert_string_equal(dpb_json_text(row, "status", ""), "failed");
    assert_string_equal(dpb_json_text(row, "strategy", ""), "shm");
    assert_string_equal(dpb_json_text(row, "error", ""), "comm 'shm' cannot do that");
    assert_near(dpb_json_number(row, "workers"), 1); /* by default */
    char *text = printed(s.document);
    assert_non_null(strstr(text, "failed: comm 'shm' cannot do that"));
    text = printed_as(s.document, dpb_sweep_markdown); /* an item, no part of the one before */
    assert_non_null(strstr(text, "\n- failed: 1 of 2 runs are not ok; the first: comm 'shm'"));
}

TEST(untimed_cells_say_why)
{
    struct study s = STUDY("sweep.comm.name=independent", "sweep.repeats=2");
    add_run(&s, 0, 0, (struct made_run){"independent", 2, 1, NAN, 0, 10, NULL, 0});
    EXPECT_TABLE(&s, "independent  2  not timed: no timed steps that all workers ran");
    assert_string_equal(dpb_json_text(row_at(&s, 0), "status", ""), "not timed");
    const struct dpb_sweep_job job = {.cell = 0, .repeat = 1};
    dpb_sweep_add(s.sweep, &job, refused("no memory"), s.document);
    EXPECT_TABLE(&s, "independent  2  failed: no memory");
}

/* A document from elsewhere: a job has at most 1,024 ranks. */
TEST(left_is_a_number_of_workers)
{
    static const double left[] = {1, 1e300, -1e300};
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        struct study s = STUDY("sweep.comm.name=shm", "sweep.repeats=1");
        add_run(&s, 0, 0, (struct made_run){"shm", 2, 1, 1000, 0, 10, NULL, 0});
        const json_t *run = json_array_get(json_object_get(s.document, "runs"), 0);
        json_object_set_new(json_object_get(run, "world"), "left", json_real(left[i]));
        dpb_sweep_finish(DPB_OK, s.document);
        const json_t *number = json_object_get(row_at(&s, 0), "left");
        assert_true(i == 0 ? json_integer_value(number) == 1 : json_is_null(number));
    }
}

TEST(interrupted_sweep_keeps_what_there_is)
{
    struct study s = STUDY("sweep.comm.name=independent,shm", "sweep.repeats=3");
    add_run(&s, 1, 0, (struct made_run){"shm", 1, 1, 500, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_INTERRUPTED, s.document);
    assert_string_equal(dpb_json_text(s.document, "status", ""), "interrupted");
    assert_int_equal(json_array_size(json_object_get(s.document, "rows")), 1);
    char *text = printed(s.document);
    assert_non_null(strstr(text, "\ninterrupted: "));
}

/* One of four runs has the field `path` set to `value` (NULL: null); the others passed. */
TEST(verdict_is_that_of_all_runs)
{
    static const struct {
        const char *part, *path, *value, *verdict, *reason;
        bool verified, proved;
    } rows[] = {
        {NULL, "none", "", "yes", NULL, true, true},
        {NULL, "failure", "VERIFICATION", "NO (1 of 4)", "by hand", false, false},
        {NULL, "failure", "FAILED", "ends only", "a run ended without following steps", true, true},
        {NULL, "status", "interrupted", "yes", NULL, true, true},
        {"verification", "pattern", "skipped", "NO (1 of 4)", "a run ended well", false, false},
        {"verification", "replicas", "fail", "NO (1 of 4)", "a run ended well", false, false},
        {"verification", "exchange", "fail", "NO (1 of 4)", "a run ended well", false, false},
        {"verification", "after", "fail", "NO (1 of 4)", "a run ended well", false, false},
        {"verification", "steps", "fail", "NO (1 of 4)", "a run ended well", false, false},
        {"verification", "exchange", "skipped", "yes", NULL, true, false},
        {"verification", "after", "skipped", "ends only", "weights were not finite", true, true},
        {"verification", "steps", "not_applicable", "ends only", "a run ended without", true, true},
        {"verification", "steps_reason", "on a device", "yes", NULL, true, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t bad = 0; bad < 4; bad++) {
            struct study s = STUDY("sweep.comm.name=shm", "sweep.repeats=4");
            for (uint32_t k = 0; k < 4; k++) {
                add_run(&s, 0, k, (struct made_run){"shm", 2, 1, 500, 0, 10, NULL, 0});
                json_t *run = json_array_get(json_object_get(s.document, "runs"), k);
                json_object_set_new(json_object_get(run, "verification"), "exchange",
                                    json_string("pass"));
                if (k != bad)
                    continue;
                json_object_set_new(rows[i].part ? json_object_get(run, rows[i].part) : run,
                                    rows[i].path, json_string(rows[i].value));
                if (strcmp(rows[i].path, "failure") == 0)
                    json_object_update_new(
                        run, json_pack("{s:s, s:s}", "status", "failed", "error", "by hand"));
                json_object_set_new(run, "load", json_pack("{s:b}", "disturbed", 1));
            }
            dpb_sweep_finish(DPB_OK, s.document);
            const json_t *row = row_at(&s, 0);
            const char *reason = dpb_json_text(row, "verdict_reason", NULL);
            if (!dpb_json_is(row, "verdict", rows[i].verdict) || !reason != !rows[i].reason ||
                (reason && !dpb_begins_with(reason, rows[i].reason)) ||
                dpb_json_true(row, "verified") != rows[i].verified ||
                dpb_json_true(row, "proved") != rows[i].proved)
                fail_msg("row %zu, run %zu: %s: %s", i, bad, dpb_json_text(row, "verdict", "?"),
                         reason ? reason : "-");
            if (dpb_json_is(s.document, "status", "ok") !=
                (rows[i].verified && strcmp(rows[i].path, "failure") != 0 &&
                 strcmp(rows[i].path, "status") != 0))
                fail_msg("row %zu: the sweep is %s", i, dpb_json_text(s.document, "status", "?"));
        }
}

/* Without a good run there is no verdict; a sweep with [accuracy] counts that run, too. */
TEST(verdict_needs_a_run)
{
    struct study s = STUDY("sweep.comm.name=shm", "sweep.repeats=1", "sweep.accuracy=500");
    add_run(&s, 0, 0, (struct made_run){"shm", 2, 1, 500, 0, 10, NULL, 0});
    json_t *run = json_array_get(json_object_get(s.document, "runs"), 0);
    json_object_set_new(run, "status", json_string("failed"));
    dpb_sweep_finish(DPB_OK, s.document);
    assert_true(json_is_null(json_object_get(row_at(&s, 0), "verdict")));
    assert_true(json_is_false(json_object_get(row_at(&s, 0), "verified")));
    json_object_set_new(run, "status", json_string("ok"));
    add_accuracy_run(&s, 0, 0.5, (struct made_run){"shm", 2, 1, 500, 0, 10, NULL, 0});
    run = json_array_get(json_object_get(s.document, "runs"), 1);
    json_object_set_new(json_object_get(run, "verification"), "after", json_string("fail"));
    dpb_sweep_finish(DPB_OK, s.document);
    assert_string_equal(dpb_json_text(row_at(&s, 0), "verdict", ""), "NO (1 of 2)");
}

/* ---- rows beside each other ---------------------------------------------------------------- */

/* The value there, in JSON, whose object exists. */
static void put(json_t *run, const char *path, const char *value)
{
    const char *name = strrchr(path, '.');
    char above[64];
    snprintf(above, sizeof above, "%.*s", name ? (int)(name - path) : 0, path);
    json_t *object = name ? (json_t *)(uintptr_t)dpb_json_at(run, above) : run;
    json_t *made = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_int_equal(json_object_set_new(object, name ? name + 1 : path, made), 0);
}

TEST(errors_of_several_lines_are_one)
{
    static const char *const said = "no plugin 'shm': a.so: one; b.so: two";
    struct study s = STUDY("sweep.comm.name=independent,shm", "sweep.repeats=1");
    const struct dpb_sweep_job job = {.cell = 1};
    dpb_sweep_add(s.sweep, &job, refused("no plugin 'shm':\n  a.so: one \r\n  b.so: two\n"),
                  s.document);
    dpb_sweep_finish(DPB_FAILED, s.document);
    assert_string_equal(dpb_json_text(row_at(&s, 0), "error", ""), said);
    const json_t *shown = own_json(dpb_json_printable(s.document));
    expect_said(dpb_json_text(shown, "error", ""), said);
    static print_form *const forms[] = {dpb_sweep_print, dpb_sweep_markdown, dpb_sweep_csv,
                                        dpb_runs_csv};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const char *text = printed_as(shown, forms[i]);
        assert_non_null(strstr(text, said));
        assert_null(strstr(text, "x0a"));
    }
}

/* independent, shm and replicated with 2 workers, two seeds, and the same losses in 10 steps. */
static struct study make_equals(void)
{
    struct study s =
        STUDY("sweep.comm.name=independent,shm,replicated", "sweep.seeds=2", "run.workers=2");
    for (uint32_t i = 0; i < 6; i++) {
        static const char *const names[] = {"independent", "shm", "replicated"};
        add_run(&s, i % 3, i / 3,
                (struct made_run){names[i % 3], 2, 1, 500, 0, 10,
                                  i % 3 == 0 ? "not_applicable" : "pass", 0});
        json_t *run = json_array_get(json_object_get(s.document, "runs"), i);
        put(run, "world.left", "2");
        put(run, "versions", "{\"build\": 1}");
        put(run, "config",
            i / 3 == 0 ? "{\"run\": {\"seed\": {\"value\": 1}}}"
                       : "{\"run\": {\"seed\": {\"value\": 2}}}");
        put(run, "config.run.precision", "{\"value\": \"fp32\"}");
        put(run, "config.comm", i % 3 == 0 ? "{\"name\": 0}" : "{\"name\": 1}");
        put(run, "config.optimizer", "{\"learning_rate\": {\"value\": 0.1}}");
    }
    return s;
}

/* The run of replicated with seed 2. */
static json_t *last_of(const struct study *s)
{
    return json_array_get(json_object_get(s->document, "runs"), 5);
}

static void set_loss(json_t *run, size_t step, double loss)
{
    json_array_set_new(json_object_get(run, "loss"), step, json_real(loss));
}

/* Its first loss is another; so is the value at `path`. */
TEST(first_losses_agree)
{
    static const struct {
        const char *path, *value;
        double factor;
        bool accused;
    } rows[] = {
        {"config.comm.name", "7", 1 + 5e-7, false},
        {"config.comm.name", "7", 1 + 2e-6, true},
        {"config.comm.name", "7", 1 - 2e-6, true},
        {"config.optimizer.momentum", "7", 1 + 2e-6, true},
        {"strategy.consistency", "\"late(1)\"", 1 + 2e-6, true},
        {"config.run.precision.value", "\"bf16\"", 2, false},
        {"config.run.seed.value", "3", 2, false},
        {"config.run.steps", "7", 2, false},
        {"config.checkpoint", "{\"load\": 7}", 2, false},
        {"world.workers", "3", 2, false},
        {"world.left", "1", 2, false},
        {"versions.build", "2", 2, false},
        {"inputs", "{\"data.path\": 7}", 2, false},
        {"inputs", "{\"comm.rows\": 7}", 1 + 2e-6, true},
        {"ranks", "[{\"threads\": 2}]", 2, false},
        {"gpus", "{}", 2, false},
        {"strategy.consistency", "\"partial(1 of 2)\"", 2, false},
        {"strategy.consistency", "\"batches(1)\"", 2, false},
        {"status", "\"failed\"", 2, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct study s = make_equals();
        put(last_of(&s), rows[i].path, rows[i].value);
        set_loss(last_of(&s), 0, rows[i].factor * 8.8);
        dpb_sweep_finish(DPB_OK, s.document);
        const char *reason = dpb_json_text(row_at(&s, 2), "verdict_reason", "");
        if (dpb_json_is(row_at(&s, 2), "verdict", "NO (1 of 2)") != rows[i].accused ||
            (strstr(reason, "of replicated is 8.") != NULL) != rows[i].accused ||
            (strstr(reason, " that of independent 8.8:") != NULL) != rows[i].accused ||
            !dpb_json_is(row_at(&s, 1), "verdict", "yes"))
            fail_msg("row %zu: %s", i, reason);
        if (rows[i].accused)
            expect_said(dpb_json_text(s.document, "error", ""),
                        "verification of replicated failed");
    }
}

/* Right is the majority; of two runs `independent`. */
TEST(first_loss_of_most_is_right)
{
    for (size_t wrong = 0; wrong < 3; wrong++) {
        struct study s = make_equals();
        json_t *runs = json_object_get(s.document, "runs");
        set_loss(json_array_get(runs, wrong), 0, 9.5);
        dpb_sweep_finish(DPB_OK, s.document);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(i == wrong, dpb_json_is(row_at(&s, i), "verdict", "NO (1 of 2)"));
        if (wrong > 0)
            continue;
        json_array_remove(runs, 2);
        dpb_sweep_finish(DPB_OK, s.document);
        assert_true(dpb_json_is(row_at(&s, 1), "verdict", "NO (1 of 2)"));
    }
}

/* In all runs but the last one the second loss is another than that of `independent`. */
TEST(training_like_independent_is_a_warning)
{
    static const struct {
        const char *path, *value;
        bool warned;
    } rows[] = {
        {"config.comm.name", "7", true},
        {"strategy.consistency", "\"late(1)\"", true},
        {"strategy.consistency", "\"periodic(9)\"", true},
        {"strategy.consistency", "\"periodic(10)\"", false},
        {"strategy.consistency", "\"averaging\"", true},
        {"strategy.consistency", "\"averaging\"", false},
        {"config.optimizer.learning_rate.value", "0", false},
        {"config.optimizer.momentum", "7", false},
        {"config.run.seed.value", "3", false},
        {"loss", "[9]", false},
        {"loss", "[9, 8.5, 7.5]", false},
        {"loss", "[9, 8.5, 8]", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct study s = make_equals();
        json_t *runs = json_object_get(s.document, "runs");
        set_loss(json_array_get(runs, 1), 1, 7);
        set_loss(json_array_get(runs, 2), 1, 7);
        set_loss(json_array_get(runs, 4), 1, 7);
        for (size_t k = 0; k < 10; k++)
            set_loss(json_array_get(runs, 3), k, 9 - 0.5 * (double)k);
        json_object_set(last_of(&s), "loss", json_object_get(json_array_get(runs, 3), "loss"));
        put(last_of(&s), "config.comm.period",
            rows[i].warned ? "{\"value\": 9}" : "{\"value\": 10}");
        put(last_of(&s), rows[i].path, rows[i].value);
        dpb_sweep_finish(DPB_OK, s.document);
        const json_t *warning = json_array_get(json_object_get(s.document, "warnings"), 0);
        if (dpb_json_is(warning, "code", "like_independent") != rows[i].warned)
            fail_msg("row %zu: %s", i, dpb_json_text(warning, "text", "-"));
        if (rows[i].warned)
            expect_said(dpb_json_text(warning, "text", ""), "each loss of replicated is that of");
    }
}

/* A row is steady where all its runs say so, gate or none; without a gate there is no mark. */
TEST(steadiness_is_that_of_the_runs)
{
    for (int steady = 0; steady < 2; steady++) {
        struct study s = STUDY("sweep.comm.name=shm", "sweep.repeats=2");
        for (uint32_t repeat = 0; repeat < 2; repeat++) {
            add_run(&s, 0, repeat, (struct made_run){"shm", 2, 1, 1000, 0, 10, NULL, 0});
            json_t *timing = json_object_get(
                json_array_get(json_object_get(s.document, "runs"), repeat), "timing");
            json_object_set_new(timing, "gated", json_false());
            json_object_set_new(timing, "steady", json_boolean(steady));
        }
        dpb_sweep_finish(DPB_OK, s.document);
        assert_int_equal(json_is_true(json_object_get(row_at(&s, 0), "steady")), steady);
        assert_true(json_is_false(json_object_get(row_at(&s, 0), "gated")));
        char *text = printed(s.document);
        assert_null(strchr(text, '~'));
    }
}

/* A repeat of its own run that nobody disturbed makes a row; without one there is no conclusion. */
TEST(disturbed_runs_are_left_out)
{
    for (int clean = 0; clean < 2; clean++) {
        struct study s =
            STUDY("sweep.comm.name=replicated,shm", "sweep.repeats=2", "sweep.retry_disturbed=1");
        for (uint32_t repeat = 0; repeat < 2; repeat++)
            for (size_t cell = 0; cell < 2; cell++)
                for (int attempt = 0; attempt < 2; attempt++) {
                    const struct dpb_sweep_job job = {.cell = cell, .repeat = repeat};
                    assert_false(dpb_sweep_done(s.sweep, s.document, &job));
                    bool disturbed = attempt == 0 || (cell == 1 && !clean);
                    add_run(&s, cell, repeat,
                            (struct made_run){cell == 0 ? "replicated" : "shm", 2, 1,
                                              disturbed ? 500 : 1000 + 10 * repeat, 0, 10, NULL,
                                              0});
                    json_t *runs = json_object_get(s.document, "runs");
                    json_object_set_new(json_array_get(runs, json_array_size(runs) - 1), "load",
                                        json_pack("{s:b}", "disturbed", disturbed));
                    assert_int_equal(dpb_sweep_done(s.sweep, s.document, &job), attempt);
                }
        dpb_sweep_finish(DPB_OK, s.document);
        assert_near(dpb_json_number(row_at(&s, 0), "samples_per_s.median"), 1005);
        assert_near(dpb_json_number(row_at(&s, 0), "disturbed_runs"), 2);
        assert_near(dpb_json_number(row_at(&s, 0), "runs"), 2);
        assert_near(dpb_json_number(row_at(&s, 1), "samples_per_s.median"), clean ? 1005 : 500);
        char *text = printed(s.document);
        assert_int_equal(strstr(text, "no conclusion (shm disturbed)") != NULL, !clean);
        assert_int_equal(strchr(text, '?') != NULL, !clean);
    }
}

/* A repeat that was disturbed each time has the median of its runs, as the row has of all. */
TEST(disturbed_runs_of_a_repeat_count_alike)
{
    static const double rates[2][3] = {{900, 1000, 500}, {1000, 1100, 500}};
    struct study s = STUDY("sweep.comm.name=shm", "sweep.repeats=2", "sweep.retry_disturbed=2");
    for (uint32_t repeat = 0; repeat < 2; repeat++)
        for (size_t i = 0; i < 3; i++) {
            add_run(&s, 0, repeat,
                    (struct made_run){"shm", 2, 1, rates[repeat][i], 0, 10, NULL, 0});
            json_t *runs = json_object_get(s.document, "runs");
            json_object_set_new(json_array_get(runs, json_array_size(runs) - 1), "load",
                                json_pack("{s:b}", "disturbed", 1));
        }
    dpb_sweep_finish(DPB_OK, s.document);
    assert_near(dpb_json_number(row_at(&s, 0), "samples_per_s.median"), 950);
    const json_t *of_repeats = json_object_get(row_at(&s, 0), "rates");
    assert_near(dpb_json_number(json_array_get(of_repeats, 0), ""), 900);
    assert_near(dpb_json_number(json_array_get(of_repeats, 1), ""), 1000);
    assert_true(dpb_json_number(row_at(&s, 0), "samples_per_s.high") > 950);
    s = STUDY("sweep.comm.name=shm", "sweep.repeats=1", "sweep.retry_disturbed=2");
    for (size_t i = 0; i < 3; i++)
        add_run(&s, 0, 0, (struct made_run){"shm", 2, 1, rates[0][i], 0, 10, NULL, 0});
    EXPECT_TABLE(&s, "median of 1 repeat; interval: 95 % of the run's mean, by its steps.");
    const struct dpb_sweep_job job = {.cell = 0};
    json_t *runs = json_object_get(s.document, "runs");
    json_array_remove(runs, 2);
    dpb_each_item(runs, i, run)
        json_object_set_new(run, "load", json_pack("{s:b}", "disturbed", 1));
    assert_false(dpb_sweep_done(s.sweep, s.document, &job));
    dpb_sweep_stay(s.document);
    assert_true(dpb_sweep_done(s.sweep, s.document, &job));
}

/* A run whose plugin has this checksum, and its data this fingerprint. */
static void add_build(const struct study *s, size_t cell, uint32_t repeat, const char *crc32,
                      const char *fingerprint)
{
    const char *name = cell == 0 ? "replicated" : "shm";
    add_run(s, cell, repeat, (struct made_run){name, 2, 1, 1000 + 10 * repeat, 0, 10, NULL, 0});
    json_t *runs = json_object_get(s->document, "runs");
    json_object_update_new(json_array_get(runs, json_array_size(runs) - 1),
                           json_pack("{s:{s:s, s:{s:{s:s, s:{s:s, s:s}}}}, s:{s:{s:s, s:s, s:s?}}}",
                                     "versions", "dpbench", "1", "plugins", "comm", "name", name,
                                     "file", "path", crc32, "crc32", cell == 0 ? "own" : crc32,
                                     "inputs", "data.path", "path", "there", "files", "9",
                                     "fingerprint", fingerprint));
}

/* Rows of two builds or data would be a mean of both. Each cell has a plugin of its own. */
TEST(replaced_plugins_and_data_have_rows_of_their_own)
{
    static const struct {
        const char *crc32[2], *fingerprint[2], *told; /* by repeat */
        size_t n_rows;
    } rows[] = {
        {{"1", "1"}, {"x", "x"}, NULL, 2},
        {{"1", "1"}, {"x", NULL}, NULL, 2}, /* not looked at to its end */
        {{"1", "2"},
         {"x", "x"},
         "plugins.comm 'shm'.file.crc32 is \"1\" (setup 1), \"2\" (setup 2): it was replaced",
         3},
        {{"1", "1"},
         {"x", "y"},
         "inputs.data.path = ?.fingerprint is \"x\" (setup 1), \"y\" (setup 2): it was replaced",
         4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct study s = STUDY("sweep.comm.name=replicated,shm", "sweep.repeats=2");
        for (uint32_t repeat = 0; repeat < 2; repeat++)
            for (size_t cell = 0; cell < 2; cell++)
                add_build(&s, cell, repeat, rows[i].crc32[repeat], rows[i].fingerprint[repeat]);
        char *text = table_of(&s);
        const json_t *warnings = json_object_get(s.document, "warnings");
        assert_int_equal(json_array_size(warnings), rows[i].told ? 1 : 0);
        assert_int_equal(json_array_size(json_object_get(s.document, "rows")), rows[i].n_rows);
        if (!rows[i].told)
            continue;
        assert_true(dpb_json_is(json_array_get(warnings, 0), "code", "setups_differ"));
        expect_said(dpb_json_text(json_array_get(warnings, 0), "text", ""), rows[i].told);
        const json_t *last = row_at(&s, rows[i].n_rows - 1);
        assert_string_equal(dpb_json_text(last, "cell.setup", ""), "2");
        assert_int_equal(dpb_json_number(last, "runs"), 1);
        print_message("%s\n", text);
    }
}

/* ---- runs in a temporary file ---------------------------------------------------------------- */

static json_t *long_run(int seed)
{
    json_t *loss = json_array(), *step_ns = json_array();
    for (int i = 0; i < 20; i++) {
        json_array_append_new(loss, i == 7 ? json_null() : json_real(1.0 / (i + seed + 3)));
        json_array_append_new(step_ns, json_integer(1000 * seed + i));
    }
    return json_pack("{s:s, s:{s:s, s:[i, i]}, s:{s:o, s:[i]}, s:o, s:[{s:s, s:i}], s:{s:[]}, s:n}",
                     "name", "a", "machine", "host", "h", "cores", 1, 2, "timing", "step_ns",
                     step_ns, "warmup_step_ns", seed, "loss", loss, "ranks", "host", "h", "threads",
                     seed, "monitor", "machines", "why");
}

static int append(const char *text, size_t n, void *out)
{
    return fwrite(text, 1, n, out) == n ? 0 : -1;
}

/* What dpb_document_dump writes is what jansson makes of the document as it was. */
static void expect_dumped(const json_t *document, const json_t *was)
{
    char *text = NULL, *expected = json_dumps(was, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    size_t n;
    FILE *out = open_memstream(&text, &n);
    assert_true(dpb_document_dump(document, append, out));
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
    free(expected);
}

TEST(spilled_runs_are_read_back)
{
    json_t *document = own_json(json_pack("{s:s, s:[], s:[]}", "a", "\n", "runs", "rows"));
    json_t *runs = json_object_get(document, "runs");
    for (int seed = 0; seed < 3; seed++)
        json_array_append_new(runs, long_run(seed % 2));
    json_array_append_new(runs, json_object());
    json_array_append_new(runs, json_null());
    const json_t *was = own_json(json_deep_copy(document)),
                 *was_runs = json_object_get(was, "runs");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_t *run = json_array_get(runs, i), *was_run = json_array_get(was_runs, i);
        dpb_run_spill(run, i > 0 ? json_array_get(runs, i - 1) : NULL);
        dpb_run_spill(run, NULL); /* the second time nothing is left to do */
        assert_true(json_is_null(run) || json_equal(own_json(dpb_run_whole(run)), was_run));
        assert_int_equal(json_array_size(json_object_get(run, "loss")), 0);
        assert_int_equal(json_array_size(dpb_json_at(run, "timing.step_ns")), 0);
        assert_int_equal(json_array_size(json_object_get(run, "ranks")), 0);
        assert_int_equal(dpb_run_size(run, "loss"), dpb_run_size(was_run, "loss"));
        for (size_t k = 0; k < 21; k++)
            assert_true(dpb_json_same(own_json(dpb_json_real(dpb_run_item(run, "loss", k))),
                                      own_json(dpb_json_real(dpb_run_item(was_run, "loss", k)))));
        json_t *ranks = own_json(dpb_run_part(run, "ranks"));
        assert_true(i > 2 ? !ranks : json_equal(ranks, json_object_get(was_run, "ranks")));
    }
    assert_true(json_equal(json_array_get(runs, 0), json_array_get(runs, 2)));
    assert_false(json_equal(json_array_get(runs, 0), json_array_get(runs, 1)));
    assert_ptr_equal(json_object_get(json_array_get(runs, 0), "machine"),
                     json_object_get(json_array_get(runs, 1), "machine"));
    const json_t *printable = own_json(dpb_json_printable(document));
    expect_dumped(document, was);
    expect_dumped(json_array_get(runs, 0), json_array_get(was_runs, 0));
    json_object_set_new(own_json(json_incref((json_t *)(uintptr_t)was)), "a", json_string("\\x0a"));
    expect_dumped(printable, was);
}

TEST(spilled_runs_make_the_same_rows)
{
    struct study in_memory = make_equals(), spilled = make_equals();
    dpb_each_item(json_object_get(spilled.document, "runs"), i, run)
        dpb_run_spill(run, json_array_get(json_object_get(spilled.document, "runs"), 0));
    dpb_sweep_finish(DPB_OK, in_memory.document);
    dpb_sweep_finish(DPB_OK, spilled.document);
    for (size_t i = 0; i < 3; i++)
        assert_true(json_equal(row_at(&in_memory, i), row_at(&spilled, i)));
    print_form *const forms[] = {dpb_sweep_print, dpb_runs_csv, dpb_steps_csv, dpb_evals_csv};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        assert_string_equal(printed_as(in_memory.document, forms[i]),
                            printed_as(spilled.document, forms[i]));
}

TEST(evaluations_are_lines)
{
    const struct study s = make_study();
    assert_string_equal(printed_as(s.document, dpb_evals_csv),
                        "run,comm.name,run.workers,repeat,step,accuracy\n"
                        "8,independent,2,0,500,0.8125\n9,shm,2,0,500,0.875\n");
}

/* A document can have what looks like a spilled part. */
TEST(no_document_imitates_a_spilled_part)
{
    json_t *run = own_json(
        json_pack("{s:{s:[s, i, i, i, f]}}", "loss", "spilled", "spilled", 0, 10, 10, 1.0));
    dpb_run_spill(own_json(long_run(5)), NULL);
    assert_int_equal(dpb_run_size(run, "loss"), 0);
    assert_true(json_equal(own_json(dpb_run_whole(run)), run));
    expect_dumped(run, own_json(json_deep_copy(run)));
}

/* A block counts where both had a turn in it; of rows that ran apart, there is none. */
TEST(rows_are_compared_within_blocks)
{
    json_t *a =
        own_json(json_pack("{s:{s:[iiiii], s:[ffffn]}, s:[f]}", "turns", "block", 0, 1, 2, 4, 5,
                           "samples_per_s", 100.0, 200.0, 50.0, 800.0, "rates", 500.0));
    json_t *b =
        own_json(json_pack("{s:{s:[iiiii], s:[fffff]}, s:[f]}", "turns", "block", 1, 2, 3, 4, 5,
                           "samples_per_s", 220.0, 55.0, 1e9, 880.0, 7.0, "rates", 700.0));
    json_t *document = own_json(json_object()), *other = own_json(json_object());
    struct dpb_comparison c;
    dpb_rates_compare(document, a, document, b, NULL, 0.05, &c);
    assert_true(c.of_blocks && c.paired);
    assert_near(c.ratio, 1.1);
    dpb_rates_compare(document, a, other, b, NULL, 0.05, &c);
    assert_true(!c.of_blocks);
    assert_near(c.ratio, 1.4);
    /* A gate's pairs: the centre of a repeat's blocks, not the ratio of its rates. */
    json_object_set_new(json_object_get(a, "turns"), "repeat", json_pack("[iiiii]", 0, 0, 0, 1, 1));
    json_object_set_new(a, "rates", json_pack("[fff]", 500.0, 500.0, 500.0));
    json_object_set_new(b, "rates", json_pack("[ff]", 700.0, 700.0));
    dpb_rates_compare(document, a, other, b, NULL, 0.05, &c);
    assert_true(c.paired && !c.of_blocks);
    assert_near(c.ratio, 1.1);
    json_object_set_new(a, "cell", json_pack("{s:s}", "setup", "one"));
    json_object_set_new(b, "cell", json_pack("{s:s}", "setup", "another"));
    dpb_rates_compare(document, a, document, b, NULL, 0.05, &c);
    assert_true(!c.of_blocks);
    /* What disturbs a turn disturbs those beside it. */
    json_object_update_new(
        a, json_pack("{s:i, s:i, s:b}", "failed_runs", 0, "runs", 1, "disturbed", 1));
    for (size_t i = 0; i < DPB_DOUBTS; i++)
        assert_null(dpb_rates_doubt(a, i));
    json_object_set_new(a, "turns", json_null());
    assert_non_null(dpb_rates_doubt(a, DPB_DOUBT_DISTURBED));
    assert_non_null(dpb_rates_doubt(a, DPB_DOUBT_ONCE));
}

TEST_MAIN(NULL, NULL)
