/*
 * tcp_connect.c - see tcp_connect.h. One loop serves the listener, all that came to it, and the own
 * connections to the next member; none of them can hold up another.
 */
#include "lib/tcp_connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/interface.h"

enum { MAX_VISITORS = 48, ADDRESS_BYTES = 80, SHAPE_BYTES = 160, WORDS_BYTES = 128 };
enum { LOCAL_BUFFER_BYTES = 256 << 10 };

#define VISIT_NS INT64_C(3000000000) /* to prove oneself */
#define RETRY_NS INT64_C(50000000)

union address {
    struct sockaddr any;
    struct sockaddr_in ip4;
    struct sockaddr_in6 ip6;
};

enum state {
    DIAL_LATER,
    DIALLING,
    AWAITS_HELLO,
    AWAITS_ANSWER,
    AWAITS_PROOF,
    AWAITS_WELCOME,
    PROVEN
};

/* A connection that is being made: one of the own, or one that came. */
struct meeting {
    int fd; /* -1: none */
    enum state state;
    int64_t until_ns; /* of a visitor; of one to dial: when again */
    struct tcp_identity identity;
    uint8_t bytes[WORDS_BYTES]; /* of the message that is coming */
    size_t n_bytes;
};

struct maker {
    const struct tcp_args *args;
    const struct transport_ring *ring;
    const struct dpb_host *host;
    uint8_t secret[DPB_SECRET_BYTES];
    uint32_t self, next, previous; /* ranks */
    int listener;
    union address own, of_next;
    socklen_t address_bytes;
    char next_text[ADDRESS_BYTES];
    struct meeting diallers[TCP_MOST_STREAMS], visitors[MAX_VISITORS];
    int came[TCP_MOST_STREAMS]; /* proven, by stream; -1: not yet */
    uint32_t n_missing;
    char last_error[160]; /* of a dialling that is tried again */
};

/* ---- addresses ----------------------------------------------------------------------------- */

static uint16_t *port_of(union address *address)
{
    return address->any.sa_family == AF_INET ? &address->ip4.sin_port : &address->ip6.sin6_port;
}

static void describe(const union address *address, char text[ADDRESS_BYTES])
{
    char number[INET6_ADDRSTRLEN] = "?";
    if (address->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &address->ip4.sin_addr, number, sizeof number);
        snprintf(text, ADDRESS_BYTES, "%s:%u", number, ntohs(address->ip4.sin_port));
    } else {
        inet_ntop(AF_INET6, &address->ip6.sin6_addr, number, sizeof number);
        snprintf(text, ADDRESS_BYTES, "[%s]:%u", number, ntohs(address->ip6.sin6_port));
    }
}

static void describe_peer(int fd, char text[ADDRESS_BYTES])
{
    union address address = {{0}};
    socklen_t bytes = sizeof address;
    if (getpeername(fd, &address.any, &bytes) == 0)
        describe(&address, text);
    else
        snprintf(text, ADDRESS_BYTES, "an address that is gone");
}

/* The other way round; false: it is no address of the own family. */
static bool parse_address(const char *text, sa_family_t family, union address *address)
{
    char number[ADDRESS_BYTES], *colon;
    bool ip6 = text[0] == '[';
    snprintf(number, sizeof number, "%s", text + (ip6 ? 1 : 0));
    colon = strrchr(number, ':');
    if (!colon || ip6 != (family == AF_INET6) || (ip6 && (colon == number || colon[-1] != ']')))
        return false;
    colon[ip6 ? -1 : 0] = '\0';
    memset(address, 0, sizeof *address);
    address->any.sa_family = family;
    *port_of(address) = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    return inet_pton(family, number,
                     ip6 ? (void *)&address->ip6.sin6_addr : (void *)&address->ip4.sin_addr) == 1;
}

