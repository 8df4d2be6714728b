/* test_tune.c - the search of a [tune] in planted values: what it finds, by how many trials. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "dpbench/random.h"
#include "lib/capture.h"
#include "lib/documented.h"
#include "lib/printed.h"
#include "lib/test.h"
#include "study/document/rows.h"
#include "study/sweep/sweep.h"
#include "study/sweep/sweep_runs.h"
#include "study/sweep/tune.h"
#include "study/table/sweep_print.h"
#include "study/table/tune_print.h"

#define FILE_LINE "x.ini:9"

enum { MOST_AXES = 3 };

struct study {
    struct dpb_config *config;
    struct dpb_sweep *sweep;
    json_t *document;
    size_t n_trials, n_runs;
    char best[256]; /* label of the best cell; "": none */
};

/* A run's rate, by the number of its value on each axis; NaN: it fails with `failure`. */
typedef double planted(const size_t *at, uint32_t repeat);
static const char *failure = "NO_MEMORY";

static void release_sweep(void *sweep)
{
    dpb_sweep_destroy(sweep);
}

static struct study study_of(const char *const *settings)
{
    struct study s = {.config = own_config(dpb_config_create())};
    dpb_first_error_clear();
    for (; *settings != NULL; settings++)
        assert_int_equal(dpb_config_assign(s.config, *settings, FILE_LINE), DPB_OK);
    assert_true(dpb_sweep_wanted(s.config));
    assert_int_equal(dpb_sweep_create(s.config, &s.sweep), DPB_OK);
    own_memory(s.sweep, release_sweep);
    s.document = own_json(dpb_sweep_document(s.sweep));
    return s;
}

static json_t *result_of(double rate)
{
    if (isnan(rate))
        return json_pack("{s:s, s:s, s:s}", "status", "failed", "error", "planted: no memory",
                         "failure", failure);
    /* A training whose target takes as long as 1,000 samples do. */
    return json_pack("{s:s, s:n, s:{s:i, s:f}, s:{s:i, s:f, s:b, s:{s:f}}, s:{s:s, s:f, s:b, "
                     "s:{s:f, s:f}}}",
                     "status", "ok", "error", "batch", "global", 10, "per_epoch", 1000.0, "timing",
                     "steps", 100, "elapsed_ns", 1e9, "steady", 1, "samples_per_s", "mean", rate,
                     "target", "criterion", "last", "accuracy", 0.9, "met", rate < 1e6, "at",
                     "trained_samples", 1000.0, "trained_s", 1000 / rate);
}

static void places_of(const struct dpb_sweep *sweep, size_t cell, size_t at[MOST_AXES])
{
    for (size_t i = sweep->n_axes; i-- > 0; cell /= sweep->axes[i].n_values)
        at[i] = cell % sweep->axes[i].n_values;
}

/* Does what the search asks for, until its end, or for so many runs. */
static void search(struct study *s, planted *rate, size_t most_runs)
{
    struct dpb_sweep_job job;
    bool failed = false;
    while (s->n_runs < most_runs && dpb_tune_next(s->sweep, s->document, &job, &failed)) {
        size_t at[MOST_AXES];
        places_of(s->sweep, job.cell, at);
        dpb_sweep_add(s->sweep, &job, result_of(rate(at, job.repeat)), s->document);
        s->n_runs++;
        assert_true(s->n_runs < 1000);
    }
    assert_false(failed);
    s->n_trials = dpb_tune_trials(s->document);
    const json_t *best = dpb_json_at(s->document, "tune.best");
    s->best[0] = '\0';
    if (json_is_object(best)) {
        job = (struct dpb_sweep_job){.cell = (size_t)dpb_json_number(best, "cell_index")};
        dpb_sweep_label(s->sweep, &job, s->best, sizeof s->best);
    }
}

#define FOREVER SIZE_MAX

#define STUDY(...) study_of((const char *const[]){__VA_ARGS__, NULL})

