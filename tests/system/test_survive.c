/* needs: waits */
/*
 * test_survive.c - run.survive: where a signal ends a worker of ps_async, the others train on, in
 * whatever phase, by whatever transport and rule; what it had given counts once. All that the
 * promise leaves out ends the job as ever. Workers of independent train on, too.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"

static const double deadline_s = 60.0;

enum { WORKERS = 4 };

/* 3 + 40 steps a worker. */
#define SURVIVE                                                                             \
    FAULTS_BASE "run.survive=yes run.workers=4 run.servers=2 run.steps=40 run.timeout_s=8 " \
                "comm.bucket=388 optimizer.learning_rate=0.005 "
#define APART "comm.interface=lo comm.hosts=1+1+1+1+1+1 "
#define COMM "comm.name=mutant_async comm.fault=kill comm.rank=2 comm.hook="
#define DEVICE "comm.name=ps_async device.name=fault device.fault=kill device.rank=2 device.hook="

static double number_of(const struct command *command, const char *path, size_t i)
{
    return json_number_value(json_array_get(json_at(command->json, path), i));
}

static double steps_of(const struct command *command, size_t rank)
{
    return json_number_at(json_array_get(json_at(command->json, "ranks"), rank), "steps");
}

static double mean_loss(const struct command *command, size_t from, size_t n)
{
    double sum = 0.0;
    for (size_t i = from; i < from + n; i++)
        sum += number_of(command, "loss", i);
    return sum / (double)n;
}

/* That `left` workers trained on to the end of all their steps, and what they did is proven. */
static void expect_survived(const char *title, const struct command *command, unsigned left)
{
    if (command->exit_code != 0)
        fail_msg("%s: exit code %d: %s", title, command->exit_code, command->err);
    assert_string_equal(json_text_at(command->json, "status"), "ok");
    assert_int_equal(json_number_at(command->json, "world.left"), left);
    assert_int_equal(json_number_at(command->json, "world.workers"), WORKERS);
    EXPECT_WORDS(title, command->err, "was killed by signal");
    assert_string_equal(json_text_at(command->json, "verification.pattern"), "pass");
    assert_string_equal(json_text_at(command->json, "verification.after"), "pass");
}

/* ---- phases -------------------------------------------------------------------------------- */

/* A proof has 8 steps, that of `load` two, in which all publish once. The second row is of a timed
 * step, and the third of an evaluation. */
static const struct phase {
    const char *settings, *words;
} phases[] = {
    {DEVICE "forward device.call=2", "of step 1;"},
    {DEVICE "forward device.call=9", "of step 7;"},
    {DEVICE "backward device.call=15 " APART, "in phase 'backward' of step 14"},
    {DEVICE "backward device.call=25 comm.bound=1", "in phase 'backward' of step 24"},
    {DEVICE "forward device.call=6 eval.every=5", "of step 5;"},
    {COMM "begin comm.call=21", "of step 10"},
    {COMM "begin comm.call=14 comm.policy=k_sync comm.k=2 run.delay=exponential(2ms)", "of step 3"},
    {COMM "ready comm.call=900", "in phase 'backward' of step"},
    {COMM "ready comm.call=901 comm.bound=0 " APART, "in phase 'backward' of step"},
    {COMM "progress comm.call=400 comm.policy=k_async comm.k=3", "of step"},
    {COMM "progress comm.call=401 comm.softsync=3 " APART, "of step"},
    {COMM "end comm.call=22 comm.bound=0", "in phase 'exchange' of step 11"},
    {COMM "end comm.call=23 comm.policy=k_sync comm.k=4", "in phase 'exchange' of step 12"},
    {COMM "end comm.call=24 comm.policy=k_async comm.k=4 run.servers=1",
     "in phase 'exchange' of step 13"},
    {COMM "end comm.call=25 comm.policy=k_batch_sync comm.k=3 " APART,
     "in phase 'exchange' of step 14"},
    {COMM "end comm.call=26 comm.push_every=3 comm.fetch_every=2",
     "in phase 'exchange' of step 15"},
    {COMM "publish comm.call=2 eval.every=5", "in phase 'evaluate' of step 5"},
    {COMM "publish comm.call=3 eval.every=5 " APART, "in phase 'evaluate' of step 10"},
    {COMM "publish comm.call=2 checkpoint.save=a.safetensors checkpoint.every=6 eval.every=0",
     "in phase 'checkpoint' of step 6"},
    {COMM "settle comm.call=4 eval.every=0", "of step 43"},
};

