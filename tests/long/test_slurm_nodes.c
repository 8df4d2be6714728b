/*
 * test_slurm_nodes.c - srun over two nodes: jobs on several machines train the same, and a rank or
 * a launcher of the other node that dies or stops ends the job on both.
 */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/launch_differences.h"
#include "lib/launch_faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"
#include "lib/training.h"

static const double deadline_s = 60.0, most_s = 5.0;

static char trace_reader[PATH_MAX];

static void expect_trained(const char *strategy)
{
    struct command command;
    launched(&command, deadline_s, SRUN, 4, LAUNCH_BASE "run.prove=yes %s", strategy);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("%s: exit %d\n%s", strategy, command.exit_code, command.err);
    assert_true(json_number_at(result, "world.machines") == 2);
    assert_true(json_number_at(result, "ranks.1.machine") == 0);
    assert_true(json_number_at(result, "ranks.2.machine") == 1);
    assert_string_equal(json_text_at(result, "config.comm.hosts.value"), "2x2");
    assert_string_equal(json_text_at(result, "verification.pattern"), "pass");
    assert_string_equal(json_text_at(result, "verification.exchange"), "pass");
    assert_string_equal(json_text_at(result, "verification.replicas"), "pass");
}

TEST(test_trains)
{
    expect_trained("run.workers=4 comm.name=ring_tcp comm.interface=lo");
    if (have_plugin("comm_gloo"))
        expect_trained("run.workers=4 comm.name=gloo comm.interface=lo");
    expect_trained("run.workers=4 comm.name=hierarchical comm.interface=lo");
    if (have_plugin("comm_mpi")) {
        expect_trained("run.workers=4 comm.name=mpi");
        expect_trained("run.workers=4 comm.name=hierarchical comm.transport=mpi");
    }
}

/* The clock of the second node is AHEAD_S ahead. A trace has the difference, within the error that
 * the trace states; on one clock, all ranks work on a bucket within a step of each of them. */
TEST(test_trace)
{
    enum { AHEAD_S = 5000 };
    char program[4096];
    struct started started;
    struct command command;
    json_error_t error;
    sandbox_write("ahead",
                  "#!/bin/sh\n"
                  "[ \"$SLURMD_NODENAME\" = n2 ] || exec \"$@\"\n"
                  "exec unshare -T --fork --kill-child --monotonic %d \"$@\"\n",
                  AHEAD_S);
    assert_int_equal(chmod("ahead", 0755), 0);
    snprintf(program, sizeof program,
             "./ahead %s/dpbench " LAUNCH_BASE "run.workers=4 run.trace=t.json run.trace_steps=50 "
             "comm.name=ring_tcp comm.interface=lo comm.bucket=2000",
             build_directory());
    launched_start_program(&started, SRUN, 4, program);
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 0)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    json_t *trace = own_json(json_load_file("t.json", 0, &error));
    const double offset_ns = json_number_at(trace, "otherData.machines.1.offset_ns");
    const double error_ns = json_number_at(trace, "otherData.machines.1.error_ns");
    print_message("offset %.0f ns, %.0f off, error %.0f\n", offset_ns, offset_ns + AHEAD_S * 1e9,
                  error_ns);
    assert_true(error_ns > 0 && fabs(offset_ns + AHEAD_S * 1e9) <= error_ns);
    assert_true(json_number_at(trace, "otherData.machines.0.error_ns") == 0);
    command_run(&command, deadline_s,
                (const char *[]){trace_reader, "t.json", LAUNCH_RESULT, "all", NULL}, NULL);
    if (command.exit_code != 0)
        fail_msg("%s", command.err);
    json_decref(launch_take_result());
}

/* One command beside Slurm. */
TEST(test_sweep)
{
    struct command command;
    sandbox_write(
        "sweep.ini",
        "[run]\nbatch = 2\nsteps = 8\nwarmup_steps = 1\nsteady_limit_s = 0\n"
        "[model]\nname = tiny\n[data]\nsamples = 64\n"
        "[device]\nname = reference\nthreads = 1\n"
        "[comm]\nname = ring_tcp\ninterface = lo\n"
        "[sweep]\nrun.workers = 2, 4\nrepeats = 1\nretry_disturbed = 0\nmachines = 2\n"
        "launch = srun --quiet --overcommit --kill-on-bad-exit=1 --mpi=pmix -N {machines} "
        "-n {ranks} --ntasks-per-node={per_machine}\n");
    dpbench_ends(&command, deadline_s, 0, "-c sweep.ini --json --output " LAUNCH_RESULT);
    for (size_t i = 0; i < 2; i++) {
        const json_t *run = json_array_get(json_at(command.json, "runs"), i);
        assert_string_equal(json_text_at(run, "status"), "ok");
        assert_string_equal(json_text_at(run, "world.launcher"), "srun");
        assert_true(json_number_at(run, "world.machines") == 2);
    }
    json_decref(launch_take_result());
}

