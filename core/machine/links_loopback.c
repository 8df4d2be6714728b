/* links_loopback.c - TCP over 127.0.0.1, between two threads. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "machine/links.h"

enum { SENDER, RECEIVER };

struct line {
    const struct dpb_links_limits *limits;
    struct dpb_links_loopback *loopback;
    int ends[2];
    uint64_t bytes; /* of a message; 0: no more follow */
    char *buffers[2];
    dpb_status status[2];
};

static dpb_status failed(const char *what)
{
    return dpb_fail(DPB_IO, "loopback: %s: %s", what, strerror(errno));
}

static dpb_status send_all(int end, const char *bytes, uint64_t n)
{
    while (n > 0) {
        ssize_t sent = send(end, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return failed("send");
        bytes += sent;
        n -= (uint64_t)sent;
    }
    return DPB_OK;
}

static dpb_status receive_all(int end, char *bytes, uint64_t n)
{
    while (n > 0) {
        ssize_t received = recv(end, bytes, n, 0);
        if (received < 0 && errno == EINTR)
            continue;
        if (received <= 0) {
            errno = received == 0 ? ECONNRESET : errno;
            return failed("recv");
        }
        bytes += received;
        n -= (uint64_t)received;
    }
    return DPB_OK;
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
    if (status == DPB_OK)
        status = accept_one(listener, &address, ends);
    close(listener);
    return status;
}

static void close_end(int *end)
{
    if (*end >= 0)
        close(*end);
    *end = -1;
}

/* ---- two threads --------------------------------------------------------------------------- */

/* Messages of line->bytes, each answered by a byte. */
static dpb_status exchange(void *line_, uint64_t times)
{
    struct line *line = line_;
    char answer;
    for (uint64_t i = 0; i < times; i++) {
        DPB_TRY(send_all(line->ends[SENDER], line->buffers[SENDER], line->bytes));
        DPB_TRY(receive_all(line->ends[SENDER], &answer, 1));
    }
    return DPB_OK;
}

/* A message of its own tells the receiver each size. */
static dpb_status announce(struct line *line, uint64_t bytes)
{
    line->bytes = bytes;
    return send_all(line->ends[SENDER], (const char *)&bytes, sizeof bytes);
}

static dpb_status send_sizes(struct line *line)
{
    struct dpb_links_value seconds;
    for (uint32_t i = 0; i <= DPB_LINKS_SIZES; i++) {
        uint64_t bytes = i == 0 ? 1 : dpb_links_size(i - 1); /* a byte for the latency */
        if (i > 0 && !dpb_links_wanted(line->limits, bytes))
            continue;
        DPB_TRY(announce(line, bytes));
        dpb_status status = dpb_links_time(line->limits, exchange, line, &seconds);
        if (status != DPB_OK && status != DPB_INTERRUPTED)
            return status;
        /* The last message of a size has a first byte that is not zero; the receiver answers it,
         * too. */
        line->buffers[SENDER][0] = 1;
        DPB_TRY(exchange(line, 1));
        line->buffers[SENDER][0] = 0;
        if (status == DPB_INTERRUPTED) {
            DPB_TRY(announce(line, 0));
            return status;
        }
        if (i == 0)
            line->loopback->latency =
                (struct dpb_links_value){seconds.median / 2, seconds.least / 2, seconds.most / 2};
        else
            line->loopback->rate[i - 1] = dpb_links_rate(&seconds, (double)bytes);
    }
    return announce(line, 0);
}

static dpb_status receive_sizes(struct line *line)
{
    for (;;) {
        uint64_t bytes;
        DPB_TRY(receive_all(line->ends[RECEIVER], (char *)&bytes, sizeof bytes));
        if (bytes == 0)
            return DPB_OK;
        do {
            DPB_TRY(receive_all(line->ends[RECEIVER], line->buffers[RECEIVER], bytes));
            DPB_TRY(send_all(line->ends[RECEIVER], line->buffers[RECEIVER], 1));
        } while (line->buffers[RECEIVER][0] == 0);
    }
}

/* A thread that fails closes its end, so that the other does not wait. */
static void line_member(void *line_, uint32_t member)
{
    struct line *line = line_;
    line->status[member] = member == SENDER ? send_sizes(line) : receive_sizes(line);
    if (line->status[member] != DPB_OK)
        shutdown(line->ends[member], SHUT_RDWR);
}

dpb_status dpb_links_loopback_measure(const struct dpb_links_limits *limits, uint16_t a, uint16_t b,
                                      struct dpb_links_loopback *loopback)
{
    const uint16_t cpus[2] = {a, b};
    struct line line = {.limits = limits, .loopback = loopback};
    loopback->latency = dpb_links_nothing();
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++)
        loopback->rate[i] = dpb_links_nothing();
    dpb_status status = open_ends(line.ends);
    for (int i = 0; i < 2 && status == DPB_OK; i++) {
        line.buffers[i] = calloc(1, limits->max_bytes > 0 ? limits->max_bytes : 1);
        if (!line.buffers[i])
            status = dpb_fail(DPB_NO_MEMORY, "out of memory");
    }
    if (status == DPB_OK)
        status = dpb_links_team(cpus, 2, line_member, &line);
    for (int i = 0; i < 2; i++) {
        close_end(&line.ends[i]);
        free(line.buffers[i]);
    }
    if (status == DPB_OK)
        status = line.status[SENDER] != DPB_OK ? line.status[SENDER] : line.status[RECEIVER];
    return status;
}
