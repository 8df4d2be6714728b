/*
 * test_launcher_hosts.c - mpirun over several machines: hosts with a network and a name of their
 * own. The ranks train one model, by a ring, by sums within the machines first, by a library, or
 * with a server on the other machine. What is to cross the network does, by the count of the
 * cables. A rank that dies, a part that dies with its machine's link, or options that differ end
 * the job everywhere, named by host.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/launch_differences.h"
#include "lib/launch_faults.h"
#include "lib/network.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/training.h"
#include "machine/proc.h"

static const double most_s = 5.0, deadline_s = 60.0;
static struct network network;

/* "host2" is the second host: what mpirun calls in place of ssh goes there, and takes its name. */
static int setup(void **state)
{
    if (faults_setup(state) != 0 || !network_possible())
        return -1;
    network_up(&network, 2, NULL);
    sandbox_write("agent",
                  "#!/bin/sh\n"
                  "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n"
                  "case $1 in host1) pid=%d ;; *) pid=%d ;; esac\n"
                  "h=$1; shift\n"
                  "exec nsenter --net=/proc/$pid/ns/net unshare -u sh -c \"hostname $h; $*\"\n",
                  (int)network.keepers[0], (int)network.keepers[1]);
    return chmod("agent", 0755);
}

static int teardown(void **state)
{
    network_down(&network);
    return sandbox_teardown(state);
}

#define MPIRUN_LINE                                                          \
    "mpirun --allow-run-as-root --oversubscribe --bind-to none "             \
    "--mca plm_rsh_agent %s/agent --mca oob_tcp_if_include 10.9.0.0/24 "     \
    "--mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include 10.9.0.0/24 " \
    "--mca mpi_yield_when_idle 1 -H host1:2,host2:2 "

/* On the first host. */
static void start_line(struct started *started, const char *command)
{
    char line[4096], network_path[64];
    assert_true(snprintf(line, sizeof line, "hostname host1; exec %s", command) < (int)sizeof line);
    snprintf(network_path, sizeof network_path, "--net=/proc/%d/ns/net", (int)network.keepers[0]);
    const char *const words[] = {
        "/usr/bin/nsenter", network_path, "unshare", "-u", "sh", "-c", line, NULL};
    const char *const environment[] = {launched_mark(), NULL};
    command_start(started, words, environment);
}

/* By 4 processes, two on each host. */
static void start_program(struct started *started, const char *program)
{
    char line[4096], directory[1024];
    assert_non_null(getcwd(directory, sizeof directory));
    snprintf(line, sizeof line, MPIRUN_LINE "-np 4 %s", directory, program);
    start_line(started, line);
}

static void start(struct started *started, const char *arguments)
{
    char program[2048];
    snprintf(program, sizeof program, "%s/dpbench " LAUNCH_BASE "run.timeout_s=2 %s",
             build_directory(), arguments);
    start_program(started, program);
}

#define BY_TCP(strategy) "run.workers=4 comm.name=" strategy " comm.interface=10.9.0.0/24 "
#define TRAIN BY_TCP("ring_tcp")
#define MPI "run.workers=4 comm.name=mpi "
#define HIERARCHICAL BY_TCP("hierarchical")
#define ACROSS_BY_MPI "run.workers=4 comm.name=hierarchical comm.transport=mpi "
#define SERVED \
    "run.workers=3 run.servers=1 comm.name=ps_cpu comm.interface=10.9.0.0/24 comm.streams=2 "

