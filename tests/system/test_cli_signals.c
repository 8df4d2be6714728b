/*
 * test_cli_signals.c - runs and sweeps that end early, by a signal.
 */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cli.h"
#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/traces.h"

/* Sends a signal to a run (or a sweep) that would last, so long after its two ranks began. */
static void interrupt_after(double seconds, const char *arguments, int number, int exit_code,
                            struct command *command)
{
    struct started started;
    pid_t ranks[2];
    dpbench_start(&started, NULL, RUN LAZY "--json run.seconds=60 %s", arguments);
    faults_await_ranks(&started, ranks, 2);
    usleep((useconds_t)(seconds * 1e6));
    kill(started.pid, number);
    double sent_s = now_s();
    command_finish(&started, command, deadline_s);
    if (command->exit_code != exit_code || now_s() - sent_s > 10.0)
        fail_msg("%s: exit %d, not %d, after %.1f s\n%s", arguments, command->exit_code, exit_code,
                 now_s() - sent_s, command->err);
    assert_string_equal(json_text_at(command->json, "status"), "interrupted");
}

/* Within its steps: a start takes a tenth of the first time, but on a busy machine. */
static void interrupt(const char *arguments, int number, int exit_code, struct command *command)
{
    double seconds = 0.7;
    for (interrupt_after(seconds, arguments, number, exit_code, command);
         seconds < 20 && !(json_number_at(command->json, "timing.steps") > 0);) {
        interrupt_after(seconds *= 3, arguments, number, exit_code, command);
    }
}

TEST(test_interrupted)
{
    static const struct {
        int number, exit_code;
        const char *words, *settings, *replicas, *steps;
    } rows[] = {{SIGINT, 130, "interrupted by signal 2", "", "pass", "skipped"},
                {SIGTERM, 143, "by signal 15", "comm.name=gossip", "not_applicable", "skipped"}};
    struct traces before;
    traces_take(&before, ".");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        interrupt(rows[i].settings, rows[i].number, rows[i].exit_code, &command);
        expect_part(json_text_at(command.json, "error"), rows[i].words);
        double steps = json_number_at(command.json, "timing.steps");
        assert_true(steps > 0 &&
                    json_array_size(json_at(command.json, "timing.step_ns")) == (size_t)steps);
        assert_true(json_number_at(command.json, "timing.samples_per_s.mean") > 0);
        assert_string_equal(json_text_at(command.json, "verification.replicas"), rows[i].replicas);
        assert_string_equal(json_text_at(command.json, "verification.steps"), rows[i].steps);
    }
    traces_expect_none(&before, "interrupted", 0.5);
}

/* Beside a thread of a library that blocks no signal, the launcher gets those of its ranks' ends,
 * and those that interrupt it. */
TEST_WITH(test_listening_thread, NULL, sandbox_forget_preload)
{
    struct command command;
    sandbox_preload("listening_thread");
    for (int i = 0; i < 5; i++)
        run(&command, 0, RUN);
    interrupt("", SIGINT, 130, &command);
    assert_string_equal(json_text_at(command.json, "verification.replicas"), "pass");
}

/* `eval` ends behind the batch in progress, and tells no accuracy of a part of the test set. */
TEST(test_interrupted_evaluation)
{
    struct command command;
    run(&command, 0, RUN "checkpoint.save=c.safetensors");
    for (int json = 0; json < 2; json++) {
        struct started started;
        pid_t rank;
        dpbench_start(&started, NULL,
                      "eval -c base.ini checkpoint.load=c.safetensors "
                      "data.test_samples=1000000000 %s",
                      json ? "--json" : "");
        faults_await_ranks(&started, &rank, 1);
        usleep(700000);
        kill(started.pid, SIGINT);
        command_finish(&started, &command, deadline_s);
        assert_int_equal(command.exit_code, 130);
        if (json) {
            assert_string_equal(json_text_at(command.json, "status"), "interrupted");
            assert_int_equal(json_array_size(json_at(command.json, "eval")), 0);
        } else {
            assert_string_equal(command.out, "interrupted: interrupted by signal 2 (Interrupt)\n");
        }
    }
}

/* The runs that lie in a directory. */
static int runs_in(const char *directory)
{
    char path[PATH_MAX];
    int n = 0;
    do
        snprintf(path, sizeof path, "%s/%06d.json", directory, n + 1);
    while (access(path, F_OK) == 0 && ++n > 0);
    return n;
}