static void expect(struct study *s, const char *best, size_t n_trials)
{
    if (strcmp(s->best, best) != 0 || s->n_trials != n_trials)
        fail_msg("'%s' by %zu trials, not '%s' by %zu", s->best, s->n_trials, best, n_trials);
}

/* ---- one axis ------------------------------------------------------------------------------ */

static size_t peak;
static double factor; /* from a value to the next, up to the peak */

static double mountain(const size_t *at, uint32_t repeat)
{
    (void)repeat;
    const double n = (double)at[0], top = (double)peak;
    return n <= top ? 100 * pow(factor, n) : 100 * pow(factor, top) * pow(0.9, n - top);
}

/* From the first value to the one behind the best: no trial more. */
TEST(finds_the_best_of_an_ordered_axis)
{
    static const char *const axes[][2] = {
        {"run.batch", "1..64 x2"},
        {"run.batch", "64, 32, 16, 8, 4, 2, 1"},
        {"comm.bucket", "512 KiB, 1 MiB, 2 MiB, 3 MiB, 1 GiB, 2 GiB, 3 GiB"},
        {"comm.bucket", "512, 1 KiB, 2000, 2 KiB, 3 kB, 3000000, 1 GiB"},
        {"run.timeout_s", "500 ms, 1, 2 s, 3, 3001 ms, 1 min, 61"}};
    factor = 1.5;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++)
        for (peak = 0; peak < 7; peak++) {
            char axis[128], best[64];
            snprintf(axis, sizeof axis, "tune.%s=%s", axes[i][0], axes[i][1]);
            struct study s = STUDY(axis);
            search(&s, mountain, FOREVER);
            snprintf(best, sizeof best, "%s=%s", axes[i][0], s.sweep->axes[0].values[peak]);
            expect(&s, best, peak < 6 ? peak + 2 : 7);
        }
}

TEST(threshold_decides)
{
    static const struct {
        const char *threshold;
        double factor;
        const char *best;
        size_t n_trials;
    } rows[] = {{"tune.threshold=10", 1.03, "run.batch=1", 4},
                {"tune.threshold=10", 1.04, "run.batch=2", 4},
                {"tune.threshold=10", 1.099, "run.batch=4", 4},
                {"tune.threshold=10", 1.101, "run.batch=8", 4},
                {"tune.threshold=10", 0.999, "run.batch=1", 2},
                {"tune.threshold=0", 1.001, "run.batch=8", 4},
                {"tune.threshold=60", 1.5, "run.batch=4", 4}};
    peak = 3;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct study s = STUDY("tune.run.batch=1..8 x2", rows[i].threshold);
        factor = rows[i].factor;
        search(&s, mountain, FOREVER);
        expect(&s, rows[i].best, rows[i].n_trials);
    }
}

static double two_peaks(const size_t *at, uint32_t repeat)
{
    static const double rates[] = {10, 5, 30, 20};
    (void)repeat;
    return rates[at[0]];
}

/* Numbers in no order are names. */
TEST(tries_all_of_another_axis)
{
    static const char *const axes[] = {"tune.comm.name=shm, replicated, ps_cpu, gloo",
                                       "tune.comm.hosts=4, 1, 2, 3"};
    static const char *const best[] = {"comm.name=ps_cpu", "comm.hosts=2"};
    for (size_t i = 0; i < 2; i++) {
        struct study s = STUDY(axes[i]);
        search(&s, two_peaks, FOREVER);
        expect(&s, best[i], 4);
    }
    struct study s = STUDY("tune.run.batch=1..4");
    search(&s, two_peaks, FOREVER); /* an ordered axis ends at the first loss */
    expect(&s, "run.batch=1", 2);
}

/* ---- several axes -------------------------------------------------------------------------- */

/* The best of the first axis depends on the second: first 4, then, with 3 of the other, 2. */
static double interacting(const size_t *at, uint32_t repeat)
{
    static const double rates[4][4] = {
        {10, 11, 12, 14}, {20, 30, 40, 100}, {40, 60, 90, 105}, {30, 31, 32, 33}};
    (void)repeat;
    return rates[at[0]][at[1]];
}

