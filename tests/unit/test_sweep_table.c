/* test_sweep_table.c - the table of a sweep and its conclusions: what is fastest, what is doubtful,
 * published figures beside ours. */

#include "lib/documented.h"
#include "sweep_study.h"
#include "study/document/rates.h"
#include "study/document/rows.h"

TEST(table_says_who_was_fastest)
{
    struct study s = make_study();
    char *text = table_of(&s);
    assert_non_null(strstr(
        text, "strategy    label       workers samples/s   interval speedup effic. exposed   loss "
              "accuracy verified\n"
              "independent none              1      1000  775..1289    1.00  100 %   0.0 % 5.1500  "
              "81.25 %      n/a\n"));
    assert_non_null(strstr(
        text,
        "\nshm         synchronous       2      1600 1365..1875    1.60   80 %  15.0 % 5.1000  "
        "87.50 %      yes\n"));
    assert_null(strstr(text, "warning"));
    EXPECT_TABLE(&s, "- 2 workers: shm / independent 0.842 [0.8",
                 "- run.workers 2 / 1: independent 1.900 [", "median of 2 repeats",
                 "mean of the repeats; a / b: ratio of these means, not of the medians; "
                 "speedup: over independent");
}

/* A disturbed run is left out, and a run that never was: the row says of how many it is. */
TEST(n_is_what_was_measured)
{
    struct study s =
        race("replicated,shm", 3, (const double[]){1000, 1010, 1020, 1005, 1014, 1026});
    char *text = table_of(&s);
    assert_null(strstr(text, " n "));
    assert_non_null(strstr(text, "median of 3 repeats;"));
    json_t *runs = json_object_get(s.document, "runs");
    json_object_set_new(json_array_get(runs, 0), "load", json_pack("{s:b}", "disturbed", 1));
    dpb_sweep_finish(DPB_OK, s.document);
    text = table_of(&s);
    assert_non_null(strstr(text, "interval       n  "));
    assert_non_null(strstr(text, "  2 of 3 "));
    assert_non_null(
        strstr(text, "- n: repeats that were measured undisturbed, of those planned; "));
    assert_null(strstr(text, "median of 3 repeats"));
    /* Interrupted before the last repeat of each: the plan of three is no measurement. */
    struct study two =
        race("replicated,shm", 3, (const double[]){1000, 1010, 1020, 1005, 1014, 1026});
    runs = json_object_get(two.document, "runs");
    for (size_t i = json_array_size(runs); i-- > 0;)
        if (dpb_json_number(json_array_get(runs, i), "repeat") == 2)
            json_array_remove(runs, i);
    dpb_sweep_finish(DPB_INTERRUPTED, two.document);
    text = table_of(&two);
    assert_null(strstr(text, "median of 3"));
    assert_non_null(strstr(strstr(text, "2 of 3") + 1, "2 of 3"));
}

/* A line of the quickstart has 100 characters without `n`: efficiencies make room. */
TEST(lines_keep_their_width)
{
    struct study s = make_study();
    json_t *runs = json_object_get(s.document, "runs");
    json_object_set_new(json_array_get(runs, 0), "load", json_pack("{s:b}", "disturbed", 1));
    dpb_sweep_finish(DPB_OK, s.document);
    char *text = table_of(&s);
    assert_in_range(strcspn(text, "\n"), 80, 100);
    text[strcspn(text, "\n")] = '\0';
    assert_non_null(strstr(text, " n speedup exposed "));
}

/* A repeat of both cells takes 200 s, by the moments at which runs started; a night between two
 * runs does not count. */
TEST(repeats_to_take_have_their_time)
{
    struct study s =
        race("replicated,shm", 3, (const double[]){1000, 1010, 1020, 1005, 1114, 1026});
    const json_t *runs = json_object_get(s.document, "runs");
    dpb_each_item(runs, i, run) {
        char when[32];
        const int seconds = 100 * (int)i;
        snprintf(when, sizeof when, "2026-11-2%dT12:%02d:%02dZ", i < 3 ? 1 : 2, seconds / 60 % 60,
                 seconds % 60);
        json_object_set_new(run, "started", json_string(when));
    }
    assert_near(dpb_rates_repeat_s(s.document), 200);
    EXPECT_TABLE(&s, "undecided: take 21 repeats, about 1 h 10 min, or 8 for 10 %.");
}

/* Ten classes: guessing has a loss of 2.303. shm stays there, and replicated learns by as many
 * samples. */