static void expect_trained(const char *strategy)
{
    struct started started;
    struct command command;
    char arguments[256];
    snprintf(arguments, sizeof arguments, "%s run.prove=yes eval.every=10", strategy);
    start(&started, arguments);
    command_finish(&started, &command, deadline_s);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("%s: exit %d\n%s", strategy, command.exit_code, command.err);
    assert_true(json_number_at(result, "world.machines") == 2);
    assert_string_equal(json_text_at(result, "ranks.0.host"), "host1");
    assert_string_equal(json_text_at(result, "ranks.3.host"), "host2");
    assert_true(json_number_at(result, "ranks.1.machine") == 0);
    assert_true(json_number_at(result, "ranks.2.machine") == 1);
    assert_string_equal(json_text_at(result, "config.comm.hosts.value"), "2x2");
    assert_string_equal(json_text_at(result, "config.comm.hosts.origin"), "launcher");
    if (strstr(strategy, "10.9.0.0/24")) {
        assert_string_equal(json_text_at(result, "ranks.0.comm.address"), "10.9.0.1");
        assert_string_equal(json_text_at(result, "ranks.3.comm.address"), "10.9.0.2");
        assert_string_equal(json_text_at(result, "ranks.3.comm.interface"), "eth0");
    }
    assert_string_equal(json_text_at(result, "verification.pattern"), "pass");
    assert_string_equal(json_text_at(result, "verification.exchange"), "pass");
    assert_string_equal(json_text_at(result, "verification.replicas"), "pass");
    assert_int_equal(json_array_size(json_at(result, "loss")), 23);
}

TEST(test_trains)
{
    expect_trained(TRAIN);
    expect_trained(SERVED);
    expect_trained(HIERARCHICAL);
    expect_trained(HIERARCHICAL "run.comm_cores=1 comm.bucket=100 comm.chunk=64 comm.inbox=1KiB");
    if (have_plugin("comm_gloo")) {
        expect_trained(BY_TCP("gloo"));
        expect_trained(BY_TCP("gloo run.comm_cores=1"));
    }
    if (have_plugin("comm_mpi")) {
        expect_trained(MPI);
        expect_trained(MPI "run.comm_cores=1");
        expect_trained(ACROSS_BY_MPI);
        expect_trained(ACROSS_BY_MPI "run.comm_cores=1 comm.bucket=100");
    }
}

/* One command on the first host; the experiment's file is there alone. */
TEST(test_sweep)
{
    struct started started;
    struct command command;
    char line[2048], directory[1024];
    assert_non_null(getcwd(directory, sizeof directory));
    sandbox_write("sweep.ini", "[run]\nbatch = 2\nsteps = 8\nwarmup_steps = 1\nsteady_limit_s = 0\n"
                               "[model]\nname = tiny\n[data]\nsamples = 64\n"
                               "[device]\nname = reference\nthreads = 1\n"
                               "[comm]\nname = ring_tcp\ninterface = 10.9.0.0/24\n"
                               "[sweep]\nrun.workers = 2, 4\nrepeats = 1\nretry_disturbed = 0\n"
                               "machines = 2\n");
    snprintf(line, sizeof line,
             "%s/dpbench -c sweep.ini --output " LAUNCH_RESULT " 'sweep.launch=" MPIRUN_LINE
             "--map-by ppr:{per_machine}:node -np {ranks}'",
             build_directory(), directory);
    start_line(&started, line);
    command_finish(&started, &command, deadline_s);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    for (size_t i = 0; i < 2; i++) {
        const json_t *run = json_array_get(json_at(result, "runs"), i);
        const int last = (int)json_number_at(run, "world.workers") - 1;
        char path[32];
        snprintf(path, sizeof path, "ranks.%d.host", last);
        assert_string_equal(json_text_at(run, "ranks.0.host"), "host1");
        assert_string_equal(json_text_at(run, path), "host2");
        assert_true(json_number_at(run, "world.machines") == 2);
        assert_string_equal(json_text_at(run, "config.comm.hosts.value"),
                            last == 1 ? "2x1" : "2x2");
    }
}

