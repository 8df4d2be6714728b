/* needs: alone */
/*
 * test_hosts_command.c - `dpbench hosts`: ranks are on the hosts that they are told of, links have
 * the rate that was asked for, all of it is gone however the program ends, and what it cannot do is
 * refused.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/network.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

enum { TRIES = 3 };

static const double deadline_s = 30;
static const char common[] = "-c /dev/null device.name=reference device.threads=1 model.name=tiny";

static void need_root(void)
{
    if (network_possible())
        return;
    print_message("no network namespaces here (root?)\n");
    skip();
}

/* dpbench hosts OPTIONS -- dpbench ARGUMENTS */
static void on_hosts(struct command *command, const char *options, const char *arguments)
{
    need_root();
    dpbench_ends(command, deadline_s, 0, "hosts %s -- %s/dpbench %s", options, build_directory(),
                 arguments);
}

/* ---- where ranks are ------------------------------------------------------------------------- */

static void expect_address(const json_t *result, int rank, int host)
{
    char path[48], address[32];
    snprintf(path, sizeof path, "ranks.%d.comm.address", rank);
    snprintf(address, sizeof address, "10.9.0.%d", host);
    assert_string_equal(json_text_at(result, path), address);
}

#define TRAIN                                                                                \
    "-c /dev/null --json run.results= run.steps=3 run.warmup_steps=0 run.steady_limit_s=0 "  \
    "run.batch=2 model.name=tiny data.name=synthetic data.samples=64 device.name=reference " \
    "device.threads=1 run.conform=no "

