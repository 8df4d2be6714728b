/* needs: plain waits */
/*
 * test_measuring.c - the truth of the measuring: runs whose times are known, because device, data
 * and strategy sleep for them, must come out as they are.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/stats.h"
#include "lib/sandbox.h"
#include "lib/test.h"
#include "lib/timed.h"
#include "plan/delay.h"

#define PART(name) "timing.breakdown_ns." name
#define RANK_PART(rank, name) "ranks." #rank ".breakdown_ns." name
#define COMM "comm.name=timed comm.bucket=4096 device.forward=20 device.backward=160 "
#define SHM "comm.name=shm run.workers=2 device.forward=30 device.backward=80 device.late_rank=1 "

/* ---- fields of the breakdown --------------------------------------------------------------- */

/* Layers of the model: 4, of 4096 bytes each. */
static const struct timed_case cases[] = {
    {"two micro-batches, a delay before the gradients",
     "run.accumulate=2 device.forward=10 device.backward=20 run.delay=constant(30ms)",
     90,
     {{PART("data_wait"), 0},
      {PART("forward"), 20},
      {PART("delay"), 30},
      {PART("backward"), 40},
      {PART("optimizer"), 0},
      {PART("comm_exposed"), 0},
      {PART("comm_hidden"), 0},
      {PART("comm_wait_peer"), 0}}},
    {"a delayed peer",
     SHM "run.delay=constant(40ms) run.delay_ranks=1",
     150,
     {{RANK_PART(0, "delay"), 0},
      {RANK_PART(1, "delay"), 40},
      {RANK_PART(1, "backward"), 80},
      {RANK_PART(0, "comm_exposed"), 40},
      {RANK_PART(0, "comm_wait_peer"), 40},
      {RANK_PART(1, "comm_wait_peer"), 0}}},
    {"forward alone",
     "run.mode=forward device.evaluate=25",
     25,
     {{PART("forward"), 25}, {PART("backward"), 0}}},
    {"data fetched by the loop",
     "data.fetch=40 data.threads=0 device.forward=20 device.backward=20",
     80,
     {{PART("data_wait"), 40}, {PART("forward"), 20}, {PART("backward"), 20}}},
    {"a helper slower than computing",
     "data.fetch=90 data.threads=1 device.forward=20 device.backward=40",
     90,
     {{PART("data_wait"), 30}, {PART("forward"), 20}, {PART("backward"), 40}}},
    {"two helpers faster than computing",
     "data.fetch=90 data.threads=2 device.forward=20 device.backward=40",
     60,
     {{PART("data_wait"), 0}}},
    {"communication behind backward",
     COMM "comm.exchange=25",
     205,
     {{PART("backward"), 160},
      {PART("comm_exposed"), 25},
      {PART("comm_hidden"), 75},
      {PART("comm_wait_peer"), 0}}},
    {"communication longer than backward",
     COMM "comm.exchange=70",
     340,
     {{PART("backward"), 160}, {PART("comm_exposed"), 160}, {PART("comm_hidden"), 120}}},
    {"a late peer in every bucket",
     COMM "comm.exchange=30 comm.late_peer=20",
     210,
     {{PART("comm_wait_peer"), 80}, {PART("comm_exposed"), 30}, {PART("comm_hidden"), 90}}},
    {"work of the optimizer",
     COMM "comm.exchange=30 comm.update=25",
     235,
     {{PART("optimizer"), 25}, {PART("comm_exposed"), 30}}},
    {"communication on the computing thread is exposed",
     COMM "comm.exchange=25 comm.worker=yes run.comm_cores=0",
     205,
     {{PART("backward"), 85}, {PART("comm_exposed"), 100}, {PART("comm_hidden"), 0}}},
    {"communication on a core of its own is hidden",
     COMM "comm.exchange=25 comm.worker=yes run.comm_cores=1",
     205,
     {{PART("backward"), 160}, {PART("comm_exposed"), 25}, {PART("comm_hidden"), 75}}},
    /* The same exchanges as above, which have a step of 180 to hide behind. */
    {"one step late, a shorter exchange",
     COMM "comm.exchange=25 comm.late=1",
     180,
     {{PART("forward"), 20},
      {PART("backward"), 160},
      {PART("comm_exposed"), 0},
      {PART("comm_hidden"), 100}}},
    {"one step late, a longer exchange",
     COMM "comm.exchange=70 comm.late=1",
     280,
     {{PART("backward"), 160}, {PART("comm_exposed"), 100}, {PART("comm_hidden"), 180}}},
    {"one step late, a longer exchange on a core of its own",
     COMM "comm.exchange=70 comm.worker=yes run.comm_cores=1 comm.late=1",
     280,
     {{PART("backward"), 160}, {PART("comm_exposed"), 100}, {PART("comm_hidden"), 180}}},
    {"one step late, work of the optimizer on a core of its own",
     COMM "comm.exchange=30 comm.update=25 comm.worker=yes run.comm_cores=1 comm.late=1",
     180,
     {{PART("backward"), 160}, {PART("optimizer"), 0}, {PART("comm_exposed"), 0}}},
    {"a straggler in forward",
     SHM "device.late=40 device.late_in=forward",
     150,
     {{RANK_PART(0, "forward"), 30},
      {RANK_PART(1, "forward"), 70},
      {RANK_PART(0, "comm_exposed"), 40},
      {RANK_PART(0, "comm_wait_peer"), 40},
      {RANK_PART(1, "comm_exposed"), 0},
      {RANK_PART(1, "comm_wait_peer"), 0}}},
    {"a straggler in backward",
     SHM "device.late=25 device.late_in=backward device.late_layer=2",
     135,
     {{RANK_PART(0, "backward"), 80},
      {RANK_PART(1, "backward"), 105},
      {RANK_PART(0, "comm_wait_peer"), 25},
      {RANK_PART(1, "comm_wait_peer"), 0}}},
};