TEST(test_links)
{
    struct started started;
    struct command command;
    char program[2048];
    network_shape(&network, "rate 200mbit burst 64k limit 64m");
    snprintf(program, sizeof program,
             "%s/dpbench links network comm.interface=10.9.0.0/24 comm_test.seconds=50ms "
             "comm_test.max_bytes=1MiB --output " LAUNCH_RESULT,
             build_directory());
    start_program(&started, program);
    command_finish(&started, &command, deadline_s);
    network_unshape(&network);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    assert_string_equal(json_text_at(result, "network.launcher"), "mpirun");
    assert_string_equal(json_text_at(result, "network.machines.1.host"), "host2");
    assert_true(json_number_at(result, "network.machines.1.rank") == 2);
    assert_int_equal(json_array_size(json_at(result, "network.ways")), 2);
    for (int way = 0; way < 2; way++) {
        char path[64];
        snprintf(path, sizeof path, "network.ways.%d.rate.5.bytes_per_s.median", way);
        assert_true(json_number_at(result, path) > 0.7 * 25e6);
        assert_true(json_number_at(result, path) < 1.1 * 25e6);
    }
}

/* What crosses the network in a run of so many steps, between both hosts, and the size of its
 * gradients. */
static double bytes_of_run(const char *strategy, int steps, double *gradient_bytes)
{
    struct started started;
    struct command command;
    char arguments[256];
    double before = network_bytes_to(0) + network_bytes_to(1);
    snprintf(arguments, sizeof arguments,
             "%s model.name=lenet run.batch=1 run.warmup_steps=0 run.steps=%d comm.bucket=256KiB "
             "eval.every=0",
             strategy, steps);
    start(&started, arguments);
    command_finish(&started, &command, deadline_s);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("%s: exit %d\n%s", strategy, command.exit_code, command.err);
    *gradient_bytes = 4 * json_number_at(result, "model.parameters");
    return network_bytes_to(0) + network_bytes_to(1) - before;
}

/* By a step, in sizes of the gradients; frames and acknowledgements are up to 10 % more. */
static void expect_on_wire(const char *strategy, double expected)
{
    enum { FEW = 3, MANY = 13 };
    double gradients, few = bytes_of_run(strategy, FEW, &gradients),
                      many = bytes_of_run(strategy, MANY, &gradients);
    double moved = (many - few) / (MANY - FEW) / gradients;
    print_message("%s: %.3f times the gradients a step\n", strategy, moved);
    if (moved < expected || moved > 1.1 * expected)
        fail_msg("%s: %.3f times the gradients cross the network in a step, not %.0f", strategy,
                 moved, expected);
}

TEST(test_bytes_on_wire)
{
    expect_on_wire(HIERARCHICAL, 2);
    expect_on_wire(TRAIN, 3);
    if (have_plugin("comm_mpi"))
        expect_on_wire(ACROSS_BY_MPI, 2);
}