static void test_phase(void **state)
{
    const struct phase *phase = *state;
    struct command command;
    dpbench(&command, deadline_s, SURVIVE "eval.every=7 %s", phase->settings);
    EXPECT_WORDS(phase->settings, command.err, phase->words);
    expect_survived(phase->settings, &command, WORKERS - 1);
    for (size_t worker = 0; worker < WORKERS; worker++)
        assert_true(worker == 2 ? steps_of(&command, worker) <= 40
                                : steps_of(&command, worker) == 40);
}

/* ---- any moment ---------------------------------------------------------------------------- */

/* Two workers die one after the other while the others train; the loss goes on falling. Workers
 * that compute at unlike times leave the processor to other tests. */
static void test_any_moment(void **state)
{
    static const int signals[] = {SIGKILL, SIGSEGV, SIGABRT};
    static unsigned turn;
    char line[512];
    snprintf(line, sizeof line,
             "run.survive=yes run.workers=4 run.servers=2 run.seconds=2 run.timeout_s=8 "
             "run.delay=exponential(2ms) "
             "comm.name=ps_async comm.bucket=388 data.samples=64 optimizer.learning_rate=0.005 "
             "model.name=tiny_dense eval.every=0 %s",
             (const char *)*state);
    struct started started;
    struct command command;
    struct traces before;
    pid_t ranks[WORKERS + 2];
    traces_take(&before, ".");
    faults_start(&started, line);
    faults_await_steps(&started, ranks, WORKERS + 2);
    usleep(100000 + 31000 * turn);
    kill(ranks[1], signals[turn++ % 3]);
    usleep(200000);
    kill(ranks[3], signals[turn++ % 3]);
    command_finish(&started, &command, deadline_s);
    expect_survived(line, &command, WORKERS - 2);
    traces_expect_none(&before, line, 0.5);
    const size_t n = json_array_size(json_at(command.json, "loss"));
    assert_true(n > 40);
    if (!(mean_loss(&command, n - 10, 10) < mean_loss(&command, 0, 10)))
        fail_msg("%s: the loss rose from %g to %g", line, mean_loss(&command, 0, 10),
                 mean_loss(&command, n - 10, 10));
}

/* ---- the others ---------------------------------------------------------------------------- */

/* Evaluations after a death are of the whole test set: who is left divides it. */
TEST(test_evaluations)
{
    struct command command;
    dpbench(&command, deadline_s, SURVIVE DEVICE "backward device.call=8 eval.every=10");
    expect_survived("evaluations", &command, WORKERS - 1);
    const json_t *evals = json_at(command.json, "eval");
    assert_int_equal(json_array_size(evals), 4);
    for (size_t i = 0; i < json_array_size(evals); i++)
        assert_int_equal(json_number_at(json_array_get(evals, i), "samples"), 16);
}

/* A checkpoint after a death has the model of all, and begins a training of those that are left. */
TEST(test_checkpoint)
{
    struct command command;
    dpbench(&command, deadline_s,
            SURVIVE DEVICE "backward device.call=8 eval.every=0 checkpoint.save=b.safetensors "
                           "optimizer.momentum=0.9 " APART);
    expect_survived("checkpoint", &command, WORKERS - 1);
    dpbench_ends(&command, deadline_s, 0,
                 FAULTS_BASE "comm.name=ps_async run.workers=3 run.servers=2 checkpoint.resume=yes "
                             "checkpoint.load=b.safetensors optimizer.momentum=0.9");
    assert_int_equal(json_number_at(command.json, "timing.first_step"), 43);
}

TEST(test_table)
{
    struct command command;
    sandbox_write("sweep.ini", "[run]\nresults =\nservers = 1\nsurvive = yes\nbatch = 2\n"
                               "steps = 40\nwarmup_steps = 3\nsteady_limit_s = 0\n"
                               "[model]\nname = tiny\n[data]\nsamples = 64\n"
                               "[comm]\nname = ps_async\n"
                               "[device]\nname = fault\nthreads = 1\nfault = kill\nrank = 2\n"
                               "hook = backward\ncall = 8\n[sweep]\nrun.workers = 2, 4\n");
    dpbench_ends(&command, deadline_s, 0, "-c sweep.ini");
    EXPECT_WORDS("table", command.out, "3 of 4");
}

