/*
 * test_network.c - strategies that leave a machine, between hosts with a network of their own: they
 * train the same, they move the bytes over it that their definitions say, and a link that goes down
 * in the middle of a bucket, or a rank that is killed, ends the job in time.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/network.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

enum { HOSTS = 4, TRIES = 3 };

static struct network network;

static int setup(void **state)
{
    if (sandbox_setup(state) != 0)
        return -1;
    sandbox_write("empty.ini", "; settings are on the command line\n");
    if (network_possible())
        network_up(&network, HOSTS, "200mbit");
    return 0;
}

static int teardown(void **state)
{
    network_down(&network);
    return sandbox_teardown(state);
}

/* dpbench on the hosts; without a network the test is skipped, and says so. */
static void start(struct started *started, const char *arguments)
{
    network_or_skip(&network);
    dpbench_start(started, network_environment(&network),
                  "-c empty.ini --json run.results= run.steady_limit_s=0 device.threads=1 "
                  "comm.name=ring_tcp comm.interface=10.9.0.0/24 %s",
                  arguments);
}

#define HIERARCHICAL "comm.name=hierarchical "
#define SERVERS "comm.name=ps_cpu "

/* ---- training ------------------------------------------------------------------------------ */

struct layout {
    const char *title, *settings;
    int n_ranks, hosts[4];
    int n_apart; /* ranks, the last ones, that are not on the network */
};

static const struct layout layouts[] = {
    {"a rank a host", "run.workers=3 comm.hosts=1+1+1", 3, {0, 1, 2}, 0},
    {"2 x 2, several streams", "run.workers=4 comm.hosts=2x2 comm.streams=3", 4, {0, 0, 1, 1}, 0},
    {"2 x 2, in turns", "run.workers=4 comm.hosts=0,1,0,1 comm.chunk=128", 4, {0, 1, 0, 1}, 0},
    {"hierarchical, 2 x 2", HIERARCHICAL "run.workers=4 comm.hosts=2x2", 4, {0, 0, 1, 1}, 0},
    {"hierarchical, unequal, in turns",
     HIERARCHICAL "run.workers=4 comm.hosts=0,1,2,0 comm.chunk=128 comm.streams=2",
     4,
     {0, 1, 2, 0},
     1},
};

/* Each rank reports what comm.interface, a network, came to on its host, if it sends anything. */
static void expect_interfaces(const struct command *command, const struct layout *layout)
{
    for (int rank = 0; rank < layout->n_ranks - layout->n_apart; rank++) {
        char path[48], address[32];
        snprintf(path, sizeof path, "ranks.%d.comm.interface", rank);
        assert_string_equal(json_text_at(command->json, path), "eth0");
        snprintf(path, sizeof path, "ranks.%d.comm.address", rank);
        snprintf(address, sizeof address, "10.9.0.%d", layout->hosts[rank] + 1);
        assert_string_equal(json_text_at(command->json, path), address);
    }
}

TEST(test_training)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct started started;
        struct command command;
        char line[512];
        snprintf(line, sizeof line,
                 "run.steps=5 run.warmup_steps=0 run.batch=2 run.prove=yes run.precision=fp64 "
                 "model.name=tiny data.name=synthetic data.samples=64 device.name=reference "
                 "comm.bucket=1000 %s",
                 layouts[i].settings);
        start(&started, line);
        command_finish(&started, &command, 60);
        if (command.exit_code != 0)
            fail_msg("%s: exit code %d: %s", layouts[i].title, command.exit_code, command.err);
        assert_string_equal(json_text_at(command.json, "verification.exchange"), "pass");
        assert_string_equal(json_text_at(command.json, "verification.replicas"), "pass");
        expect_interfaces(&command, &layouts[i]);
    }
}

/* ---- bytes on the wire --------------------------------------------------------------------- */

enum { LAYERS = 4, PARAMETERS = 1 << 16 };
static const double gradient_bytes = LAYERS * PARAMETERS * 4.0;

static double bytes_to_all(void)
{
    double bytes = 0;
    for (int host = 0; host < HOSTS; host++)
        bytes += network_bytes_to(host);
    return bytes;
}

/* What crosses the network in a run of so many steps, between all hosts. */
static double bytes_of_run(const char *settings, int steps)
{
    struct started started;
    struct command command;
    char line[512];
    double before = bytes_to_all();
    snprintf(line, sizeof line,
             "run.workers=4 run.warmup_steps=0 run.steps=%d comm.bucket=256KiB device.name=timed "
             "model.name=timed data.name=timed device.forward=1 device.backward=4 model.layers=%d "
             "model.parameters=%d %s",
             steps, LAYERS, PARAMETERS, settings);
    start(&started, line);
    command_finish(&started, &command, 60);
    if (command.exit_code != 0)
        fail_msg("%s: exit code %d: %s", settings, command.exit_code, command.err);
    return bytes_to_all() - before;
}

/* By a step, in sizes of the gradients; frames and acknowledgements are up to 10 % more. */
static void expect_on_wire(const char *settings, double expected)
{
    enum { FEW = 3, MANY = 33 }; /* what a start and its end send differs by kilobytes */
    double few = bytes_of_run(settings, FEW), many = bytes_of_run(settings, MANY);
    double moved = (many - few) / (MANY - FEW) / gradient_bytes;
    print_message("%s: %.3f times the gradients a step\n", settings, moved);
    if (moved < expected || moved > 1.1 * expected)
        fail_msg("%s: %.3f times the gradients cross the network in a step, not %.0f", settings,
                 moved, expected);
}