/* SIGKILL takes the run under way alone: the others are reported, and the sweep goes on. */
TEST(test_killed_sweep)
{
    struct started started;
    struct command command;
    char arguments[128];
    dpbench_start(&started, NULL,
                  "-c base.ini sweep.comm.name=shm,replicated sweep.repeats=3 "
                  "sweep.retry_disturbed=0 run.seconds=0.4 run.delay=constant(5ms) "
                  "--output killed.json");
    double begin_s = now_s();
    while (runs_in("killed.json.runs") < 2 && now_s() - begin_s < deadline_s)
        usleep(1000);
    run(&command, 0, "report killed.json.runs"); /* while it runs */
    EXPECT_WORDS("report", command.out, "samples/s", "interrupted: ");
    kill(started.pid, SIGKILL);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(access("killed.json", F_OK), -1);
    int n = runs_in("killed.json.runs");
    assert_true(n >= 2 && n < 6);
    run(&command, 0, "report killed.json.runs");
    EXPECT_WORDS("report", command.out, "samples/s", "interrupted: ");
    run(&command, 0, "rerun killed.json.runs --resume --json --output whole_again.json");
    snprintf(arguments, sizeof arguments, "%d of 6 runs are there, from killed.json.runs", n);
    expect_part(command.err, arguments);
    assert_string_equal(json_text_at(command.json, "status"), "ok");
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 6);
    assert_int_equal(runs_in("whole_again.json.runs"), 6);
    run(&command, 0, "compare whole_again.json whole_again.json.runs --json");
    assert_int_equal(json_array_size(json_at(command.json, "differences")), 0);
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 2);
    assert_int_equal(json_number_at(command.json, "rows.0.ratio"), 1);
    assert_int_equal(mkdir("empty", 0777), 0);
    EXPECT_ERROR(2, "report empty", "empty: no sweep.json in it");
}

/* A sweep's file that cannot be written is told beside the file of its last run. */
TEST(test_lost_file_of_a_sweep)
{
    struct started started;
    struct command command;
    pid_t ranks[2];
    dpbench_start(&started, NULL,
                  "-c base.ini run.workers=2 run.seconds=60 sweep.comm.name=shm,replicated "
                  "--output gone/x.json");
    faults_await_ranks(&started, ranks, 2);
    assert_int_equal(rename("gone", "moved"), 0);
    sandbox_write("gone", "no directory\n");
    kill(started.pid, SIGINT);
    command_finish(&started, &command, deadline_s);
    EXPECT_WORDS("dpbench", command.err, "error: gone/x.json.runs", "error: gone/x.json: ");
}

/* Those of terminals, batch systems and timers end a run and a sweep as SIGTERM does. */
TEST(test_ending_signals)
{
    static const int numbers[] = {SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU};
    struct command command;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        interrupt_after(0.1, i % 2 ? "" : "sweep.comm.name=shm,replicated", numbers[i],
                        128 + numbers[i], &command);
}

/* nohup: a signal that is ignored at the begin stays ignored, in ranks and in the runs of a sweep,
 * too. The run ends by the next one. */
TEST(test_ignored_signals)
{
    static const char *const arguments[] = {"", "sweep.comm.name=shm,replicated"};
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        struct started started;
        struct command command;
        pid_t ranks[2];
        signal(SIGHUP, SIG_IGN);
        dpbench_start(&started, NULL, RUN LAZY "--json run.seconds=60 %s", arguments[i]);
        signal(SIGHUP, SIG_DFL);
        faults_await_ranks(&started, ranks, 2);
        kill(ranks[0], SIGHUP);
        kill(ranks[1], SIGHUP);
        kill(started.pid, SIGHUP);
        usleep(200000);
        kill(started.pid, SIGTERM);
        command_finish(&started, &command, deadline_s);
        assert_int_equal(command.exit_code, 128 + SIGTERM);
        assert_string_equal(json_text_at(command.json, "status"), "interrupted");
    }
}

TEST(test_interrupted_sweep)
{
    struct command command;
    interrupt_after(0.7, "sweep.comm.name=shm,replicated", SIGINT, 130, &command);
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.sweep/1");
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 1);
    assert_string_equal(json_text_at(command.json, "runs.0.status"), "interrupted");
}

TEST_MAIN(set_up, sandbox_teardown)