/* ---- what ends the job --------------------------------------------------------------------- */

TEST(test_ends)
{
    static const struct {
        const char *settings, *words;
    } rows[] = {
        {"comm.name=mutant_async comm.fault=kill comm.rank=0 comm.hook=end comm.call=20",
         "rank 0 ("},
        {"comm.name=mutant_async comm.fault=kill comm.rank=2 comm.hook=end comm.call=2",
         "of step 0"},
        {"comm.name=mutant_async comm.fault=exit_7 comm.rank=2 comm.hook=end comm.call=20",
         "ended with exit code 7"},
        {"comm.name=mutant_async comm.fault=error comm.rank=2 comm.hook=end comm.call=20",
         "the fault that was asked for"},
        {"run.survive=no " DEVICE "backward device.call=8", "in phase 'backward' of step 7"},
        {"comm.name=mutant_async comm.fault=kill comm.rank=2 comm.hook=begin comm.call=55",
         "of step 43"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 1, SURVIVE "eval.every=0 %s", rows[i].settings);
        EXPECT_WORDS(rows[i].settings, command.err, rows[i].words);
        faults_expect_failed(rows[i].settings, &command);
    }
}

TEST(test_server_dies)
{
    struct started started;
    struct command command;
    pid_t ranks[WORKERS + 2];
    faults_start_long(&started, "run.survive=yes run.workers=4 run.servers=2 comm.name=ps_async "
                                "run.timeout_s=8 eval.every=0");
    faults_await_steps(&started, ranks, WORKERS + 2);
    kill(ranks[WORKERS], SIGKILL);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 1);
    EXPECT_WORDS("a server", command.err, "rank 4 (", "killed");
}

/* Workers that exchange nothing have nothing to prove. */
TEST(test_independent)
{
    struct command command;
    dpbench(&command, deadline_s,
            SURVIVE "run.servers=0 comm.name=independent device.name=fault device.fault=kill "
                    "device.rank=2 device.hook=backward device.call=25 eval.every=5");
    assert_int_equal(command.exit_code, 0);
    EXPECT_WORDS("independent", command.err, "was killed by signal", "3 of 4 workers train on");
    assert_int_equal(json_number_at(command.json, "world.left"), 3);
    for (size_t worker = 0; worker < WORKERS; worker++)
        assert_true((steps_of(&command, worker) == 40) == (worker != 2));
}

TEST(test_refusals)
{
    static const struct {
        const char *settings, *words;
    } rows[] = {
        {"comm.name=ps_cpu run.servers=0", "the workers of comm 'ps_cpu' need each other's"},
        {"comm.name=ps_cpu", "the workers of comm 'ps_cpu' need each other's"},
        {"comm.name=shm run.servers=0", "whose workers do without:"},
        {"comm.name=ps_async run.servers=0", "give run.servers"},
        {"comm.name=ps_async comm.transport=verbs", "comm.transport = verbs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i].words), SURVIVE "eval.every=0 %s",
                     rows[i].settings);
    dpbench_says(deadline_s, 2, WORDS("leave run.survive out"),
                 "comm -c base.ini comm.name=ps_async run.servers=1 run.survive=yes");
}

static int setup(void **state)
{
    const char *old = getenv("ASAN_OPTIONS");
    char options[256];
    /* A sanitizer would turn the signals that kill into exit codes. */
    snprintf(options, sizeof options, "%s:handle_segv=0:handle_abort=0", old ? old : "");
    setenv("ASAN_OPTIONS", options, 1);
    return faults_setup(state);
}

int main(void)
{
    static const char *const moments[] = {"",
                                          APART,
                                          "comm.bound=1",
                                          "comm.softsync=3 comm.rate=staleness",
                                          "comm.policy=k_sync comm.k=3",
                                          "comm.policy=k_batch_sync comm.k=4 " APART,
                                          "comm.policy=k_async comm.k=3",
                                          "comm.push_every=4 comm.fetch_every=3 run.comm_cores=1 "
                                          "optimizer.momentum=0"};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        add_case(test_phase, &phases[i], "%s", phases[i].settings);
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
        add_case(test_any_moment, moments[i], "two workers die, %s", moments[i]);
    return test_main(setup, sandbox_teardown);
}
