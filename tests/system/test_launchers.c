/* needs: waits cells */
/*
 * test_launchers.c - the same experiment under mpirun and under srun: it runs, what cannot work is
 * refused by one process alone, and a fault in any process of the job ends it soon, names its cause
 * once, keeps what was measured, and leaves nothing behind.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/launch_faults.h"
#include "lib/launchers.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"
#include "lib/training.h"

static const double deadline_s = 60.0;

#define RESULT LAUNCH_RESULT
#define BASE LAUNCH_BASE

static char lenet_ini[PATH_MAX];

/* ---- it runs --------------------------------------------------------------------------------- */

static void expect_same_run(launcher by, const char *strategy, double servers)
{
    struct command command;
    launched(&command, 120, by, 4,
             "-c %s --output " RESULT " run.epochs=1 run.batch=8 data.name=synthetic "
             "data.samples=96 data.test_samples=100 %s",
             lenet_ini, strategy);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("%s, %s: exit %d\n%s", launcher_names[by], strategy, command.exit_code,
                 command.err);
    assert_string_equal(json_text_at(result, "status"), "ok");
    assert_string_equal(json_text_at(result, "world.launcher"), launcher_names[by]);
    assert_true(json_number_at(result, "world.workers") == 4 - servers);
    assert_true(json_number_at(result, "world.servers") == servers);
    assert_true(json_number_at(result, "world.machines") == 1);
    assert_int_equal(json_array_size(json_at(result, "ranks")), 4);
    assert_string_equal(json_text_at(result, "verification.pattern"), "pass");
    assert_string_equal(json_text_at(result, "verification.replicas"), "pass");
    assert_true(json_number_at(result, "eval.0.samples") == 100);
}

TEST(test_runs)
{
    for (launcher by = 0; by < N_LAUNCHERS; by++) {
        expect_same_run(by, "run.workers=4", 0);
        expect_same_run(by, "comm.name=ps_cpu run.workers=3 run.servers=1", 1);
        if (by != ENVIRONMENT && have_plugin("comm_mpi"))
            expect_same_run(by, "comm.name=mpi run.workers=4", 0);
    }
}

static void run_with_limit(const char *which, struct command *command)
{
    struct started started;
    char program[4096];
    sandbox_write("few.sh", "ulimit %s 60\nexec \"$@\"\n", which);
    snprintf(program, sizeof program, "/bin/sh few.sh %s/dpbench " BASE "comm.name=ring_tcp",
             build_directory());
    launched_start_program(&started, MPIRUN, 2, program);
    command_finish(&started, command, deadline_s);
}

/* A shell's limit on open files, below the one that a process may set, as with hundreds of ranks:
 * for the head, which all parts connect to, and for a rank, which others connect to. The limit that
 * a process may set is named. */
TEST(test_few_descriptors)
{
    struct command command;
    run_with_limit("-Sn", &command);
    if (command.exit_code != 0)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    json_decref(launch_take_result());
    run_with_limit("-n", &command);
    EXPECT_WORDS("hard limit", command.err, "this process may have 60 open files");
}

/* The parts wait for a head that is silent while it writes the result. */
TEST_WITH(test_slow_result, NULL, sandbox_forget_preload)
{
    struct command command;
    sandbox_preload("slow_result");
    launched(&command, deadline_s, MPIRUN, 2, BASE "comm.name=shm run.timeout_s=3");
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
}

/* As many workers as there are ranks beside the servers; and machines, as far as they can be. */
TEST(test_adopts)
{
    for (launcher by = 0; by < N_LAUNCHERS; by++) {
        struct command command;
        launched(&command, deadline_s, by, 3, "-c free.ini --output " RESULT " comm.hosts=1+2");
        json_t *result = own_json(launch_take_result());
        if (command.exit_code != 0 || !result)
            fail_msg("%s: exit %d\n%s", launcher_names[by], command.exit_code, command.err);
        assert_true(json_number_at(result, "config.run.workers.value") == 3);
        assert_string_equal(json_text_at(result, "config.run.workers.origin"), "launcher");
        assert_true(json_number_at(result, "world.machines") == 2);
        assert_true(json_number_at(result, "ranks.2.machine") == 1);
        launched(&command, deadline_s, by, 4,
                 "-c free.ini --output " RESULT " run.learners=2 device.threads=2 comm.name=shm");
        result = own_json(launch_take_result());
        if (command.exit_code != 0 || !result)
            fail_msg("%s: exit %d\n%s", launcher_names[by], command.exit_code, command.err);
        assert_true(json_number_at(result, "config.run.workers.value") == 2);
        assert_true(json_number_at(result, "world.workers") == 4);
    }
}

