/* handshake.c - see handshake.h. */
#include "world/handshake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

enum { AWAITS_HELLO, AWAITS_ANSWER, AWAITS_PROOF, AWAITS_WELCOME };
enum { SIDE_ANSWER, SIDE_PROOF };

/* ---- messages ------------------------------------------------------------------------------ */

static void code_of(const struct dpb_meeting *meeting, const struct dpb_circle *circle,
                    uint32_t side, uint8_t code[DPB_MAC_BYTES])
{
    struct {
        uint64_t side;
        char name[DPB_CIRCLE_BYTES];
        struct dpb_greeting greeting;
        uint8_t nonce[DPB_NONCE_BYTES];
    } said = {.side = side, .greeting = meeting->greeting};
    memcpy(said.name, circle->name, strnlen(circle->name, sizeof said.name));
    memcpy(said.nonce, meeting->answer.nonce, sizeof said.nonce);
    dpb_mac(circle->secret, &said, sizeof said, code);
}

static dpb_heard end(struct dpb_meeting *meeting, dpb_heard heard, const char *why)
{
    meeting->why = why;
    return heard;
}

/* A message is small: a socket that does not take all of it at once is given up. */
static dpb_heard say(struct dpb_meeting *meeting, const void *bytes, size_t n, int awaits)
{
    meeting->awaits = awaits;
    return send(meeting->fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n
               ? DPB_HEARD_PART
               : end(meeting, DPB_HEARD_END, "it is gone");
}

/* Reads on until `n` bytes are there, and never more. DPB_HEARD_PROOF: they are; DPB_HEARD_PART:
 * not yet; DPB_HEARD_END: the other side closed the connection, for which `closed` stands. */
static dpb_heard hear(struct dpb_meeting *meeting, void *bytes, size_t n, const char *closed)
{
    ssize_t got = recv(meeting->fd, (char *)bytes + meeting->n_bytes, n - meeting->n_bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return DPB_HEARD_PART;
    if (got <= 0)
        return end(meeting, DPB_HEARD_END, closed);
    meeting->n_bytes += (size_t)got;
    if (meeting->n_bytes < n)
        return DPB_HEARD_PART;
    meeting->n_bytes = 0;
    return DPB_HEARD_PROOF;
}

/* ---- the dialler --------------------------------------------------------------------------- */

dpb_heard dpb_meeting_begin(struct dpb_meeting *meeting)
{
    meeting->greeting.magic = DPB_GREETING_MAGIC;
    meeting->n_bytes = 0;
    dpb_random_bytes(meeting->greeting.nonce, sizeof meeting->greeting.nonce);
    return say(meeting, &meeting->greeting, sizeof meeting->greeting, AWAITS_ANSWER);
}

static dpb_heard hear_answer(struct dpb_meeting *meeting, const struct dpb_circle *circle)
{
    uint8_t code[DPB_MAC_BYTES];
    const dpb_heard heard = hear(meeting, &meeting->answer, sizeof meeting->answer,
                                 "the connection was closed before an answer");
    if (heard != DPB_HEARD_PROOF)
        return heard;
    code_of(meeting, circle, SIDE_ANSWER, code);
    if (!dpb_same_bytes(code, meeting->answer.code, sizeof code))
        return end(meeting, DPB_HEARD_STRANGER, "it does not know the job's secret");
    code_of(meeting, circle, SIDE_PROOF, code);
    return say(meeting, code, sizeof code, AWAITS_WELCOME);
}

static dpb_heard hear_welcome(struct dpb_meeting *meeting)
{
    char byte;
    return hear(meeting, &byte, 1, "the connection was closed before it was welcome");
}

/* ---- the acceptor -------------------------------------------------------------------------- */

static dpb_heard hear_hello(struct dpb_meeting *meeting, const struct dpb_circle *circle)
{
    const dpb_heard heard =
        hear(meeting, &meeting->greeting, sizeof meeting->greeting, "it said nothing");
    if (heard != DPB_HEARD_PROOF)
        return heard;
    if (meeting->greeting.magic != DPB_GREETING_MAGIC ||
        (circle->expects && !circle->expects(circle->context, &meeting->greeting)))
        return end(meeting, DPB_HEARD_STRANGER,
                   "its first words are no hello of a rank that should connect here");
    dpb_random_bytes(meeting->answer.nonce, sizeof meeting->answer.nonce);
    code_of(meeting, circle, SIDE_ANSWER, meeting->answer.code);
    return say(meeting, &meeting->answer, sizeof meeting->answer, AWAITS_PROOF);
}

static dpb_heard hear_proof(struct dpb_meeting *meeting, const struct dpb_circle *circle)
{
    uint8_t code[DPB_MAC_BYTES];
    const dpb_heard heard = hear(meeting, meeting->code, sizeof meeting->code,
                                 "it left without proving that it knows the secret");
    if (heard != DPB_HEARD_PROOF)
        return heard;
    code_of(meeting, circle, SIDE_PROOF, code);
    if (!dpb_same_bytes(code, meeting->code, sizeof code))
        return end(meeting, DPB_HEARD_STRANGER, "it does not know the job's secret");
    return say(meeting, "w", 1, AWAITS_PROOF) == DPB_HEARD_PART ? DPB_HEARD_PROOF : DPB_HEARD_END;
}

/* ---- both ---------------------------------------------------------------------------------- */

dpb_heard dpb_meeting_move(struct dpb_meeting *meeting, const struct dpb_circle *circle)
{
    switch (meeting->awaits) {
    case AWAITS_HELLO:
        return hear_hello(meeting, circle);
    case AWAITS_ANSWER:
        return hear_answer(meeting, circle);
    case AWAITS_PROOF:
        return hear_proof(meeting, circle);
    default:
        return hear_welcome(meeting);
    }
}

void dpb_meeting_close(struct dpb_meeting *meeting)
{
    if (meeting->fd >= 0)
        close(meeting->fd);
    meeting->fd = -1;
}

/* ---- the door ------------------------------------------------------------------------------ */

dpb_status dpb_door_open(struct dpb_door *door, uint32_t n_expected)
{
    door->n_visitors = n_expected + DPB_STRANGERS;
    door->visitors = calloc(door->n_visitors, sizeof *door->visitors);
    DPB_TRY(dpb_allocated(door->visitors));
    for (uint32_t i = 0; i < door->n_visitors; i++)
        door->visitors[i].fd = -1;
    return DPB_OK;
}

void dpb_door_close(struct dpb_door *door)
{
    for (uint32_t i = 0; door->visitors && i < door->n_visitors; i++)
        dpb_meeting_close(&door->visitors[i]);
    if (door->n_dropped > DPB_NAMED_STRANGERS)
        dpb_log(DPB_LOG_WARNING, "dropped %llu more connections, none of which was the job's",
                (unsigned long long)(door->n_dropped - DPB_NAMED_STRANGERS));
    free(door->visitors);
    door->visitors = NULL;
}

void dpb_socket_text(const union dpb_socket_address *address, char text[DPB_SOCKET_TEXT])
{
    const bool ip4 = address->any.sa_family == AF_INET;
    char number[INET6_ADDRSTRLEN] = "?";
    if (ip4)
        inet_ntop(AF_INET, &address->ip4.sin_addr, number, sizeof number);
    else
        inet_ntop(AF_INET6, &address->ip6.sin6_addr, number, sizeof number);
    snprintf(text, DPB_SOCKET_TEXT, ip4 ? "%s:%u" : "[%s]:%u", number,
             ntohs(ip4 ? address->ip4.sin_port : address->ip6.sin6_port));
}

static void drop(struct dpb_door *door, struct dpb_meeting *visitor, const char *why)
{
    union dpb_socket_address theirs = {{0}};
    socklen_t bytes = sizeof theirs;
    char text[DPB_SOCKET_TEXT] = "an address that is gone";
    if (getpeername(visitor->fd, &theirs.any, &bytes) == 0)
        dpb_socket_text(&theirs, text);
    if (door->n_dropped++ < DPB_NAMED_STRANGERS)
        dpb_log(DPB_LOG_WARNING,
                "dropped a connection from %s, which has not proven that it is the job's: %s", text,
                why);
    dpb_meeting_close(visitor);
    door->full = false;
}

/* A free place; else that of the oldest visitor: a new visitor may be a rank. */
static struct dpb_meeting *place_for_visitor(struct dpb_door *door)
{
    struct dpb_meeting *least = &door->visitors[0];
    for (uint32_t i = 0; i < door->n_visitors; i++) {
        struct dpb_meeting *visitor = &door->visitors[i];
        if (visitor->fd < 0)
            return visitor;
        if (visitor->deadline.at_ns < least->deadline.at_ns)
            least = visitor;
    }
    drop(door, least, "others came, and it had not proven itself");
    return least;
}

/* The visitors leave within DPB_VISIT_NS, and their descriptors with them. */
static dpb_status meet_shortage(struct dpb_door *door)
{
    const char *why = strerror(errno);
    for (uint32_t i = 0; i < door->n_visitors; i++)
        door->full = door->full || door->visitors[i].fd >= 0;
    return door->full ? DPB_OK : dpb_fail(DPB_FAILED, "cannot accept a connection: %s", why);
}

/* One at a time: all visitors are heard before others take their places. */
static dpb_status let_in(struct dpb_door *door)
{
    int fd = accept4(door->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
        return meet_shortage(door);
    if (fd < 0)
        return DPB_OK; /* gone again */
    *place_for_visitor(door) = (struct dpb_meeting){
        .fd = fd, .awaits = AWAITS_HELLO, .deadline = dpb_deadline_in(DPB_VISIT_NS)};
    return DPB_OK;
}

uint32_t dpb_door_watch(const struct dpb_door *door, struct pollfd *fds)
{
    fds[0] = (struct pollfd){.fd = door->full ? -1 : door->listener, .events = POLLIN};
    for (uint32_t i = 0; i < door->n_visitors; i++)
        fds[1 + i] = (struct pollfd){.fd = door->visitors[i].fd, .events = POLLIN};
    return 1 + door->n_visitors;
}

dpb_status dpb_door_serve(struct dpb_door *door, const struct pollfd *fds, struct dpb_meeting *came)
{
    came->fd = -1;
    for (uint32_t i = 0; i < door->n_visitors; i++) {
        struct dpb_meeting *visitor = &door->visitors[i];
        dpb_heard heard = DPB_HEARD_PART;
        if (visitor->fd < 0)
            continue;
        if (fds[1 + i].revents != 0)
            heard = dpb_meeting_move(visitor, door->circle);
        if (heard == DPB_HEARD_PROOF) {
            *came = *visitor;
            visitor->fd = -1;
            door->full = false; /* whatever becomes of it, the others have had their turn */
            return DPB_OK;
        }
        if (heard != DPB_HEARD_PART)
            drop(door, visitor, visitor->why);
        else if (dpb_deadline_passed(visitor->deadline))
            drop(door, visitor, "it took too long to prove itself");
    }
    return fds[0].revents != 0 ? let_in(door) : DPB_OK;
}