TEST(rows_that_did_not_learn_are_marked)
{
    static const struct {
        double slope; /* of replicated, by step */
        int per_epoch;
        bool diverges, marked;
    } rows[] = {{0.1, 1000, false, true},
                {0, 1000, false, false}, /* both are short, and neither has learned */
                {0, 100, false, true},   /* an epoch */
                {0, 1000, true, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct study s = race("replicated,shm", 2, (const double[]){1000, 1010, 1100, 1110});
        dpb_each_item(json_object_get(s.document, "runs"), k, run) {
            json_t *loss = json_array();
            const bool learns = dpb_json_is(run, "strategy.name", "replicated");
            for (int step = 0; step < 10; step++)
                json_array_append_new(loss,
                                      rows[i].diverges && !learns && step == 9
                                          ? json_null()
                                          : json_real(2.31 - (learns ? rows[i].slope * step : 0)));
            json_object_set_new(run, "loss", loss);
            json_object_set_new(run, "model", json_pack("{s:i}", "classes", 10));
            json_object_set_new(json_object_get(run, "batch"), "per_epoch",
                                json_integer(rows[i].per_epoch));
        }
        char *text = table_of(&s);
        if ((strstr(text, " yes #\n") != NULL) != rows[i].marked)
            fail_msg("row %zu:\n%s", i, text);
        if (rows[i].marked)
            expect_said(text,
                        rows[i].slope > 0
                            ? "replicated / shm 0.910 [0.904..0.915] slower (shm did not learn)"
                            : "- # did not learn: shm, 2 workers: its loss ");
        if (i == 0)
            expect_said(text,
                        "- # did not learn: shm, 2 workers: its loss is 2.31 after 200 samples, "
                        "and 2.31 at its start; guessing has 2.3.");
    }
}

/* Turns of two cells: in the first blocks the cores are near, in the last `far` ones not, and the
 * ratio is another one. Then the cells share no far block. */
TEST(core_latency_that_changed_is_said)
{
    enum { BLOCKS = 40 };
    static const struct {
        int far;
        bool apart, said;
    } rows[] = {{0, false, false}, {1, false, false}, {2, false, true},  {16, false, true},
                {16, true, true},  {38, false, true}, {40, false, false}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int far = rows[r].far;
        struct study s = race("replicated,shm", 1, (const double[]){1000, 1000});
        dpb_each_item(json_object_get(s.document, "runs"), i, run) {
            json_t *blocks = json_array(), *rates = json_array(), *latencies = json_array();
            for (int k = 0; k < BLOCKS; k++) {
                const bool is_far = k >= BLOCKS - far;
                json_array_append_new(
                    blocks, json_integer(rows[r].apart && is_far ? k + 1000 * (json_int_t)i : k));
                json_array_append_new(rates, json_real(i == 0 ? 1000 : is_far ? 1250 : 800));
                json_array_append_new(latencies, json_real(is_far ? 150 : 30 + k % 3));
            }
            json_object_set_new(run, "turns",
                                json_pack("{s:o, s:o, s:o}", "block", blocks, "samples_per_s",
                                          rates, "core_to_core_ns", latencies));
            json_object_set_new(run, "core_to_core",
                                json_pack("{s:[i, i], s:f}", "cores", 0, 1, "ns", 30.0));
        }
        char *text = table_of(&s);
        if ((strstr(text, "- the machine changed") != NULL) != rows[r].said)
            fail_msg("row %zu:\n%s", r, text);
        if (rows[r].apart)
            expect_said(text, "moves its processors between caches.");
        else if (far == 16)
            expect_said(text, "- the machine changed: from core to core it took 31 ns in 48 turns "
                              "(near) and 150 ns in 32 (far), as when a hypervisor moves its "
                              "processors between caches; 2 workers: shm / replicated 0.800 "
                              "[0.800..0.800] near, 1.250 [1.250..1.250] far.");
    }
}

/* Starts of runs count where there are no turns; those on other cores do not. */
TEST(core_latency_of_repeats_is_said)
{
    for (int other = 0; other < 2; other++) {
        struct study s = race("replicated,shm", 3, (const double[]){10, 11, 12, 10, 11, 12});
        dpb_each_item(json_object_get(s.document, "runs"), i, run)
            json_object_set_new(run, "core_to_core",
                                json_pack("{s:[i, i], s:f}", "cores", 0, i < 2 && other ? 2 : 1,
                                          "ns", i < 2 ? 160.0 : 25.0));
        char *text = table_of(&s);
        if (other)
            assert_null(strstr(text, "- the machine changed"));
        else
            expect_said(text, "- the machine changed: from core to core it took 25 ns in 4 starts "
                              "of runs (near) and 160 ns in 2 (far), as");
    }
}

/* Three repeats each; what is said of shm and replicated. */
TEST(winners_are_shown_by_intervals)
{
    static const struct {
        double rates[6];
        const char *said;
    } rows[] = {
        {{1000, 1010, 1020, 2000, 2010, 2030},
         "- 2 workers: shm is fastest; replicated / shm 0.502 [0.49"},
        {{1000, 1010, 1020, 1005, 1014, 1026}, "] equal within 5 %."},
        {{1000, 1010, 1020, 1005, 1314, 1026},
         "- 2 workers: shm is first, but not shown to be the fastest; replicated / shm 0.9"},
        {{1000, 1010, 1020, 1005, 1314, 1026}, "undecided: take"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct study s = race("replicated,shm", 3, rows[i].rates);
        EXPECT_TABLE(&s, rows[i].said);
    }
}

/* A reason has one line; a row that is wrong allows no conclusion. */
TEST(verdicts_say_why)
{
    struct study s = race("replicated,shm", 2, (const double[]){1000, 1010, 1000, 1010});
    const json_t *runs = json_object_get(s.document, "runs");
    for (size_t i = 0; i < 4; i++)
        json_object_update_new(
            json_object_get(json_array_get(runs, i), "verification"),
            json_pack("{s:s, s:s}", "steps", "skipped", "steps_reason", "arenas are on a device"));
    EXPECT_TABLE(&s, " ends only ",
                 "- ends only: replicated, 2 workers; shm, 2 workers: arenas are on a device. ",
                 "- 2 workers: replicated is first");
    json_object_update_new(
        json_array_get(runs, 3),
        json_pack("{s:s, s:s, s:s}", "status", "failed", "failure", "VERIFICATION", "error", "1"));
    EXPECT_TABLE(&s, " ends only ", "- ends only: replicated, 2 workers: arenas ", " NO (1 of 2) ",
                 "- NO (1 of 2): shm, 2 workers: 1. ", "no conclusion (shm not verified");
}

/* Runs that do not train have no loss, and the page speaks of none. */
TEST(no_loss_is_explained_without_training)
{
    struct study s = race("replicated,shm", 2, (const double[]){1000, 1010, 1000, 1010});
    dpb_each_item(json_object_get(s.document, "runs"), i, run)
        json_object_set_new(run, "config",
                            json_pack("{s:{s:{s:s}}}", "run", "mode", "value", "forward"));
    char *text = table_of(&s);
    assert_non_null(strstr(text, "- exposed: "));
    assert_null(strstr(text, "loss"));
}

/* Each axis has a line with all its pairs, however many groups there are. */
TEST(every_axis_has_its_effect)
{
    struct study s = STUDY("sweep.run.precision=fp32,bf16", "sweep.comm.name=shm,ps",
                           "sweep.run.batch=1,2,3", "sweep.repeats=3");
    for (uint32_t repeat = 0; repeat < 3; repeat++)
        for (size_t cell = 0; cell < 12; cell++)
            add_run(&s, cell, repeat,
                    (struct made_run){cell / 3 % 2 == 0 ? "shm" : "ps", 2, 1,
                                      (cell < 6 ? 1000 : 990) + 3 * ((repeat + cell) % 3), 0, 10,
                                      NULL, 0});
    json_object_set_new(json_array_get(json_object_get(s.document, "runs"), 11), "throttled",
                        json_true());
    EXPECT_TABLE(&s, "- run.precision bf16 / fp32: shm, run.batch = 1 0.990 [",
                 "; ps, run.batch = 2 0.99", "; ps, run.batch = 3 0.990 no conclusion (throttled).",
                 "- run.batch 2 / 1: run.precision = fp32, shm ",
                 "- run.batch 3 / 1: run.precision = fp32, shm ",
                 "- run.precision = fp32, run.batch = 1: 2 workers: ",
                 "- run.precision = bf16, run.batch = 2: 2 workers: ",
                 "- run.precision = bf16, run.batch = 3: 2 workers: no conclusion (ps throttled).");
}

/* Beside ours: by the baseline of the row in the column, by the other cell behind a ratio. */
TEST(published_figures_are_speedups)
{
    struct study s = STUDY(
        "sweep.comm.name=independent,shm", "sweep.run.workers=1,2", "sweep.repeats=1",
        "published.comm.name independent run.workers 1=50, A paper (2017), 2 Tesla M60, by PCIe",
        "published.comm.name  shm  run.workers 2=77.5 , A paper (2017)\t, 2 Tesla M60, by PCIe ",
        "published.run.workers 2 comm.name independent=100, Others, a P100");
    static const double rates[] = {1000, 1900, 980, 1600};
    for (size_t cell = 0; cell < 4; cell++)
        add_run(&s, cell, 0,
                (struct made_run){cell < 2 ? "independent" : "shm", 1 + (int)cell % 2, 1,
                                  rates[cell], 0, 40, NULL, 0});
    json_object_set_new(
        json_object_get(s.document, "config"), "model",
        json_pack("{s:{s:s, s:s}}", "name", "value", "lenet", "origin", "command line"));
    dpb_sweep_finish(DPB_OK, s.document);
    static const double published[] = {1, NAN, NAN, 1.55};
    for (size_t cell = 0; cell < 4; cell++)
        if (isfinite(published[cell]))
            assert_near(dpb_json_number(row_at(&s, cell), "published_speedup"), published[cell]);
        else /* no figure, or one of another machine than the baseline's */
            assert_true(json_is_null(json_object_get(row_at(&s, cell), "published_speedup")));
    expect_documented(s.document);
    char *text = printed(s.document);
    assert_non_null(strstr(text, " speedup publ. effic. "));
    assert_non_null(strstr(text, "    1.60  1.55   80 % "));
    expect_said(text,
                "no pass or fail; A paper (2017), on 2 Tesla M60, by PCIe; Others, on a P100. "
                "Here the command line set model.name = lenet. - exposed: ");
}

TEST(published_figures_stand_behind_ratios)
{
    struct study s = STUDY("sweep.device.layout=nchw,nhwc", "sweep.repeats=2",
                           "published.device.layout nchw=40, A paper, an M60",
                           "published.device.layout nhwc=30, A paper, an M60");
    for (uint32_t repeat = 0; repeat < 2; repeat++)
        for (size_t cell = 0; cell < 2; cell++)
            add_run(&s, cell, repeat,
                    (struct made_run){"independent", 1, 1, 1000 + 500 * (double)cell + 10 * repeat,
                                      0, 40, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    char *text = printed(s.document);
    assert_non_null(strstr(text, "- device.layout nhwc / nchw: 1.4"));
    assert_non_null(strstr(text, "faster (published 0.750).\n"));
}

/* Labels stand where they differ, and nothing is fastest across them without a word. */
TEST(labels_stand_where_they_differ)
{
    for (int differ = 0; differ < 2; differ++) {
        struct study s = race("replicated,shm", 2, (const double[]){1000, 1010, 2000, 2020});
        for (size_t i = 0; i < 4; i++)
            if (differ && i % 2 == 1)
                json_object_set_new(
                    json_object_get(json_array_get(json_object_get(s.document, "runs"), i),
                                    "strategy"),
                    "consistency", json_string("stale(4)"));
        char *text = table_of(&s);
        assert_int_equal(strstr(text, "stale(4)") != NULL, differ);
        assert_int_equal(strstr(text, "shm is fastest across labels") != NULL, differ);
        assert_int_equal(strstr(text, "shm is fastest;") != NULL, !differ);
    }
}

/* Whatever speaks against one rate of a group takes its conclusion, is said by name and marks the
 * rate in the table. */
TEST(doubtful_rates_conclude_nothing)
{
    static const struct {
        const char *section, *key, *reason, *marked;
        bool value;
    } doubts[] = {
        {"timing", "too_short", "shm timed too shortly", "1761..2271<", true},
        {"world", "oversubscribed", "shm oversubscribed", "2!", true},
        {"load", "disturbed", "shm undisturbed only once", "1534..2556 ",
         true}, /* the other one remains */
        {NULL, "throttled", "shm throttled", "1761..2271^", true},
        {"gpus", "time_sliced", "shm time-sliced", "2&", true},
        {"timing", "steady", "shm not steady", "1761..2271~", false},
        {"timing", "gated", "", "1761..2271 ", false},
    };
    for (size_t i = 0; i < sizeof doubts / sizeof doubts[0]; i++) {
        struct study s = race("replicated,shm", 2, (const double[]){980, 1020, 1980, 2020});
        json_t *run = json_array_get(json_object_get(s.document, "runs"), 3); /* shm's second */
        json_t *section = doubts[i].section ? json_object_get(run, doubts[i].section) : run;
        if (section == NULL) {
            section = json_object();
            json_object_set_new(run, doubts[i].section, section);
        }
        json_object_set_new(section, doubts[i].key, json_boolean(doubts[i].value));
        char *text = table_of(&s), said[128];
        bool concludes = doubts[i].reason[0] == '\0';
        snprintf(said, sizeof said, "- 2 workers: no conclusion (%s).\n", doubts[i].reason);
        if ((strstr(text, said) != NULL) == concludes ||
            (strstr(text, "shm is fastest; replicated / shm 0.50") != NULL) != concludes ||
            strstr(text, doubts[i].marked) == NULL)
            fail_msg("%s:\n%s", doubts[i].key, text);
    }
}

/* Rows whose GPUs run several processes in different ways are not compared, nor are rows whose own
 * runs differ; a row that is on no GPU is compared with each. */
TEST(rows_that_share_gpus_differently_are_not_compared)
{
    static const struct {
        const char *sharing[4]; /* of each run: replicated's and shm's in turn */
        bool concludes;
    } rows[] = {{{"MPS", "MPS", "MPS", "MPS"}, true},
                {{NULL, "MPS", NULL, "MPS"}, true},
                {{"MPS", "time slices", "MPS", "time slices"}, false},
                {{"MPS", "time slices", "time slices", "MPS"}, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct study s = race("replicated,shm", 2, (const double[]){980, 1020, 1980, 2020});
        for (size_t k = 0; k < 4; k++)
            if (rows[i].sharing[k])
                json_object_set_new(json_array_get(json_object_get(s.document, "runs"), k), "gpus",
                                    json_pack("{s:s}", "sharing", rows[i].sharing[k]));
        char *text = table_of(&s);
        if ((strstr(text, "shm is fastest; replicated / shm 0.50") != NULL) != rows[i].concludes ||
            (strstr(text, "- 2 workers: no conclusion (GPUs shared in different ways).\n") !=
             NULL) == rows[i].concludes)
            fail_msg("%zu:\n%s", i, text);
    }
}

TEST(one_repeat_concludes_nothing)
{
    struct study s = race("replicated,shm", 1, (const double[]){1000, 2000});
    char *text = table_of(&s);
    assert_non_null(
        strstr(text, "- 2 workers: no conclusion (replicated, shm timed only once).\n"));
    assert_null(strstr(text, "is fastest"));
}

/* More than without any exchange is not a success. */
TEST(more_than_the_bound_is_said)
{
    static const char *const said[] = {
        "- 2 workers: shm / independent 1.010 [1.007..1.012] equal within 5 %.",
        "faster (more than can be: the machine was not the same)."};
    for (int apart = 0; apart < 2; apart++) {
        const double more = apart ? 90 : 10;
        struct study s =
            race("independent,shm", 2, (const double[]){1000, 1040, 1000 + more, 1040 + more});
        EXPECT_TABLE(&s, said[apart]);
    }
}

TEST(other_axes_head_their_rows)
{
    struct study s = STUDY("sweep.comm.name=independent,shm", "sweep.run.precision=fp32,bf16",
                           "sweep.repeats=1");
    for (size_t cell = 0; cell < 4; cell++)
        add_run(&s, cell, 0,
                (struct made_run){cell < 2 ? "independent" : "shm", 1, 1, 1000 + 100 * (double)cell,
                                  0, 10, NULL, 0});
    char *text = table_of(&s), *bf16 = strstr(text, "\nrun.precision = bf16:\nindependent ");
    assert_non_null(strstr(text, "\nrun.precision = fp32:\nindependent "));
    assert_non_null(bf16);
    assert_non_null(strstr(bf16, "\nshm "));
    assert_near(dpb_json_number(row_at(&s, 3), "speedup"),
                1300.0 / 1100); /* of its own precision */
}

/* A file may have any number there, of hundreds of digits. */
TEST(workers_are_cut_at_the_end_of_their_text)
{
    char text[64] = "";
    json_t *row = own_json(json_pack("{s:f, s:i, s:i}", "left", -1e9, "workers", 2, "learners", 1));
    dpb_sweep_workers(row, text, 8);
    assert_string_equal(text, "-100000");
    for (size_t i = 8; i < sizeof text; i++)
        assert_int_equal(text[i], '\0');
    dpb_sweep_workers(row, text, sizeof text);
    assert_string_equal(text, "-1000000000 of 2");
}

TEST_MAIN(NULL, NULL)
