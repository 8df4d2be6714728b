/*
 * test_links_network.c - `dpbench links network` between hosts of different links: each way has the
 * rate of its sender's link, and the slow sender is named. `dpbench predict --links` takes the
 * slowest.
 */
#include <math.h>
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

enum { HOSTS = 3 };

static const double deadline_s = 100;
static struct network network;
/* Mbit/s, of what a host sends; what its bucket holds (burst) is sent at once. */
static const int rates[HOSTS] = {200, 200, 20};
static const int burst_bytes = 16 << 10;

static int setup(void **state)
{
    if (sandbox_setup(state) != 0)
        return -1;
    if (!network_possible())
        return 0;
    network_up(&network, HOSTS, NULL);
    for (int host = 0; host < HOSTS; host++) {
        char shape[64];
        snprintf(shape, sizeof shape, "rate %dmbit burst %d limit 64m", rates[host], burst_bytes);
        network_shape_host(&network, host, shape);
    }
    return 0;
}

static int teardown(void **state)
{
    network_down(&network);
    return sandbox_teardown(state);
}

static void start(struct started *started, const char *settings)
{
    network_or_skip(&network);
    dpbench_start(started, network_environment(&network),
                  "links network run.workers=3 comm.hosts=1+1+1 comm.interface=10.9.0.0/24 %s",
                  settings);
}

/* A frame of Ethernet carries 1448 bytes of 1514, as tc counts them; 1 MiB takes the bucket for
 * nothing. */
static double payload_bytes_per_s(int host, double message_bytes)
{
    return rates[host] * 1e6 / 8 * 1448 / 1514 / (1 - burst_bytes / message_bytes);
}

TEST(test_ways)
{
    const double largest = 1 << 20;
    struct started started;
    struct command command;
    start(&started, "comm_test.seconds=50ms comm_test.max_bytes=1MiB --output net.json");
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 0)
        fail_msg("exit %d: %s", command.exit_code, command.err);
    expect_line(command.out, "^  2: .*, interface eth0$");
    expect_line(command.out, "^ +latency us, to +0 +1 +2$");
    expect_line(command.out, "^ +2 +0\\.0[0-9]+ +0\\.0[0-9]+ +-$");
    expect_line(command.out,
                "^  slow: machine 2 \\(.*\\) sends 0\\.0[0-9.]+ Gbit/s .* the others 0");
    json_t *net = own_json(json_load_file("net.json", 0, NULL));
    assert_non_null(net);
    assert_string_equal(json_text_at(net, "status"), "ok");
    assert_int_equal(json_array_size(json_at(net, "network.machines")), HOSTS);
    const json_t *ways = json_at(net, "network.ways"), *way;
    assert_int_equal(json_array_size(json_at(net, "network.slow")), 1);
    assert_true(json_number_at(net, "network.slow.0.bytes_per_s.low") <
                payload_bytes_per_s(2, largest));
    size_t i;
    assert_int_equal(json_array_size(ways), HOSTS * (HOSTS - 1));
    json_array_foreach(ways, i, way)
    {
        const int from = (int)json_number_at(way, "from");
        const double should = payload_bytes_per_s(from, largest);
        const double is = json_number_at(way, "rate.5.bytes_per_s.median");
        const double latency_s = json_number_at(way, "latency_s.median");
        if (!(is > 0.7 * should && is < 1.1 * should))
            fail_msg("from %d: %.0f bytes/s, not %.0f", from, is, should);
        assert_true(latency_s > 1e-6 && latency_s < 0.05);
        assert_true(json_number_at(way, "rate.5.bytes") == largest);
    }
}

/* As if the slowest way had been given. */
TEST(test_predicts)
{
    struct command command;
    if (network.n == 0)
        skip();
    dpbench_ends(&command, deadline_s, 0,
                 "-c /dev/null run.workers=1 run.steps=20 run.steady_limit_s=0 run.results= "
                 "model.name=lenet device.name=reference run.batch=1 --output one.json");
    dpbench_ends(&command, deadline_s, 0,
                 "predict one.json --links net.json --link 20Mbit,100us --strategies ring_tcp "
                 "--workers 3 --json");
    assert_string_equal(json_text_at(command.json, "links.0.source"), "measured");
    assert_string_equal(json_text_at(command.json, "links.1.source"), "data sheet");
    const double slowest = payload_bytes_per_s(2, 1 << 20);
    const double taken = expect_number(&command, "links.0.bytes_per_s");
    const double ratio =
        expect_number(&command, "rows.0.step_ns") / expect_number(&command, "rows.1.step_ns");
    assert_true(taken > 0.7 * slowest && taken < 1.1 * slowest);
    if (!(ratio > 0.85 && ratio < 1.4))
        fail_msg("a step takes %.3f times that of the link as given", ratio);
}

/* The document has what was measured until then. */
TEST(test_interrupted)
{
    struct started started;
    pid_t ranks[HOSTS];
    struct command command;
    start(&started, "comm_test.seconds=1s comm_test.min_bytes=64KiB comm_test.max_bytes=64KiB "
                    "--json");
    faults_await_ranks(&started, ranks, HOSTS);
    usleep(1000000);
    kill(started.pid, SIGINT);
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 130)
        fail_msg("exit %d: %s", command.exit_code, command.err);
    assert_string_equal(json_text_at(command.json, "status"), "interrupted");
    assert_true(json_array_size(json_at(command.json, "network.ways")) < 6);
    assert_true(json_is_null(json_at(command.json, "network.slow")));
}

/* A pair takes more than 20 s; the signal comes in the first one's. */
TEST(test_interrupted_pair)
{
    struct started started;
    pid_t ranks[HOSTS];
    struct command command;
    start(&started, "comm_test.seconds=5s comm_test.min_bytes=64KiB comm_test.max_bytes=64KiB "
                    "--json");
    faults_await_ranks(&started, ranks, HOSTS);
    usleep(1000000);
    kill(started.pid, SIGINT);
    const double began_s = now_s();
    command_finish(&started, &command, deadline_s);
    const double took_s = now_s() - began_s;
    if (command.exit_code != 130 || took_s > 5)
        fail_msg("exit %d after %.1f s: %s", command.exit_code, took_s, command.err);
    assert_string_equal(json_text_at(command.json, "status"), "interrupted");
    assert_int_equal(json_array_size(json_at(command.json, "network.ways")), 0);
}

TEST(test_refusals)
{
    static const struct {
        const char *arguments, *word;
    } rows[] = {
        {"network", "on one machine"},
        {"network run.workers=2", "on one machine"},
        {"network comm.hosts=1+1 run.workers=2 comm_test.iterations=4", "comm_test.iterations"},
        {"network comm.hosts=1+1 run.workers=2 comm_test.max_bytes=1", "comm_test.max_bytes"},
        {"network comm.hosts=1+1 run.workers=2 run.monitor=1s", "`dpbench links network` has none"},
        {"network comm.hosts=1+1 run.workers=2 sweep.run.batch=1,2", "[sweep]"},
        {"network comm.hosts=1+1 run.workers=2 comm.interface=nosuch0 --output wrong.json",
         "nosuch0 is no interface"}, /* the ranks find out */
        {"network comm.name=ring_verbs", "pairs over other transports are not built"},
        {"network comm.name=hierarchical comm.transport=verbs", "comm.transport = verbs: "},
        {"network memory", "'memory'"},
        {"memory network", "'network'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i].word), "links %s", rows[i].arguments);
    assert_int_not_equal(access("wrong.json", F_OK), 0); /* wrong input leaves no file */
}

TEST_MAIN(setup, teardown)