/* The ring that is told of no machine in common has its ranks as they come: here each is on another
 * machine than the one before. */
TEST(test_bytes_on_wire)
{
    expect_on_wire(HIERARCHICAL "comm.hosts=2x2", 2);
    expect_on_wire(HIERARCHICAL "comm.hosts=0,1,0,1", 2);
    expect_on_wire("comm.hosts=2x2", 3);
    expect_on_wire("comm.hosts=4x1", 6);
}

/* ---- faults -------------------------------------------------------------------------------- */

/* 32 MB of gradients in buckets of 8 MB, which take 0.3 s each on a link. */
#define LONG                                                                              \
    " run.timeout_s=2 run.seconds=60 comm.bucket=8MB device.name=timed model.name=timed " \
    "data.name=timed device.forward=5 device.backward=20 model.layers=4 model.parameters=2000000"

static void await_traffic(double bytes)
{
    double until_s = now_s() + 30, begun = network_bytes_to(1);
    while (network_bytes_to(1) - begun < bytes) {
        if (now_s() > until_s)
            fail_msg("no traffic between the hosts");
        usleep(10000);
    }
}

/* The first who waits says for what: for the network, or, in a machine, for who does. How long it
 * took until the job had ended. */
static double take_link_down(const char *title, const char *settings)
{
    static const char *const words[] = {"waited 2.", "(exchange ",    "bucket ", " bytes",
                                        "rank ",     "run.timeout_s", NULL};
    struct started started;
    struct command command;
    start(&started, settings);
    await_traffic(30e6);
    network_plug(&network, 1, false);
    double out_s = now_s();
    command_finish(&started, &command, 40);
    double took_s = now_s() - out_s;
    network_plug(&network, 1, true);
    if (command.exit_code != 1)
        fail_msg("%s: exit code %d, %.1f s after the link went down: %s", title, command.exit_code,
                 took_s, command.err);
    expect_words(title, faults_only_error(title, &command), words);
    if (!strstr(command.err, "(scatter-reduce)") && !strstr(command.err, "(all-gather)") &&
        !strstr(command.err, "the next rank in the ring to take its chunks") &&
        !strstr(command.err, "weights from the server") &&
        !strstr(command.err, "gradients of the peer") &&
        !strstr(command.err, "the peer's slice of the sum over all machines"))
        fail_msg("%s: no phase: %s", title, command.err);
    faults_expect_failed(title, &command);
    return took_s;
}

/* A machine with much else to do may be late with it: not time and again. */
static void expect_link_down(const char *title, const char *settings)
{
    double took_s = 2 + 5 + 1;
    for (int i = 0; i < TRIES && took_s > 2 + 5; i++)
        took_s = take_link_down(title, settings);
    if (took_s > 2 + 5)
        fail_msg("%s: the job ended %.1f s after the link went down", title, took_s);
}

TEST(test_link_down)
{
    expect_link_down("ring_tcp", "run.workers=2 comm.hosts=1+1" LONG);
    expect_link_down("hierarchical", HIERARCHICAL "run.workers=4 comm.hosts=2x2" LONG);
    expect_link_down("ps_cpu", SERVERS "run.workers=3 run.servers=1 comm.hosts=2x2" LONG);
}

/* One that others wait for by memory, and others by the network: `killed` of 4 ranks. */
static double take_killed(const char *title, int killed, const char *settings)
{
    char rank[16];
    const char *const words[] = {rank, "was killed by signal 9", NULL};
    struct started started;
    struct command command;
    pid_t ranks[4];
    snprintf(rank, sizeof rank, "rank %d", killed);
    start(&started, settings);
    faults_await_ranks(&started, ranks, 4);
    await_traffic(20e6);
    kill(ranks[killed], SIGKILL);
    double killed_s = now_s();
    command_finish(&started, &command, 40);
    double took_s = now_s() - killed_s;
    if (command.exit_code != 1)
        fail_msg("%s: exit code %d after a rank was killed: %s", title, command.exit_code,
                 command.err);
    expect_words(title, faults_only_error(title, &command), words);
    faults_expect_failed(title, &command);
    return took_s;
}

static void expect_killed(const char *title, int killed, const char *settings)
{
    double took_s = 5 + 1;
    for (int i = 0; i < TRIES && took_s > 5; i++)
        took_s = take_killed(title, killed, settings);
    if (took_s > 5)
        fail_msg("%s: the job ended %.1f s after a rank was killed", title, took_s);
}

TEST(test_killed)
{
    expect_killed("hierarchical", 1, HIERARCHICAL "run.workers=4 comm.hosts=2x2" LONG);
    expect_killed("ps_cpu", 3, SERVERS "run.workers=3 run.servers=1 comm.hosts=2x2" LONG);
}

/* Both ends are asked for an address in a network that is there on one of them only. */
TEST(test_no_interface)
{
    static const char *const words[] = {"comm.interface = 10.8.0.0/16", "eth0", "10.9.0.", NULL};
    struct started started;
    struct command command;
    start(&started, "run.workers=2 comm.hosts=1+1 run.steps=2 model.name=tiny data.name=synthetic "
                    "device.name=reference comm.interface=10.8.0.0/16");
    command_finish(&started, &command, 30);
    assert_int_equal(command.exit_code, 2);
    expect_words("no interface", faults_only_error("no interface", &command), words);
}

TEST_MAIN(setup, teardown)
