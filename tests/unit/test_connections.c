/* needs: native */
/* test_connections.c - what the kernel counts of this process's TCP connections. */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/test.h"
#include "machine/tcp.h"

static struct dpb_tcp_peer count_to(const char *address)
{
    struct dpb_tcp_peer peers[DPB_TCP_TABLE];
    const uint32_t n = dpb_tcp_count(peers);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(peers[i].address, address) == 0)
            return peers[i];
    return (struct dpb_tcp_peer){.connections = 0};
}

/* Both ends are of this process. An address of IPv6 that is one of IPv4 counts to it. */
TEST(connections_are_counted_by_address)
{
    int ends[4];
    for (int i = 0; i < 4; i += 2) {
        const int family = i == 0 ? AF_INET : AF_INET6;
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f000005)}};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
        socklen_t bytes = family == AF_INET ? sizeof v4 : sizeof v6;
        void *at = family == AF_INET ? (void *)&v4 : (void *)&v6;
        assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.5", &v6.sin6_addr), 1);
        const int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ends[i] = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(listener, at, bytes), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, at, &bytes), 0);
        assert_int_equal(connect(ends[i], at, bytes), 0);
        ends[i + 1] = accept(listener, NULL, NULL);
        assert_true(ends[i + 1] >= 0);
        close(listener);
    }
    const struct dpb_tcp_peer before = count_to("127.0.0.5");
    assert_int_equal(before.connections, 2);
    assert_int_equal(before.retransmitted, 0);
    assert_int_equal(before.congested, 0);
    assert_true(before.window_segments > 0);
    char bytes[1000] = {0};
    for (int i = 0; i < 10; i++) {
        assert_int_equal(write(ends[0], bytes, sizeof bytes), sizeof bytes);
        assert_true(read(ends[1], bytes, sizeof bytes) > 0);
    }
    assert_true(count_to("127.0.0.5").segments >= before.segments + 10);
    assert_int_equal(dpb_tcp_tries(ends[0]), 0);
    assert_int_equal(dpb_tcp_tries(-1), 0);
    for (int i = 0; i < 4; i++)
        close(ends[i]);
    assert_int_equal(count_to("127.0.0.5").connections, 0);
}

TEST_MAIN(NULL, NULL)
