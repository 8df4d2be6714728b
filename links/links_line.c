/* links_line.c - messages over a TCP connection, each answered by a byte. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "links/links.h"

static dpb_status failed(const struct dpb_links_line *line, const char *what)
{
    const int error = errno == EAGAIN ? ETIMEDOUT : errno;
    return dpb_fail(DPB_IO, "%s: %s: %s", line->name, what, strerror(error));
}

static dpb_status send_all(const struct dpb_links_line *line, const char *bytes, uint64_t n)
{
    return dpb_write_all(line->fd, bytes, n) ? DPB_OK : failed(line, "send");
}

static dpb_status receive_all(const struct dpb_links_line *line, char *bytes, uint64_t n)
{
    while (n > 0) {
        ssize_t received = recv(line->fd, bytes, n, 0);
        if (received < 0 && errno == EINTR)
            continue;
        if (received <= 0) {
            errno = received == 0 ? ECONNRESET : errno;
            return failed(line, "recv");
        }
        bytes += received;
        n -= (uint64_t)received;
    }
    return DPB_OK;
}

dpb_status dpb_links_line_open(const char *name, int fd, const struct dpb_links_limits *limits,
                               struct dpb_links_line *line)
{
    *line = (struct dpb_links_line){.name = name, .fd = fd};
    if (fd < 0)
        return DPB_OK;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0)
        return failed(line, "fcntl");
    const uint64_t largest = dpb_links_size(DPB_LINKS_SIZES - 1);
    line->capacity = limits->max_bytes < largest ? limits->max_bytes : largest;
    line->capacity += line->capacity == 0;
    line->buffer = calloc(1, line->capacity);
    return dpb_allocated(line->buffer);
}

dpb_status dpb_links_line_limit(const struct dpb_links_line *line, int64_t limit_ns)
{
    const struct timeval limit = {.tv_sec = limit_ns / 1000000000,
                                  .tv_usec = limit_ns % 1000000000 / 1000};
    if (limit_ns > 0 && (setsockopt(line->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
                         setsockopt(line->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0))
        return failed(line, "setsockopt");
    return DPB_OK;
}

void dpb_links_line_close(struct dpb_links_line *line)
{
    if (line->fd >= 0)
        close(line->fd);
    free(line->buffer);
    *line = (struct dpb_links_line){.fd = -1};
}

/* Messages of line->bytes. */
static dpb_status exchange(void *line_, uint64_t times)
{
    struct dpb_links_line *line = line_;
    char answer;
    for (uint64_t i = 0; i < times; i++) {
        DPB_TRY(send_all(line, line->buffer, line->bytes));
        DPB_TRY(receive_all(line, &answer, 1));
    }
    return DPB_OK;
}

/* A message of its own announces each size to the receiver; 0: no more follow. */
static dpb_status announce(struct dpb_links_line *line, uint64_t bytes)
{
    line->bytes = bytes;
    return send_all(line, (const char *)&bytes, sizeof bytes);
}

static dpb_status time_size(const struct dpb_links_limits *limits, struct dpb_links_line *line,
                            uint64_t bytes, struct dpb_links_value *seconds)
{
    line->buffer[0] = 0; /* the other end may have sent before */
    DPB_TRY(announce(line, bytes));
    dpb_status status = dpb_links_time(limits, exchange, line, seconds);
    if (status != DPB_OK && status != DPB_INTERRUPTED)
        return status;
    /* The last message of a size begins with a byte that is not zero, and is answered, too. */
    line->buffer[0] = 1;
    DPB_TRY(exchange(line, 1));
    return status;
}

dpb_status dpb_links_line_measure(const struct dpb_links_limits *limits,
                                  struct dpb_links_line *line, struct dpb_links_value *latency,
                                  struct dpb_links_value rate[DPB_LINKS_SIZES])
{
    struct dpb_links_value seconds = dpb_links_nothing();
    *latency = dpb_links_nothing();
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++)
        rate[i] = dpb_links_nothing();
    dpb_status status = time_size(limits, line, 1, &seconds);
    if (status == DPB_OK)
        *latency = dpb_links_share(&seconds, 2);
    for (uint32_t i = 0; i < DPB_LINKS_SIZES && status == DPB_OK; i++) {
        const uint64_t bytes = dpb_links_size(i);
        if (!dpb_links_wanted(limits, bytes))
            continue;
        status = time_size(limits, line, bytes, &seconds);
        if (status == DPB_OK)
            rate[i] = dpb_links_rate(&seconds, (double)bytes);
        /* The next size is four times as large. */
        if (line->longest_ns > 0 && 4e9 * seconds.median > (double)line->longest_ns)
            break;
    }
    if (status == DPB_OK || status == DPB_INTERRUPTED)
        DPB_TRY(announce(line, 0));
    return status;
}

dpb_status dpb_links_line_answer(struct dpb_links_line *line)
{
    for (;;) {
        uint64_t bytes;
        DPB_TRY(receive_all(line, (char *)&bytes, sizeof bytes));
        if (bytes == 0)
            return DPB_OK;
        if (bytes > line->capacity)
            return dpb_fail(DPB_IO, "%s: the other end announced %llu bytes, too many", line->name,
                            (unsigned long long)bytes);
        do {
            DPB_TRY(receive_all(line, line->buffer, bytes));
            DPB_TRY(send_all(line, line->buffer, 1));
        } while (line->buffer[0] == 0);
    }
}