TEST(test_refused)
{
    static const struct {
        const char *arguments, *words[3];
    } rows[] = {
        {"run.workers=4", {"comm 'shm' works within one machine", "comm.hosts = 2x2"}},
        {TRAIN "run.workers=2", {"make 2 ranks, but mpirun has started 4"}},
        {TRAIN "comm.hosts=4", {"puts ranks 0 and 2 on one machine", "host1 and host2"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        start(&started, rows[i].arguments);
        command_finish(&started, &command, deadline_s);
        if (command.exit_code != 2 || launch_count_errors(command.err) != 1)
            fail_msg("%s: exit %d\n%s", rows[i].arguments, command.exit_code, command.err);
        expect_words(rows[i].arguments, command.err, rows[i].words);
    }
}

TEST(test_differences)
{
    launch_differences_run(start_program, TRAIN, "host1", "host2");
}

static void unplug(void)
{
    network_plug(&network, 1, false);
}

static bool has_ended(pid_t pid)
{
    struct dpb_proc proc;
    return !dpb_proc_read("", (int32_t)pid, &proc) || proc.state == 'Z';
}

/* `fault` disturbs a job that would last; what it says and when it ends. */
static void disturb(const char *title, const char *strategy, void (*fault)(void), double timeout_s,
                    const char *const *words)
{
    struct started started;
    struct command command;
    char arguments[256];
    snprintf(arguments, sizeof arguments, "%s run.seconds=60 eval.every=0", strategy);
    start(&started, arguments);
    launched_await_steps(4);
    double began_s = now_s();
    fault();
    while (access(LAUNCH_RESULT, F_OK) != 0 && now_s() < began_s + timeout_s + most_s)
        usleep(10000);
    double took_s = now_s() - began_s;
    /* mpirun would wait for its daemon at the other end of a link that is down: the head ends it
     * (party.c). That daemon has the test's pipe until it learns so. */
    while (fault == unplug && !has_ended(started.pid))
        if (usleep(10000), now_s() > began_s + timeout_s + 2 * most_s)
            fail_msg("%s: mpirun waits for a machine that is cut off", title);
    network_plug(&network, 1, true);
    command_finish(&started, &command, began_s - started.began_s + timeout_s + 6 * most_s);
    if (command.exit_code == 0 || command.late || took_s > timeout_s + most_s ||
        launch_count_errors(command.err) != 1)
        fail_msg("%s: exit %d after %.1f s\n%s", title, command.exit_code, took_s, command.err);
    expect_words(title, command.err, words);
    json_t *result = own_json(launch_take_result());
    if (strcmp(json_text_at(result, "status"), "failed") != 0 ||
        json_array_size(json_at(result, "loss")) == 0)
        fail_msg("%s: the result has status '%s' and %zu steps", title,
                 json_text_at(result, "status"), json_array_size(json_at(result, "loss")));
    launched_expect_none(title, 5.0);
}

static void kill_rank(void)
{
    kill(launched_process(3, false), SIGKILL);
}

static void kill_part(void)
{
    kill(launched_process(2, true), SIGKILL);
}

static void stop_rank(void)
{
    kill(launched_process(3, false), SIGSTOP);
}

static void stop_part(void)
{
    kill(launched_process(2, true), SIGSTOP);
}

TEST(test_faults)
{
    const char *const killed[] = {"error: rank 3 (host2, pid ", "was killed by signal 9", NULL};
    const char *const parted[] = {"error: rank 2 (host2", "its launcher (host2", NULL};
    const char *const stopped[] = {"waited 2", "rank 3 (", "is stopped (SIGSTOP)", NULL};
    const char *const silent[] = {"rank 2 (host2", "its launcher (host2", "not been heard of",
                                  NULL};
    const char *const down[] = {"error: rank ", "host2 was last heard ", " s ago, then in phase",
                                "acknowledges nothing", NULL};
    disturb("a rank on the other host is killed", TRAIN, kill_rank, 0, killed);
    disturb("a launcher on the other host is killed", TRAIN, kill_part, 0, parted);
    disturb("a rank on the other host is stopped", TRAIN, stop_rank, 2, stopped);
    disturb("a launcher on the other host is stopped", TRAIN, stop_part, 3, silent);
    disturb("the link goes down", TRAIN, unplug, 2, down);
    disturb("the server is killed", SERVED, kill_rank, 0, killed);
    disturb("the link to the server goes down", SERVED, unplug, 2, down);
    disturb("hierarchical: a rank on the other host is killed", HIERARCHICAL, kill_rank, 0, killed);
    disturb("hierarchical: a launcher on the other host is killed", HIERARCHICAL, kill_part, 0,
            parted);
    disturb("hierarchical: the link goes down", HIERARCHICAL, unplug, 2, down);
    if (have_plugin("comm_gloo")) {
        disturb("gloo: a rank on the other host is killed", BY_TCP("gloo"), kill_rank, 0, killed);
        disturb("gloo: the link goes down", BY_TCP("gloo"), unplug, 2, down);
    }
    if (have_plugin("comm_mpi")) {
        disturb("mpi: a rank on the other host is killed", MPI, kill_rank, 0, killed);
        disturb("mpi: the link goes down", MPI, unplug, 2, down);
        disturb("hierarchical by MPI: a rank on the other host is killed", ACROSS_BY_MPI, kill_rank,
                0, killed);
        disturb("hierarchical by MPI: the link goes down", ACROSS_BY_MPI, unplug, 2, down);
    }
}

TEST_MAIN(setup, teardown)
