/* links_loopback.c - TCP over 127.0.0.1, between two threads. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "links/links.h"

enum { SENDER, RECEIVER };

struct pair {
    const struct dpb_links_limits *limits;
    struct dpb_links_loopback *loopback;
    struct dpb_links_line lines[2];
    dpb_status status[2];
};

static dpb_status failed(const char *what)
{
    return dpb_fail(DPB_IO, "loopback: %s: %s", what, strerror(errno));
}

/* ---- a connection -------------------------------------------------------------------------- */

static dpb_status accept_one(int listener, const struct sockaddr_in *address, int ends[2])
{
    const int yes = 1;
    ends[SENDER] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (ends[SENDER] < 0 ||
        connect(ends[SENDER], (const struct sockaddr *)address, sizeof *address) != 0)
        return failed("connect");
    ends[RECEIVER] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (ends[RECEIVER] < 0)
        return failed("accept");
    /* Another process may have connected first. */
    struct sockaddr_in own, peer;
    socklen_t bytes = sizeof own;
    if (getsockname(ends[SENDER], (struct sockaddr *)&own, &bytes) != 0 ||
        getpeername(ends[RECEIVER], (struct sockaddr *)&peer, &bytes) != 0)
        return failed("getsockname");
    if (own.sin_port != peer.sin_port)
        return dpb_fail(DPB_IO, "loopback: another process connected to it");
    for (int i = 0; i < 2; i++)
        if (setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0)
            return failed("TCP_NODELAY");
    return DPB_OK;
}

static dpb_status open_ends(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[SENDER] = ends[RECEIVER] = -1;
    if (listener < 0)
        return failed("socket");
    dpb_status status = DPB_OK;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &bytes) != 0)
        status = failed("listen on 127.0.0.1");
    DPB_THEN(status, accept_one(listener, &address, ends));
    close(listener);
    return status;
}

/* ---- two threads --------------------------------------------------------------------------- */

/* A thread that fails closes its end, so that the other does not wait. */
static void pair_member(void *pair_, uint32_t member)
{
    struct pair *pair = pair_;
    pair->status[member] =
        member == SENDER ? dpb_links_line_measure(pair->limits, &pair->lines[SENDER],
                                                  &pair->loopback->latency, pair->loopback->rate)
                         : dpb_links_line_answer(&pair->lines[RECEIVER]);
    if (pair->status[member] != DPB_OK)
        shutdown(pair->lines[member].fd, SHUT_RDWR);
}

dpb_status dpb_links_loopback_measure(const struct dpb_links_limits *limits, uint16_t a, uint16_t b,
                                      struct dpb_links_loopback *loopback)
{
    const uint16_t cpus[2] = {a, b};
    int ends[2];
    struct pair pair = {.limits = limits, .loopback = loopback};
    dpb_status status = open_ends(ends);
    for (int i = 0; i < 2; i++) {
        dpb_status opened = dpb_links_line_open("loopback", ends[i], limits, &pair.lines[i]);
        status = status != DPB_OK ? status : opened;
    }
    DPB_THEN(status, dpb_links_team(cpus, 2, pair_member, &pair));
    for (int i = 0; i < 2; i++)
        dpb_links_line_close(&pair.lines[i]);
    DPB_THEN(status, pair.status[SENDER] != DPB_OK ? pair.status[SENDER] : pair.status[RECEIVER]);
    return status;
}
