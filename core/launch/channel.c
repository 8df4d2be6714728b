/* channel.c - see channel.h. */
#include "launch/channel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/secret.h"
#include "base/text.h"

#define ATTEMPT_NS INT64_C(2000000000) /* for one of several addresses */

#define CIRCLE "launchers"

enum { MAX_OUTPUT = 256 << 20, BACKLOG = 1024 };

/* ---- frames -------------------------------------------------------------------------------- */

void dpb_channel_close(struct dpb_channel *channel)
{
    if (channel->fd >= 0)
        close(channel->fd);
    dpb_buffer_free(&channel->in);
    dpb_buffer_free(&channel->out);
    channel->fd = -1;
    channel->last_bytes = 0;
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

/* A socket that listens at an address, which gets the port that the system chose. -1: errno. */
static int listen_on(struct sockaddr *address, socklen_t size)
{
    static const int off = 0, on = 1;
    const bool six = address->sa_family == AF_INET6;
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Connections of a job before may still hold the port. */
    if (fd < 0 || (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                   (!six || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) &&
                   bind(fd, address, size) == 0 && listen(fd, BACKLOG) == 0 &&
                   getsockname(fd, address, &size) == 0))
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* IPv6 and IPv4 on one socket where the system has IPv6, else IPv4 alone. *port: 0 for any. */
static int open_listener(uint16_t *port)
{
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons(*port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(*port)};
    int fd = listen_on((struct sockaddr *)&six, sizeof six);
    if (fd >= 0) {
        *port = ntohs(six.sin6_port);
        return fd;
    }
    fd = listen_on((struct sockaddr *)&four, sizeof four);
    *port = ntohs(four.sin_port);
    return fd;
}

dpb_status dpb_channel_listen(int *fd, struct dpb_circle *circle, char address[DPB_ADDRESS_BYTES])
{
    char text[2 * DPB_SECRET_BYTES + 1], list[DPB_ADDRESS_BYTES - 128];
    uint16_t port = 0;
    int listener = open_listener(&port);
    if (listener < 0)
        return dpb_fail(DPB_FAILED, "cannot listen for the job's other processes: %s",
                        strerror(errno));
    *circle = (struct dpb_circle){.name = CIRCLE};
    dpb_random_bytes(circle->secret, sizeof circle->secret);
    dpb_secret_print(circle->secret, text);
    list_addresses(list, sizeof list);
    snprintf(address, DPB_ADDRESS_BYTES, "%s %u %s", text, port, list);
    explicit_bzero(text, sizeof text);
    *fd = listener;
    return DPB_OK;
}

/* The address of @NAME. */
static socklen_t unix_address(const char *name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s", name + 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address->sun_path + 1));
}

static int open_unix_listener(const char *name)
{
    struct sockaddr_un address;
    const socklen_t size = unix_address(name, &address);
    return listen_on((struct sockaddr *)&address, size);
}

/* The parts of an address; false: it cannot be read. */
static bool parse_address(const char *address, uint8_t secret[DPB_SECRET_BYTES], uint16_t *port,
                          const char **list)
{
    const char *rest = address + 2 * DPB_SECRET_BYTES;
    unsigned number = 0;
    int used = 0;
    if (strlen(address) >= DPB_ADDRESS_BYTES || !dpb_secret_parse(address, secret) ||
        rest[0] != ' ' || sscanf(rest, " %5u %n", &number, &used) != 1 || number == 0 ||
        number > UINT16_MAX)
        return false;
    *port = (uint16_t)number;
    *list = rest + used;
    return true;
}

dpb_status dpb_channel_listen_at(const char *address, int *fd, struct dpb_circle *circle)
{
    const char *list;
    uint16_t port;
    *circle = (struct dpb_circle){.name = CIRCLE};
    if (!parse_address(address, circle->secret, &port, &list))
        return dpb_fail(DPB_FAILED, "rank 0's own address cannot be read");
    *fd = list[0] == '@' ? open_unix_listener(list) : open_listener(&port);
    if (*fd >= 0)
        return DPB_OK;
    return dpb_fail(errno == EADDRINUSE ? DPB_USAGE : DPB_FAILED,
                    "rank 0 cannot listen on port %u for the job's other processes: %s; take "
                    "another run.port",
                    port, strerror(errno));
}

bool dpb_channel_is_own(int fd)
{
    struct sockaddr_storage own = {0};
    struct ucred peer;
    socklen_t size = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &size) != 0 || own.ss_family != AF_UNIX)
        return true;
    size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* ---- the connecting side ------------------------------------------------------------------- */

static bool wait_for(int fd, short events, struct dpb_deadline deadline)
{
    struct pollfd ready = {.fd = fd, .events = events};
    int n;
    do
        n = poll(&ready, 1, dpb_deadline_look_ms(deadline));
    while ((n < 0 && errno == EINTR) || (n == 0 && !dpb_deadline_passed(deadline)));
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

/* A socket connected to an address; -1: errno. */
static int connect_to(const struct sockaddr *to, socklen_t size, struct dpb_deadline deadline)
{
    const int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0;
    socklen_t bytes = sizeof error;
    if (fd < 0)
        return -1;
    const bool connected =
        connect(fd, to, size) == 0 || (errno == EINPROGRESS && wait_for(fd, POLLOUT, deadline));
    if (!connected || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

/* To a number or a name, which may have several, or to @NAME. -1: errno. */
static int connect_one(const char *host, uint16_t port, struct dpb_deadline deadline)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char service[8];
    int fd = -1;
    if (host[0] == '@') {
        struct sockaddr_un address;
        const socklen_t size = unix_address(host, &address);
        return connect_to((const struct sockaddr *)&address, size, deadline);
    }
    snprintf(service, sizeof service, "%u", port);
    const int failed = getaddrinfo(host, service, &wanted, &found);
    dpb_ran_blocked();
    if (failed != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
        fd = connect_to(at->ai_addr, at->ai_addrlen, deadline);
    const int error = errno;
    freeaddrinfo(found);
    errno = error;
    return fd;
}

static bool prove(int fd, const struct dpb_circle *circle, uint32_t rank,
                  dpb_channel_purpose purpose, struct dpb_deadline deadline)
{
    struct dpb_meeting meeting = {.fd = fd, .greeting = {.dialler = rank, .purpose = purpose}};
    dpb_heard heard = dpb_meeting_begin(&meeting);
    while (heard == DPB_HEARD_PART) {
        if (!wait_for(fd, POLLIN, deadline))
            return false;
        heard = dpb_meeting_move(&meeting, circle);
    }
    errno = heard == DPB_HEARD_STRANGER ? EACCES : ECONNRESET;
    return heard == DPB_HEARD_PROOF;
}

/* Tries each of the addresses; the reasons why they did not do are in `why`. */
static int try_all(char *list, uint16_t port, const struct dpb_circle *circle, uint32_t rank,
                   dpb_channel_purpose purpose, struct dpb_deadline deadline,
                   char why[DPB_CHANNEL_WHY_BYTES])
{
    char *rest = NULL;
    struct dpb_text text = dpb_text_in(why, DPB_CHANNEL_WHY_BYTES);
    for (char *host = strtok_r(list, " ", &rest); host; host = strtok_r(NULL, " ", &rest)) {
        const struct dpb_deadline attempt =
            dpb_deadline_first(dpb_deadline_in(ATTEMPT_NS), deadline);
        int fd = connect_one(host, port, attempt);
        if (fd >= 0 && !dpb_channel_is_own(fd)) {
            close(fd);
            dpb_text_item(&text, "; ", "the socket %s is another user's", host);
            continue;
        }
        if (fd >= 0 && prove(fd, circle, rank, purpose, attempt))
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
                               dpb_channel_purpose purpose, struct dpb_deadline deadline, int *fd,
                               char why[DPB_CHANNEL_WHY_BYTES])
{
    struct dpb_circle circle = {.name = CIRCLE};
    char all[DPB_ADDRESS_BYTES + 32];
    const char *list;
    uint16_t port;
    if (!parse_address(address, circle.secret, &port, &list))
        return dpb_fail(DPB_FAILED, "rank 0's launcher has left no address that can be read");
    snprintf(all, sizeof all, "%s %s", same_host ? "127.0.0.1 ::1" : "", list);
    int made = try_all(all, port, &circle, rank, purpose, deadline, why);
    explicit_bzero(&circle, sizeof circle);
    if (made < 0)
        return DPB_PEER;
    dpb_channel_tune(made);
    *fd = made;
    return DPB_OK;
}
