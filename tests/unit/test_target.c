/* test_target.c - times to accuracy from made results: every column against numbers made by hand,
 * censoring, ranks, and how often a planted difference is found. */

#include "dpbench/random.h"
#include "lib/documented.h"
#include "study/document/target.h"
#include "study/table/compare.h"
#include "study/table/forms.h"
#include "sweep_study.h"
#include "study/document/rows.h"
#include "study/sweep/sweep_runs.h"

/* A training of so many samples at so many a second; evaluated every 100, with the target met by
 * the last evaluation, or never. */
struct made {
    const char *strategy, *consistency;
    int workers;
    double samples, rate;
    bool missed;
};

static json_t *eval_at(double samples, double rate, double accuracy)
{
    return json_pack("{s:f, s:f, s:f}", "trained_samples", samples, "trained_s", samples / rate,
                     "accuracy", accuracy);
}

static void add(const struct study *study, size_t cell, uint32_t repeat, struct made made)
{
    json_t *evals = json_array(), *at;
    for (double samples = 100; samples < made.samples; samples += 100)
        json_array_append_new(evals, eval_at(samples, made.rate, 0.5));
    at = own_json(eval_at(made.samples, made.rate, made.missed ? 0.7 : 0.9));
    json_array_append(evals, at);
    json_t *result = json_pack(
        "{s:s, s:n, s:{s:s, s:s}, s:{s:i, s:b}, s:{s:i, s:i, s:f}, s:{s:f, s:s, s:b}, s:o, "
        "s:{s:i, s:f, s:b, s:{s:f}}, s:{s:s, s:s}}",                                        //
        "status", "ok", "error", "strategy", "name", made.strategy, "consistency",          //
        made.consistency, "world", "workers", made.workers, "oversubscribed", 0, "batch",   //
        "per_worker", 10, "global", 20, "per_epoch", 1000.0, "target", "accuracy", 0.9,     //
        "criterion", "last", "met", !made.missed, "eval", evals, "timing", "steps", 100,    //
        "elapsed_ns", 1e9, "steady", 1, "samples_per_s", "mean", made.rate, "verification", //
        "pattern", "pass", "replicas", "pass");
    assert_non_null(result);
    if (!made.missed)
        json_object_set(json_object_get(result, "target"), "at", at);
    const struct dpb_sweep_job job = {.cell = cell, .repeat = repeat};
    dpb_sweep_add(study->sweep, &job, result, study->document);
}

static const json_t *target_of(const struct study *study, size_t row)
{
    const json_t *rows = json_object_get(study->document, "rows");
    return json_object_get(json_array_get(rows, row), "to_target");
}

/* sma needs 1000 and 4000 samples at 100 and 400 a second: geometric means 2000 and 200. shm needs
 * twice the samples at twice the rate, minus a hair. */
TEST(columns_are_exact)
{
    struct study s = STUDY("sweep.comm.name=sma,shm", "sweep.seeds=2", "eval.target=0.9");
    add(&s, 0, 0, (struct made){"sma", "averaging", 2, 1000, 100, false});
    add(&s, 0, 1, (struct made){"sma", "averaging", 2, 4000, 400, false});
    add(&s, 1, 0, (struct made){"shm", "synchronous", 2, 2000, 199, false});
    add(&s, 1, 1, (struct made){"shm", "synchronous", 2, 8000, 799, false});
    dpb_sweep_finish(DPB_OK, s.document);
    expect_documented(s.document);
    const json_t *sma = target_of(&s, 0), *shm = target_of(&s, 1);
    assert_near(dpb_json_number(sma, "accuracy"), 0.9);
    assert_near(dpb_json_number(sma, "reached"), 2);
    assert_near(dpb_json_number(sma, "of"), 2);
    assert_near(dpb_json_number(sma, "samples.mean"), 2000);
    assert_near(dpb_json_number(sma, "epochs.mean"), 2);
    assert_near(dpb_json_number(sma, "samples_per_s.mean"), 200);
    assert_near(dpb_json_number(sma, "seconds.mean"), 10);
    assert_near(dpb_json_number(sma, "resolution"), 100);
    /* 12.706 standard errors of the mean logarithm, one degree of freedom. */
    double half = 12.706204736174676 * log(4) / 2;
    assert_near(log(dpb_json_number(sma, "samples.low")), log(2000) - half);
    assert_near(log(dpb_json_number(sma, "samples.high")), log(2000) + half);
    assert_near(log(dpb_json_number(sma, "epochs.high")), log(2) + half);
    assert_true(json_is_null(dpb_json_at(sma, "seconds.above")));
    assert_near(dpb_json_number(shm, "seconds.mean"),
                dpb_json_number(shm, "samples.mean") / dpb_json_number(shm, "samples_per_s.mean"));
    assert_near(dpb_json_number(sma, "rank"), 1);
    assert_near(dpb_json_number(shm, "rank"), 2);
    char *text = printed(s.document);
    assert_non_null(strstr(text, "time to 90.00 %:\nstrategy"));
    expect_said(text, "- to the target, shm, 2 workers / sma, 2 workers: time 1.003 [0.");
    expect_said(text, " = samples 2.000 [2.000..2.000] more / rate 1.99");
    expect_said(text, "The target is looked at every 100 samples");
    assert_null(strstr(text, "> X"));
    char *markdown = printed_as(s.document, dpb_sweep_markdown);
    assert_non_null(strstr(markdown, "|  | shm | synchronous | 2 | 2 of 2 | "));
    assert_non_null(strstr(markdown, "| settings | strategy | label | rank | reached | seconds | "
                                     "epochs | samples | samples/s |\n|---|---|---:|"));
    char *csv = printed_as(s.document, dpb_sweep_csv);
    assert_int_equal(strncmp(csv, "cell_index,cell.comm.name,status,", 33), 0);
    assert_non_null(strstr(csv, ",to_target.reached,to_target.of,to_target.seconds.mean,"));
    assert_non_null(strstr(csv, "\n1,shm,ok,shm,synchronous,2,1,"));
}