static dpb_status open_socket(const struct maker *maker, int *fd)
{
    *fd = socket(maker->own.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return *fd >= 0 ? DPB_OK
                    : maker->host->fail(DPB_IO, "cannot make a socket: %s", strerror(errno));
}

static bool same_host(const union address *a, const union address *b)
{
    if (a->any.sa_family == AF_INET)
        return a->ip4.sin_addr.s_addr == b->ip4.sin_addr.s_addr;
    return memcmp(&a->ip6.sin6_addr, &b->ip6.sin6_addr, sizeof a->ip6.sin6_addr) == 0;
}

/* On a network buffers are left to the kernel: it lets them grow with the link, which a fixed size
 * would stop. Within a machine there is no link to be filled, and what waits in a buffer should
 * still be in the cache when it is read. */
static void set_options(int fd, bool same_machine)
{
    int on = 1, bytes = LOCAL_BUFFER_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (same_machine)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* ---- the listener -------------------------------------------------------------------------- */

static dpb_status listen_at(struct maker *maker)
{
    const struct dpb_host *host = maker->host;
    struct interface found;
    char text[ADDRESS_BYTES];
    int on = 1;
    DPB_TRY(interface_find(host, maker->args->interface, maker->args->one_machine, &found));
    memcpy(&maker->own, &found.socket, found.socket_bytes);
    maker->address_bytes = found.socket_bytes;
    DPB_TRY(open_socket(maker, &maker->listener));
    if (maker->args->port != 0) {
        int64_t port = maker->args->port + maker->self;
        if (port > UINT16_MAX)
            return host->fail(DPB_USAGE, "comm.port = %lld: rank %u would listen at %lld",
                              (long long)maker->args->port, maker->self, (long long)port);
        *port_of(&maker->own) = htons((uint16_t)port);
        setsockopt(maker->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    describe(&maker->own, text);
    if (bind(maker->listener, &maker->own.any, maker->address_bytes) != 0 ||
        listen(maker->listener, MAX_VISITORS) != 0)
        return host->fail(DPB_IO, "rank %u cannot listen at %s (interface %s): %s%s", maker->self,
                          text, found.name, strerror(errno),
                          maker->args->port != 0 ? "; set another comm.port" : "");
    socklen_t bytes = sizeof maker->own;
    if (getsockname(maker->listener, &maker->own.any, &bytes) != 0)
        return host->fail(DPB_IO, "cannot tell the own address: %s", strerror(errno));
    return DPB_OK;
}

/* ---- what the members tell each other by the store ----------------------------------------- */

static dpb_status put_text(const struct maker *maker, const char *what, const char *text)
{
    char key[TCP_NAME_BYTES + 64];
    snprintf(key, sizeof key, "%s.%s.%u", maker->ring->name, what, maker->self);
    return maker->host->store->put(key, text, strlen(text) + 1);
}

static dpb_status get_text(const struct maker *maker, const char *what, uint32_t rank, char *text,
                           size_t size)
{
    char key[TCP_NAME_BYTES + 64];
    snprintf(key, sizeof key, "%s.%s.%u", maker->ring->name, what, rank);
    memset(text, 0, size);
    size--;
    return maker->host->store->get(key, text, &size, 0);
}

/* The member at position 0 makes the secret of this ring. */
static dpb_status share_secret(struct maker *maker)
{
    char key[TCP_NAME_BYTES + 16];
    size_t bytes = sizeof maker->secret;
    snprintf(key, sizeof key, "%s.secret", maker->ring->name);
    if (maker->ring->position != 0)
        return maker->host->store->get(key, maker->secret, &bytes, 0);
    maker->host->secret->random(maker->secret, sizeof maker->secret);
    return maker->host->store->put(key, maker->secret, sizeof maker->secret);
}

/* What must be equal at both ends of a link. */
static dpb_status compare_shapes(const struct maker *maker, const struct transport_memory *memory)
{
    char own[SHAPE_BYTES], theirs[SHAPE_BYTES];
    snprintf(own, sizeof own,
             "comm.streams = %u, chunks of %llu bytes, %u of them in the inbox, "
             "%llu bytes of gradients",
             maker->args->n_streams, (unsigned long long)memory->slot_bytes, memory->n_slots,
             (unsigned long long)memory->arena_bytes);
    DPB_TRY(put_text(maker, "shape", own));
    DPB_TRY(get_text(maker, "shape", maker->next, theirs, sizeof theirs));
    if (strcmp(own, theirs) != 0)
        return maker->host->fail(DPB_USAGE, "rank %u has %s; rank %u has %s", maker->self, own,
                                 maker->next, theirs);
    return DPB_OK;
}

static dpb_status tell_addresses(struct maker *maker)
{
    char text[ADDRESS_BYTES];
    describe(&maker->own, text);
    DPB_TRY(put_text(maker, "address", text));
    DPB_TRY(get_text(maker, "address", maker->next, maker->next_text, sizeof maker->next_text));
    if (!parse_address(maker->next_text, maker->own.any.sa_family, &maker->of_next))
        return maker->host->fail(DPB_USAGE,
                                 "rank %u is at %s and rank %u at %s: both must be IPv4, or both "
                                 "IPv6; choose by comm.interface",
                                 maker->self, text, maker->next, maker->next_text);
    return DPB_OK;
}

/* ---- meetings ------------------------------------------------------------------------------ */

static void meeting_close(struct meeting *meeting)
{
    if (meeting->fd >= 0)
        close(meeting->fd);
    meeting->fd = -1;
    meeting->n_bytes = 0;
}

/* A message is small: a socket that does not take it all at once is none to talk over. */
static bool say(const struct meeting *meeting, const void *bytes, size_t n)
{
    return send(meeting->fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* Reads on until `n` bytes are there, and never more. 1: they are; 0: not yet; -1: it is broken. */
static int hear(struct meeting *meeting, size_t n)
{
    ssize_t got = recv(meeting->fd, meeting->bytes + meeting->n_bytes, n - meeting->n_bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        return -1;
    meeting->n_bytes += (size_t)got;
    if (meeting->n_bytes < n)
        return 0;
    meeting->n_bytes = 0;
    return 1;
}

static void code_of(const struct maker *maker, enum tcp_side side,
                    const struct tcp_identity *identity, uint8_t code[DPB_MAC_BYTES])
{
    tcp_code(maker->host, maker->secret, maker->ring->name, side, identity, code);
}

/* ---- the own connections, to the next member ----------------------------------------------- */

/* It may have been dropped for a stranger's sake, or not be there yet: once more, in a moment. */
static void dial_again(struct maker *maker, struct meeting *meeting, const char *why)
{
    snprintf(maker->last_error, sizeof maker->last_error, "%s", why);
    meeting_close(meeting);
    meeting->state = DIAL_LATER;
    meeting->until_ns = maker->host->now_ns() + RETRY_NS;
}

static dpb_status dial(struct maker *maker, struct meeting *meeting)
{
    union address from = maker->own;
    *port_of(&from) = 0;
    DPB_TRY(open_socket(maker, &meeting->fd));
    set_options(meeting->fd, same_host(&maker->own, &maker->of_next));
    meeting->state = DIALLING;
    if (bind(meeting->fd, &from.any, maker->address_bytes) != 0)
        return maker->host->fail(DPB_IO, "cannot send from interface '%s': %s",
                                 maker->args->interface, strerror(errno));
    if (connect(meeting->fd, &maker->of_next.any, maker->address_bytes) != 0 &&
        errno != EINPROGRESS)
        dial_again(maker, meeting, strerror(errno));
    return DPB_OK;
}

static void greet(struct maker *maker, struct meeting *meeting)
{
    uint8_t bytes[TCP_HELLO_BYTES];
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(meeting->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    maker->host->secret->random(meeting->identity.dialler_nonce, TCP_NONCE_BYTES);
    tcp_write_hello(bytes, &meeting->identity);
    if (error != 0 || !say(meeting, bytes, sizeof bytes))
        dial_again(maker, meeting, strerror(error != 0 ? error : errno));
    else
        meeting->state = AWAITS_ANSWER;
}

/* Who is there does not know the secret: that is not the next member. */
static dpb_status hear_answer(struct maker *maker, struct meeting *meeting)
{
    uint8_t code[DPB_MAC_BYTES];
    int heard = hear(meeting, TCP_ANSWER_BYTES);
    if (heard < 0)
        dial_again(maker, meeting, "the connection was closed before an answer");
    if (heard <= 0)
        return DPB_OK;
    memcpy(meeting->identity.acceptor_nonce, meeting->bytes, TCP_NONCE_BYTES);
    code_of(maker, TCP_ANSWER, &meeting->identity, code);
    if (!maker->host->secret->same(code, meeting->bytes + TCP_NONCE_BYTES, sizeof code))
        return maker->host->fail(DPB_FAILED,
                                 "who answers at %s, where rank %u should be, does not know the "
                                 "job's secret",
                                 maker->next_text, maker->next);
    code_of(maker, TCP_PROOF, &meeting->identity, code);
    if (!say(meeting, code, sizeof code)) {
        dial_again(maker, meeting, strerror(errno));
        return DPB_OK;
    }
    meeting->state = AWAITS_WELCOME;
    return DPB_OK;
}

static void hear_welcome(struct maker *maker, struct meeting *meeting)
{
    int heard = hear(meeting, 1);
    if (heard < 0)
        dial_again(maker, meeting, "the connection was closed before it was welcome");
    if (heard <= 0)
        return;
    meeting->state = PROVEN;
    maker->n_missing--;
}

static dpb_status serve_dialler(struct maker *maker, struct meeting *meeting)
{
    if (meeting->state == DIALLING)
        greet(maker, meeting);
    else if (meeting->state == AWAITS_ANSWER)
        return hear_answer(maker, meeting);
    else if (meeting->state == AWAITS_WELCOME)
        hear_welcome(maker, meeting);
    return DPB_OK;
}

/* ---- visitors ------------------------------------------------------------------------------ */

static void drop(struct maker *maker, struct meeting *visitor, const char *why)
{
    char text[ADDRESS_BYTES];
    describe_peer(visitor->fd, text);
    maker->host->log(DPB_LOG_WARNING,
                     "dropped a connection from %s, which is none of the job's: %s", text, why);
    meeting_close(visitor);
}

/* A place for one more: the one who has had most time is thought the least of. */
static struct meeting *place_for_visitor(struct maker *maker)
{
    struct meeting *oldest = &maker->visitors[0];
    for (size_t i = 0; i < MAX_VISITORS; i++) {
        struct meeting *visitor = &maker->visitors[i];
        if (visitor->fd < 0)
            return visitor;
        if (visitor->until_ns < oldest->until_ns)
            oldest = visitor;
    }
    drop(maker, oldest, "others came, and it had not proven itself");
    return oldest;
}

static void welcome(struct maker *maker)
{
    int fd = accept4(maker->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;             /* gone again, or out of descriptors: the deadline tells */
    set_options(fd, false); /* credits alone go this way */
    struct meeting *visitor = place_for_visitor(maker);
    *visitor = (struct meeting){
        .fd = fd, .state = AWAITS_HELLO, .until_ns = maker->host->now_ns() + VISIT_NS};
}

static void hear_hello(struct maker *maker, struct meeting *visitor)
{
    uint8_t answer[TCP_ANSWER_BYTES];
    struct tcp_identity *identity = &visitor->identity;
    int heard = hear(visitor, TCP_HELLO_BYTES);
    if (heard < 0)
        drop(maker, visitor, "it said nothing");
    if (heard <= 0)
        return;
    if (!tcp_read_hello(visitor->bytes, identity) || identity->dialler != maker->previous ||
        identity->acceptor != maker->self || identity->stream >= maker->args->n_streams) {
        drop(maker, visitor, "what it said is no hello of the rank before in the ring");
        return;
    }
    maker->host->secret->random(identity->acceptor_nonce, TCP_NONCE_BYTES);
    memcpy(answer, identity->acceptor_nonce, TCP_NONCE_BYTES);
    code_of(maker, TCP_ANSWER, identity, answer + TCP_NONCE_BYTES);
    visitor->state = AWAITS_PROOF;
    if (!say(visitor, answer, sizeof answer))
        drop(maker, visitor, "it is gone");
}

static void hear_proof(struct maker *maker, struct meeting *visitor)
{
    uint8_t code[DPB_MAC_BYTES];
    uint32_t stream = visitor->identity.stream;
    int heard = hear(visitor, TCP_PROOF_BYTES);
    if (heard < 0)
        drop(maker, visitor, "it left without proving that it knows the secret");
    if (heard <= 0)
        return;
    code_of(maker, TCP_PROOF, &visitor->identity, code);
    if (!maker->host->secret->same(code, visitor->bytes, sizeof code)) {
        drop(maker, visitor, "it does not know the job's secret");
        return;
    }
    if (!say(visitor, "w", 1)) {
        drop(maker, visitor, "it is gone");
        return;
    }
    if (maker->came[stream] >= 0) { /* it dialled again: the one before is given up */
        close(maker->came[stream]);
        maker->n_missing++;
    }
    maker->came[stream] = visitor->fd;
    visitor->fd = -1;
    maker->n_missing--;
}

static void serve_visitor(struct maker *maker, struct meeting *visitor)
{
    if (visitor->state == AWAITS_HELLO)
        hear_hello(maker, visitor);
    else
        hear_proof(maker, visitor);
}

/* ---- the loop ------------------------------------------------------------------------------ */

static struct pollfd wish(const struct meeting *meeting)
{
    bool idle = meeting->fd < 0 || meeting->state == PROVEN;
    return (struct pollfd){.fd = idle ? -1 : meeting->fd,
                           .events = meeting->state == DIALLING ? POLLOUT : POLLIN};
}

/* What a clock alone decides: whom to dial again, who was here too long. */
static dpb_status serve_times(struct maker *maker)
{
    int64_t now_ns = maker->host->now_ns();
    for (uint32_t s = 0; s < maker->args->n_streams; s++)
        if (maker->diallers[s].state == DIAL_LATER && maker->diallers[s].until_ns <= now_ns)
            DPB_TRY(dial(maker, &maker->diallers[s]));
    for (size_t i = 0; i < MAX_VISITORS; i++)
        if (maker->visitors[i].fd >= 0 && maker->visitors[i].until_ns <= now_ns)
            drop(maker, &maker->visitors[i], "it took too long to prove itself");
    return DPB_OK;
}

/* Whether a descriptor has something for its meeting. */
static bool has_news(const struct pollfd *fd)
{
    return fd->fd >= 0 && fd->revents != 0;
}

static dpb_status take_turn(struct maker *maker, int64_t *waited_ns)
{
    uint32_t n_streams = maker->args->n_streams, n = 1;
    struct pollfd fds[1 + TCP_MOST_STREAMS + MAX_VISITORS] = {
        {.fd = maker->listener, .events = POLLIN}};
    char purpose[320];
    snprintf(purpose, sizeof purpose, "the connections of the ring: to rank %u at %s%s%s, from %u",
             maker->next, maker->next_text, maker->last_error[0] ? ", " : "", maker->last_error,
             maker->previous);
    const struct dpb_wait what = {.bucket = UINT64_MAX, .peer = maker->next, .purpose = purpose};
    for (uint32_t s = 0; s < n_streams; s++)
        fds[n++] = wish(&maker->diallers[s]);
    for (uint32_t i = 0; i < MAX_VISITORS; i++)
        fds[n++] = wish(&maker->visitors[i]);
    DPB_TRY(maker->host->poll(fds, n, &what, waited_ns));
    for (uint32_t s = 0; s < n_streams; s++)
        if (has_news(&fds[1 + s]))
            DPB_TRY(serve_dialler(maker, &maker->diallers[s]));
    for (uint32_t i = 0; i < MAX_VISITORS; i++)
        if (has_news(&fds[1 + n_streams + i]))
            serve_visitor(maker, &maker->visitors[i]);
    if (has_news(&fds[0]))
        welcome(maker);
    return serve_times(maker);
}

static dpb_status meet(struct maker *maker)
{
    int64_t waited_ns = 0;
    maker->host->note("connect", UINT64_MAX, maker->next);
    for (uint32_t s = 0; s < maker->args->n_streams; s++)
        DPB_TRY(dial(maker, &maker->diallers[s]));
    while (maker->n_missing > 0)
        DPB_TRY(take_turn(maker, &waited_ns));
    return DPB_OK;
}

static void prepare(struct maker *maker)
{
    const struct transport_ring *ring = maker->ring;
    maker->self = ring->members[ring->position];
    maker->next = transport_next(ring);
    maker->previous = transport_previous(ring);
    maker->listener = -1;
    maker->n_missing = 2 * maker->args->n_streams;
    for (uint32_t s = 0; s < TCP_MOST_STREAMS; s++) {
        maker->came[s] = -1;
        maker->diallers[s] = (struct meeting){
            .fd = -1, .identity = {.dialler = maker->self, .acceptor = maker->next, .stream = s}};
    }
    for (size_t i = 0; i < MAX_VISITORS; i++)
        maker->visitors[i].fd = -1;
}

/* Closes all that is not handed on. */
static void finish(struct maker *maker, bool made)
{
    if (maker->listener >= 0)
        close(maker->listener);
    for (size_t i = 0; i < MAX_VISITORS; i++)
        meeting_close(&maker->visitors[i]);
    for (uint32_t s = 0; s < TCP_MOST_STREAMS && !made; s++) {
        meeting_close(&maker->diallers[s]);
        if (maker->came[s] >= 0)
            close(maker->came[s]);
    }
    memset(maker->secret, 0, sizeof maker->secret);
    free(maker);
}

dpb_status tcp_connect(const struct tcp_args *args, const struct transport_ring *ring,
                       const struct transport_memory *memory, int to_next[TCP_MOST_STREAMS],
                       int from_previous[TCP_MOST_STREAMS])
{
    struct maker *maker = calloc(1, sizeof *maker);
    if (!maker)
        return args->host->fail(DPB_NO_MEMORY, "no memory to connect a ring");
    maker->args = args;
    maker->ring = ring;
    maker->host = args->host;
    prepare(maker);
    dpb_status status = share_secret(maker);
    if (status == DPB_OK)
        status = listen_at(maker);
    if (status == DPB_OK)
        status = compare_shapes(maker, memory);
    if (status == DPB_OK)
        status = tell_addresses(maker);
    if (status == DPB_OK)
        status = meet(maker);
    for (uint32_t s = 0; s < args->n_streams && status == DPB_OK; s++) {
        to_next[s] = maker->diallers[s].fd;
        from_previous[s] = maker->came[s];
    }
    finish(maker, status == DPB_OK);
    return status;
}
