/* channel.c - see channel.h. */
#include "launch/channel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/secret.h"
#include "base/text.h"

#define ATTEMPT_NS INT64_C(2000000000) /* for one of several addresses */

enum { MAX_OUTPUT = 256 << 20, BACKLOG = 1024 };

/* ---- frames -------------------------------------------------------------------------------- */

void dpb_channel_close(struct dpb_channel *channel)
{
    if (channel->fd >= 0)
        close(channel->fd);
    dpb_buffer_free(&channel->in);
    dpb_buffer_free(&channel->out);
    channel->fd = -1;
}

bool dpb_channel_flush(struct dpb_channel *channel)
{
    return channel->fd >= 0 &&
           (dpb_buffer_send(&channel->out, channel->fd) >= 0 || errno == EAGAIN);
}

bool dpb_channel_add(struct dpb_channel *channel, dpb_channel_op op, uint32_t rank,
                     const void *value, size_t bytes)
{
    const struct dpb_frame frame = {
        .magic = DPB_STORE_MAGIC, .op = (uint16_t)op, .value_bytes = (uint32_t)bytes, .peer = rank};
    return channel->fd >= 0 && dpb_buffer_add_frame(&channel->out, &frame, NULL, value) &&
           channel->out.end - channel->out.begin <= MAX_OUTPUT;
}

bool dpb_channel_say(struct dpb_channel *channel, dpb_channel_op op, uint32_t rank,
                     const void *value, size_t bytes)
{
    return dpb_channel_add(channel, op, rank, value, bytes) && dpb_channel_flush(channel);
}

int dpb_channel_next(struct dpb_channel *channel, struct dpb_frame *frame, const void **value,
                     char why[128])
{
    const char *key;
    if (channel->last_bytes > 0) {
        channel->in.begin += channel->last_bytes;
        channel->last_bytes = 0;
    }
    dpb_frame_state state = dpb_buffer_frame(&channel->in, frame, &key, value, why);
    if (state == DPB_FRAME_PARTIAL)
        return 0;
    if (state == DPB_FRAME_WHOLE &&
        (frame->op < DPB_CHANNEL_REPORT || frame->op >= DPB_CHANNEL_OPS_END)) {
        snprintf(why, 128, "operation %u is none between launchers", frame->op);
        state = DPB_FRAME_MALFORMED;
    }
    if (state == DPB_FRAME_MALFORMED)
        return -1;
    channel->last_bytes = sizeof *frame + frame->key_bytes + frame->value_bytes;
    return 1;
}

bool dpb_channel_receive(struct dpb_channel *channel)
{
    ssize_t n;
    if (channel->fd < 0)
        return false;
    while ((n = dpb_buffer_receive(&channel->in, channel->fd)) > 0)
        ;
    return n < 0 && errno == EAGAIN;
}

/* ---- addresses ----------------------------------------------------------------------------- */

