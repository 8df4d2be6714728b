/* needs: waits */
/*
 * test_trace.c - run.trace: the file of each strategy, read by tests/lib/trace_reader.py; what is
 * left of a run that died; a ring that is too small; and what is refused before the run.
 */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/training.h"

static const double deadline_s = 60.0;

static char reader[PATH_MAX];

static int set_up(void **state)
{
    if (!realpath("tests/lib/trace_reader.py", reader))
        fail_msg("tests/lib/trace_reader.py is not there");
    int result = faults_setup(state);
    sandbox_write("x.ini", "[run]\nresults =\nsteps = 5\nsteady_limit_s = 0\nwarmup_steps = 1\n"
                           "trace = t.json\n[model]\nname = tiny\n[comm]\nbucket = 2000\n"
                           "[device]\nname = reference\nthreads = 1\n");
    return result;
}

/* ---- what is in it ------------------------------------------------------------------------- */

static void trace(struct command *command, const char *settings)
{
    unlink("t.json");
    dpbench_ends(command, deadline_s, 0, "-c x.ini --output r.json %s", settings);
}

/* What the reader says of the file of the last run. */
static void read_trace(struct command *command, const char *settings, const char *how)
{
    command_run(command, deadline_s, (const char *[]){reader, "t.json", "r.json", how, NULL}, NULL);
    if (command->exit_code != 0 || !command->json)
        fail_msg("%s: %s%s", settings, command->out, command->err);
}

TEST(test_forms)
{
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));) {
        const int workers = form->network ? 2 : 3;
        const char *settings = form_settings(form, "", workers);
        struct command command;
        trace(&command, settings);
        read_trace(&command, settings, "all");
        assert_true(json_number_at(command.json, "steps") == 6.0 * workers);
        assert_true(json_number_at(command.json, "buckets") > 2);
    }
}

/* Two all-reduces a bucket, in an order of their own. */
TEST(test_rounds)
{
    const char *const settings = "comm.name=ring_tcp run.workers=2 comm.codec=powersgd";
    struct command command;
    trace(&command, settings);
    read_trace(&command, settings, "all");
}

/* Where exchanges cross the ends of steps, and where the exchange has a thread of its own. */
TEST(test_others)
{
    static const char *const settings[] = {
        "comm.name=shm run.workers=2 comm.late=1",
        "comm.name=shm run.workers=2 comm.late=1 run.comm_cores=1",
        "comm.name=shm run.workers=2 run.accumulate=2 run.delay=constant(2ms) run.delay_ranks=1",
        "comm.name=local_sgd run.workers=2",
        "comm.name=ps_async run.workers=2 run.servers=1 run.delay=constant(2ms) run.delay_ranks=1",
        "run.mode=forward",
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct command command;
        trace(&command, settings[i]);
        read_trace(&command, settings[i], NULL);
    }
}

/* How many events of this name the file has. */
static size_t count_events(const json_t *document, const char *name)
{
    const json_t *event;
    size_t i, n = 0;
    json_array_foreach(json_at(document, "traceEvents"), i, event) n +=
        strcmp(json_text_at(event, "name"), name) == 0;
    return n;
}

static json_t *load_trace(void)
{
    json_error_t error;
    json_t *document = json_load_file("t.json", 0, &error);
    if (!document)
        fail_msg("t.json: %s", error.text);
    return own_json(document);
}

/* Each step of ps_async fetches all buckets, those without a push too. */
TEST(test_fetched_alone)
{
    enum { BUCKETS = 64 };
    size_t counts[BUCKETS] = {0}, n = 0, i;
    const json_t *event;
    struct command command;
    trace(&command, "comm.name=ps_async run.servers=1 comm.push_every=3");
    json_t *document = load_trace();
    assert_true(json_number_at(document, "otherData.machines.0.error_ns") == 0); /* one clock */
    json_array_foreach(json_at(document, "traceEvents"), i, event)
    {
        if (strcmp(json_text_at(event, "name"), "transfer") != 0)
            continue;
        const size_t bucket = (size_t)json_number_at(event, "args.bucket");
        assert_true(bucket < BUCKETS);
        n = bucket + 1 > n ? bucket + 1 : n;
        counts[bucket]++;
    }
    assert_true(n > 2);
    for (i = 0; i < n; i++)
        if (counts[i] != counts[n - 1])
            fail_msg("bucket %zu: %zu transfers; the last one: %zu", i, counts[i], counts[n - 1]);
}