static void test_case(void **state)
{
    timed_check(*state);
}

/* The control: 30 ms between two passes that the case leaves out are dpbench's own, and no run
 * takes them for lateness of the machine. */
TEST(test_own_time_is_not_excused)
{
    static const struct timed_case slow = {
        "a slow dpbench",
        "data.fetch=30 data.threads=0 device.forward=20 device.backward=20",
        40,
        {{PART("forward"), 20}}};
    char text[256];
    double unexplained_ms = 0.0;
    for (int i = 0; i < TIMED_TRIES && unexplained_ms <= 0.0; i++)
        unexplained_ms = timed_unexplained_ms(&slow, i > 0, text);
    assert_true(unexplained_ms > 0.0);
}

/* ---- run.delay ----------------------------------------------------------------------------- */

/* A failed assertion leaves its napper to the next test. */
TEST(test_one_napper)
{
    const pid_t left = timed_napper_start(), next = timed_napper_start();
    assert_int_equal(kill(left, 0), -1);
    assert_int_equal(kill(next, 0), 0);
    timed_napper_stop();
    assert_int_equal(kill(next, 0), -1);
    assert_true(timed_napper_stop() == 0.0);
}

/* Each worker's mean delay is the plan's, and never less. It is more by a tenth, and by what both a
 * process that only sleeps beside the run and the worker's own sleeps in forward are woken late. */
TEST(test_delays)
{
    enum { STEPS = 40, WARM = 3, WORKERS = 2, TRIES = 5, FORWARD_MS = 4 };
    struct dpb_delay delay;
    double over_ms = INFINITY;
    assert_int_equal(dpb_delay_make("exponential(8 ms)", "", "all", "", WORKERS, 5, &delay),
                     DPB_OK);
    for (int i = 0; i < TRIES && over_ms > 0.0; i++) {
        struct command command;
        timed_napper_start();
        timed_run(&command, 0,
                  "run.workers=%d comm.name=shm run.steps=%d run.warmup_steps=%d run.seed=5 "
                  "run.delay=exponential(8ms) device.forward=%d",
                  WORKERS, STEPS, WARM, FORWARD_MS);
        const double napper_ms = timed_napper_stop();
        over_ms = 0.0;
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            double planned_ms = 0.0;
            for (uint64_t step = WARM; step < WARM + STEPS; step++)
                planned_ms += (double)dpb_delay_of(&delay, rank, step) / STEPS * 1e-6;
            const json_t *of_rank = json_array_get(json_at(command.json, "ranks"), rank);
            const double is_ms = json_number_at(of_rank, "breakdown_ns.delay") * 1e-6;
            const double late_ms =
                napper_ms + json_number_at(of_rank, "breakdown_ns.forward") * 1e-6 - FORWARD_MS;
            assert_true(is_ms >= planned_ms);
            over_ms = fmax(over_ms, is_ms - 1.1 * planned_ms - late_ms);
        }
    }
    if (over_ms > 0.0)
        fail_msg("delays were %.3f ms longer than the plan and the machine explain", over_ms);
}