TEST(goes_round_until_nothing_changes)
{
    struct study s = STUDY("tune.run.workers=1..4", "tune.run.batch=8..64 x2");
    search(&s, interacting, FOREVER);
    /* workers 1 2 3 4 of batch 8; batch 16 32 64 of 3 workers; then 4 and 2 and 1 workers of batch
     * 64, and batch 32 of 2 workers: 4 + 3 + 3 + 1 of 16. */
    expect(&s, "run.workers=2 run.batch=64", 11);
    assert_int_equal(dpb_json_number(s.document, "tune.rounds"), 3);
    assert_true(json_is_true(dpb_json_at(s.document, "tune.ended")));
}

static uint64_t draw;

static double any_rate(const size_t *at, uint32_t repeat)
{
    struct dpb_random4 r = dpb_random(draw, DPB_STREAM_SHUFFLE, (uint32_t)at[0], (uint32_t)at[1],
                                      (uint32_t)at[2], repeat / 2);
    return r.v[0] % 8 == 0 ? NAN : 50 + r.v[1] % 100;
}

/* Whether the rule takes a value of an axis from the best one. */
static bool is_to_be_taken(const size_t *at, size_t axis, size_t other)
{
    size_t beside[MOST_AXES] = {at[0], at[1], at[2]};
    beside[axis] = other;
    const double now = any_rate(at, 0), then = any_rate(beside, 0);
    const bool ordered = axis != 1;
    return !ordered ? then > now : other > at[axis] ? then > 1.1 * now : now <= 1.1 * then;
}

static void expect_fixed_point(const struct study *s)
{
    static const size_t n[MOST_AXES] = {4, 3, 4};
    size_t at[MOST_AXES];
    places_of(s->sweep, (size_t)dpb_json_number(s->document, "tune.best.cell_index"), at);
    assert_false(isnan(any_rate(at, 0)));
    for (size_t axis = 0; axis < MOST_AXES; axis++)
        for (size_t i = 0; i < n[axis]; i++) {
            const bool beside = axis == 1 || i + 1 == at[axis] || i == at[axis] + 1;
            if (i != at[axis] && beside && is_to_be_taken(at, axis, i))
                fail_msg("draw %d: '%s' is not the end", (int)draw, s->best);
        }
}

/* A search of any values ends, with each cell tried once. Where the repeats are alike, no neighbour
 * of its end is to be taken. */
TEST(ends_at_any_values)
{
    static const char *const repeats[] = {"tune.repeats=1", "tune.repeats=3"};
    for (draw = 1; draw <= 60; draw++) {
        struct study s = STUDY("tune.run.workers=1..4", "tune.comm.name=a, b, c",
                               "tune.run.batch=8..64 x2", repeats[draw % 2]);
        search(&s, any_rate, FOREVER);
        assert_true(s.n_trials <= s.sweep->n_cells);
        assert_true(s.n_runs <= s.n_trials * (size_t)s.sweep->options.repeats);
        assert_true(json_is_true(dpb_json_at(s.document, "tune.ended")));
        if (s.sweep->options.repeats == 1 && s.best[0] != '\0')
            expect_fixed_point(&s);
    }
}

/* ---- cells without a value ----------------------------------------------------------------- */

static double until_the_third(const size_t *at, uint32_t repeat)
{
    (void)repeat;
    return at[0] >= 3 ? NAN : 100 * pow(2, (double)at[0]);
}

static char *printed(const json_t *document)
{
    return printed_as(document, dpb_sweep_print);
}

