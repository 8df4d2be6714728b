/*
 * handshake.h - the proof that both ends of a TCP connection belong to the job, and the door that
 * admits connections with this proof. Launchers and strategies use both.
 *
 *     dialler -> acceptor   hello: both ranks, the purpose; nonce
 *     acceptor -> dialler   answer: nonce, code of "answer", of all that and of both nonces
 *     dialler -> acceptor   proof: code of "proof", and the same
 *     acceptor -> dialler   welcome: a byte
 *
 * The code is dpb_mac with the secret of the circle. So neither side's code can be sent back as the
 * other's, nor be used for another connection. Until a proof has come, the acceptor has sent and
 * kept only a few bytes for the dialler. Nothing here blocks.
 */
#ifndef DPB_CORE_WORLD_HANDSHAKE_H
#define DPB_CORE_WORLD_HANDSHAKE_H

#include <netinet/in.h>
#include <poll.h>

#include "base/deadline.h"
#include "base/secret.h"
#include "dpbench/status.h"

enum { DPB_NONCE_BYTES = 32, DPB_CIRCLE_BYTES = 64, DPB_STRANGERS = 64, DPB_NAMED_STRANGERS = 8 };
enum { DPB_SOCKET_TEXT = INET6_ADDRSTRLEN + 9 };
#define DPB_VISIT_NS INT64_C(3000000000) /* to prove oneself */

struct dpb_greeting;

/* The processes that connect with each other share this, and they alone know the secret. */
struct dpb_circle {
    char name[DPB_CIRCLE_BYTES];
    uint8_t secret[DPB_SECRET_BYTES];
    /* Whether this acceptor awaits the greeting; it answers no other. NULL: any. */
    bool (*expects)(const void *context, const struct dpb_greeting *greeting);
    const void *context;
};

/* The format on the wire, in the byte order that all machines of a job have. */
struct dpb_greeting {
    uint64_t magic;
    uint32_t dialler, acceptor; /* ranks */
    uint32_t purpose, zero;
    uint8_t nonce[DPB_NONCE_BYTES];
};
#define DPB_GREETING_MAGIC UINT64_C(0x3154454552475044) /* "DPGREET1" */

struct dpb_answer {
    uint8_t nonce[DPB_NONCE_BYTES], code[DPB_MAC_BYTES];
};

typedef enum dpb_heard {
    DPB_HEARD_PART,    /* more is to come */
    DPB_HEARD_PROOF,   /* both sides are proven */
    DPB_HEARD_END,     /* the connection is broken: `why` */
    DPB_HEARD_STRANGER /* the other side is not of the circle: `why` */
} dpb_heard;

/* One side of a connection that is being proven. */
struct dpb_meeting {
    int fd;                       /* non-blocking, @owned; -1: none */
    int awaits;                   /* handshake.c's */
    struct dpb_deadline deadline; /* of a visitor at a door */
    struct dpb_greeting greeting;
    struct dpb_answer answer;
    uint8_t code[DPB_MAC_BYTES]; /* the proof that is coming */
    size_t n_bytes;              /* of the message that is coming */
    const char *why;
};

/* The dialler, once the socket is connected; `greeting` has ranks and purpose. */
dpb_heard dpb_meeting_begin(struct dpb_meeting *meeting);
/* Whenever there is something to read. */
dpb_heard dpb_meeting_move(struct dpb_meeting *meeting, const struct dpb_circle *circle);
void dpb_meeting_close(struct dpb_meeting *meeting);

union dpb_socket_address {
    struct sockaddr any;
    struct sockaddr_in ip4;
    struct sockaddr_in6 ip6;
};

/* For messages: "127.0.0.1:5000" or "[::1]:5000". */
void dpb_socket_text(const union dpb_socket_address *address, char text[DPB_SOCKET_TEXT]);

/*
 * A listener that strangers cannot block: a connection that stalls or sends garbage is dropped. The
 * log names the first DPB_NAMED_STRANGERS of them and, at the end, counts the others. A stranger
 * takes a place for at most DPB_VISIT_NS, and only while no other needs the place. All connections
 * of the circle have places at once, so no number of strangers drops one of the circle.
 */
struct dpb_door {
    int listener; /* non-blocking; @borrowed, as what follows */
    const struct dpb_circle *circle;
    struct dpb_meeting *visitors; /* @owned */
    uint32_t n_visitors;
    uint64_t n_dropped;
    bool full; /* out of descriptors: no connection is accepted before a visitor has left */
};

/* For n_expected connections of the circle, and DPB_STRANGERS others; the first two are set. */
dpb_status dpb_door_open(struct dpb_door *door, uint32_t n_expected);
void dpb_door_close(struct dpb_door *door); /* accepts zeroed ones; not the listener */
/* Descriptors to poll: 1 + n_visitors. */
uint32_t dpb_door_watch(const struct dpb_door *door, struct pollfd *fds);
/* After poll: came->fd is a proven connection, @owned by the caller; -1: there is none. Fails if
 * this process has no descriptor left for another connection. */
dpb_status dpb_door_serve(struct dpb_door *door, const struct pollfd *fds,
                          struct dpb_meeting *came);

#endif