/* ---- warm-up ------------------------------------------------------------------------------- */

/* Of rank 0, in the last run. */
static struct timed_pass passes[TIMED_PASSES];

static double step_ns(const json_t *document, size_t i)
{
    return json_number_value(json_array_get(json_at(document, "timing.step_ns"), i));
}

/* Each timed step is as long as the device's clock says, the first of them being number `first`;
 * the last step's end is nobody's begin. */
static void check_steps(const json_t *document, size_t first)
{
    size_t n = timed_trace(0, passes), n_off = 0;
    size_t n_timed = json_array_size(json_at(document, "timing.step_ns"));
    assert_int_equal(json_number_at(document, "timing.warmup_steps"), first);
    assert_int_equal(n, first + n_timed);
    for (size_t i = 0; i + 1 < n_timed; i++) {
        const struct timed_pass *pass = &passes[first + i];
        double length = (double)(pass[1].forward.begin - pass[0].forward.begin);
        n_off += fabs(step_ns(document, i) - length) > 0.3e6;
    }
    /* A process that is put aside between two looks at the clock is off in two steps. */
    assert_in_range(n_off, 0, n_timed / 2);
}

/* The first six steps are 60, 50, ... 10 ms longer than 20: timing begins where it should. */
TEST(test_warm_up_by_count)
{
    static const char warm_up[] = "device.warmup_steps=6 device.warmup_extra=60 device.forward=15";
    struct command command;
    timed_run(&command, 0, "%s run.warmup_steps=6 run.steps=12", warm_up);
    check_steps(command.json, 6);
    assert_true(passes[6].forward.deadline - passes[6].forward.begin == 15000000);

    timed_run(&command, 0, "%s run.warmup_steps=4 run.steps=12", warm_up);
    check_steps(command.json, 4);
    assert_true(passes[4].forward.deadline - passes[4].forward.begin == 35000000);
    assert_true(step_ns(command.json, 0) >= 39.7e6 && step_ns(command.json, 1) >= 29.7e6);
}

#define GATE                                                                                 \
    "device.warmup_steps=40 device.warmup_extra=20 run.warmup_steps=5 run.steady_window=10 " \
    "run.steady_windows=2 run.steady_drift=0.05 run.steady_spread=0.2 "

/* Whether the last run's steps before the `n`-th were steady by the device's clock, and clearly: by
 * a gate of narrower limits. */
static bool device_was_steady(size_t n)
{
    static const struct dpb_gate_limits narrower = {10, 2, 0.045, 0.18};
    struct dpb_gate *gate = dpb_gate_create(&narrower);
    bool open = false;
    assert_non_null(gate);
    assert_in_range(n, 0, timed_trace(0, passes) - 1);
    for (size_t i = 5; i < n && !open; i++)
        open = dpb_gate_add(gate, passes[i + 1].forward.begin - passes[i].forward.begin);
    dpb_gate_destroy(gate);
    return open;
}

/* 40 steps of falling times: the gate opens after them, in windows of ten from step 5 on. */
TEST(test_warm_up_by_gate)
{
    struct command command;
    timed_run(&command, 0, GATE "run.steady_limit_s=30 run.steps=20");
    const bool steady = json_is_true(json_at(command.json, "timing.steady"));
    const size_t n = (size_t)json_number_at(command.json, "timing.warmup_steps");
    assert_int_equal(json_number_at(command.json, "timing.steps"), 20);
    assert_true(n >= 55);
    if (!steady && !device_was_steady(n)) {
        print_message("the device's steps were at no time steady: nothing is decided\n");
        skip();
    }
    assert_true(steady);
}

/* The limit passes first: timed, and said. */
TEST(test_warm_up_by_limit)
{
    struct command command;
    timed_run(&command, 5, GATE "run.steady_limit_s=0.2 run.steps=5 run.require_steady=yes");
    assert_true(json_is_false(json_at(command.json, "timing.steady")));
    assert_true(json_number_at(command.json, "timing.warmup_steps") < 40);
}

/* Evaluations take none of the limit's time. */
TEST(test_warm_up_with_pauses)
{
    struct command command;
    timed_run(&command, 0,
              "run.warmup_steps=2 run.steady_window=4 run.steady_windows=2 run.steady_drift=1 "
              "run.steady_spread=10 run.steady_limit_s=1.0 run.steps=1 eval.every=5 "
              "data.test_samples=1 device.evaluate=1100");
    assert_true(json_is_true(json_at(command.json, "timing.steady")));
}