/* The last steps, what is between them and behind them, and what helper threads do. */
TEST(test_window)
{
    struct command command;
    trace(&command, "comm.name=shm run.workers=2 run.steps=30 run.trace_steps=7 eval.every=28 "
                    "eval.final=yes data.test_samples=20 checkpoint.save=c.safetensors "
                    "data.threads=2");
    json_t *document = load_trace();
    assert_true(json_number_at(document, "otherData.ranks.1.first_step") == 24);
    assert_int_equal(count_events(document, "step"), 2 * 7);
    assert_int_equal(count_events(document, "evaluate"), 2 * 2);
    assert_int_equal(count_events(document, "checkpoint"), 2);
    assert_true(count_events(document, "load") >= 2 * 7);
}

TEST(test_layers)
{
    struct command command;
    if (!have_cpu_device())
        skip();
    trace(&command, "device.name=cpu model.name=lenet run.batch=2 run.profile=yes comm.name=shm "
                    "run.workers=2 comm.bucket=400KiB");
    json_t *document = load_trace();
    assert_true(count_events(document, "conv2") >= 6 * 2 * 2);
    assert_true(count_events(document, "fc1") >= 6 * 2 * 2);
    read_trace(&command, "lenet", "all");
}

/* Steps of more spans than there is room for are left out whole, and the file and the result say
 * so. */
TEST(test_too_many)
{
    struct command command;
    trace(&command, "comm.name=shm run.workers=2 run.trace_steps=3 comm.bucket=8 run.steps=12");
    json_t *document = load_trace();
    const double n = json_number_at(document, "otherData.ranks.0.steps");
    assert_true(n < 3);
    assert_true(json_is_false(json_at(document, "otherData.ranks.0.complete")));
    assert_int_equal(count_events(document, "step"),
                     n + json_number_at(document, "otherData.ranks.1.steps"));
    json_error_t error;
    json_t *result = own_json(json_load_file("r.json", 0, &error));
    const json_t *warning;
    size_t i, n_cut = 0;
    json_array_foreach(json_at(result, "warnings"), i, warning) n_cut +=
        strcmp(json_text_at(warning, "code"), "trace_cut") == 0;
    assert_int_equal(n_cut, 1);
}

/* ---- a death ------------------------------------------------------------------------------- */

TEST(test_death)
{
    struct started started;
    struct command command;
    pid_t pids[2];
    unlink("t.json");
    faults_start_long(&started, "run.trace=t.json comm.name=shm");
    faults_await_steps(&started, pids, 2);
    kill(pids[1], SIGKILL);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 1);
    json_t *document = load_trace();
    assert_string_equal(json_text_at(document, "otherData.status"), "failed");
    for (int rank = 0; rank < 2; rank++) {
        char path[64];
        snprintf(path, sizeof path, "otherData.ranks.%d.steps", rank);
        assert_true(json_number_at(document, path) > 0);
    }
}

/* ---- refused ------------------------------------------------------------------------------- */

static void expect_refused(const char *arguments, const char *words)
{
    struct command command;
    dpbench(&command, deadline_s, "%s", arguments);
    if (command.exit_code != 2 || !strstr(command.err, words) ||
        strstr(command.out, "SamplesPerSec"))
        fail_msg("%s: exit %d, wanted 2 and '%s': %s", arguments, command.exit_code, words,
                 command.err);
}

TEST(test_refused)
{
    struct command command;
    expect_refused("-c x.ini run.trace=none/t.json",
                   "run.trace = none/t.json: none cannot be written to: No such file");
    expect_refused("-c x.ini run.trace=.", "run.trace = . is there and is no regular file");
    expect_refused("-c x.ini run.trace= run.trace_steps=3",
                   "run.trace_steps = 3 does nothing: it needs run.trace");
    expect_refused("-c x.ini sweep.run.batch=1,2", "x.ini:6: run.trace in a sweep");
    expect_refused("check -c x.ini sweep.run.batch=1,2", "x.ini:6: run.trace in a sweep");
    expect_refused("comm -c x.ini comm.name=shm run.workers=2", "`dpbench comm` has none");
    trace(&command, "");
    expect_refused("rerun r.json", "run.trace = t.json is there, and a rerun replaces no file");
    dpbench_ends(&command, deadline_s, 0, "rerun r.json run.trace=again.json");
    assert_int_equal(access("again.json", F_OK), 0);
}

/* Nothing is beside the file, and a run without the setting leaves none. */
TEST(test_absent)
{
    struct command command;
    trace(&command, "run.trace=");
    assert_int_not_equal(access("t.json", F_OK), 0);
}

TEST_MAIN(set_up, sandbox_teardown)
