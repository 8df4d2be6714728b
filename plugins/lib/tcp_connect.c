/*
 * tcp_connect.c - see tcp_connect.h. One loop serves the listener, all that came to it, and the own
 * connections to others; none of them can hold up another.
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

enum { STRANGERS = 48, ADDRESS_BYTES = 80, WORDS_BYTES = 128 };
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
    uint32_t callee;  /* of the own ones: place in `callees` */
    struct tcp_identity identity;
    uint8_t bytes[WORDS_BYTES]; /* of the message that is coming */
    size_t n_bytes;
};

/* A peer that is dialled. */
struct callee {
    struct tcp_peer *peer;
    union address address;
    char text[ADDRESS_BYTES];
};

struct maker {
    const struct tcp_args *args;
    const struct tcp_party *party;
    const struct dpb_host *host;
    uint8_t secret[DPB_SECRET_BYTES];
    int listener;
    union address own;
    socklen_t address_bytes;
    struct callee *callees;
    struct meeting *diallers,
        *visitors; /* n_streams a callee; all that are to come, and strangers */
    struct pollfd *fds;
    uint32_t n_callees, n_diallers, n_visitors, n_missing;
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
        int64_t port = maker->args->port + maker->party->self;
        if (port > UINT16_MAX)
            return host->fail(DPB_USAGE, "comm.port = %lld: rank %u would listen at %lld",
                              (long long)maker->args->port, maker->party->self, (long long)port);
        *port_of(&maker->own) = htons((uint16_t)port);
        setsockopt(maker->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    describe(&maker->own, text);
    if (bind(maker->listener, &maker->own.any, maker->address_bytes) != 0 ||
        listen(maker->listener, (int)maker->n_visitors) != 0)
        return host->fail(DPB_IO, "rank %u cannot listen at %s (interface %s): %s%s",
                          maker->party->self, text, found.name, strerror(errno),
                          maker->args->port != 0 ? "; set another comm.port" : "");
    socklen_t bytes = sizeof maker->own;
    if (getsockname(maker->listener, &maker->own.any, &bytes) != 0)
        return host->fail(DPB_IO, "cannot tell the own address: %s", strerror(errno));
    return DPB_OK;
}

/* ---- what the ranks tell each other by the store ------------------------------------------- */

static dpb_status put_text(const struct maker *maker, const char *what, const char *text)
{
    char key[TCP_NAME_BYTES + 64];
    snprintf(key, sizeof key, "%s.%s.%u", maker->party->name, what, maker->party->self);
    return maker->host->store->put(key, text, strlen(text) + 1);
}

static dpb_status get_text(const struct maker *maker, const char *what, uint32_t rank, char *text,
                           size_t size)
{
    char key[TCP_NAME_BYTES + 64];
    snprintf(key, sizeof key, "%s.%s.%u", maker->party->name, what, rank);
    memset(text, 0, size);
    size--;
    return maker->host->store->get(key, text, &size, 0);
}

/* One makes the secret of this party. */
static dpb_status share_secret(struct maker *maker)
{
    char key[TCP_NAME_BYTES + 16];
    size_t bytes = sizeof maker->secret;
    snprintf(key, sizeof key, "%s.secret", maker->party->name);
    if (maker->party->self != maker->party->keeper)
        return maker->host->store->get(key, maker->secret, &bytes, 0);
    maker->host->secret->random(maker->secret, sizeof maker->secret);
    return maker->host->store->put(key, maker->secret, sizeof maker->secret);
}

static dpb_status compare_shapes(const struct maker *maker)
{
    const char *own = maker->party->shape;
    DPB_TRY(put_text(maker, "shape", own));
    for (uint32_t i = 0; i < maker->n_callees; i++) {
        char theirs[TCP_SHAPE_BYTES];
        uint32_t rank = maker->callees[i].peer->rank;
        DPB_TRY(get_text(maker, "shape", rank, theirs, sizeof theirs));
        if (strcmp(own, theirs) != 0)
            return maker->host->fail(DPB_USAGE, "rank %u has %s; rank %u has %s",
                                     maker->party->self, own, rank, theirs);
    }
    return DPB_OK;
}

static dpb_status tell_addresses(struct maker *maker)
{
    char text[ADDRESS_BYTES];
    describe(&maker->own, text);
    DPB_TRY(put_text(maker, "address", text));
    for (uint32_t i = 0; i < maker->n_callees; i++) {
        struct callee *callee = &maker->callees[i];
        uint32_t rank = callee->peer->rank;
        DPB_TRY(get_text(maker, "address", rank, callee->text, sizeof callee->text));
        if (!parse_address(callee->text, maker->own.any.sa_family, &callee->address))
            return maker->host->fail(
                DPB_USAGE,
                "rank %u is at %s and rank %u at %s: both must be IPv4, or both "
                "IPv6; choose by comm.interface",
                maker->party->self, text, rank, callee->text);
    }
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
    tcp_code(maker->host, maker->secret, maker->party->name, side, identity, code);
}

/* ---- the own connections ------------------------------------------------------------------- */

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
    const struct callee *callee = &maker->callees[meeting->callee];
    union address from = maker->own;
    *port_of(&from) = 0;
    DPB_TRY(open_socket(maker, &meeting->fd));
    set_options(meeting->fd, same_host(&maker->own, &callee->address));
    meeting->state = DIALLING;
    if (bind(meeting->fd, &from.any, maker->address_bytes) != 0)
        return maker->host->fail(DPB_IO, "cannot send from interface '%s': %s",
                                 maker->args->interface, strerror(errno));
    if (connect(meeting->fd, &callee->address.any, maker->address_bytes) != 0 &&
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

/* Who is there and does not know the secret is somebody else. */
static dpb_status hear_answer(struct maker *maker, struct meeting *meeting)
{
    const struct callee *callee = &maker->callees[meeting->callee];
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
                                 callee->text, callee->peer->rank);
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
    for (uint32_t i = 0; i < maker->n_visitors; i++) {
        struct meeting *visitor = &maker->visitors[i];
        if (visitor->fd < 0)
            return visitor;
        if (visitor->until_ns < oldest->until_ns)
            oldest = visitor;
    }
    drop(maker, oldest, "others came, and it had not proven itself");
    return oldest;
}

/* The peer that is to dial with this identity; NULL: none is. */
static struct tcp_peer *caller_of(const struct maker *maker, const struct tcp_identity *identity)
{
    const struct tcp_party *party = maker->party;
    if (identity->acceptor != party->self || identity->stream >= maker->args->n_streams)
        return NULL;
    for (uint32_t i = 0; i < party->n_peers; i++)
        if (!party->peers[i].dialled && party->peers[i].rank == identity->dialler)
            return &party->peers[i];
    return NULL;
}

static void welcome(struct maker *maker)
{
    int fd = accept4(maker->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return; /* gone again, or out of descriptors: the deadline tells */
    union address theirs = {{0}};
    socklen_t bytes = sizeof theirs;
    bool known = getpeername(fd, &theirs.any, &bytes) == 0;
    set_options(fd, known && same_host(&maker->own, &theirs));
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
    if (!tcp_read_hello(visitor->bytes, identity) || !caller_of(maker, identity)) {
        drop(maker, visitor, "what it said is no hello of a rank that is to connect here");
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
    int *came = &caller_of(maker, &visitor->identity)->fds[visitor->identity.stream];
    if (*came >= 0) { /* it dialled again: the one before is given up */
        close(*came);
        maker->n_missing++;
    }
    *came = visitor->fd;
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
    for (uint32_t i = 0; i < maker->n_diallers; i++)
        if (maker->diallers[i].state == DIAL_LATER && maker->diallers[i].until_ns <= now_ns)
            DPB_TRY(dial(maker, &maker->diallers[i]));
    for (uint32_t i = 0; i < maker->n_visitors; i++)
        if (maker->visitors[i].fd >= 0 && maker->visitors[i].until_ns <= now_ns)
            drop(maker, &maker->visitors[i], "it took too long to prove itself");
    return DPB_OK;
}

/* Whether a descriptor has something for its meeting. */
static bool has_news(const struct pollfd *fd)
{
    return fd->fd >= 0 && fd->revents != 0;
}

/* The first that is not there yet: to be named if it does not come. */
static uint32_t describe_missing(const struct maker *maker, char *text, size_t size)
{
    const struct tcp_party *party = maker->party;
    for (uint32_t i = 0; i < maker->n_diallers; i++) {
        const struct callee *callee = &maker->callees[maker->diallers[i].callee];
        if (maker->diallers[i].state == PROVEN)
            continue;
        snprintf(text, size, "the connections of %s: to rank %u at %s%s%s", party->what,
                 callee->peer->rank, callee->text, maker->last_error[0] ? ", " : "",
                 maker->last_error);
        return callee->peer->rank;
    }
    for (uint32_t i = 0; i < party->n_peers; i++)
        for (uint32_t s = 0; s < maker->args->n_streams && !party->peers[i].dialled; s++)
            if (party->peers[i].fds[s] < 0) {
                snprintf(text, size, "the connections of %s: from rank %u", party->what,
                         party->peers[i].rank);
                return party->peers[i].rank;
            }
    return UINT32_MAX;
}

static dpb_status take_turn(struct maker *maker, int64_t *waited_ns)
{
    struct pollfd *fds = maker->fds;
    uint32_t n = 1, visitors_at = 1 + maker->n_diallers;
    char purpose[320];
    const struct dpb_wait what = {.bucket = UINT64_MAX,
                                  .peer = describe_missing(maker, purpose, sizeof purpose),
                                  .purpose = purpose};
    fds[0] = (struct pollfd){.fd = maker->listener, .events = POLLIN};
    for (uint32_t i = 0; i < maker->n_diallers; i++)
        fds[n++] = wish(&maker->diallers[i]);
    for (uint32_t i = 0; i < maker->n_visitors; i++)
        fds[n++] = wish(&maker->visitors[i]);
    DPB_TRY(maker->host->poll(fds, n, &what, waited_ns));
    for (uint32_t i = 0; i < maker->n_diallers; i++)
        if (has_news(&fds[1 + i]))
            DPB_TRY(serve_dialler(maker, &maker->diallers[i]));
    for (uint32_t i = 0; i < maker->n_visitors; i++)
        if (has_news(&fds[visitors_at + i]))
            serve_visitor(maker, &maker->visitors[i]);
    if (has_news(&fds[0]))
        welcome(maker);
    return serve_times(maker);
}

static dpb_status meet(struct maker *maker)
{
    int64_t waited_ns = 0;
    maker->host->note("connect", UINT64_MAX,
                      maker->party->n_peers > 0 ? maker->party->peers[0].rank : UINT32_MAX);
    for (uint32_t i = 0; i < maker->n_diallers; i++)
        DPB_TRY(dial(maker, &maker->diallers[i]));
    while (maker->n_missing > 0)
        DPB_TRY(take_turn(maker, &waited_ns));
    return DPB_OK;
}

/* ---- making and ending --------------------------------------------------------------------- */

static dpb_status prepare(struct maker *maker)
{
    const struct tcp_party *party = maker->party;
    uint32_t n_streams = maker->args->n_streams;
    maker->listener = -1;
    maker->n_missing = party->n_peers * n_streams;
    maker->n_visitors = maker->n_missing + STRANGERS;
    maker->callees = calloc(party->n_peers + 1, sizeof *maker->callees);
    maker->diallers = calloc(maker->n_missing + 1, sizeof *maker->diallers);
    maker->visitors = calloc(maker->n_visitors, sizeof *maker->visitors);
    maker->fds = calloc(1 + maker->n_missing + maker->n_visitors, sizeof *maker->fds);
    if (!maker->callees || !maker->diallers || !maker->visitors || !maker->fds)
        return maker->host->fail(DPB_NO_MEMORY, "no memory to connect %s", party->what);
    for (uint32_t i = 0; i < party->n_peers; i++) {
        struct tcp_peer *peer = &party->peers[i];
        if (!peer->dialled)
            continue;
        for (uint32_t s = 0; s < n_streams; s++)
            maker->diallers[maker->n_diallers++] = (struct meeting){
                .fd = -1,
                .callee = maker->n_callees,
                .identity = {.dialler = party->self, .acceptor = peer->rank, .stream = s}};
        maker->callees[maker->n_callees++].peer = peer;
    }
    for (uint32_t i = 0; i < maker->n_visitors; i++)
        maker->visitors[i].fd = -1;
    return DPB_OK;
}

static void hand_over(struct maker *maker)
{
    for (uint32_t i = 0; i < maker->n_diallers; i++) {
        struct meeting *meeting = &maker->diallers[i];
        maker->callees[meeting->callee].peer->fds[meeting->identity.stream] = meeting->fd;
        meeting->fd = -1;
    }
}

static void close_peers(const struct maker *maker)
{
    for (uint32_t i = 0; i < maker->party->n_peers; i++)
        for (uint32_t s = 0; s < maker->args->n_streams; s++) {
            int *fd = &maker->party->peers[i].fds[s];
            if (*fd >= 0)
                close(*fd);
            *fd = -1;
        }
}

/* Closes all that is not handed on. */
static void finish(struct maker *maker)
{
    if (maker->listener >= 0)
        close(maker->listener);
    for (uint32_t i = 0; i < maker->n_visitors && maker->visitors; i++)
        meeting_close(&maker->visitors[i]);
    for (uint32_t i = 0; i < maker->n_diallers; i++)
        meeting_close(&maker->diallers[i]);
    memset(maker->secret, 0, sizeof maker->secret);
    free(maker->callees);
    free(maker->diallers);
    free(maker->visitors);
    free(maker->fds);
}

dpb_status tcp_connect(const struct tcp_args *args, const struct tcp_party *party)
{
    struct maker maker = {.args = args, .party = party, .host = args->host};
    for (uint32_t i = 0; i < party->n_peers; i++)
        for (uint32_t s = 0; s < TCP_MOST_STREAMS; s++)
            party->peers[i].fds[s] = -1;
    dpb_status status = prepare(&maker);
    if (status == DPB_OK)
        status = share_secret(&maker);
    if (status == DPB_OK && party->n_peers > 0) {
        status = listen_at(&maker);
        if (status == DPB_OK)
            status = compare_shapes(&maker);
        if (status == DPB_OK)
            status = tell_addresses(&maker);
        if (status == DPB_OK)
            status = meet(&maker);
    }
    if (status == DPB_OK)
        hand_over(&maker);
    else
        close_peers(&maker);
    finish(&maker);
    return status;
}
