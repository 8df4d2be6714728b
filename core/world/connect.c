/*
 * connect.c - the host's `connect`: TCP connections between ranks, dialled by one of the two. One
 * loop serves the door, all that came to it, and the own connections to others; none of them can
 * hold up another.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "world/handshake.h"
#include "world/world.h"

enum { LOCAL_BUFFER_BYTES = 256 << 10, KEY_BYTES = DPB_CIRCLE_BYTES + 64 };

#define RETRY_NS INT64_C(50000000)

enum state { DIAL_LATER, DIALLING, MEETING, PROVEN };

/* A peer that is dialled. */
struct callee {
    struct dpb_connect_peer *peer;
    union dpb_socket_address address;
    char text[DPB_SOCKET_TEXT];
};

/* One of the own connections. */
struct dialler {
    enum state state;
    int64_t again_ns; /* DIAL_LATER */
    uint32_t callee;  /* place in `callees` */
    struct dpb_meeting meeting;
};

struct maker {
    const struct dpb_connect_args *args;
    struct dpb_circle circle;
    struct dpb_door door; /* for all that are to come */
    int listener;
    union dpb_socket_address own;
    socklen_t address_bytes;
    struct callee *callees;
    struct dialler *diallers; /* n_streams a callee */
    struct pollfd *fds;
    uint32_t n_callees, n_diallers, n_missing;
    char last_error[160]; /* of a dialling that is tried again */
};

/* ---- addresses ----------------------------------------------------------------------------- */

static uint16_t *port_of(union dpb_socket_address *address)
{
    return address->any.sa_family == AF_INET ? &address->ip4.sin_port : &address->ip6.sin6_port;
}

static dpb_status open_socket(const struct maker *maker, int *fd)
{
    *fd = socket(maker->own.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return *fd >= 0 ? DPB_OK : dpb_fail(DPB_IO, "cannot make a socket: %s", strerror(errno));
}

static bool same_host(const union dpb_socket_address *a, const union dpb_socket_address *b)
{
    if (a->any.sa_family == AF_INET)
        return a->ip4.sin_addr.s_addr == b->ip4.sin_addr.s_addr;
    return memcmp(&a->ip6.sin6_addr, &b->ip6.sin6_addr, sizeof a->ip6.sin6_addr) == 0;
}

/* On a network buffers are left to the kernel: it lets them grow with the link, which a fixed size
 * would stop. Within a machine there is no link to be filled, and bytes in a buffer should still be
 * in the cache when they are read. */
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
    const struct dpb_connect_args *args = maker->args;
    char text[DPB_SOCKET_TEXT];
    int on = 1;
    memcpy(&maker->own, args->address, args->address_bytes);
    maker->address_bytes = args->address_bytes;
    DPB_TRY(open_socket(maker, &maker->listener));
    const bool given = *port_of(&maker->own) != 0;
    if (given)
        setsockopt(maker->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    dpb_socket_text(&maker->own, text);
    if (bind(maker->listener, &maker->own.any, maker->address_bytes) != 0 ||
        listen(maker->listener, (int)maker->door.n_visitors) != 0)
        return dpb_fail(DPB_IO, "rank %u cannot listen at %s (interface %s): %s%s", args->rank,
                        text, args->interface, strerror(errno),
                        given ? "; set another comm.port" : "");
    maker->door.listener = maker->listener;
    socklen_t bytes = sizeof maker->own;
    if (getsockname(maker->listener, &maker->own.any, &bytes) != 0)
        return dpb_fail(DPB_IO, "cannot tell the own address: %s", strerror(errno));
    return DPB_OK;
}

/* ---- what the ranks tell each other by the store ------------------------------------------- */

static dpb_status put(const struct maker *maker, const char *what, const void *value, size_t bytes)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s.%u", maker->args->name, what, maker->args->rank);
    return maker->args->store->put(key, value, bytes);
}

static dpb_status get(const struct maker *maker, const char *what, uint32_t rank, void *value,
                      size_t size)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s.%u", maker->args->name, what, rank);
    return maker->args->store->get(key, value, &size, 0);
}

