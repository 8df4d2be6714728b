/*
 * test_interface.c - comm.interface by name, address, network and default, in a network namespace
 * of this test's own with interfaces that it makes.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lib/network.h"
#include "lib/test.h"
#include "plan/experiment.h"
#include "plugins/lib/tcp/interface.h"
#include "world/world.h"

static void run(const char *command)
{
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

static int leave_network(void **state)
{
    (void)state;
    if (!network_leave())
        fail_msg("this test needs a network namespace: be root, or allow users to make them");
    return 0;
}

static void expect(const char *wanted, bool one_machine, const char *name, const char *address)
{
    struct dpb_interface found;
    dpb_world.n_machines = one_machine ? 1 : 2;
    if (dpb_interface_find(&dpb_host, wanted, &found) != DPB_OK)
        fail_msg("'%s': %s", wanted, dpb_first_error(NULL));
    if (strcmp(found.name, name) != 0 || strcmp(found.address, address) != 0)
        fail_msg("'%s' is %s %s, not %s %s", wanted, found.name, found.address, name, address);
    assert_int_equal(found.socket.any.sa_family, strchr(address, ':') ? AF_INET6 : AF_INET);
    assert_int_equal(found.socket_bytes, strchr(address, ':') ? sizeof(struct sockaddr_in6)
                                                              : sizeof(struct sockaddr_in));
}

static void expect_refused(const char *wanted, const char *word)
{
    struct dpb_interface found = {.name = "as it was"};
    dpb_world.n_machines = 2;
    dpb_first_error_clear();
    assert_int_equal(dpb_interface_find(&dpb_host, wanted, &found), DPB_USAGE);
    assert_string_equal(found.name, "as it was");
    if (!strstr(dpb_first_error(NULL), word))
        fail_msg("'%s': '%s' is not in: %s", wanted, word, dpb_first_error(NULL));
    dpb_first_error_clear();
}

/* They build on each other: interfaces come one by one. */
TEST(test_none)
{
    expect_refused("", "there are: none");
    expect_refused("lo", "there are: none"); /* it is there, and down */
    network_loop();
    expect("", true, "lo", "127.0.0.1");
    expect("lo", false, "lo", "127.0.0.1");
    expect_refused("", "there are: lo 127.0.0.1, lo ::1");
}

TEST(test_only_one)
{
    run("ip link add a0 type veth peer name a1");
    run("ip address add 10.9.0.3/24 dev a0");
    expect_refused("a0", "there are: lo 127.0.0.1, lo ::1"); /* down */
    run("ip link set a0 up");
    expect("", false, "a0", "10.9.0.3");
    expect("", true, "lo", "127.0.0.1");
}

TEST(test_several)
{
    run("ip address add 10.9.1.3/24 dev a1");
    run("ip address add fd00:9::3/64 dev a1 nodad");
    run("ip link set a1 up");
    expect_refused("", "a1 10.9.1.3");
    run("ip route add default via 10.9.1.1 metric 20");
    run("ip route add default via 10.9.0.1 metric 30");
    expect("", false, "a1", "10.9.1.3");
    run("ip route add default via 10.9.0.1 metric 10");
    expect("", false, "a0", "10.9.0.3");
}

TEST(test_given)
{
    expect("a1", false, "a1", "10.9.1.3");
    expect("10.9.1.0/24", false, "a1", "10.9.1.3");
    expect("10.9.0.3", false, "a0", "10.9.0.3");
    expect("10.9.0.2/31", false, "a0", "10.9.0.3");
    expect("10.8.0.0/15", false, "a1", "10.9.1.3");
    expect("0.0.0.0/0", false, "lo", "127.0.0.1");
    expect("fd00:9::/64", false, "a1", "fd00:9::3");
    expect("fd00:9::3", false, "a1", "fd00:9::3");
    run("ip address del 10.9.1.3/24 dev a1");
    expect("a1", false, "a1", "fd00:9::3"); /* the link-local one is none that others reach */
    static const char *const refused[] = {"10.9.0.0/31", "10.9.0.2",  "fd00:8::/64",
                                          "10.9.0.3/33", "10.9.0.3/", "10.9.0.3/-1",
                                          "eth7",        "10.9.0",    "a0 "};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_refused(refused[i], "a0 10.9.0.3");
}

TEST(test_list)
{
    expect("eth7,a0", false, "a0", "10.9.0.3");
    expect("10.8.0.0/16, lo, a0", false, "lo", "127.0.0.1");
    expect_refused("eth7,ens4", "a0 10.9.0.3");
}

/* A peer in the network of another interface than the default route's. */
TEST(test_different_networks)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct dpb_interface own;
    const char *code, *text;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    run("ip address add 10.9.1.3/24 dev a1");
    assert_int_equal(dpb_interface_find(&dpb_host, "a0", &own), DPB_OK);
    inet_pton(AF_INET, "10.9.0.7", &address.sin_addr);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_false(dpb_interface_warn(&dpb_host, &own, 1, fd));
    inet_pton(AF_INET, "10.77.0.7", &address.sin_addr); /* routed: no interface has its network */
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_false(dpb_interface_warn(&dpb_host, &own, 1, fd));
    inet_pton(AF_INET, "10.9.1.7", &address.sin_addr);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    dpb_warnings_clear();
    assert_true(dpb_interface_warn(&dpb_host, &own, 1, fd));
    assert_true(dpb_warning_at(0, &code, &text));
    assert_string_equal(code, "different_networks");
    assert_non_null(strstr(text,
                           "this rank uses a0, and rank 1 10.9.1.7, an address in the network "
                           "of this machine's a1"));
    close(fd);
}

int main(void)
{
    const struct dpb_log_hooks silent = {.silent = true};
    dpb_log_set_hooks(&silent);
    return test_main(leave_network, NULL);
}