TEST(test_places)
{
    static const struct {
        const char *settings, *hosts;
        int n_machines, on[4]; /* hosts, by rank; 0: no such rank */
    } rows[] = {
        {"comm.name=ring_tcp run.workers=4", "4x1", 4, {1, 2, 3, 4}},
        {"comm.name=ps_cpu run.workers=4 run.servers=1", "0,1,2,3,0", 4, {0}},
        {"comm.name=ring_tcp run.workers=4 comm.hosts=0,1,0,1", "0,1,0,1", 2, {1, 2, 1, 2}},
        {"comm.name=hierarchical run.workers=2 run.learners=1 comm.hosts=1+1", "1+1", 2, {1, 2}},
        {"comm.name=ring_tcp run.workers=1", "", 1, {0}},
        {"comm.name=ring_tcp run.workers=2", "2x1", 2, {1, 2}},
        {"comm.name=ps_cpu run.workers=2 run.servers=3", "0,1,0,1,2", 3, {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        char line[512];
        snprintf(line, sizeof line, TRAIN "%s", rows[i].settings);
        on_hosts(&command, "4 --rate 1Gbit --slow 2=100Mbit", line);
        assert_string_equal(json_text_at(command.json, "config.comm.hosts.value"), rows[i].hosts);
        assert_int_equal(expect_number(&command, "world.machines"), rows[i].n_machines);
        for (int rank = 0; rank < 4 && rows[i].on[rank] > 0; rank++)
            expect_address(command.json, rank, rows[i].on[rank]);
        if (i > 0)
            continue;
        assert_string_equal(json_text_at(command.json, "config.comm.hosts.origin"), "hosts");
        assert_string_equal(json_text_at(command.json, "config.comm.interface.origin"), "hosts");
        assert_int_equal(expect_number(&command, "world.hosts.n"), 4);
        assert_int_equal(expect_number(&command, "world.hosts.rate_bytes_per_s"), 125000000);
        assert_int_equal(expect_number(&command, "world.hosts.slow.0.host"), 2);
        assert_int_equal(expect_number(&command, "world.hosts.dilation"), 1);
        const json_t *environment = json_at(command.json, "invocation.environment");
        assert_non_null(json_object_get(environment, "DPBENCH_DILATION"));
        assert_null(json_object_get(environment, "DPBENCH_HOSTS")); /* other processes each time */
    }
}

/* ---- rates ----------------------------------------------------------------------------------- */

/* Of a ring's buses, in MB/s: each host sends 6/4 of the message. */
static double ring_mb_per_s(const char *options)
{
    struct command command;
    char line[512];
    snprintf(
        line, sizeof line,
        "comm %s run.workers=4 comm.name=ring_tcp comm_test.sizes=512KiB comm_test.iterations=4 "
        "comm_test.codecs=no --json",
        common);
    on_hosts(&command, options, line);
    return expect_number(&command, "points.0.bus_gb_per_s") * 1e3;
}

/* Frames carry 1448 bytes of 1514; what a bucket of tbf has saved in the ring's pauses is more. A
 * busy machine is no slow link: it may be tried again. */
static void expect_rate(const char *options, double mb_per_s)
{
    double is = 0;
    for (int i = 0; i < TRIES && is < 0.6 * mb_per_s; i++) {
        is = ring_mb_per_s(options);
        print_message("%s: %.1f MB/s\n", options, is);
    }
    if (!(is > 0.6 * mb_per_s && is < 1.15 * mb_per_s))
        fail_msg("%s: %.1f MB/s, not %.1f", options, is, mb_per_s);
}

PLAIN_TEST(test_rates)
{
    expect_rate("4 --rate 300Mbit", 37.5);
    expect_rate("4 --rate 600Mbit --dilation 2 --slow 3=320Mbit", 20);
    /* Two hosts of 400 Mbit/s share 1/5 of 800. */
    expect_rate("4 --rate 400Mbit --uplink 5:1", 20);
    const double control = ring_mb_per_s("4 --rate 100Gbit");
    print_message("as good as unshaped: %.1f MB/s\n", control);
    assert_true(control > 1.15 * 37.5);
}

/* A ring of two sends a message to and fro; a kernel without netem delays nothing, and is
 * refused. */
TEST(test_latency)
{
    struct command command;
    need_root();
    dpbench(&command, deadline_s,
            "hosts 2 --rate 1Gbit --latency 10ms --dilation 2 -- %s/dpbench comm %s run.workers=2 "
            "comm.name=ring_tcp comm_test.sizes=4B comm_test.iterations=4 comm_test.codecs=no "
            "--json",
            build_directory(), common);
    if (command.exit_code == 2) {
        expect_part(command.err, "--latency: this kernel has no netem");
        return;
    }
    const double ms = expect_number(&command, "points.0.time_us.min") / 1e3;
    print_message("2 times 20 ms: %.1f ms\n", ms);
    assert_true(ms > 40 && ms < 60);
}

/* ---- ends ------------------------------------------------------------------------------------ */

TEST(test_exit_code)
{
    struct command command;
    need_root();
    dpbench_ends(&command, deadline_s, 7, "hosts 2 --rate 1Gbit -- /bin/sh -c exit\t7");
    dpbench_ends(&command, deadline_s, 128 + SIGKILL,
                 "hosts 2 --rate 1Gbit -- /bin/sh -c kill\t-9\t$$");
    dpbench_says(deadline_s, 127, WORDS("cannot run nosuch"), "hosts 2 --rate 1Gbit -- nosuch");
}

/* The namespaces of a running `dpbench hosts 2`: of both hosts and of the switch. */
static int holders_of(pid_t program, pid_t holders[8])
{
    char path[64];
    int n = 0, pid;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)program, (int)program);
    FILE *file = fopen(path, "re");
    while (file && n < 8 && fscanf(file, "%d", &pid) == 1)
        holders[n++] = pid;
    if (file)
        fclose(file);
    return n;
}

static void await_children(pid_t program, int n, pid_t children[8])
{
    const double until_s = now_s() + deadline_s;
    while (access("running", F_OK) != 0 || holders_of(program, children) != n) {
        if (now_s() > until_s)
            fail_msg("the command has not begun");
        usleep(10000);
    }
    unlink("running");
}

static int interfaces(void)
{
    struct dirent *entry;
    int n = 0;
    DIR *directory = opendir("/sys/class/net");
    assert_non_null(directory);
    while ((entry = readdir(directory)))
        n++;
    closedir(directory);
    return n;
}

enum { CHILDREN = 4 }; /* 2 hosts, the switch, the command */