TEST(test_refused)
{
    struct command command;
    launched(&command, deadline_s, SRUN, 4, LAUNCH_BASE "run.workers=4");
    assert_int_equal(command.exit_code, 2);
    assert_int_equal(launch_count_errors(command.err), 1);
    EXPECT_WORDS("shm", command.err, "comm 'shm' works within one machine", "comm.hosts = 2x2");
}

static void expect_way(const json_t *way, int from, int to)
{
    const double latency_s = json_number_at(way, "latency_s.median");
    const double bytes_per_s = json_number_at(way, "rate.5.bytes_per_s.median");
    assert_true(json_number_at(way, "from") == from && json_number_at(way, "to") == to);
    assert_true(json_number_at(way, "rate.5.bytes") == 1 << 20);
    assert_true(latency_s > 1e-6 && latency_s < 0.05);
    assert_true(bytes_per_s > 1e7 && bytes_per_s < 1e12);
}

TEST(test_links)
{
    struct command command;
    char host[HOST_NAME_MAX + 1] = "";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    launched(&command, deadline_s, SRUN, 4,
             "links network comm.interface=lo comm_test.seconds=50ms comm_test.max_bytes=1MiB "
             "--output " LAUNCH_RESULT);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    assert_string_equal(json_text_at(result, "status"), "ok");
    assert_string_equal(json_text_at(result, "network.launcher"), "srun");
    assert_int_equal(json_array_size(json_at(result, "network.machines")), 2);
    assert_true(json_number_at(result, "network.machines.1.rank") == 2);
    assert_string_equal(json_text_at(result, "network.machines.0.host"), host);
    assert_string_equal(json_text_at(result, "network.machines.1.host"), host);
    assert_int_equal(json_array_size(json_at(result, "network.ways")), 2);
    expect_way(json_at(result, "network.ways.0"), 0, 1);
    expect_way(json_at(result, "network.ways.1"), 1, 0);
}

