/* needs: alone */
/*
 * test_slow_host.c - `dpbench links network` between four hosts of 1 Gbit/s: one that sends, or
 * receives, at 100 Mbit/s is named with its direction and its rate in 20 of 20 tries. In 20 tries
 * without such a host nothing is named.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/command.h"
#include "lib/network.h"
#include "lib/sandbox.h"
#include "lib/test.h"

enum { HOSTS = 4, TRIES = 20 };

static const double deadline_s = 60;
static const char full[] = "rate 1gbit burst 256k latency 50ms";
static const char slow[] = "rate 100mbit burst 64k latency 50ms";
/* A frame of Ethernet carries 1448 bytes of 1514, as tc counts them. */
static const double slow_bytes_per_s = 100e6 / 8 * 1448 / 1514;
static struct network network;

static int setup(void **state)
{
    if (sandbox_setup(state) != 0)
        return -1;
    if (network_possible())
        network_up(&network, HOSTS, NULL);
    for (int host = 0; host < network.n; host++)
        network_shape_host(&network, host, full);
    return 0;
}

static int teardown(void **state)
{
    network_down(&network);
    return sandbox_teardown(state);
}

/* What the command names; @owned by the test. */
static const json_t *named(struct command *command)
{
    struct started started;
    dpbench_start(&started, network_environment(&network),
                  "links network run.workers=4 comm.hosts=1+1+1+1 comm.interface=10.9.0.0/24 "
                  "comm_test.seconds=100ms comm_test.min_bytes=1MiB comm_test.max_bytes=4MiB "
                  "--json");
    command_finish(&started, command, deadline_s);
    if (command->exit_code != 0)
        fail_msg("exit %d: %s", command->exit_code, command->err);
    const json_t *list = json_at(command->json, "network.slow");
    assert_true(json_is_array(list));
    return list;
}

/* Whether the host and this direction alone are named, with its rate. */
static bool is_found(const json_t *list, int host, bool sends)
{
    const json_t *row = json_array_get(list, 0);
    const double low = json_number_at(row, "bytes_per_s.low"),
                 high = json_number_at(row, "bytes_per_s.high");
    return json_array_size(list) == 1 && json_is_null(json_at(row, sends ? "to" : "from")) &&
           json_number_at(row, sends ? "from" : "to") == host && low < 1.05 * slow_bytes_per_s &&
           high > 0.9 * slow_bytes_per_s;
}

TEST(test_slow_host)
{
    int found = 0;
    network_or_skip(&network);
    for (int try = 0; try < TRIES; try++) {
        const int host = try % HOSTS;
        const bool sends = try / HOSTS % 2 == 0;
        struct command command;
        if (sends)
            network_shape_host(&network, host, slow);
        else
            network_shape_to(host, slow);
        const json_t *list = named(&command);
        const bool right = is_found(list, host, sends);
        found += right;
        if (!right)
            print_message("host %d %s: %s\n", host, sends ? "sends" : "receives",
                          json_dumps(list, 0));
        if (sends)
            network_shape_host(&network, host, full);
        else
            network_shape_to(host, NULL);
    }
    print_message("found in %d of %d tries\n", found, TRIES);
    assert_int_equal(found, TRIES);
}

TEST(test_equal_hosts)
{
    int wrong = 0;
    network_or_skip(&network);
    for (int try = 0; try < TRIES; try++) {
        struct command command;
        const json_t *list = named(&command);
        wrong += json_array_size(list) > 0;
        if (json_array_size(list) > 0)
            print_message("%s\n", json_dumps(list, 0));
    }
    print_message("a false name in %d of %d tries\n", wrong, TRIES);
    assert_int_equal(wrong, 0);
}

TEST_MAIN(setup, teardown)