static void start_script(struct started *started, pid_t children[8])
{
    need_root();
    sandbox_write("script", "trap 'exit 9' TERM\n>running\nwhile :; do sleep 0.01; done\n");
    dpbench_start(started, NULL, "hosts 2 --rate 1Gbit -- /bin/sh script");
    await_children(started->pid, CHILDREN, children);
}

TEST(test_signal)
{
    struct started started;
    struct command command;
    pid_t children[8];
    start_script(&started, children);
    kill(started.pid, SIGTERM);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 9);
}

TEST(test_killed)
{
    struct started started;
    struct command command;
    pid_t children[8];
    const int before = interfaces();
    start_script(&started, children);
    assert_int_equal(interfaces(), before);
    kill(started.pid, SIGKILL);
    command_finish(&started, &command, deadline_s);
    const double until_s = now_s() + deadline_s;
    for (int i = 0; i < CHILDREN; i++)
        while (waitpid(children[i], NULL, WNOHANG) == 0) { /* orphans are the test's: sandbox.h */
            if (now_s() > until_s)
                fail_msg("process %d has outlived its program", (int)children[i]);
            usleep(1000);
        }
    assert_int_equal(interfaces(), before);
}

/* ---- refusals -------------------------------------------------------------------------------- */

TEST(test_refusals)
{
    static const struct {
        const char *arguments, *word;
    } rows[] = {
        {"", "how many hosts?"},
        {"1 --rate 1Gbit -- true", "from 2 to 254"},
        {"2 -- true", "which links?"},
        {"2 --rate 1Gbit", "which command?"},
        {"2 --rate 1Gbit --", "which command?"},
        {"2 --rate fast -- true", "'fast' is no rate"},
        {"2 --rate 0Mbit -- true", "'0Mbit' is no rate"},
        {"2 --rate 1Gbit --latency 5 -- true", "'5' is no time"},
        {"3 --rate 1Gbit --uplink 2:1 -- true", "3 hosts have no halves"},
        {"4 --rate 1Gbit --uplink 2 -- true", "'2' is not of the form 2:1"},
        {"2 --rate 1Gbit --slow 3=1Mbit -- true", "a host from 1 to 2"},
        {"2 --rate 1Gbit --dilation 0.5 -- true", "from 1 to 10000"},
        {"2 --rate 1Gbit --dilation -- true", "--dilation needs a value"},
        {"2 --rate 1Gbit --burst 3 -- true", "unknown option '--burst'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i].word), "hosts %s", rows[i].arguments);
}

static void refuses_hosts(const char *words)
{
    dpbench_says(deadline_s, 2, WORDS(words), "check -c /dev/null run.steps=1 %s",
                 "device.name=reference model.name=tiny");
}

/* Jobs that the hosts do not fit, and hosts that are none. */
TEST(test_jobs_refused)
{
    static const struct {
        const char *settings, *word;
    } rows[] = {
        {"comm.name=ring_tcp run.workers=3", "run.workers = 3 do not divide by the 2 hosts"},
        {"comm.name=ring_tcp run.workers=3 comm.hosts=3x1", "makes 3 machines, and"},
        {"comm.name=shm run.workers=2", "works within one machine"},
    };
    need_root();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i].word),
                     "hosts 2 --rate 1Gbit -- %s/dpbench check -c /dev/null device.name=reference "
                     "model.name=tiny run.steps=1 %s",
                     build_directory(), rows[i].settings);
    char own[32];
    snprintf(own, sizeof own, "%d", (int)getpid()); /* it took the number of a host's */
    setenv("DPBENCH_HOSTS", "one:2", 1);
    refuses_hosts("DPBENCH_HOSTS = one:2 is no list");
    setenv("DPBENCH_HOSTS", "4194305", 1); /* more than the kernel numbers */
    refuses_hosts("process 4194305 holds no network of `dpbench hosts`: No such file or directory");
    setenv("DPBENCH_HOSTS", own, 1);
    refuses_hosts("holds no network of `dpbench hosts`; if");
    unsetenv("DPBENCH_HOSTS");
}

TEST_MAIN(sandbox_setup, sandbox_teardown)