/* An evaluation meets the target in the step in which the gate opens: nothing follows. */
TEST(test_end_with_the_gate)
{
    struct command command;
    timed_run(&command, 0,
              "run.warmup_steps=2 run.steady_window=4 run.steady_windows=1 run.steady_drift=1 "
              "run.steady_spread=10 run.steady_limit_s=30 run.steps=50 eval.every=6 "
              "eval.target=0.5 data.test_samples=2");
    assert_int_equal(json_number_at(command.json, "timing.warmup_steps"), 2);
    assert_int_equal(json_number_at(command.json, "timing.steps"), 5);
    assert_true(json_is_false(json_at(command.json, "timing.steady")));
}

/* ---- the clock on the wall ----------------------------------------------------------------- */

/* By how much the steps sum to another time than passes on the clock of rank 0. Its ends may differ
 * from those of two workers' run by one lateness at the begin and one at the end. */
static double error_of_sum(const char *settings)
{
    enum { STEPS = 40, WARM = 3 };
    struct command command;
    double sum = 0.0;
    timed_run(&command, 0, "run.steps=%d run.warmup_steps=%d device.forward=5 %s", STEPS, WARM,
              settings);
    assert_int_equal(timed_trace(0, passes), STEPS + WARM);
    for (size_t i = 0; i + 1 < STEPS; i++)
        sum += step_ns(command.json, i);
    double wall = (double)(passes[STEPS + WARM - 1].forward.begin - passes[WARM].forward.begin);
    double elapsed_s = json_number_at(command.json, "timing.elapsed_ns") / 1e9;
    assert_true(elapsed_s >= STEPS * 0.017 && elapsed_s <= command.seconds);
    print_message("%s: %d steps sum to %.3f ms, the clock says %.3f\n", settings, STEPS - 1,
                  sum / 1e6, wall / 1e6);
    return fabs(sum / wall - 1.0);
}

/* run.seconds begin with the first timed step, not with the evaluation before it. */
TEST(test_seconds_behind_a_pause)
{
    struct command command;
    timed_run(&command, 0,
              "run.seconds=0.1 run.warmup_steps=20 eval.every=20 data.test_samples=1 "
              "device.evaluate=700");
    assert_true(json_number_at(command.json, "eval.0.step") == 20);
    assert_in_range(json_number_at(command.json, "timing.elapsed_ns"), 100000000, 600000000);
}

/* From the first timed step to the last: the sum of the steps against the device's own clock, and
 * the whole run against the test's. */
TEST(test_steps_add_up)
{
    enum { TRIES = 5 };
    static const char *const runs[] = {"device.backward=12 comm.name=shm run.workers=2",
                                       "data.fetch=12 data.threads=0"};
    for (size_t r = 0; r < 2; r++) {
        double error = INFINITY;
        for (int i = 0; i < TRIES && error > 0.01; i++)
            error = error_of_sum(runs[r]);
        assert_true(error <= 0.01);
    }
}

/* The same numbers under a clock that jumps by hours five times a second. */
TEST_WITH(test_clock_jumps, NULL, sandbox_forget_preload)
{
    static const struct timed_case jumping = {
        "a clock that jumps",
        "comm.name=shm data.fetch=80 device.forward=20 device.backward=30 run.steps=20",
        80,
        {{PART("data_wait"), 30}, {PART("forward"), 20}, {PART("backward"), 30}}};
    struct command command;
    sandbox_preload("jump_clock");
    timed_check(&jumping);
    timed_run(&command, 0, "comm.name=shm run.workers=2 data.fetch=5 run.seconds=1");

    /* The clock was wrong indeed: the result's label of when it began says so. */
    struct tm began = {0};
    const char *end = strptime(json_text_at(command.json, "started"), "%Y-%m-%dT%H:%M:%SZ", &began);
    assert_non_null(end);
    assert_true(labs((long)(timegm(&began) - time(NULL))) > 1800);
    double elapsed_s = json_number_at(command.json, "timing.elapsed_ns") / 1e9;
    assert_true(elapsed_s >= 1.0 && elapsed_s < 60.0); /* the jumps are longer */
}

/* ---- the waits of comm.late ----------------------------------------------------------------- */

/* How many exchanges of 100 ms the timed steps have waited for: a step of 110 ms hides the others.
 */