/* One makes the secret of this party. */
static dpb_status share_secret(struct maker *maker)
{
    char key[KEY_BYTES];
    size_t bytes = sizeof maker->circle.secret;
    snprintf(key, sizeof key, "%s.secret", maker->args->name);
    if (maker->args->rank != maker->args->keeper)
        return maker->args->store->get(key, maker->circle.secret, &bytes, 0);
    dpb_random_bytes(maker->circle.secret, sizeof maker->circle.secret);
    return maker->args->store->put(key, maker->circle.secret, sizeof maker->circle.secret);
}

static dpb_status compare_shapes(const struct maker *maker)
{
    const char *own = maker->args->shape;
    DPB_TRY(put(maker, "shape", own, strlen(own) + 1));
    for (uint32_t i = 0; i < maker->n_callees; i++) {
        char theirs[DPB_SHAPE_BYTES] = "";
        uint32_t rank = maker->callees[i].peer->rank;
        DPB_TRY(get(maker, "shape", rank, theirs, sizeof theirs - 1));
        if (strcmp(own, theirs) != 0)
            return dpb_fail(DPB_USAGE, "rank %u has %s; rank %u has %s", maker->args->rank, own,
                            rank, theirs);
    }
    return DPB_OK;
}

static dpb_status tell_addresses(struct maker *maker)
{
    char text[DPB_SOCKET_TEXT];
    dpb_socket_text(&maker->own, text);
    DPB_TRY(put(maker, "address", &maker->own, sizeof maker->own));
    for (uint32_t i = 0; i < maker->n_callees; i++) {
        struct callee *callee = &maker->callees[i];
        uint32_t rank = callee->peer->rank;
        DPB_TRY(get(maker, "address", rank, &callee->address, sizeof callee->address));
        dpb_socket_text(&callee->address, callee->text);
        if (callee->address.any.sa_family != maker->own.any.sa_family)
            return dpb_fail(DPB_USAGE,
                            "rank %u is at %s and rank %u at %s: both must be IPv4, or both "
                            "IPv6; choose by comm.interface",
                            maker->args->rank, text, rank, callee->text);
    }
    return DPB_OK;
}

/* ---- the own connections ------------------------------------------------------------------- */

/* The peer may have dropped it for a stranger, or not be there yet: dials again in a moment. */
static void dial_again(struct maker *maker, struct dialler *dialler, const char *why)
{
    snprintf(maker->last_error, sizeof maker->last_error, "%s", why);
    dpb_meeting_close(&dialler->meeting);
    dialler->state = DIAL_LATER;
    dialler->again_ns = dpb_now_ns() + RETRY_NS;
}

static dpb_status dial(struct maker *maker, struct dialler *dialler)
{
    const struct callee *callee = &maker->callees[dialler->callee];
    struct dpb_meeting *meeting = &dialler->meeting;
    union dpb_socket_address from = maker->own;
    *port_of(&from) = 0;
    DPB_TRY(open_socket(maker, &meeting->fd));
    set_options(meeting->fd, same_host(&maker->own, &callee->address));
    dialler->state = DIALLING;
    if (bind(meeting->fd, &from.any, maker->address_bytes) != 0)
        return dpb_fail(DPB_IO, "cannot send from interface '%s': %s", maker->args->interface,
                        strerror(errno));
    if (connect(meeting->fd, &callee->address.any, maker->address_bytes) != 0 &&
        errno != EINPROGRESS)
        dial_again(maker, dialler, strerror(errno));
    return DPB_OK;
}