/* The pair takes more than 20 s; the signal comes in the first seconds. */
TEST(test_links_faults)
{
    static const struct {
        const char *title;
        int rank, signal_number;
        bool part_launcher;
        const char *status;
        const char *words[3];
    } rows[] = {
        {.title = "links: the other node's rank is killed",
         .rank = 1,
         .signal_number = SIGKILL,
         .status = "failed",
         .words = {"error: rank 1 (n2, pid ", "was killed by signal 9"}},
        {.title = "links: the other node's launcher is killed",
         .rank = 1,
         .signal_number = SIGKILL,
         .part_launcher = true,
         .status = "failed",
         .words = {"error: rank 1 (n2", "its launcher (n2"}},
        {.title = "links: the other node's launcher is interrupted",
         .rank = 1,
         .signal_number = SIGINT,
         .part_launcher = true,
         .status = "interrupted"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        launched_start(
            &started, SRUN, 2,
            "links network comm.interface=lo comm_test.seconds=5s "
            "comm_test.min_bytes=64KiB comm_test.max_bytes=64KiB --output " LAUNCH_RESULT);
        while (!launched_has_begun(0) || !launched_has_begun(1)) {
            assert_true(now_s() < started.began_s + deadline_s);
            usleep(5000);
        }
        sleep(1);
        const double began_s = now_s();
        kill(launched_process(rows[i].rank, rows[i].part_launcher), rows[i].signal_number);
        command_finish(&started, &command, began_s - started.began_s + 3 * most_s);
        const double took_s = now_s() - began_s;
        if (command.exit_code == 0 || command.late || took_s > most_s ||
            launch_count_errors(command.err) != (rows[i].words[0] ? 1 : 0))
            fail_msg("%s: exit %d after %.1f s\n%s", rows[i].title, command.exit_code, took_s,
                     command.err);
        expect_words(rows[i].title, command.err, rows[i].words);
        json_t *result = own_json(launch_take_result());
        assert_string_equal(json_text_at(result, "status"), rows[i].status);
        assert_int_equal(json_array_size(json_at(result, "network.ways")), 0);
        launched_expect_none(rows[i].title, 2.0);
    }
}

static void start_program(struct started *started, const char *program)
{
    launched_start_program(started, SRUN, 4, program);
}

TEST(test_differences)
{
    launch_differences_run(start_program, "run.workers=4 comm.name=ring_tcp comm.interface=lo",
                           "n1", "n2");
}

TEST(test_faults)
{
    static const struct {
        const char *title;
        int rank, signal_number;
        bool part_launcher;
        double timeout_s;
        const char *words[4];
        bool mpi;
    } rows[] = {
        {.title = "a rank of the other node is killed",
         .rank = 3,
         .signal_number = SIGKILL,
         .words = {"error: rank 3 (n2, pid ", "was killed by signal 9"}},
        {.title = "a launcher of the other node is killed",
         .rank = 2,
         .signal_number = SIGKILL,
         .part_launcher = true,
         .words = {"error: rank 2 (n2", "its launcher (n2"}},
        {.title = "a rank of the other node is stopped",
         .rank = 3,
         .signal_number = SIGSTOP,
         .timeout_s = 2,
         .words = {"error: rank ", "waited 2", "rank 3"}},
        {.title = "rank 0 is killed",
         .rank = 0,
         .signal_number = SIGKILL,
         .words = {"error: rank 0 (n1, pid ", "was killed by signal 9"}},
        {.title = "mpi: a rank of the other node is killed",
         .rank = 3,
         .signal_number = SIGKILL,
         .mpi = true,
         .words = {"error: rank 3 (n2, pid ", "was killed by signal 9"}},
        {.title = "mpi: a rank of the other node is stopped",
         .rank = 3,
         .signal_number = SIGSTOP,
         .timeout_s = 2,
         .mpi = true,
         .words = {"error: rank ", "waited 2", "rank 3"}},
        {.title = "mpi: a launcher of the other node is killed",
         .rank = 2,
         .signal_number = SIGKILL,
         .part_launcher = true,
         .mpi = true,
         .words = {"error: rank 2 (n2", "its launcher (n2"}},
        {.title = "mpi: rank 0 is killed",
         .rank = 0,
         .signal_number = SIGKILL,
         .mpi = true,
         .words = {"error: rank 0 (n1, pid ", "was killed by signal 9"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        if (rows[i].mpi && !have_plugin("comm_mpi"))
            continue;
        launched_start(&started, SRUN, 4,
                       LAUNCH_BASE "run.workers=4 %s run.seconds=60 run.timeout_s=%g",
                       rows[i].mpi ? "comm.name=mpi" : "comm.name=ring_tcp comm.interface=lo",
                       rows[i].timeout_s > 0 ? rows[i].timeout_s : 20.0);
        launched_await_steps(4);
        kill(launched_process(rows[i].rank, rows[i].part_launcher), rows[i].signal_number);
        double began_s = now_s();
        command_finish(&started, &command,
                       began_s - started.began_s + rows[i].timeout_s + 3 * most_s);
        double took_s = now_s() - began_s;
        if (command.exit_code == 0 || command.late || took_s > rows[i].timeout_s + most_s ||
            launch_count_errors(command.err) != 1)
            fail_msg("%s: exit %d after %.1f s\n%s", rows[i].title, command.exit_code, took_s,
                     command.err);
        expect_words(rows[i].title, command.err, rows[i].words);
        json_t *result = own_json(launch_take_result());
        assert_string_equal(json_text_at(result, "status"), "failed");
        assert_true(json_array_size(json_at(result, "loss")) > 0);
        launched_expect_none(rows[i].title, 2.0);
    }
}

static int setup(void **state)
{
    if (!realpath("tests/lib/trace_reader.py", trace_reader))
        fail_msg("tests/lib/trace_reader.py is not there");
    int code = launchers_start(2);
    /* Both nodes have one /dev/shm, where MPI's ranks of the same number would meet. */
    setenv("OMPI_MCA_pml", "ob1", 1);
    setenv("OMPI_MCA_btl", "tcp,self", 1);
    setenv("OMPI_MCA_btl_tcp_if_include", "lo", 1);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    return code != 0 ? code : faults_setup(state);
}

static int teardown(void **state)
{
    launchers_stop();
    return sandbox_teardown(state);
}

TEST_MAIN(setup, teardown)