/* A run that misses bounds its row, which has no mean and no rank; so does a failed run. */
TEST(missing_runs_are_censored)
{
    struct study s = STUDY("sweep.comm.name=sma,shm,ps,independent", "sweep.seeds=3",
                           "eval.target=0.9", "eval.require_target=yes");
    for (uint32_t repeat = 0; repeat < 3; repeat++) {
        add(&s, 0, repeat, (struct made){"sma", "averaging", 2, 1000, 100, false});
        add(&s, 1, repeat,
            (struct made){"shm", "synchronous", 2, 500 + 100 * repeat, 100, repeat > 0});
        if (repeat < 2)
            add(&s, 2, repeat, (struct made){"ps", "synchronous", 2, 200, 100, false});
        add(&s, 3, repeat, (struct made){"independent", "none", 2, 100, 100, false});
    }
    const struct dpb_sweep_job failed = {.cell = 2, .repeat = 2};
    dpb_sweep_add(s.sweep, &failed,
                  json_pack("{s:s, s:s}", "status", "failed", "error", "loss is not finite"),
                  s.document);
    dpb_sweep_finish(DPB_OK, s.document);
    const json_t *shm = target_of(&s, 1), *ps = target_of(&s, 2), *apart = target_of(&s, 3);
    assert_near(dpb_json_number(shm, "reached"), 1);
    assert_near(dpb_json_number(shm, "of"), 3);
    assert_near(dpb_json_number(shm, "seconds.above"), 6); /* not 5, which reached it */
    assert_near(dpb_json_number(shm, "epochs.above"), 0.6);
    assert_near(dpb_json_number(shm, "samples.above"), 600);
    assert_true(json_is_null(dpb_json_at(shm, "seconds.mean")));
    assert_true(json_is_null(json_object_get(shm, "rank")));
    assert_near(dpb_json_number(ps, "of"), 3);
    assert_true(json_is_null(dpb_json_at(ps, "seconds.mean")));
    assert_true(json_is_null(json_object_get(ps, "rank")));
    assert_near(dpb_json_number(target_of(&s, 0), "rank"), 1);
    assert_string_equal(dpb_json_text(apart, "model", ""), "rank 0");
    assert_true(json_is_null(json_object_get(apart, "rank")));
    assert_true(dpb_sweep_missed(s.document));
    assert_string_equal(dpb_json_text(s.document, "status", ""), "failed");
    char *text = printed(s.document);
    expect_said(text, " 1 of 3 ");
    expect_said(text, "> 6.00");
    expect_said(text, "- > X: a run missed the target");
    expect_said(text, "- independent has a model for each worker: reached is that of rank 0's");
    assert_null(strstr(text, "to the target, shm"));
}