static double count_waits(const char *settings)
{
    struct command command;
    timed_run(&command, 0,
              "comm.name=timed comm.bucket=4096 comm.exchange=25 comm.late=1 device.forward=10 "
              "device.backward=100 data.test_samples=2 device.evaluate=1 %s",
              settings);
    const double exposed_ns = json_number_at(command.json, PART("comm_exposed"));
    const double waits = exposed_ns * json_number_at(command.json, "timing.steps") / 100e6;
    return waits;
}

/* Timed steps wait for as many exchanges as they begin: for those that a pause or the end leaves no
 * step to hide behind, unless the first timed step has begun with one of warm-up. */
TEST(test_late_waits)
{
    static const struct {
        const char *settings;
        double waits;
    } rows[] = {
        {"run.warmup_steps=1 run.steps=2", 0},
        {"run.warmup_steps=0 run.steps=2", 1},
        {"run.warmup_steps=1 run.steps=2 eval.every=3", 0},
        {"run.warmup_steps=0 run.steps=3 eval.every=3", 1},
        {"run.warmup_steps=1 run.steps=3 eval.every=2", 1},
        {"run.warmup_steps=2 run.steps=3 eval.every=2", 2},
        {"run.warmup_steps=1 run.steps=2 eval.every=1", 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double waits = -1.0;
        for (int try = 0; try < 3 && !(fabs(waits - rows[i].waits) < 0.4); try++)
            waits = count_waits(rows[i].settings);
        if (!(fabs(waits - rows[i].waits) < 0.4))
            fail_msg("%s: %.2f waits, not %.0f", rows[i].settings, waits, rows[i].waits);
    }
}

/* ---- how long a run lasts ------------------------------------------------------------------ */

/* A second of steps of 20 ms; the stop is agreed on two steps ahead. Evaluations of 300 ms, every
 * 16 steps, neither count as time of the run nor stand in a step: it would be longer than they.
 * False: a step was as long, or steps were so long that there were not two evaluations, as where
 * the machine did others' work. */
static bool seconds_hold(void)
{
    struct command command;
    double longest_s = 0.0, off_s = 0.0;
    timed_run(&command, 0,
              "run.seconds=1 run.warmup_steps=0 run.workers=2 run.batch=4 comm.name=shm "
              "device.forward=10 device.backward=10 device.evaluate=150 data.test_samples=16 "
              "eval.every=16");
    size_t n = json_array_size(json_at(command.json, "timing.step_ns"));
    size_t n_evals = json_array_size(json_at(command.json, "eval"));
    for (size_t i = 0; i < n; i++)
        longest_s = fmax(longest_s, step_ns(command.json, i) / 1e9);
    double elapsed_s = json_number_at(command.json, "timing.elapsed_ns") / 1e9;
    if (!(elapsed_s >= 1.0 && elapsed_s < 1.0 + 5 * longest_s))
        fail_msg("run.seconds=1 timed %.3f s", elapsed_s);
    assert_true(command.seconds > elapsed_s + 0.3 * (double)n_evals);
    double trained_s = 0.0;
    for (size_t e = 0; e < n_evals; e++) {
        const json_t *one = json_array_get(json_at(command.json, "eval"), e);
        assert_int_equal(json_number_at(one, "step"), 16 * (e + 1));
        assert_int_equal(json_number_at(one, "samples"), 16);
        for (size_t i = 16 * e; i < 16 * (e + 1); i++)
            trained_s += step_ns(command.json, i) / 1e9;
        off_s = fmax(off_s, fabs(json_number_at(one, "trained_s") - trained_s));
    }
    print_message("the longest step took %.3f s; %zu evaluations came %.3f s off their time\n",
                  longest_s, n_evals, off_s);
    return longest_s < 0.3 && n_evals >= 2 && off_s < 0.15;
}

TEST(test_seconds_and_evaluation)
{
    bool hold = false;
    for (int try = 0; try < 5 && !hold; try++)
        hold = seconds_hold();
    assert_true(hold);
}

/* Workers that do not exchange end apart, by more than the deadline of a wait. */
TEST(test_ends_apart)
{
    struct command command;
    timed_run(&command, 0,
              "comm.name=independent run.workers=2 run.timeout_s=1 run.steps=30 device.late_rank=1 "
              "device.late=60");
    assert_int_equal(json_number_at(command.json, "ranks.0.steps"), 30);
    assert_int_equal(json_number_at(command.json, "ranks.1.steps"), 30);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        add_case(test_case, &cases[i], "%s", cases[i].name);
    return test_main(timed_setup, timed_teardown);
}