static dpb_heard begin(struct dpb_meeting *meeting)
{
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(meeting->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    meeting->why = strerror(error);
    return error != 0 ? DPB_HEARD_END : dpb_meeting_begin(meeting);
}

static dpb_status serve_dialler(struct maker *maker, struct dialler *dialler)
{
    const struct callee *callee = &maker->callees[dialler->callee];
    struct dpb_meeting *meeting = &dialler->meeting;
    dpb_heard heard =
        dialler->state == DIALLING ? begin(meeting) : dpb_meeting_move(meeting, &maker->circle);
    dialler->state = MEETING;
    if (heard == DPB_HEARD_STRANGER)
        return dpb_fail(DPB_FAILED, "the answer at %s, where rank %u should be: %s", callee->text,
                        callee->peer->rank, meeting->why);
    if (heard == DPB_HEARD_END)
        dial_again(maker, dialler, meeting->why);
    if (heard != DPB_HEARD_PROOF)
        return DPB_OK;
    dialler->state = PROVEN;
    maker->n_missing--;
    return DPB_OK;
}

/* ---- those who come ------------------------------------------------------------------------ */

/* The peer that is to dial with this greeting; NULL: none is. */
static struct dpb_connect_peer *caller_of(const struct dpb_connect_args *args,
                                          const struct dpb_greeting *greeting)
{
    if (greeting->acceptor != args->rank || greeting->purpose >= args->n_streams)
        return NULL;
    for (uint32_t i = 0; i < args->n_peers; i++)
        if (!args->peers[i].dialled && args->peers[i].rank == greeting->dialler)
            return &args->peers[i];
    return NULL;
}

static bool is_caller(const void *args, const struct dpb_greeting *greeting)
{
    return caller_of(args, greeting) != NULL;
}

static void take_in(struct maker *maker, const struct dpb_meeting *visitor)
{
    int *came = &caller_of(maker->args, &visitor->greeting)->fds[visitor->greeting.purpose];
    union dpb_socket_address theirs = {{0}};
    socklen_t bytes = sizeof theirs;
    bool known = getpeername(visitor->fd, &theirs.any, &bytes) == 0;
    set_options(visitor->fd, known && same_host(&maker->own, &theirs));
    if (*came >= 0) { /* it dialled again: the one before is given up */
        close(*came);
        maker->n_missing++;
    }
    *came = visitor->fd;
    maker->n_missing--;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static struct pollfd wish(const struct dialler *dialler)
{
    bool idle = dialler->state == DIAL_LATER || dialler->state == PROVEN;
    return (struct pollfd){.fd = idle ? -1 : dialler->meeting.fd,
                           .events = dialler->state == DIALLING ? POLLOUT : POLLIN};
}

/* The first that is not there yet: to be named if it does not come. */
static uint32_t describe_missing(const struct maker *maker, char *text, size_t size)
{
    const struct dpb_connect_args *args = maker->args;
    for (uint32_t i = 0; i < maker->n_diallers; i++) {
        const struct callee *callee = &maker->callees[maker->diallers[i].callee];
        if (maker->diallers[i].state == PROVEN)
            continue;
        snprintf(text, size, "the connections of %s: to rank %u at %s%s%s", args->what,
                 callee->peer->rank, callee->text, maker->last_error[0] ? ", " : "",
                 maker->last_error);
        return callee->peer->rank;
    }
    for (uint32_t i = 0; i < args->n_peers; i++)
        for (uint32_t s = 0; s < maker->args->n_streams && !args->peers[i].dialled; s++)
            if (args->peers[i].fds[s] < 0) {
                snprintf(text, size, "the connections of %s: from rank %u", args->what,
                         args->peers[i].rank);
                return args->peers[i].rank;
            }
    return UINT32_MAX;
}

static dpb_status take_turn(struct maker *maker, int64_t *waited_ns)
{
    struct pollfd *fds = maker->fds;
    char purpose[320];
    const struct dpb_wait what = {.bucket = UINT64_MAX,
                                  .peer = describe_missing(maker, purpose, sizeof purpose),
                                  .purpose = purpose};
    for (uint32_t i = 0; i < maker->n_diallers; i++)
        fds[i] = wish(&maker->diallers[i]);
    struct pollfd *door_fds = fds + maker->n_diallers;
    uint32_t n = maker->n_diallers + dpb_door_watch(&maker->door, door_fds);
    DPB_TRY(dpb_world_poll(fds, n, &what, waited_ns));
    const int64_t now_ns = dpb_now_ns();
    for (uint32_t i = 0; i < maker->n_diallers; i++) {
        struct dialler *dialler = &maker->diallers[i];
        if (fds[i].fd >= 0 && fds[i].revents != 0)
            DPB_TRY(serve_dialler(maker, dialler));
        if (dialler->state == DIAL_LATER && dialler->again_ns <= now_ns)
            DPB_TRY(dial(maker, dialler));
    }
    struct dpb_meeting came;
    DPB_TRY(dpb_door_serve(&maker->door, door_fds, &came));
    if (came.fd >= 0)
        take_in(maker, &came);
    return DPB_OK;
}

static dpb_status meet(struct maker *maker)
{
    int64_t waited_ns = 0;
    dpb_world_note("connect", UINT64_MAX,
                   maker->args->n_peers > 0 ? maker->args->peers[0].rank : UINT32_MAX);
    for (uint32_t i = 0; i < maker->n_diallers; i++)
        DPB_TRY(dial(maker, &maker->diallers[i]));
    while (maker->n_missing > 0)
        DPB_TRY(take_turn(maker, &waited_ns));
    return DPB_OK;
}

/* ---- making and ending --------------------------------------------------------------------- */

static dpb_status prepare(struct maker *maker)
{
    const struct dpb_connect_args *args = maker->args;
    maker->listener = -1;
    maker->n_missing = args->n_peers * args->n_streams;
    snprintf(maker->circle.name, sizeof maker->circle.name, "%s", args->name);
    maker->circle.expects = is_caller;
    maker->circle.context = args;
    maker->door = (struct dpb_door){.circle = &maker->circle, .listener = -1};
    DPB_TRY(dpb_door_open(&maker->door, maker->n_missing));
    dpb_files_allow(maker->n_missing + maker->door.n_visitors);
    maker->callees = calloc(args->n_peers + 1, sizeof *maker->callees);
    maker->diallers = calloc(maker->n_missing + 1, sizeof *maker->diallers);
    maker->fds = calloc(1 + maker->n_missing + maker->door.n_visitors, sizeof *maker->fds);
    DPB_TRY(dpb_allocated(maker->callees && maker->diallers && maker->fds));
    for (uint32_t i = 0; i < args->n_peers; i++) {
        struct dpb_connect_peer *peer = &args->peers[i];
        if (!peer->dialled)
            continue;
        for (uint32_t s = 0; s < args->n_streams; s++)
            maker->diallers[maker->n_diallers++] = (struct dialler){
                .callee = maker->n_callees,
                .meeting = {
                    .fd = -1,
                    .greeting = {.dialler = args->rank, .acceptor = peer->rank, .purpose = s}}};
        maker->callees[maker->n_callees++].peer = peer;
    }
    return DPB_OK;
}

static void hand_over(struct maker *maker)
{
    for (uint32_t i = 0; i < maker->n_diallers; i++) {
        struct dialler *dialler = &maker->diallers[i];
        maker->callees[dialler->callee].peer->fds[dialler->meeting.greeting.purpose] =
            dialler->meeting.fd;
        dialler->meeting.fd = -1;
    }
}

static void close_peers(const struct dpb_connect_args *args)
{
    for (uint32_t i = 0; i < args->n_peers; i++)
        for (uint32_t s = 0; s < args->n_streams; s++) {
            int *fd = &args->peers[i].fds[s];
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
    dpb_door_close(&maker->door);
    for (uint32_t i = 0; i < maker->n_diallers; i++)
        dpb_meeting_close(&maker->diallers[i].meeting);
    explicit_bzero(maker->circle.secret, sizeof maker->circle.secret);
    free(maker->callees);
    free(maker->diallers);
    free(maker->fds);
}

dpb_status dpb_world_connect(const struct dpb_connect_args *args)
{
    struct maker maker = {.args = args};
    for (uint32_t i = 0; i < args->n_peers; i++)
        for (uint32_t s = 0; s < DPB_STREAMS; s++)
            args->peers[i].fds[s] = -1;
    dpb_status status = prepare(&maker);
    DPB_THEN(status, share_secret(&maker));
    if (status == DPB_OK && args->n_peers > 0) {
        status = listen_at(&maker);
        DPB_THEN(status, compare_shapes(&maker));
        DPB_THEN(status, tell_addresses(&maker));
        DPB_THEN(status, meet(&maker));
    }
    if (status == DPB_OK)
        hand_over(&maker);
    else
        close_peers(args);
    finish(&maker);
    return status;
}