/* Rows of other targets, models or data are other contests; other batches are not. */
TEST(ranks_are_within_a_contest)
{
    struct study s =
        STUDY("sweep.model.name=a,b", "sweep.run.batch=8,16", "sweep.seeds=2", "eval.target=0.9");
    static const double samples[] = {400, 300, 100, 200}, ranks[] = {2, 1, 1, 2};
    for (size_t cell = 0; cell < 4; cell++)
        for (uint32_t repeat = 0; repeat < 2; repeat++)
            add(&s, cell, repeat,
                (struct made){"shm", "synchronous", 2, samples[cell], 100, false});
    dpb_sweep_finish(DPB_OK, s.document);
    for (size_t i = 0; i < 4; i++)
        assert_near(dpb_json_number(target_of(&s, i), "rank"), ranks[i]);
}

TEST(without_a_target_nothing_is_said)
{
    struct study s = STUDY("sweep.comm.name=sma", "sweep.repeats=1");
    add(&s, 0, 0, (struct made){"sma", "averaging", 2, 100, 100, false});
    json_object_set_new(json_array_get(json_object_get(s.document, "runs"), 0), "target",
                        json_null());
    dpb_sweep_finish(DPB_OK, s.document);
    assert_true(json_is_null(target_of(&s, 0)));
    char *text = printed(s.document);
    assert_null(strstr(text, "target"));
}

/* Whatever disturbed a run says nothing about its samples. */
TEST(doubtful_times_leave_the_samples)
{
    struct study s = STUDY("sweep.comm.name=sma,shm", "sweep.seeds=2", "eval.target=0.9");
    for (uint32_t repeat = 0; repeat < 2; repeat++) {
        add(&s, 0, repeat, (struct made){"sma", "averaging", 2, 1000, 100, false});
        add(&s, 1, repeat, (struct made){"shm", "synchronous", 2, 2000, 100, false});
    }
    json_object_set_new(json_array_get(json_object_get(s.document, "runs"), 0), "throttled",
                        json_true());
    dpb_sweep_finish(DPB_OK, s.document);
    char *text = printed(s.document);
    expect_said(text, "time 2.000 no conclusion (throttled) = samples 2.000 [2.000..2.000] more / "
                      "rate 1.000 no conclusion (throttled).");
}

/* A seed whose run was disturbed is not left out; a clean run of the same seed comes first. */
TEST(disturbed_runs_count_where_there_is_no_other)
{
    struct study s = STUDY("sweep.comm.name=sma", "sweep.seeds=2", "eval.target=0.9");
    add(&s, 0, 0, (struct made){"sma", "averaging", 2, 1000, 100, false});
    add(&s, 0, 0, (struct made){"sma", "averaging", 2, 3000, 100, false});
    add(&s, 0, 1, (struct made){"sma", "averaging", 2, 4000, 100, true});
    json_t *runs = json_object_get(s.document, "runs");
    for (size_t i = 1; i < 3; i++)
        json_object_set_new(json_array_get(runs, i), "load", json_pack("{s:b}", "disturbed", 1));
    dpb_sweep_finish(DPB_OK, s.document);
    assert_near(dpb_json_number(target_of(&s, 0), "reached"), 1);
    assert_near(dpb_json_number(target_of(&s, 0), "of"), 2);
    const json_t *repeats = json_object_get(target_of(&s, 0), "repeats");
    assert_near(dpb_json_number(json_array_get(repeats, 0), "samples"), 1000);
    assert_near(dpb_json_number(target_of(&s, 0), "samples.above"), 4000);
    assert_true(json_is_true(json_object_get(target_of(&s, 0), "disturbed")));
}

/* Rows whose targets are two losses are no contest; with one they are ranked. */
TEST(targets_of_loss)
{
    struct study s = STUDY("sweep.comm.name=sma,shm", "sweep.seeds=2", "eval.target_loss=2.3");
    for (uint32_t repeat = 0; repeat < 2; repeat++) {
        add(&s, 0, repeat, (struct made){"sma", "averaging", 2, 1000, 100, false});
        add(&s, 1, repeat, (struct made){"shm", "synchronous", 2, 2000, 100, false});
    }
    for (size_t other = 0; other < 2; other++) {
        for (size_t i = 0; i < 4; i++) {
            json_t *run = json_array_get(json_object_get(s.document, "runs"), i);
            json_t *target = json_object_get(run, "target");
            json_object_set_new(target, "accuracy", json_null());
            json_object_set_new(target, "loss", json_real(other == 1 && i % 2 == 1 ? 2.5 : 2.3));
        }
        json_array_clear(json_object_get(s.document, "rows"));
        dpb_sweep_finish(DPB_OK, s.document);
        expect_documented(s.document);
        assert_true(json_is_null(dpb_json_at(target_of(&s, 0), "accuracy")));
        assert_near(dpb_json_number(target_of(&s, 0), "loss"), 2.3);
        assert_near(dpb_json_number(target_of(&s, 1), "rank"), other == 1 ? 1 : 2);
        expect_said(printed(s.document),
                    other == 1 ? "time to the row's target:" : "time to loss 2.3:");
    }
}