/* Points that end by their time: the ranks agree on the end of each through the head. */
static void expect_comm(launcher by, const char *strategy)
{
    struct command command;
    launched(&command, deadline_s, by, 2,
             "comm -c free.ini comm.name=%s comm_test.sizes=8,4KiB comm_test.seconds=0.1 "
             "--output " RESULT,
             strategy);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("%s, %s: exit %d\n%s", launcher_names[by], strategy, command.exit_code,
                 command.err);
    assert_string_equal(json_text_at(result, "status"), "ok");
    for (int point = 0; point < 2; point++) {
        char path[48];
        snprintf(path, sizeof path, "points.%d.iterations", point);
        assert_true(json_number_at(result, path) > 0);
        snprintf(path, sizeof path, "points.%d.wrong", point);
        assert_true(json_number_at(result, path) == 0);
    }
}

TEST(test_comm)
{
    static const char *const strategies[] = {"shm", "ring_tcp", "mpi"};
    for (launcher by = 0; by < N_LAUNCHERS; by++)
        for (int i = 0; i < 3; i++)
            if (strcmp(strategies[i], "mpi") != 0 || (by != ENVIRONMENT && have_plugin("comm_mpi")))
                expect_comm(by, strategies[i]);
}

/* ---- it starts a sweep's cells --------------------------------------------------------------- */

/* `axes` and other lines of the section. */
static void write_sweep(const char *launch, const char *axes)
{
    sandbox_write("sweep.ini",
                  "[run]\nbatch = 2\nsteps = 16\nwarmup_steps = 1\nsteady_limit_s = 0\n"
                  "[model]\nname = tiny\n[data]\nsamples = 64\n"
                  "[device]\nname = reference\nthreads = 1\n"
                  "[sweep]\nrepeats = 1\nretry_disturbed = 0\nlaunch = %s\n%s",
                  launch, axes);
}

static json_t *swept(int exit_code, const char *verb)
{
    struct command command;
    dpbench(&command, deadline_s, "%s --json --output swept.json", verb);
    if (command.exit_code != exit_code || !command.json)
        fail_msg("%s: exit %d\n%s", verb, command.exit_code, command.err);
    return command.json;
}

static const char *const templates[N_LAUNCHERS] = {
    "mpirun --oversubscribe -np {ranks} -x 'DPBENCH_QUOTED=a {workers} b'",
    "srun --quiet --overcommit --kill-on-bad-exit=1 --mpi=pmix -N 1 -n {ranks}",
    "sh -c '\"$DPB_TEST_BY_ENVIRONMENT\" \"$@\"' sh {ranks}"};

TEST(test_sweep)
{
    char quoted[32];
    for (launcher by = 0; by < N_LAUNCHERS; by++) {
        write_sweep(templates[by], "run.workers = 1, 2\n");
        json_t *document = swept(0, "-c sweep.ini");
        assert_int_equal(json_array_size(json_at(document, "rows")), 2);
        for (int i = 0; i < 2; i++) {
            const json_t *run = json_array_get(json_at(document, "runs"), (size_t)i);
            assert_string_equal(json_text_at(run, "status"), "ok");
            const bool alone = by == ENVIRONMENT && i == 0; /* WORLD_SIZE = 1 */
            assert_string_equal(json_text_at(run, "world.launcher"),
                                alone ? "local" : launcher_names[by]);
            assert_string_equal(json_text_at(run, "config.run.steps.origin"), "sweep.ini:3");
            const char *workers =
                json_string_value(json_object_get(json_at(run, "cell"), "run.workers"));
            assert_true(json_number_at(run, "world.workers") == atof(workers));
            snprintf(quoted, sizeof quoted, "a %s b", workers);
            if (by == MPIRUN)
                assert_string_equal(json_text_at(run, "invocation.environment.DPBENCH_QUOTED"),
                                    quoted);
        }
    }
}

static void expect_failures(json_t *document, const char *failure, const char *reason)
{
    for (size_t i = 0; i < json_array_size(json_at(document, "runs")); i++) {
        const json_t *run = json_array_get(json_at(document, "runs"), i);
        assert_string_equal(json_text_at(run, "failure"), failure);
        expect_part(json_text_at(run, "error"), reason);
    }
}