/* Every address under which other machines may reach this one: "10.9.0.1 fd00::1". */
static void list_addresses(char *array, size_t capacity)
{
    struct ifaddrs *list = NULL;
    struct dpb_text text = dpb_text_in(array, capacity);
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        char one[INET6_ADDRSTRLEN];
        if (!at->ifa_addr || (at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0)
            continue;
        const void *bytes = NULL;
        if (at->ifa_addr->sa_family == AF_INET)
            bytes = &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr;
        else if (at->ifa_addr->sa_family == AF_INET6)
            bytes = &((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr;
        if (!bytes || !inet_ntop(at->ifa_addr->sa_family, bytes, one, sizeof one) ||
            dpb_begins_with(one, "fe80:") || text.length + strlen(one) + 2 > capacity)
            continue;
        dpb_text_add(&text, "%s%s", text.length > 0 ? " " : "", one);
    }
    freeifaddrs(list);
}

/* IPv6 and IPv4 on one socket where the system has IPv6, else IPv4 alone. */
static int open_listener(uint16_t *port)
{
    static const int off = 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET};
    socklen_t size = sizeof six;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
        bind(fd, (struct sockaddr *)&six, sizeof six) == 0 && listen(fd, BACKLOG) == 0 &&
        getsockname(fd, (struct sockaddr *)&six, &size) == 0) {
        *port = ntohs(six.sin6_port);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    size = sizeof four;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&four, sizeof four) == 0 &&
        listen(fd, BACKLOG) == 0 && getsockname(fd, (struct sockaddr *)&four, &size) == 0) {
        *port = ntohs(four.sin_port);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

dpb_status dpb_channel_listen(int *fd, struct dpb_circle *circle, char address[DPB_ADDRESS_BYTES])
{
    char text[2 * DPB_SECRET_BYTES + 1], list[DPB_ADDRESS_BYTES - 128];
    uint16_t port = 0;
    int listener = open_listener(&port);
    if (listener < 0)
        return dpb_fail(DPB_FAILED, "cannot listen for the job's other processes: %s",
                        strerror(errno));
    *circle = (struct dpb_circle){.name = "launchers"};
    dpb_random_bytes(circle->secret, sizeof circle->secret);
    dpb_secret_print(circle->secret, text);
    list_addresses(list, sizeof list);
    snprintf(address, DPB_ADDRESS_BYTES, "%s %u %s", text, port, list);
    explicit_bzero(text, sizeof text);
    *fd = listener;
    return DPB_OK;
}

/* ---- the connecting side ------------------------------------------------------------------- */

static int wait_ms(int64_t deadline_ns)
{
    int64_t left = deadline_ns - dpb_now_ns();
    return left > 0 ? (int)((left + 999999) / 1000000) : 0;
}

static bool wait_for(int fd, short events, int64_t deadline_ns)
{
    struct pollfd ready = {.fd = fd, .events = events};
    int n;
    do
        n = poll(&ready, 1, wait_ms(deadline_ns));
    while (n < 0 && errno == EINTR);
    if (n == 0)
        errno = ETIMEDOUT;
    return n > 0;
}

void dpb_channel_tune(int fd)
{
    static const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* A connected socket; -1: errno. */
static int connect_one(const char *host, uint16_t port, int64_t deadline_ns)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    bool is_six = inet_pton(AF_INET6, host, &six.sin6_addr) == 1;
    if (!is_six && inet_pton(AF_INET, host, &four.sin_addr) != 1) {
        errno = EINVAL;
        return -1;
    }
    int fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0;
    socklen_t size = sizeof error;
    const struct sockaddr *to = is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    if (fd < 0)
        return -1;
    bool connected = connect(fd, to, is_six ? sizeof six : sizeof four) == 0 ||
                     (errno == EINPROGRESS && wait_for(fd, POLLOUT, deadline_ns));
    if (!connected || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

static bool prove(int fd, const struct dpb_circle *circle, uint32_t rank,
                  dpb_channel_purpose purpose, int64_t deadline_ns)
{
    struct dpb_meeting meeting = {.fd = fd, .greeting = {.dialler = rank, .purpose = purpose}};
    dpb_heard heard = dpb_meeting_begin(&meeting);
    while (heard == DPB_HEARD_PART) {
        if (!wait_for(fd, POLLIN, deadline_ns))
            return false;
        heard = dpb_meeting_move(&meeting, circle);
    }
    errno = heard == DPB_HEARD_STRANGER ? EACCES : ECONNRESET;
    return heard == DPB_HEARD_PROOF;
}

/* Tries each of the addresses; the reasons why they did not do are in `why`. */
static int try_all(char *list, uint16_t port, const struct dpb_circle *circle, uint32_t rank,
                   dpb_channel_purpose purpose, int64_t deadline_ns,
                   char why[DPB_CHANNEL_WHY_BYTES])
{
    char *rest = NULL;
    struct dpb_text text = dpb_text_in(why, DPB_CHANNEL_WHY_BYTES);
    for (char *host = strtok_r(list, " ", &rest); host; host = strtok_r(NULL, " ", &rest)) {
        int64_t until_ns = dpb_now_ns() + ATTEMPT_NS;
        until_ns = until_ns < deadline_ns ? until_ns : deadline_ns;
        int fd = connect_one(host, port, until_ns);
        if (fd >= 0 && prove(fd, circle, rank, purpose, until_ns))
            return fd;
        int error = errno;
        if (fd >= 0)
            close(fd);
        dpb_text_item(&text, "; ", "%s port %u: %s", host, port, strerror(error));
    }
    if (text.length == 0)
        dpb_text_add(&text, "its machine has no address");
    return -1;
}

dpb_status dpb_channel_connect(const char *address, bool same_host, uint32_t rank,
                               dpb_channel_purpose purpose, int64_t deadline_ns, int *fd,
                               char why[DPB_CHANNEL_WHY_BYTES])
{
    struct dpb_circle circle = {.name = "launchers"};
    char list[DPB_ADDRESS_BYTES + 32];
    unsigned port = 0;
    int used = 0;
    if (strlen(address) >= DPB_ADDRESS_BYTES || !dpb_secret_parse(address, circle.secret) ||
        address[2 * DPB_SECRET_BYTES] != ' ' ||
        sscanf(address + 2 * DPB_SECRET_BYTES, " %5u%n", &port, &used) != 1 || port == 0 ||
        port > UINT16_MAX)
        return dpb_fail(DPB_FAILED, "rank 0's launcher has left no address that can be read");
    snprintf(list, sizeof list, "%s %s", same_host ? "127.0.0.1 ::1" : "",
             address + 2 * DPB_SECRET_BYTES + used);
    int made = try_all(list, (uint16_t)port, &circle, rank, purpose, deadline_ns, why);
    explicit_bzero(&circle, sizeof circle);
    if (made < 0)
        return DPB_PEER;
    dpb_channel_tune(made);
    *fd = made;
    return DPB_OK;
}