/* Whoever is there at the first evaluation was perhaps there before. */
TEST(too_few_evaluations_conclude_nothing)
{
    struct study s = STUDY("sweep.comm.name=sma,shm", "sweep.seeds=2", "eval.target=0.9");
    for (uint32_t repeat = 0; repeat < 2; repeat++) {
        add(&s, 0, repeat,
            (struct made){"sma", "averaging", 2, repeat == 0 ? 100 : 200, 100, false});
        add(&s, 1, repeat, (struct made){"shm", "synchronous", 2, 2000, 100, false});
    }
    dpb_sweep_finish(DPB_OK, s.document);
    assert_near(dpb_json_number(target_of(&s, 0), "reached_at_once"), 1);
    assert_near(dpb_json_number(target_of(&s, 1), "reached_at_once"), 0);
    char *text = printed(s.document);
    expect_said(text, "= samples 14.142 no conclusion (evaluated too rarely) / ");
    expect_said(text, "make eval.every smaller");
    for (size_t i = 0; i < 4; i++) { /* five are needed, and there are no more than two */
        json_t *run = json_array_get(json_object_get(s.document, "runs"), i);
        json_object_set_new(json_object_get(run, "target"), "criterion", json_string("median5"));
    }
    json_array_clear(json_object_get(s.document, "rows"));
    dpb_sweep_finish(DPB_OK, s.document);
    assert_near(dpb_json_number(target_of(&s, 0), "reached_at_once"), 2);
    assert_near(dpb_json_number(target_of(&s, 1), "reached_at_once"), 0);
}