TEST(test_failed_cells)
{
    sandbox_write("hangs", "#!/bin/sh\necho waiting for $1 hosts >&2\nexec sleep 1000\n");
    assert_int_equal(chmod("hangs", 0755), 0);
    write_sweep("./hangs {ranks}", "launch_limit_s = 0.3\nrun.workers = 1, 2\n");
    expect_failures(swept(1, "-c sweep.ini"), "TIMEOUT",
                    "./hangs has not ended within sweep.launch_limit_s = 0.3 s: waiting for");
    /* As a shell starts it: a closed pipe ends it. */
    sandbox_write("pipes", "#!/bin/sh\nsh -c 'kill -PIPE $$'\necho code $? >&2\nexit 1\n");
    assert_int_equal(chmod("pipes", 0755), 0);
    write_sweep("./pipes", "run.workers = 1\n");
    expect_failures(swept(1, "-c sweep.ini"), "FAILED", "code 141");
    write_sweep("mpirun -np {ranks} --nonsense", "run.workers = 2\n");
    expect_failures(swept(1, "-c sweep.ini"), "FAILED", "mpirun ended with exit code 1: ");
    write_sweep("mpirun --oversubscribe -np 3", "run.workers = 2\n");
    expect_failures(swept(1, "-c sweep.ini"), "UNSUPPORTED", "but mpirun has started 3");
    write_sweep("echo {ranks}", "run.workers = 1\n");
    expect_failures(swept(1, "-c sweep.ini"), "FAILED", "echo printed no result of one run: '1");
}

/* A program that was rebuilt during the sweep: no cell runs another build. */
TEST(test_replaced_program)
{
    struct command command;
    const char *const shell[] = {"/bin/sh", "-c",
                                 "cp $DPB_BUILD/dpbench $DPB_BUILD/dpbench-sweep . && "
                                 "DPBENCH_PLUGIN_PATH=$DPB_BUILD/plugins ./dpbench -c sweep.ini "
                                 "--json --output swept.json",
                                 NULL};
    sandbox_write("replaces", "#!/bin/sh\nrm -f ./dpbench\nexit 7\n");
    assert_int_equal(chmod("replaces", 0755), 0);
    write_sweep("./replaces", "run.workers = 1, 2\n");
    command_run(&command, deadline_s, shell, NULL);
    expect_part(json_text_at(command.json, "runs.0.error"), "./replaces ended with exit code 7");
    expect_part(json_text_at(command.json, "runs.1.error"), "it was moved or replaced");
}

/* mpirun may wait for a machine that is gone. What it has started beside the cell goes with it. */
TEST(test_launcher_that_lingers)
{
    struct traces before;
    traces_take(&before, "nothing");
    sandbox_write("lingers", "#!/bin/sh\n\"$@\"\nsleep 1000\n");
    assert_int_equal(chmod("lingers", 0755), 0);
    write_sweep("./lingers", "run.workers = 1\n");
    json_t *document = swept(0, "-c sweep.ini");
    assert_string_equal(json_text_at(document, "runs.0.status"), "ok");
    traces_expect_none(&before, "a launcher that lingers", 5.0);
}

/* A launcher that does not end by SIGTERM ends after the user's second signal. */
TEST(test_deaf_launcher)
{
    struct started started;
    struct command command;
    struct traces before;
    traces_take(&before, "nothing");
    sandbox_write("deaf", "#!/bin/sh\ntrap '' TERM\ntouch deafened\nsleep 1000\n");
    assert_int_equal(chmod("deaf", 0755), 0);
    write_sweep("./deaf", "run.workers = 1, 2\n");
    dpbench_start(&started, NULL, "-c sweep.ini --output swept.json");
    for (double begin_s = now_s(); access("deafened", F_OK) != 0 && now_s() - begin_s < deadline_s;)
        usleep(1000);
    kill(started.pid, SIGINT);
    kill(started.pid, SIGTERM);
    command_finish(&started, &command, 20);
    assert_int_equal(command.exit_code, 143);
    traces_expect_none(&before, "a deaf launcher", 5.0);
}

/* A signal that comes when the cell's result is there: the result counts, and no cell follows. */
TEST(test_interrupted_launcher)
{
    struct started started;
    struct command command;
    struct traces before;
    traces_take(&before, "nothing");
    sandbox_write("lingers", "#!/bin/sh\n\"$@\"\ntouch over\nsleep 1000\n");
    assert_int_equal(chmod("lingers", 0755), 0);
    write_sweep("./lingers", "run.batch = 2, 4\n");
    dpbench_start(&started, NULL, "-c sweep.ini --json --output swept.json");
    for (double begin_s = now_s(); access("over", F_OK) != 0 && now_s() - begin_s < deadline_s;)
        usleep(1000);
    kill(started.pid, SIGINT);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 130);
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 1);
    assert_string_equal(json_text_at(command.json, "runs.0.status"), "ok");
    traces_expect_none(&before, "an interrupted launcher", 5.0);
}