TEST(refusal_ends_a_direction)
{
    static const struct {
        const char *failure, *status;
    } rows[] = {{"NO_MEMORY", "ok"}, {"UNSUPPORTED", "ok"}, {"TIMEOUT", "failed"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct study s = STUDY("tune.run.batch=8..256 x2", "tune.run.workers=1,2");
        failure = rows[i].failure;
        search(&s, until_the_third, FOREVER);
        expect(&s, "run.batch=32 run.workers=1", 5);
        dpb_sweep_finish(DPB_OK, s.document);
        assert_string_equal(dpb_json_text(s.document, "status", ""), rows[i].status);
        expect_documented(s.document);
        char *text = printed(s.document);
        if (strstr(text, "64         1            failed: planted: no memory\n") == NULL ||
            strstr(text, "5 trials of 12 cells; the best setting: trial 3, 400.0 samples/s\n\n"
                         "[run]\nbatch = 32\nworkers = 1\n") == NULL)
            fail_msg("%s", text);
    }
    failure = "NO_MEMORY";
}

static double from_the_third(const size_t *at, uint32_t repeat)
{
    (void)repeat;
    return at[0] < 2 ? NAN : 100;
}

static double nowhere(const size_t *at, uint32_t repeat)
{
    (void)at;
    (void)repeat;
    return NAN;
}

TEST(walks_on_from_where_there_is_no_value)
{
    struct study s = STUDY("tune.run.workers=1..5"), none = STUDY("tune.run.workers=1..3");
    search(&s, from_the_third, FOREVER);
    expect(&s, "run.workers=3", 4);
    search(&none, nowhere, FOREVER);
    expect(&none, "", 3);
    char *text = printed(none.document);
    assert_non_null(strstr(text, "3 trials of 3 cells; no setting has a value\n"));
}

TEST(one_cell_is_singular)
{
    struct study s = STUDY("tune.run.workers=1");
    search(&s, nowhere, FOREVER);
    char *text = printed(s.document);
    assert_non_null(strstr(text, "1 trial of 1 cell; "));
}

/* ---- repeats, targets ---------------------------------------------------------------------- */

static double spread; /* between repeats, by a factor */

static double noisy(const size_t *at, uint32_t repeat)
{
    return 100 * pow(1.3, (double)at[0]) * pow(spread, (double)repeat - 1);
}

/* A gain of 30 % counts if three repeats show it. */
TEST(repeats_have_to_show_a_gain)
{
    for (size_t i = 0; i < 2; i++) {
        struct study s = STUDY("tune.run.batch=1,2,4", "tune.repeats=3");
        spread = i == 0 ? 1.01 : 1.5;
        search(&s, noisy, FOREVER);
        expect(&s, i == 0 ? "run.batch=4" : "run.batch=1", 3);
        assert_int_equal(s.n_runs, 3 * s.n_trials);
        char *text = printed_as(s.document, dpb_sweep_print);
        assert_non_null(strstr(text, "a gain counts where its interval excludes 0"));
    }
}

static double failing_once(const size_t *at, uint32_t repeat)
{
    return at[0] == 1 && repeat == 1 ? NAN : 100 * pow(2, (double)at[0]);
}

/* Several disturbed runs of one repeat are no repeats: their steps decide nothing. */
TEST(one_repeat_has_no_interval)
{
    struct study s = STUDY("tune.run.batch=1,2", "tune.repeats=1", "tune.retry_disturbed=2");
    struct dpb_sweep_job job;
    bool failed;
    for (; dpb_tune_next(s.sweep, s.document, &job, &failed); s.n_runs++) {
        json_t *run = result_of(job.cell == 0 ? 100 : 130), *step_ns = json_array();
        for (int i = 0; i < 16; i++)
            json_array_append_new(step_ns, json_real(i < 8 ? 1e6 : 9e6));
        json_object_set_new(json_object_get(run, "timing"), "step_ns", step_ns);
        json_object_set_new(run, "load", json_pack("{s:b}", "disturbed", 1));
        dpb_sweep_add(s.sweep, &job, run, s.document);
    }
    const json_t *trial = json_array_get(dpb_json_at(s.document, "tune.trials"), 1);
    assert_int_equal(s.n_runs, 6);
    assert_true(fabs(dpb_json_number(trial, "gain") - 0.3) < 1e-9);
    assert_true(isnan(dpb_json_number(trial, "low")));
    assert_true(dpb_json_true(trial, "taken"));
    char *text = printed_as(s.document, dpb_sweep_print);
    assert_null(strstr(text, "interval"));
}

/* The good runs of a trial are no value where another failed; those behind it are not run. */
TEST(one_failed_run_is_enough)
{
    struct study s = STUDY("tune.run.batch=1,2,4", "tune.repeats=3");
    search(&s, failing_once, FOREVER);
    expect(&s, "run.batch=1", 2);
    assert_int_equal(s.n_runs, 5);
}

static double missed_by_the_last(const size_t *at, uint32_t repeat)
{
    (void)repeat;
    return at[0] == 3 ? 2e6 : 100 * pow(1.5, (double)at[0]);
}

/* A run that missed the target has no time, however fast it was. */
TEST(least_time_to_the_target)
{
    struct study s = STUDY("tune.run.batch=1..16 x2", "tune.objective=time_to_target",
                           "eval.target=0.9", "tune.seeds=2");
    search(&s, missed_by_the_last, FOREVER);
    expect(&s, "run.batch=4", 4);
    char *text = printed(s.document);
    if (strstr(text, "8          0 of 2 runs reached the target\n") == NULL ||
        strstr(text, "trial 3, 4.4 s to the target") == NULL)
        fail_msg("%s", text);
}

/* ---- interrupted --------------------------------------------------------------------------- */

/* From any run on, a search goes on as it would have gone. */
TEST(continues_from_its_runs)
{
    struct study whole = STUDY("tune.run.workers=1..4", "tune.run.batch=8..64 x2");
    search(&whole, interacting, FOREVER);
    for (size_t n = 0; n <= whole.n_runs; n++) {
        struct study s = STUDY("tune.run.workers=1..4", "tune.run.batch=8..64 x2");
        search(&s, interacting, n);
        search(&s, interacting, FOREVER);
        assert_int_equal(s.n_runs, whole.n_runs);
        assert_true(json_equal(json_object_get(s.document, "tune"),
                               json_object_get(whole.document, "tune")));
    }
}

/* ---- what is refused ----------------------------------------------------------------------- */

TEST(bad_sections_are_refused)
{
    static const struct {
        const char *settings[3], *message;
    } cases[] = {
        {{"tune.objective=samples_per_s"}, FILE_LINE ": [tune] has no axis: write SECTION.KEY"},
        {{"tune.run.batch=1,2", "tune.treshold=5"},
         FILE_LINE ": 'treshold' is no key of [tune]: write SECTION.KEY = LIST, or one of "
                   "objective, threshold,"},
        {{"tune.run.batch=1,2", "tune.objective=speed"}, FILE_LINE ": tune.objective"},
        {{"tune.run.batch=1,2", "tune.threshold=-1"}, FILE_LINE ": tune.threshold"},
        {{"tune.run.batch=1,2", "tune.objective=time_to_target"},
         FILE_LINE ": tune.objective = time_to_target needs a target: set eval.target"},
        {{"tune.run.batch=1,2", "sweep.run.workers=1,2"},
         FILE_LINE ": [tune] stands beside a [sweep] (" FILE_LINE ")"},
        {{"tune.run.batch=4..1"}, FILE_LINE ": tune.run.batch: '4..1' is no range"},
        {{"tune.run.batch=1,,2"}, FILE_LINE ": tune.run.batch has an empty value"},
        {{"tune.sweep.repeats=1,2"}, "'sweep.repeats' cannot be an axis of [tune]"},
        {{"tune.run.seed=1,2", "tune.seeds=2"}, "tune.seeds and an axis run.seed: leave one out"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpb_config *config = dpb_config_create();
        struct dpb_sweep *sweep = NULL;
        dpb_first_error_clear();
        for (size_t k = 0; k < 3 && cases[i].settings[k] != NULL; k++)
            dpb_config_assign(config, cases[i].settings[k], FILE_LINE);
        assert_int_equal(dpb_sweep_create(config, &sweep), DPB_USAGE);
        if (strstr(dpb_first_error(NULL), cases[i].message) == NULL)
            fail_msg("'%s' should say '%s'", dpb_first_error(NULL), cases[i].message);
        dpb_config_destroy(config);
    }
}

TEST_MAIN(silence, NULL)