/* Normal, by Box and Muller. */
static double noise(uint32_t try, uint32_t cell, uint32_t repeat)
{
    struct dpb_random4 r = dpb_random(1, DPB_STREAM_SHUFFLE, try, cell, repeat, 0);
    double u = ((double)r.v[0] + 1) / 4294967297.0, v = (double)r.v[1] / 4294967296.0;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static json_t *made_row(uint32_t try, uint32_t cell, double samples, double spread)
{
    enum { SEEDS = 5 };
    json_t *repeats = json_array();
    for (uint32_t repeat = 0; repeat < SEEDS; repeat++) {
        double of_run = samples * exp(spread * noise(try, cell, repeat));
        json_array_append_new(repeats, json_pack("{s:b, s:f}", "met", 1, "samples", of_run));
    }
    return json_pack("{s:{s:o}}", "to_target", "repeats", repeats);
}

/* 20 % more samples, 5 seeds; and how often equal ones are called different. */
TEST(planted_differences_are_found)
{
    enum { TRIES = 1000 };
    static const struct {
        double spread;
        unsigned least;
    } rows[] = {{0.03, 995}, {0.05, 950}, {0.06, 900}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned found = 0, wrong = 0;
        for (uint32_t try = 0; try < TRIES; try++) {
            json_t *a = own_json(made_row(try, 0, 10000, rows[i].spread));
            json_t *b = own_json(made_row(try, 1, 12000, rows[i].spread));
            json_t *same = own_json(made_row(try, 2, 10000, rows[i].spread));
            struct dpb_comparison c;
            dpb_target_compare(a, b, "samples", true, &c);
            found += c.outcome == DPB_SLOWER;
            dpb_target_compare(a, same, "samples", true, &c);
            wrong += c.outcome == DPB_SLOWER || c.outcome == DPB_FASTER;
        }
        print_message("spread %.2f: found %u, false %u of %d\n", rows[i].spread, found, wrong,
                      TRIES);
        assert_in_range(found, rows[i].least, TRIES);
        assert_in_range(wrong, 0, 65); /* 50, and two standard errors */
    }
}

/* ---- two documents ------------------------------------------------------------------------- */

/* shm reaches the target in 10 s and 12.1 s, `factor` times as long; sma once in 7 s, or misses. */
static struct study two_seeds(double factor, bool missed)
{
    struct study s = STUDY("sweep.comm.name=shm,sma", "sweep.seeds=2", "eval.target=0.9");
    add(&s, 0, 0, (struct made){"shm", "synchronous", 2, 1000, 100 / factor, false});
    add(&s, 0, 1, (struct made){"shm", "synchronous", 2, 1210, 100 / factor, false});
    add(&s, 1, 0, (struct made){"sma", "averaging", 2, 700, 100, false});
    add(&s, 1, 1, (struct made){"sma", "averaging", 2, 900, 100, missed});
    dpb_sweep_finish(DPB_OK, s.document);
    return s;
}

static json_t *compared(const json_t *a, const json_t *b, bool paired)
{
    const struct dpb_compared side_a = {"a.json", a}, side_b = {"b.json", b};
    const struct dpb_compare_how how = {.threshold = NAN, .paired = paired};
    json_t *document = NULL;
    bool regression;
    assert_int_equal(dpb_compare_make(&side_a, &side_b, &how, &document, &regression), DPB_OK);
    return own_json(document);
}

static const json_t *compared_target(const json_t *document, size_t row)
{
    return json_object_get(json_array_get(json_object_get(document, "rows"), row), "to_target");
}

/* Half the seconds. Means of two logarithms 0.1906 apart: Welch's t with 2 degrees of freedom has
 * the interval 0.5 exp(+-4.302653 x 0.1906 / sqrt(2)); by pairs there is no spread. */
TEST(documents_compare_to_the_target)
{
    struct study a = two_seeds(1, false), b = two_seeds(0.5, true);
    const double half = 4.30265273 * log(1.21) / sqrt(2);
    for (int paired = 0; paired < 2; paired++) {
        json_t *document = compared(a.document, b.document, paired);
        const json_t *shm = compared_target(document, 0), *sma = compared_target(document, 1);
        assert_near(dpb_json_number(shm, "a.seconds"), 11);
        assert_near(dpb_json_number(shm, "b.seconds"), 5.5);
        assert_near(dpb_json_number(shm, "seconds.ratio"), 0.5);
        assert_true(fabs(dpb_json_number(shm, "seconds.low") - (paired ? 0.5 : 0.5 * exp(-half))) <
                    1e-6);
        assert_true(fabs(dpb_json_number(shm, "seconds.high") - (paired ? 0.5 : 0.5 * exp(half))) <
                    1e-6);
        assert_near(dpb_json_number(shm, "samples.ratio"), 1);
        assert_near(dpb_json_number(shm, "samples_per_s.ratio"), 2);
        assert_string_equal(dpb_json_text(shm, "seconds.verdict", ""), "faster");
        assert_near(dpb_json_number(sma, "a.reached"), 2);
        assert_near(dpb_json_number(sma, "b.reached"), 1);
        assert_near(dpb_json_number(sma, "b.above"), 9);
        assert_true(isnan(dpb_json_number(sma, "seconds.ratio"))); /* 7 s is not all of B's */
        assert_true(json_is_null(json_object_get(json_object_get(sma, "b"), "seconds")));
        expect_documented(shm);
        char *text = printed_as(document, dpb_compare_print);
        expect_said(text, "comm.name=shm         11.0        5.500  time      0.500 [");
        expect_said(text, "  = samples 1.000 [");
        expect_said(text, "  / rate    2.000 [");
        expect_said(text, "comm.name=sma        7.937      > 9.000  time      -  no conclusion (a "
                          "run missed it)");
    }
}

/* Runs alone, and documents with other targets or none. */
TEST(runs_and_other_targets_compare)
{
    struct study a = two_seeds(1, false), b = two_seeds(0.5, false);
    json_t *runs[2] = {json_array_get(json_object_get(a.document, "runs"), 0),
                       json_array_get(json_object_get(b.document, "runs"), 0)};
    for (int i = 0; i < 2; i++)
        json_object_set_new(runs[i], "schema", json_string("dpbench.result/1"));
    json_t *document = compared(runs[0], runs[1], false);
    assert_near(dpb_json_number(compared_target(document, 0), "seconds.ratio"), 0.5);
    assert_string_equal(dpb_json_text(compared_target(document, 0), "seconds.verdict", ""),
                        "no conclusion (one run)");

    json_object_set_new(json_object_get(runs[1], "target"), "accuracy", json_real(0.8));
    document = compared(runs[0], runs[1], false);
    assert_true(json_is_null(compared_target(document, 0)));
    json_object_set_new(runs[1], "target", json_null());
    document = compared(runs[0], runs[1], false);
    assert_true(json_is_null(compared_target(document, 0)));
    char *text = printed_as(document, dpb_compare_print);
    assert_null(strstr(text, "to target"));
}

TEST_MAIN(NULL, NULL)