/* SIGINT ends the cell under way; --resume runs the cells that are missing. */
TEST(test_interrupted_sweep)
{
    struct started started;
    struct command command;
    const char *const environment[] = {launched_mark(), NULL};
    write_sweep(templates[MPIRUN], "run.delay = constant(0.1s)\nrun.steps = 40\nrun.workers = 2\n");
    dpbench_start(&started, environment, "-c sweep.ini --output swept.json");
    launched_await_steps(2);
    kill(started.pid, SIGINT);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 130);
    launched_expect_none("SIGINT to a sweep", 5.0);
    dpbench_says(deadline_s, 2, WORDS("would start this program"),
                 "rerun swept.json --resume --output again.json");
    swept(0, "rerun swept.json --resume --trust");
}

/* ---- it is refused --------------------------------------------------------------------------- */

/* By mpirun and srun in turn; with DPB_ALL_CELLS by both (check-long). */
TEST(test_refused)
{
    static const struct {
        const char *arguments;
        const char *words[3];
    } rows[] = {
        {BASE "run.workers=2", {"run.workers = 2 and run.servers = 0 make 2 ranks", "started 3"}},
        {BASE "run.workers=1 run.learners=2 device.threads=2",
         {"times run.learners = 2", "started 3"}},
        {BASE "comm.name=ps_cpu run.workers=3 run.servers=1", {"make 4 ranks", "started 3"}},
        {BASE "run.workers=3 sweep.run.batch=2,4", {"run it without", "let sweep.launch = "}},
        {BASE "run.workers=3 run.bogus=1", {"unknown option 'bogus'"}},
        {"-c nowhere.ini", {"nowhere.ini: cannot be read"}},
        {BASE "run.workers=3 nothing", {"'nothing' is no setting"}},
        {BASE "run.workers=3 comm.hosts=1+2", {"comm 'shm' works within one machine"}},
    };
    for (launcher by = 0; by < N_LAUNCHERS; by++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct command command;
            if (i % N_LAUNCHERS != by && !getenv("DPB_ALL_CELLS"))
                continue;
            launched(&command, deadline_s, by, 3, "%s", rows[i].arguments);
            if (command.exit_code != 2 || launch_count_errors(command.err) != 1)
                fail_msg("%s, %s: exit %d\n%s", launcher_names[by], rows[i].arguments,
                         command.exit_code, command.err);
            expect_words(rows[i].arguments, command.err, rows[i].words);
            assert_null(launch_take_result());
        }
}

/* Variables that a shell has kept of an earlier job. */
TEST(test_stale_variables)
{
    struct started started;
    struct command command;
    dpbench_start(&started, WORDS("PMIX_NAMESPACE=gone.1", "PMIX_RANK=0"), "%s", BASE);
    command_finish(&started, &command, deadline_s);
    assert_int_not_equal(command.exit_code, 0);
    EXPECT_WORDS("stale", command.err, "PMIX_NAMESPACE = gone.1", "env -u PMIX_NAMESPACE");
}

/* Ranks that rerun results of different batches: a result's settings are numbers. */
TEST(test_other_result)
{
    static const char *const words[] = {"run.batch is '2' at rank 0", "and '3' at rank 1", NULL};
    struct started started;
    struct command command;
    dpbench_ends(&command, deadline_s, 0, BASE "run.workers=2");
    json_t *result = own_json(json_load_file(RESULT, 0, NULL));
    assert_non_null(result);
    assert_int_equal(
        json_object_set_new(json_at(result, "config.run.batch"), "value", json_integer(3)), 0);
    assert_int_equal(json_dump_file(result, "other.json", 0), 0);
    sandbox_write("reruns",
                  "#!/bin/sh\n[ \"$PMIX_RANK\" = 1 ] && set other.json || set " RESULT "\n"
                  "exec %s/dpbench rerun $1\n",
                  build_directory());
    assert_int_equal(chmod("reruns", 0755), 0);
    launched_start_program(&started, MPIRUN, 2, "./reruns");
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 2 || launch_count_errors(command.err) != 1)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    expect_words("another result", command.err, words);
    json_decref(launch_take_result());
}

/* A few of the faults: all of them take long (tests/long/test_launcher_faults.c). */
TEST(test_faults)
{
    for (launcher by = 0; by < N_LAUNCHERS; by++)
        launch_faults_run(by, false);
}

/* ---- */

static int setup(void **state)
{
    if (!realpath("conf/lenet_shm.ini", lenet_ini) || launchers_start(1) != 0)
        return 1;
    int code = faults_setup(state);
    sandbox_write("free.ini", "[run]\nbatch = 2\nsteps = 8\nwarmup_steps = 1\nsteady_limit_s = 0\n"
                              "[model]\nname = tiny\n[data]\nsamples = 64\n"
                              "[device]\nname = reference\nthreads = 1\n");
    return code != 0 ? code : mkdir("nothing", 0777);
}

static int teardown(void **state)
{
    launchers_stop();
    return sandbox_teardown(state);
}

TEST_MAIN(setup, teardown)
