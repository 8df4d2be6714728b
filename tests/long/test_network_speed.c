/* needs: alone */
/*
 * test_network_speed.c - between hosts joined by links of 1 Gbit/s, ring_tcp's bus bandwidth at 4
 * MiB and more is at least 97 % of what one bulk TCP stream carries over the same link in the same
 * run.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/network.h"
#include "lib/sandbox.h"
#include "lib/test.h"

enum { HOSTS = 4, PORT = 5001, BLOCK = 1 << 20, TRIES = 3 };

static const double least = 0.97, warm_s = 1.0, measured_s = 3.0, deadline_s = 60.0;
static struct network network;

static int setup(void **state)
{
    if (sandbox_setup(state) != 0)
        return -1;
    if (network_possible())
        network_up(&network, HOSTS, "1gbit");
    return 0;
}

static int teardown(void **state)
{
    network_down(&network);
    return sandbox_teardown(state);
}

/* ---- one bulk stream ----------------------------------------------------------------------- */

static char block[BLOCK];

static void send_for_ever(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    inet_pton(AF_INET, "10.9.0.1", &to.sin_addr);
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
            while (send(fd, block, sizeof block, MSG_NOSIGNAL) > 0)
                ;
        close(fd);
        usleep(10000);
    }
}

/* What comes in the time, once the connection has found its speed; the rate goes to `report`. */
static void receive_and_report(int report)
{
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (const struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 1) != 0)
        _exit(1);
    int fd = accept(listener, NULL, NULL);
    double begin_s = now_s() + warm_s, bytes = 0, now = 0;
    while ((now = now_s()) < begin_s + measured_s) {
        ssize_t n = recv(fd, block, sizeof block, 0);
        if (n <= 0)
            _exit(1);
        bytes += now >= begin_s ? (double)n : 0;
    }
    double gb_per_s = bytes / (now_s() - begin_s) / 1e9;
    _exit(write(report, &gb_per_s, sizeof gb_per_s) != sizeof gb_per_s);
}

static double bulk_gb_per_s(void)
{
    int report[2];
    double rate = 0;
    pid_t receiver, sender;
    assert_int_equal(pipe(report), 0);
    if (network_fork(&network, 0, &receiver))
        receive_and_report(report[1]);
    if (network_fork(&network, 1, &sender))
        send_for_ever();
    close(report[1]);
    assert_int_equal(read(report[0], &rate, sizeof rate), sizeof rate);
    close(report[0]);
    kill(sender, SIGKILL);
    waitpid(sender, NULL, 0);
    waitpid(receiver, NULL, 0);
    return rate;
}

/* ---- the ring ------------------------------------------------------------------------------ */

static double ring_gb_per_s(int ranks, const char *bytes)
{
    char program[4200], number[8];
    struct started started;
    struct command command;
    snprintf(program, sizeof program, "%s/bench/all_reduce", build_directory());
    snprintf(number, sizeof number, "%d", ranks);
    const char *arguments[] = {program, "ring_tcp", number, bytes, "3", "interface=10.9.0.0/24",
                               NULL};
    char plugins[4200];
    snprintf(plugins, sizeof plugins, "%s/plugins", build_directory());
    setenv("DPBENCH_PLUGIN_PATH", plugins, 1);
    command_start(&started, arguments, network_environment(&network));
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 0)
        fail_msg("%s with %d ranks: exit code %d: %s", bytes, ranks, command.exit_code,
                 command.err);
    double rate = json_number_at(command.json, "rate");
    return rate;
}

static void expect_fast(int ranks, const char *bytes)
{
    double ratio = 0;
    for (int i = 0; i < TRIES && ratio < least; i++) { /* a busy machine is no slow ring */
        double bulk = bulk_gb_per_s(), ring = ring_gb_per_s(ranks, bytes);
        ratio = ring / bulk;
        print_message("%d hosts, %s bytes: bus bandwidth %.4f GB/s, one bulk stream %.4f: %.3f\n",
                      ranks, bytes, ring, bulk, ratio);
    }
    if (ratio < least)
        fail_msg("%d hosts, %s bytes: %.3f of one bulk stream, less than %.2f", ranks, bytes, ratio,
                 least);
}

TEST(test_speed)
{
    network_or_skip(&network);
    expect_fast(2, "4194304");
    expect_fast(2, "33554432");
    expect_fast(4, "4194304");
    expect_fast(4, "33554432");
}

TEST_MAIN(setup, teardown)
